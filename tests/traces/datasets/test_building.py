"""Data sets of traces: episodes whole and in order, no outcome in what came before it, nothing made up."""

from __future__ import annotations

import json
import math
import random
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from learnloop.core.datasets import Dataset
from learnloop.core.errors import ActionError, ContextError, NotFoundError, UsageError
from learnloop.core.records import Agent, EpisodeStatus, Record, Task
from learnloop.loop import Loop
from learnloop.nn.encoders.observation_encoder import ObservationEncoder
from learnloop.store import Store
from learnloop.traces.datasets.building import DatasetReport, build_dataset, dataset_from_file, split_episodes
from learnloop.traces.datasets.observations import observation_of
from learnloop.traces.importing.exchange import export_records, import_file
from tests.traces.logs import at, decision, episode, goal_line, reward, span, write_lines, write_records
from tests.waiting import costs_at_most

LOG = [
    goal_line(1, "clean", "ls", execution_time_ms=500, output="a b"),
    goal_line(2, "clean", "rm", success=False, error="denied"),
    goal_line(3, "clean", "sudo rm"),
    goal_line(4, "build", "make"),
    goal_line(5, "clean", "ls"),
]
TOOLS = ["read", "write"]


def records_of(tmp_path: Path, *records: Record, **options: Any) -> tuple[Dataset, DatasetReport]:
    return dataset_from_file(write_records(tmp_path / "log.jsonl", records), **options)


def same(first: Dataset, second: Dataset) -> bool:
    return first.fingerprint() == second.fingerprint() and tuple(first.goals) == tuple(second.goals)


# What it holds -------------------------------------------------------------------------------------------------------


def test_goal_traces(tmp_path: Path) -> None:
    """Consecutive lines of a goal are an episode; each success is the reward of its own step."""
    dataset, report = dataset_from_file(write_lines(tmp_path / "log.jsonl", LOG))
    assert tuple(dataset.goals) == ("clean", "build", "clean")
    assert dataset.action_names == ("ls", "make", "rm", "sudo rm")
    assert dataset.actions.tolist() == [0, 2, 3, 1, 0]
    assert dataset.episodes.tolist() == [0, 0, 0, 1, 2]
    assert dataset.rewards.tolist() == [1.0, 0.0, 1.0, 1.0, 1.0]
    assert dataset.terminated.tolist() == [False, False, True, True, True]
    assert not dataset.truncated.any()
    assert dataset.masks is None
    assert dataset.source == "log.jsonl"
    assert report.num_episodes == report.num_episodes_read == 3
    assert report.actions == {"ls": 2, "make": 1, "rm": 1, "sudo rm": 1}
    assert report.only_action is None
    assert report.left_out == {}


def test_observations_are_what_an_acting_agent_sees(tmp_path: Path) -> None:
    """The goal, the number of steps, the step before and how it came out; for a step, and for what it led to."""
    dataset, _ = dataset_from_file(write_lines(tmp_path / "log.jsonl", LOG))
    names = dataset.action_names or ()
    encoder = ObservationEncoder(dataset.spaces.observation)
    assert encoder.size == dataset.observations.shape[1]
    seen = [
        observation_of(dataset.spaces, names, goal="clean"),
        observation_of(dataset.spaces, names, goal="clean", num_steps=1, previous_action="ls", succeeded=True),
        observation_of(dataset.spaces, names, goal="clean", num_steps=2, previous_action="rm", succeeded=False),
        observation_of(dataset.spaces, names, goal="build"),
        observation_of(dataset.spaces, names, goal="clean"),
    ]
    expected = np.stack([encoder.encode(each) for each in seen])
    np.testing.assert_array_equal(dataset.observations, expected)
    np.testing.assert_array_equal(dataset.next_observations[:2], expected[1:3])
    last = observation_of(dataset.spaces, names, goal="clean", num_steps=3, previous_action="sudo rm", succeeded=True)
    np.testing.assert_array_equal(dataset.next_observations[2], encoder.encode(last))


