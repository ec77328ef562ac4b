"""Each rule of the contracts can fail: for each there is an implementation that is broken in just that.

A table names what is broken on purpose, and all rules that it must break: that rule, and those that cannot hold without
it. What is not broken on purpose keeps all rules (``test_contracts.py``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from learnloop.algorithms.offline.iql import IQL, IQLConfig
from learnloop.algorithms.on_policy.a2c import A2C, A2CConfig
from learnloop.algorithms.policies.network_policy import NetworkPolicy
from learnloop.algorithms.replay.prioritised import PrioritisedReplay, ReplayBuffer
from learnloop.core.errors import CorruptError, UsageError
from learnloop.core.seeding import generator
from learnloop.core.spaces import Discrete
from learnloop.nn.mlp.network import MLP, Head, MLPConfig
from learnloop.system.state_file import State
from learnloop.testing.contracts import (
    AlgorithmContract,
    BufferContract,
    Contract,
    NetworkContract,
    OfflineAlgorithmContract,
    PrioritisedBufferContract,
    check_contract,
    rules_of,
)
from tests.testing import our_encoders

F = np.float32


def broken(contract: type[Contract]) -> set[str]:
    """Returns the rules that it breaks, without their prefix."""
    return {rule.removeprefix("test_") for rule in check_contract(contract).broken}


def rules(contract: type[Contract]) -> set[str]:
    return {rule.removeprefix("test_") for rule in rules_of(contract)}


# Algorithms that act -----------------------------------------------------------------------------------------------

SPACE = Discrete(n=3, start=2)


class Untagged(A2C):
    tag = ""


class ShortActions(A2C):
    def choose(self, observations: Any, masks: Any = None) -> Any:
        return super().choose(observations, masks).astype(np.int32)


class Unmasked(A2C):
    def choose(self, observations: Any, masks: Any = None) -> Any:
        return super().choose(observations)


class WithoutStart(A2C):
    def act(self, observation: Any, **named: Any) -> Any:
        return super().act(observation, **named) - SPACE.start


class OldPolicy(A2C):
    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.first = super().policy()

    def policy(self) -> NetworkPolicy:
        return self.first


class OneSeed(A2C):
    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **{**named, "seed": 0})


class NoSeed(A2C):
    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._rng = np.random.default_rng()


class PositiveRewards(A2C):
    def record(self, step: Any) -> None:
        super().record(step._replace(rewards=np.abs(step.rewards)))


class CutsAreEnds(A2C):
    def record(self, step: Any) -> None:
        super().record(step._replace(terminated=step.terminated | step.truncated))


class NeverShuffled(A2C):
    def _learn_batch(self, batch: Any) -> None:
        self.shuffled = False
        super()._learn_batch(batch)


class NoFigure(A2C):
    def learn(self) -> bool:
        did = super().learn()
        if did:
            self.metrics.set("train/figure", float("nan"))
        return did


class AnyProgress(A2C):
    def set_progress(self, progress: float) -> None:
        super().set_progress(0.0 if progress != progress else progress)


class LivePolicy(A2C):
    given: NetworkPolicy | None = None

    def policy(self) -> NetworkPolicy:
        self.given = super().policy()
        return self.given

    def learn(self) -> bool:
        did = super().learn()
        if did and self.given is not None:
            newest: Any = super().policy()
            np.copyto(self.given._network.parameters, newest._network.parameters)  # type: ignore[union-attr]
        return did


class ReadWrong(NetworkPolicy):
    @classmethod
    def from_artifact(cls, artifact: Any) -> NetworkPolicy:
        tensors = {**artifact.tensors, "parameters": -artifact.tensors["parameters"]}
        return NetworkPolicy.from_artifact(artifact._replace(tensors=tensors))


class ServedWrong(A2C):
    def policy(self) -> NetworkPolicy:
        policy = super().policy()
        policy.__class__ = ReadWrong
        return policy


class TakesAnyState(A2C):
    def restore(self, state: State) -> None:
        with contextlib.suppress(CorruptError):
            super().restore(state)


class CountsResets(A2C):
    def record(self, step: Any) -> None:
        super().record(step)
        if step.valid is not None:
            self.num_steps += int(np.count_nonzero(~step.valid))


class SaysTrue(A2C):
    def learn(self) -> bool:
        super().learn()
        return True


class LearnsAlways(A2C):
    def record(self, step: Any) -> None:
        super().record(step)
        self.network.parameters[0] += F(1e-3)


class LearnsResets(A2C):
    def record(self, step: Any) -> None:
        super().record(step._replace(valid=None))
        if step.valid is not None:
            self.num_steps -= int(np.count_nonzero(~step.valid))


class InterruptForgets(A2C):
    def interrupt(self) -> None:
        super().interrupt()
        self.num_steps = 0


class PatchesRewards(A2C):
    def record(self, step: Any) -> None:
        super().record(step._replace(rewards=np.nan_to_num(step.rewards, posinf=0.0)))


class PatchesObservations(A2C):
    def choose(self, observations: Any, masks: Any = None) -> Any:
        return super().choose(np.nan_to_num(observations), masks)

    def record(self, step: Any) -> None:
        final = np.nan_to_num(step.final_observations)
        super().record(step._replace(observations=np.nan_to_num(step.observations), final_observations=final))


class ForgetsMoments(A2C):
    def restore(self, state: State) -> None:
        super().restore(state)
        self.optimizer = self._build_optimizer()


class SharesState(A2C):
    def state(self) -> State:
        state = super().state()
        return state._replace(tensors={**state.tensors, "parameters": self.network.parameters})


class ForgetsLiveSteps(A2C):
    def _record_live(self, episode: str, step: Any) -> None:
        super()._record_live(episode, step)
        self.num_steps -= 1


class TakesAnyReward(A2C):
    def observe(self, *given: Any, **named: Any) -> None:
        with contextlib.suppress(UsageError):
            super().observe(*given, **named)


class Mixes(A2C):
    previous: Any = None

    def _take_live(self, episode: str, step: Any) -> None:
        if step.next_observation is not None and self.previous is not None:
            step = step._replace(next_observation=self.previous)
        self.previous = step.observation
        super()._take_live(episode, step)


class KeepsDiscarded(A2C):
    def _discard_live(self, episode: str) -> None:
        pass


ACTING: Mapping[type[A2C], set[str]] = {
    Untagged: {"it_says_what_it_is"},
    ShortActions: {"actions_fit_the_space"},
    Unmasked: {"masks_are_kept"},
    WithoutStart: {"act_takes_and_gives_the_forms_of_the_spaces"},
    OldPolicy: {"learning_changes_parameters"},
    OneSeed: {"the_same_seed_learns_the_same"},
    NoSeed: {
        "the_same_seed_learns_the_same",
        "terminated_and_truncated_are_kept_apart",
        "steps_of_an_env_that_resets_itself_are_not_learned",
        "a_discarded_episode_is_not_learned",
    },
    PositiveRewards: {"rewards_are_learned_from"},
    CutsAreEnds: {"terminated_and_truncated_are_kept_apart"},
    NeverShuffled: {"a_shuffled_control_learns_something_else"},
    NoFigure: {"figures_are_finite_and_named"},
    AnyProgress: {"progress"},
    LivePolicy: {"its_policy_is_frozen"},
    ServedWrong: {"its_policy_is_served_as_it_was"},
    TakesAnyState: {"a_foreign_state_is_refused"},
    CountsResets: {"steps_are_counted"},
    SaysTrue: {"learn_says_whether_it_updated"},
    LearnsAlways: {
        "acting_and_recording_learn_nothing",
        "a_reward_that_is_no_number_is_not_learned",
    },
    LearnsResets: {"steps_of_an_env_that_resets_itself_are_not_learned"},
    InterruptForgets: {"interrupt"},
    PatchesRewards: {"a_reward_that_is_no_number_is_not_learned"},
    PatchesObservations: {"an_observation_that_is_no_number_is_not_learned"},
    ForgetsMoments: {"it_goes_on_from_a_state_bit_for_bit"},
    SharesState: {"it_goes_on_from_a_state_bit_for_bit"},
    ForgetsLiveSteps: {"live_steps_are_learned_from"},
    TakesAnyReward: {"live_calls_out_of_turn_are_refused"},
    Mixes: {"live_episodes_do_not_mix"},
    KeepsDiscarded: {"a_discarded_episode_is_not_learned"},
}


def acting(kind: type[A2C]) -> type[Contract]:
    class Mutant(AlgorithmContract):
        action_spaces = (SPACE,)
        steps_to_learn = 24

        def make(self, spaces: Any, *, num_envs: int, seed: int) -> Any:
            return kind(A2CConfig(n_steps=6, net_arch=(8,)), spaces, num_envs=num_envs, seed=seed)

    return Mutant


def test_an_algorithm_that_is_whole() -> None:
    assert broken(acting(A2C)) == set()


@pytest.mark.parametrize("kind", ACTING, ids=lambda kind: kind.__name__)
def test_algorithms(kind: type[A2C]) -> None:
    assert broken(acting(kind)) == ACTING[kind]


def test_each_rule_of_algorithms_has_a_mutant() -> None:
    assert set().union(*ACTING.values()) == rules(AlgorithmContract)


# Algorithms that learn from data -----------------------------------------------------------------------------------


class LearnsFalse(IQL):
    def learn(self) -> bool:
        return False


class TakesZero(IQL):
    def update(self, count: int = 1) -> None:
        if count > 0:
            super().update(count)


class DrawsAnew(IQL):
    def update(self, count: int = 1) -> None:
        self._rng = generator(self.num_updates, "anew")
        super().update(count)


class PatchesData(IQL):
    def load(self, dataset: Any) -> None:
        object.__setattr__(dataset, "rewards", np.nan_to_num(dataset.rewards))
        super().load(dataset)


class ActsWithTheSameDraws(IQL):
    def _act(self, observations: Any, masks: Any) -> Any:
        self._rng.random()
        return super()._act(observations, masks)


class ForgetsDraws(IQL):
    def restore(self, state: State) -> None:
        super().restore(state)
        self._rng = generator(0, "anew")


class ChangesData(IQL):
    def update(self, count: int = 1) -> None:
        kept = None if self._steps is None else self.fingerprint
        super().update(count)
        if self._steps is not None and kept is not None:
            self._steps.dataset.goals.append("")  # type: ignore[attr-defined]
            self._steps.dataset.rewards[0] += 1.0


OFFLINE: Mapping[type[IQL], set[str]] = {
    LearnsFalse: {"it_says_that_it_learns_from_data"},
    TakesZero: {"it_needs_data"},
    DrawsAnew: {"many_updates_are_one"},
    PatchesData: {"data_that_does_not_fit_is_refused"},
    ActsWithTheSameDraws: {"acting_changes_no_training"},
    ForgetsDraws: {"it_goes_on_from_a_state_bit_for_bit"},
    ChangesData: {"data_is_not_changed"},
}


def offline(kind: type[IQL]) -> type[Contract]:
    class Mutant(OfflineAlgorithmContract):
        def make(self, spaces: Any, *, num_envs: int, seed: int) -> Any:
            return kind(IQLConfig(net_arch=(8,), batch_size=16), spaces, num_envs=num_envs, seed=seed)

    return Mutant


@pytest.mark.parametrize("kind", OFFLINE, ids=lambda kind: kind.__name__)
def test_offline_algorithms(kind: type[IQL]) -> None:
    assert broken(offline(kind)) == OFFLINE[kind]


def test_each_rule_of_offline_algorithms_has_a_mutant() -> None:
    own = rules(OfflineAlgorithmContract) - rules(AlgorithmContract) | {"it_goes_on_from_a_state_bit_for_bit"}
    assert set().union(*OFFLINE.values()) == own


# Networks ----------------------------------------------------------------------------------------------------------


class DoubleGradients(MLP):
    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.right = self.gradients
        self.gradients = self.right.astype(np.float64)

    def backward(self, output_gradient: Any, **named: Any) -> Any:
        found = super().backward(output_gradient, **named)
        self.gradients = self.right.astype(np.float64)
        return found


class LacksALayer(MLP):
    def layers(self) -> Any:
        return dict(list(super().layers().items())[:-1])


class DoubleOutputs(MLP):
    def forward(self, inputs: Any, masks: Any = None) -> Any:
        return super().forward(inputs, masks).astype(np.float64)


class PredictsOtherwise(MLP):
    def forward(self, inputs: Any, masks: Any = None) -> Any:
        return super().forward(inputs, masks) + F(0.01)


class NormalisesRows(MLP):
    """The mean over the rows is taken off: what BatchNorm does."""

    def forward(self, inputs: Any, masks: Any = None) -> Any:
        found = super().forward(inputs, masks)
        return found - found.mean(axis=0)

    def predict(self, inputs: Any, masks: Any = None) -> Any:
        found = super().predict(inputs, masks)
        return found - found.mean(axis=0)

    def backward(self, output_gradient: Any, **named: Any) -> Any:
        return super().backward(output_gradient - output_gradient.mean(axis=0), **named)


class SteepBias(MLP):
    def backward(self, output_gradient: Any, **named: Any) -> Any:
        found = super().backward(output_gradient, **named)
        if named.get("parameters", True):
            self.gradients[self.layers()["trunk.0.bias"]] *= F(1.3)
        return found


class SteepInputs(MLP):
    def backward(self, output_gradient: Any, **named: Any) -> Any:
        found = super().backward(output_gradient, **named)
        return None if found is None else found * F(1.3)


class AddsUp(MLP):
    def backward(self, output_gradient: Any, **named: Any) -> Any:
        before = self.gradients.copy() if self.is_second else np.zeros_like(self.gradients)
        found = super().backward(output_gradient, **named)
        if named.get("parameters", True):
            self.gradients += before
        self.is_second = True
        return found

    is_second = False

    def forward(self, inputs: Any, masks: Any = None) -> Any:
        self.is_second = False
        return super().forward(inputs, masks)


class PredictsForward(MLP):
    def predict(self, inputs: Any, masks: Any = None) -> Any:
        return super().forward(inputs, masks)


class Siamese(MLP):
    def copy(self) -> Any:
        return self


class CastsInputs(MLP):
    def forward(self, inputs: Any, masks: Any = None) -> Any:
        return super().forward(inputs.astype(F), masks)


class TakesMasks(MLP):
    def predict(self, inputs: Any, masks: Any = None) -> Any:
        return super().predict(inputs)


class TellsItsSeed(MLP):
    def to_config(self) -> Any:
        return {**super().to_config(), "seed": self.seed}


class Uphill(MLP):
    def backward(self, output_gradient: Any, **named: Any) -> Any:
        return super().backward(-output_gradient, **named)


NETWORKS: Mapping[type[MLP], set[str]] = {
    DoubleGradients: {"parameters_and_gradients_are_flat", "backward_replaces_gradients"},
    LacksALayer: {"layers_cover_the_parameters"},
    DoubleOutputs: {"outputs_have_their_shape"},
    PredictsOtherwise: {"predict_says_what_forward_says", "what_is_written_counts"},
    NormalisesRows: {"rows_do_not_depend_on_each_other"},
    SteepBias: {"gradients_are_slopes"},
    SteepInputs: {"gradients_of_inputs_are_slopes"},
    AddsUp: {"backward_replaces_gradients"},
    PredictsForward: {"predict_leaves_a_pending_backward_alone"},
    Siamese: {"a_copy_is_apart"},
    CastsInputs: {"what_does_not_fit_is_refused"},
    TakesMasks: {"dropout_is_consistent"},
    TellsItsSeed: {"its_config_is_json"},
    Uphill: {"gradients_are_slopes", "gradients_of_inputs_are_slopes", "the_gradient_leads_down"},
}
HEADS = (Head(name="policy", size=3), Head(name="value", size=1))


def network(kind: type[MLP], seed_of: Any = lambda seed: seed) -> type[Contract]:
    class Mutant(NetworkContract):
        def make(self, seed: int) -> Any:
            made = kind(MLPConfig(input_size=5, hidden=(8,), heads=HEADS), seed_of(seed))
            rng = np.random.default_rng(seed_of(seed))
            made.parameters[:] += rng.normal(0, 0.1, made.parameters.size).astype(F)
            return made

    return Mutant


@pytest.mark.parametrize("kind", NETWORKS, ids=lambda kind: kind.__name__)
def test_networks(kind: type[MLP]) -> None:
    assert broken(network(kind)) == NETWORKS[kind]


def test_networks_without_seeds() -> None:
    seeds = iter(range(1_000))
    assert broken(network(MLP, lambda seed: next(seeds))) == {"the_same_seed_starts_the_same"}
    assert broken(network(MLP, lambda seed: 0)) == {"what_is_written_counts"}


def test_each_rule_of_networks_has_a_mutant() -> None:
    assert set().union(*NETWORKS.values(), {"the_same_seed_starts_the_same"}) == rules(NetworkContract)


# Buffers -----------------------------------------------------------------------------------------------------------


class NeverTheOldest(PrioritisedReplay):
    def sample(self, count: int, rng: Any, beta: float = 1.0) -> Any:
        found = super().sample(count, rng, beta)
        oldest = found.numbers == self.oldest
        return super()._gather(np.where(oldest, self.num_added - 1, found.numbers), found.weights)


class RollsRewards(PrioritisedReplay):
    def _gather(self, numbers: Any, weights: Any) -> Any:
        found = super()._gather(numbers, weights)
        return found._replace(rewards=found.rewards + F(1) * (numbers >= 20))


class CutsToo(PrioritisedReplay):
    def _gather(self, numbers: Any, weights: Any) -> Any:
        found = super()._gather(numbers, weights)
        return found._replace(truncated=found.truncated | found.terminated)


class ForgetsMasks(PrioritisedReplay):
    def see(self, observations: Any, masks: Any = None) -> int:
        return super().see(observations)


class DoubleRewards(PrioritisedReplay):
    def _gather(self, numbers: Any, weights: Any) -> Any:
        found = super()._gather(numbers, weights)
        return found._replace(rewards=found.rewards.astype(np.float64))


class OwnDraws(PrioritisedReplay):
    def sample(self, count: int, rng: Any, beta: float = 1.0) -> Any:
        return super().sample(count, generator(0, "own"), beta)


class DrawsOfNothing(PrioritisedReplay):
    def _check_filled(self) -> None:
        if not self.num_added:
            self._tree.set(np.arange(self.capacity), 1.0)


class SharesItsState(PrioritisedReplay):
    def state(self) -> Any:
        return {**super().state(), "rewards": self._columns["rewards"][: len(self)]}


class MakesUpWhatIsMissing(PrioritisedReplay):
    def restore(self, state: Any) -> None:
        super().restore({"truncated": np.zeros(len(state["first"]), dtype=np.bool_), **state})


class SquaresErrors(PrioritisedReplay):
    def update_priorities(self, sample: Any, errors: Any) -> None:
        super().update_priorities(sample, errors**2)


class TakesLatePriorities(PrioritisedReplay):
    def update_priorities(self, sample: Any, errors: Any) -> None:
        newest = self.num_added - 1
        moved = newest - (newest - sample.numbers) % self.capacity
        super().update_priorities(sample._replace(numbers=moved), errors)


class PatchesErrors(PrioritisedReplay):
    def update_priorities(self, sample: Any, errors: Any) -> None:
        super().update_priorities(sample, np.nan_to_num(errors, posinf=1.0))


class ForgetsPriorities(PrioritisedReplay):
    def restore(self, state: Any) -> None:
        super().restore(state)
        self._tree.set(np.arange(self.oldest, self.num_added) % self.capacity, 1.0)


BUFFERS: Mapping[type[PrioritisedReplay], set[str]] = {
    NeverTheOldest: {
        "it_holds_the_newest",
        "draws_are_in_proportion_to_priorities",
        "priorities_that_are_no_numbers_are_refused",
    },
    RollsRewards: {"transitions_come_back_as_they_were"},
    CutsToo: {"ends_are_kept_apart"},
    ForgetsMasks: {"masks_come_back"},
    DoubleRewards: {"samples_have_their_types"},
    OwnDraws: {"the_same_numbers_draw_the_same", "draws_are_in_proportion_to_priorities"},
    DrawsOfNothing: {"an_empty_one_is_refused"},
    SharesItsState: {"it_goes_on_from_a_state"},
    MakesUpWhatIsMissing: {"a_damaged_state_is_refused"},
    SquaresErrors: {"draws_are_in_proportion_to_priorities"},
    TakesLatePriorities: {"priorities_of_what_is_gone_are_dropped"},
    PatchesErrors: {"priorities_that_are_no_numbers_are_refused"},
    ForgetsPriorities: {"priorities_are_restored"},
}


def buffer(kind: type[PrioritisedReplay]) -> type[Contract]:
    class Mutant(PrioritisedBufferContract):
        def make(self, capacity: int, observation_size: int, action_space: Any) -> ReplayBuffer:
            return kind(capacity, observation_size, action_space, share_observations=False)

    return Mutant


@pytest.mark.parametrize("kind", BUFFERS, ids=lambda kind: kind.__name__)
def test_buffers(kind: type[PrioritisedReplay]) -> None:
    assert broken(buffer(kind)) == BUFFERS[kind]


def test_each_rule_of_buffers_has_a_mutant() -> None:
    assert set().union(*BUFFERS.values()) == rules(PrioritisedBufferContract) >= rules(BufferContract)


# Encoders ----------------------------------------------------------------------------------------------------------

ENCODERS: Mapping[type[Contract], set[str]] = {
    our_encoders.WordContract: set(),
    our_encoders.AnotherSize: {"vectors_have_one_size"},
    our_encoders.Counts: {
        "the_same_value_is_the_same_vector",
        "what_does_not_fit_is_refused",
    },
    our_encoders.OneBuffer: {"vectors_are_apart"},
    our_encoders.Constant: {"other_values_are_other_vectors"},
    our_encoders.TakesTheWord: {
        "it_leaves_values_alone",
        "the_same_value_is_the_same_vector",
        "what_does_not_fit_is_refused",
        "a_stored_encoder_says_the_same",
    },
    our_encoders.MissingIsEmpty: {"what_does_not_fit_is_refused"},
    our_encoders.Hashes: {"another_process_says_the_same"},
    our_encoders.StoredOtherwise: {"a_stored_encoder_says_the_same"},
}


@pytest.mark.parametrize("contract", ENCODERS, ids=lambda contract: contract.__name__)
def test_encoders(contract: type[Contract]) -> None:
    assert broken(contract) == ENCODERS[contract]


def test_each_rule_of_encoders_has_a_mutant() -> None:
    assert set().union(*ENCODERS.values()) == rules(our_encoders.WordContract)
