"""What was said before in an episode, against a plain search through all that was said."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop.traces.conversation import conversations as module
from learnloop.traces.conversation.conversations import Conversations

calls = st.lists(
    st.tuples(st.lists(st.sampled_from("abc"), max_size=6), st.none() | st.sampled_from("abc")), max_size=20
)


@given(calls)
def test_the_longest_beginning_that_was_said_is_found(rows: list[tuple[list[str], str | None]]) -> None:
    conversations, said = Conversations(), []
    for marks, answer in rows:
        shared = [next((n for n, (a, b) in enumerate(zip(each, marks, strict=False)) if a != b),
                       min(len(each), len(marks))) for each in said]  # fmt: skip
        assert conversations.begin(marks) == max(shared, default=0)
        conversations.end(marks, answer)
        said.append(marks if answer is None else [*marks, answer])


def test_calls_at_the_same_time_go_on_with_the_same_conversation() -> None:
    """Two branches, and a call that is recorded twice, by one instrument inside the other."""
    conversations = Conversations()
    conversations.end(["a"], "x")
    assert conversations.begin(["a", "x", "left"]) == 2
    assert conversations.begin(["a", "x", "right"]) == 2


def test_a_call_that_says_only_what_it_adds_is_noted_whole() -> None:
    conversations = Conversations()
    conversations.end(["a"], "x")
    conversations.go_on(2, ["b"], "y")
    assert conversations.begin(["a", "x", "b", "y", "c"]) == 4
    conversations.go_on(2, ["d"], None)
    assert conversations.begin(["a", "x", "d", "e"]) == 3


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KNOWN", 100)
    conversations = Conversations()
    marks: list[str] = []
    for number in range(500):
        assert conversations.begin([*marks, f"q{number}"]) == len(marks), "the one that goes on is still known"
        conversations.end([*marks, f"q{number}"], f"a{number}")
        marks += [f"q{number}", f"a{number}"]
    assert len(conversations._known) == 100


def test_many_conversations_cost_no_more_than_few() -> None:
    conversations = Conversations()
    for number in range(2_000):
        conversations.end(["system", f"q{number}"], f"a{number}")
    marks = ["system", *(f"m{number}" for number in range(200))]
    begun = time.thread_time()
    for _ in range(100):
        conversations.begin(marks)
    assert (time.thread_time() - begun) / 100 < 0.002
