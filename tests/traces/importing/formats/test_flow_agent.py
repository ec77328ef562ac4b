"""formats.flow_agent and restricted_pickle: sessions are read, and nothing of a pickle is ever run."""

from __future__ import annotations

import collections
import datetime
import gzip
import os
import pickle
import pickletools
import struct
import subprocess
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop.core.errors import FormatError
from learnloop.traces.conversation.messages import text_of
from learnloop.traces.importing.formats.restricted_pickle import MAX_DEPTH, read_pickle
from tests.traces.formats.reading import check_damaged, imported

RECORDS = frozenset({"AgentCheckpoint"})
HISTORY: list[dict[str, Any]] = [
    {"role": "user", "content": "Weather?", "timestamp": "2026-01-03T09:00:00"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "c1", "function": {"name": "sky", "arguments": '{"at": "B"}'}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "sun"},
    {"role": "assistant", "content": "Sunny.", "timestamp": "2026-01-03T09:00:05"},
]


@dataclass
class AgentCheckpoint:
    """As the program's own, in a module of any name."""

    timestamp: datetime.datetime
    agent_state: dict[str, Any]
    task_state: dict[str, Any] = field(default_factory=dict)
    session_data: dict[str, Any] = field(default_factory=dict)
    conversation_history: list[Any] = field(default_factory=list)
    tool_capabilities: dict[str, Any] = field(default_factory=dict)
    variable_scopes: dict[str, Any] = field(default_factory=dict)


