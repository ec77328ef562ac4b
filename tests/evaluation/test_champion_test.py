"""learnloop.evaluation.champion_test: its level by exact sums and simulated runs, and how soon a bad one is out."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator

import msgspec
import numpy as np
import pytest

from learnloop.core.errors import UsageError
from learnloop.evaluation import champion_test
from learnloop.evaluation.champion_test import (
    ALPHA,
    BETS,
    HORIZON,
    ChampionTestState,
    ServedChoice,
    after,
    decisions_until_out,
    without_capital,
)
from tests.project import ROOT
from tests.repeats import repeats

OUTCOMES = list(itertools.product((True, False), (1.0, 0.0)))


def expected_evidence(probabilities: list[float], own: float, others: float, unknown: float = 0.0) -> float:
    """The mean capital over every course that so many decisions can take, by their probabilities."""
    rewards = [1.0, 0.0] if unknown == 0 else [1.0, 0.0, None]
    total = 0.0
    for course in itertools.product(itertools.product((True, False), rewards), repeat=len(probabilities)):
        chance, state = 1.0, ChampionTestState()
        for probability, (is_own, reward) in zip(probabilities, course, strict=True):
            earns = own if is_own else others
            chance *= probability if is_own else 1 - probability
            if reward is None:
                chance *= unknown
            else:
                chance *= (earns if reward == 1.0 else 1 - earns) * (1 - unknown)
            state = after(state, ServedChoice(probability, is_own, reward))
        total += chance * state.evidence
    return total


PATHS = [[0.9] * 5, [0.95, 0.5, 0.99, 0.7, 0.2], [0.05, 0.1, 0.9, 0.999, 0.6]]


@pytest.mark.parametrize("probabilities", PATHS)
@pytest.mark.parametrize("earns", [0.05, 0.4, 0.9])
def test_the_mean_capital_of_a_champion_as_good_as_the_others_is_what_was_paid_in(
    probabilities: list[float], earns: float
) -> None:
    """Exactly, over all courses: no bet makes money. With a better champion it is less."""
    paid = 0.2 + len(probabilities) * 0.2 / HORIZON
    assert expected_evidence(probabilities, earns, earns) == pytest.approx(paid, rel=1e-12)
    assert expected_evidence(probabilities, earns, earns / 2) < paid
    assert expected_evidence(probabilities, earns, earns, unknown=0.1) < paid


def test_payments_at_falls_stay_within_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fall seen after every few rewards: the mean capital is still at most 1, however often that pays."""
    monkeypatch.setattr(champion_test, "_MIN_REFERENCE", 1)
    monkeypatch.setattr(champion_test, "_FALL_ERRORS", 0.1)
    found = expected_evidence([0.8] * 6, 0.5, 0.5)
    assert 0.25 < found <= 1.0


def choices(rng: np.random.Generator, share: float, own: float, others: float) -> Iterator[ServedChoice]:
    while True:
        is_own = bool(rng.random() >= share)
        yield ServedChoice(1 - share, is_own, float(rng.random() < (own if is_own else others)))


def out_after(
    state: ChampionTestState, coming: Iterator[ServedChoice], number: int
) -> tuple[int | None, ChampionTestState]:
    """After how many of ``number`` decisions it is out; None: it is not."""
    for passed in range(1, number + 1):
        state = after(state, next(coming))
        if state.evidence >= 1 / ALPHA:
            return passed, state
    return None, state


def test_the_capital_is_that_of_one_bet_for_each_payment() -> None:
    """Computed apart: each payment is bet on its own from when it comes, and all are added up."""
    rng = np.random.default_rng(3)
    given = [next(choices(rng, 0.2, 0.5, 0.6)) for _ in range(40)]
    state, steps = ChampionTestState(), []
    for each in given:
        own = 0.8 if state.mean_probability is None else state.mean_probability
        bets = [min(bet * own * (1 - own), 0.5) for bet in BETS]
        shown = [max(min(state.level, 0.5 * 0.2 / bet), 1 - 0.5 * 0.8 / bet) for bet in bets]
        weight = -1 / 0.8 if each.is_own else 1 / 0.2
        assert each.reward is not None
        steps.append([1 + bet * weight * (each.reward - c) for bet, c in zip(bets, shown, strict=True)])
        state = after(state, each)
    growth = np.array(steps)
    paid = np.full(40, 0.2 / HORIZON)
    paid[0] += 0.2
    runs = np.array([growth[start:].prod(axis=0) for start in range(40)])
    assert state.evidence == pytest.approx(float(paid @ runs @ np.array([0.15, 0.2, 0.25, 0.4])), rel=1e-12)
    assert (growth >= 0.5).all()


def test_the_state_is_a_record_that_can_be_gone_on_from() -> None:
    rng = np.random.default_rng(1)
    given = [next(choices(rng, 0.1, 0.5, 0.4)) for _ in range(300)]
    whole = ChampionTestState()
    for each in given:
        whole = after(whole, each)
    first = ChampionTestState()
    for each in given[:150]:
        first = after(first, each)
    again = msgspec.json.decode(msgspec.json.encode(first), type=ChampionTestState)
    for each in given[150:]:
        again = after(again, each)
    assert again == whole
    assert whole.num_decisions == 300
    assert whole.num_others == sum(not each.is_own for each in given)
    assert without_capital(whole).evidence == 0.0
    assert len(msgspec.json.encode(whole)) < 1_000


@pytest.mark.parametrize("seed", repeats(range(8)))
@pytest.mark.parametrize(("share", "own", "others"), [(0.1, 0.4, 0.4), (0.05, 0.05, 0.05), (0.3, 0.7, 0.65)])
def test_a_good_champion_stays(share: float, own: float, others: float, seed: int) -> None:
    """Also one exactly as good as the others: in these 20 runs of 2,000 decisions, of which 5 % in 20,000 may go."""
    outs = 0
    for run in range(20):
        rng = np.random.default_rng([seed, run])
        outs += out_after(ChampionTestState(), choices(rng, share, own, others), 2_000)[0] is not None
    assert outs <= 2


