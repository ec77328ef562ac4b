"""``ws.runs``: trainings, listed, opened again, gone on with and compared."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from learnloop.core.errors import UsageError
from learnloop.evaluation.seeds import Improvement, probability_of_improvement
from learnloop.evaluation.tables import html_table
from learnloop.loop.nouns.listing import Listing, Noun
from learnloop.loop.training.training import RUNS_FOLDER, Run, open_run, resume, train
from learnloop.training.proof import HELD_OUT_EPISODES
from learnloop.training.runs import RunEvaluation, RunRecord, list_runs
from learnloop.training.trainers.seed_trainer import OnProgress


class RunComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two trainings in one environment, by what the policies of their seeds earn on held-out episodes."""

    runs: tuple[RunRecord, RunRecord]
    evaluations: tuple[RunEvaluation, RunEvaluation]
    improvement: Improvement
    """How likely a seed of the first is better than one of the second."""

    def rows(self) -> list[dict[str, Any]]:
        """Returns the two runs as rows of a table."""
        return [
            _row(run) | {"mean": found.summary.mean, "iqm": found.summary.iqm}
            for run, found in zip(self.runs, self.evaluations, strict=True)
        ]

    def _repr_html_(self) -> str:
        """Returns both as a table, which notebooks show."""
        found = self.improvement
        sure = found.reason if found.interval is None else f"{found.interval.low:.2f} to {found.interval.high:.2f}"
        return html_table(self.rows(), f"the first is better with probability {found.probability:.2f} ({sure})")


class TrainingRuns(Noun):
    """The trainings of a workspace; ``latest`` names the newest."""

    def list(self) -> Listing[RunRecord]:
        """Returns all runs, the newest last.

        Raises:
            CorruptError: the record of one cannot be read.
        """
        return Listing(list_runs(self._workspace.settings.home / RUNS_FOLDER), _row)

    def open(self, run_id: str = "latest", *, env: Any = None) -> Run:
        """Returns a run that was trained before; see ``ll.open_run``."""
        return open_run(run_id, env=env, home=self._workspace.settings)

    def train(self, algorithm: str = "ppo", env: Any = None, **how: Any) -> Run:
        """Trains a policy and returns the run, which is kept in this workspace; see ``ll.train``."""
        return train(algorithm, env, home=self._workspace.settings, **how)

    def resume(self, run_id: str = "latest", *, env: Any = None, on_progress: OnProgress | None = None) -> Run:
        """Goes on with a run that was interrupted and returns it; see ``ll.resume``."""
        return resume(run_id, env=env, home=self._workspace.settings, on_progress=on_progress)

    def compare(self, first: str, second: str, *, num_episodes: int = HELD_OUT_EPISODES) -> RunComparison:
        """Returns how two runs in the same environment fare against each other on held-out episodes.

        Args:
            first: a run.
            second: another one.
            num_episodes: of each seed.

        Raises:
            NotFoundError: there is no such run.
            UsageError: they were trained in different environments, or what they earn cannot be measured.
        """
        runs = self.open(first), self.open(second)
        places = [(run.record.options.env, run.record.options.env_kwargs) for run in runs]
        if places[0] != places[1]:
            raise UsageError(
                f"{first} was trained in {places[0][0]} and {second} in {places[1][0]}; what they earn there is not "
                "comparable: name two runs of one environment, made with the same env_kwargs"
            )
        one, other = (run.evaluate(num_episodes) for run in runs)
        return RunComparison(
            runs=(runs[0].record, runs[1].record),
            evaluations=(one, other),
            improvement=probability_of_improvement(one.means, other.means),
        )


def _row(run: RunRecord) -> dict[str, Any]:
    best = [result.best_return for result in run.results if result.best_return is not None]
    return {
        "run_id": run.run_id,
        "algorithm": run.options.algorithm,
        "env": run.options.env,
        "status": run.status,
        "num_seeds": len(run.seeds),
        "best_return": max(best, default=None),
        "created_at": datetime.fromisoformat(run.created_at),
    }
