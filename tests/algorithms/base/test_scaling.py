"""Running scales: of what was seen, and of nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from learnloop.algorithms.base.scaling import ObservationScaler, RewardScaler

GAMMA = 0.5


@pytest.mark.parametrize("with_resets", [False, True])
def test_returns_end_with_their_episodes(with_resets: bool) -> None:
    """Chan et al.'s variance of the discounted returns, computed anew here; an env's return begins anew after its end.

    An env that only resets itself (gymnasium's NEXT_STEP) earns nothing, and what is said of its reward is not heard.
    """
    rng = np.random.default_rng(0)
    scaler, running, seen = RewardScaler(3, GAMMA), [0.0] * 3, []
    resets = np.zeros(3, dtype=np.bool_)
    for _ in range(40):
        rewards, ended = rng.normal(2, 3, 3), (rng.random(3) < 0.4) & ~resets
        valid = ~resets if with_resets else None
        if with_resets:
            rewards[resets] = 1e3
        found = scaler.see(rewards, ended, valid)
        for lane in range(3):
            if valid is not None and not valid[lane]:
                running[lane] = 0.0
                continue
            running[lane] = GAMMA * running[lane] + rewards[lane]
            seen.append(running[lane])
            if ended[lane]:
                running[lane] = 0.0
        deviation = np.sqrt(np.var(seen) + 1e-8) if len(seen) > 1 else np.sqrt(1 + 1e-8)
        np.testing.assert_allclose(found, np.clip(rewards / deviation, -10, 10), rtol=1e-9)
        resets = ended.copy() if with_resets else resets
    assert len(seen) == 120 or with_resets


def test_what_is_left_out_is_scaled_and_not_taken_in() -> None:
    scaler = ObservationScaler(2)
    first = np.array([[1, 10], [3, 30]], dtype=np.float32)
    scaler.see(first)
    both = np.array([[5, 50], [7e3, 7e4]], dtype=np.float32)
    found = scaler.see(both, np.array([False, True]))
    seen = np.array([[1, 10], [3, 30], [5, 50]], dtype=np.float64)
    expected = np.clip((both - seen.mean(axis=0)) / np.sqrt(seen.var(axis=0) + 1e-8), -10, 10)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
