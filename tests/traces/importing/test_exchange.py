"""learnloop.traces.importing.exchange: files come in whole, twice changes nothing, a bad line is named."""

from __future__ import annotations

import gzip
import io
import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from learnloop.core.errors import FormatError, NotFoundError, UsageError
from learnloop.core.records import Agent, Decision, Episode, EpisodeStatus, Event, Record, Reward, Span, Task
from learnloop.store import Store
from learnloop.traces.importing.exchange import export_records, import_file

GOALS = [
    {
        "timestamp": "2026-01-01T10:00:01Z",
        "goal": "clean",
        "action": "ls",
        "result": {"success": True, "output": "a", "execution_time_ms": 500},
    },
    {
        "timestamp": "2026-01-01T10:00:02+00:00",
        "goal": "clean",
        "action": "rm",
        "result": {"success": False, "error": "denied"},
        "metadata": {"pid": 7},
    },
    {"timestamp": "2026-01-01T10:00:03Z", "goal": "build", "action": "make", "result": {"success": True}},
    {"timestamp": "2026-01-01T10:00:04Z", "goal": "clean", "action": "ls", "result": {"success": True}},
    {"timestamp": "2026-01-01T10:00:04Z", "goal": "clean", "action": "ls", "result": {"success": True}},
]

RAG = {
    "trace_id": "r1",
    "timestamp": "2026-01-01T10:00:00Z",
    "prompt": "how many?",
    "intent": "count",
    "model_used": "m",
    "tool_executed": "sql",
    "rag_used": True,
    "conditions_evaluated": ["a"],
    "success": True,
    "duration_ms": 40,
}


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with Store.open(f"sqlite:///{tmp_path}/learnloop.db") as opened:
        yield opened


def write_lines(path: Path, lines: list[Any]) -> Path:
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + "\n")
    return path


def snapshot(store: Store) -> dict[str, list[Record]]:
    kinds: list[type[Record]] = [Agent, Task, Episode, Span, Decision, Reward, Event]
    return {kind.__name__: list(store.iterate(kind)) for kind in kinds}


def test_goal_traces_keep_their_goal_and_order(store: Store, tmp_path: Path) -> None:
    """F0.4: unrelated goals are never mixed into one episode, and anagrams are not one goal."""
    report = import_file(store, write_lines(tmp_path / "g.jsonl", GOALS), agent_id="shell")
    episodes = sorted(store.iterate(Episode), key=lambda episode: episode.started_at)
    assert [(episode.task_id, episode.attempt) for episode in episodes] == [("clean", 0), ("build", 0), ("clean", 1)]
    spans = {episode.episode_id: [] for episode in episodes}  # type: ignore[var-annotated]
    for span in store.iterate(Span):
        spans[span.episode_id].append((span.started_at, span.name))
    assert [[name for _, name in sorted(spans[each.episode_id])] for each in episodes] == [
        ["ls", "rm"],
        ["make"],
        ["ls", "ls"],
    ]
    assert report.num_records == {"span": 5, "reward": 5, "episode": 3}
    assert report.num_new == 13
    assert store.count(Decision) == 0  # what else could have been done is not in the file


def test_goal_outcome_is_on_its_own_step_only(store: Store, tmp_path: Path) -> None:
    """F0.4: the outcome of a step is a reward on that step's span, never part of what came before it."""
    import_file(store, write_lines(tmp_path / "g.jsonl", GOALS[:2]), agent_id="shell")
    by_name = {span.name: span for span in store.iterate(Span)}
    rewards = {reward.span_id: reward.value for reward in store.iterate(Reward)}
    assert rewards == {by_name["ls"].span_id: 1.0, by_name["rm"].span_id: 0.0}
    assert by_name["rm"].attributes == {"goal": "clean", "metadata": {"pid": 7}, "duration_unknown": True}
    assert by_name["ls"].ended_at - by_name["ls"].started_at == timedelta(milliseconds=500)
    assert by_name["ls"].ended_at == datetime(2026, 1, 1, 10, 0, 1, tzinfo=UTC)


def test_importing_twice_changes_nothing(store: Store, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "g.jsonl", GOALS)
    import_file(store, path, agent_id="shell")
    before = snapshot(store)
    assert import_file(store, path, agent_id="shell").num_new == 0
    assert snapshot(store) == before


