"""``ws.episodes``: pages by time, all rewards of an episode, files that are whole."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from learnloop.core.errors import NotFoundError, StoreError, UsageError
from learnloop.core.records import Agent, Decision, Episode, EpisodeStatus, Record, Reward, Span, SpanStatus
from learnloop.loop import Workspace, find_settings
from learnloop.loop.traces.reading import span_tree
from tests.waiting import PATIENCE_SECONDS

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(params=["sqlite", "postgresql"])
def workspace(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Workspace]:
    database = request.getfixturevalue("postgres_url") if request.param == "postgresql" else None
    with Workspace(find_settings(tmp_path / "home", database), create=True) as opened:
        yield opened


def episode(key: str, minute: int, agent: str = "a") -> Episode:
    started = START + timedelta(minutes=minute)
    return Episode(
        episode_id=key, trace_id=key, agent_id=agent, task_id=None, status=EpisodeStatus.RUNNING, started_at=started
    )


def pages(workspace: Workspace, limit: int, agent: str | None = None) -> list[list[str]]:
    found, cursor = [], None
    while True:
        page = workspace.episodes.list(agent=agent, limit=limit, after=cursor)
        found.append([row.episode.episode_id for row in page])
        cursor = page.next_cursor
        if cursor is None:
            return found


def test_the_newest_come_first_whatever_their_ids_are(workspace: Workspace) -> None:
    """Imported episodes have ids made of content, which say nothing about time; several may start at once."""
    started = {"f": 3, "0": 2, "c": 2, "9": 2, "a": 1, "é x": 0}
    workspace.store.write([episode(key, minute) for key, minute in started.items()])
    workspace.store.write([episode("other", 9, agent="b")])
    expected = sorted(started, key=lambda key: (started[key], key), reverse=True)
    for limit in (1, 2, 3, 6):
        found = pages(workspace, limit, agent="a")
        assert [key for page in found for key in page] == expected
        assert all(len(page) == limit for page in found[:-1])
    assert pages(workspace, 50)[0][0] == "other"


@pytest.mark.parametrize(
    "cursor", ["", "?", "019b2f3c-0000-7000-8000-000000000000", "YWJj", "MTIz!", "OTk5OTk5OTk5OTk5OTk5OTk5IHg="]
)
def test_a_cursor_that_is_none_is_refused(tmp_path: Path, cursor: str) -> None:
    with Workspace(find_settings(tmp_path / "home"), create=True) as workspace:
        with pytest.raises(UsageError, match="is not a valid cursor"):
            workspace.episodes.list(after=cursor)
        with pytest.raises(UsageError, match="limit is 0"):
            workspace.episodes.list(limit=0)


def test_what_was_counted_is_what_is_removed(tmp_path: Path) -> None:
    """Episodes that end while somebody makes up their mind stay: both calls are of one moment."""
    with Workspace(find_settings(tmp_path / "home"), create=True) as workspace:
        workspace.store.write([Agent(agent_id="a", created_at=START)])
        for minute in (60, 180):
            running = episode(f"e{minute}", 0)
            ended_at = START + timedelta(minutes=minute)
            ended = msgspec.structs.replace(running, status=EpisodeStatus.COMPLETED, ended_at=ended_at)
            workspace.store.write([running, ended])
        moment = START + timedelta(minutes=120)
        assert workspace.episodes.remove_old(moment, dry_run=True).num_episodes == 1
        assert workspace.episodes.remove_old(moment).num_episodes == 1
        assert [row.episode.episode_id for row in workspace.episodes.list()] == ["e180"]
        assert workspace.episodes.remove_old(timedelta(0)).num_episodes == 1


def test_who_redacts_is_told_how_far_it_is(workspace: Workspace) -> None:
    workspace.store.write([Agent(agent_id="a", created_at=START), episode("e", 0)])
    told: list[int] = []
    found = workspace.episodes.redact(patterns={"order": "ORD-[0-9]+"}, progress=told.append)
    assert sum(told) == found.num_records > 0
    assert workspace.episodes.redact(episodes=[], patterns={"order": "ORD-[0-9]+"}).num_records == 0


def reward(key: str, second: int, *, episode_id: str | None, decision_id: str | None = None) -> Reward:
    moment = START + timedelta(seconds=second)
    return Reward(reward_id=key, episode_id=episode_id, decision_id=decision_id, name="n", value=1.0, created_at=moment)


def test_rewards_of_an_episodes_decisions_are_its_own(workspace: Workspace) -> None:
    def decision(key: str, episode_id: str) -> Decision:
        return Decision(
            decision_id=key,
            episode_id=episode_id,
            agent_id="a",
            policy="p",
            algorithm=None,
            context={},
            actions=["l", "r"],
            action="l",
            propensity=0.5,
            created_at=START,
        )

    records: list[Record] = [episode("e", 0), episode("other", 0), decision("d", "e"), decision("d2", "other")]
    records += [
        reward("r3", 1, episode_id=None, decision_id="d"),
        reward("r2", 2, episode_id="e", decision_id="d"),
        reward("r1", 3, episode_id="e"),
        reward("r0", 0, episode_id=None, decision_id="d2"),
    ]
    workspace.store.write(records)
    assert [each.reward_id for each in workspace.episodes.show("e").rewards] == ["r3", "r2", "r1"]
    assert [each.reward_id for each in workspace.episodes.show("other").rewards] == ["r0"]


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[Workspace]:
    with Workspace(find_settings(tmp_path / "home"), create=True) as opened:
        opened.store.write([episode("e", 0)])
        yield opened


def test_a_link_is_followed_and_stays(filled: Workspace, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    for content in (None, "old"):
        target, link = tmp_path / "real" / f"{content}.jsonl", tmp_path / f"{content}.link"
        if content:
            target.write_text(content)
            target.chmod(0o640)
        link.symlink_to(target)
        assert filled.episodes.export(link).number == 2
        assert link.is_symlink()
        assert len(target.read_text().splitlines()) == 3
    assert stat.S_IMODE((tmp_path / "real" / "old.jsonl").stat().st_mode) == 0o640
    assert {path.name for path in (tmp_path / "real").iterdir()} == {"None.jsonl", "old.jsonl"}


def test_a_pipe_is_written_to_and_stays(filled: Workspace, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(pipe)
    for name in ("pipe", "link"):
        read: list[bytes] = []
        reader = threading.Thread(target=lambda into=read: into.append(pipe.read_bytes()))  # type: ignore[misc]
        reader.start()
        assert filled.episodes.export(tmp_path / name).number == 2
        reader.join(PATIENCE_SECONDS)
        assert len(read[0].splitlines()) == 3
        assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_what_cannot_be_written_is_said(filled: Workspace, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for place in (tmp_path / "nowhere" / "x", tmp_path / "home", tmp_path / "loop" / "x"):
        with pytest.raises(StoreError, match="cannot be written"):
            filled.episodes.export(place)


# ---------------------------------------------------------------------- narrowed lists


def listed(workspace: Workspace, limit: int = 2, **narrowed: Any) -> list[str]:
    """Returns the ids of all pages."""
    found: list[str] = []
    cursor = None
    while True:
        page = workspace.episodes.list(**narrowed, limit=limit, after=cursor)
        found += [row.episode.episode_id for row in page]
        cursor = page.next_cursor
        if cursor is None:
            return found


def part(key: str, episode_id: str, value: float | None, name: str = "n", **fields: Any) -> Reward:
    return Reward(reward_id=key, episode_id=episode_id, name=name, value=value, created_at=START, **fields)


def test_a_list_is_narrowed_by_time_source_and_reward(workspace: Workspace) -> None:
    """An unknown reward is neither small nor large; the last known part of each name counts, a span's never does."""
    store = workspace.store
    store.write([episode(key, minute) for minute, key in enumerate("abcdef")])
    store.write([msgspec.structs.replace(episode("imported", 9), source="tau-bench")])
    store.write([part("z", "a", 0.25)])
    store.write([part("a", "a", 0.75), part("b", "a", None), part("m", "a", 9.0, "metric", weight=0.0)])
    store.write([part("c", "b", 0.5), part("d", "b", -0.25, "cost", weight=2.0)])
    store.write([part("e", "c", None), part("f", "d", 5.0, span_id="s"), part("g", "e", 5.0, decision_id="x")])
    rows = workspace.episodes.list()
    assert {row.episode.episode_id: row.reward for row in rows if row.reward is not None} == {"a": 0.75, "b": 0.0}
    assert listed(workspace, reward_above=-1.0) == ["b", "a"]
    assert listed(workspace, reward_below=0.5) == ["b"]
    assert listed(workspace, reward_below=0.75) == ["b"]
    assert listed(workspace, reward_above=0.0, reward_below=1.0) == ["a"]
    assert listed(workspace, source="tau-bench") == ["imported"]
    assert listed(workspace, source="loop", since=START + timedelta(minutes=4)) == ["f", "e"]
    assert listed(workspace, since=START + timedelta(minutes=1), until=START + timedelta(minutes=3)) == ["c", "b"]


