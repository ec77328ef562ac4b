"""What a decision says of the champion that made it: its own choice or another, and the reward on the test's scale."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from learnloop.core.records import Decision
from learnloop.evaluation.champion_test import ChampionTestState, ServedChoice, after, without_capital

_SAME = 1e-9
"""Probabilities that differ by no more are the same."""


class Drawn(NamedTuple):
    """How a decision was drawn."""

    own_probability: float
    """That of the champion's own choice: of the actions that were the most probable."""
    is_own: bool
    """Whether one of these was taken."""


def drawn_of(decision: Decision) -> Drawn | None:
    """Returns how a decision was drawn; None: it says nothing, since the log does not tell or there was no other way.

    What explores does so around the policy's own choice, which is therefore the most probable one. Where all are
    equally probable, as before a policy has learned, there is no own choice.
    """
    probabilities = decision.probabilities
    if probabilities is None:
        return None
    own = [each >= max(probabilities) - _SAME for each in probabilities]
    probability = sum(each for each, is_own in zip(probabilities, own, strict=True) if is_own)
    if not _SAME < probability < 1.0 - _SAME or decision.action not in decision.actions:
        return None
    return Drawn(probability, own[decision.actions.index(decision.action)])


class ChampionProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far the test of a champion has come, on the scale of its rewards; it is stored as it is."""

    test: ChampionTestState = ChampionTestState()
    low: float
    """What counts as 0."""
    high: float
    """What counts as 1."""
    learning_update_id: str | None = None
    """The record that tells how it ended; None: it has not."""

    def after(self, drawn: Drawn, reward: float | None) -> ChampionProgress:
        """Returns the progress after one more decision, whose reward counts as far as it lies within the range.

        One beyond it widens the range for those that come. Itself it counts as the end of the range where that speaks
        for the champion; else it speaks for it without a bound, and all capital against it is lost.
        """
        if reward is None:
            return msgspec.structs.replace(self, test=after(self.test, ServedChoice(*drawn, None)))
        inside = min(max(reward, self.low), self.high)
        scaled = min(max((inside - self.low) / (self.high - self.low), 0.0), 1.0)
        test = after(self.test, ServedChoice(*drawn, scaled))
        if reward != inside and (reward > inside) is drawn.is_own:
            test = without_capital(test)
        low, high = min(self.low, reward), max(self.high, reward)
        return msgspec.structs.replace(self, test=test, low=low, high=high)
