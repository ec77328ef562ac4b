"""How soon a champion that became bad is put out, and how often one that is no worse.

Rewards are 0 or 1 and come at once; the others are taken with a fixed probability. The peer looks as people do: after
each 50 decisions a z-test of the two shares over all of them so far, which believes p < .05 whenever it sees it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

import numpy as np

from benchmarks.report import Goal, Row, make_row
from learnloop.core.arrays import F64
from learnloop.evaluation.champion_test import (
    ALPHA,
    HORIZON,
    ChampionTestState,
    ServedChoice,
    after,
    decisions_until_out,
)

NUM_BEFORE = 500
"""Decisions before a champion falls."""
WITHIN = 500
MIN_OUT, MAX_OUT = 0.95, 0.05
PEER = "a z-test of all so far, after each 50 decisions"
_LOOK_EVERY = 50
_Z = 1.6448536


class Course(NamedTuple):
    """A champion's life: what it earns, and what the others do."""

    other_share: float
    before: float
    own: float
    others: float
    number: int
    """Decisions after those before the fall."""


class Ended(NamedTuple):
    """When it was put out, counted from the fall; None: it was not."""

    ours: int | None
    peers: int | None


GOOD = (Course(0.1, 0.4, 0.4, 0.4, HORIZON - NUM_BEFORE), Course(0.3, 0.7, 0.7, 0.7, HORIZON - NUM_BEFORE))
BAD = (
    Course(0.1, 0.7, 0.05, 0.4, WITHIN),
    Course(0.05, 0.7, 0.05, 0.4, decisions_until_out(0.35, 0.05, reward=0.05, fall=0.65) or HORIZON),
    Course(0.1, 0.6, 0.4, 0.6, decisions_until_out(0.2, 0.1, reward=0.4, fall=0.2) or HORIZON),
)


def champion_rows(ask: Callable[[Callable[[int], Ended], Iterable[int]], Iterable[Ended]], number: int) -> list[Row]:
    """Returns a row for each course, of ``number`` runs each; ``ask`` maps a function over seeds."""
    rows = []
    for course in (*BAD, *GOOD):
        found = list(ask(partial(live, course), range(number)))
        is_good = course in GOOD
        named = "no worse" if is_good else f"falls from {course.before} to {course.own}, others earn {course.others}"
        within = HORIZON if is_good else course.number
        goal = Goal(of="value", relation="<=" if is_good else ">=", bound=MAX_OUT if is_good else MIN_OUT)
        rows.append(
            make_row(
                f"champion out within {within:,} decisions: {named}, others taken in {course.other_share:.0%}",
                [float(np.mean([each.ours is not None for each in found]))],
                "of champions",
                peer=PEER,
                peer_values=[float(np.mean([each.peers is not None for each in found]))],
                goal=goal,
                note=f"{number} champions; those out before a fall do not count as out within it",
            )
        )
    return rows


def live(course: Course, seed: int) -> Ended:
    """Draws one course with ``seed``; a good champion is out whenever it is, a bad one only after its fall."""
    rng = np.random.default_rng([seed, 23])
    state, sums, ours, peers = ChampionTestState(), np.zeros((2, 2)), None, None
    first = NUM_BEFORE if course.own < course.others else 0
    for at in range(NUM_BEFORE + course.number):
        is_own = bool(rng.random() >= course.other_share)
        earns = (course.before if at < NUM_BEFORE else course.own) if is_own else course.others
        reward = float(rng.random() < earns)
        sums[int(is_own)] += (1.0, reward)
        if ours is None:
            state = after(state, ServedChoice(1 - course.other_share, is_own, reward))
            ours = at + 1 - first if state.evidence >= 1 / ALPHA else None
        if peers is None and (at + 1) % _LOOK_EVERY == 0 and _is_lower(sums):
            peers = at + 1 - first
    return Ended(*(None if each is not None and each <= 0 else each for each in (ours, peers)))


def _is_lower(sums: F64) -> bool:
    """Returns whether a z-test of two shares finds the champion's (row 1) lower than the others' (row 0)."""
    number, total = sums[:, 0], sums[:, 1]
    pooled = total.sum() / number.sum()
    error = math.sqrt(pooled * (1 - pooled) * float((1 / np.maximum(number, 1)).sum()))
    return bool(number.min() > 0 and error > 0 and (total[0] / number[0] - total[1] / number[1]) / error > _Z)
