"""learnloop.decisions.choice: a choice is its action's name."""

from __future__ import annotations

from datetime import UTC, datetime

from learnloop.core.records import Decision
from learnloop.decisions import Choice


def test_a_choice_is_text_that_knows_its_decision() -> None:
    decision = Decision(
        decision_id="d", episode_id=None, agent_id="a", policy="p", algorithm=None, context={}, actions=["l", "r"],
        action="r", propensity=0.25, created_at=datetime.now(UTC),
    )  # fmt: skip
    choice = Choice.of(decision, 1, 0.25)
    assert (choice, f"{choice}", {"r": 5}[choice]) == ("r", "r", 5)
    assert (choice.decision_id, choice.position, choice.propensity) == ("d", 1, 0.25)
    assert repr(choice) == "Choice('r', propensity=0.25, decision_id='d')"
