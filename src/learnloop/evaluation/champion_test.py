"""Is what is served worse than what it tries besides: a sequential test on fresh decisions, as they come.

A champion was proven on a log that grows old. While it is served, exploration still takes other actions now and then,
with known probabilities, so that each decision says something of both. With P the probability of the champion's own
choice and w = -1 / P where it was taken, w = 1 / (1 - P) where another was, the number

    Z = w (r - c)

has, for each c that does not hang on this decision, the mean (what the others earn) - (what the champion earns). That
is at most 0 while the champion is no worse than the others, and then no way of betting on Z makes money: a capital
that grows by 1 + lambda Z is a supermartingale. It becomes 1 / alpha times what was paid in with probability alpha at
the most, however often one looks (Ville). A large capital is therefore evidence against the champion.

Since it may have been good for long, capital is paid in all along, as in the e-detectors of Shin et al.: some at the
start, some at each decision, most of it when the champion earns clearly less than it did. All that is paid in within
``horizon`` decisions is 1, so a good champion is put out within so many with probability ``alpha`` at the most. What is
paid in joins what is there, so the state is one capital for each size of bet.

What it assumes: the logged probabilities are those that were drawn by; rewards lie within [0, 1]. The champion may be
bad in some contexts and good on the whole: it is judged on the whole. What it cannot see: a champion that is bad but
no worse than what is tried besides it, and anything where nothing else is tried.

Source: Ville 1939, Etude critique de la notion de collectif; Waudby-Smith and Ramdas 2023, Estimating means of bounded
random variables by betting, section 4 (bets); Shin, Ramdas and Rinaldo 2022, E-detectors: a nonparametric framework for
sequential change detection, definition 2.2 and section 2.3 (Shiryaev-Roberts); Howard, Ramdas, McAuliffe and Sekhon
2020, Time-uniform Chernoff bounds via nonnegative supermartingales, lemma 1 (Ville's inequality).
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import msgspec

from learnloop.core.checks import check_range

HORIZON: Final = 20_000
"""Decisions within which a good champion is put out with probability ``alpha`` at the most."""
ALPHA: Final = 0.05
BETS: Final = (0.1, 0.3, 1.0, 3.0)
"""Sizes of bets, in units of (mean of P) x (mean of 1 - P): Kelly's for small gaps up to such as .35 on .05."""
_SHARES: Final = (0.15, 0.2, 0.25, 0.4)
"""How each payment is divided among them."""
_AT_START: Final = 0.2
_ALL_ALONG: Final = 0.2
_RESERVE: Final = 1.0 - _AT_START - _ALL_ALONG
"""Of what is paid within a horizon; a fall pays half of what is left of the reserve."""
_MAX_LOSS: Final = 0.5
"""No decision takes more than this share of a capital."""
_LEVEL_RATE: Final = 0.04
"""How fast the level c follows the rewards, and the scale of bets the probabilities."""
_FALL_RATES: Final = (1 / 16, 1 / 64, 1 / 256)
"""The champion's newest rewards are averaged over about so many of its own decisions."""
_FALL_ERRORS: Final = 4.0
"""Standard errors below its earlier mean that are a fall. It only times payments: no level hangs on it."""
_MIN_REFERENCE: Final = 50
"""Rewards of the champion that its earlier mean is made of, at the least."""

_SURE: Final = 1.96
"""Standard deviations that the stated number of decisions leaves."""


class ServedChoice(NamedTuple):
    """One decision that was made while the champion was served."""

    own_probability: float
    """P: that with which the champion's own choice was drawn, above 0 and below 1."""
    is_own: bool
    """Whether that was taken."""
    reward: float | None
    """Within [0, 1]; None: it stays unknown. Then the capital changes as if it were what speaks most for the
    champion."""


class OwnRewards(msgspec.Struct, frozen=True, kw_only=True):
    """What the champion's own choices earned, to notice that it falls."""

    number: int = 0
    total: float = 0.0
    squares: float = 0.0
    newest: tuple[float, ...] = ()
    """Moving averages, one of each of several lengths; empty before the first reward."""


