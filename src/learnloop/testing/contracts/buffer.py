"""What a replay promises to the algorithms that draw from it."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from learnloop.algorithms.replay.prioritised import PrioritisedReplay, ReplayBuffer
from learnloop.algorithms.replay.transitions import Entries, ReplaySample
from learnloop.core.arrays import F32, F64, I64, Bools
from learnloop.core.errors import LearnloopError, UsageError
from learnloop.core.seeding import generator
from learnloop.core.spaces import ActionSpace, Discrete
from learnloop.testing.contracts.contract import Contract, expect, refuses, same
from learnloop.testing.replay_probe import Draw, check_replay

CAPACITY = 24
SIZE = 3
GAMMA = 0.5
NUM_CHOICES = 2
END_EVERY, CUT_EVERY = 7, 5
"""Every 7th transition terminates, and every 5th other one is cut."""


class BufferContract(Contract):
    """Rules of replays.

    ::

        class TestMine(BufferContract):
            def make(self, capacity, observation_size, action_space):
                return MyReplay(capacity, observation_size, action_space)

    Transition i is known by its numbers: what it was chosen on shows i, its reward is i / 4.

    Attributes:
        keeps_halves: whether observations come back as 16 bits had them.
    """

    keeps_halves: ClassVar[bool] = False

    @abstractmethod
    def make(self, capacity: int, observation_size: int, action_space: ActionSpace) -> ReplayBuffer:
        """Returns an empty replay."""

    def filled(self, count: int, *, batch: int = 1, masked: bool = False) -> ReplayBuffer:
        """Returns a replay of ``CAPACITY`` to which ``count`` transitions were added."""
        replay = self.make(CAPACITY, SIZE, Discrete(n=NUM_CHOICES))
        for start in range(0, count, batch):
            add(replay, np.arange(start, min(start + batch, count)), masked=masked)
        return replay

    def drawn(self, replay: ReplayBuffer, count: int = 300, seed: int = 0) -> ReplaySample:
        """Returns a copy of a sample."""
        sample = replay.sample(count, generator(seed, "contract"))
        copied: Any = [None if part is None else part.copy() for part in sample]
        return ReplaySample(*copied)

    def test_it_holds_the_newest(self) -> None:
        """It grows to its capacity, then the newest push out the oldest, which never come back."""
        for count in (1, CAPACITY - 1, CAPACITY, CAPACITY + 1, 3 * CAPACITY + 5):
            replay = self.filled(count)
            why = "what is told to be forgotten would be learned from, under another's name"
            same(len(replay), min(count, CAPACITY), f"of {count} it holds what there is room for", why)
            numbers = set(self.drawn(replay, 600).numbers.tolist())
            wanted = set(range(max(0, count - CAPACITY), count))
            same(numbers, wanted, "draws are of the newest, and of all of them", why)

    def test_transitions_come_back_as_they_were(self) -> None:
        """Each number stands for the transition that was added under it, also after the ring went round."""
        for count, batch in ((5, 1), (CAPACITY, 4), (3 * CAPACITY + 5, 1), (3 * CAPACITY + 5, 7)):
            fault = fault_of(self.drawn(self.filled(count, batch=batch)), self.keeps_halves)
            why = "something would be learned that never happened"
            expect(fault is None, f"{count} transitions, {batch} at once, come back as they were", fault, why)

    def test_ends_are_kept_apart(self) -> None:
        """``terminated`` and truncated come back as they were, each with its discount."""
        sample = self.drawn(self.filled(2 * CAPACITY))
        why = "a time limit taken for an end teaches that living long is worthless"
        same(sample.terminated, terminated(sample.numbers), "terminated comes back as it was", why)
        same(sample.truncated, truncated(sample.numbers), "truncated comes back as it was", why)
        expect((sample.discounts == GAMMA).all(), "discounts come back as they were", sample.discounts[:5], why)

    def test_masks_come_back(self) -> None:
        """The masks of an observation, and of what came after it, come back with it."""
        sample = self.drawn(self.filled(2 * CAPACITY + 3, masked=True))
        why = "what was not allowed would be taken for the best next action"
        for name, found, wanted in (
            ("masks", sample.masks, mask_of(sample.numbers)),
            ("next_masks", sample.next_masks, mask_of(following(sample.numbers))),
        ):
            same(found, wanted, f"{name} come back as they were", why)

    def test_samples_have_their_types(self) -> None:
        """A sample is of as many rows as were asked for, observations and rewards float32."""
        replay = self.filled(CAPACITY)
        for count in (1, 5, 64):
            sample = self.drawn(replay, count)
            why = "networks take float32, and losses a row for each"
            same(sample.observations.shape, (count, SIZE), "observations have a row for each", why)
            types = {
                name: str(getattr(sample, name).dtype) for name in ("observations", "next_observations", "rewards")
            }
            same(set(types.values()), {"float32"}, "observations and rewards are float32", why)
            same(len(sample.actions), count, "there is an action for each row", why)

    def test_the_same_numbers_draw_the_same(self) -> None:
        """Draws depend on the given generator alone."""
        replay = self.filled(CAPACITY)
        first, second = (self.drawn(replay, seed=0) for _ in range(2))
        why = "a training could not be had again"
        same(first.numbers, second.numbers, "the same generator draws the same", why)
        other = self.drawn(replay, seed=1)
        is_other = not np.array_equal(first.numbers, other.numbers)
        expect(is_other, "another generator draws others", "the same", "seeds would be one sample")

    def test_an_empty_one_is_refused(self) -> None:
        """Nothing can be drawn of nothing, and no capacity below 1 is made."""
        replay = self.make(CAPACITY, SIZE, Discrete(n=NUM_CHOICES))
        why = "zeros would be learned from"
        refuses(UsageError, "a draw of an empty replay is refused", why, replay.sample, 4, generator(0, "contract"))
        refuses(UsageError, "a capacity of 0 is refused", why, self.make, 0, SIZE, Discrete(n=NUM_CHOICES))

    def test_it_goes_on_from_a_state(self) -> None:
        """Restored, it draws and takes what the one would that never stopped; the state is a copy."""
        for count in (3, CAPACITY, 2 * CAPACITY + 5):
            first = self.filled(count, masked=True)
            state = first.state()
            before = {name: each.tobytes() for name, each in state.items()}
            second = self.make(CAPACITY, SIZE, Discrete(n=NUM_CHOICES))
            second.restore(state)
            why = "a training that was stopped would not end where it would have"
            for round_ in range(3):
                wanted, found = self.drawn(first), self.drawn(second)
                same(tuple(found), tuple(wanted), f"restored after {count} it draws the same (round {round_})", why)
                for replay in (first, second):
                    add(replay, np.arange(count + 5 * round_, count + 5 * round_ + 5), masked=True)
            same({name: each.tobytes() for name, each in state.items()}, before, "a state is a copy", why)

    def test_a_damaged_state_is_refused(self) -> None:
        """A state with a part missing, or of another capacity, is refused."""
        state = self.filled(CAPACITY).state()
        why = "what was never seen would be learned from"
        for name in state:
            fresh = self.make(CAPACITY, SIZE, Discrete(n=NUM_CHOICES))
            lacking = {key: each for key, each in state.items() if key != name}
            refuses(LearnloopError, f"a state without {name} is refused", why, fresh.restore, lacking)
        smaller = self.make(CAPACITY // 2, SIZE, Discrete(n=NUM_CHOICES))
        refuses(LearnloopError, "a state that is too large is refused", why, smaller.restore, state)


class PrioritisedBufferContract(BufferContract):
    """Rules of replays that draw by priority, on top of those of all.

    Attributes:
        alpha: how much priorities count in what ``make`` returns.
        epsilon: what is added to errors.
        beta: of the weights.
    """

    alpha: ClassVar[float] = 0.6
    epsilon: ClassVar[float] = 1e-6
    beta: ClassVar[float] = 0.4

    def test_draws_are_in_proportion_to_priorities(self) -> None:
        """Transition i is drawn with odds of its priority to the power alpha, and weighed by what makes up for it."""
        for capacity in (40, 25):
            check_replay(
                lambda errors, room=capacity: self._fill(errors, room),  # type: ignore[misc]
                alpha=self.alpha,
                beta=self.beta,
                epsilon=self.epsilon,
                capacity=capacity,
                num_draws=10_000,
            )

    def _fill(self, errors: F64, capacity: int) -> Draw:
        replay = self._of_capacity(capacity)
        for number in range(len(errors)):
            add(replay, np.array([number]))
        rng = generator(0, "contract")
        sample = replay.sample(4_000, rng)
        replay.update_priorities(sample, errors[sample.numbers])

        def draw(count: int) -> tuple[Any, Any]:
            found = replay.sample(count, rng, self.beta)
            return found.numbers.copy(), None if found.weights is None else found.weights.copy()

        return draw

    def _of_capacity(self, capacity: int) -> PrioritisedReplay:
        replay: Any = self.make(capacity, SIZE, Discrete(n=NUM_CHOICES))
        return replay  # type: ignore[no-any-return]

    def test_priorities_of_what_is_gone_are_dropped(self) -> None:
        """A priority for a transition that was overwritten since it was drawn does not go to what took its place."""
        replay = self._of_capacity(CAPACITY)
        add(replay, np.arange(CAPACITY))
        sample = replay.sample(200, generator(0, "contract"))
        late = sample._replace(numbers=sample.numbers.copy())
        for number in range(CAPACITY, 2 * CAPACITY):
            add(replay, np.array([number]))
        replay.update_priorities(late, np.where(late.numbers == late.numbers[0], 1e6, 0.0))
        numbers = replay.sample(400, generator(1, "contract")).numbers
        counts = np.bincount(numbers - CAPACITY, minlength=CAPACITY)
        why = "what nobody learned yet would be drawn as if much were to learn of it"
        expect(counts.max() < 60, "late priorities are dropped", f"one was drawn {counts.max()} times of 400", why)

    def test_priorities_that_are_no_numbers_are_refused(self) -> None:
        """An error of NaN or infinity is refused, and changes nothing."""
        replay = self._of_capacity(CAPACITY)
        add(replay, np.arange(CAPACITY))
        for bad in (np.nan, np.inf):
            sample = replay.sample(4, generator(0, "contract"))
            why = "one NaN makes all draws of the tree meaningless"
            errors = np.full(4, bad)
            refuses(UsageError, f"an error of {bad} is refused", why, replay.update_priorities, sample, errors)
        numbers = set(replay.sample(600, generator(1, "contract")).numbers.tolist())
        same(len(numbers), CAPACITY, "what is refused changes nothing", "all must be drawn as before")

    def test_priorities_are_restored(self) -> None:
        """Restored, it draws by the same priorities."""
        first = self._of_capacity(CAPACITY)
        add(first, np.arange(CAPACITY))
        sample = first.sample(300, generator(0, "contract"))
        first.update_priorities(sample, (sample.numbers % 5).astype(np.float64))
        second = self._of_capacity(CAPACITY)
        second.restore(first.state())
        found, wanted = (each.sample(300, generator(2, "contract")).numbers.copy() for each in (second, first))
        same(found, wanted, "priorities are restored", "a training that was stopped would draw others")


# Transitions that are known by their number ------------------------------------------------------------------------


def terminated(numbers: I64) -> Bools:
    """Returns which transitions end in the task."""
    found: Bools = numbers % END_EVERY == END_EVERY - 1
    return found


def truncated(numbers: I64) -> Bools:
    """Returns which transitions are cut."""
    found: Bools = (numbers % CUT_EVERY == CUT_EVERY - 1) & ~terminated(numbers)
    return found


def following(numbers: I64) -> I64:
    """Returns what a transition leads to, as the number that is shown: the next one's, another one at a cut."""
    cut = np.where(truncated(numbers), numbers + 500, numbers + 1)
    return np.where(terminated(numbers), numbers, cut)


