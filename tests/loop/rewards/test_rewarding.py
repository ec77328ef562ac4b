"""One way from a finished task to stored rewards and shares."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from learnloop.core.attempts import Attempt, AttemptStep, Score
from learnloop.core.errors import FormatError, NotFoundError, UsageError
from learnloop.core.records import TOTAL, Decision, Episode, EpisodeStatus, Record, Reward, RewardShare
from learnloop.decisions import logged_samples
from learnloop.loop import Settings, Workspace
from learnloop.loop.rewards.attempts import TaskTruth
from learnloop.loop.rewards.rewarding import RewardProcess, process_task_completion
from learnloop.loop.rewards.scoring import (
    EpisodeChoice,
    calibrate,
    count_episodes,
    list_components,
    read_truths,
    regrade,
    score_episodes,
    try_examples,
)
from learnloop.loop.traces.stats import trace_stats
from learnloop.loop.workspace.settings import RewardSettings
from learnloop.rewards.scoring.engine import RewardEngine
from learnloop.rewards.scoring.function import reward_function
from learnloop.rewards.sharing.ledger import RewardLedger
from learnloop.traces.datasets.building import build_dataset
from learnloop.traces.datasets.groups import count_groups
from learnloop.traces.datasets.logged_episodes import NOT_COMPUTED
from learnloop.traces.exporting.episodes import episode_records
from learnloop.traces.exporting.execution_trace import to_execution_trace
from tests.loop.recorded_runs import T0, answered, episode, span


@reward_function("half", needs=("output",))
def half(attempt: Attempt) -> float:
    """Half of it is always right."""
    return 0.5


@reward_function("silent")
def silent(attempt: Attempt) -> Score:
    """It never knows."""
    return Score.unknown("nobody knows")


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    settings = Settings(home=tmp_path, database=f"sqlite:///{tmp_path}/l.db", origins={})
    with Workspace(settings, create=True) as opened:
        yield opened


def engine(**weights: float) -> RewardEngine:
    return RewardEngine(weights, {"half": half, "silent": silent})


CORRECT = RewardSettings(weights={"correctness": 1.0})
QA = {"task_type": "qa", "expected": "Paris"}


def rewards_of(workspace: Workspace, episode_id: str) -> dict[str, tuple[float | None, float]]:
    found: dict[str, tuple[float | None, float]] = {}
    for each in workspace.store.iterate(Reward, where={"episode_id": episode_id}):
        found[each.name] = (each.value, each.weight)
    return found


def shown_reward(workspace: Workspace, episode_id: str) -> float | None:
    return next(row.reward for row in workspace.episodes.list() if row.episode.episode_id == episode_id)


def test_a_result_that_is_told_as_data(workspace: Workspace) -> None:
    """F4.10: the described original's process_task_completion stands in its document only."""
    result = {
        **QA,
        "output": "Paris",
        "agents": ["a", "b"],
        "steps": [{"agent_id": "a"}, {"agent_id": "b"}, {"agent_id": "b"}],
    }
    done = process_task_completion(workspace, "capital", result, process=RewardProcess(workspace, CORRECT))
    assert (done.raw_reward, done.shaped_reward, done.rewards) == (1.0, 1.0, [])
    assert [(each.agent_id, each.step, round(each.credit_assigned, 12)) for each in done.shares] == [
        ("a", 0, round(1 / 3, 12)),
        ("b", 1, round(1 / 3, 12)),
        ("b", 2, round(1 / 3, 12)),
    ]
    stored = list(workspace.store.iterate(RewardShare))
    assert [each.reward_share_id for each in stored] == [each.reward_share_id for each in done.shares]
    assert {each.task_id for each in stored} == {"capital"}
    kinds = [event.kind for event in workspace.store.events()]
    assert kinds.count("reward.shared") == 1