@pytest.fixture(autouse=True)
def module(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives the class a module that pickle finds, and that is gone when the file is read."""
    there = types.ModuleType("agent_types")
    there.AgentCheckpoint = AgentCheckpoint  # type: ignore[attr-defined]
    monkeypatch.setattr(AgentCheckpoint, "__module__", "agent_types")
    monkeypatch.setitem(sys.modules, "agent_types", there)


def checkpoint(**changes: Any) -> AgentCheckpoint:
    given = {
        "timestamp": datetime.datetime(2026, 1, 3, 10, tzinfo=datetime.timezone(datetime.timedelta(hours=1))),
        "agent_state": {
            "total_tokens_in": 900,
            "total_cost_accumulated": 0.5,
            "amd_data": {"name": "isaa"},
            "on": {1, 2},
        },
        "task_state": {"t1": {"status": "completed", "result": "r"}, "t2": {"status": "failed", "session_id": "two"}},
        "session_data": {
            "one": {"history": HISTORY, "session_type": "chat"},
            "two": {"history": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]},
            "empty": {"history": []},
        },
        "tool_capabilities": {"sky": collections.OrderedDict(purpose="look")},
        "variable_scopes": {"session_one": collections.defaultdict(list, {"mood": ["fine"]})},
    }
    return AgentCheckpoint(**{**given, **changes})


def saved(path: Path, value: Any, protocol: int = 4) -> Path:
    data = pickle.dumps(value, protocol)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("protocol", range(6))
def test_a_checkpoint(tmp_path: Path, protocol: int) -> None:
    twice = checkpoint(conversation_history=[dict(each) for each in HISTORY])  # a copy of a session is no session
    got = imported(tmp_path, saved(tmp_path / "c.pkl", twice, protocol))
    one, two = sorted(got.episodes, key=lambda each: each.metadata["session_id"])
    assert got.report.format == "flow-agent"
    assert (one.agent_id, one.source, got.report.num_episodes_with_outcome) == ("isaa", "flow-agent", 0)
    assert one.started_at.isoformat() == "2026-01-03T09:00:00+00:00"
    assert (one.metadata["session_type"], one.metadata["variables"]) == ("chat", {"mood": ["fine"]})
    assert one.metadata["checkpoint"] == {
        "agent": "isaa",
        "timestamp": "2026-01-03T10:00:00+01:00",
        "totals": {"input_tokens": 900, "cost_usd": 0.5},
        "tools": ["sky"],
    }
    assert [text_of(step.output) for step in got.steps(two)] == ["ho"]


def test_a_turn_that_says_nothing_and_asks_for_a_tool_is_kept(tmp_path: Path) -> None:
    """F3.2: it is a step, and its tool has the arguments that the model gave it."""
    got = imported(tmp_path, saved(tmp_path / "c.pkl.gz", checkpoint(session_data={"one": {"history": HISTORY}})))
    first, second = got.steps()
    assert [(call.name, call.arguments, call.result) for call in first.tool_calls] == [("sky", {"at": "B"}, "sun")]
    assert (text_of(first.output), text_of(second.output)) == ("", "Sunny.")


def test_tasks_and_totals_are_not_spread(tmp_path: Path) -> None:
    """F3.3: a task is with its session, and tokens of the whole agent are no session's."""
    got = imported(tmp_path, saved(tmp_path / "c.pkl", checkpoint()))
    one, two = sorted(got.episodes, key=lambda each: each.metadata["session_id"])
    assert two.metadata["tasks"] == {"t2": {"status": "failed", "session_id": "two"}}
    assert "tasks" not in one.metadata
    assert one.metadata["tasks_of_no_session"] == {"t1": {"status": "completed", "result": "r"}}
    assert all("usage" not in step.attributes for step in got.steps(one))


def test_later_checkpoints_add_what_is_new_and_attempts_stay_two(tmp_path: Path) -> None:
    """F3.4: overlapping checkpoints repeat nothing; runs without times stay apart, even with the same words."""
    longer = [*HISTORY, {"role": "user", "content": "And now?"}, {"role": "assistant", "content": "Rain."}]
    first = saved(tmp_path / "1.pkl", checkpoint(session_data={"one": {"history": HISTORY}}))
    later = saved(tmp_path / "2.pkl", checkpoint(session_data={"one": {"history": longer}}))
    got = imported(tmp_path, first, later)
    assert [text_of(step.output) for step in got.steps()] == ["", "Sunny.", "Rain."]
    timeless = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
    sessions = checkpoint(session_data={"one": {"history": timeless}})
    attempts = imported(tmp_path, saved(tmp_path / "3.pkl", sessions), saved(tmp_path / "4.pkl", sessions))
    assert len(attempts.episodes) == 2


def test_a_tool_that_no_message_asked_for(tmp_path: Path) -> None:
    history = [
        HISTORY[0],
        {"role": "tool", "name": "sky", "arguments": {"at": "B"}, "content": "?", "error": "down"},
        HISTORY[3],
    ]
    got = imported(tmp_path, saved(tmp_path / "c.pkl", checkpoint(session_data={"one": {"history": history}})))
    (tool,) = (span for span in got.spans[got.episode.episode_id] if span.operation == "execute_tool")
    assert (tool.name, tool.attributes["input"], tool.error) == ("sky", {"at": "B"}, "down")
    assert [each["role"] for each in got.steps()[0].messages] == ["user", "tool"]


def test_second_version(tmp_path: Path) -> None:
    value = {
        "agent_name": "isaa",
        "sessions_data": {
            "version": 2,
            "sessions": {"one": {"chat_history": HISTORY, "created_at": "2026-01-01T00:00:00"}},
        },
        "statistics": {"total_tokens_in": 5},
    }
    got = imported(tmp_path, saved(tmp_path / "c.pkl", value))
    assert (got.episode.agent_id, len(got.steps())) == ("isaa", 2)
    assert got.episode.metadata["checkpoint"]["totals"] == {"input_tokens": 5}


class Call:
    """Pickles as a call of anything."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.made = (function, arguments)

    def __reduce__(self) -> Any:
        return self.made


def attacks(canary: Path) -> dict[str, bytes]:
    """Returns pickles each of which would write the canary, or would call something, if any of it was run."""
    touch = f"touch {canary}"
    plain = checkpoint(agent_state={"x": Call(os.system, touch)})
    command = f"open({str(canary)!r}, 'w')"
    stack_global = b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c" + bytes([len(touch)]) + touch.encode() + b"\x85R."
    dotted = b"\x80\x04\x8c\x08builtins\x8c\x0deval.__call__\x93\x8c\x011\x85R."
    own = b"\x80\x04\x8c\x08datetime\x8c\x15datetime.fromisoformat\x93\x8c\x01x\x85R."
    getattr_chain = (
        b"\x80\x02cbuiltins\ngetattr\ncbuiltins\n__import__\nX\x02\x00\x00\x00os\x85RX\x06\x00\x00\x00system\x86R."
    )
    record = b"\x80\x04\x8c\x01m\x8c\x0fAgentCheckpoint\x93"
    return {
        "os.system": pickle.dumps(plain),
        "eval": pickle.dumps(Call(eval, command)),
        "exec, nested": pickle.dumps(checkpoint(session_data={"one": {"history": [Call(exec, command)]}})),
        "subprocess": pickle.dumps(Call(subprocess.check_output, ["touch", str(canary)])),
        "protocol 0": pickle.dumps(plain, 0),
        "stack global": stack_global,
        "dotted name": dotted,
        "dotted name of a type that is known": own,
        "getattr": getattr_chain,
        "a record that is called": record + b"\x8c\x01x\x85R.",
        "a record with arguments": record + b"\x8c\x01x\x85\x81.",
        "state of a builtin": b"\x80\x04}\x8c\x0c__setstate__\x8c\x01xsb.",
        "state of a module": b"\x80\x02cos\nenviron\n}X\x04\x00\x00\x00PATHX\x01\x00\x00\x00xsb.",
        "fields that are no object": record + b")\x81]b.",
        "instance": b"(S'" + touch.encode() + b"'\nios\nsystem\n.",
        "object": b"(cos\nsystem\nS'" + touch.encode() + b"'\no.",
        "extension registry": b"\x80\x02\x82\x01.",
        "persistent id": b"Pwhatever\n.",
        "binary persistent id": b"\x80\x02K\x01Q.",
        "out-of-band buffer": b"\x80\x05\x97.",
        "keyword arguments": record + b")}\x92.",
        "reconstructor of another class": b"ccopy_reg\n_reconstructor\n(" + b"c__builtin__\nobject\n" * 2 + b"NtR.",
        "a maker as a value": b"\x80\x02cdatetime\ndatetime\n.",
        "a factory that is called": b"\x80\x02cbuiltins\nint\nX\x01\x00\x00\x005\x85R.",
    }


@pytest.mark.parametrize("name", sorted(attacks(Path("canary"))))
def test_a_malicious_pickle_is_refused_and_not_run(tmp_path: Path, name: str) -> None:
    """F3.11: a checkpoint cannot execute code."""
    canary = tmp_path / "canary"
    path = tmp_path / "c.pkl"
    path.write_bytes(attacks(canary)[name])
    with pytest.raises(FormatError, match=r"refused|damaged|plain values"):
        imported(tmp_path, path, format_name="flow-agent")
    assert not canary.exists()


def test_the_attacks_are_real(tmp_path: Path) -> None:
    """One of them, run by pickle itself, does write the canary."""
    pickle.loads(attacks(tmp_path / "canary")["stack global"])  # noqa: S301 - to show what is refused
    assert (tmp_path / "canary").exists()


def test_names_of_known_classes_load_nothing(tmp_path: Path) -> None:
    """A module that would run on import is not looked at, even where the class has a known name."""
    (tmp_path / "loaded_by_name.py").write_text(f"open({str(tmp_path / 'canary')!r}, 'w')")
    data = b"\x80\x04\x8c\x0eloaded_by_name\x8c\x0fAgentCheckpoint\x93)\x81}\x8c\x01a\x8c\x01bsb."
    sys.path.insert(0, str(tmp_path))
    try:
        assert read_pickle(data, RECORDS) == {"a": "b"}
    finally:
        sys.path.remove(str(tmp_path))
    assert not (tmp_path / "canary").exists()
    assert "loaded_by_name" not in sys.modules


def lists_of_lists(levels: int) -> bytes:
    """Each of so many lists holds the one before ten times: 10 ** levels values in a few bytes."""
    data = b"\x80\x04]\x94"
    for level in range(levels):
        data += b"]\x94(" + b"h" + bytes([level]) + (b"h" + bytes([level])) * 9 + b"e"
    return data + b"."


def repeated_text() -> bytes:
    """A megabyte of text, and a list that holds it a thousand times."""
    text = b"X" + struct.pack("<I", 1 << 20) + b"a" * (1 << 20)
    return b"\x80\x02" + text + b"q\x000](" + b"h\x00" * 1000 + b"e."


def copies(function: bytes) -> bytes:
    """Calls a maker that copies a megabyte a thousand times."""
    text = b"X" + struct.pack("<I", 1 << 20) + b"a" * (1 << 20) + b"q\x000"
    call = function + b"h\x00X\x06\x00\x00\x00latin1\x86R0"
    return b"\x80\x02" + text + call * 1000 + b"N."


@pytest.mark.parametrize(
    "make",
    [
        lambda: lists_of_lists(12),
        repeated_text,
        lambda: copies(b"c_codecs\nencode\n"),
        lambda: b"\x80\x02" + b"]" * 200 + b"a" * 199 + b".",
        lambda: b"\x80\x04\x8e" + struct.pack("<Q", 2**62) + b"x.",
        lambda: b"\x80\x02X" + struct.pack("<I", 2**32 - 1) + b"x.",
        lambda: b"\x80\x02\x8b" + struct.pack("<i", 2**31 - 1) + b"x.",
        lambda: b"\x80\x02]q\x00h\x00a.",  # a list in itself
        lambda: b"\x80\x02}(" + b")" * 2 + b"\x85" * 100_000 + b"Nu.",  # a deep tuple as a key
        lambda: b"I" + b"9" * 100_000 + b"\n.",
        lambda: pickle.dumps([0] * 10) + b"more",
    ],
    ids=[
        "laughs",
        "text",
        "copies",
        "depth",
        "claim",
        "claim of text",
        "claim of digits",
        "cycle",
        "key",
        "digits",
        "rest",
    ],
)
def test_bombs_are_refused(make: Callable[[], bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("learnloop.traces.importing.formats.restricted_pickle.MAX_NODES", 100_000)
    with pytest.raises(FormatError):
        read_pickle(make(), RECORDS)


def test_too_many_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("learnloop.traces.importing.formats.restricted_pickle.MAX_OPERATIONS", 1000)
    with pytest.raises(FormatError, match="operations"):
        read_pickle(b"\x80\x02" + b"}0" * 1000 + b"N.", RECORDS)


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=30,
)


@given(PLAIN, st.integers(0, 5), st.booleans())
def test_plain_values_are_what_pickle_wrote(value: Any, protocol: int, optimized: bool) -> None:
    data = pickle.dumps(value, protocol)
    assert read_pickle(pickletools.optimize(data) if optimized else data, RECORDS) == value


@pytest.mark.parametrize("protocol", range(6))
def test_other_types_become_json(protocol: int) -> None:
    value = {
        "tuple": (1, (2,)),
        "set": {3},
        "frozen": frozenset({4}),
        "bytes": b"five",
        "array": bytearray(b"six"),
        "day": datetime.date(2026, 1, 2),
        "hour": datetime.time(3, 4),
        "span": datetime.timedelta(seconds=5),
        "queue": collections.deque([7], 9),
        "big": 2**200,
        "inf": float("inf"),
        "half": "\ud800",
        8: "number",
        (9, "x"): "pair",
    }
    assert read_pickle(pickle.dumps(value, protocol), RECORDS) == {
        "tuple": [1, [2]],
        "set": [3],
        "frozen": [4],
        "bytes": "five",
        "array": "six",
        "day": "2026-01-02",
        "hour": "03:04:00",
        "span": "0:00:05",
        "queue": [7],
        "big": "an integer of 201 bits",
        "inf": "inf",
        "half": "?",
        "8": "number",
        "9, x": "pair",
    }


def test_depth_that_is_allowed() -> None:
    value: Any = []
    for _ in range(MAX_DEPTH - 1):
        value = [value]
    assert read_pickle(pickle.dumps(value), RECORDS) == value


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for head in (b"", b"\x80\x04", b"\x80\x02("):
        try:
            read_pickle(head + data, RECORDS)
        except FormatError:
            continue


def test_damage(tmp_path: Path) -> None:
    check_damaged(saved(tmp_path / "c.pkl", checkpoint()), "flow-agent", 150)


@pytest.mark.parametrize(
    ("sessions", "named"),
    [
        ({"one": "x"}, "session 'one'"),
        ({"one": {"history": {"role": "user"}}}, "history"),
        ({"one": {"history": ["x"]}}, "message 0"),
        ({"one": {"history": [{"role": "user", "content": 5}]}}, "content"),
        ({"one": {"history": [{"role": "user", "content": "x", "timestamp": "now"}]}}, "now"),
    ],
)
def test_what_is_no_history_is_named(tmp_path: Path, sessions: dict[str, Any], named: str) -> None:
    with pytest.raises(FormatError, match=named):
        imported(tmp_path, saved(tmp_path / "c.pkl", checkpoint(session_data=sessions)))


def test_a_pickle_that_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="holds a list"):
        imported(tmp_path, saved(tmp_path / "c.pkl", [1]))
