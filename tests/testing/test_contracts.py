"""All that is ours keeps its contracts; what is broken on purpose breaks exactly the rules that are meant for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
import torch

from learnloop.algorithms import BanditTrainer, build_config
from learnloop.algorithms.base.algorithm import Algorithm
from learnloop.algorithms.building import ALGORITHMS, build_algorithm, configure
from learnloop.algorithms.policies.network_policy import NetworkPolicy
from learnloop.algorithms.replay.prioritised import PrioritisedReplay, ReplayBuffer
from learnloop.core.extensions import POINTS
from learnloop.core.protocols import Sample
from learnloop.core.spaces import ActionSpace, Box, Discrete, MultiDiscrete, Spaces
from learnloop.envs.registry import REGISTERED, make_env, resolve_env
from learnloop.nn.mlp.network import MLP, Head, MLPConfig
from learnloop.nn.network import Network
from learnloop.nn.network_builders import build_network
from learnloop.nn.torch.mlp import on_device
from learnloop.nn.torch.network import TorchNetwork
from learnloop.testing.contracts import (
    AlgorithmContract,
    BufferContract,
    EnvironmentContract,
    NetworkContract,
    OfflineAlgorithmContract,
    PolicyContract,
    PrioritisedBufferContract,
    SpacePolicyContract,
)
from learnloop.testing.contracts.algorithm import TRAINING_SEED
from tests.testing.our_encoders import TestContextEncoder, TestObservationEncoder

DISCRETE = Discrete(n=3, start=2)
SEVERAL = MultiDiscrete(nvec=(2, 3))
CONTINUOUS = Box(shape=(2,), low=(-1.0, -2.0), high=(1.0, 2.0))
UNBOUNDED = Box(shape=(2,), low=(None, None), high=(None, None))

# Algorithms that act -----------------------------------------------------------------------------------------------


class Ours(AlgorithmContract):
    name: ClassVar[str]
    options: ClassVar[dict[str, Any]]
    form: ClassVar[dict[str, Any]] = {}

    def make(self, spaces: Spaces, *, num_envs: int, seed: int) -> Algorithm:
        config = configure(self.name, {**self.options, **self.form})
        return build_algorithm(config, spaces, num_envs=num_envs, seed=seed)


class TestPPO(Ours):
    action_spaces: ClassVar[Sequence[ActionSpace]] = (DISCRETE, SEVERAL, CONTINUOUS, UNBOUNDED)
    name, options = "ppo", {"n_steps": 16, "batch_size": 16, "n_epochs": 2, "net_arch": (16,)}


class TestScaledPPO(TestPPO):
    keeps_transitions = True  # the scale of the rewards has seen them
    action_spaces: ClassVar[Sequence[ActionSpace]] = (DISCRETE,)
    form: ClassVar[dict[str, Any]] = {
        "normalize_observations": True,
        "normalize_rewards": True,
        "layer_norm": True,
        "shared_trunk": True,
    }


class TestDropoutPPO(TestPPO):
    action_spaces: ClassVar[Sequence[ActionSpace]] = (DISCRETE,)
    form: ClassVar[dict[str, Any]] = {"dropout": 0.2}
    restored_seed = TRAINING_SEED


class TestA2C(Ours):
    action_spaces: ClassVar[Sequence[ActionSpace]] = (DISCRETE, CONTINUOUS)
    name, options = "a2c", {"n_steps": 8, "net_arch": (16,)}


class TestA3C(TestA2C):
    action_spaces: ClassVar[Sequence[ActionSpace]] = (DISCRETE,)
    name = "a3c"


class OffPolicy(Ours):
    keeps_transitions = True
    options: ClassVar[dict[str, Any]] = {
        "learning_starts": 40,
        "batch_size": 16,
        "net_arch": (16,),
        "buffer_size": 1_000,
        "train_freq": 4,
    }


class TestDQN(OffPolicy):
    action_spaces: ClassVar[Sequence[ActionSpace]] = (DISCRETE,)
    name = "dqn"
    form: ClassVar[dict[str, Any]] = {"target_update_interval": 20}


class TestDoubleDuellingDQN(TestDQN):
    form: ClassVar[dict[str, Any]] = {"target_update_interval": 20, "double": True, "duelling": True}


class TestPrioritisedDQN(TestDQN):
    form: ClassVar[dict[str, Any]] = {"target_update_interval": 20, "prioritised": True, "n_steps": 3}


class TestHalfDQN(TestDQN):
    form: ClassVar[dict[str, Any]] = {"buffer_dtype": "float16", "gradient_steps": -1}


class TestDiscreteSAC(OffPolicy):
    action_spaces: ClassVar[Sequence[ActionSpace]] = (DISCRETE,)
    name, form = "sac", {"tau": 0.05}


class TestContinuousSAC(OffPolicy):
    action_spaces: ClassVar[Sequence[ActionSpace]] = (CONTINUOUS,)
    name, form = "sac", {"tau": 0.05}


class TestRandom(Ours):
    action_spaces: ClassVar[Sequence[ActionSpace]] = (DISCRETE, SEVERAL, CONTINUOUS)
    learns = False
    name, options = "random", {}


# Algorithms that learn from data -----------------------------------------------------------------------------------


class OursOffline(OfflineAlgorithmContract):
    name: ClassVar[str]

    def make(self, spaces: Spaces, *, num_envs: int, seed: int) -> Algorithm:
        config = configure(self.name, {"net_arch": (16,), "batch_size": 32})
        return build_algorithm(config, spaces, num_envs=num_envs, seed=seed)


class TestBC(OursOffline):
    action_spaces: ClassVar[Sequence[ActionSpace]] = (DISCRETE, SEVERAL, CONTINUOUS)
    uses_rewards = compares = False
    name = "bc"


class TestCQL(OursOffline):
    action_spaces: ClassVar[Sequence[ActionSpace]] = (DISCRETE,)
    name = "cql"


class TestIQL(OursOffline):
    action_spaces: ClassVar[Sequence[ActionSpace]] = (DISCRETE,)
    name = "iql"


class TestAWAC(OursOffline):
    action_spaces: ClassVar[Sequence[ActionSpace]] = (DISCRETE,)
    name = "awac"


def test_each_of_our_algorithms_has_a_contract() -> None:
    checked = {each.name for each in _subclasses(Ours) + _subclasses(OursOffline) if "name" in each.__dict__}
    assert checked >= set(ALGORITHMS)


def _subclasses(kind: Any) -> list[Any]:
    return [each for child in kind.__subclasses__() for each in (child, *_subclasses(child))]


# Networks ----------------------------------------------------------------------------------------------------------

POLICY, VALUE = Head(name="policy", size=3), Head(name="value", size=1)


class OurMLP(NetworkContract):
    changes: ClassVar[dict[str, Any]] = {}

    def make(self, seed: int) -> Network:
        fields: dict[str, Any] = {"input_size": 5, "hidden": (8, 6), "heads": (POLICY, VALUE), **self.changes}
        network = MLP(MLPConfig(**fields), seed)
        rng = np.random.default_rng(seed)
        network.parameters[:] += rng.normal(0, 0.1, network.parameters.size).astype(np.float32)  # biases too
        return network


class TestMLP(OurMLP):
    pass


class TestTowers(OurMLP):
    changes: ClassVar[dict[str, Any]] = {
        "shared": False,
        "heads": (POLICY, Head(name="log_std", size=3, constant=True), VALUE),
    }


class TestNormalised(OurMLP):
    changes: ClassVar[dict[str, Any]] = {"layer_norm": True}


class TestDropout(OurMLP):
    changes: ClassVar[dict[str, Any]] = {"dropout": 0.3, "shared": False}


class TestNoHiddenLayer(OurMLP):
    changes: ClassVar[dict[str, Any]] = {"hidden": ()}


class TestTorchNetwork(NetworkContract):
    def make(self, seed: int) -> Network:
        generator = torch.Generator().manual_seed(seed)
        module = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2))
        with torch.no_grad():
            for each in module.parameters():
                each.copy_(0.5 * torch.randn(each.shape, generator=generator))
        return TorchNetwork(module, input_size=4, output_size=2)


class TestNamedNetwork(NetworkContract):
    def make(self, seed: int) -> Network:
        def build(*sizes: int) -> torch.nn.Module:
            return torch.nn.Sequential(torch.nn.Linear(sizes[0], 6), torch.nn.Tanh(), torch.nn.Linear(6, sizes[1]))

        POINTS["network"].registered["small"] = build  # a new function each time, which register would refuse
        heads = (POLICY, Head(name="log_std", size=3, constant=True, initial=0.5), VALUE)
        return build_network("small", MLPConfig(input_size=4, heads=heads, shared=False), seed=seed)

    def teardown_method(self) -> None:
        POINTS["network"].registered.clear()


class TestDeviceMLP(OurMLP):
    def make(self, seed: int) -> Network:
        network = super().make(seed)
        assert isinstance(network, MLP)
        return on_device(network, "torch")


# Buffers -----------------------------------------------------------------------------------------------------------


class TestReplayBuffer(BufferContract):
    def make(self, capacity: int, observation_size: int, action_space: ActionSpace) -> ReplayBuffer:
        return ReplayBuffer(capacity, observation_size, action_space, share_observations=False)


class TestHalfReplay(BufferContract):
    keeps_halves = True

    def make(self, capacity: int, observation_size: int, action_space: ActionSpace) -> ReplayBuffer:
        return ReplayBuffer(capacity, observation_size, action_space, dtype="float16", share_observations=False)


class TestReplayInAFile(BufferContract):
    @pytest.fixture(autouse=True)
    def _take(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def make(self, capacity: int, observation_size: int, action_space: ActionSpace) -> ReplayBuffer:
        return ReplayBuffer(capacity, observation_size, action_space, folder=self.folder, share_observations=False)


class TestPrioritisedReplay(PrioritisedBufferContract):
    def make(self, capacity: int, observation_size: int, action_space: ActionSpace) -> ReplayBuffer:
        return PrioritisedReplay(capacity, observation_size, action_space, share_observations=False)


# Environments ------------------------------------------------------------------------------------------------------


WITH_ARGUMENTS = {"LLMTask-v0", "TraceReplay-v0", "GoalTask-v0"}
"""What cannot be made by its name alone, or not for many steps."""


class TestGoalTask(EnvironmentContract):
    """Real commands: each step starts two sandboxes, so there are fewer. What a fast one earns hangs on the clock."""

    num_steps = 15
    arguments: ClassVar[dict[str, Any]] = {"rewards": {"speed_bonus": 0.0}}

    def make(self) -> gymnasium.Env[Any, Any]:
        return make_env("learnloop/GoalTask-v0", self.arguments).env


class TestSimulatedGoalTask(TestGoalTask):
    num_steps = 60
    arguments: ClassVar[dict[str, Any]] = {**TestGoalTask.arguments, "make_executor": "simulated"}


@pytest.mark.parametrize("env_id", [f"learnloop/{name}" for name in REGISTERED if name not in WITH_ARGUMENTS])
class TestOurEnvironments(EnvironmentContract):
    @pytest.fixture(autouse=True)
    def _take(self, env_id: str) -> None:
        self.env_id = resolve_env(env_id)

    def make(self) -> gymnasium.Env[Any, Any]:
        return make_env(self.env_id).env


def _cart_pole() -> gymnasium.Env[Any, Any]:
    return gymnasium.make("CartPole-v1")


class TestCartPole(EnvironmentContract):
    max_steps = 500

    def make(self) -> gymnasium.Env[Any, Any]:
        return _cart_pole()


@pytest.mark.slow
class TestCartPoleInProcesses(TestCartPole):
    check_subprocess = True


# Encoders ----------------------------------------------------------------------------------------------------------


__all__ = ["TestContextEncoder", "TestObservationEncoder"]

# Policies ----------------------------------------------------------------------------------------------------------

NAMES = ("left", "right", "stay")


class BanditPolicy(PolicyContract):
    algorithm: ClassVar[str]

    def make(self) -> Any:
        rng = np.random.default_rng(0)
        samples = []
        for number in range(200):
            size, action = float(rng.random()), NAMES[int(rng.integers(3))]
            reward = size if action == "left" else 1 - size
            samples.append(Sample(f"u{number}", {"size": size}, NAMES, None, action, 1 / 3, reward))
        return BanditTrainer(build_config(self.algorithm).model).train(samples, 0)

    def contexts(self) -> list[Any]:
        return [{"size": 0.1}, {"size": 0.9}, {"size": 0.5}]

    def wrong_contexts(self) -> list[Any]:
        return [{}, {"size": "large"}, {"size": 0.1, "colour": 1.0}, {"size": float("inf")}]


class TestSquareCB(BanditPolicy):
    algorithm = "squarecb"


class TestLinUCB(BanditPolicy):
    algorithm = "linucb"


class TestThompson(BanditPolicy):
    algorithm = "thompson"


class OurPolicy(SpacePolicyContract):
    contract: ClassVar[type[Ours] | type[OursOffline]]
    space: ClassVar[ActionSpace] = DISCRETE

    def make(self) -> Any:
        contract = self.contract()
        spaces = next(each for each in contract.each_spaces() if each.action == self.space)
        return contract.learned(spaces).policy()


class TestPPOPolicy(OurPolicy):
    contract = TestPPO


class TestScaledPolicy(OurPolicy):
    contract = TestScaledPPO


class TestSeveralChoices(OurPolicy):
    contract, space = TestPPO, SEVERAL


class TestContinuousPolicy(OurPolicy):
    contract, space = TestPPO, CONTINUOUS


class TestDuellingPolicy(OurPolicy):
    contract = TestDoubleDuellingDQN


class TestSquashedPolicy(OurPolicy):
    contract, space = TestContinuousSAC, CONTINUOUS


class TestClonedPolicy(OurPolicy):
    contract = TestBC


class TestUniformPolicy(OurPolicy):
    contract, is_drawn = TestRandom, True


class TestSampledPolicy(OurPolicy):
    contract, is_drawn, can_store = TestPPO, True, False

    def make(self) -> Any:
        policy: NetworkPolicy = super().make()
        return policy.sampled
