"""What an algorithm that learns by acting promises, with environments and with live agents."""

from __future__ import annotations

import copy
import math
from typing import Any, ClassVar

import numpy as np

from learnloop.algorithms.base.algorithm import Algorithm
from learnloop.algorithms.live.episodes import LiveStep
from learnloop.core.arrays import F32
from learnloop.core.errors import LearnloopError, RewardError, UsageError
from learnloop.core.seeding import generator
from learnloop.core.spaces import Spaces
from learnloop.core.stepping import EnvStep
from learnloop.testing.contracts.contract import expect, fail, needs, refuses, same
from learnloop.testing.contracts.learner import LearnerContract
from learnloop.testing.contracts.step_stream import Difference, StepStream

TRAINING_SEED = 5
"""Of the training whose state is restored."""
LARGE = 1_000.0
"""A reward that changes what is learned, wherever it gets in."""


class AlgorithmContract(LearnerContract):
    """Rules of algorithms that learn by acting.

    ::

        class TestMine(AlgorithmContract):
            def make(self, spaces, *, num_envs, seed):
                return Mine(MineConfig(n_steps=16), spaces, num_envs=num_envs, seed=seed)

    Attributes:
        steps_to_learn: after so many steps of each env it has updated at least twice.
        keeps_transitions: whether a whole transition is kept when its episode is discarded, as in a replay; else what
            was not learned of it yet is forgotten.
        restored_seed: of the algorithm that a state is restored into. Another one than ``TRAINING_SEED``, unless what
            is drawn when it is built, such as masks of dropout, is no part of its state.
    """

    steps_to_learn: ClassVar[int] = 64
    keeps_transitions: ClassVar[bool] = False
    restored_seed: ClassVar[int] = TRAINING_SEED + 1

    def teach(self, algorithm: Algorithm, *, difference: Difference = "", masked: bool = False, seed: int = 0) -> None:
        """Lets ``algorithm`` act and learn for ``steps_to_learn`` of each env."""
        algorithm.interrupt()
        stream = StepStream(algorithm.spaces, algorithm.num_envs, seed, masked=masked, difference=difference)
        stream.drive(algorithm, self.steps_to_learn)

    # With environments -------------------------------------------------------------------------------------------

    def test_steps_are_counted(self) -> None:
        """num_steps counts the steps of all envs, and not those in which an env only reset itself."""
        for spaces, algorithm in self.each_fresh():
            StepStream(spaces, self.num_envs, 0).drive(algorithm, 10)
            why = "budgets, schedules and throughput are counted in steps"
            same(algorithm.num_steps, 10 * self.num_envs, "each env's step is counted", why)
            algorithm = self.make(spaces, num_envs=self.num_envs, seed=0)
            stream = StepStream(spaces, self.num_envs, 0, difference="invalid")
            stream.drive(algorithm, 30)
            has_ignored = stream.num_valid < 30 * self.num_envs
            expect(has_ignored, "the stream has steps to ignore", "none", "this rule would check nothing")
            same(algorithm.num_steps, stream.num_valid, "steps of an env that resets itself are not counted", why)

    def test_learn_says_whether_it_updated(self) -> None:
        """``learn`` returns False without change until enough is recorded, then updates and returns True."""
        needs(self.learns, "it does not learn")
        for spaces, algorithm in self.each_fresh():
            stream = StepStream(spaces, self.num_envs, 0)
            count = 0
            for _ in range(self.steps_to_learn):
                stream.drive(algorithm, 1, learning=False)
                before, updates = algorithm.parameter_hash(), algorithm.num_updates
                did: object = algorithm.learn()
                why = "figures and checkpoints are written where it says that it learned"
                expect(isinstance(did, bool), "learn returns True or False", repr(did), why)
                is_other = algorithm.parameter_hash() != before
                same(did, is_other, "learn returns whether parameters changed", why)
                same(did, algorithm.num_updates > updates, "learn returns whether num_updates grew", why)
                count += bool(did)
            promise = f"within {self.steps_to_learn} steps of each env it learns at least twice"
            expect(count >= 2, promise, f"{count} times", "make it learn more often, or raise steps_to_learn")

    def test_acting_and_recording_learn_nothing(self) -> None:
        """Only learn changes parameters."""
        for spaces, algorithm in self.each_fresh():
            before = algorithm.parameter_hash()
            StepStream(spaces, self.num_envs, 0).drive(algorithm, 1, learning=False)
            why = "a policy would change while its envs act"
            same(algorithm.parameter_hash(), before, "choose and record change no parameter", why)

    def test_steps_of_an_env_that_resets_itself_are_not_learned(self) -> None:
        """Where valid is False nothing is learned, whatever the reward."""
        needs(self.learns, "it does not learn")
        why = "vector environments pay nothing in the step in which they reset an env, and ignore the action"
        self._agree("invalid", "ignored reward", "what is not valid is not learned from", why)

    def test_interrupt(self) -> None:
        """After interrupt, at any time, new episodes begin in all envs."""
        for spaces, algorithm in self.each_fresh():
            for seed in range(4):
                algorithm.interrupt()
                StepStream(spaces, self.num_envs, seed).drive(algorithm, 5)
            why = "evaluations and resumptions start episodes again"
            same(algorithm.num_steps, 20 * self.num_envs, "steps go on being counted after interrupt", why)

    # Bad numbers -------------------------------------------------------------------------------------------------

    def test_a_reward_that_is_no_number_is_not_learned(self) -> None:
        """A reward of NaN or infinity ends in an error, with the parameters that were there before."""
        for spaces in self.each_spaces():
            for reward in (math.nan, math.inf):
                self._poison(spaces, lambda step, value=reward: _with_reward(step, value), f"a reward of {reward}")

    def test_an_observation_that_is_no_number_is_not_learned(self) -> None:
        """An observation of NaN ends in an error, with the parameters that were there before."""
        for spaces in self.each_spaces():
            self._poison(spaces, _with_nan, "an observation of NaN")

    def _poison(self, spaces: Spaces, change: Any, what: str) -> None:
        """Gives each step a bad number until the algorithm stops, and looks at its parameters."""
        needs(self.learns, "it does not learn")
        algorithm = self.make(spaces, num_envs=self.num_envs, seed=0)
        stream = StepStream(spaces, self.num_envs, 0)
        stream.drive(algorithm, self.steps_to_learn + 3)
        why = "one bad number would make all parameters bad, and the policy with them"
        for _ in range(4 * self.steps_to_learn):
            before, updates = algorithm.parameter_hash(), algorithm.num_updates
            try:
                with np.errstate(all="ignore"):  # what is promised is the error, not the warnings before it
                    self._one_poisoned_step(algorithm, stream, change)
            except LearnloopError:
                for name, network in algorithm.networks().items():
                    promise = f"{what} leaves finite parameters"
                    expect(np.isfinite(network.parameters).all(), promise, f"others in {name}", why)
                if algorithm.num_updates == updates:
                    promise = f"{what} is refused with the parameters before it"
                    same(algorithm.parameter_hash(), before, promise, why)
                return
        fail(f"{what} is refused, or learning from it raises DivergedError", "neither", why)

    def _one_poisoned_step(self, algorithm: Algorithm, stream: StepStream, change: Any) -> None:
        step = change(stream.step(algorithm.choose(stream.observations, stream.masks)))
        algorithm.record(step)
        stream.observations = step.observations
        algorithm.learn()

    # States ------------------------------------------------------------------------------------------------------

    def test_it_goes_on_from_a_state_bit_for_bit(self) -> None:
        """Restored at any point of a training, it acts and learns as the one that never stopped."""
        for spaces in self.each_spaces():
            for num_steps in (0, 1, self.steps_to_learn // 2 + 3):
                self._interrupted(spaces, num_steps, "")
            self._interrupted(spaces, self.steps_to_learn + 5, "invalid")

    def _interrupted(self, spaces: Spaces, num_steps: int, difference: Difference) -> None:
        first = self.make(spaces, num_envs=self.num_envs, seed=TRAINING_SEED)
        stream = StepStream(spaces, self.num_envs, TRAINING_SEED, difference=difference)
        stream.drive(first, num_steps)
        again = copy.deepcopy(stream)
        traces = []
        state = self.look_at_state(first, lambda: traces.append(stream.drive(first, self.steps_to_learn)))
        second = self.make(spaces, num_envs=self.num_envs, seed=self.restored_seed)
        second.restore(state)
        traces.append(again.drive(second, self.steps_to_learn))
        promise = f"restored after {num_steps} steps it goes on bit for bit"
        why = "a training that was stopped would not end where it would have"
        same(traces[0].actions, traces[1].actions, f"{promise}: the same actions", why)
        same(traces[0].updates, traces[1].updates, f"{promise}: it learns at the same steps", why)
        same(first.parameter_hash(), second.parameter_hash(), f"{promise}: the same parameters", why)
        counters = [(each.num_steps, each.num_updates, each.progress) for each in (first, second)]
        same(counters[0], counters[1], f"{promise}: the same counters", why)

    # Live agents -------------------------------------------------------------------------------------------------

    def test_live_steps_are_learned_from(self) -> None:
        """Episodes of live agents are counted and learned from like those of envs."""
        for _, algorithm in self.each_fresh(num_envs=1):
            before, count = algorithm.parameter_hash(), 0
            algorithm.set_progress(0.0)  # else schedules warn that nobody says it
            for number in range(4 * self.steps_to_learn):
                algorithm.act(self.noise(1, str(number))[0], episode="one")
                ends = number % 5 == 4
                algorithm.observe(float(number % 3), episode="one", terminated=ends)
                count += 1
                algorithm.learn()
            why = "a live agent would act for ever and learn nothing"
            same(algorithm.num_steps, count - (not ends), "whole live steps are counted", why)
            if self.learns:
                is_other = algorithm.parameter_hash() != before
                expect(is_other, "live steps are learned from", "the parameters of a fresh algorithm", why)

    def test_live_calls_out_of_turn_are_refused(self) -> None:
        """Each action waits for one reward, which is a finite number; a cut needs its last observation."""
        for _, algorithm in self.each_fresh(num_envs=1):
            shown = self.noise(1)[0]
            why = "a reward would go to another action"
            refuses(UsageError, "a reward needs an action", why, algorithm.observe, 1.0, episode="a")
            algorithm.act(shown, episode="a")
            refuses(UsageError, "an action waits for its reward", why, algorithm.act, shown, episode="a")
            for bad in (math.nan, math.inf, None, "1"):
                promise = f"the reward {bad!r} is refused"
                refuses(RewardError, promise, "missing is not zero", algorithm.observe, bad, episode="a")
            worth = "what would have come is worth the value of it"
            promise = "a cut needs its last observation"
            refuses(UsageError, promise, worth, algorithm.observe, 1.0, episode="a", truncated=True)
            algorithm.observe(1.0, episode="a")
            refuses(UsageError, "an action has one reward", why, algorithm.observe, 1.0, episode="a")

    def test_live_episodes_do_not_mix(self) -> None:
        """Each step of an episode that runs beside others has its own observation, action, reward and successor."""
        for _, algorithm in self.each_fresh(num_envs=1):
            seen: dict[str, list[LiveStep]] = {}
            record = algorithm._record_live
            spied: Any = algorithm
            spied._record_live = lambda name, step, keep=record, into=seen: (
                into.setdefault(name, []).append(step),
                keep(name, step),
            )
            told = _interleave(algorithm, self.observation_size)
            why = "what followed one agent's action would be learned as following another's"
            for name, steps in told.items():
                found = seen.get(name, [])
                same(len(found), len(steps), f"episode {name} has its steps", why)
                for step, (observation, reward, following) in zip(found, steps, strict=True):
                    same(step.observation, observation, "a step keeps its observation", why)
                    same(step.reward, reward, "a step keeps its reward", why)
                    if following is not None:
                        same(step.next_observation, following, "a step is followed by its own episode's next one", why)

    def test_a_discarded_episode_is_not_learned(self) -> None:
        """What was not learned of a discarded episode yet is forgotten, and nothing of the others."""
        needs(self.learns, "it does not learn")
        for spaces in self.each_spaces():
            small, large = (self._with_discarded(spaces, reward) for reward in (1.0, LARGE))
            why = "an episode whose outcome is unknown would be learned with a reward that is none"
            same(small.num_updates, large.num_updates, "a discarded episode learns nothing", why)
            expect(small.num_updates, "the other episodes are learned from", "no update", "agents would not learn")
            same(small.parameter_hash(), large.parameter_hash(), "a discarded episode learns nothing", why)

    def _with_discarded(self, spaces: Spaces, reward: float) -> Algorithm:
        """Lets one episode learn while another one beside it earns ``reward`` and is discarded."""
        algorithm = self.make(spaces, num_envs=1, seed=0)
        algorithm.set_progress(0.0)
        num_rounds = 1 if self.keeps_transitions else 2
        for number in range(4 * self.steps_to_learn):
            for episode, rounds, value in (("kept", 1, float(number % 2)), ("lost", num_rounds, reward)):
                for _ in range(rounds):
                    if number and episode == "lost":
                        break
                    algorithm.act(self.noise(1, episode, str(number))[0], episode=episode)
                    algorithm.observe(value, episode=episode, terminated=episode == "kept" and number % 4 == 3)
            if number == 0:
                algorithm.discard("lost")
                algorithm.act(self.noise(1, "lost")[0], episode="lost")
                algorithm.discard("lost")
            algorithm.learn()
        return algorithm


def _with_reward(step: EnvStep, reward: float) -> EnvStep:
    rewards = step.rewards.copy()
    rewards[0] = reward
    return step._replace(rewards=rewards)


def _with_nan(step: EnvStep) -> EnvStep:
    observations = step.observations.copy()
    observations[0, 0] = np.nan
    rewards = np.nan_to_num(step.rewards)  # of the stream, which has seen the last one
    return step._replace(observations=observations, final_observations=observations, rewards=rewards)


Told = tuple[F32, float, "F32 | None"]


def _interleave(algorithm: Algorithm, size: int) -> dict[str, list[Told]]:
    """Lets three episodes run side by side; returns what each was told: observation, reward, next observation."""
    rng = generator(0, "contract", "live")
    told: dict[str, list[Told]] = {name: [] for name in ("a", "b", "c")}
    shown: dict[str, F32] = {}
    for round_ in range(4):
        for name in told:
            shown[name], before = rng.standard_normal(size).astype(np.float32), shown.get(name)
            if before is not None:
                observation, reward, _ = told[name][-1]
                told[name][-1] = (observation, reward, shown[name])
            algorithm.act(shown[name], episode=name)
        for name in reversed(told):
            reward = float(rng.standard_normal())
            is_last = round_ == 3
            final = rng.standard_normal(size).astype(np.float32) if is_last and name == "b" else None
            algorithm.observe(
                reward,
                episode=name,
                next_observation=final,
                terminated=is_last and name != "b",
                truncated=is_last and name == "b",
            )
            told[name].append((shown[name], reward, final))
    return told