def work(key: str, episode_id: str, text: str, parent: str | None = None, **fields: Any) -> Span:
    given = {"operation": "chat", "name": "m", "status": SpanStatus.OK, "attributes": {"input": text}, **fields}
    times = {"started_at": START, "ended_at": START + timedelta(milliseconds=5)}
    return Span(span_id=key, trace_id=episode_id, episode_id=episode_id, parent_id=parent, **{**times, **given})


def test_a_search_is_paged_by_time_and_narrowed(workspace: Workspace) -> None:
    workspace.store.write([episode(f"e{minute}", minute, agent="ab"[minute % 2]) for minute in range(9)])
    texts = [work(f"s{n}", f"e{n}", f"refund of order {n}" if n % 3 else "nothing") for n in range(9)]
    workspace.store.write([*texts, work("lost", "no such episode", "refund")])
    for limit in (1, 2, 5, 9):
        assert listed(workspace, limit, search="refund ord*") == ["e8", "e7", "e5", "e4", "e2", "e1"]
    assert listed(workspace, search='"order 5"') == ["e5"]
    assert listed(workspace, search="refund", since=START + timedelta(minutes=5)) == ["e8", "e7", "e5"]
    page = workspace.episodes.list(agent="a", search="refund", limit=1)
    snippet = page[0].snippet
    assert snippet is not None
    assert (snippet.span_id, snippet.text, snippet.marks) == ("s8", "refund of order 8", [(0, 6)])
    assert listed(workspace, search="???") == []
    assert listed(workspace, search="") == []
    assert workspace.episodes.list()[0].snippet is None


