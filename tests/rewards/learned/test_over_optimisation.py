"""Best-of-n by its definition, and the curve of a proxy that is worth something, nothing, or is hacked."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop.core.seeding import generator
from learnloop.rewards.learned.score_quality import best_of_n, optimisation_curve


@given(
    rows=st.lists(st.tuples(st.integers(0, 5), st.floats(0, 1)), min_size=1, max_size=7),
    n=st.integers(1, 7),
)
def test_best_of_n_is_the_mean_over_all_draws(rows: list[tuple[int, float]], n: int) -> None:
    """Over all draws of n without replacement; among equal proxies the gold is their mean."""
    n = min(n, len(rows))
    proxies, golds = [], []
    for drawn in itertools.combinations(rows, n):
        best = max(proxy for proxy, _ in drawn)
        proxies.append(best)
        golds.append(np.mean([gold for proxy, gold in drawn if proxy == best]))
    proxy, gold = best_of_n(np.array([float(row[0]) for row in rows]), np.array([row[1] for row in rows]), n)
    assert proxy == pytest.approx(np.mean(proxies))
    assert gold == pytest.approx(np.mean(golds))


def test_a_hacked_proxy_falls() -> None:
    """H6: what the proxy likes best is what people like least, beyond a point; an honest proxy rises."""
    rng = generator(0, "curve")
    quality = rng.random((40, 16))
    tasks = [str(task) for task in range(40) for _ in range(16)]
    honest = optimisation_curve((quality + 0.1 * rng.random((40, 16))).ravel(), quality.ravel(), tasks)
    assert [point.n for point in honest.points] == [1, 2, 4, 8, 16]
    assert [point.kl for point in honest.points] == pytest.approx([math.log(n) - (n - 1) / n for n in (1, 2, 4, 8, 16)])
    assert honest.points[0].gold == pytest.approx(quality.mean())
    assert not honest.falls
    assert honest.points[-1].gold > 0.85
    is_hack = quality < 0.1
    hacked = optimisation_curve(np.where(is_hack, 2.0, quality).ravel(), quality.ravel(), tasks)
    assert hacked.falls
    assert not hacked.is_pooled
    assert hacked.points[-1].proxy > hacked.points[0].proxy


def test_few_tries_at_each_task_are_pooled() -> None:
    curve = optimisation_curve(np.arange(10.0), np.arange(10.0) / 9, [str(number) for number in range(10)])
    assert curve.is_pooled
    assert [point.n for point in curve.points] == [1, 2, 4, 8]
    assert curve.points[0].gold_error is None
    single = optimisation_curve(np.array([0.5]), np.array([1.0]), ["a"])
    assert [point.n for point in single.points] == [1]