class ChampionTestState(msgspec.Struct, frozen=True, kw_only=True):
    """How far the test has come; a plain record, so that it can be stored and gone on from."""

    capitals: tuple[float, ...] = (0.0,) * len(BETS)
    reserve: float = 0.0
    """Left to be paid in at falls, within this horizon."""
    num_decisions: int = 0
    num_others: int = 0
    """Of them, those that took another action than the champion's own choice."""
    num_missing: int = 0
    """Of them, those whose reward stayed unknown."""
    num_falls: int = 0
    """How often the champion's own reward fell."""
    mean_probability: float | None = None
    """The moving average of P; None: before the first decision."""
    level: float = 0.5
    """The moving average of the rewards."""
    earlier: OwnRewards = OwnRewards()

    @property
    def evidence(self) -> float:
        """The capital in all: at least 1 / alpha is an alarm."""
        return math.fsum(self.capitals)


def after(state: ChampionTestState, choice: ServedChoice) -> ChampionTestState:
    """Returns the state after one more decision; decisions are given in the order in which they were made.

    The order of rewards would not do: where successes are told sooner than failures, the first ones to come say
    something else than all of them.

    Raises:
        UsageError: the probability is not between 0 and 1, or the reward outside of [0, 1].
    """
    _check(choice)
    begins = state.num_decisions % HORIZON == 0
    reserve = _RESERVE if begins else state.reserve
    paid = _ALL_ALONG / HORIZON + (_AT_START if begins else 0.0)
    falls = _has_fallen(state.earlier)
    if falls:
        paid += reserve / 2
        reserve /= 2
    own = state.mean_probability if state.mean_probability is not None else choice.own_probability
    capitals = tuple(
        (capital + paid * share) * _growth(choice, min(bet * own * (1 - own), _MAX_LOSS), state.level)
        for capital, share, bet in zip(state.capitals, _SHARES, BETS, strict=True)
    )
    earlier = OwnRewards() if falls else state.earlier
    return ChampionTestState(
        capitals=capitals,
        reserve=reserve,
        num_decisions=state.num_decisions + 1,
        num_others=state.num_others + (not choice.is_own),
        num_missing=state.num_missing + (choice.reward is None),
        num_falls=state.num_falls + falls,
        mean_probability=own + _LEVEL_RATE * (choice.own_probability - own),
        level=state.level if choice.reward is None else state.level + _LEVEL_RATE * (choice.reward - state.level),
        earlier=_with(earlier, choice.reward) if choice.is_own and choice.reward is not None else earlier,
    )


def without_capital(state: ChampionTestState) -> ChampionTestState:
    """Returns the state with all capital lost: what is left where a reward speaks for the champion without a bound."""
    return msgspec.structs.replace(state, capitals=(0.0,) * len(BETS))


def decisions_until_out(
    gap: float, other_share: float, *, reward: float | None = None, fall: float = 0.0, alpha: float = ALPHA
) -> int | None:
    """Returns within how many decisions a champion that is worse is out in 95 % of runs; None: in over ``HORIZON``.

    It is the normal approximation of the capital's logarithm, for rewards that are 0 or 1 and come at once: with the
    mean g and the variance v of its growth at a decision, n is out where n g - 1.96 sqrt(n v) reaches the logarithm
    of 1 / (alpha x what was paid in); 1.96 for 1.645, since the sum is not quite normal. Rewards that vary less take
    fewer decisions.

    Args:
        gap: how much less the champion earns than the others, above 0, in units of the range of rewards.
        other_share: the mean of 1 - P, the probability that another action than the champion's own is taken.
        reward: what the champion earns; None: whatever takes the longest.
        fall: how much less that is than what it earned itself before; 0: it is the others that have become better.
        alpha: the level.

    Raises:
        UsageError: a number is not where it may be.
    """
    check_range("gap", gap, above=0.0, high=1.0)
    check_range("other_share", other_share, above=0.0, below=1.0)
    check_range("fall", fall, 0.0, 1.0)
    check_range("alpha", alpha, above=0.0, below=1.0)
    if reward is not None:
        check_range("reward", reward, 0.0, 1.0 - gap)
        return _needed(reward, reward + gap, other_share, fall, alpha)
    found = [
        _needed((1.0 - gap) * step / 20, (1.0 - gap) * step / 20 + gap, other_share, fall, alpha) for step in range(21)
    ]
    known = [each for each in found if each is not None]
    return max(known) if len(known) == len(found) else None


