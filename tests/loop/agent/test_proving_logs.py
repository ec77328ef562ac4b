"""Loop.prove on logs that were written as others write them: shared rewards, users, decisions under two ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import learnloop as ll
from learnloop.core.clock import now
from learnloop.core.errors import UsageError
from learnloop.core.protocols import Question
from learnloop.core.records import Decision, Record, Reward, Verdict
from learnloop.loop.agent.session import Loop

LONG_AGO = now() - timedelta(days=30)


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[Loop]:
    with ll.Loop("bot", home=tmp_path, seed=0) as opened:
        yield opened


def decision(
    key: str, at: float, action: int, share: float, context: dict[str, Any], of: str | None = None
) -> Decision:
    return Decision(
        decision_id=key, episode_id=of, agent_id="bot", policy="p", algorithm="rules", context=context,
        actions=["a", "b"], action="ab"[action], propensity=share, created_at=LONG_AGO + timedelta(seconds=at),
    )  # fmt: skip


def reward(key: str, value: float, of: str | None = None) -> Reward:
    made: datetime = LONG_AGO + timedelta(days=1)
    return Reward(
        reward_id=f"r-{key}", episode_id=of, decision_id=None if of else key, name="n", value=value, created_at=made
    )


def write(loop: Loop, records: Sequence[Record]) -> None:
    loop.workspace.store.write(records)


def test_two_choices_that_share_a_reward_are_not_learned_one_by_one(loop: Loop) -> None:
    """The reward is 1 if they differ, and the log takes a in 70 %: one by one b seems worth .7; two are worth 0."""
    rng, records = np.random.default_rng(0), []
    for number in range(800):
        taken = (rng.random(2) < 0.3).astype(int).tolist()
        records += [
            decision(
                f"d{number}.{turn}", 2 * number + turn, action, 0.3 if action else 0.7, {"turn": turn}, f"e{number}"
            )
            for turn, action in enumerate(taken)
        ]
        records.append(reward(f"e{number}", float(taken[0] != taken[1]), f"e{number}"))
    write(loop, records)
    verification, version = loop.prove("p")
    assert verification.verdict is not Verdict.LEARNED, verification.reasons
    assert version is None
    assert loop.workspace.registry.versions() == []
    told = {each.name: each.detail for each in verification.assumptions}
    assert "1,600 decisions share a reward with others of their episode" in told["rewards_of_decisions"]


def users(num_users: int, per_user: int, seed: int) -> list[Record]:
    """Returns users who keep one arm and are content or not, whatever their arm is."""
    rng, records = np.random.default_rng(seed), []
    for user in range(num_users):
        action, content = int(rng.integers(2)), float(rng.normal())
        for turn in range(per_user):
            key = f"u{user}.{turn}"
            at = user * per_user + turn
            records.append(decision(key, at, action, 0.5, {"user": f"user{user}", "kind": "k"}))
            records.append(reward(key, content + 0.1 * float(rng.normal())))
    return records


def test_users_who_keep_an_arm_are_found_and_a_unit_is_asked_for(loop: Loop) -> None:
    write(loop, users(60, 12, 0))
    verification, version = loop.prove("p")
    assert verification.verdict is Verdict.INCONCLUSIVE
    assert version is None
    assert verification.policy is None
    assert "Name what belongs together (unit:" in "; ".join(verification.reasons)


def test_with_the_unit_users_are_on_one_side_and_counted(loop: Loop) -> None:
    write(loop, users(60, 12, 0))
    verification, version = loop.prove("p", unit="user")
    assert verification.num_training_units + verification.num_units == 60
    assert verification.num_samples % 12 == 0
    found = {each.name: str(each.finding) for each in verification.assumptions}
    assert found["independence"] == "holds"
    assert verification.verdict is not Verdict.LEARNED, verification.reasons
    assert version is None


def test_a_unit_that_nobody_names_is_refused_with_the_number(loop: Loop) -> None:
    write(loop, users(3, 2, 0))
    with pytest.raises(UsageError, match="6 of 6 decisions do not say which session they are of"):
        loop.prove("p", unit="session")
    assert loop.workspace.registry.versions() == []


def good_users(num_users: int) -> list[Record]:
    """Returns users of two kinds, who ask four times each; a is right for one kind and b for the other."""
    rng, records = np.random.default_rng(1), []
    for user in range(num_users):
        kind = int(rng.integers(2))
        for turn in range(4):
            action = int(rng.integers(2))
            key = f"u{user}.{turn}"
            records.append(decision(key, 4 * user + turn, action, 0.5, {"user": f"user{user}", "kind": "xy"[kind]}))
            records.append(reward(key, float(rng.random() < (0.85 if action == kind else 0.15))))
    return records


@pytest.mark.slow
def test_what_learned_is_registered_with_its_unit_and_evaluated_by_it(loop: Loop) -> None:
    write(loop, good_users(300))
    loop.policy("p", features={"kind": "category"})
    verification, version = loop.prove("p", unit="user")
    assert verification.verdict is Verdict.LEARNED, verification.reasons
    assert version is not None
    assert version.lineage["held_out"] == {"kind": "log", "unit": "user"}
    policy = verification.policy
    assert policy is not None
    chosen = [policy.probabilities(Question({"kind": kind}), ["a", "b"]).argmax() for kind in "xy"]
    assert chosen == [0, 1]
    _, comparison = ll.loop.evaluate(loop.workspace, "bot.p", "random")
    assert comparison.num_units == verification.num_units
    assert comparison.difference > 0.2


@pytest.mark.slow
def test_copies_are_told_and_count_once(loop: Loop) -> None:
    """A tenth of the log was written twice under other ids."""
    records = good_users(250)
    rows = [each for each in records if isinstance(each, Decision)][::10]
    copies = [msgspec.structs.replace(each, decision_id=f"again-{each.decision_id}") for each in rows]
    earned = {each.decision_id: each.value for each in records if isinstance(each, Reward)}
    again = [reward(each.decision_id, earned[row.decision_id] or 0.0) for each, row in zip(copies, rows, strict=True)]
    write(loop, [*records, *copies, *again])
    loop.policy("p", features={"kind": "category"})
    verification, _ = loop.prove("p")
    assert verification.num_samples + verification.overlap["random"].num_samples == 1_000
    assert (
        "100 decisions are in the log twice (same time, context and action); each counts once" in verification.reasons
    )


def test_what_is_all_too_new_has_a_verdict_that_says_so(loop: Loop) -> None:
    """Made some seconds ago and rewarded now, but for one action's failures: whether these are missing is too early."""
    rng, moment, records = np.random.default_rng(0), now(), []
    for row in range(120):
        action, won = int(rng.integers(2)), bool(rng.random() < 0.5)
        made = decision(f"d{row}", 0.0, action, 0.5, {"x": float(row)})
        at = moment - timedelta(seconds=60 + row / 10)
        records.append(msgspec.structs.replace(made, settings_version=1, created_at=at))
        if won or action == 0:
            records.append(msgspec.structs.replace(reward(f"d{row}", float(won)), created_at=moment))
    write(loop, records)
    verification, version = loop.prove("p")
    assert (verification.verdict, version) == (Verdict.INCONCLUSIVE, None)
    assert "there are no samples to learn from" in verification.reasons[0]
    assert "newest decisions were left out" in verification.reasons[-1]
