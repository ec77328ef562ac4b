"""Records by which a store is checked: one of each kind, with what is hard to keep."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, get_args, get_type_hints

from learnloop.core import records
from learnloop.core.records import (
    Decision,
    Episode,
    EpisodeStatus,
    Event,
    PolicyVersion,
    Record,
    Reward,
    Span,
    SpanStatus,
)

T0 = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def episode(episode_id: str = "e1", status: EpisodeStatus = EpisodeStatus.RUNNING, **fields: Any) -> Episode:
    """Returns an episode, running unless told otherwise."""
    given = {"trace_id": "t1", "agent_id": "packer", "task_id": "pack:readme", "started_at": T0, **fields}
    return Episode(episode_id=episode_id, status=status, **given)


def span(span_id: str, **fields: Any) -> Span:
    """Returns a span of the episode ``e1``."""
    given: dict[str, Any] = {
        "trace_id": "t1",
        "episode_id": "e1",
        "parent_id": None,
        "operation": "chat",
        "name": "model",
        "status": SpanStatus.OK,
        "started_at": T0,
        "ended_at": T0 + timedelta(milliseconds=3),
        **fields,
    }
    return Span(span_id=span_id, **given)


def decision(decision_id: str, **fields: Any) -> Decision:
    """Returns a decision of the episode ``e1``."""
    given: dict[str, Any] = {
        "episode_id": "e1",
        "agent_id": "packer",
        "policy": "codec",
        "algorithm": "squarecb",
        "context": {"size": 5120, "kind": "text", "ratio": 0.25, "new": True},
        "actions": ["store", "gzip"],
        "action": "gzip",
        "propensity": 0.75,
        "created_at": T0,
        **fields,
    }
    return Decision(decision_id=decision_id, **given)


def reward(reward_id: str, **fields: Any) -> Reward:
    """Returns a reward of the episode ``e1``."""
    return Reward(
        reward_id=reward_id, **{"episode_id": "e1", "name": "saved", "value": 0.5, "created_at": T0, **fields}
    )


def version(policy_version_id: str, number: int, **fields: Any) -> PolicyVersion:
    """Returns a version of the policy ``packer.codec``."""
    given: dict[str, Any] = {"policy": "packer.codec", "content_hash": "ab" * 32, "algorithm": "linucb", **fields}
    return PolicyVersion(policy_version_id=policy_version_id, version=number, created_at=T0, **given)


KINDS: list[type[Record]] = [
    kind
    for kind in vars(records).values()
    if isinstance(kind, type) and issubclass(kind, Record) and kind not in (Record, Event)
]
"""All that can be written, in an order in which references point back."""


def example(kind: type[Record], *, bare: bool = False) -> Record:
    """Returns a record of a kind, its values hard to keep and none alike; ids of one name refer to each other.

    Args:
        kind: of record.
        bare: whether what can be None is None; its key and its texts are others then.
    """
    key, other = kind.__struct_fields__[0], "bare " if bare else ""
    found: dict[str, Any] = {}
    for number, (name, hint) in enumerate(get_type_hints(kind).items()):
        choices = get_args(hint)
        is_optional = type(None) in choices
        found[name] = None if bare and is_optional else _value(name, choices[0] if is_optional else hint, number, other)
    return kind(**{**found, key: other + key})


def _value(name: str, hint: Any, number: int, other: str) -> Any:
    """Returns a value of what a field's hint asks for."""
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return list(hint)[-1]
    if hint is str:
        return name if name.endswith("_id") else f"{other}{name} \u00e9\U0001f600"
    values: dict[Any, Any] = {
        bool: number % 2 == 0,
        bytes: b'{"a": "\xc3\xa9"}\x00\xff',
        datetime: T0 + timedelta(days=number),
        float: number + 0.25,
        int: number + 2**40,
        list[bool]: [True, False],
        list[float]: [0.5, -1.0, 65504.0],
        list[str]: ["a", name, "\u00e9\U0001f600"],
        list[records.Json]: [{"kind": name, "tags": ["a", 1.5, None]}, {}],
        records.Json: {name: [1, 1.5, None, {}], "\u00e9": "\U0001f600"},
    }
    return values[hint]


EVERY_RECORD = [example(kind) for kind in KINDS]
"""One of each kind."""
BARE_RECORDS = [example(kind, bare=True) for kind in KINDS]
"""One of each kind, with nothing in it that can be None."""
