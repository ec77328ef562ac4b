"""A judge's configuration: what contradicts itself is refused, and rubrics are read from files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from learnloop.core.errors import FormatError, NotFoundError, UsageError
from learnloop.models import EndpointConfig
from learnloop.rewards.judge.config import Criterion, JudgeConfig, Rubric, read_rubric
from learnloop.rewards.judge.judge import RubricJudge

ENDPOINT = {"base_url": "http://127.0.0.1:9/v1", "model": "m"}
CRITERION = Criterion(name="right", text="Is it right?")

RUBRIC = """
instructions = "Answers of pupils."
shows = ["prompt", "output"]

[[criteria]]
name = "right"
text = "Is it right?"
weight = 2
lowest = 0
highest = 10

[[criteria]]
name = "clear"
text = "Is it clear?"
"""


def read(settings: str) -> JudgeConfig:
    """Returns a configuration as a part of learnloop.toml."""
    return msgspec.toml.decode(settings, type=JudgeConfig)


def test_from_toml(tmp_path: Path) -> None:
    (tmp_path / "rubric.toml").write_text(RUBRIC)
    config = read(
        'rubric_file = "rubric.toml"\nvotes = 5\nmax_usd = 2.5\n'
        "input_usd_per_million = 1\noutput_usd_per_million = 4.0\n"
        '[endpoint]\nbase_url = "http://127.0.0.1:9/v1"\nmodel = "m"\nmax_requests = 100\n'
    )
    judge = RubricJudge(config, folder=tmp_path)
    assert [criterion.name for criterion in judge.rubric.criteria] == ["right", "clear"]
    assert judge.rubric == read_rubric(tmp_path / "rubric.toml")
    assert judge.rubric.value({"right": 5, "clear": 5}) == pytest.approx((2 * 0.5 + 1.0) / 3)
    assert config == msgspec.json.decode(msgspec.json.encode(config), type=JudgeConfig)


def test_a_rubric_in_place() -> None:
    text = read('rubric = "Is it right?"\n[endpoint]\nbase_url = "http://127.0.0.1:9/v1"\nmodel = "m"')
    assert text.read_rubric() == Rubric.of("Is it right?")
    inline = read(
        '[endpoint]\nbase_url = "http://127.0.0.1:9/v1"\nmodel = "m"\n'
        '[rubric]\n[[rubric.criteria]]\nname = "right"\ntext = "Is it right?"'
    )
    assert inline.read_rubric() == Rubric(criteria=[CRITERION])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rubric": None}, "either rubric or rubric_file"),
        ({"rubric_file": "x"}, "either rubric or rubric_file"),
        ({"votes": 0}, "votes is 0"),
        ({"votes": 1000}, "votes is 1000"),
        ({"votes": 3, "temperature": 0.0}, "at temperature 0"),
        ({"votes": 3, "temperature": None}, "at temperature 0"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"deadline_seconds": float("inf")}, "deadline_seconds is inf"),
        ({"max_usd": 0.0}, "max_usd is 0"),
        ({"max_usd": 1.0}, "max_usd needs prices"),
        ({"max_usd": 1.0, "input_usd_per_million": 1.0}, "max_usd needs prices"),
        ({"input_usd_per_million": -1.0}, "input_usd_per_million is -1"),
        ({"max_part_characters": 5}, "max_part_characters is 5"),
        ({"seed": -1}, "seed is -1"),
        ({"prior": 0.0}, "prior is 0"),
        ({"max_pairs": 0}, "max_pairs is 0"),
    ],
)
def test_what_has_no_meaning(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        JudgeConfig(**({"endpoint": EndpointConfig(**ENDPOINT), "rubric": "Is it right?"} | given))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given",
    [
        {"name": "is right"},
        {"name": ""},
        {"text": " "},
        {"weight": 0.0},
        {"weight": float("inf")},
        {"weight": float("nan")},
        {"lowest": 5},
        {"lowest": 6},
        {"highest": 1000},
    ],
)
def test_criteria_that_cannot_be_scored(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Criterion(**({"name": "right", "text": "Is it right?"} | given))


def test_rubrics_that_say_nothing() -> None:
    for criteria, shows in (([], ["output"]), ([CRITERION, CRITERION], ["output"]), ([CRITERION], ["prompt"])):
        with pytest.raises(UsageError):
            Rubric(criteria=criteria, shows=shows)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no text"):
        Rubric.of("")


@pytest.mark.parametrize(
    "text",
    [
        b"criteria = ",
        b"criteria = []",
        b"criteria = 5",
        b"[[criteria]]\nname = 'x'",
        b"colour = 1",
        b"\xff",
        b"[[criteria]]\nname = 'x'\ntext = ''",
        b"a = " + b"[" * 5_000,
    ],
)
def test_files_that_are_no_rubric(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "rubric.toml"
    path.write_bytes(text)
    with pytest.raises(UsageError, match=r"rubric\.toml"):
        read_rubric(path)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="rubric_file"):
        read_rubric(tmp_path / "none.toml")
    with pytest.raises(UsageError, match="cannot be read"):
        read_rubric(tmp_path)
    assert issubclass(FormatError, UsageError)