def test_an_episode_gets_its_reward_and_its_parts_as_metrics(workspace: Workspace) -> None:
    workspace.store.write(answered("e", "capital of France?", "Paris", "capital", metadata=QA))
    process = RewardProcess(workspace, engine=engine(half=1.0, correctness=3.0))
    (found,) = score_episodes(workspace, EpisodeChoice(episodes=["e"]), process)
    assert found.scored.total == pytest.approx((0.5 + 3.0) / 4.0)
    assert rewards_of(workspace, "e") == {"total": (0.875, 1.0), "half": (0.5, 0.0), "correctness": (1.0, 0.0)}
    assert shown_reward(workspace, "e") == 0.875
    (share,) = RewardLedger(workspace.store).newest("e")
    assert (share.agent_id, share.span_id, share.raw_reward, share.credit_assigned) == ("solver", "e-1", 0.875, 0.875)
    assert share.metadata["scores"] == {"half": 0.5, "correctness": 1.0}


def test_what_cannot_be_scored_is_unknown_and_shared_with_nobody(workspace: Workspace) -> None:
    workspace.store.write(answered("e", "q", "a", "t"))
    process = RewardProcess(workspace, engine=engine(half=1.0, silent=1.0))
    (found,) = score_episodes(workspace, EpisodeChoice(agent="solver"), process)
    assert found.scored.total is None
    assert rewards_of(workspace, "e") == {"total": (None, 1.0), "half": (0.5, 0.0), "silent": (None, 0.0)}
    assert shown_reward(workspace, "e") is None
    assert list(workspace.store.iterate(RewardShare)) == []
    reasons = {each.name: each.reason for each in workspace.store.iterate(Reward)}
    assert "nobody knows" in str(reasons["total"])


def test_scoring_again_replaces_the_reward_and_keeps_the_history(workspace: Workspace) -> None:
    workspace.store.write(answered("e", "q", "Paris", "t", metadata=QA))
    for chosen in (engine(half=1.0), engine(correctness=1.0)):
        list(score_episodes(workspace, EpisodeChoice(episodes=["e"]), RewardProcess(workspace, engine=chosen)))
    assert shown_reward(workspace, "e") == 1.0
    assert [each.credit_assigned for each in workspace.store.iterate(RewardShare)] == [0.5, 1.0]
    assert [each.credit_assigned for each in RewardLedger(workspace.store).newest("e")] == [1.0]
    assert list(RewardLedger(workspace.store).audit()) == []


def test_shaping_and_credit_are_those_of_the_settings(workspace: Workspace) -> None:
    settings = RewardSettings(
        weights={"correctness": 1.0},
        credit="discounted",
        credit_options={"gamma": 0.5},
        potential="milestones",
        gamma=1.0,
    )
    steps = [{"agent_id": "a"}, {"agent_id": "a"}]
    result = {**QA, "output": "Paris", "agents": ["a"], "steps": steps, "metadata": {"milestones": ["search"]}}
    done = process_task_completion(workspace, "t", result, process=RewardProcess(workspace, settings))
    assert (done.raw_reward, done.shaped_reward) == (
        1.0,
        1.0,
    )  # nothing was reached at the start, an end has no potential
    assert [round(each.credit_assigned, 12) for each in done.shares] == [round(1 / 3, 12), round(2 / 3, 12)]
    assert {each.method for each in done.shares} == {"discounted"}


def test_a_dry_run_stores_nothing(workspace: Workspace) -> None:
    workspace.store.write(answered("e", "q", "Paris", "t", metadata=QA))
    before = workspace.store.count(Reward)
    (found,) = score_episodes(workspace, EpisodeChoice(task="t"), RewardProcess(workspace, CORRECT), dry_run=True)
    assert found.scored.total == 1.0
    assert (workspace.store.count(Reward), workspace.store.count(RewardShare)) == (before, 0)


def test_which_episodes_are_meant(workspace: Workspace) -> None:
    workspace.store.write(
        [*answered("e1", "q", "Paris", "t", metadata=QA), *answered("e2", "q", "Rome", "u", metadata=QA)]
    )
    assert count_episodes(workspace, EpisodeChoice()) == 2
    assert count_episodes(workspace, EpisodeChoice(task="u")) == 1
    list(score_episodes(workspace, EpisodeChoice(task="u"), RewardProcess(workspace, CORRECT)))
    assert shown_reward(workspace, "e2") == 0.0
    (left,) = score_episodes(workspace, EpisodeChoice(without_reward=True), RewardProcess(workspace, CORRECT))
    assert left.episode_id == "e1"
    with pytest.raises(NotFoundError, match="'no'"):
        list(score_episodes(workspace, EpisodeChoice(episodes=["no"]), RewardProcess(workspace, CORRECT)))