def test_contexts(tmp_path: Path) -> None:
    """Numbers keep their size on a log scale, absent is not 0, other values are text."""
    actions = ["a", "b"]
    contexts: list[dict[str, Any]] = [{"size": -3, "kind": "pdf", "new": True}, {"size": 0.0, "more": [1]}, {}]
    steps = [decision(f"d{i}", "e", i, "a", actions, context=each) for i, each in enumerate(contexts)]
    dataset, _ = records_of(tmp_path, episode("e"), *steps, reward(1.0, "e"))
    encoder = ObservationEncoder(dataset.spaces.observation)
    for row, context, number in zip(dataset.observations, contexts, range(3), strict=True):
        previous = None if number == 0 else "a"
        seen = observation_of(dataset.spaces, actions, num_steps=number, previous_action=previous, context=context)
        np.testing.assert_array_equal(row, encoder.encode(seen))
    seen = observation_of(dataset.spaces, actions, context=contexts[0])
    assert seen["context"]["size"].tolist() == pytest.approx([-math.log(4), 1.0])
    assert seen["context"]["new"].tolist() == pytest.approx([math.log(2), 1.0])
    assert observation_of(dataset.spaces, actions, context={"size": 0})["context"]["size"].tolist() == [0.0, 1.0]
    assert observation_of(dataset.spaces, actions, context={})["context"]["size"].tolist() == [0.0, 0.0]
    with pytest.raises(ContextError, match=r"unknown features 'colour'.*'kind', 'more', 'new', 'size'"):
        observation_of(dataset.spaces, actions, context={"colour": 1})
    with pytest.raises(ContextError, match=r"'size' is 'big'.*a number"):
        observation_of(dataset.spaces, actions, context={"size": "big"})
    with pytest.raises(ActionError, match=r"'c'; the data set has 'a', 'b'"):
        observation_of(dataset.spaces, actions, previous_action="c")


def test_masks_come_from_what_was_allowed(tmp_path: Path) -> None:
    dataset, report = records_of(
        tmp_path,
        episode("e", terminated=False, truncated=True),
        decision("d0", "e", 0, "b", ["b", "a"]),
        decision("d1", "e", 1, "c", ["a", "b", "c"], mask=[True, False, True]),
        reward(1.0, "e"),
    )
    assert dataset.action_names == ("a", "b", "c")
    assert dataset.actions.tolist() == [1, 2]
    assert dataset.masks is not None
    assert dataset.masks.tolist() == [[True, True, False], [True, False, True]]
    assert dataset.next_masks is not None
    assert dataset.next_masks.tolist() == [[True, False, True], [True, True, True]]
    assert dataset.truncated.tolist() == [False, True]
    assert report.actions == {"a": 0, "b": 1, "c": 1}
    everything, _ = records_of(tmp_path, episode("e"), decision("d", "e", 0, "a", ["a", "b"]), reward(1.0, "e"))
    assert everything.masks is None


def test_rag_traces(tmp_path: Path) -> None:
    """The executed tool is the action, the prompt the goal; a run without a reward or a tool is left out."""
    line = {"intent": "find", "model_used": "m", "rag_used": True, "success": True, "duration_ms": 5}
    lines: list[Any] = [
        {
            **line,
            "trace_id": "a",
            "timestamp": "2026-01-01T00:00:02Z",
            "prompt": "who?",
            "tool_executed": "ask",
            "reward": 0.5,
        },
        {
            **line,
            "trace_id": "b",
            "timestamp": "2026-01-01T00:00:01Z",
            "prompt": "what?",
            "tool_executed": "web",
            "reward": 0.2,
        },
        {**line, "trace_id": "c", "timestamp": "2026-01-01T00:00:03Z", "prompt": "why?", "tool_executed": "web"},
        {**line, "trace_id": "d", "timestamp": "2026-01-01T00:00:04Z", "prompt": "when?", "reward": 1.0},
        "not json",
    ]
    dataset, report = dataset_from_file(write_lines(tmp_path / "rag.jsonl", lines))
    assert dataset.goals == ("what?", "who?")
    assert dataset.action_names == ("ask", "web")
    assert dataset.actions.tolist() == [1, 0]
    assert dataset.rewards.tolist() == [0.2, 0.5]
    assert sorted(report.left_out) == ["it has no reward", "it has no step: no decision and no executed tool"]
    assert report.num_bad_lines == 1
    assert report.bad_lines[0].line == 5