def test_a_file_that_grew_adds_what_is_new(store: Store, tmp_path: Path) -> None:
    import_file(store, write_lines(tmp_path / "g.jsonl", GOALS[:4]), agent_id="shell")
    report = import_file(store, write_lines(tmp_path / "g.jsonl", GOALS), agent_id="shell")
    assert report.num_new == 2  # the last line repeats another and is still a step of its own
    assert store.count(Span) == 5
    assert store.count(Episode) == 3


def test_rag_reward_is_taken_when_it_comes(store: Store, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "r.jsonl", [RAG])
    report = import_file(store, path, agent_id="bot")
    assert report.num_episodes_without_reward == 1
    rewards = list(store.iterate(Reward))
    assert [(reward.name, reward.value, reward.weight) for reward in rewards] == [("success", 1.0, 0.0)]
    report = import_file(store, write_lines(path, [{**RAG, "reward": 0.8}]), agent_id="bot")
    assert (report.num_new, report.num_episodes_without_reward) == (1, 0)
    assert {reward.name: reward.value for reward in store.iterate(Reward)} == {"success": 1.0, "reward": 0.8}


def test_rag_spans(store: Store, tmp_path: Path) -> None:
    import_file(store, write_lines(tmp_path / "r.jsonl", [RAG]), agent_id="bot")
    spans = {span.operation: span for span in store.iterate(Span)}
    assert {span.trace_id for span in spans.values()} == {"r1"}
    assert spans["chat"].parent_id == spans["execute_tool"].parent_id == spans["invoke_agent"].span_id
    assert (spans["chat"].name, spans["execute_tool"].name) == ("m", "sql")


def test_bad_lines_are_named_and_left_out(store: Store, tmp_path: Path) -> None:
    lines = [
        GOALS[0],
        "{broken",
        "",
        {"goal": 3, "action": "x", "result": {"success": True}, "timestamp": "2026-01-01T00:00:00Z"},
        {**GOALS[2], "timestamp": "yesterday"},
        [1],
        '{"goal": "\ud800"}',
        {**GOALS[2], "result": {"success": "yes"}},
        GOALS[2],
    ]
    path = tmp_path / "g.jsonl"
    path.write_bytes(
        b"\n".join(x.encode("utf-8", "surrogatepass") if isinstance(x, str) else json.dumps(x).encode() for x in lines)
    )
    report = import_file(store, path, agent_id="shell")
    faults = {fault.line: fault.reason for fault in report.bad_lines}
    assert faults.keys() == {2, 4, 5, 6, 7, 8}
    assert report.num_bad_lines == 6
    assert "$.goal" in faults[4]
    assert "'yesterday'" in faults[5]
    assert "not an object" in faults[6]
    assert "$.result.success" in faults[8]
    assert store.count(Span) == 2


def test_strict_imports_all_or_nothing(store: Store, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "g.jsonl", [*GOALS, "{broken"])
    with pytest.raises(FormatError, match=r"g\.jsonl, line 6: .*nothing was imported"):
        import_file(store, path, agent_id="shell", strict=True)
    assert all(rows == [] for rows in snapshot(store).values())
    assert import_file(store, write_lines(path, GOALS), agent_id="shell", strict=True).num_new == 13


def test_gzip_is_read_and_damaged_gzip_is_refused(store: Store, tmp_path: Path) -> None:
    data = gzip.compress(json.dumps(GOALS[0]).encode())
    path = tmp_path / "g.jsonl.gz"
    path.write_bytes(data)
    assert import_file(store, path, agent_id="shell").num_new == 3
    path.write_bytes(data[:-9])
    with pytest.raises(FormatError, match="damaged gzip"):
        import_file(store, path, agent_id="shell")