def shown(numbers: I64) -> F32:
    """Returns observations that show their number, shape ``(batch, SIZE)``."""
    return np.stack([numbers, numbers / 2, -numbers], axis=1).astype(np.float32)


def mask_of(numbers: I64) -> Bools:
    """Returns what an observation allows, shape ``(batch, NUM_CHOICES)``."""
    return np.stack([numbers % 3 != 0, np.ones(len(numbers), dtype=np.bool_)], axis=1)


def add(replay: ReplayBuffer, numbers: I64, *, masked: bool = False) -> None:
    """Adds the transitions ``numbers``, which follow each other."""
    for run in _runs(numbers):
        chain = np.append(run, following(run[-1:]))
        first = replay.see(shown(chain), mask_of(chain) if masked else None)
        at = first + np.arange(len(run))
        replay.add(
            Entries(
                first=at,
                actions=run % NUM_CHOICES,
                rewards=run / 4,
                following=np.where(terminated(run), at, at + 1),
                discounts=GAMMA,
                terminated=terminated(run),
                truncated=truncated(run),
            )
        )


def _runs(numbers: I64) -> list[I64]:
    """Returns ``numbers`` in parts that end where an episode does."""
    ends = np.flatnonzero(terminated(numbers) | truncated(numbers))
    return [part for part in np.split(numbers, ends + 1) if len(part)]


def fault_of(sample: ReplaySample, keeps_halves: bool) -> str | None:
    """Returns what is wrong with a sample; None: nothing."""
    numbers = sample.numbers
    wanted: dict[str, NDArray[Any]] = {
        "observations": shown(numbers),
        "next_observations": shown(following(numbers)),
        "actions": numbers % NUM_CHOICES,
        "rewards": (numbers / 4).astype(np.float32),
    }
    if keeps_halves:
        for name in ("observations", "next_observations"):
            wanted[name] = wanted[name].astype(np.float16).astype(np.float32)
    for name, value in wanted.items():
        found: Any = getattr(sample, name)
        if not np.array_equal(found, value):
            row = int(np.argmax((found != value).reshape(len(numbers), -1).any(axis=1)))
            return f"{name} of transition {numbers[row]} is {found[row]}, wanted {value[row]}"
    return None