def test_steps_and_policy(tmp_path: Path) -> None:
    """Decisions where there are some, else tools; or what was asked for."""
    log = [
        episode("e"),
        decision("d0", "e", 1, "read", TOOLS),
        span("read", "e", 2, 3, ok=False),
        decision("d1", "e", 4, "big", ["big", "small"], policy="model"),
        span("chat", "e", 5, 6, operation="chat"),
        decision("d2", "e", 7, "write", TOOLS),
        span("write", "e", 8, 9),
        episode("f", 20),
        span("read", "f", 21, 22),
        reward(1.0, "e"),
        reward(2.0, "f"),
    ]
    auto, _ = records_of(tmp_path, *log)
    assert auto.action_names == ("big", "read", "small", "write")
    assert auto.actions.tolist() == [1, 0, 3, 1]
    assert auto.rewards.tolist() == [0.0, 0.0, 1.0, 2.0]
    spans, _ = records_of(tmp_path, *log, steps="spans")
    assert spans.action_names == ("read", "write")
    assert spans.actions.tolist() == [0, 1, 0]
    one, report = records_of(tmp_path, *log, policy="tool")
    assert one.action_names == ("read", "write")
    assert one.episodes.tolist() == [0, 0]
    assert report.left_out == {"it has no step: no decision and no executed tool": 1}
    seen = observation_of(one.spaces, TOOLS, num_steps=1, previous_action="read", succeeded=False)
    np.testing.assert_array_equal(one.observations[1], ObservationEncoder(one.spaces.observation).encode(seen))
    with pytest.raises(UsageError, match=r"policy 'tool' made decisions, and steps is 'spans'"):
        records_of(tmp_path, *log, policy="tool", steps="spans")
    with pytest.raises(UsageError, match=r"steps is 'all'; allowed are 'auto', 'decisions', 'spans'"):
        records_of(tmp_path, *log, steps="all")


def test_a_decision_outside_of_an_episode_is_one_of_one_step(tmp_path: Path, store: Store) -> None:
    log = [
        Agent(agent_id="agent", created_at=at(0)),
        decision("d0", None, 1, "a", ["a", "b"]),
        decision("d1", None, 2, "b", ["a", "b"]),
        decision("d2", None, 3, "b", ["a", "b"]),
        reward(0.5, decision_id="d0"),
        reward(0.25, decision_id="d1"),
    ]
    dataset, report = records_of(tmp_path, *log)
    assert dataset.rewards.tolist() == [0.5, 0.25]
    assert dataset.terminated.all()
    assert report.left_out == {"it has no reward": 1}
    store.write(log)
    assert same(build_dataset(store, agent_id="agent")[0], dataset)


# No outcome before its time ------------------------------------------------------------------------------------------

ACTIONS = st.sampled_from(["ls", "rm", "make"])
RESULTS = st.fixed_dictionaries(
    {"success": st.booleans()},
    optional={
        "output": st.text(max_size=5),
        "error": st.text(max_size=5),
        "execution_time_ms": st.integers(0, 10_000_000),
    },
)
EPISODES = st.lists(st.lists(st.tuples(ACTIONS, RESULTS), min_size=1, max_size=4), min_size=1, max_size=4)


def goal_log(episodes: list[list[tuple[str, dict[str, Any]]]], period: float) -> list[dict[str, Any]]:
    """Returns goal lines; each goal is another, and lines are ``period`` seconds apart."""
    lines = []
    for number, steps in enumerate(episodes):
        for action, result in steps:
            line = goal_line(period * len(lines), f"goal {number}", action)
            lines.append({**line, "result": result})
    return lines


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(episodes=EPISODES, changed=RESULTS, at_step=st.integers(0, 15), period=st.sampled_from([1.0, 0.0]))
def test_an_outcome_reaches_no_observation_before_it(
    tmp_path: Path,
    episodes: list[list[tuple[str, dict[str, Any]]]],
    changed: dict[str, Any],
    at_step: int,
    period: float,
) -> None:
    """F0.4: whatever came of step t, success, output, error and duration: what came up to t looks the same, bit by bit.

    With a period of 0 all lines have the same time, so that nothing but the order of the file puts them in order.
    """
    lines = goal_log(episodes, period)
    step = at_step % len(lines)
    before, _ = dataset_from_file(write_lines(tmp_path / "log.jsonl", lines))
    lines[step] = {**lines[step], "result": changed}
    after, _ = dataset_from_file(write_lines(tmp_path / "log.jsonl", lines))
    assert before.observations[: step + 1].tobytes() == after.observations[: step + 1].tobytes()
    assert before.actions.tolist() == after.actions.tolist()
    others = before.episodes != before.episodes[step]
    assert before.observations[others].tobytes() == after.observations[others].tobytes()
    assert before.next_observations[others].tobytes() == after.next_observations[others].tobytes()


@settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    oks=st.lists(st.booleans(), min_size=1, max_size=5),
    lengths=st.lists(st.floats(0, 3), min_size=5, max_size=5),
    step=st.integers(0, 4),
    by_decision=st.booleans(),
)
def test_an_outcome_of_a_recorded_step_reaches_no_observation_before_it(
    tmp_path: Path, oks: list[bool], lengths: list[float], step: int, by_decision: bool
) -> None:
    """F0.4, for decisions and executed tools: status, duration, output, rewards and what later contexts say of it."""
    step %= len(oks)

    def log(changed: bool) -> list[Record]:
        found: list[Record] = [episode("e", task_id="goal")]
        for number, (ok, length) in enumerate(zip(oks, lengths, strict=False)):
            is_changed = changed and number == step
            ok, length = ok is not is_changed, 2.5 - length / 2 if is_changed else length
            if by_decision:
                context = {"load": 1e9 if changed and number > step else 1.0, "last": str(changed and number > step)}
                found.append(decision(f"d{number}", "e", number, TOOLS[number % 2], TOOLS, context=context))
            attributes = {"output": str(changed)}
            found.append(
                span(TOOLS[number % 2], "e", number + 0.1, number + 0.1 + length, ok=ok, attributes=attributes)
            )
        return [*found, reward(float(changed), "e")]

    before, after = (records_of(tmp_path, *log(changed))[0] for changed in (False, True))
    assert before.observations[: step + 1].tobytes() == after.observations[: step + 1].tobytes()
    assert before.rewards.tolist() != after.rewards.tolist()


def test_a_result_counts_once_it_is_there(tmp_path: Path) -> None:
    """Of tools that run side by side nobody knows yet how they come out; afterwards the last one's result is known."""
    dataset, _ = records_of(
        tmp_path,
        episode("e", terminated=False, truncated=True),
        span("read", "e", 1, 5),
        span("write", "e", 2, 3, ok=False),
        span("read", "e", 4, 6),
        reward(1.0, "e"),
    )
    outcomes = dataset.spaces.observation.spaces  # type: ignore[union-attr]
    first = sum(
        ObservationEncoder(outcomes[name]).size for name in ("goal", "goal_digest", "num_steps", "previous_action")
    )
    rows = np.vstack([dataset.observations, dataset.next_observations[-1:]])
    assert rows[:, first : first + 3].argmax(axis=1).tolist() == [0, 0, 1, 2]


# Goals and order -----------------------------------------------------------------------------------------------------


@settings(
    deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data(), goal=st.text("abcd e", min_size=2, max_size=12))
def test_anagrams_look_different(tmp_path: Path, data: st.DataObject, goal: str) -> None:
    """F0.4: the seed's goal hash was the sum of the characters."""
    other = "".join(data.draw(st.permutations(list(goal))))
    if goal == other:
        return
    lines = [goal_line(1, goal, "ls"), goal_line(2, other, "ls")]
    dataset, _ = dataset_from_file(write_lines(tmp_path / "log.jsonl", lines))
    assert dataset.num_episodes == 2
    assert dataset.observations[0].tobytes() != dataset.observations[1].tobytes()


@settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(episodes=EPISODES, rng=st.randoms(use_true_random=False))
def test_shuffled_lines_make_the_same_data_set(
    tmp_path: Path, episodes: list[list[tuple[str, dict[str, Any]]]], rng: random.Random
) -> None:
    """F0.4: an episode does not begin wherever a line happens to stand; goals are not mixed."""
    lines = goal_log(episodes, 1.0)
    straight, _ = dataset_from_file(write_lines(tmp_path / "log.jsonl", lines))
    assert straight.num_episodes == len(episodes)
    rng.shuffle(lines)
    shuffled, _ = dataset_from_file(write_lines(tmp_path / "log.jsonl", lines))
    assert same(straight, shuffled)


