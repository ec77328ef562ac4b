"""Probes: environments so small that what must be learned in them is known, each blind to all faults but a few.

P1 to P8 follow Andy Jones' probes and those that his miss: a forgotten discount, clipped rewards, a time limit taken
for an end, credit that reaches one step only. P9 to P13 ask for more: that nothing is learned from noise, that noise
beside a signal does not matter, that masks are kept, that what has changed is learned again, that a reward is credited
to who earned it. Their answers are in ``learnloop.testing``.

P1 to P10 exist with discrete actions and with one continuous action in [-1, 1] (``...Continuous-v0``). Where the action
matters, a continuous one earns the best reward minus its squared distance from a target.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from learnloop.core.arrays import F32, Bools
from learnloop.core.checks import check_whole

TARGET = 0.5
"""The best continuous action; where the observation matters, times the observation."""
CUT_STEPS = 4
"""After so many steps EndlessReward is cut."""
NOISE_SIZE = 30
"""So many numbers that mean nothing does NoisyObservation show."""
MASKED_REWARDS = (0.0, 0.5, 1.0)
"""What the actions of MaskedReward pay; the last one is legal in half of the states."""
FLIP_STEPS = 4_000
"""After so many steps of its life the other arm of ChangingReward is the best one."""
TEAM_SIZE = 2
IDENTITY_VALUES = 4
IDENTITY_STEPS = 100
IDENTITY_TOLERANCE = 0.05


class _Probe(gymnasium.Env[F32, Any]):
    """One observed number, or more, and ``num_actions`` actions or a continuous one."""

    num_actions = 1
    num_numbers = 1

    def __init__(self, continuous: bool = False) -> None:
        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (self.num_numbers,), np.float32)
        self.action_space: Any = (
            gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
            if continuous
            else gymnasium.spaces.Discrete(self.num_actions)
        )
        self._continuous = continuous
        self._shown = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[F32, dict[str, Any]]:
        """Begins an episode."""
        super().reset(seed=seed)
        self.begin(seed)
        self._shown = self.first()
        return _vector(self._shown), {}

    def step(self, action: Any) -> tuple[F32, float, bool, bool, dict[str, Any]]:
        """Ends the episode with ``reward``: most probes last one step."""
        return _vector(self._shown), self.reward(action), True, False, {}

    def begin(self, seed: int | None) -> None:
        """Forgets the episode before."""

    def first(self) -> float:
        """Returns what the first observation shows."""
        return 0.0

    def reward(self, action: Any) -> float:
        """Returns what an action earns."""
        return 1.0

    def coin(self) -> float:
        """Returns -1 or 1, each as likely."""
        return 1.0 if self.np_random.random() < 0.5 else -1.0

    def payoff(self, action: Any, best: int, rewards: tuple[float, float], target: float) -> float:
        """Returns the higher of two rewards for the best action, the lower one for the other; or falls off from it."""
        if self._continuous:
            return max(rewards) - (float(action[0]) - target) ** 2
        return rewards[0] if int(action) == best else rewards[1]


class ConstantReward(_Probe):
    """P1: one step, reward 1, nothing to choose: V = 1. Catches a broken value loss or optimiser."""


class ObservedReward(_Probe):
    """P2: shows -1 or 1, pays what it shows. Catches broken backpropagation, stale observations, clipped rewards."""

    def first(self) -> float:
        """Returns -1 or 1."""
        return self.coin()

    def reward(self, action: Any) -> float:
        """Returns what was shown."""
        return self._shown


class DelayedReward(_Probe):
    """P3: two steps, showing 0 and then 1, reward 1 at the end: V(0) = gamma, V(1) = 1. Catches a wrong discount."""

    def step(self, action: Any) -> tuple[F32, float, bool, bool, dict[str, Any]]:
        """Goes on, or ends and pays 1."""
        is_second = self._shown == 1.0
        self._shown = 1.0
        return _vector(1.0), float(is_second), is_second, False, {}


class ActionReward(_Probe):
    """P4: action 1 pays 1, action 0 pays -1. Catches an advantage of the wrong sign, a policy that does not learn."""

    num_actions = 2

    def reward(self, action: Any) -> float:
        """Returns 1 for the best action."""
        return self.payoff(action, 1, (1.0, -1.0), TARGET)


class ContextualReward(_Probe):
    """P5: shows -1 or 1; the action that fits (0 or 1) pays 1, the other -1. Catches mixed-up batches."""

    num_actions = 2

    def first(self) -> float:
        """Returns -1 or 1."""
        return self.coin()

    def reward(self, action: Any) -> float:
        """Returns 1 for the action that fits what was shown."""
        return self.payoff(action, int(self._shown > 0), (1.0, -1.0), TARGET * self._shown)


class DelayedAction(_Probe):
    """P6: the first of two actions is paid after the second: 1 for action 1, -1 for action 0; the second has no effect.

    The second observation does not tell the first action (it is 1), so only credit over two steps learns: lambda above
    0, or returns of two steps. With ``revealing`` it does (-1 or 1, or the continuous action), for methods that
    bootstrap after one step.
    """

    num_actions = 2

    def __init__(self, continuous: bool = False, revealing: bool = False) -> None:
        super().__init__(continuous)
        self._revealing = revealing
        self._first_action: Any = None

    def begin(self, seed: int | None) -> None:
        """Forgets the first action."""
        self._first_action = None

    def step(self, action: Any) -> tuple[F32, float, bool, bool, dict[str, Any]]:
        """Goes on, or ends and pays for the first action."""
        if self._first_action is None:
            self._first_action = np.array(action)
            told = float(action[0]) if self._continuous else 2.0 * int(action) - 1.0
            self._shown = told if self._revealing else 1.0
            return _vector(self._shown), 0.0, False, False, {}
        return _vector(self._shown), self.payoff(self._first_action, 1, (1.0, -1.0), TARGET), True, False, {}


class EndlessReward(_Probe):
    """P7: pays 1 a step for ever and is cut every ``CUT_STEPS`` steps: V = 1 / (1 - gamma).

    Catches a cut taken for an end, and a forgotten discount.
    """

    _num_steps = 0

    def begin(self, seed: int | None) -> None:
        """Counts from 0."""
        self._num_steps = 0

    def step(self, action: Any) -> tuple[F32, float, bool, bool, dict[str, Any]]:
        """Pays 1."""
        self._num_steps += 1
        return _vector(0.0), 1.0, False, self._num_steps >= CUT_STEPS, {}


class NegativeReward(_Probe):
    """P8: action 1 pays -0.2, action 0 pays -1. Catches rewards clipped to [0, 1] or cut off at 0."""

    num_actions = 2

    def reward(self, action: Any) -> float:
        """Returns a loss, the smaller one for the best action."""
        return self.payoff(action, 1, (-0.2, -1.0), TARGET)


class IndependentReward(_Probe):
    """P9: shows -1 or 1 and pays -1 or 1, each by a coin of its own, whatever is done: V = 0."""

    num_actions = 2

    def first(self) -> float:
        """Returns -1 or 1."""
        return self.coin()

    def reward(self, action: Any) -> float:
        """Returns -1 or 1."""
        return self.coin()


class NoisyObservation(ContextualReward):
    """P10: as P5, but after the number that counts it shows ``NOISE_SIZE`` that mean nothing, uniform on [-1, 1]."""

    num_numbers = 1 + NOISE_SIZE

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[F32, dict[str, Any]]:
        """Begins an episode."""
        super().reset(seed=seed)
        return self._observe(), {}

    def step(self, action: Any) -> tuple[F32, float, bool, bool, dict[str, Any]]:
        """Ends the episode."""
        return self._observe(), self.reward(action), True, False, {}

    def _observe(self) -> F32:
        noise = self.np_random.uniform(-1.0, 1.0, NOISE_SIZE)
        return np.concatenate([[self._shown], noise]).astype(np.float32)


class MaskedReward(_Probe):
    """P11: three actions pay 0, 0.5 and 1; where -1 is shown, in half of the states, the last one is illegal.

    The environment pays for it all the same, and ``info["illegal"]`` says that it was taken, so that whoever does not
    keep to the mask takes it everywhere. V(-1) = 0.5, V(1) = 1.
    """

    num_actions = 3

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[F32, dict[str, Any]]:
        """Begins an episode."""
        observation, _ = super().reset(seed=seed)
        return observation, {"action_mask": legal_actions(self._shown), "illegal": False}

    def step(self, action: Any) -> tuple[F32, float, bool, bool, dict[str, Any]]:
        """Ends the episode."""
        mask = legal_actions(self._shown)
        info = {"action_mask": mask, "illegal": not mask[int(action)]}
        return _vector(self._shown), self.reward(action), True, False, info

    def first(self) -> float:
        """Returns -1 or 1."""
        return self.coin()

    def reward(self, action: Any) -> float:
        """Returns what the action pays, legal or not."""
        return MASKED_REWARDS[int(action)]


def legal_actions(shown: float) -> Bools:
    """Returns which actions are legal where MaskedReward shows ``shown``, shape ``(3,)``."""
    return np.array([True, True, shown > 0])


class ChangingReward(_Probe):
    """P12: two arms pay 1 and -1. After ``flip_steps`` steps of its life they change places, which nothing shows.

    A life begins with a reset to a seed, and lasts over the episodes, of one step each, until the next such reset.
    """

    num_actions = 2

    def __init__(self, flip_steps: int = FLIP_STEPS) -> None:
        check_whole("flip_steps of ChangingReward", flip_steps)
        super().__init__()
        self._flip_steps = flip_steps
        self._age = 0

    def begin(self, seed: int | None) -> None:
        """Begins a life where there is a seed."""
        if seed is not None:
            self._age = 0

    def reward(self, action: Any) -> float:
        """Returns 1 for the best arm of the day."""
        is_flipped = self._age >= self._flip_steps
        self._age += 1
        return self.payoff(action, int(is_flipped), (1.0, -1.0), TARGET)


class TeamReward(_Probe):
    """P13: two agents act at once and share one reward: 1 where the first one's action is 1, else 0.

    The second one is a bystander: what it does changes nothing, and no credit is due to it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.action_space = gymnasium.spaces.MultiDiscrete([2] * TEAM_SIZE)

    def reward(self, action: Any) -> float:
        """Returns 1 for the first agent's right action."""
        return float(action[0] == 1)


