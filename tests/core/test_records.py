"""learnloop.core.records and lifecycles: frozen, keyword-only, and each change of state allowed by a table."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime
from enum import Enum
from typing import Any, get_args

import msgspec
import pytest

from learnloop.core import records
from learnloop.core.errors import TransitionError
from learnloop.core.lifecycles import EPISODE_TRANSITIONS, check_transition
from learnloop.core.records import EpisodeStatus, Record, Reward

KINDS = [kind for kind in vars(records).values() if isinstance(kind, type) and issubclass(kind, Record)]
KINDS.remove(Record)


@pytest.mark.parametrize("kind", KINDS)
def test_records_are_frozen_keyword_only_and_strict(kind: type[Record]) -> None:
    config = kind.__struct_config__
    assert config.frozen
    assert config.forbid_unknown_fields
    with pytest.raises(TypeError):
        kind("positional")
    first = kind.__struct_fields__[0]
    assert first.endswith("_id") or kind is records.Event


@pytest.mark.parametrize("kind", KINDS)
def test_records_survive_json(kind: type[Record]) -> None:
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        values[field.name] = _example(field.type)
    record = kind(**values)
    assert msgspec.json.decode(msgspec.json.encode(record), type=kind) == record


def _example(annotation: Any) -> Any:
    text = str(annotation)
    for choice in get_args(annotation) or (annotation,):
        if inspect.isclass(choice) and issubclass(choice, Enum):
            return next(iter(choice))
    for word, value in (
        ("datetime", datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)),
        ("list[str]", ["a"]),
        ("list[bool]", [True]),
        ("list[float]", [0.5]),
        ("list[collections.abc.Mapping", [{"k": [1, None]}, {}]),
        ("Mapping", {"k": [1, None]}),
        ("bytes", b"\x00\xff"),
        ("bool", True),
        ("int", 3),
        ("float", 0.25),
    ):
        if word in text:
            return value
    return "text"


def test_a_missing_value_is_not_zero() -> None:
    reward = Reward(reward_id="r", episode_id=None, name="n", value=None, created_at=datetime.now(UTC))
    assert b'"value":null' in msgspec.json.encode(reward)


def test_episode_transitions() -> None:
    check_transition(EPISODE_TRANSITIONS, "episode e", EpisodeStatus.RUNNING, EpisodeStatus.FAILED)
    for final in (EpisodeStatus.COMPLETED, EpisodeStatus.FAILED):
        for wanted in EpisodeStatus:
            with pytest.raises(TransitionError, match=f"episode e is {final.value} and cannot become {wanted.value}"):
                check_transition(EPISODE_TRANSITIONS, "episode e", final, wanted)


def test_every_status_has_its_row() -> None:
    assert EPISODE_TRANSITIONS.keys() == set(EpisodeStatus)