@pytest.mark.parametrize(
    "result",
    [
        {"output": 3},
        {"output": "x", "task_type": "poetry"},
        {"output": "x", "steps": [{"who": 1}]},
        {"answer": "x"},
        {"task_id": 1, "output": []},
    ],
)
def test_a_result_that_is_none_changes_nothing(workspace: Workspace, result: dict[str, Any]) -> None:
    with pytest.raises(FormatError, match="result of the task 't'"):
        process_task_completion(workspace, "t", result, process=RewardProcess(workspace, CORRECT))
    assert workspace.store.events() == []


def test_settings_that_cannot_be_used(workspace: Workspace) -> None:
    with pytest.raises(NotFoundError, match="corectness"):
        RewardProcess(workspace, RewardSettings(weights={"corectness": 1.0}))
    with pytest.raises(UsageError, match="'fair'"):
        RewardProcess(workspace, RewardSettings(credit="fair"))
    with pytest.raises(UsageError, match=r"the judge 'strict'.*allowed keys are.*'votes'"):
        RewardProcess(workspace, RewardSettings(judges={"strict": {"votes": "many"}}))


def test_credit_that_needs_what_fewer_agents_would_have_done(workspace: Workspace) -> None:
    settings = RewardSettings(weights={"half": 1.0}, credit="shapley")
    process = RewardProcess(workspace, settings, engine(half=1.0))
    attempt = Attempt(
        task_id="t", output="x", agents=["a", "b"], steps=[AttemptStep(agent_id="a"), AttemptStep(agent_id="b")]
    )
    with pytest.raises(UsageError, match="give value="):
        process.process_task_completion(attempt)
    assert workspace.store.count(RewardShare) == 0
    done = process.process_task_completion(attempt, value=lambda agents: 0.5 if "a" in agents else 0.0)
    assert {each.agent_id: each.credit_assigned for each in done.shares} == {"a": 0.5, "b": 0.0}


def test_truths_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text('{"task_id": "a", "task_type": "math", "expected": 3}\n\n{"task_id": "b"}\n')
    assert read_truths(file) == {"a": TaskTruth(task_id="a", task_type="math", expected=3), "b": TaskTruth(task_id="b")}
    for text, said in (
        ('{"task_id": "a"}\n' * 2, "line 2.*twice"),
        ("{", "line 1"),
        ('{"task_type": "math"}', "task_id"),
    ):
        file.write_text(text)
        with pytest.raises(FormatError, match=said):
            read_truths(file)
    with pytest.raises(NotFoundError):
        read_truths(tmp_path / "none.jsonl")


def test_examples_say_what_is_not_worth_what_it_should_be(tmp_path: Path) -> None:
    file = tmp_path / "attempts.jsonl"
    lines: list[dict[str, Any]] = [
        {"attempt": {**QA, "output": "Paris"}, "want": 1.0},
        {"attempt": {**QA, "output": "Rome"}, "want": 1.0},
        {"attempt": {"task_type": "qa", "output": "Rome"}, "want": None},
        {"attempt": {**QA, "output": "Rome"}},
    ]
    file.write_text("\n".join(msgspec.json.encode(line).decode() for line in lines))
    found = list(try_examples(engine(correctness=1.0), file))
    assert [each.is_wanted for each in found] == [True, False, True, True]
    assert [each.pays_for_nothing for each in found] == [False] * 4


def test_an_empty_answer_that_earns_more_is_told(tmp_path: Path) -> None:
    @reward_function("short", needs=("output",))
    def short(attempt: Attempt) -> float:
        return 1.0 / (1.0 + len(attempt.output or ""))

    file = tmp_path / "attempts.jsonl"
    file.write_text('{"attempt": {"output": "long"}}')
    (found,) = try_examples(RewardEngine({"short": 1.0}, {"short": short}), file)
    assert (found.scored.total, found.pays_for_nothing) == (0.2, True)