def test_shuffled_records_of_episodes_side_by_side(tmp_path: Path) -> None:
    """Episodes that ran at the same time never mix, in whatever order their records come."""
    log: list[Record] = []
    for number in range(6):
        log.append(episode(f"e{number}", number, task_id=f"goal {number % 3}"))
        for step in range(4):
            name = f"d{number}-{step}"
            log.append(decision(name, f"e{number}", number + 2 * step, TOOLS[(number + step) % 2], TOOLS))
            log.append(reward(number + step / 10, f"e{number}", decision_id=name))
    straight, _ = records_of(tmp_path, *log)
    assert straight.goals == tuple(f"goal {number % 3}" for number in range(6))
    assert straight.rewards.tolist() == pytest.approx([n + s / 10 for n in range(6) for s in range(4)])
    for seed in range(5):
        random.Random(seed).shuffle(log)
        shuffled, _ = records_of(tmp_path, *log)
        assert same(straight, shuffled)


def test_lines_without_a_time_stay_where_they_are(tmp_path: Path) -> None:
    lines = [goal_line(5, "b", "ls"), {**goal_line(6, "b", "rm"), "timestamp": "soon"}, goal_line(1, "a", "ls"), "{"]
    dataset, report = dataset_from_file(write_lines(tmp_path / "log.jsonl", lines))
    assert dataset.goals == ("a", "b")
    assert [fault.line for fault in report.bad_lines] == [4, 2]


# Rewards -------------------------------------------------------------------------------------------------------------


def rewards_of(tmp_path: Path, *rewards: Record, **options: Any) -> list[float]:
    """Returns the rewards of an episode of two decisions, each followed by a tool."""
    log = [
        episode("e"),
        span("agent", "e", 0, 50, operation="invoke_agent", parent_id=None),
        decision("d0", "e", 1, "read", TOOLS),
        span("read", "e", 2, 3),
        decision("d1", "e", 4, "write", TOOLS),
        span("write", "e", 5, 6),
    ]
    return records_of(tmp_path, *log, *rewards, **options)[0].rewards.tolist()


def test_a_reward_of_the_episode_is_paid_at_its_last_step(tmp_path: Path) -> None:
    parts = [reward(1.0, "e"), reward(4.0, "e", "cost", weight=-0.5), reward(9.0, "e", "latency", weight=0.0)]
    assert rewards_of(tmp_path, *parts) == [0.0, -1.0]
    assert rewards_of(tmp_path, *parts, steps="spans") == [0.0, -1.0]


def test_rewards_of_steps(tmp_path: Path) -> None:
    """Those of decisions, and those of spans for the step that was on; those of the episode come on top."""
    own = [reward(0.5, "e", decision_id="d0"), reward(-0.5, "e", decision_id="d1")]
    of_spans = [reward(0.5, "e", span_id="e-read-2"), reward(-0.5, "e", span_id="e-write-5")]
    assert rewards_of(tmp_path, *own) == [0.5, -0.5]
    assert rewards_of(tmp_path, *of_spans) == [0.5, -0.5]
    assert rewards_of(tmp_path, *of_spans, steps="spans") == [0.5, -0.5]
    assert rewards_of(tmp_path, *own, steps="spans") == [0.5, -0.5]
    assert rewards_of(tmp_path, *own, *of_spans) == [1.0, -1.0]
    both = [*own, reward(2.0, "e")]
    assert rewards_of(tmp_path, *both) == [0.5, 1.5]
    assert rewards_of(tmp_path, *both, rewards="episode") == [0.0, 2.0]
    assert rewards_of(tmp_path, *both, rewards="steps") == [0.5, -0.5]
    assert rewards_of(tmp_path, reward(2.0, "e", span_id="e-agent-0")) == [0.0, 2.0]


def test_a_part_that_is_given_again_replaces_the_old_one(tmp_path: Path) -> None:
    """As everywhere: the last value counts, and one that could not be computed changes nothing."""
    assert rewards_of(tmp_path, reward(1.0, "e"), reward(0.25, "e"), reward(None, "e")) == [0.0, 0.25]


def test_a_total_stands_for_all_parts_of_what_it_is_for(tmp_path: Path) -> None:
    total, outcome = reward(0.25, "e", "total"), reward(1.0, "e", "outcome")
    assert rewards_of(tmp_path, total, outcome, reward(None, "e", "match")) == [0.0, 0.25]
    own = [reward(0.5, "e", decision_id="d0"), reward(-0.5, "e", "total", decision_id="d1")]
    assert rewards_of(tmp_path, *own, reward(9.0, "e", decision_id="d1"), total, outcome) == [0.5, -0.25]


