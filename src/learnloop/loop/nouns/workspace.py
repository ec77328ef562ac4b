"""The workspace as users hold it: an open store with a noun for each kind of thing that it keeps."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from learnloop.loop.workspace.core import WorkspaceCore

if TYPE_CHECKING:
    from learnloop.loop.nouns.datasets import Datasets
    from learnloop.loop.nouns.decisions import Decisions
    from learnloop.loop.nouns.episodes import Episodes
    from learnloop.loop.nouns.labels import Labels
    from learnloop.loop.nouns.policies import RegisteredPolicies
    from learnloop.loop.nouns.rewards import Rewards
    from learnloop.loop.nouns.runs import TrainingRuns
    from learnloop.loop.nouns.spans import Spans


class Workspace(WorkspaceCore):
    """An open store with its registry and its nouns, each imported when it is first used.

    It takes and raises what ``WorkspaceCore`` does, which is what the functions of the facade are given.
    """

    @cached_property
    def episodes(self) -> Episodes:
        """What agents did: ``list``, ``show``, ``steps``, ``stats``, ``import_``, ``export``, ``remove`` ..."""
        from learnloop.loop.nouns.episodes import Episodes

        return Episodes(self)

    @cached_property
    def spans(self) -> Spans:
        """What happened in episodes: ``list``, ``show``, ``outline``, ``usage``."""
        from learnloop.loop.nouns.spans import Spans

        return Spans(self)

    @cached_property
    def rewards(self) -> Rewards:
        """What runs were worth: ``list``, ``record``, ``calculate``, ``history``, ``test``, ``audit`` ..."""
        from learnloop.loop.nouns.rewards import Rewards

        return Rewards(self)

    @cached_property
    def labels(self) -> Labels:
        """What people say of runs: ``give``, ``ask``, ``list``, ``answer``, ``accept``, ``skip``, ``learn``."""
        from learnloop.loop.nouns.labels import Labels

        return Labels(self)

    @cached_property
    def decisions(self) -> Decisions:
        """What was chosen and what it earned; settings of policies: ``list``, ``show``, ``reward``, ``evaluate`` ..."""
        from learnloop.loop.nouns.decisions import Decisions

        return Decisions(self)

    @cached_property
    def policies(self) -> RegisteredPolicies:
        """Registered versions: ``list``, ``show``, ``alias``, ``prune``, ``export``, ``evaluate``, ``prove``."""
        from learnloop.loop.nouns.policies import RegisteredPolicies

        return RegisteredPolicies(self)

    @cached_property
    def runs(self) -> TrainingRuns:
        """Trainings: ``list``, ``open``, ``train``, ``resume``, ``compare``."""
        from learnloop.loop.nouns.runs import TrainingRuns

        return TrainingRuns(self)

    @cached_property
    def datasets(self) -> Datasets:
        """What ``ll.train`` learns from: ``build``."""
        from learnloop.loop.nouns.datasets import Datasets

        return Datasets(self)