def test_what_is_not_known_earns_neither_more_nor_less_than_an_empty_answer(tmp_path: Path) -> None:
    @reward_function("empty", needs=("output",))
    def empty(attempt: Attempt) -> Score:
        return Score.unknown("it has words") if attempt.output else Score.of(0.5)

    file = tmp_path / "attempts.jsonl"
    file.write_text('{"attempt": {"output": "long"}}')
    (found,) = try_examples(RewardEngine({"empty": 1.0}, {"empty": empty}), file)
    assert (found.scored.total, found.pays_for_nothing) == (None, False)


def test_scores_are_held_against_labels(workspace: Workspace) -> None:
    right = {f"e{number}": number % 2 == 0 for number in range(40)}
    for name, is_right in right.items():
        workspace.store.write(answered(name, "q", "Paris" if is_right else "Rome", name, metadata=QA))
    list(score_episodes(workspace, EpisodeChoice(), RewardProcess(workspace, CORRECT)))
    with pytest.raises(NotFoundError, match="no episode has a label"):
        calibrate(workspace, "correctness")
    for name, is_right in right.items():
        workspace.labels.give(name, "good" if is_right or name == "e1" else "bad")  # one in forty differs
    report = calibrate(workspace, "correctness")
    assert report.num_pairs == 40
    assert report.agreement.value == pytest.approx(39 / 40)
    assert report.kappa.value == pytest.approx((39 / 40 - 0.5) / 0.5)  # 20 + 20 against 21 + 19: chance is 1/2
    with pytest.raises(NotFoundError, match="'style'"):
        calibrate(workspace, "style")


@reward_function("graded")
def graded(attempt: Attempt) -> float:
    """It is written beside the run."""
    return float(attempt.metadata["grade"])


def test_scores_and_labels_are_held_against_the_length_of_answers(workspace: Workspace) -> None:
    cases = [("a", 0.0, 1.0), ("aa", 0.5, 0.75), ("aaa", 0.25, 0.5), ("aaaa", 1.0, 0.25)]
    for number, (answer, grade, label) in enumerate(cases):
        workspace.store.write(answered(f"e{number}", "q", answer, metadata={"grade": grade}))
        workspace.labels.give(f"e{number}", label)
    workspace.store.write([episode("silent", metadata={"grade": 1.0})])  # no answer is recorded: of no length, not of 0
    workspace.labels.give("silent", 1.0)
    workspace.store.write(answered("unlabelled", "q", "a" * 100, metadata={"grade": 0.0}))
    process = RewardProcess(workspace, engine=RewardEngine({"graded": 1.0}, {"graded": graded}))
    list(score_episodes(workspace, EpisodeChoice(), process))
    report = calibrate(workspace, "graded")
    assert report.num_pairs == 5
    # The ranks of the lengths are 1 2 3 4, those of the scores 1 3 2 4: 1 - 6 (1 + 1) / (4 (16 - 1)).
    assert report.length_correlation.value == pytest.approx(0.8)
    assert report.label_length_correlation.value == pytest.approx(-1.0)
    assert "the judge's scores grow with length (0.80) more than the labels do (-1.00)" in report.warnings


def test_rewards_are_worked_out_again(workspace: Workspace) -> None:
    for number in range(20):
        workspace.store.write(answered(f"e{number}", "q", "Paris", f"t{number}", metadata=QA))
    process = RewardProcess(workspace, CORRECT)
    list(score_episodes(workspace, EpisodeChoice(), process))
    again = list(regrade(workspace, process, 1.0))
    assert len(again) == 20
    assert all(each.agrees for each in again)
    stored = workspace.store.get(Episode, "e3")
    forged = next(each for each in workspace.store.iterate(Reward, where={"episode_id": "e3", "name": TOTAL}))
    later = msgspec.structs.replace(forged, reward_id=f"{forged.reward_id}x", value=0.25)
    workspace.store.write([later])
    wrong = [each for each in regrade(workspace, process, 1.0) if not each.agrees]
    assert [(each.episode_id, each.stored, each.again) for each in wrong] == [(stored.episode_id, 0.25, 1.0)]
    some = [each.episode_id for each in regrade(workspace, process, 0.5, seed=1)]
    assert 3 <= len(some) <= 17
    assert some == [each.episode_id for each in regrade(workspace, process, 0.5, seed=1)]
    with pytest.raises(UsageError, match="share"):
        list(regrade(workspace, process, 0.0))


