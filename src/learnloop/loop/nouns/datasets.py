"""``ws.datasets``: from stored traces to what ``ll.train`` learns from."""

from __future__ import annotations

from collections.abc import Callable

from learnloop.core.datasets import Dataset
from learnloop.loop.nouns.listing import Noun
from learnloop.traces.datasets.building import DatasetReport, build_dataset
from learnloop.traces.datasets.logged_episodes import RewardKind, StepKind


class Datasets(Noun):
    """Data sets of a workspace."""

    def build(
        self,
        *,
        agent: str | None = None,
        policy: str | None = None,
        steps: StepKind = "auto",
        rewards: RewardKind = "auto",
        like: Dataset | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> tuple[Dataset, DatasetReport]:
        """Returns the stored episodes as a data set, which ``ll.train(dataset=...)`` takes, and what was left out.

        Args:
            agent: whose; None: all agents'.
            policy: the decisions of this policy are the steps; None: those of all.
            steps: what a step is: ``decisions``, ``spans`` (executed tools), or ``auto``.
            rewards: ``steps``, ``episode`` or ``auto``; see ``build_dataset``.
            like: a data set whose actions and observations this one is to have too.
            progress: told of the number of episodes read.

        Raises:
            UsageError: no episode is left; the message says how many were read and why each was left out.
            ActionError, ContextError: the log has what ``like`` does not know.
        """
        return build_dataset(
            self._workspace.store,
            agent_id=agent,
            policy=policy,
            steps=steps,
            rewards=rewards,
            like=like,
            progress=progress,
        )
