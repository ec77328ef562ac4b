"""learnloop.loop.decisions.counterfactual: what others would have earned on the decisions of the log."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from learnloop.algorithms import BanditTrainer
from learnloop.core.errors import NotFoundError, RewardError, UsageError
from learnloop.core.protocols import Sample
from learnloop.core.records import Agent, Decision, DecisionMode, Reward, Verdict
from learnloop.evaluation import FixedPolicy
from learnloop.evaluation.compare import CHOICE_SALT
from learnloop.evaluation.policies import distributions
from learnloop.evaluation.splitting import is_held_out
from learnloop.loop import Workspace
from learnloop.loop.decisions.counterfactual import (
    Counterfactual,
    CounterfactualOptions,
    _estimate,
    _fixed_values,
    _log,
    _read,
    evaluate_decisions,
)
from learnloop.loop.workspace.settings import find_settings
from learnloop.registry import Proof

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ACTIONS = ["a", "b", "c"]
NUMBER = 1_500


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    """Uniform decisions; ``b`` earns 1 where x is positive and ``c`` elsewhere, all else earns 0."""
    rng = np.random.default_rng(0)
    with Workspace(find_settings(tmp_path), create=True) as opened:
        records: list[Decision | Reward | Agent] = [Agent(agent_id="bot", created_at=NOW)]
        for row in range(NUMBER):
            x, action = float(rng.normal()), ACTIONS[int(rng.integers(3))]
            records.append(
                Decision(
                    decision_id=f"d{row:05d}", episode_id=None, agent_id="bot", policy="p", algorithm="uniform",
                    context={"x": x}, actions=ACTIONS, action=action, propensity=1 / 3, baseline_action="b",
                    mode=DecisionMode.LEARNING, created_at=NOW + timedelta(seconds=row),
                )
            )  # fmt: skip
            earned = float(action == ("b" if x > 0 else "c"))
            records.append(
                Reward(
                    reward_id=f"r{row:05d}", episode_id=None, decision_id=f"d{row:05d}", name="r", value=earned,
                    created_at=NOW,
                )
            )  # fmt: skip
        opened.store.write(records)
        yield opened


def values(found: Counterfactual) -> dict[str, float | None]:
    return {each.target: None if each.estimate is None else each.estimate.value for each in found.targets}


def register(workspace: Workspace) -> None:
    rng = np.random.default_rng(1)
    samples = []
    for row in range(600):
        x, action = float(rng.normal()), ACTIONS[row % 3]
        samples.append(
            Sample(f"s{row}", {"x": x}, ACTIONS, None, action, 1 / 3, float(action == ("b" if x > 0 else "c")))
        )
    artifact = BanditTrainer().train(samples, 0).to_artifact()
    proof = Proof(verdict=Verdict.LEARNED, reasons=[])
    version = workspace.registry.register("bot.p", artifact, proof, lineage={})
    workspace.registry.set_alias("bot.p", "champion", version, actor="test", reason="test")


@pytest.mark.parametrize("estimator", ["ips", "snips", "dr"])
def test_each_target_is_worth_what_it_would_earn(workspace: Workspace, estimator: str) -> None:
    register(workspace)
    options = CounterfactualOptions(estimator=estimator, reward_range=(0.0, 1.0))  # type: ignore[arg-type]
    targets = ["champion", "uniform", "baseline", "best-fixed", "bot.p@1"]
    found = evaluate_decisions(workspace, "bot", "p", targets, options)
    assert (found.num_decisions, found.num_rewarded) == (NUMBER, NUMBER)
    assert found.logged_mean == pytest.approx(1 / 3, abs=0.05)
    expected = {"champion": 1.0, "uniform": 1 / 3, "baseline": 0.5, "best-fixed": 0.5, "bot.p@1": 1.0}
    assert values(found) == {name: pytest.approx(value, abs=0.1) for name, value in expected.items()}
    labels = {each.target: each.label for each in found.targets}
    assert labels["champion"] == labels["bot.p@1"] == "bot.p@1"
    for each in found.targets:
        assert each.estimate is not None
        assert each.estimate.interval is not None
        assert each.estimate.bounds is not None


def test_what_cannot_be_told_has_a_reason(workspace: Workspace) -> None:
    """F1: no version, nothing invented."""
    found = evaluate_decisions(workspace, "bot", "p", ["champion", "uniform", "bot.p@7"])
    reasons = {each.target: each.reason for each in found.targets}
    assert reasons["uniform"] is None
    assert "no champion" in (reasons["champion"] or "")
    assert "bot.p" in (reasons["bot.p@7"] or "")
    assert values(found)["champion"] is None


def test_only_the_decisions_of_a_time(workspace: Workspace) -> None:
    options = CounterfactualOptions(since=NOW + timedelta(seconds=100), until=NOW + timedelta(seconds=400))
    assert evaluate_decisions(workspace, "bot", "p", ["uniform"], options).num_decisions == 300
    assert evaluate_decisions(workspace, "bot", "p", ["uniform"], CounterfactualOptions(newest=50)).num_decisions == 50


def test_only_decisions_that_no_version_was_trained_on(workspace: Workspace) -> None:
    options = CounterfactualOptions(held_out_share=0.4)
    found = evaluate_decisions(workspace, "bot", "p", ["uniform"], options)
    expected = sum(is_held_out(f"d{row:05d}", 0.4) for row in range(NUMBER))
    assert found.num_decisions == expected
    with pytest.raises(UsageError, match="held_out_share"):
        CounterfactualOptions(held_out_share=1.0)


def test_missing_rewards_are_refused_with_the_count(workspace: Workspace) -> None:
    """trust.md O4."""
    workspace.store.write(
        [
            Decision(
                decision_id=f"e{row}", episode_id=None, agent_id="bot", policy="p", algorithm="uniform",
                context={"x": 1.0}, actions=ACTIONS, action="a", propensity=1 / 3, mode=DecisionMode.LEARNING,
                created_at=NOW,
            )
            for row in range(20)
        ]
    )  # fmt: skip
    with pytest.raises(RewardError, match=f"20 of {NUMBER + 20} decisions have no reward"):
        evaluate_decisions(workspace, "bot", "p")
    found = evaluate_decisions(workspace, "bot", "p", ["uniform"], CounterfactualOptions(max_missing=0.1))
    assert (found.num_decisions, found.num_rewarded) == (NUMBER + 20, NUMBER)


def test_what_is_refused(workspace: Workspace) -> None:
    with pytest.raises(UsageError, match="no target"):
        evaluate_decisions(workspace, "bot", "p", ["oracle"])
    with pytest.raises(UsageError, match="no target is given"):
        evaluate_decisions(workspace, "bot", "p", [])
    with pytest.raises(NotFoundError):
        evaluate_decisions(workspace, "bot", "other")
    with pytest.raises(UsageError):
        CounterfactualOptions(newest=0)
    workspace.store.write(
        [
            Decision(
                decision_id="x", episode_id=None, agent_id="bot", policy="p", algorithm=None, context={"x": 1.0},
                actions=ACTIONS, action="a", propensity=None, mode=DecisionMode.LEARNING, created_at=NOW,
            ),
            Reward(reward_id="rx", episode_id=None, decision_id="x", name="r", value=1.0, created_at=NOW),
        ]
    )  # fmt: skip
    with pytest.raises(UsageError, match="1 have no propensity"):
        evaluate_decisions(workspace, "bot", "p", ["uniform"])


@pytest.mark.parametrize("estimator", ["ips", "snips", "dr"])
def test_the_best_fixed_action_is_the_one_whose_estimate_is_highest(workspace: Workspace, estimator: str) -> None:
    options = CounterfactualOptions(estimator=estimator)  # type: ignore[arg-type]
    log = _log(_read(workspace, "bot", "p", options))
    found = _fixed_values(ACTIONS, log, options.estimator)
    for action in ACTIONS:
        rows = distributions(FixedPolicy(action), log.points)
        assert found[action] == pytest.approx(_estimate(rows, log, options.estimating()).value, abs=1e-12)


def test_the_best_fixed_action_is_judged_on_other_units_than_chose_it(workspace: Workspace) -> None:
    found = evaluate_decisions(workspace, "bot", "p", ["best-fixed"], CounterfactualOptions(estimator="ips"))
    chosen_on = {f"d{row:05d}" for row in range(NUMBER) if is_held_out(f"d{row:05d}", 0.5, CHOICE_SALT)}
    target = found.targets[0]
    assert target.reason == f"the action was chosen on {len(chosen_on)} decisions and is judged on the others"
    action = target.label.removeprefix("best-fixed (").removesuffix(")")
    rewards = workspace.store.iterate(Reward)
    earned = {each.decision_id: each.value for each in rewards}
    taken = [each for each in workspace.store.iterate(Decision) if each.decision_id not in chosen_on]
    expected = sum(3 * (earned[each.decision_id] or 0.0) for each in taken if each.action == action) / len(taken)
    assert target.estimate is not None
    assert target.estimate.value == pytest.approx(expected)


def test_wrong_propensities_are_told_with_each_estimate(workspace: Workspace) -> None:
    """``b`` is logged with 1/3 each time, and taken in half of the later decisions."""
    records: list[Decision | Reward] = []
    for row in range(900):
        records += [
            Decision(
                decision_id=f"late{row:05d}", episode_id=None, agent_id="bot", policy="p", algorithm="uniform",
                context={"x": row / 900}, actions=ACTIONS, action="b" if row % 2 else "ac"[row // 2 % 2],
                propensity=1 / 3, mode=DecisionMode.LEARNING, created_at=NOW + timedelta(days=1, seconds=row),
            ),
            Reward(
                reward_id=f"late-r{row:05d}", episode_id=None, decision_id=f"late{row:05d}", name="r", value=0.0,
                created_at=NOW + timedelta(days=1, seconds=row),
            ),
        ]  # fmt: skip
    workspace.store.write(records)
    found = evaluate_decisions(workspace, "bot", "p", ["uniform"]).targets[0].estimate
    assert found is not None
    assert any("action 'b' was taken" in warning and "propensities" in warning for warning in found.warnings)


def test_intervals_are_over_the_unit_that_is_named(workspace: Workspace) -> None:
    records: list[Decision | Reward] = []
    for row in range(400):
        records += [
            Decision(
                decision_id=f"m{row}", episode_id=None, agent_id="bot", policy="many", algorithm="uniform",
                context={"user": f"u{row // 10}", "x": float(row)}, actions=ACTIONS, action=ACTIONS[row * 7 % 3],
                propensity=1 / 3, mode=DecisionMode.LEARNING, created_at=NOW + timedelta(seconds=row),
            ),
            Reward(
                reward_id=f"rm{row}", episode_id=None, decision_id=f"m{row}", name="r", value=float(row // 10 % 2),
                created_at=NOW + timedelta(seconds=row),
            ),
        ]  # fmt: skip
    workspace.store.write(records)
    alone = evaluate_decisions(workspace, "bot", "many", ["uniform"])
    by_user = evaluate_decisions(workspace, "bot", "many", ["uniform"], CounterfactualOptions(unit="user"))
    assert alone.logged_interval is not None
    assert by_user.logged_interval is not None
    assert (alone.logged_interval.num_units, by_user.logged_interval.num_units) == (400, 40)
    # A user's ten rewards are equal: the interval is sqrt(10) times as wide, but for degrees of freedom.
    widths = [each.logged_interval.high - each.logged_interval.low for each in (alone, by_user) if each.logged_interval]
    assert widths[1] / widths[0] == pytest.approx(10**0.5, rel=0.05)
    with pytest.raises(UsageError, match="400 of 400 decisions do not say which session"):
        evaluate_decisions(workspace, "bot", "many", ["uniform"], CounterfactualOptions(unit="session"))