def test_what_can_be_used_is_listed(workspace: Workspace) -> None:
    found = {each.name: each for each in list_components(workspace)}
    assert found["correctness"].weight == 1.0
    assert all(each.description for each in found.values())


def test_one_that_cannot_be_read_or_shaped_does_not_stop_the_others(workspace: Workspace) -> None:
    milestones = {**QA, "milestones": ["search"]}
    workspace.store.write([
        *answered("e1", "q", "Paris", "t", metadata={**milestones, "task_type": "poetry"}),
        *answered("e2", "q", "Paris", "t", metadata=QA),
        *answered("e3", "q", "Paris", "t", metadata=milestones),
    ])  # fmt: skip
    process = RewardProcess(workspace, RewardSettings(weights={"correctness": 1.0}, potential="milestones"))
    found = {each.episode_id: each.scored for each in score_episodes(workspace, EpisodeChoice(), process)}
    assert [each.total for each in found.values()] == [None, None, 1.0]
    assert "'poetry'" in str(found["e1"].reason)
    assert "milestones are None" in str(found["e2"].reason)
    assert rewards_of(workspace, "e2") == {"total": (None, 1.0)}
    assert [each.agrees for each in regrade(workspace, process, 1.0)][::2] == [True, True]


def test_of_a_run_that_has_not_ended_nothing_is_stored(workspace: Workspace) -> None:
    workspace.store.write(
        answered("e", "q", "Paris", "t", metadata=QA, status=EpisodeStatus.RUNNING, terminated=False, ended_at=None)
    )
    for choice in (EpisodeChoice(), EpisodeChoice(episodes=["e", "e"])):
        (found,) = score_episodes(workspace, choice, RewardProcess(workspace, CORRECT))
        assert (found.scored.total, found.scored.reason) == (None, "the run has not ended yet")
    assert (workspace.store.count(Reward), workspace.store.count(RewardShare)) == (0, 0)


def test_many_are_not_scored_with_credit_that_needs_more_than_is_stored(workspace: Workspace) -> None:
    workspace.store.write(answered("e", "q", "Paris", "t", metadata=QA))
    process = RewardProcess(workspace, RewardSettings(weights={"correctness": 1.0}, credit="shapley"))
    with pytest.raises(UsageError, match="choose 'last', 'uniform' or 'discounted'"):
        list(score_episodes(workspace, EpisodeChoice(), process))
    assert workspace.store.count(Reward) == 0


def test_a_reward_is_of_an_episode_that_is_stored_and_of_its_task(workspace: Workspace) -> None:
    """Else the ledger has a reward of no run, which its audit finds and nobody can mend."""
    process = RewardProcess(workspace, CORRECT)
    result = {**QA, "output": "Paris", "episode_id": "e"}
    with pytest.raises(NotFoundError, match="no episode 'e'"):
        process_task_completion(workspace, "t", result, process=process)
    for record in answered("e", "q", "Paris", "t"):
        workspace.store.offer(record)  # queued, not stored yet
    with pytest.raises(UsageError, match="a try at the task 't', not at 'other'"):
        process_task_completion(workspace, "other", result, process=process)
    assert workspace.store.count(Reward) == 0
    assert process_task_completion(workspace, "t", result, process=process).raw_reward == 1.0
    assert list(RewardLedger(workspace.store).audit()) == []


def test_what_has_no_weight_is_not_loaded(workspace: Workspace) -> None:
    settings = RewardSettings(weights={"correctness": 1.0}, learned="newest", judges={"strict": {"votes": "many"}})
    assert list(RewardProcess(workspace, settings).engine.functions) == ["correctness"]
    for name in ("learned", "strict"):
        weighed = msgspec.structs.replace(settings, weights={"correctness": 1.0, name: 1.0})
        with pytest.raises((NotFoundError, UsageError), match=name):
            RewardProcess(workspace, weighed)


