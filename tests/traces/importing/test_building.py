"""Episodes of imported runs: what is known is kept, what is not known is not made up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from learnloop.core.errors import FormatError
from learnloop.core.records import Episode, EpisodeStatus, Record, Reward, Span
from learnloop.traces.conversation.messages import read_message, text_of
from learnloop.traces.conversation.steps import steps_of
from learnloop.traces.importing.building import EpisodeBuilder
from learnloop.traces.importing.reader import ItemReader, Source

FILE_TIME = datetime(2026, 5, 1, tzinfo=UTC)
SOURCE = Source("crew", "folder/file.json", "file.json", FILE_TIME)
CONVERSATION = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "sum 2 and 2"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "function": {"name": "add", "arguments": '{"a": 2, "b": 2}'}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "4"},
    {"role": "assistant", "content": "4"},
    {"role": "user", "content": "thanks"},
]


class Reader(ItemReader):
    format_name = "test"

    def read(self, item: Any) -> list[Record]:
        return []  # nothing is read here: the tests build by hand


def builder(**given: object) -> EpisodeBuilder:
    return EpisodeBuilder(Reader(SOURCE), "e1", **given)  # type: ignore[arg-type]


def parts(records: list[object]) -> tuple[Episode, list[Span], list[Reward]]:
    episode = records[0]
    assert isinstance(episode, Episode)
    spans = [each for each in records if isinstance(each, Span)]
    return episode, spans, [each for each in records if isinstance(each, Reward)]


def test_a_conversation_becomes_steps_with_their_tool_calls() -> None:
    made = builder(task_id="sums", attempt=2)
    made.conversation(map(read_message, CONVERSATION), model="m1")
    made.reward("solved", 1)
    episode, spans, rewards = parts(list(made.finish()))
    assert (episode.agent_id, episode.task_id, episode.attempt, episode.source) == ("crew", "sums", 2, "test")
    assert episode.status is EpisodeStatus.COMPLETED
    assert episode.terminated
    first, second = steps_of(spans)
    assert [text_of(each) for each in first.messages] == ["be brief", "sum 2 and 2"]
    assert [(call.name, call.arguments, call.result) for call in first.tool_calls] == [("add", {"a": 2, "b": 2}, "4")]
    assert first.tool_calls[0].duration_ms is None
    assert [each["role"] for each in second.messages] == ["tool"]
    assert [text_of(each) for each in episode.metadata["messages_after_last_answer"]] == ["thanks"]
    assert [(each.name, each.value, each.weight) for each in rewards] == [("solved", 1.0, 1.0)]
    assert {span.parent_id for span in spans} == {None, made.root_id}


def test_times_that_are_not_known_are_the_files_and_said_to_be() -> None:
    made = builder()
    made.conversation(map(read_message, CONVERSATION))
    episode, spans, _ = parts(list(made.finish()))
    assert episode.metadata["time_unknown"] is True
    assert episode.started_at == FILE_TIME
    starts = [span.started_at for span in spans[1:]]
    assert starts == sorted(set(starts))
    assert all(span.attributes["duration_unknown"] is True for span in spans[1:])


def test_known_times_are_kept() -> None:
    start = FILE_TIME - timedelta(days=3)
    made = builder(started_at=start)
    made.chat("m", [], None, started_at=start + timedelta(seconds=1), ended_at=start + timedelta(seconds=3))
    made.tool("f", None, None, started_at=start + timedelta(seconds=4), ended_at=start + timedelta(seconds=2))
    episode, (root, chat, tool), _ = parts(list(made.finish()))
    assert "time_unknown" not in episode.metadata
    assert (chat.ended_at - chat.started_at).total_seconds() == 2
    assert "duration_unknown" not in chat.attributes
    assert tool.ended_at == tool.started_at, "a clock that ran backwards"
    assert root.ended_at == episode.ended_at == start + timedelta(seconds=4)


def test_ids_are_the_same_each_time() -> None:
    def build() -> list[object]:
        made = builder()
        made.conversation(map(read_message, CONVERSATION))
        made.reward("solved", 0)
        return list(made.finish())

    assert build() == build()


def test_what_is_not_recorded_is_left_out() -> None:
    made = builder(metadata={"a": None, "b": 1})
    made.chat("", [], None, usage=None)
    episode, (_, chat), rewards = parts(list(made.finish(truncated=True, error="killed")))
    assert episode.metadata == {"b": 1, "time_unknown": True}
    assert "output" not in chat.attributes
    assert "usage" not in chat.attributes
    assert rewards == []
    assert (episode.status, episode.terminated, episode.truncated) == (EpisodeStatus.FAILED, False, True)


def test_a_missing_reward_is_none_and_never_zero() -> None:
    made = builder()
    made.reward("solved", None, reason="the grader crashed")
    _, _, (reward,) = parts(list(made.finish()))
    assert (reward.value, reward.reason) == (None, "the grader crashed")
    with pytest.raises(FormatError, match="'yes'"):
        made.reward("solved", "yes")  # type: ignore[arg-type]
