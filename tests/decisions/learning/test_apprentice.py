"""learnloop.decisions.learning.apprentice: what the log says of how often policy and caller agree, on each back end."""

from __future__ import annotations

import pytest

from learnloop.core.clock import now
from learnloop.core.errors import UsageError
from learnloop.core.ids import new_id
from learnloop.core.records import Agent, Decision, DecisionMode
from learnloop.decisions.learning.apprentice import imitation_samples, match_rate
from learnloop.decisions.log import Logged
from learnloop.store import Store


def decision(baseline: str | None, chosen: str | None = "left", agent: str = "bot", **fields: object) -> Decision:
    given = {"mode": DecisionMode.APPRENTICE, "episode_id": None, "actions": ["left", "right"], **fields}
    return Decision(
        decision_id=new_id(), agent_id=agent, policy="p", algorithm="joint", context={}, action=baseline or "left",
        propensity=1.0, baseline_action=baseline, policy_action=chosen, created_at=now(), **given,
    )  # fmt: skip


def write(store: Store, number: int, baseline: str | None, chosen: str | None = "left", agent: str = "bot") -> None:
    store.write([Agent(agent_id=agent, created_at=now()), *(decision(baseline, chosen, agent) for _ in range(number))])


def test_the_match_rate_is_that_of_the_log(store: Store) -> None:
    """Wilson's interval for 60 of 100 at 95 % is .5020 to .6906 (by hand)."""
    nothing = match_rate(store, "bot", "p")
    assert (nothing.num_decisions, nothing.share, nothing.interval) == (0, None, None)
    write(store, 40, "right")
    write(store, 60, "left")
    write(store, 5, "left", None)
    write(store, 5, None, "left")
    write(store, 5, "left", agent="other")
    found = match_rate(store, "bot", "p")
    assert (found.num_decisions, found.num_matched, found.share) == (100, 60, 0.6)
    assert found.interval is not None
    assert found.interval.low == pytest.approx(0.5020, abs=1e-4)
    assert found.interval.high == pytest.approx(0.6906, abs=1e-4)
    assert match_rate(store, "bot", "p", newest=50).share == 1.0
    for wrong in ({"newest": 0}, {"level": 1.0}):
        with pytest.raises(UsageError):
            match_rate(store, "bot", "p", **wrong)  # type: ignore[arg-type]


def test_full_information() -> None:
    """One sample for each allowed action, 1 where it is the caller's."""
    three = ["a", "b", "c"]
    logged = [
        Logged(decision("b", actions=three), None),
        Logged(decision("a", actions=three, mask=[True, False, True]), None),
    ]
    found = imitation_samples(logged)
    assert [(each.action, each.reward) for each in found] == [("a", 0), ("b", 1), ("c", 0), ("a", 1), ("c", 0)]
    assert {each.propensity for each in found} == {1.0}