class Identity(gymnasium.Env[Any, Any]):
    """Shows a value; the action that equals it pays 1, others 0; 100 steps, then it is cut. Perfect is 100.

    A Box shows a number in [-1, 1] and pays 1 for an action within 0.05 of it. A copy of the environment that
    Stable-Baselines3 tests its algorithms on (``tests/test_identity.py``), with random numbers that its seed decides.
    """

    def __init__(self, kind: str = "discrete") -> None:
        """Takes ``discrete`` (4 values), ``multi_discrete`` (two such) or ``box``."""
        self.action_space: Any = {
            "discrete": gymnasium.spaces.Discrete(IDENTITY_VALUES),
            "multi_discrete": gymnasium.spaces.MultiDiscrete([IDENTITY_VALUES] * 2),
            "box": gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32),
        }[kind]
        self.observation_space = self.action_space
        self._kind = kind
        self._shown: Any = None
        self._num_steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode."""
        super().reset(seed=seed)
        self._num_steps = 0
        self._shown = self._draw()
        return self._shown, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Pays for the action and shows the next value."""
        tolerance = IDENTITY_TOLERANCE if self._kind == "box" else 0
        reward = float(np.all(np.abs(np.subtract(action, self._shown)) <= tolerance))
        self._num_steps += 1
        self._shown = self._draw()
        return self._shown, reward, False, self._num_steps >= IDENTITY_STEPS, {}

    def _draw(self) -> Any:
        if self._kind == "box":
            return self.np_random.uniform(-1.0, 1.0, 1).astype(np.float32)
        if self._kind == "multi_discrete":
            return self.np_random.integers(IDENTITY_VALUES, size=2)
        return int(self.np_random.integers(IDENTITY_VALUES))