def test_the_total_stands_for_all_parts(workspace: Workspace) -> None:
    """Whoever else told a part, before or after: nothing is counted twice, in lists, in groups and for learners."""
    for number, answer in enumerate(("Paris", "Rome")):
        told = Reward(reward_id=f"m{number}", episode_id=f"e{number}", name="match", value=1.0, created_at=T0)
        workspace.store.write([*answered(f"e{number}", "q", answer, "t", metadata=QA), told])
    list(score_episodes(workspace, EpisodeChoice(), RewardProcess(workspace, CORRECT)))
    match = Reward(reward_id="m", episode_id="e1", name="match", value=1.0, source="inspect", created_at=T0)
    workspace.store.write([match])
    assert (shown_reward(workspace, "e0"), shown_reward(workspace, "e1")) == (1.0, 0.0)
    assert count_groups(workspace.store).num_mixed == 1


WORTH: list[tuple[str, float | None, str | None, float | None]] = [
    ("outcome", 1.0, None, 1.0),
    ("outcome and good", 1.0, "good", 1.0),
    ("outcome and bad", 1.0, "bad", 0.0),
    ("good", None, "good", 1.0),
    ("neither", None, None, None),
]
"""Runs that no reward function can score: what their file told, what a person said, and what they are worth."""


def test_what_a_run_was_worth_is_the_same_everywhere(workspace: Workspace) -> None:
    """``rewards calculate --all`` over imported outcomes once left 85 of 85 runs that could not be learned from."""
    for name, outcome, _, _ in WORTH:
        workspace.store.write([*acted(name), *told(name, outcome)])
    for name, _, said, _ in WORTH:
        if said is not None:
            workspace.labels.give(name, said, author="eva")
    scored = list(score_episodes(workspace, EpisodeChoice(), RewardProcess(workspace, CORRECT)))
    assert [each.scored.total for each in scored] == [None] * len(WORTH)  # nothing tells what was right
    expected = {name: value for name, *_, value in WORTH}
    known = {name: value for name, value in expected.items() if value is not None}

    assert {name: shown_reward(workspace, name) for name in expected} == expected
    figures = trace_stats(workspace).rewards
    assert (figures.num_known, figures.num_unknown, figures.mean) == (4, 1, 0.75)
    groups = count_groups(workspace.store)
    assert (groups.num_groups, groups.num_mixed) == (1, 1)
    dataset, report = build_dataset(workspace.store)
    assert (sorted(dataset.rewards.tolist()), dict(report.left_out)) == ([0.0, 1.0, 1.0, 1.0], {NOT_COMPUTED: 1})
    learned = {each.unit: each.reward for each in logged_samples(workspace.store, "solver", "tool")}
    assert learned == known
    shared = {each.episode_id: each.raw_reward for each in workspace.store.iterate(RewardShare)}
    assert shared == known
    exported = {each.episode.episode_id: to_execution_trace(each) for each in episode_records(workspace.store)}
    assert {name: trace["reward_score"] for name, trace in exported.items()} == {**expected, "good": None}
    assert exported["good"]["label"] is True


def acted(episode_id: str) -> list[Record]:
    """Returns a run in which a policy chose a tool, which was executed."""
    chosen = Decision(
        decision_id=f"d-{episode_id}", episode_id=episode_id, agent_id="solver", policy="tool", algorithm="squarecb",
        context={"x": 1.0}, actions=["read", "write"], action="read", propensity=0.5, created_at=T0,
    )  # fmt: skip
    return [episode(episode_id, task_id="t"), chosen, span(episode_id, 1, "execute_tool", "read")]


def told(episode_id: str, outcome: float | None) -> list[Record]:
    """Returns what a file told of how a run ended."""
    fields: dict[str, Any] = {"name": "reward", "value": outcome, "source": "tau-bench", "created_at": T0}
    return [] if outcome is None else [Reward(reward_id=f"r-{episode_id}", episode_id=episode_id, **fields)]
