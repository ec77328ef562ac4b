"""The rules that an algorithm keeps whether it learns by acting or from logs."""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, cast

import numpy as np

from learnloop.algorithms.base.algorithm import Algorithm
from learnloop.core.arrays import F32
from learnloop.core.errors import LearnloopError, UsageError
from learnloop.core.seeding import generator
from learnloop.core.spaces import ActionSpace, Box, Discrete, Spaces, num_choices
from learnloop.registry.artifacts import encode_artifact
from learnloop.system.state_file import State
from learnloop.testing.contracts.contract import Contract, expect, fail, needs, refuses, same
from learnloop.testing.contracts.step_stream import (
    Difference,
    actions_fault,
    expect_action,
    num_forbidden,
    random_masks,
    spaces_for,
)

NUM_SHOWN = 8
"""So many observations are shown to a policy to tell it from another."""
MASK_ROUNDS = 40
"""So many times are all envs asked for actions under masks."""


class LearnerContract(Contract):
    """Rules of all algorithms. Subclass ``AlgorithmContract`` or ``OfflineAlgorithmContract``.

    Attributes:
        action_spaces: the algorithm is checked in each.
        observation_size: numbers of an observation.
        num_envs: how many environments it serves.
        learns: whether it learns at all; the random policy does not.
        uses_rewards: whether what it learns depends on rewards; behaviour cloning does not.
        bootstraps: whether what comes after a cut is worth something to it.
        takes_masks: whether it keeps to action masks.
        can_store: whether its policy can be stored; one over a torch module of one's own cannot.
    """

    action_spaces: ClassVar[Sequence[ActionSpace]] = (Discrete(n=3),)
    observation_size: ClassVar[int] = 3
    num_envs: ClassVar[int] = 4
    learns: ClassVar[bool] = True
    uses_rewards: ClassVar[bool] = True
    bootstraps: ClassVar[bool] = True
    takes_masks: ClassVar[bool] = True
    can_store: ClassVar[bool] = True

    @abstractmethod
    def make(self, spaces: Spaces, *, num_envs: int, seed: int) -> Algorithm:
        """Returns a fresh algorithm that learns often: from few steps, with a small network."""

    @abstractmethod
    def teach(self, algorithm: Algorithm, *, difference: Difference = "", masked: bool = False, seed: int = 0) -> None:
        """Lets ``algorithm`` learn: at least two updates."""

    def learned(self, spaces: Spaces, *, shuffled: bool = False, **options: Any) -> Algorithm:
        """Returns an algorithm that was taught; ``options`` are those of ``teach``."""
        algorithm = self.make(spaces, num_envs=self.num_envs, seed=1)
        algorithm.shuffled = shuffled
        self.teach(algorithm, **options)
        return algorithm

    def each_spaces(self) -> Iterator[Spaces]:
        """Yields the spaces that it is checked in."""
        for action in self.action_spaces:
            yield spaces_for(action, self.observation_size)

    def each_fresh(self, *, num_envs: int | None = None, seed: int = 0) -> Iterator[tuple[Spaces, Algorithm]]:
        """Yields a fresh algorithm in each space."""
        for spaces in self.each_spaces():
            yield spaces, self.make(spaces, num_envs=self.num_envs if num_envs is None else num_envs, seed=seed)

    def noise(self, num: int, *names: str) -> F32:
        """Returns observations, shape ``(num, observation_size)``."""
        rng = generator(0, "contract", "shown", *names)
        return rng.standard_normal((num, self.observation_size)).astype(np.float32)

    # What it is and does -----------------------------------------------------------------------------------------

    def test_it_says_what_it_is(self) -> None:
        """It is an Algorithm with a tag, and serves the spaces and envs that it was made for."""
        for spaces in self.each_spaces():
            algorithm: object = self.make(spaces, num_envs=3, seed=0)
            promise, why = "make returns an Algorithm", "training, checkpoints and the registry drive one as such"
            if not isinstance(algorithm, Algorithm):
                fail(promise, f"a {type(algorithm).__name__}", why)
            tag: object = algorithm.tag
            expect(isinstance(tag, str) and tag, "tag names the algorithm", repr(tag), "stored policies carry it")
            same(algorithm.spaces, spaces, "spaces are those that it was made for", "policies are stored with them")
            same(algorithm.num_envs, 3, "num_envs is what was asked for", "collection hands it a row for each env")

    def test_actions_fit_the_space(self) -> None:
        """``choose`` returns an action for each env, of the space's form and type; what it is given stays as it is."""
        for spaces in self.each_spaces():
            for algorithm in (self.make(spaces, num_envs=self.num_envs, seed=0), self.learned(spaces)):
                self._look_at_actions(algorithm, spaces)

    def _look_at_actions(self, algorithm: Algorithm, spaces: Spaces) -> None:
        algorithm.interrupt()
        shown = self.noise(self.num_envs)
        given = shown.copy()
        fault = actions_fault(spaces.action, algorithm.choose(shown), self.num_envs)
        expect(fault is None, f"choose returns actions of {spaces.action}", fault, "environments and replays take them")
        same(shown, given, "choose leaves the observations as they are", "the stream goes on with the same arrays")

    def test_masks_are_kept(self) -> None:
        """No action that a mask forbids is ever chosen, before learning or after."""
        spaces = [each for each in self.each_spaces() if not isinstance(each.action, Box)]
        needs(self.takes_masks and spaces, "it takes no masks, or its actions have no choices to mask")
        for each in spaces:
            for algorithm in (self.make(each, num_envs=self.num_envs, seed=0), self.learned(each, masked=True)):
                self._look_at_masks(algorithm, each)

    def _look_at_masks(self, algorithm: Algorithm, spaces: Spaces) -> None:
        rng = generator(0, "contract", "masks")
        for round_ in range(MASK_ROUNDS):
            masks = random_masks(spaces.action, self.num_envs, rng)
            if masks is None:
                return
            algorithm.interrupt()
            actions = algorithm.choose(self.noise(self.num_envs, str(round_)), masks)
            num = num_forbidden(spaces.action, actions, masks)
            why = "a mask stands for what cannot or must not be done"
            expect(num == 0, "a masked action is never chosen", f"{num} of {self.num_envs} were", why)

    def test_act_takes_and_gives_the_forms_of_the_spaces(self) -> None:
        """``act`` returns one action in the form of the space, under a mask too, and refuses what does not fit."""
        for spaces in self.each_spaces():
            algorithm = self.learned(spaces)
            action = algorithm.act(self.noise(1)[0].tolist(), episode="live")
            space = spaces.action
            expect_action(space, action)
            algorithm.discard("live")
            wrong = [float("nan")] * self.observation_size
            why = "numbers that mean nothing would be learned from"
            refuses(UsageError, "act refuses NaN", why, algorithm.act, wrong)
            why = "it would be seen as another one"
            longer = [0.0] * (self.observation_size + 1)
            refuses(UsageError, "act refuses an observation of another size", why, algorithm.act, longer)
            self._look_at_live_masks(algorithm, space)

    def _look_at_live_masks(self, algorithm: Algorithm, space: ActionSpace) -> None:
        if not self.takes_masks or not isinstance(space, Discrete):
            return
        for allowed in range(space.n):
            mask = [choice == allowed for choice in range(space.n)]
            action = algorithm.act(self.noise(1)[0], episode="masked", mask=mask)
            algorithm.discard("masked")
            why = "a mask stands for what cannot or must not be done"
            same(action, allowed + space.start, "act keeps to the mask", why)
        why, nothing = "whatever was chosen would be forbidden", [False] * num_choices(space)
        refuses(UsageError, "a mask that allows nothing is refused", why, algorithm.act, self.noise(1)[0], mask=nothing)

    # Learning ----------------------------------------------------------------------------------------------------

    def test_learning_changes_parameters(self) -> None:
        """What is learned shows in parameter_hash, in num_updates and in the policy."""
        needs(self.learns, "it does not learn")
        for spaces in self.each_spaces():
            fresh, learned = self.make(spaces, num_envs=self.num_envs, seed=1), self.learned(spaces)
            why = "a training that changes nothing has learned nothing, and a checkpoint would not differ"
            is_other = fresh.parameter_hash() != learned.parameter_hash()
            expect(is_other, "learning changes parameter_hash", "the hash of a fresh one", why)
            count = learned.num_updates
            expect(count >= 2, "num_updates counts gradient steps", f"{count} after teaching", "schedules count them")
            if self.can_store:
                is_other = stored(fresh) != stored(learned)
                expect(is_other, "policy returns what was learned", "the policy of a fresh algorithm", why)

    def test_the_same_seed_learns_the_same(self) -> None:
        """The same seed and steps give the same parameters to the bit; another seed gives others."""
        for spaces in self.each_spaces():
            first, second = self.learned(spaces), self.learned(spaces)
            why = (
                "a result that cannot be had again cannot be checked; use core.seeding.generator, never global numbers"
            )
            same(first.parameter_hash(), second.parameter_hash(), "the same seed learns the same", why)
            if self.learns:
                other = self.make(spaces, num_envs=self.num_envs, seed=2)
                self.teach(other)
                is_other = other.parameter_hash() != first.parameter_hash()
                expect(is_other, "another seed learns otherwise", "the same parameters", "seeds would be one sample")

    def test_rewards_are_learned_from(self) -> None:
        """Other rewards give other parameters."""
        needs(self.learns and self.uses_rewards, "it learns nothing from rewards")
        why = "what does not depend on rewards cannot learn what they ask for"
        self._differ("", "rewards", "rewards are learned from", why)

    def test_terminated_and_truncated_are_kept_apart(self) -> None:
        """An end in the task is worth nothing, a cut is worth its last observation; where both, the end counts."""
        needs(self.learns and self.uses_rewards and self.bootstraps, "what comes later is worth nothing to it")
        why = "a time limit taken for an end teaches that living long is worthless"
        self._differ("terminated", "truncated", "a cut is not learned as an end", why)
        self._agree("terminated", "both ends", "where both flags are set, terminated counts", why)
        self._differ("", "after a cut", "what a cut leads to is worth its value", why)
        why = "the value after an end is 0, whatever is shown there"
        self._agree("", "after an end", "what is shown after an end in the task is not looked at", why)

    def _differ(self, first: Difference, second: Difference, promise: str, why: str) -> None:
        for spaces in self.each_spaces():
            hashes = {self.learned(spaces, difference=each).parameter_hash() for each in (first, second)}
            expect(len(hashes) == 2, promise, f"the same parameters in {spaces.action}", why)

    def _agree(self, first: Difference, second: Difference, promise: str, why: str) -> None:
        for spaces in self.each_spaces():
            hashes = {self.learned(spaces, difference=each).parameter_hash() for each in (first, second)}
            expect(len(hashes) == 1, promise, f"other parameters in {spaces.action}", why)

    def test_a_shuffled_control_learns_something_else(self) -> None:
        """With ``shuffled`` it takes as many updates, and learns from something else. What it learns is not judged."""
        needs(self.learns, "it does not learn")
        for spaces in self.each_spaces():
            plain, control = self.learned(spaces), self.learned(spaces, shuffled=True)
            why = "a proof compares with a shuffled control that learns from something else; the same proves nothing"
            same(control.num_updates, plain.num_updates, "the shuffled control takes as many updates", why)
            is_other = control.parameter_hash() != plain.parameter_hash()
            expect(is_other, "what the shuffled control learns from is shuffled", "the same parameters as without", why)

    def test_figures_are_finite_and_named(self) -> None:
        """After an update, metrics holds figures by name, all of them finite; taken, they are gone."""
        needs(self.learns, "it does not learn")
        for spaces in self.each_spaces():
            algorithm = self.learned(spaces)
            figures = algorithm.metrics.take()
            why = "whoever watches a training sees these"
            expect(figures, "an update leaves figures", "none", why)
            wrong = {name: each for name, each in figures.items() if not name or not math.isfinite(each)}
            expect(not wrong, "figures are named and finite", wrong, why)
            same(algorithm.metrics.take(), {}, "figures that were taken are gone", "means would be over all time")

    def test_progress(self) -> None:
        """set_progress takes from 0 to 1 and refuses NaN."""
        for _, algorithm in self.each_fresh(seed=1):
            why = "schedules and exploration follow it"
            refuses(UsageError, "a progress of NaN is refused", why, algorithm.set_progress, math.nan)
            for progress in (0.0, 0.5, 1.0):
                algorithm.set_progress(progress)
                same(algorithm.progress, progress, "progress is what set_progress said", why)
            self.teach(algorithm)

    # Policies ----------------------------------------------------------------------------------------------------

    def test_its_policy_is_frozen(self) -> None:
        """What policy returned stays as it was while the algorithm learns on."""
        for spaces in self.each_spaces():
            algorithm = self.learned(spaces)
            policy = algorithm.policy()
            before = shown_by(policy, spaces, self.noise(NUM_SHOWN))
            kept = stored(algorithm, policy) if self.can_store else None
            self.teach(algorithm, seed=1)
            why = "a policy that is served must be the one that was proven"
            after = shown_by(policy, spaces, self.noise(NUM_SHOWN))
            same(before, after, "a policy does not change while its algorithm learns on", why)
            if self.can_store:
                promise = "the parameters of a policy do not change while its algorithm learns on"
                expect(kept == stored(algorithm, policy), promise, "other stored bytes", why)

    def test_its_policy_is_served_as_it_was(self) -> None:
        """Stored and read again, a policy says the same to the bit."""
        needs(self.can_store, "its policy cannot be stored")
        for spaces in self.each_spaces():
            algorithm = self.learned(spaces)
            policy = algorithm.policy()
            again: Any = type(policy).from_artifact(policy.to_artifact())
            why = "what is served would not be what was proven"
            said = [shown_by(each, spaces, self.noise(NUM_SHOWN)) for each in (policy, again)]
            same(said[0], said[1], "a stored policy says what it said", why)
            same(stored(algorithm, policy), stored(algorithm, again), "stored again, it is the same bytes", why)

    # States ------------------------------------------------------------------------------------------------------

    def look_at_state(self, algorithm: Algorithm, go_on: Callable[[], object]) -> State:
        """Returns a state that is a copy and can be stored; ``go_on`` lets the algorithm learn on after it."""
        state = algorithm.state()
        why = "a checkpoint holds what is trained later than it says, or cannot be written"
        wrong = [
            name for name, each in _tensors(state).items() if not isinstance(each, np.ndarray) or each.dtype == object
        ]
        expect(not wrong, "the tensors of a state are numpy arrays of numbers", f"others: {wrong}", why)
        before = {name: each.tobytes() for name, each in state.tensors.items()}
        values = json.dumps(state.values)
        go_on()
        after = {name: each.tobytes() for name, each in state.tensors.items()}
        changed = [name for name in before if before[name] != after[name]]
        promise = "a state is a copy: what is learned later does not change it"
        expect(not changed, promise, f"changed were {changed}", why)
        same(json.dumps(state.values), values, promise, why)
        return State(dict(state.tensors), json.loads(values))

    def test_a_foreign_state_is_refused(self) -> None:
        """A state of other envs, of another algorithm or of other parameters is refused, and changes no parameter."""
        for spaces in self.each_spaces():
            state = self.learned(spaces).state()
            other = self.make(spaces, num_envs=self.num_envs + 1, seed=3)
            before = other.parameter_hash()
            why = "a training would go on with something else, and nobody would know"
            refuses(LearnloopError, "a state of another number of envs is refused", why, other.restore, state)
            same(other.parameter_hash(), before, "a state that is refused changes no parameter", why)
            same_envs = self.make(spaces, num_envs=self.num_envs, seed=3)
            for values in ({}, {**state.values, "num_steps": "many"}):
                promise = "a state whose values are missing or wrong is refused"
                refuses(LearnloopError, promise, why, same_envs.restore, state._replace(values=values))


def _tensors(state: State) -> dict[str, Any]:
    return {**state.tensors}  # of whatever type they are


def stored(algorithm: Algorithm, policy: Any = None) -> tuple[bytes, bytes]:
    """Returns the files of a policy, that of ``algorithm`` as it is now where none is given."""
    chosen = algorithm.policy() if policy is None else policy
    return tuple(encode_artifact(chosen.to_artifact()))  # type: ignore[return-value]


def shown_by(policy: Any, spaces: Spaces, observations: F32) -> list[Any]:
    """Returns what a policy says of observations: probabilities of discrete actions, else actions, where not drawn."""
    if isinstance(spaces.action, Discrete):
        return [np.asarray(policy.probabilities(each)) for each in observations]
    first, second = ([np.asarray(policy.act(each)) for each in observations] for _ in range(2))
    is_drawn = not all(np.array_equal(one, two) for one, two in zip(first, second, strict=True))
    return [] if is_drawn else cast("list[Any]", first)