def test_an_unknown_total_leaves_the_outcome(tmp_path: Path) -> None:
    """As ``learnloop rewards calculate`` leaves it where nothing tells what was right: 85 of 85 runs, once."""
    outcome = reward(1.0, "e", "outcome")
    assert rewards_of(tmp_path, outcome, reward(None, "e", "total")) == [0.0, 1.0]
    assert rewards_of(tmp_path, reward(None, "e"), reward(-0.25, "e", "cost")) == [0.0, -0.25]


def test_a_label_stands_for_the_whole(tmp_path: Path) -> None:
    outcome, good = reward(1.0, "e", "outcome"), reward(1.0, "e", "label")
    assert rewards_of(tmp_path, outcome, good) == [0.0, 1.0]
    assert rewards_of(tmp_path, outcome, reward(0.0, "e", "label")) == [0.0, 0.0]
    assert rewards_of(tmp_path, reward(0.25, "e", "total"), good) == [0.0, 1.0]


def test_a_default_counts_where_nothing_else_is_known(tmp_path: Path) -> None:
    defaults = [reward(-1.0, "e", "default", decision_id=each) for each in ("d0", "d1")]
    assert rewards_of(tmp_path, *defaults) == [-1.0, -1.0]
    assert rewards_of(tmp_path, *defaults, reward(0.5, "e")) == [0.0, 0.5]
    assert rewards_of(tmp_path, *defaults, reward(0.5, "e", decision_id="d1")) == [-1.0, 0.5]


@pytest.mark.parametrize(
    ("rewards", "reason"),
    [
        ([], "it has no reward"),
        ([reward(1.0, "e", weight=0.0)], "it has no reward"),
        ([reward(1.0, "e", decision_id="d0")], "a step has no reward while others have"),
        ([reward(1.0, "e", decision_id="d0"), reward(1.0, "e")], "a step has no reward while others have"),
        ([reward(None, "e"), reward(None, "e", "cost")], "its reward, or that of a step, could not be computed"),
        ([reward(1.0, "e", decision_id="d0"), reward(None, "e", decision_id="d1")], "its reward, or that of a step, c"),
    ],
)
def test_a_missing_reward_is_not_zero(tmp_path: Path, rewards: list[Record], reason: str) -> None:
    with pytest.raises(UsageError, match=rf"log\.jsonl can be learned from; 1 were read.*1: {reason}.*a reward"):
        rewards_of(tmp_path, *rewards)


def test_rewards_of_other_policies_count_for_them_only(tmp_path: Path) -> None:
    log = [
        episode("e"),
        decision("d0", "e", 1, "read", TOOLS),
        decision("d1", "e", 4, "big", ["big"], policy="model"),
        reward(0.5, "e", decision_id="d0"),
        reward(9.0, "e", decision_id="d1"),
    ]
    assert records_of(tmp_path, *log, policy="tool")[0].rewards.tolist() == [0.5]


# Ends, and what is left out ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "terminated"),
    [
        ({"terminated": True}, True),
        ({"terminated": False}, True),
        ({"terminated": False, "truncated": True}, False),
        ({"terminated": True, "truncated": True}, True),
        ({"status": EpisodeStatus.FAILED, "terminated": True}, True),
        ({"status": EpisodeStatus.FAILED, "terminated": False, "truncated": True}, False),
        ({"status": EpisodeStatus.FAILED, "terminated": False}, False),
    ],
)
def test_an_episode_ends_in_one_way(tmp_path: Path, fields: dict[str, Any], terminated: bool) -> None:
    """F0.4: never terminated and truncated at once."""
    log = [episode("e", **fields), span("read", "e", 1, 2), span("read", "e", 3, 4), reward(1.0, "e")]
    dataset, report = records_of(tmp_path, *log)
    assert dataset.terminated.tolist() == [False, terminated]
    assert dataset.truncated.tolist() == [False, not terminated]
    assert report.only_action == "read"


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    running = {"status": EpisodeStatus.RUNNING, "terminated": False, "ended_at": None}
    forbidden = decision("d", "forbidden", 1, "read", TOOLS, mask=[False, True])
    log = [
        episode("good"),
        span("read", "good", 1, 2),
        episode("running", **running),
        span("read", "running", 1, 2),
        episode("ended", **running),
        span("read", "ended", 1, 2),
        episode("ended"),
        episode("idle"),
        span("read", "unknown", 1, 2),
        episode("forbidden"),
        forbidden,
        *[reward(1.0, name) for name in ("good", "running", "ended", "idle", "unknown", "forbidden")],
    ]
    dataset, report = records_of(tmp_path, *log)
    assert dataset.num_episodes == report.num_episodes == 2
    assert report.num_episodes_read == 6
    assert report.left_out == {
        "it has not ended": 1,
        "it has no step: no decision and no executed tool": 1,
        "its steps have no episode record": 1,
        "it took an action that its own mask forbids": 1,
    }