@pytest.mark.parametrize("content", ["", "\n\n", "no json\n"])
def test_a_file_without_json_has_no_format(store: Store, tmp_path: Path, content: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(content)
    with pytest.raises(FormatError, match="no JSON object"):
        import_file(store, path, agent_id="shell")


def test_unknown_formats_say_what_is_known(store: Store, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "x.jsonl", [{"a": 1}])
    with pytest.raises(FormatError, match=r"'a'.*learnloop: .*goal: .*rag: "):
        import_file(store, path, agent_id="shell")
    with pytest.raises(FormatError, match=r"'nothing'.*'learnloop', 'goal', 'rag'"):
        import_file(store, path, agent_id="shell", format_name="nothing")
    with pytest.raises(NotFoundError, match="no file"):
        import_file(store, tmp_path / "absent", agent_id="shell")


def test_an_endless_line_is_refused(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("learnloop.traces.importing.files.MAX_LINE_BYTES", 100)
    with pytest.raises(UsageError, match="longer than 100 bytes"):
        import_file(store, write_lines(tmp_path / "x.jsonl", ["{" + " " * 200]), agent_id="shell", format_name="goal")


def moment(second: int) -> datetime:
    return datetime(2026, 1, 1, 0, 0, second, 123456, tzinfo=UTC)


def own_records(agent: str = "a") -> list[Record]:
    return [
        Task(task_id=f"t-{agent}", created_at=moment(0), metadata={"k": [1, None, "ü"]}),
        Episode(
            episode_id=f"e-{agent}",
            trace_id="t",
            agent_id=agent,
            task_id=f"t-{agent}",
            status=EpisodeStatus.COMPLETED,
            started_at=moment(1),
        ),
        Span(
            span_id=f"s-{agent}",
            trace_id="t",
            episode_id=f"e-{agent}",
            parent_id=None,
            operation="chat",
            name="m",
            status="ok",
            started_at=moment(1),
            ended_at=moment(2),
        ),
        Decision(
            decision_id=f"d-{agent}",
            episode_id=f"e-{agent}",
            agent_id=agent,
            policy="p",
            algorithm=None,
            context={"x": 1.5},
            actions=["l", "r"],
            action="l",
            propensity=0.25,
            created_at=moment(2),
        ),
        Reward(
            reward_id=f"r-{agent}",
            episode_id=None,
            decision_id=f"d-{agent}",
            name="n",
            value=None,
            reason="late",
            created_at=moment(3),
        ),
    ]


def test_export_and_import_give_the_same_records(store: Store, tmp_path: Path) -> None:
    store.write(own_records("a"))
    store.write(own_records("b"))
    buffer = io.BytesIO()
    assert export_records(store, buffer) == 12
    path = tmp_path / "all.jsonl"
    path.write_bytes(buffer.getvalue())
    with Store.open(f"sqlite:///{tmp_path}/other.db") as other:
        report = import_file(other, path, agent_id="unused", strict=True)
        assert report.num_new == 12
        assert {**snapshot(other), "Event": []} == {**snapshot(store), "Event": []}


def test_export_of_one_agent(store: Store) -> None:
    store.write(own_records("a"))
    store.write(own_records("b"))
    buffer = io.BytesIO()
    assert export_records(store, buffer, agent_id="a") == 6
    assert b"-b" not in buffer.getvalue()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"action": "up"}, "'up' is not one of the actions 'l', 'r'"),
        ({"propensity": 0.0}, "propensity 0.0 is not above 0"),
        ({"propensity": 1.5}, "propensity 1.5"),
        ({"mask": [True]}, "mask has 1 entries for 2 actions"),
        ({"probabilities": [1.0]}, "probabilities has 1"),
        ({"surprise": 1}, "surprise"),
        ({"type": "cat"}, "'cat' is not one of 'agent'"),
    ],
)
def test_a_decision_that_contradicts_itself_is_refused(
    store: Store, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    store.write(own_records())
    buffer = io.BytesIO()
    export_records(store, buffer)
    lines = [json.loads(line) for line in buffer.getvalue().splitlines()]
    decision = next(line for line in lines if line.get("type") == "decision")
    path = write_lines(tmp_path / "bad.jsonl", [lines[0], {**decision, **change}])
    report = import_file(store, path, agent_id="x")
    assert report.num_bad_lines == 1
    assert message in report.bad_lines[0].reason


@pytest.mark.parametrize("name", ["execution-trace", "atif"])
def test_what_is_nothing_in_a_list_is_a_bad_line(store: Store, tmp_path: Path, name: str) -> None:
    good = {
        "execution-trace": {"user_query": "q", "final_response": "a", "tool_calls": []},
        "atif": {"schema_version": "ATIF-v1.5", "session_id": "s", "agent": {"name": "a", "version": "1"},
                 "steps": [{"step_id": 1, "source": "user", "message": "hi"}]},
    }[name]  # fmt: skip
    path = tmp_path / "x.json"
    path.write_text(json.dumps([good, None]), encoding="utf-8")
    report = import_file(store, path, agent_id="x", format_name=name)
    assert (report.num_bad_lines, [each.line for each in report.bad_lines]) == (1, [2])


def test_another_schema_is_refused(store: Store, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "x.jsonl", [{"schema": "learnloop.records/v9"}])
    with pytest.raises(FormatError, match=r"line 1: schema 'learnloop.records/v9' is not 'learnloop.records/v1'"):
        import_file(store, path, agent_id="x", format_name="learnloop")


def test_a_file_of_bad_lines_only_is_refused(store: Store, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "g.jsonl", [{**GOALS[0], "timestamp": "no"}, "{broken"])
    with pytest.raises(
        FormatError, match=r"g\.jsonl: no line can be read as goal, nothing was imported; line 1: .*'no'"
    ):
        import_file(store, path, agent_id="shell")
    assert all(rows == [] for rows in snapshot(store).values())


def test_damage_after_good_lines_says_what_was_imported(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("learnloop.traces.importing.exchange._BATCH", 100)
    rng = random.Random(0)
    lines = [json.dumps({**GOALS[0], "metadata": rng.random()}).encode() for _ in range(4_000)]
    data = gzip.compress(b"\n".join(lines))
    path = tmp_path / "g.jsonl.gz"
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(FormatError, match=r"damaged gzip file .*; [\d,]+00 new records were imported before, .* again"):
        import_file(store, path, agent_id="shell")
    held = store.count(Span) + store.count(Reward)
    assert held > 0
    path.write_bytes(data)
    assert import_file(store, path, agent_id="shell").num_new == 8_001 - held
    assert (store.count(Span), store.count(Episode)) == (4_000, 1)


@pytest.mark.parametrize("place", [10, 40, 300])
def test_gzip_with_wrong_bytes_is_refused(store: Store, tmp_path: Path, place: int) -> None:
    data = bytearray(gzip.compress(b"".join(json.dumps({**GOALS[0], "goal": f"{i:x}"}).encode() for i in range(300))))
    data[place : place + 16] = b"\xff" * 16
    (tmp_path / "g.gz").write_bytes(data)
    with pytest.raises(FormatError, match="damaged gzip"):
        import_file(store, tmp_path / "g.gz", agent_id="shell")


def test_a_byte_order_mark_is_skipped(store: Store, tmp_path: Path) -> None:
    data = b"\xef\xbb\xbf" + json.dumps(GOALS[0]).encode()
    (tmp_path / "g.jsonl").write_bytes(data)
    (tmp_path / "g.gz").write_bytes(gzip.compress(data))
    for name in ("g.jsonl", "g.gz"):
        assert import_file(store, tmp_path / name, agent_id="shell").num_bad_lines == 0
    assert store.count(Span) == 1


@pytest.mark.parametrize(
    ("good", "change", "reason"),
    [
        (GOALS[0], {"result": {"success": True, "execution_time_ms": -1}}, "$.result.execution_time_ms"),
        (GOALS[0], {"result": {"success": True, "execution_time_ms": 10**17}}, "no time that can be kept"),
        (GOALS[0], {"goal": ""}, "$.goal"),
        (GOALS[0], {"action": ""}, "$.action"),
        (GOALS[0], {"timestamp": "0001-01-01T00:00:00+05:00"}, "RFC 3339"),
        (RAG, {"duration_ms": -40}, "$.duration_ms"),
        (RAG, {"duration_ms": 10**17}, "no time that can be kept"),
        (RAG, {"trace_id": ""}, "$.trace_id"),
        (RAG, {"reward": 1e101}, "products up to 1e+100"),
    ],
)
def test_a_value_that_cannot_be_is_a_bad_line(
    store: Store, tmp_path: Path, good: dict[str, Any], change: dict[str, Any], reason: str
) -> None:
    path = write_lines(tmp_path / "x.jsonl", [good, {**good, **change}])
    report = import_file(store, path, agent_id="x")
    assert [fault.line for fault in report.bad_lines] == [2]
    assert reason in report.bad_lines[0].reason


@pytest.mark.parametrize(("value", "weight"), [(1e60, -1e60), (1e300, 1e300), (-1.1e100, 1.0)])
def test_a_reward_that_cannot_be_learned_from_is_a_bad_line(
    store: Store, tmp_path: Path, value: float, weight: float
) -> None:
    reward = {"type": "reward", "reward_id": "r", "episode_id": "e", "name": "n", "created_at": "2026-01-01T00:00:00Z"}
    lines = [{"schema": "learnloop.records/v1"}, {**reward, "value": value, "weight": weight}]
    report = import_file(store, write_lines(tmp_path / "x.jsonl", lines), agent_id="x")
    assert "products up to 1e+100" in report.bad_lines[0].reason
    lines[1] = {**reward, "value": 1e60, "weight": 1e40}
    assert import_file(store, write_lines(tmp_path / "x.jsonl", lines), agent_id="x").num_new == 1
