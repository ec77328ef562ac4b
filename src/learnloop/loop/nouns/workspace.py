"""The workspace as users hold it: an open store with a noun for each kind of thing that it keeps."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from learnloop.loop.workspace.core import WorkspaceCore

if TYPE_CHECKING:
    from learnloop.loop.nouns.datasets import Datasets
    from learnloop.loop.nouns.decisions import Decisions
    from learnloop.loop.nouns.labels import Labels
    from learnloop.loop.nouns.policies import RegisteredPolicies


class Workspace(WorkspaceCore):
    """An open store with its registry and its nouns, each imported when it is first used.

    It takes and raises what ``WorkspaceCore`` does, which is what the functions of the facade are given.
    """

    @cached_property
    def policies(self) -> RegisteredPolicies:
        """Registered versions: ``list``, ``show``, ``alias``, ``prune``, ``export``, ``evaluate``, ``prove``."""
        from learnloop.loop.nouns.policies import RegisteredPolicies

        return RegisteredPolicies(self)

    @cached_property
    def decisions(self) -> Decisions:
        """What was chosen and what it earned; settings of policies: ``list``, ``show``, ``reward``, ``evaluate`` ..."""
        from learnloop.loop.nouns.decisions import Decisions

        return Decisions(self)

    @cached_property
    def labels(self) -> Labels:
        """What people say of runs: ``give``, ``ask``, ``list``, ``answer``, ``accept``, ``skip``, ``learn``."""
        from learnloop.loop.nouns.labels import Labels

        return Labels(self)

    @cached_property
    def datasets(self) -> Datasets:
        """What ``ll.train`` learns from: ``build``."""
        from learnloop.loop.nouns.datasets import Datasets

        return Datasets(self)
