"""What is said of a decision after it was made: its rewards, and that it was used after all."""

from __future__ import annotations

from collections.abc import Mapping

from learnloop.algorithms import check_reward
from learnloop.core.clock import now
from learnloop.core.errors import RewardError, UsageError
from learnloop.core.ids import new_id
from learnloop.core.records import DEFAULT, MAX_REWARD, Decision, DecisionActivation, Reward
from learnloop.loop.workspace.workspace import Workspace


def reward(
    workspace: Workspace,
    decision_id: str,
    values: Mapping[str, float | None],
    *,
    reason: str | None = None,
    author: str | None = None,
) -> list[Reward]:
    """Writes the parts of a decision's reward and returns them.

    Raises:
        NotFoundError: there is no such decision.
        RewardError: a value is neither None nor a finite number.
        UsageError: there are no parts, or one has a reserved name.
    """
    if not values or DEFAULT in values:
        raise UsageError(f"the parts are {sorted(values)}; give at least one, and none called {DEFAULT!r}")
    decision = workspace.store.get(Decision, decision_id)
    moment = now()
    rewards = [
        Reward(
            reward_id=new_id(),
            episode_id=decision.episode_id,
            decision_id=decision_id,
            name=name,
            value=None if value is None else _checked(name, value),
            author=author,
            reason=reason,
            created_at=moment,
        )
        for name, value in values.items()
    ]
    workspace.store.write(rewards)
    return rewards


def activate(workspace: Workspace, decision_id: str) -> DecisionActivation:
    """Says that a deferred decision was used; returns when that was said first.

    Raises:
        NotFoundError: there is no such decision.
    """
    workspace.store.get(Decision, decision_id)
    workspace.store.write([DecisionActivation(decision_id=decision_id, created_at=now())])
    return workspace.store.get(DecisionActivation, decision_id)


def _checked(name: str, value: float) -> float:
    number = check_reward(value)
    if abs(number) > MAX_REWARD:
        raise RewardError(f"the part {name!r} is {number:g}; at most {MAX_REWARD:g} can be learned from")
    return number