def test_an_empty_log_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="0 were read, and left out for these reasons: there were none"):
        records_of(tmp_path, Agent(agent_id="agent", created_at=at(0)))
    with pytest.raises(NotFoundError, match=r"nothing\.jsonl"):
        dataset_from_file(tmp_path / "nothing.jsonl")


# Another file, encoded as the first ----------------------------------------------------------------------------------


def test_like(tmp_path: Path) -> None:
    first = [
        episode("e"),
        *(decision(f"d{i}", "e", i, a, ["a", "b", "c"], context={"n": i}) for i, a in enumerate("abc")),
        reward(1.0, "e"),
    ]
    second = [episode("f"), decision("x", "f", 1, "b", ["b", "c"], context={}), reward(1.0, "f")]
    one, _ = records_of(tmp_path, *first)
    two, report = records_of(tmp_path, *second, like=one)
    assert two.spaces == one.spaces
    assert two.action_names == one.action_names
    assert two.actions.tolist() == [1]
    assert report.actions == {"a": 0, "b": 1, "c": 0}
    stranger = [episode("f"), decision("x", "f", 1, "z", ["z", "y", "a"]), reward(1.0, "f")]
    with pytest.raises(ActionError, match=r"the actions 'y', 'z', which the data set of log\.jsonl does not know"):
        records_of(tmp_path, *stranger, like=one)
    odd = [episode("f"), decision("x", "f", 1, "b", ["b"], context={"m": 1}), reward(1.0, "f")]
    with pytest.raises(ContextError, match=r"unknown features 'm'"):
        records_of(tmp_path, *odd, like=one)
    with pytest.raises(UsageError, match="was not made of traces"):
        records_of(tmp_path, *second, like=replace(one, action_names=None))


def test_too_many_features(tmp_path: Path) -> None:
    context = {f"f{number}": number for number in range(65)}
    with pytest.raises(ContextError, match=r"65 features.*at most 64"):
        records_of(tmp_path, episode("e"), decision("d", "e", 1, "a", ["a"], context=context), reward(1.0, "e"))


# Stores --------------------------------------------------------------------------------------------------------------


def test_a_store_gives_what_its_files_give(store: Store, tmp_path: Path) -> None:
    """Imported or recorded, exported and read again: the same data set; only one agent's where that is asked for."""
    goals = write_lines(tmp_path / "goals.jsonl", [*LOG, *(goal_line(9, f"g{i % 3}", f"a{i % 7}") for i in range(40))])
    import_file(store, goals, agent_id="shell")
    store.write([Agent(agent_id="agent", created_at=at(0)), Task(task_id="t", created_at=at(0))])
    for number in range(300):
        name = f"e{number:04}"
        store.write(
            [
                episode(name, 100 + number, task_id="t" if number % 2 else None),
                span(
                    "agent",
                    name,
                    number,
                    999,
                    parent_id=None,
                    operation="invoke_agent",
                    attributes={"input": {"q": name}},
                ),
                decision(f"{name}-d", name, 100 + number, TOOLS[number % 2], TOOLS, context={"number": number}),
                span("read", name, 100 + number, 101 + number),
                reward(number / 10, name),
            ]
        )
    shell, _ = build_dataset(store, agent_id="shell")
    assert same(shell, dataset_from_file(goals)[0])
    reads: list[int] = []
    agent, report = build_dataset(store, agent_id="agent", progress=reads.append)
    assert report.num_episodes == sum(reads) == 300
    assert agent.goals[:2] == ('{"q":"e0000"}', "t")
    assert agent.source == "the agent agent"
    with (tmp_path / "export.jsonl").open("wb") as file:
        export_records(store, file)
    exported = tmp_path / "export.jsonl"
    sizes: list[int] = []
    assert same(agent, dataset_from_file(exported, agent_id="agent", progress=sizes.append)[0])
    assert sum(sizes) == exported.stat().st_size
    both, _ = build_dataset(store)
    assert both.num_steps == agent.num_steps + shell.num_steps
    assert same(both, dataset_from_file(exported)[0])


