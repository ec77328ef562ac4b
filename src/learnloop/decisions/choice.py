"""What ``choose`` returns."""

from __future__ import annotations

from typing import Self

from learnloop.core.records import Decision


class Choice(str):
    """The chosen action as text, usable wherever the action's name is, with the decision that it came from.

    Attributes:
        policy: the name of the policy that chose.
        episode_id: the episode that it was made in; None: outside of one.
        decision_id: by which a reward finds it, now or later, in this process or another.
        propensity: the probability with which this action was chosen.
        position: where the action stands among those given, from 0.
    """

    __slots__ = ("decision_id", "episode_id", "policy", "position", "propensity")

    policy: str
    episode_id: str | None
    decision_id: str
    position: int
    propensity: float

    @classmethod
    def of(cls, decision: Decision, position: int, propensity: float) -> Self:
        """Returns the choice that ``decision`` records."""
        choice = cls(decision.action)
        choice.policy = decision.policy
        choice.episode_id = decision.episode_id
        choice.decision_id = decision.decision_id
        choice.position = position
        choice.propensity = propensity
        return choice

    def __repr__(self) -> str:
        return f"Choice({str.__repr__(self)}, propensity={self.propensity:.3g}, decision_id={self.decision_id!r})"