def test_an_id_may_be_shortened_while_it_is_one(workspace: Workspace) -> None:
    workspace.store.write([episode(key, 0) for key in ("abc1", "abc2", "abd", "ab", "é")])
    assert workspace.episodes.find("abd") == workspace.episodes.find("abd"[:3]) == "abd"
    assert workspace.episodes.find("ab") == "ab"
    assert workspace.episodes.find("é") == "é"
    with pytest.raises(UsageError, match=r"'abc1', 'abc2'.*give more"):
        workspace.episodes.find("abc")
    for unknown in ("", "x", "abc12", "%", "ab_", "\0"):
        with pytest.raises(NotFoundError):
            workspace.episodes.find(unknown)


def test_a_skeleton_is_a_trace_without_what_was_said(workspace: Workspace) -> None:
    later = {"started_at": START + timedelta(seconds=1), "ended_at": START + timedelta(seconds=3)}
    usage = {"usage": {"input_tokens": 7, "output_tokens": 2}}
    workspace.store.write([episode("e", 0), work("root", "e", "x", operation="invoke_agent")])
    workspace.store.write([work("late", "e", "x", "root", **later, attributes=usage)])
    workspace.store.write(
        [work("tool", "e", "x", "root", operation="execute_tool", status=SpanStatus.ERROR, error="no")]
    )
    spans = workspace.spans.outline("e")
    assert [(span.span_id, span.status.value, span.error) for span in spans] == [
        ("root", "ok", None),
        ("tool", "error", "no"),
        ("late", "ok", None),
    ]
    assert [(depth, span.span_id) for depth, span in span_tree(spans)] == [(0, "root"), (1, "tool"), (1, "late")]
    assert (spans[2].started_at, spans[2].ended_at) == (later["started_at"], later["ended_at"])
    assert workspace.spans.usage("e") == {"late": usage["usage"]}
    assert [step.span_id for step in workspace.episodes.steps("e")] == ["late"]
    for read in (workspace.spans.outline, workspace.episodes.steps):
        with pytest.raises(NotFoundError):
            read("x")


def test_a_label_stands_for_the_whole_and_the_last_one_of_a_person_counts(workspace: Workspace) -> None:
    workspace.store.write([episode("e1", 0), work("s", "e1", "x"), work("other", "e2", "x")])
    first = workspace.labels.give("e1", "bad", note="wrong order")
    assert (first.name, first.value, first.source, first.reason, first.span_id) == (
        "label",
        0.0,
        "label",
        "wrong order",
        None,
    )
    workspace.labels.give("e", "GOOD")
    assert workspace.episodes.list()[0].reward == 1.0
    workspace.labels.give("e", "0.25")
    workspace.labels.give("e", 0.5, name="style")  # a part beside it
    workspace.labels.give("e", "good", span="s")
    assert workspace.episodes.list()[0].reward == 0.25
    workspace.labels.give("e", 0.75, author="eva")
    assert workspace.episodes.list()[0].reward == 0.5
    for value in ("fine", "", "2", "-0.1", "nan", "inf"):
        with pytest.raises(UsageError, match="good, bad or a number from 0 to 1"):
            workspace.labels.give("e", value)
    for wrong in ("nothing", "other"):
        with pytest.raises(NotFoundError, match="has no span"):
            workspace.labels.give("e", "good", span=wrong)
    with pytest.raises(UsageError, match="a reward"):
        workspace.labels.give("e", "good", name="")
