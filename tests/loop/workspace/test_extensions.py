"""Extensions by name through the facade: each kind is used by what takes its names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import learnloop as ll
from learnloop.algorithms import A2C, A2CConfig, build_algorithm, configure
from learnloop.core.attempts import Attempt
from learnloop.core.errors import ExtensionError, NotFoundError, UsageError
from learnloop.core.extensions import POINTS
from learnloop.core.spaces import Box, Discrete, Spaces, Text
from learnloop.envs import EncodedText, check_env
from learnloop.envs.answer_scores import find_score
from learnloop.nn.encoders.observation_encoder import ObservationEncoder
from learnloop.training.options import make_options


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    for point in POINTS.values():
        point.registered.clear()


class CopyConfig(A2CConfig, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="copy"):
    learning_rate: float = 2e-3


class Copy(A2C):
    """A2C under another name."""

    tag = "copy"
    config_type = CopyConfig


class Vowels:
    """Counts a, e, i, o and u."""

    size = 5

    def encode(self, texts: Any) -> Any:
        return np.array([[text.count(letter) for letter in "aeiou"] for text in texts], dtype=np.float32)


class Echo(gymnasium.Env[str, Any]):
    """Action 1 for texts with an a."""

    def __init__(self) -> None:
        self.observation_space = EncodedText("vowels")
        self.action_space = gymnasium.spaces.Discrete(2)
        self._text = ""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._text = str(self.np_random.choice(["banana", "lemon"]))
        return self._text, {}

    def step(self, action: Any) -> Any:
        return self._text, float(("a" in self._text) == bool(action)), True, False, {}


def test_an_algorithm_by_name(tmp_path: Path) -> None:
    ll.register("algorithm", "copy", Copy)
    run = ll.train("copy", env="learnloop/ActionReward-v0", steps=4_000, seeds=2, home=tmp_path)
    assert run.record.options.algorithm == "copy"
    assert run.evaluate(20).means == [1.0, 1.0]
    again = ll.open_run(home=tmp_path)
    assert again.best.evaluate(10).mean == 1.0
    spaces = Spaces(observation=Box(shape=(1,), low=(None,), high=(None,)), action=Discrete(n=2))
    config = configure("copy", {"lr": 0.5})
    assert type(config) is CopyConfig
    assert type(build_algorithm(config, spaces)) is Copy
    with pytest.raises(UsageError, match="did you mean 'copy'"):
        make_options("copi", "CartPole-v1")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3, "needed is a subclass"),
        (A2C, r"tags \('a2c', 'a2c'\)"),
        (type("Other", (A2C,), {"config_type": A2CConfig}), r"tags \('a2c', 'a2c'\)"),
        (type("Half", (A2C,), {"config_type": int, "tag": "copy"}), "config_type <class 'int'>"),
    ],
)
def test_what_is_no_algorithm(value: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ll.register("algorithm", "copy", value)
    assert "copy" not in POINTS["algorithm"].names()


def test_an_environment_and_its_encoder_by_name(tmp_path: Path) -> None:
    ll.register("encoder", "vowels", Vowels)
    ll.register("environment", "echo", Echo)
    ll.register("environment", "pole", "CartPole-v1")
    assert check_env("echo") == []
    assert check_env("pole") == []
    run = ll.train("a2c", env="echo", steps=4_000, seeds=2, options={"learning_rate": 0.003}, home=tmp_path)
    assert run.evaluate(20).means == [1.0, 1.0]
    assert run.record.options.env == "plugin/echo"
    policy = run.best.policy
    assert [int(policy.act(text)) for text in ("banana", "lemon")] == [1, 0]
    with pytest.raises(NotFoundError, match=r"did you mean.*echo"):
        check_env("ecko")


def test_an_encoder_that_is_not_there_any_more() -> None:
    with pytest.raises(NotFoundError, match="no encoder is called 'vowels'"):
        ObservationEncoder(Text(num_buckets=5, encoder="vowels"))
    ll.register("encoder", "vowels", Vowels())
    with pytest.raises(ExtensionError, match=r"gives 5 numbers and .* room for 6"):
        ObservationEncoder(Text(num_buckets=6, encoder="vowels"))
    encoder = ObservationEncoder(Text(num_buckets=5, encoder="vowels"))
    assert encoder.encode("queue").tolist() == [0, 2, 0, 0, 2]
    with pytest.raises(UsageError, match="text"):
        encoder.encode(3)


def test_an_encoder_that_gives_something_else() -> None:
    class Odd(Vowels):
        def encode(self, texts: Any) -> Any:
            return np.full((len(texts), 5), np.nan)

    ll.register("encoder", "odd", Odd)
    with pytest.raises(ExtensionError, match="finite numbers are needed"):
        ObservationEncoder(Text(num_buckets=5, encoder="odd")).encode("a")


def test_a_reward_by_name() -> None:
    ll.register("reward", "length", lambda attempt: float(len(attempt.output)))
    assert find_score("length")(Attempt(output="four")) == 4.0
    with pytest.raises(UsageError, match="length"):
        find_score("lenght")


def test_what_cannot_be_registered() -> None:
    with pytest.raises(UsageError, match="no kind 'policy'"):
        ll.register("policy", "x", len)
    with pytest.raises(UsageError, match="learnloop's own"):
        ll.register("environment", "cartpole", Echo)
    with pytest.raises(UsageError, match="a callable is needed"):
        ll.register("reward", "x", 3)
    with pytest.raises(UsageError, match="size and encode"):
        ll.register("encoder", "x", len)
    with pytest.raises(UsageError, match="no kind 'policies'"):
        ll.extensions("policies")


def test_all_are_listed() -> None:
    ll.register("environment", "echo", Echo)
    found = {(each.kind, each.name): each for each in ll.extensions()}
    assert found["algorithm", "ppo"].source == "learnloop"
    assert found["environment", "echo"].source == "registered here"
    assert found["environment", "echo"].description == "Action 1 for texts with an a."
    assert {each.kind for each in ll.extensions("reward")} == {"reward"}
    assert all(each.error is None for each in found.values())