def _vector(number: float) -> F32:
    return np.array([number], dtype=np.float32)


_KINDS: tuple[type[_Probe], ...] = (
    *(ConstantReward, ObservedReward, DelayedReward, ActionReward, ContextualReward, DelayedAction, EndlessReward),
    *(NegativeReward, IndependentReward, NoisyObservation),
)
_PROBES: Mapping[str, tuple[type[_Probe], Mapping[str, Any]]] = {
    **{kind.__name__: (kind, {}) for kind in _KINDS},
    "RevealedAction": (DelayedAction, {"revealing": True}),
}

REGISTERED: Mapping[str, tuple[type[gymnasium.Env[Any, Any]], Mapping[str, Any]]] = {
    **{f"{name}-v0": entry for name, entry in _PROBES.items()},
    **{f"{name}Continuous-v0": (maker, {**kwargs, "continuous": True}) for name, (maker, kwargs) in _PROBES.items()},
    "MaskedReward-v0": (MaskedReward, {}),
    "ChangingReward-v0": (ChangingReward, {}),
    "TeamReward-v0": (TeamReward, {}),
    "Identity-v0": (Identity, {}),
    "IdentityMultiDiscrete-v0": (Identity, {"kind": "multi_discrete"}),
    "IdentityBox-v0": (Identity, {"kind": "box"}),
}
"""What is registered under ``learnloop/``: its class and what it is made with."""
