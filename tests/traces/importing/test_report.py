"""What an import says of a file: counts, and what the file does not say."""

from __future__ import annotations

from learnloop.core.records import Episode, EpisodeStatus, Record, Reward
from learnloop.traces.conversation.steps import steps_of
from learnloop.traces.importing.report import ImportReport, Tally
from tests.traces.conversation.test_steps import START, said, span


def report(*records: Record) -> ImportReport:
    tally = Tally()
    for record in records:
        tally.count([record])
    return tally.report("test", len(records), [], 0)


def episode(key: str = "e") -> Episode:
    return Episode(
        episode_id=key,
        trace_id="t",
        agent_id=f"of {key}",
        task_id=None,
        status=EpisodeStatus.COMPLETED,
        started_at=START,
    )


def reward(key: str, value: float | None, weight: float = 1.0) -> Reward:
    return Reward(reward_id=f"{key}{value}", episode_id=key, name="r", value=value, weight=weight, created_at=START)


def test_an_outcome_is_known_where_something_was_learned_of_it() -> None:
    found = report(
        episode("a"), reward("a", 0.0), episode("b"), reward("b", None), episode("c"), reward("c", 1.0, weight=0.0),
        reward("d", 1.0), episode("d"), reward("never seen", 1.0),
    )  # fmt: skip
    assert (found.num_episodes_with_outcome, found.num_episodes_without_reward) == (2, 2)
    assert found.num_records == {"episode": 4, "reward": 5}


def test_steps_are_model_calls_else_tool_calls() -> None:
    spans = [
        span("a", episode="x"), span("b", "execute_tool", episode="x"), span("c", episode="x"),
        span("d", "execute_tool", episode="y"), span("e", "custom", episode="z"),
    ]  # fmt: skip
    assert report(*spans).num_steps == 2 + 1
    assert report(*spans).num_model_calls_without_token_ids == 2


def test_a_call_that_two_instruments_recorded_counts_once() -> None:
    outer, inner = span("outer"), span("inner", parent="outer", output=[said("x")])
    other = [span("o2", episode="f"), span("i2", parent="o2", episode="f"), span("i3", parent="o2", episode="f")]
    for records in ([outer, inner, *other], [inner, outer, *reversed(other)]):
        assert report(*records).num_steps == 1 + 2
    assert len(steps_of([outer, inner])) == 1


def test_token_ids_are_missed_where_they_are_not() -> None:
    spans = [span("a", token_ids={"completion": [1]}), span("b")]
    assert report(*spans).num_model_calls_without_token_ids == 1
