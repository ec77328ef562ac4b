"""gymnasium's spaces as ours; what a policy cannot see or act in is refused by name."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from learnloop.core.errors import UsageError
from learnloop.core.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple
from learnloop.envs.spaces import ActionEdge, from_gymnasium, random_actions
from learnloop.nn.encoders.observation_encoder import ObservationEncoder

FREE = spaces.Discrete(2)


@pytest.mark.parametrize(
    ("space", "wanted"),
    [
        (spaces.Discrete(3, start=2), Discrete(n=3, start=2)),
        (spaces.MultiDiscrete([[2, 3], [4, 5]]), MultiDiscrete(nvec=(2, 3, 4, 5))),
        (spaces.MultiBinary([2, 2]), MultiBinary(n=4)),
        (spaces.Text(5), Text()),
        (
            spaces.Box(np.array([-np.inf, 0], np.float32), np.array([1, np.inf], np.float32)),
            Box(shape=(2,), low=(None, 0.0), high=(1.0, None)),
        ),
        (spaces.Box(3.0, 3.0, (1,)), Box(shape=(1,), low=(None,), high=(None,))),
        (spaces.Box(0, 255, (1, 2), np.uint8), Box(shape=(1, 2), low=(0.0, 0.0), high=(255.0, 255.0))),
        (
            spaces.Dict({"b": FREE, "a": spaces.Tuple((FREE, spaces.Text(3)))}),
            Dict(spaces={"a": Tuple(spaces=(Discrete(n=2), Text())), "b": Discrete(n=2)}),
        ),
    ],
)
def test_observations(space: Any, wanted: Any) -> None:
    ours = from_gymnasium(space, FREE).observation
    assert ours == wanted
    space.seed(0)
    encoder = ObservationEncoder(ours)
    for _ in range(20):
        assert encoder.encode(space.sample()).shape == (encoder.size,)


@pytest.mark.parametrize(
    ("observation", "action", "message"),
    [
        (spaces.Graph(FREE, None), FREE, "observation space Graph"),
        (spaces.Dict({"x": spaces.Sequence(FREE)}), FREE, r"observation space\['x'\] Sequence"),
        (spaces.MultiDiscrete([2, 2], start=[1, 1]), FREE, "MultiDiscrete"),
        (FREE, spaces.MultiBinary(2), "action space MultiBinary"),
        (FREE, spaces.Dict({"a": FREE}), "action space Dict"),
        (FREE, spaces.MultiDiscrete([[2, 2]]), "MultiDiscrete"),
        (FREE, spaces.Box(0, 5, (1,), np.int64), "Box of floats"),
    ],
)
def test_unsupported(observation: Any, action: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        from_gymnasium(observation, action)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(3, start=-2),
        spaces.MultiDiscrete([2, 4, 3]),
        spaces.Box(-2.0, 0.5, (2, 2), np.float64),
        spaces.Box(-np.inf, 1.0, (1,), np.float32),
    ],
)
def test_actions_are_legal_outside(space: Any) -> None:
    ours = from_gymnasium(FREE, space).action
    edge = ActionEdge(ours, space.dtype)
    actions = random_actions(ours, None, 50, np.random.default_rng(0))
    if isinstance(ours, Box):
        actions *= 3
    for action in edge.to_envs(actions):
        assert space.contains(action)
    batched = gymnasium.vector.utils.batch_space(space, 50)
    assert batched.contains(edge.to_vector_env(actions))


def test_random_actions_keep_to_masks() -> None:
    masks = np.array([[1, 0, 0, 1, 1], [0, 1, 1, 0, 0]], dtype=bool)
    rng = np.random.default_rng(0)
    drawn = [random_actions(MultiDiscrete(nvec=(2, 3)), masks, 2, rng) for _ in range(60)]
    assert {tuple(each[0]) for each in drawn} == {(0, 1), (0, 2)}
    assert {tuple(each[1]) for each in drawn} == {(1, 0)}
