"""Replay: what comes out is what went in, at the right odds, in a memory that is known before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learnloop.algorithms.replay import uniform as replay_buffer
from learnloop.algorithms.replay.prioritised import Entries, PrioritisedReplay, ReplayBuffer, Transitions
from learnloop.core.errors import CorruptError, NotFoundError, UsageError
from learnloop.core.spaces import Box, Discrete
from tests.algorithms.chi_square import fits

F = np.float32
GAMMA = 0.9
TWO = Discrete(n=2)
BOX = Box(shape=(2,), low=(-1.0, -1.0), high=(1.0, 1.0))


class Known:
    """Two copies of each transition, kept without any sharing: what a replay must give back."""

    def __init__(self, replay: ReplayBuffer, num_envs: int, size: int, seed: int, masked: bool = False) -> None:
        self.replay = replay
        self.rng = np.random.default_rng(seed)
        self.num_envs, self.size, self.masked = num_envs, size, masked
        self.rows: list[dict[str, Any]] = []
        self.now, self.masks = self.observe(num_envs)
        self.numbers = replay.see(self.now, self.masks) + np.arange(num_envs)

    def observe(self, count: int) -> tuple[np.ndarray, np.ndarray | None]:
        masks = None
        if self.masked:
            masks = self.rng.random((count, 2)) < 0.7
            masks[:, 0] |= ~masks.any(axis=1)
        return self.rng.standard_normal((count, self.size)).astype(F), masks

    def step(self, ends: float = 0.3) -> None:
        """One step of all envs, as an algorithm records it."""
        rng, lanes = self.rng, self.num_envs
        actions, rewards = rng.integers(2, size=lanes), rng.standard_normal(lanes)
        ended = rng.random(lanes) < ends
        terminated = ended & (rng.random(lanes) < 0.5)
        truncated = ended & ~terminated
        after, masks = self.observe(lanes)
        numbers = self.replay.see(after, masks) + np.arange(lanes)
        following = np.where(terminated, self.numbers, numbers)
        arrived, arrived_masks = after.copy(), None if masks is None else masks.copy()
        for lane in np.flatnonzero(truncated):
            final, final_mask = self.observe(1)
            following[lane] = self.replay.see(final, final_mask)
            arrived[lane] = final[0]
            if arrived_masks is not None and final_mask is not None:
                arrived_masks[lane] = final_mask[0]
        self.replay.add(Entries(self.numbers, actions, rewards, following, GAMMA, terminated, truncated))
        for lane in range(lanes):
            self.rows.append(
                {
                    "observation": self.now[lane],
                    "action": actions[lane],
                    "reward": F(rewards[lane]),
                    "next": self.now[lane] if terminated[lane] else arrived[lane],
                    "terminated": terminated[lane],
                    "truncated": truncated[lane],
                    "mask": None if self.masks is None else self.masks[lane],
                    "next_mask": None if arrived_masks is None else arrived_masks[lane],
                }
            )
        self.now, self.masks, self.numbers = after, masks, numbers

    def check(self, sample: Any) -> None:
        for row, number in enumerate(sample.numbers.tolist()):
            known = self.rows[number]
            np.testing.assert_array_equal(sample.observations[row], known["observation"])
            np.testing.assert_array_equal(sample.next_observations[row], known["next"])
            assert sample.actions[row] == known["action"]
            assert sample.rewards[row] == known["reward"]
            assert sample.discounts[row] == F(GAMMA)
            assert sample.terminated[row] == known["terminated"]
            assert sample.truncated[row] == known["truncated"]
            if known["mask"] is not None:
                np.testing.assert_array_equal(sample.masks[row], known["mask"])
                if not known["terminated"]:
                    np.testing.assert_array_equal(sample.next_masks[row], known["next_mask"])


def filled(count: int = 50, *, replay: ReplayBuffer | None = None, **options: Any) -> ReplayBuffer:
    """A replay of one env; the reward of each transition is its number."""
    found = ReplayBuffer(50, 3, TWO, **options) if replay is None else replay
    at = found.see(np.zeros((1, 3), dtype=F))
    nothing = np.zeros(1, dtype=np.bool_)
    for _ in range(count):
        number = found.num_added
        following = found.see(np.full((1, 3), number + 1, dtype=F))
        found.add(
            Entries(
                np.array([at]),
                np.array([number % 2]),
                np.array([number]),
                np.array([following]),
                GAMMA,
                nothing,
                nothing,
            )
        )
        at = following
    return found


def prioritised(count: int = 50, **options: Any) -> PrioritisedReplay:
    found = PrioritisedReplay(50, 3, TWO, **options)
    filled(count, replay=found)
    return found


# What comes out ---------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    num_envs=st.integers(1, 4),
    capacity=st.integers(4, 40),
    margin=st.sampled_from([16, 64]),
    ends=st.sampled_from([0.0, 0.3, 1.0]),
    masked=st.booleans(),
    is_prioritised=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_what_comes_out_is_what_went_in(
    num_envs: int, capacity: int, margin: int, ends: float, masked: bool, is_prioritised: bool, seed: int
) -> None:
    """F0.10: also when the ring has gone round, and when episodes that are cut at each step push out the oldest."""
    kind = PrioritisedReplay if is_prioritised else ReplayBuffer
    replay = kind(capacity, 3, TWO, margin=margin)
    known = Known(replay, num_envs, 3, seed, masked)
    for _ in range(40):
        known.step(ends)
        sample = replay.sample(16, known.rng)
        known.check(sample)
        assert replay.oldest <= sample.numbers.min() <= sample.numbers.max() < replay.num_added == len(known.rows)
        assert len(replay) <= capacity
    if ends < 1:
        assert len(replay) == min(capacity, 40 * num_envs)


@pytest.mark.parametrize("share", [True, False])
def test_how_many_fit_where_nothing_is_shared(share: bool) -> None:
    """Each step is cut, so each transition has two observations."""
    replay = ReplayBuffer(1000, 3, TWO, margin=8, share_observations=share)
    known = Known(replay, 1, 3, 0)
    for _ in range(1500):
        known.step(ends=1.0)
    known.check(replay.sample(200, known.rng))
    assert len(replay) == 1000 if not share else 500 < len(replay) < 1000


def test_draws_are_uniform_and_with_replacement() -> None:
    replay = filled(80)
    numbers = replay.sample(100_000, np.random.default_rng(0)).numbers
    assert fits(np.bincount(numbers - 30, minlength=50), np.full(50, 1 / 50))
    assert len(filled(3).sample(64, np.random.default_rng(0)).numbers) == 64  # more than there are, as SB3 does


def test_terminated_and_truncated_are_kept_apart() -> None:
    replay = ReplayBuffer(10, 1, TWO)
    first = replay.see(np.array([[1.0], [2.0], [3.0]], dtype=F)) + np.arange(3)
    flags = np.array([True, False, False]), np.array([False, True, False])
    final = replay.see(np.array([[9.0]], dtype=F))
    replay.add(Entries(first, np.zeros(3, dtype=int), np.arange(3), np.array([first[0], final, first[2]]), 0.5, *flags))
    sample = replay.sample(500, np.random.default_rng(0))
    for row, number in enumerate(sample.numbers):
        assert (sample.terminated[row], sample.truncated[row]) == ((True, False), (False, True), (False, False))[number]
        assert sample.next_observations[row, 0] == (1.0, 9.0, 3.0)[number]


def test_a_mask_that_allows_nothing_is_one_after_which_nothing_is_chosen() -> None:
    replay = ReplayBuffer(10, 1, TWO)
    at = replay.see(np.zeros((2, 1), dtype=F), np.array([[True, False], [False, False]]))
    flags = np.zeros(1, dtype=np.bool_)
    replay.add(Entries(np.array([at]), np.zeros(1, dtype=int), np.ones(1), np.array([at + 1]), 0.5, flags, flags))
    sample = replay.sample(1, np.random.default_rng(0))
    assert sample.masks is not None
    assert sample.next_masks is not None
    assert sample.masks.tolist() == [[True, False]]
    assert sample.next_masks.tolist() == [[True, True]]


def test_an_old_observation_is_refused() -> None:
    replay = filled(10, margin=4)
    flags = np.zeros(1, dtype=np.bool_)
    entries = Entries(np.array([3]), np.zeros(1, dtype=int), np.ones(1), np.array([4]), 0.5, flags, flags)
    with pytest.raises(UsageError, match="more than 4 others"):
        replay.add(entries)
    with pytest.raises(UsageError, match="no transition"):
        ReplayBuffer(3, 1, TWO).sample(1, np.random.default_rng(0))
    with pytest.raises(UsageError, match="capacity 0"):
        ReplayBuffer(0, 1, TWO)


# Historical transitions -------------------------------------------------------------------------------------------


def history(count: int, *, chained: bool, seed: int = 0, action_space: Any = TWO) -> Transitions:
    rng = np.random.default_rng(seed)
    observations = rng.standard_normal((count + 1, 3)).astype(F)
    following = observations[1:].copy()
    ended = rng.random(count) < 0.2
    truncated = ended & (rng.random(count) < 0.5)
    following[truncated] += 100
    if not chained:
        following = rng.standard_normal((count, 3)).astype(F)
    actions = rng.integers(2, size=count) if isinstance(action_space, Discrete) else rng.random((count, 2)).astype(F)
    return Transitions(observations[:-1], actions, rng.standard_normal(count), following, ended & ~truncated, truncated)


@pytest.mark.parametrize("chained", [True, False])
@pytest.mark.parametrize("space", [TWO, BOX])
def test_historical_transitions_come_out_again(chained: bool, space: Any) -> None:
    given_ = history(900, chained=chained, action_space=space)
    replay = ReplayBuffer(1000, 3, space, share_observations=chained)
    replay.add_transitions(given_, GAMMA)
    sample = replay.sample(3000, np.random.default_rng(1))
    numbers = sample.numbers
    assert set(numbers) <= set(range(900))
    assert len(replay) == 900
    np.testing.assert_array_equal(sample.observations, given_.observations[numbers])
    np.testing.assert_array_equal(sample.actions, given_.actions[numbers])
    np.testing.assert_array_equal(sample.rewards, given_.rewards[numbers].astype(F))
    goes_on = ~given_.terminated[numbers]
    np.testing.assert_array_equal(sample.next_observations[goes_on], given_.next_observations[numbers][goes_on])
    np.testing.assert_array_equal(sample.terminated, given_.terminated[numbers])


def test_history_whose_observations_do_not_fit_is_refused_before_anything_is_lost() -> None:
    replay = filled(20, replay=ReplayBuffer(1000, 3, TWO))
    with pytest.raises(UsageError, match="share_observations=False"):
        replay.add_transitions(history(1000, chained=False), GAMMA)
    assert len(replay) == 20


def test_of_too_much_history_the_newest_is_kept() -> None:
    replay = ReplayBuffer(200, 3, TWO)
    given_ = history(1000, chained=True)
    replay.add_transitions(given_, GAMMA)
    sample = replay.sample(1000, np.random.default_rng(1))
    assert len(replay) == 200
    assert sample.numbers.min() >= 800
    np.testing.assert_array_equal(sample.observations, given_.observations[sample.numbers])


# Memory -----------------------------------------------------------------------------------------------------------


def test_the_memory_is_known_beforehand() -> None:
    """S0.4: 100,000 transitions of 1536 numbers, each observation kept once."""
    whole, others = ReplayBuffer.num_bytes(100_000, 1536, Discrete(n=5))
    assert whole == pytest.approx(656e6, rel=0.01)  # a plain replay keeps 1,229 MB
    assert others < 6e6
    assert ReplayBuffer.num_bytes(100_000, 1536, Discrete(n=5), dtype="float16")[0] == whole // 2
    assert ReplayBuffer.num_bytes(100_000, 1536, Discrete(n=5), share_observations=False)[0] < 1.24e9


@pytest.mark.parametrize("kind", [ReplayBuffer, PrioritisedReplay])
@pytest.mark.parametrize("space", [TWO, BOX, Discrete(n=64)])
def test_the_memory_is_what_was_said(kind: Any, space: Any) -> None:
    replay = kind(5000, 8, space)
    masks = None if space is BOX else np.ones((1, space.n), dtype=np.bool_)
    replay.see(np.zeros((1, 8), dtype=F), masks)
    observations, others = kind.num_bytes(5000, 8, space)
    arrays = [replay._entries]
    ring = [value for value in vars(replay._ring).values() if isinstance(value, np.ndarray)]
    taken = sum(each.nbytes for each in arrays + ring)
    if kind is PrioritisedReplay:
        tree = replay._tree
        taken += tree._leaves.nbytes + tree._padded_sums.nbytes
    assert 0.95 * (observations + others) <= taken <= observations + others + 10_000


def test_what_does_not_fit_is_refused_with_figures(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setattr(replay_buffer, "available_memory", lambda: 300_000_000)
    with pytest.raises(UsageError, match=r"661 MB \(656 MB .*300 MB are free.*float16.*folder"):
        ReplayBuffer(100_000, 1536, TWO)
    assert len(ReplayBuffer(1000, 1536, TWO)) == 0
    assert len(ReplayBuffer(50_000, 1536, TWO, folder=tmp_path)) == 0  # on the disk


@pytest.mark.parametrize("options", [{"dtype": "float16"}, {"mapped": True}, {"dtype": "float16", "mapped": True}])
def test_half_precision_and_a_mapped_file(options: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "observations" if options.pop("mapped", False) else None
    replay = ReplayBuffer(30, 3, TWO, folder=folder, **options)
    known = Known(replay, 2, 3, 0)
    for _ in range(40):
        known.step()
    for row in known.rows:
        for name in ("observation", "next"):
            row[name] = row[name].astype(options.get("dtype", "float32")).astype(F)
    known.check(replay.sample(100, known.rng))
    if folder is not None:
        assert list(folder.iterdir()) == []  # it goes with the process, however that ends


def test_what_half_precision_cannot_hold_is_refused() -> None:
    replay = ReplayBuffer(30, 3, TWO, dtype="float16")
    with pytest.raises(UsageError, match="float16 ends at 65504"):
        replay.see(np.full((1, 3), 1e6, dtype=F))
    assert not replay.shows(np.array([replay.see(np.full((1, 3), 0.1, dtype=F))]), np.zeros((1, 3), dtype=F))
    assert replay.shows(np.array([replay.see(np.full((1, 3), 0.1, dtype=F))]), np.full((1, 3), 0.1, dtype=F))


# Priorities -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_frequencies_and_weights_are_those_of_the_paper(alpha: float) -> None:
    """F0.10, P14: P(i) = p_i^alpha / sum; w_i = (N P(i))^-beta over the largest such weight in the whole buffer."""
    rng = np.random.default_rng(3)
    replay = prioritised(80, alpha=alpha, epsilon=0.01)
    sample = replay.sample(50_000, rng, 0.4)
    errors = rng.standard_normal(50) ** 3
    replay.update_priorities(sample, errors[sample.numbers - 30])
    scaled = (np.abs(errors) + 0.01) ** alpha
    odds = scaled / scaled.sum()
    counts = np.zeros(50)
    for _ in range(400):
        sample = replay.sample(256, rng, 0.4)
        counts += np.bincount(sample.numbers - 30, minlength=50)
        weights = (50 * odds) ** -0.4
        np.testing.assert_allclose(sample.weights, (weights / weights.max())[sample.numbers - 30], rtol=1e-5)
    assert fits(counts, odds)
    if alpha:
        assert not fits(counts, np.full(50, 1 / 50))


def test_weights_do_not_depend_on_what_else_is_drawn() -> None:
    """F0.10: the original divides by the largest weight of the batch."""
    rng = np.random.default_rng(0)
    replay = prioritised()
    replay.update_priorities(replay.sample(1000, rng), rng.random(1000))
    seen: dict[int, float] = {}
    for _ in range(200):
        sample = replay.sample(2, rng, 0.7)
        assert sample.weights is not None
        for number, weight in zip(sample.numbers.tolist(), sample.weights.tolist(), strict=True):
            assert seen.setdefault(number, weight) == weight
    assert len(set(seen.values())) > 10
    np.testing.assert_array_equal(replay.sample(5, rng, 0.0).weights, 1)


def test_a_new_transition_has_the_largest_priority_so_far() -> None:
    replay = prioritised(10, alpha=1.0)
    sample = replay.sample(200, np.random.default_rng(0))
    replay.update_priorities(sample, np.where(sample.numbers == 4, 7.0, 0.5))
    filled(1, replay=replay)
    assert replay.priorities(np.array([10]))[0] == replay.priorities(np.array([4]))[0] == 7 + 1e-6


def test_priorities_of_overwritten_transitions_are_left_alone() -> None:
    """F0.10: the original's indices shift between a draw and its update, and others' priorities are changed."""
    replay = prioritised(50)
    sample = replay.sample(64, np.random.default_rng(0))
    filled(20, replay=replay)  # numbers 0 to 19 are gone
    fresh = replay.priorities(np.arange(50, 70)).copy()
    replay.update_priorities(sample, np.full(64, 9.0))
    np.testing.assert_array_equal(replay.priorities(np.arange(50, 70)), fresh)
    kept = sample.numbers[sample.numbers >= 20]
    np.testing.assert_allclose(replay.priorities(kept), (9 + 1e-6) ** 0.6)
    assert replay.num_stale == 64 - len(kept) > 0
    filled(50, replay=replay)
    before = replay.priorities(np.arange(replay.oldest, replay.num_added)).copy()
    replay.update_priorities(sample, np.full(64, 1e9))
    np.testing.assert_array_equal(replay.priorities(np.arange(replay.oldest, replay.num_added)), before)


def test_pushed_out_transitions_are_never_drawn() -> None:
    replay = PrioritisedReplay(1000, 3, TWO, margin=8)
    known = Known(replay, 1, 3, 0)
    for _ in range(1200):
        known.step(ends=1.0)
    assert len(replay) < 1000
    sample = replay.sample(5000, known.rng)
    assert sample.numbers.min() >= replay.oldest
    known.check(sample)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_priority_that_is_not_finite_is_refused(bad: float) -> None:
    replay = prioritised()
    sample = replay.sample(8, np.random.default_rng(0))
    before = replay.priorities(np.arange(50)).copy()
    with pytest.raises(UsageError, match="must be finite"):
        replay.update_priorities(sample, np.array([1.0] * 7 + [bad]))
    np.testing.assert_array_equal(replay.priorities(np.arange(50)), before)
    with pytest.raises(UsageError, match="alpha is 2"):
        PrioritisedReplay(5, 1, TWO, alpha=2)


# Kept -------------------------------------------------------------------------------------------------------------


def same_draws(one: ReplayBuffer, other: ReplayBuffer) -> None:
    for seed in range(5):
        mine, theirs = (each.sample(32, np.random.default_rng(seed)) for each in (one, other))
        for found, expected in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", [ReplayBuffer, PrioritisedReplay])
@pytest.mark.parametrize("num_steps", [0, 10, 100])
@pytest.mark.parametrize("masked", [False, True])
def test_it_is_saved_and_loaded_with_priorities(kind: Any, num_steps: int, masked: bool, tmp_path: Path) -> None:
    """F0.10: the original never finds what it saved, and would load it without priorities."""
    replay, loaded = (kind(60, 3, TWO, margin=20) for _ in range(2))
    known = Known(replay, 2, 3, 5, masked)
    for _ in range(num_steps):
        known.step()
    if num_steps and kind is PrioritisedReplay:
        replay.update_priorities(replay.sample(32, known.rng), known.rng.standard_normal(32))
    path = replay.save(tmp_path)
    loaded.load(tmp_path)
    assert (loaded.num_added, loaded.oldest) == (replay.num_added, replay.oldest)
    assert path.stat().st_size < 10_000  # the filled part only
    if num_steps:
        same_draws(replay, loaded)
    known.replay = loaded
    for _ in range(20):
        known.step()
    known.check(loaded.sample(50, known.rng))


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "foreign"])
def test_a_damaged_file_is_refused(damage: str, tmp_path: Path) -> None:
    path = prioritised().save(tmp_path)
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[-9] ^= 1
    path.write_bytes({"flip": bytes(data), "cut": bytes(data[:-40]), "empty": b"", "foreign": b"{}" * 40}[damage])
    replay = prioritised(7)
    with pytest.raises(CorruptError, match=r"replay\.safetensors"):
        replay.load(tmp_path)
    assert len(replay) == 7


@pytest.mark.parametrize(
    "other",
    [
        lambda: PrioritisedReplay(50, 4, TWO),
        lambda: PrioritisedReplay(50, 3, BOX),
        lambda: PrioritisedReplay(10, 3, TWO),
        lambda: PrioritisedReplay(50, 3, TWO, dtype="float16"),
    ],
    ids=["observations", "actions", "capacity", "dtype"],
)
def test_a_replay_of_another_shape_is_refused(other: Any, tmp_path: Path) -> None:
    prioritised().save(tmp_path)
    with pytest.raises(CorruptError, match="cannot be read"):
        other().load(tmp_path)


def test_a_replay_of_another_kind_is_refused(tmp_path: Path) -> None:
    filled().save(tmp_path)
    with pytest.raises(CorruptError, match="priorities"):
        PrioritisedReplay(50, 3, TWO).load(tmp_path)
    with pytest.raises(NotFoundError, match="no replay"):
        PrioritisedReplay(50, 3, TWO).load(tmp_path / "elsewhere")


@pytest.mark.parametrize("name", ["rewards", "following", "priorities", "observations", "num_added"])
def test_a_state_that_contradicts_itself_is_refused(name: str) -> None:
    state = prioritised().state()
    broken = {
        "rewards": np.full(50, np.nan, dtype=F),
        "following": state["following"] + 5000,
        "priorities": np.zeros(50),
        "observations": state["observations"][:10],
        "num_added": np.array([3]),
    }
    with pytest.raises(CorruptError, match="cannot be read"):
        PrioritisedReplay(50, 3, TWO).restore({**state, name: broken[name]})
