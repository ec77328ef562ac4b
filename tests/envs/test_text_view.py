"""Texts of an environment seen through an encoder that was added by name, wherever the environment is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import pytest

from learnloop.core.errors import ExtensionError, NotFoundError, UsageError
from learnloop.core.extensions import POINTS
from learnloop.core.spaces import Box, Dict, Text
from learnloop.envs import EncodedText, check_env, make_stream
from learnloop.envs.registry import make_env


class Lengths:
    """The length of a text, and how many texts were encoded at once."""

    size = 2

    def __init__(self) -> None:
        self.calls: list[int] = []

    def encode(self, texts: Sequence[str]) -> Any:
        self.calls.append(len(texts))
        return [[len(text), len(texts)] for text in texts]


class Signs(gymnasium.Env[Any, Any]):
    """Shows a number, a text, and a text that another encoder sees."""

    def __init__(self, first: str = "a") -> None:
        self.observation_space = gymnasium.spaces.Dict(
            {
                "number": gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32),
                "pair": gymnasium.spaces.Tuple([gymnasium.spaces.Text(9), gymnasium.spaces.Discrete(2)]),
                "theirs": EncodedText("theirs"),
            }
        )
        self.action_space = gymnasium.spaces.Discrete(2)
        self._text = first

    def _shown(self) -> Any:
        return {"number": np.zeros(1, np.float32), "pair": (self._text, 1), "theirs": "xyz"}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._text = "a"
        return self._shown(), {}

    def step(self, action: Any) -> Any:
        self._text += "b"
        return self._shown(), 1.0, len(self._text) > 3, False, {}


@pytest.fixture
def lengths(monkeypatch: pytest.MonkeyPatch) -> Lengths:
    encoder = Lengths()
    monkeypatch.setattr(POINTS["encoder"], "registered", {"lengths": encoder, "theirs": Lengths()})
    return encoder


def test_the_space_names_the_encoder(lengths: Lengths) -> None:
    stream = make_stream(Signs, 1, env_kwargs={"text_encoder": "lengths"})
    space = stream.spaces.observation
    assert isinstance(space, Dict)
    assert isinstance(space.spaces["number"], Box)
    assert space.spaces["pair"].spaces[0] == Text(num_buckets=2, encoder="lengths")  # type: ignore[union-attr]
    assert space.spaces["theirs"] == Text(num_buckets=2, encoder="theirs")  # what it says itself stays
    assert stream.encoder.size == 1 + (2 + 2) + 2
    stream.close()


def test_lanes_are_encoded_at_once(lengths: Lengths) -> None:
    stream = make_stream(Signs, 3, env_kwargs={"text_encoder": "lengths"}, check=False)
    stream.reset(0)
    lengths.calls.clear()
    step = stream.step(np.zeros(3, dtype=np.int64))
    assert step.observations[:, 1:3].tolist() == [[2.0, 3.0]] * 3
    assert lengths.calls == [3]
    stream.close()


def test_a_batch_is_encoded_at_once(lengths: Lengths) -> None:
    encoder = make_stream(Signs, 1, env_kwargs={"text_encoder": "lengths"}, check=False).encoder
    batch = {"number": np.zeros((2, 1)), "pair": (("a", "bcd"), np.array([0, 1])), "theirs": ("", "x")}
    assert encoder.encode_batch(batch, 2)[:, 1:3].tolist() == [[1.0, 2.0], [3.0, 2.0]]
    with pytest.raises(UsageError, match="text is needed"):
        encoder.encode_batch({**batch, "theirs": ("", 3)}, 2)


def test_hashed_is_what_is_there_anyway(lengths: Lengths) -> None:
    made = make_env(
        "learnloop/GoalTask-v0", {"make_executor": "simulated", "goal_view": "text", "text_encoder": "hashed"}
    )
    assert type(made.env.observation_space["goal"]) is gymnasium.spaces.Text  # type: ignore[index]


@pytest.mark.parametrize(
    ("env", "encoder", "error", "message"),
    [
        ("CartPole-v1", "lengths", UsageError, "CartPole-v1 shows no text"),
        (Signs, "lenghts", NotFoundError, "did you mean 'lengths'"),
        (Signs, 3, UsageError, "text_encoder is 3"),
    ],
)
def test_what_is_refused(lengths: Lengths, env: Any, encoder: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make_stream(env, 1, env_kwargs={"text_encoder": encoder})


def test_a_vectorised_form_takes_none() -> None:
    with pytest.raises(UsageError, match="set vectorization to 'sync'"):
        make_stream("CartPole-v1", 16, env_kwargs={"text_encoder": "lengths"})


def test_an_encoder_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoModel:
        size = 3

        def __init__(self) -> None:
            raise OSError("no such model")

        def encode(self, texts: Sequence[str]) -> Any:
            return []

    class Breaks(Lengths):
        def encode(self, texts: Sequence[str]) -> Any:
            raise KeyError("lost")

    class Short(Lengths):
        def encode(self, texts: Sequence[str]) -> Any:
            return np.zeros((len(texts), 1))

    registered = {"theirs": Lengths(), "no-model": NoModel, "breaks": Breaks, "short": Short, "none": len}
    monkeypatch.setattr(POINTS["encoder"], "registered", registered)
    for name, message in [
        ("no-model", "raised OSError: no such model"),
        ("breaks", "'breaks' raised KeyError"),
        ("short", r"shape \(1, 1\) for 1 texts; \(1, 2\)"),
        ("none", "with size and encode"),
    ]:
        with pytest.raises(ExtensionError, match=message):
            make_stream(Signs, 1, env_kwargs={"text_encoder": name})


def test_a_class_is_called_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []

    class Model(Lengths):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    monkeypatch.setattr(POINTS["encoder"], "registered", {"theirs": Model})
    make_stream(Signs, 2).close()
    make_stream(Signs, 2).close()
    assert len(made) == 1


def test_check_env_knows_them(lengths: Lengths) -> None:
    assert check_env(Signs) == []
