"""What each of several players is worth: Shapley values, exact and sampled, and what is lost without one of them.

A caller says what each coalition, the others missing, would have achieved. That is a counterfactual: it is found by
running again without some, or by a model of it. Nothing is guessed here: a value of None is an error.

Source: Shapley 1953, "A value for n-person games"; Castro, Gomez, Tejada 2009, "Polynomial calculation of the Shapley
value based on sampling" (permutations); Mitchell, Cooper, Frank, Holmes 2022, "Sampling permutations for Shapley value
estimation", section 4 (antithetic pairs); Wolpert, Tumer 2002, "Optimal payoff functions for members of collectives",
section 3 (difference rewards).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from learnloop.core.arrays import F64, I64
from learnloop.core.errors import RewardError, UsageError
from learnloop.core.rewards import is_learnable
from learnloop.core.seeding import generator

CoalitionValue = Callable[[frozenset[str]], float | None]
"""What a set of players achieves when the others are missing; the empty set is asked for too."""

MAX_EXACT_PLAYERS = 16
"""Beyond, exact values would need more than 65,536 coalitions."""


class Game:
    """Players and what each coalition of them is worth; each coalition is asked for once.

    Args:
        players: distinct names.
        value: what coalitions are worth.
        value_range: the lowest and the highest possible worth; None: any.

    Attributes:
        players: as given.
    """

    def __init__(
        self, players: Sequence[str], value: CoalitionValue, value_range: tuple[float, float] | None = None
    ) -> None:
        self.players = list(players)
        if len(set(self.players)) != len(self.players):
            raise UsageError(f"the players are {self.players}; each may be there once")
        self._value = value
        self._range = value_range
        self._known: dict[frozenset[str], float] = {}

    @property
    def num_evaluations(self) -> int:
        """How many coalitions were asked for."""
        return len(self._known)

    def worth(self, coalition: frozenset[str]) -> float:
        """Returns what a coalition is worth.

        Raises:
            RewardError: it is not known, not a finite number, or out of range.
        """
        found = self._known.get(coalition)
        if found is None:
            found = self._known[coalition] = self._ask(coalition)
        return found

    def _ask(self, coalition: frozenset[str]) -> float:
        name = _spelled(coalition)
        try:
            value = self._value(coalition)
        except Exception as error:
            error.add_note(f"while the worth of {name} was asked for")
            raise
        if value is None:
            raise RewardError(
                f"the worth of {name} is not known, so no credit can be given; run that coalition, or choose a method "
                "that needs no coalitions, such as 'uniform'"
            )
        if not is_learnable(value):
            raise RewardError(f"the worth of {name} is {value!r}; a finite number is needed")
        if self._range is not None and not self._range[0] <= value <= self._range[1]:
            raise RewardError(f"the worth of {name} is {value}, outside of value_range {self._range}; widen that")
        return float(value)


def _spelled(coalition: frozenset[str]) -> str:
    return f"the coalition {{{', '.join(map(repr, sorted(coalition)))}}}"


def leave_one_out(game: Game) -> list[float]:
    """Returns for each player what is lost without him: ``v(all) - v(all but him)``, ``(num_players,)``.

    These do not add up to what all are worth: what two do alike nobody loses with one of them.

    Raises:
        RewardError: a coalition's worth is not known.
    """
    everybody = frozenset(game.players)
    whole = game.worth(everybody)
    return [whole - game.worth(everybody - {player}) for player in game.players]


def exact_shapley(game: Game) -> list[float]:
    """Returns the Shapley value of each player, ``(num_players,)``; all ``2 ** num_players`` coalitions are asked for.

    ``phi[i]`` is the sum over the coalitions S without i of ``|S|! (n - |S| - 1)! / n! * (v(S + i) - v(S))``. They add
    up to ``v(all) - v(nobody)``; who changes nothing gets exactly 0, and who changes the same gets the same.

    Raises:
        UsageError: there are more than ``MAX_EXACT_PLAYERS``.
        RewardError: a coalition's worth is not known.
    """
    number = len(game.players)
    if number > MAX_EXACT_PLAYERS:
        raise UsageError(f"there are {number} players; exact values are found for at most {MAX_EXACT_PLAYERS}")
    weights = [1 / (number * math.comb(number - 1, size)) for size in range(number)]
    found = []
    for player in game.players:
        others = [other for other in game.players if other != player]
        gains = (
            weights[size] * (game.worth(coalition | {player}) - game.worth(coalition))
            for size in range(number)
            for coalition in map(frozenset, itertools.combinations(others, size))
        )
        found.append(math.fsum(gains))  # rounded once, so the order of the players does not matter
    return found


class SampledShapley(NamedTuple):
    """Shapley values that were estimated from random orders of the players."""

    values: list[float]
    """``(num_players,)``; they add up to ``v(all) - v(nobody)``, as those of each order do."""
    error_bounds: list[float]
    """``(num_players,)``: with the probability that was asked for no value is further from the true one than this."""


def sampled_shapley(
    game: Game, *, value_range: tuple[float, float], num_permutations: int, seed: int, delta: float
) -> SampledShapley:
    """Returns estimates of the Shapley values: what each adds, on average, to those before him in a random order.

    Orders come in pairs, each with its reverse (antithetic), which lowers the variance; the pairs are independent.

    Args:
        game: the players and their worth.
        value_range: the lowest and the highest possible worth; what the bound relies on.
        num_permutations: how many orders, an even number of at least 4.
        seed: of the orders.
        delta: how likely the bound may fail, between 0 and 1.

    Raises:
        RewardError: a coalition's worth is not known, or out of range.
    """
    number, num_pairs = len(game.players), num_permutations // 2
    rng = generator(seed, "shapley")
    means, squares = np.zeros(number), np.zeros(number)
    for count in range(1, num_pairs + 1):
        order = rng.permutation(number)
        gains = (_gains(game, order) + _gains(game, order[::-1])) / 2
        change = gains - means  # Welford's recurrence
        means += change / count
        squares += change * (gains - means)
    bounds = _error_bounds(squares / (num_pairs - 1), num_pairs, 2 * (value_range[1] - value_range[0]), delta)
    return SampledShapley(means.tolist(), bounds.tolist())


def _gains(game: Game, order: I64) -> F64:
    """Returns what each player adds to those before him, ``(num_players,)``."""
    gains = np.empty(len(game.players))
    coalition: frozenset[str] = frozenset()
    before = game.worth(coalition)
    for player in order.tolist():
        coalition = coalition | {game.players[player]}
        after = game.worth(coalition)
        gains[player] = after - before
        before = after
    return gains


def _error_bounds(variances: F64, num_pairs: int, width: float, delta: float) -> F64:
    """Returns how far the means of ``num_pairs`` gains may be off, for all players at once, ``(num_players,)``.

    The smaller of Hoeffding's bound and the empirical Bernstein bound, each of which holds with ``1 - delta / 2``.

    Source: Hoeffding 1963, theorem 2; Maurer, Pontil 2009, "Empirical Bernstein bounds and sample variance
    penalization", theorem 4. Both are one-sided there, hence ``2 * num_players`` statements each.
    """
    statement = delta / 2 / (2 * len(variances))
    hoeffding = width * math.sqrt(math.log(1 / statement) / (2 * num_pairs))
    logarithm = math.log(2 / statement)
    bernstein = np.sqrt(2 * variances * logarithm / num_pairs) + 7 * width * logarithm / (3 * (num_pairs - 1))
    return np.minimum(hoeffding, bernstein)
