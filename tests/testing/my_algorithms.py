"""What a user might hand to ``learnloop probe``, right and wrong."""

from __future__ import annotations

from typing import Any

from learnloop.algorithms.base.algorithm import Algorithm
from learnloop.algorithms.off_policy.dqn import DQN, DQNConfig
from learnloop.algorithms.on_policy.a2c import A2C, A2CConfig
from learnloop.algorithms.policies.network_policy import NetworkPolicy
from learnloop.core.spaces import Spaces
from learnloop.testing.probe_subjects import ON_POLICY
from learnloop.testing.probes import GAMMA

CONFIG = A2CConfig(**{"gamma": GAMMA, **ON_POLICY["a2c"]})


class Mine(A2C):
    tag = "mine"

    def __init__(self, config: A2CConfig, spaces: Spaces, *, num_envs: int = 1, seed: int = 0) -> None:
        super().__init__(config, spaces, num_envs=num_envs, seed=seed)


class Inverted(Mine):
    """The sign of the rewards, and so of all advantages, is wrong."""

    def record(self, step: Any) -> None:
        super().record(step._replace(rewards=-step.rewards))


class CutsAreEnds(Mine):
    def record(self, step: Any) -> None:
        super().record(step._replace(terminated=step.terminated | step.truncated))


class UnmaskedPolicy(NetworkPolicy):
    def choose(self, observations: Any, masks: Any = None) -> Any:
        return super().choose(observations)


class Unmasked(Mine):
    def choose(self, observations: Any, masks: Any = None) -> Any:
        return super().choose(observations)

    def record(self, step: Any) -> None:
        super().record(step._replace(masks=None, final_masks=None))

    def policy(self) -> NetworkPolicy:
        policy = super().policy()
        policy.__class__ = UnmaskedPolicy
        return policy


class Crashes(Mine):
    def learn(self) -> bool:
        if self.num_steps > 100:
            raise KeyError("lost")
        return super().learn()


class Diverges(Mine):
    def record(self, step: Any) -> None:
        super().record(step._replace(rewards=step.rewards * float("nan")))


class NeverCounts(Mine):
    def record(self, step: Any) -> None:
        super().record(step)
        self.num_steps = 0


class Mute(DQN):
    action_values = None  # type: ignore[assignment]

    def __init__(self, config: DQNConfig, spaces: Spaces, *, num_envs: int = 1, seed: int = 0) -> None:
        super().__init__(config, spaces, num_envs=num_envs, seed=seed)


class Unsaid(A2C):
    def __init__(self, settings, spaces, *, num_envs=1, seed=0):  # type: ignore[no-untyped-def]
        super().__init__(settings, spaces, num_envs=num_envs, seed=seed)

    config: int  # type: ignore[assignment]


class Unfinished(Algorithm):
    tag = "unfinished"


def make(spaces: Spaces, *, num_envs: int, seed: int) -> Algorithm:
    return Mine(CONFIG, spaces, num_envs=num_envs, seed=seed)


def make_with_another_gamma(spaces: Spaces, *, num_envs: int, seed: int) -> Algorithm:
    return Mine(A2CConfig(), spaces, num_envs=num_envs, seed=seed)


def make_nothing(spaces: Spaces, *, num_envs: int, seed: int) -> None:
    return None


class NoAlgorithm:
    pass


NUMBER = 5
