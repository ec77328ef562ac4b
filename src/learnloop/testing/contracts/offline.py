"""What an algorithm that learns from logged data promises."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, cast

import numpy as np

from learnloop.algorithms.base.algorithm import Algorithm
from learnloop.algorithms.offline.learner import OfflineAlgorithm
from learnloop.core.datasets import Dataset
from learnloop.core.errors import LearnloopError, UsageError
from learnloop.core.spaces import Box, Discrete, Spaces
from learnloop.testing.contracts.contract import expect, refuses, same
from learnloop.testing.contracts.learner import LearnerContract
from learnloop.testing.contracts.step_stream import Difference, StepStream, random_dataset


class OfflineAlgorithmContract(LearnerContract):
    """Rules of algorithms that learn from a data set: ``is_offline`` is True, ``load`` takes it, ``update`` learns.

    Attributes:
        num_logged: steps of the data sets.
        num_updates: gradient steps of a teaching.
        compares: whether it needs a data set with several actions.
    """

    num_logged: ClassVar[int] = 120
    num_updates: ClassVar[int] = 12
    compares: ClassVar[bool] = True

    def teach(self, algorithm: Algorithm, *, difference: Difference = "", masked: bool = False, seed: int = 0) -> None:
        """Loads a data set, the same for all seeds, and takes ``num_updates`` gradient steps."""
        learner = cast(OfflineAlgorithm, algorithm)
        if learner.num_updates == 0:
            learner.load(self.dataset(learner.spaces, difference=difference, masked=masked))
        learner.update(self.num_updates)

    def dataset(self, spaces: Spaces, *, difference: Difference = "", masked: bool = False, seed: int = 0) -> Dataset:
        """Returns logged episodes of about ``num_logged`` steps."""
        return random_dataset(spaces, self.num_logged, seed, masked=masked, difference=difference)

    def fresh(self, spaces: Spaces, *, seed: int = 0) -> OfflineAlgorithm:
        """Returns one that has learned nothing."""
        return cast(OfflineAlgorithm, self.make(spaces, num_envs=self.num_envs, seed=seed))

    def test_it_says_that_it_learns_from_data(self) -> None:
        """is_offline is True, and nothing is learned by acting: record, observe and learn are refused."""
        for spaces in self.each_spaces():
            algorithm = self.fresh(spaces)
            why = "a trainer would wait for ever for it to learn from environments"
            same(algorithm.is_offline, True, "is_offline is True", why)
            stream = StepStream(spaces, self.num_envs, 0)
            step = stream.step(algorithm.choose(stream.observations))
            refuses(UsageError, "record is refused", why, algorithm.record, step)
            refuses(UsageError, "learn is refused", why, algorithm.learn)
            refuses(UsageError, "observe is refused", why, algorithm.observe, 1.0)

    def test_it_needs_data(self) -> None:
        """``update`` without a data set, and of less than one step, is refused; load counts the steps."""
        for spaces in self.each_spaces():
            algorithm = self.fresh(spaces)
            why = "nothing can be learned from nothing"
            refuses(UsageError, "update without load is refused", why, algorithm.update, 1)
            data = self.dataset(spaces)
            algorithm.load(data)
            same(algorithm.num_steps, data.num_steps, "num_steps counts those of the data set", "figures show them")
            for count in (0, -1):
                refuses(UsageError, f"update({count}) is refused", why, algorithm.update, count)

    def test_many_updates_are_one(self) -> None:
        """Many calls of update with few steps give what one call with as many gives."""
        for spaces in self.each_spaces():
            one, many = self.fresh(spaces), self.fresh(spaces)
            for algorithm in (one, many):
                algorithm.load(self.dataset(spaces))
            one.update(self.num_updates)
            for _ in range(self.num_updates):
                many.update(1)
            why = "how often progress is shown must not change what is learned"
            same(one.num_updates, many.num_updates, "updates are counted", why)
            same(one.parameter_hash(), many.parameter_hash(), "many calls give what one gives", why)

    def test_data_that_does_not_fit_is_refused(self) -> None:
        """Other spaces, numbers that are not finite and actions that were not allowed are refused; nothing changes."""
        for spaces in self.each_spaces():
            algorithm, data = self.fresh(spaces), self.dataset(spaces)
            why = "what was never done, or is no number, would be learned from"
            before = algorithm.parameter_hash()
            for what, bad in self._bad_data(data):
                refuses(UsageError, f"{what} is refused", why, algorithm.load, bad)
            same(algorithm.parameter_hash(), before, "data that is refused changes nothing", why)
            refuses(UsageError, "data that is refused is not learned from", why, algorithm.update, 1)

    def _bad_data(self, data: Dataset) -> list[tuple[str, Dataset]]:
        rewards, observations = data.rewards.copy(), data.observations.copy()
        rewards[1], observations[1, 0] = np.nan, np.inf
        space = data.spaces.action
        found = [
            ("a reward of NaN", dataclasses.replace(data, rewards=rewards)),
            ("an infinite observation", dataclasses.replace(data, observations=observations)),
        ]
        if isinstance(space, Discrete):
            actions = data.actions.copy()
            actions[1] = space.n
            found.append(("an action outside its space", dataclasses.replace(data, actions=actions)))
            masks = np.ones((data.num_steps, space.n), dtype=np.bool_)
            masks[1, data.actions[1]] = False
            found.append(("an action that its mask forbids", dataclasses.replace(data, masks=masks)))
        other = Spaces(observation=data.spaces.observation, action=Discrete(n=7))
        found.append(("a data set of another action space", dataclasses.replace(data, spaces=other)))
        if self.compares and not isinstance(space, Box):
            same_action = np.repeat(data.actions[:1], data.num_steps, axis=0)
            found.append(("a data set with one action only", dataclasses.replace(data, actions=same_action)))
        return found

    def test_acting_changes_no_training(self) -> None:
        """How often it acts between updates does not change what is learned."""
        for spaces in self.each_spaces():
            silent, busy = self.fresh(spaces), self.fresh(spaces)
            for algorithm in (silent, busy):
                algorithm.load(self.dataset(spaces))
                for _ in range(self.num_updates):
                    if algorithm is busy:
                        algorithm.choose(self.noise(self.num_envs))
                        algorithm.act(self.noise(1)[0])
                    algorithm.update(1)
            why = "an evaluation during a training would change it"
            same(silent.parameter_hash(), busy.parameter_hash(), "acting changes no training", why)

    def test_it_goes_on_from_a_state_bit_for_bit(self) -> None:
        """Restored with its data set loaded, it learns as the one that never stopped; other data is refused."""
        for spaces in self.each_spaces():
            for count in (0, 1, self.num_updates):
                first = self.fresh(spaces, seed=5)
                first.load(self.dataset(spaces))
                if count:
                    first.update(count)
                state = self.look_at_state(first, lambda a=first: a.update(self.num_updates))  # type: ignore[misc]
                second = self.fresh(spaces, seed=6)
                second.load(self.dataset(spaces))
                second.restore(state)
                second.update(self.num_updates)
                why = "a training that was stopped would not end where it would have"
                promise = f"restored after {count} updates it goes on bit for bit"
                same(first.parameter_hash(), second.parameter_hash(), promise, why)
                same(first.num_updates, second.num_updates, promise, why)
            other = self.fresh(spaces)
            other.load(self.dataset(spaces, seed=9))
            promise, why = "a state of another data set is refused", "lineage would name data that it never saw"
            refuses(LearnloopError, promise, why, other.restore, state)

    def test_data_is_not_changed(self) -> None:
        """What is loaded stays as it is."""
        for spaces in self.each_spaces():
            data = self.dataset(spaces, masked=self.takes_masks)
            before = data.fingerprint()
            algorithm = self.fresh(spaces)
            algorithm.load(data)
            algorithm.update(self.num_updates)
            promise, why = "a data set that is loaded stays as it is", "others learn from it too"
            expect(data.fingerprint() == before, promise, "another fingerprint", why)