@pytest.mark.nightly
@pytest.mark.parametrize(("share", "own", "others"), [(0.1, 0.4, 0.4), (0.05, 0.05, 0.05), (0.3, 0.7, 0.7)])
def test_a_good_champion_stays_over_the_horizon(share: float, own: float, others: float) -> None:
    """200 runs of 20,000 decisions: at most 5 % go (16 is the 97.5 % quantile of 5 %)."""
    outs = 0
    for run in range(200):
        rng = np.random.default_rng([run, 5])
        outs += out_after(ChampionTestState(), choices(rng, share, own, others), HORIZON)[0] is not None
    assert outs <= 16


def fallen(share: float, own: float, others: float, before: tuple[float, float], seeds: range) -> list[float]:
    """After how many decisions champions are out that earn ``own`` since a fall, of the seeds that came so far."""
    found = []
    for seed in seeds:
        rng = np.random.default_rng([seed, 11])
        early, state = out_after(ChampionTestState(), choices(rng, share, *before), 500)
        if early is None:
            needed, _ = out_after(state, choices(rng, share, own, others), 4_000)
            found.append(math.inf if needed is None else needed)
    return found


@pytest.mark.parametrize("share", [0.09, 0.1])
@pytest.mark.parametrize("seeds", repeats([range(60), range(60, 400)]))
def test_a_champion_that_falls_is_out_within_500_decisions(share: float, seeds: range) -> None:
    """From .7 to .05 where the others earn .4; .09 is what others get of 10 actions with an epsilon of .1."""
    found = fallen(share, 0.05, 0.4, (0.7, 0.4), seeds)
    assert len(found) >= 0.97 * len(seeds)
    assert np.mean(np.array(found) <= 500) >= 0.95


FALLS = [
    (0.1, 0.05, 0.4, (0.7, 0.4)),
    (0.05, 0.05, 0.4, (0.7, 0.4)),
    (0.2, 0.2, 0.5, (0.6, 0.5)),
    (0.3, 0.3, 0.7, (0.3, 0.3)),
    (0.1, 0.05, 0.4, (0.05, 0.05)),
    (0.1, 0.2, 0.4, (0.7, 0.3)),
]
"""The probability of another action; what the champion and the others earn; what they earned before."""


@pytest.mark.parametrize("fall", repeats(FALLS, first=3))
def test_the_stated_number_of_decisions_is_enough(fall: tuple[float, float, float, tuple[float, float]]) -> None:
    share, own, others, before = fall
    stated = decisions_until_out(others - own, share, reward=own, fall=before[0] - own)
    assert stated is not None
    found = fallen(share, own, others, before, range(60))
    assert np.mean(np.array(found) <= stated) >= 0.93
    assert stated <= 4 * np.quantile(found, 0.95)  # it says something


def test_what_is_stated_follows_from_gap_and_exploration() -> None:
    assert decisions_until_out(0.35, 0.1, reward=0.05, fall=0.65) == 406
    needed = [decisions_until_out(0.35, share) or math.inf for share in (0.02, 0.05, 0.1, 0.3)]
    assert needed == sorted(needed, reverse=True)
    assert decisions_until_out(0.001, 0.05) is None
    for wrong in (
        {"gap": 0.0},
        {"gap": 1.5},
        {"other_share": 0.0},
        {"other_share": 1.0},
        {"reward": 0.9},
        {"fall": -1},
    ):
        with pytest.raises(UsageError):
            decisions_until_out(**{"gap": 0.3, "other_share": 0.1, **wrong})


def test_the_page_states_what_the_function_does() -> None:
    page = (ROOT / "docs" / "decisions.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\.\d\d) \| (.+) \|$", page, re.MULTILINE)
    assert len(rows) == 5
    for gap, cells in rows:
        found = [decisions_until_out(float(gap), share) for share in (0.05, 0.1, 0.2, 0.3)]
        assert cells.split(" | ") == ["over 20,000" if each is None else f"{each:,}" for each in found]
    stated = [decisions_until_out(0.35, share, reward=0.05, fall=0.65) for share in (0.05, 0.1, 0.18)]
    assert "stated {}, {} and {} decisions".format(*stated) in page


@pytest.mark.parametrize("hidden", ["failures of the others", "successes of the champion"])
def test_unknown_rewards_put_no_good_champion_out(hidden: str) -> None:
    """Read as nothing they would: what is left of an equal champion looks much worse than the others."""
    rng, unknown = np.random.default_rng(2), 0
    state, careless = ChampionTestState(), ChampionTestState()
    for choice, _ in zip(choices(rng, 0.2, 0.5, 0.5), range(4_000), strict=False):
        is_hidden = choice.is_own is (hidden == "successes of the champion") and choice.reward == float(choice.is_own)
        shown = choice._replace(reward=None) if is_hidden and rng.random() < 0.6 else choice
        state = after(state, shown)
        unknown += shown.reward is None
        if shown.reward is not None and careless.evidence < 1 / ALPHA:
            careless = after(careless, shown)
        assert state.evidence < 1 / ALPHA
    assert state.num_missing == unknown > 100
    assert careless.evidence >= 1 / ALPHA


def test_what_is_no_choice_is_refused() -> None:
    for choice in (ServedChoice(1.0, True, 1.0), ServedChoice(0.0, False, 1.0), ServedChoice(0.5, True, 1.5)):
        with pytest.raises(UsageError, match="allowed is"):
            after(ChampionTestState(), choice)
