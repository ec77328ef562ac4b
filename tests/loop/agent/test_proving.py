"""learnloop.loop.agent.proving: episodes are held out for good, and versions are compared on what neither has seen."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

import learnloop as ll
from learnloop.algorithms import BanditTrainer
from learnloop.core.errors import UsageError
from learnloop.core.protocols import Sample
from learnloop.core.records import Decision, Episode, EpisodeStatus, Verdict
from learnloop.evaluation import OutcomeTable
from learnloop.evaluation.splitting import split_by_unit
from learnloop.loop import Workspace, evaluate
from learnloop.registry import Proof

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with ll.Loop("bot", home=tmp_path) as loop:
        yield loop.workspace


def sample(unit: str) -> Sample:
    return Sample(unit, {}, ["a"], None, "a", 1.0, 0.0)


def test_a_unit_that_is_held_out_stays_held_out() -> None:
    few = split_by_unit([sample(f"u{i}") for i in range(500)])
    more = split_by_unit([sample(f"u{i}") for i in range(1000)])
    assert {each.unit for each in few.held_out} <= {each.unit for each in more.held_out}
    assert {each.unit for each in few.train} <= {each.unit for each in more.train}
    assert len(more.held_out) == pytest.approx(400, abs=60)


def register(workspace: Workspace, run: str, table: OutcomeTable, trained_on: list[str], weight: float) -> None:
    """Registers a version that says it was trained on the tasks ``trained_on``."""
    for number, task in enumerate(trained_on):
        key = f"{run}-{number}"
        episode = Episode(
            episode_id=key, trace_id=key, agent_id="bot", task_id=task, status=EpisodeStatus.COMPLETED, started_at=NOW
        )
        decision = Decision(
            decision_id=key,
            episode_id=key,
            agent_id="bot",
            policy=run,
            algorithm=None,
            context={},
            actions=["a", "b"],
            action="a",
            propensity=1.0,
            created_at=NOW,
        )
        workspace.store.write([episode, decision])
    samples = [Sample(f"s{i}", {}, ["a", "b"], None, "ab"[i % 2], 0.5, i % 2 * weight) for i in range(40 + int(weight))]
    artifact = BanditTrainer().train(samples, 0).to_artifact()
    assert workspace.store.blobs is not None
    held_out = {"kind": "outcomes", "blob": workspace.store.blobs.put(table.to_bytes())}
    proof = Proof(verdict=Verdict.LEARNED, reasons=[], metrics={"reward": weight})
    workspace.registry.register("bot.p", artifact, proof, lineage={"agent": "bot", "policy": run, "held_out": held_out})


def table_of(units: list[str]) -> OutcomeTable:
    return OutcomeTable(units, [{}] * len(units), ["a", "b"], np.tile([0.0, 1.0], (len(units), 1)))


def test_versions_are_compared_on_tasks_that_neither_was_trained_on(workspace: Workspace) -> None:
    units = [f"t{i}" for i in range(50)]
    register(workspace, "run-1", table_of(units), ["x"], 1.0)
    register(workspace, "run-2", table_of(["y"] * 1), units[:20], 2.0)
    _, comparison = evaluate(workspace, "bot.p@1", "bot.p@2")
    assert comparison.num_units == 30
    _, alone = evaluate(workspace, "bot.p@1", "random")
    assert alone.num_units == 50


def test_versions_without_common_unseen_tasks_are_not_compared(workspace: Workspace) -> None:
    units = [f"t{i}" for i in range(30)]
    register(workspace, "run-1", table_of(units), ["x"], 1.0)
    register(workspace, "run-2", table_of(units), units[:15], 2.0)
    with pytest.raises(UsageError, match=r"bot\.p@2 was trained on all but 15 of these"):
        evaluate(workspace, "bot.p@1", "bot.p@2")