def _needed(own: float, others: float, other_share: float, fall: float, alpha: float) -> int | None:
    noticed = _until_noticed(own, fall)
    if noticed is not None:
        noticed /= 1 - other_share
    needed = [
        each
        for bet, share in zip(BETS, _SHARES, strict=True)
        for each in _needed_of_bet(_moments(own, others, other_share, bet), alpha * share, noticed)
    ]
    found = math.ceil(min(needed, default=math.inf) + 1 / _LEVEL_RATE) if needed else None
    return None if found is None or found > HORIZON else found


def _needed_of_bet(moments: tuple[float, float], alpha: float, noticed: float | None) -> list[float]:
    """Returns after how many decisions one size of bet has enough: by what is paid all along, and by a fall's."""
    mean, variance = moments
    if mean <= 0:
        return []

    def until(paid: float) -> float:
        wanted = max(0.0, -math.log(alpha * min(1.0, paid)))
        root = (_SURE * math.sqrt(variance) + math.sqrt(_SURE**2 * variance + 4 * mean * wanted)) / (2 * mean)
        return root * root

    all_along = until(_ALL_ALONG / HORIZON / mean)
    return [all_along] if noticed is None else [all_along, noticed + until(_RESERVE / 2)]


def _moments(own: float, others: float, other_share: float, bet: float) -> tuple[float, float]:
    """Returns mean and variance of the logarithm of a capital's growth at a decision."""
    size = min(bet * other_share * (1 - other_share), _MAX_LOSS)
    level = own + other_share * (others - own)
    logs = []
    for is_own, share, earns in ((True, 1 - other_share, own), (False, other_share, others)):
        for reward, chance in ((1.0, earns), (0.0, 1 - earns)):
            growth = _growth(ServedChoice(1 - other_share, is_own, reward), size, level)
            logs.append((share * chance, math.log(growth)))
    mean = math.fsum(chance * value for chance, value in logs)
    return mean, math.fsum(chance * (value - mean) ** 2 for chance, value in logs)


def _until_noticed(own: float, fall: float) -> float | None:
    """Returns after how many of the champion's own decisions a fall is noticed, in the mean; None: perhaps never.

    A fall that is only just as large as what would be noticed may be missed, so half as much more is asked for.
    """
    before = min(1.0, own + fall)
    error = _FALL_ERRORS * math.sqrt(max(before * (1 - before), 1e-4))
    found = []
    for rate in _FALL_RATES:
        noticed = error * math.sqrt(1 / _MIN_REFERENCE + rate / (2 - rate))
        if fall > 1.5 * noticed:
            found.append(math.log(1 - noticed / fall) / math.log(1 - rate))
    return min(found, default=None)


def _growth(choice: ServedChoice, bet: float, level: float) -> float:
    """Returns 1 + lambda w (r - c), which is at least 1 - _MAX_LOSS: c is the level, as far as that allows."""
    own, other = choice.own_probability, 1.0 - choice.own_probability
    shown = max(min(level, _MAX_LOSS * other / bet), 1.0 - _MAX_LOSS * own / bet)
    weight = -1.0 / own if choice.is_own else 1.0 / other
    reward = float(choice.is_own) if choice.reward is None else choice.reward
    return 1.0 + bet * weight * (reward - shown)


def _has_fallen(earlier: OwnRewards) -> bool:
    if earlier.number < _MIN_REFERENCE:
        return False
    mean = earlier.total / earlier.number
    variance = max(earlier.squares / earlier.number - mean * mean, 1e-4)
    return any(
        mean - newest >= _FALL_ERRORS * math.sqrt(variance * (1 / earlier.number + rate / (2 - rate)))
        for newest, rate in zip(earlier.newest, _FALL_RATES, strict=True)
    )


def _with(earlier: OwnRewards, reward: float) -> OwnRewards:
    newest = tuple(each + rate * (reward - each) for each, rate in zip(earlier.newest, _FALL_RATES, strict=False))
    return OwnRewards(
        number=earlier.number + 1,
        total=earlier.total + reward,
        squares=earlier.squares + reward * reward,
        newest=newest or (reward,) * len(_FALL_RATES),
    )


def _check(choice: ServedChoice) -> None:
    check_range("own_probability", choice.own_probability, 1e-12, 1 - 1e-12)
    if choice.reward is not None:
        check_range("reward", choice.reward, 0.0, 1.0)
