"""The workspace as users hold it: an open store with a noun for each kind of thing that it keeps."""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

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


def _noun(module: str, name: str, about: str) -> cached_property[Any]:
    """Returns the property of a noun, which is imported when it is first asked for."""
    found = cached_property(lambda workspace: getattr(import_module(f"learnloop.loop.nouns.{module}"), name)(workspace))
    found.__doc__ = about
    return found


class Workspace(WorkspaceCore):
    """An open store with its registry and its nouns, each imported when it is first used.

    It takes and raises what ``WorkspaceCore`` does, which is what the functions of the facade are given.
    """

    episodes: cached_property[Episodes] = _noun(
        "episodes",
        "Episodes",
        "What agents did: ``list``, ``show``, ``steps``, ``stats``, ``import_``, ``export``, ``remove`` ...",
    )
    spans: cached_property[Spans] = _noun(
        "spans",
        "Spans",
        "What happened in episodes: ``list``, ``show``, ``outline``, ``usage``.",
    )
    rewards: cached_property[Rewards] = _noun(
        "rewards",
        "Rewards",
        "What runs were worth: ``list``, ``record``, ``calculate``, ``history``, ``test``, ``audit`` ...",
    )
    labels: cached_property[Labels] = _noun(
        "labels",
        "Labels",
        "What people say of runs: ``give``, ``ask``, ``list``, ``answer``, ``accept``, ``skip``, ``learn``.",
    )
    decisions: cached_property[Decisions] = _noun(
        "decisions",
        "Decisions",
        "What was chosen, what it earned, settings: ``list``, ``show``, ``reward``, ``evaluate`` ...",
    )
    policies: cached_property[RegisteredPolicies] = _noun(
        "policies",
        "RegisteredPolicies",
        "Registered versions: ``list``, ``show``, ``alias``, ``prune``, ``export``, ``evaluate``, ``prove``.",
    )
    runs: cached_property[TrainingRuns] = _noun(
        "runs",
        "TrainingRuns",
        "Trainings: ``list``, ``open``, ``train``, ``resume``, ``compare``.",
    )
    datasets: cached_property[Datasets] = _noun(
        "datasets",
        "Datasets",
        "What ``ll.train`` learns from: ``build``.",
    )
