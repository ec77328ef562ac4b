"""The wire format on its own: events however they are cut, and streams that add up to the whole answer."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from learnloop.models.chat_wire import StreamedAnswer, event_data, read_answer, shortened
from tests.loopback import Answer, ToolCall
from tests.loopback_formats import chat_completion, chat_events

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
CALLS = st.builds(ToolCall, st.sampled_from("fg"), st.dictionaries(TEXTS, st.integers() | TEXTS, max_size=3), TEXTS)
ANSWERS = st.builds(
    Answer,
    TEXTS,
    st.lists(CALLS, max_size=3),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.sampled_from(["stop", "length", None]),
)


@given(ANSWERS)
def test_a_stream_adds_up(answer: Answer) -> None:
    events = "".join(chat_events(answer, {"model": "m", "stream_options": {"include_usage": True}}, 1)).encode()
    streamed = StreamedAnswer("here")
    text = ""
    for data in event_data(events.split(b"\n")):
        if data != b"[DONE]":
            text += streamed.add(data)
    assert streamed.is_finished
    assert text == answer.text
    whole = chat_completion(answer, {"model": "m"}, 1)
    if not answer.text and answer.tool_calls:
        whole["choices"][0]["message"]["content"] = None  # a stream cannot tell an empty text from none
    assert read_answer(streamed.encoded(), "here") == read_answer(json.dumps(whole).encode(), "here")


@given(st.lists(st.binary(min_size=1, max_size=20).filter(lambda data: b"\n" not in data and b"\r" not in data)))
def test_events(events: list[bytes]) -> None:
    written = b"".join(b": comment\r\nevent: x\ndata:" + b" " + data + b"\n\n" for data in events)
    assert list(event_data(written.split(b"\n"))) == events


def test_events_of_several_lines() -> None:
    lines = [b"data: a", b"data:b", b"", b"", b"id: 1", b"data", b"data: c"]
    assert list(event_data(lines)) == [b"a\nb", b"c"]


@given(st.binary(max_size=2000))
def test_shortened(data: bytes) -> None:
    text = shortened(data)
    assert len(text) <= 203
    assert "\n" not in text