def test_what_a_loop_recorded(tmp_path: Path) -> None:
    with Loop("bot", home=tmp_path, seed=1) as loop:
        for number in range(8):
            with loop.episode(task=f"order-{number % 2}") as ep:
                choice = loop.choose("tool", TOOLS, context={"number": number})
                with loop.span(choice, "execute_tool"):
                    pass
                if number == 7:
                    ep.truncate()
                ep.reward(solved=number / 10)
        loop.flush()
        dataset, report = build_dataset(loop.workspace.store, agent_id="bot")
    assert dataset.goals == tuple(f"order-{number % 2}" for number in range(8))
    assert dataset.rewards.tolist() == pytest.approx([number / 10 for number in range(8)])
    assert dataset.truncated.tolist() == [False] * 7 + [True]
    assert dataset.action_names == ("read", "write")
    assert report.left_out == {}


# Parts ---------------------------------------------------------------------------------------------------------------


def test_split_by_episode_and_by_goal(tmp_path: Path) -> None:
    lines = [goal_line(3 * e + s, f"goal {e % 10}", "ab"[s % 2]) for e in range(50) for s in range(1 + e % 3)]
    dataset, _ = dataset_from_file(write_lines(tmp_path / "log.jsonl", lines))
    assert dataset.num_episodes == 50
    first, second = split_episodes(dataset, 0.8, seed=3)
    assert (first.num_episodes, second.num_episodes) == (40, 10)
    assert first.num_steps + second.num_steps == dataset.num_steps
    assert first.rewards.sum() + second.rewards.sum() == dataset.rewards.sum()
    assert first.source == "one part of log.jsonl"
    again, _ = split_episodes(dataset, 0.8, seed=3)
    assert same(first, again)
    assert not same(first, split_episodes(dataset, 0.8, seed=4)[0])
    one, other = split_episodes(dataset, 0.7, group="goal")
    assert one.num_episodes == 35
    assert not set(one.goals) & set(other.goals)
    assert sorted([*one.goals, *other.goals]) == sorted(dataset.goals)


@pytest.mark.parametrize(("share", "group"), [(0.0, "episode"), (1.0, "goal"), (math.nan, "goal"), (0.5, "task")])
def test_split_refuses_what_has_no_meaning(tmp_path: Path, share: float, group: Any) -> None:
    dataset, _ = dataset_from_file(write_lines(tmp_path / "log.jsonl", LOG))
    with pytest.raises(UsageError, match=r"(share|group) is "):
        split_episodes(dataset, share, group=group)


def test_split_needs_two_goals(tmp_path: Path) -> None:
    dataset, _ = dataset_from_file(write_lines(tmp_path / "log.jsonl", [LOG[0], *LOG[4:]]))
    with pytest.raises(UsageError, match="has one goal only"):
        split_episodes(dataset, 0.5, group="goal")


def long_log(path: Path, num_steps: int, output: str) -> Path:
    lines = (goal_line(n, f"goal {n // 10 % 997}", f"tool {n % 10}", output=output) for n in range(num_steps))
    with path.open("w") as file:
        file.writelines(f"{json.dumps(line)}\n" for line in lines)
    return path


@pytest.mark.slow
def test_100_000_steps_take_seconds(tmp_path: Path) -> None:
    """Measured: 6 s; the limit leaves room for a busy machine."""
    path = long_log(tmp_path / "log.jsonl", 100_000, "x" * 100)
    with costs_at_most(60):
        dataset, _ = dataset_from_file(path)
    assert dataset.num_steps == 100_000
    assert dataset.num_episodes == 10_000


def test_outputs_are_not_held_in_memory(tmp_path: Path) -> None:
    """A log of 40 MB, nearly all of it outputs: what is kept is the steps."""
    path = long_log(tmp_path / "log.jsonl", 2_000, "x" * 20_000)
    tracemalloc.start()
    dataset, _ = dataset_from_file(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert path.stat().st_size > 40e6
    assert peak < sum(array.nbytes for array in dataset.arrays().values()) + 5e6
