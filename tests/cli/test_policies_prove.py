"""``learnloop policies prove``: what was learned from a log becomes a version, what was not has exit code 7."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from learnloop.core.records import Agent, Decision, Record, Reward
from learnloop.loop import Workspace, find_settings
from tests.cli.calling import Call

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ACTIONS = ["a", "b"]


def _write(policy: str, gain: float, number: int = 600) -> None:
    """A log of uniform choices in which ``b`` earns 1 in .5 + ``gain`` of the cases, ``a`` in .5 - ``gain``."""
    rng = np.random.default_rng(7)
    records: list[Record] = [Agent(agent_id="bot", created_at=NOW)]
    for row in range(number):
        at = int(rng.integers(2))
        moment = NOW + timedelta(seconds=row)
        records += [
            Decision(
                decision_id=f"{policy}{row}", episode_id=None, agent_id="bot", policy=policy, algorithm="uniform",
                context={"user": f"u{row % 200}"}, actions=ACTIONS, action=ACTIONS[at], propensity=0.5,
                created_at=moment,
            ),
            Reward(
                reward_id=f"r-{policy}{row}", episode_id=None, decision_id=f"{policy}{row}", name="r",
                value=float(rng.random() < (0.5 + gain if at else 0.5 - gain)), created_at=moment,
            ),
        ]  # fmt: skip
    with Workspace(find_settings(), create=True) as workspace:
        workspace.store.write(records)


def test_what_learned_becomes_a_version(call: Call) -> None:
    _write("front", 0.3)
    found = call("policies", "prove", "bot", "front", "--json")
    assert found.code == 0
    proof = found.json()
    assert proof["verdict"] == "learned"
    assert proof["version"]["version"] == 1
    assert {each["name"] for each in proof["statistics"]["assumptions"]} >= {"propensities", "independence", "support"}
    shown = call("policies", "show", "bot.front", "--json").json()
    assert [each["verdict"] for each in shown["certificates"]] == ["learned"]
    assert shown["certificates"][0]["statistics"]["assumptions"] == proof["statistics"]["assumptions"]


def test_what_did_not_learn_exits_with_7_and_says_why(call: Call) -> None:
    _write("front", 0.0)
    found = call("policies", "prove", "bot", "front", "--unit", "user", "--seed", "1")
    assert found.code == 7
    assert found.out.startswith("no_signal: trained on ")
    assert "independence holds" in found.out
    assert "registered" not in found.out
    assert call("policies", "list", "--json").json()["data"] == []


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("bot", "nothing"), 3, "no decision"),
        (("bot", "front", "--unit", "session"), 2, "600 of 600 decisions do not say which session"),
        (("bot", "front", "--alpha", "0.001"), 2, "at least 1999 are needed"),
        (("bot", "front", "--alpha", "1"), 2, "alpha"),
    ],
)
def test_what_cannot_be_asked(call: Call, arguments: tuple[str, ...], code: int, message: str) -> None:
    _write("front", 0.0)
    found = call("policies", "prove", *arguments)
    assert found.code == code
    assert message in found.err
