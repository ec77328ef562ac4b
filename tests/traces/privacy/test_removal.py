"""traces.privacy.removal and rewriting: what is removed or taken out is gone, from the files too; nothing else is."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from learnloop.core.records import (
    Agent,
    Decision,
    Episode,
    EpisodeStatus,
    Event,
    LabelRequest,
    LabelStatus,
    Record,
    Reward,
    RewardShare,
    Span,
    Task,
)
from learnloop.store import Store
from learnloop.store.queries.episodes import EpisodeQuery
from learnloop.testing.contracts.store_examples import T0, decision, episode, reward, span
from learnloop.traces.privacy.redaction import RedactionSettings, Redactor
from learnloop.traces.privacy.removal import Removal, count_removal, remove_episodes
from learnloop.traces.privacy.rewriting import redact_stored
from tests.traces.test_search import found

DAY = timedelta(days=1)
SECRET = "sk-abcdefGHIJKL0123456789xyz"
EMAIL = "eve@example.org"
CHANGED = {"task": 1, "episode": 2, "span": 1, "reward": 1, "share": 1, "label_request": 1}


def run(key: str, *, days: int = 0, status: EpisodeStatus = EpisodeStatus.COMPLETED, **fields: Any) -> list[Record]:
    """Returns an episode that ended so many days after T0, with one of everything."""
    end = None if status is EpisodeStatus.RUNNING else T0 + days * DAY
    given = {
        "trace_id": f"trace-{key}",
        "task_id": f"task-{key}",
        "started_at": T0 + days * DAY,
        "ended_at": end,
        **fields,
    }
    mine = {"episode_id": key, "created_at": T0 + days * DAY}
    times = {"started_at": T0 + days * DAY, "ended_at": T0 + days * DAY}
    return [
        episode(key, status, **given),
        span(f"{key}-1", episode_id=key, trace_id=f"trace-{key}", attributes={"input": f"words of {key}"}, **times),
        span(f"{key}-2", episode_id=None, trace_id=f"trace-{key}", **times),
        decision(f"{key}-d", **mine),
        reward(f"{key}-r", decision_id=None, **mine),
        reward(f"{key}-dr", decision_id=f"{key}-d", **{**mine, "episode_id": None}),
        share(f"{key}-s", **mine),
        request(f"{key}-q", **mine),
    ]


def share(key: str, **fields: Any) -> RewardShare:
    given = {"completion_id": key, "agent_id": "packer", "method": "uniform", **fields}
    return RewardShare(reward_share_id=key, raw_reward=1.0, shaped_reward=1.0, credit_assigned=1.0, **given)


def request(key: str, **fields: Any) -> LabelRequest:
    given = {"reason": "uncertain", "status": LabelStatus.OPEN, **fields}
    return LabelRequest(label_request_id=key, priority=0.5, **given)


def left(store: Store) -> dict[str, list[str]]:
    kinds: tuple[type[Record], ...] = (Episode, Span, Decision, Reward, RewardShare, LabelRequest, Task)
    return {kind.__name__: [getattr(each, kind.__struct_fields__[0]) for each in store.iterate(kind)] for kind in kinds}


def counts(removal: Removal) -> tuple[int, ...]:
    assert removal.num_shares == removal.num_label_requests == removal.num_episodes
    return (removal.num_episodes, removal.num_spans, removal.num_decisions, removal.num_rewards)


def test_an_episode_goes_with_all_that_is_its_own(store: Store) -> None:
    store.write([*run("a"), *run("b"), episode("c", EpisodeStatus.COMPLETED, trace_id="tc", task_id="task-b")])
    which = EpisodeQuery(ids=["a", "b"])
    assert found(store, "words") == ["a-1", "b-1"]
    before = left(store)
    planned = count_removal(store, EpisodeQuery(ids=["a"]))
    assert left(store) == before
    told: list[int] = []
    removed = remove_episodes(store, EpisodeQuery(ids=["a"]), progress=told.append)
    assert counts(planned) == counts(removed) == (1, 2, 1, 2)
    assert (removed.num_tasks, removed.scrubbed, told) == (1, True, [1])
    kept = {kind: [key for key in keys if not key.startswith("a") and key != "task-a"] for kind, keys in before.items()}
    assert left(store) == kept
    assert found(store, "words") == ["b-1"]
    event = next(each for each in store.iterate(Event) if each.kind == "episode.removed")
    assert event.subject == "a"
    assert event.payload == {
        "agent_id": "packer", "num_spans": 2, "num_decisions": 1, "num_rewards": 2, "num_shares": 1,
        "num_label_requests": 1,
    }  # fmt: skip
    assert counts(remove_episodes(store, which)) == (1, 2, 1, 2)
    assert left(store)["Task"] == ["task-b"]  # c is another try at it
    assert counts(remove_episodes(store, which)) == (0, 0, 0, 0)


def test_what_others_are_found_by_goes_after_all_of_them(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rewards that name a decision alone go with its episode, also where there are more than are looked for at once."""
    monkeypatch.setattr("learnloop.traces.privacy.removal._PAGE", 2)
    store.write([*run("a"), *run("b"), *(decision(f"d{number}", episode_id="a") for number in range(5))])
    store.write([reward(f"r{number}", episode_id=None, decision_id=f"d{number % 5}") for number in range(11)])
    assert counts(remove_episodes(store, EpisodeQuery(ids=["a"]))) == (1, 2, 6, 13)
    assert left(store)["Reward"] == ["b-dr", "b-r"]


def test_what_is_old_goes_and_what_runs_stays(store: Store) -> None:
    store.write(
        [*run("old"), *run("new", days=9), *run("going", status=EpisodeStatus.RUNNING), *run("other", agent_id="b")]
    )
    assert counts(count_removal(store, EpisodeQuery(agent_id="b", ended_before=T0 + DAY)))[0] == 1
    remove_episodes(store, EpisodeQuery(agent_id="packer", ended_before=T0 + DAY))
    assert left(store)["Episode"] == ["going", "new", "other"]
    remove_episodes(store, EpisodeQuery(ended_before=T0 + DAY))
    assert left(store)["Episode"] == ["going", "new"]


def test_orphans_go_by_age(store: Store) -> None:
    old, new = T0, T0 + 9 * DAY
    store.write(run("kept", days=9))
    store.write(
        [
            span("s-gone", episode_id="gone", trace_id="x", ended_at=old),
            span("s-gone2", episode_id="gone2", trace_id="x", ended_at=new),
            span("s-none", episode_id=None, trace_id="x"),
            *(decision(f"d-{when:%d}", episode_id=None, created_at=when) for when in (old, new)),
            decision("d-kept", episode_id="kept", created_at=old),
            *(reward(f"r-{key}", episode_id=None, decision_id=key, created_at=old)
              for key in ("d-02", "d-11", "d-kept", "nothing")),
            reward("r-lost", episode_id="gone", created_at=old),
            reward("r-new", episode_id="gone", created_at=new),
        ]
    )  # fmt: skip
    planned = count_removal(store, EpisodeQuery(ended_before=T0 + DAY), T0 + DAY)
    removed = remove_episodes(store, EpisodeQuery(ended_before=T0 + DAY), orphans_before=T0 + DAY)
    assert counts(planned) == counts(removed) == (0, 2, 1, 3)
    assert left(store)["Span"] == ["kept-1", "kept-2", "s-gone2"]
    assert left(store)["Decision"] == ["d-11", "d-kept", "kept-d"]
    assert left(store)["Reward"] == ["kept-dr", "kept-r", "r-d-11", "r-d-kept", "r-new"]
    assert [each.payload for each in store.iterate(Event) if each.kind == "orphans.removed"] == [
        {"num_spans": 2, "num_decisions": 1, "num_rewards": 3, "num_shares": 0, "num_label_requests": 0}
    ]


def test_shares_and_questions_of_no_run_go_by_age(store: Store) -> None:
    new = T0 + 9 * DAY
    store.write([Agent(agent_id="packer", created_at=T0), Task(task_id="t", created_at=T0), *run("kept", days=9)])
    store.write([share(f"s-{name}", episode_id=run_id, task_id="t", created_at=when)
                 for name, run_id, when in (("old", "gone", T0), ("new", "gone", new), ("task", None, T0),
                                            ("kept", "kept", T0))])  # fmt: skip
    store.write([request(f"q-{when:%d}", episode_id="gone", created_at=when) for when in (T0, new)])
    planned = count_removal(store, EpisodeQuery(ended_before=T0 + DAY), T0 + DAY)
    removed = remove_episodes(store, EpisodeQuery(ended_before=T0 + DAY), orphans_before=T0 + DAY)
    for each in (planned, removed):
        assert (each.num_shares, each.num_label_requests, each.num_episodes) == (2, 1, 0)
    assert left(store)["RewardShare"] == ["kept-s", "s-kept", "s-new"]
    assert left(store)["LabelRequest"] == ["kept-q", "q-11"]


def test_removing_holds_the_store_for_moments_only(tmp_path: Path) -> None:
    """An agent that records meanwhile is not held up: each of its writes is durable soon."""
    with Store.open(f"sqlite:///{tmp_path}/x.db") as store:
        for start in range(0, 6_000, 1_000):
            spans = [
                span(f"s{number}", attributes={"input": "some words " * 40}) for number in range(start, start + 1_000)
            ]
            store.write(spans)
        store.write([episode("e1", EpisodeStatus.COMPLETED, ended_at=T0)])
        found(store, "words")
        waits: list[float] = []
        done = threading.Event()

        def record() -> None:
            while not done.is_set():
                began = time.monotonic()
                store.write([span(f"w{len(waits)}", episode_id="other")])
                waits.append(time.monotonic() - began)

        thread = threading.Thread(target=record)
        thread.start()
        began = time.monotonic()
        removed = remove_episodes(store, EpisodeQuery(ended_before=T0 + DAY))
        seconds = time.monotonic() - began
        done.set()
        thread.join()
        assert removed.num_spans == 6_000
        assert sorted(waits)[len(waits) // 2] < seconds / 5, waits  # of the whole, which a busy machine makes longer
        assert len(waits) > 10


@pytest.fixture
def planted(tmp_path: Path) -> Iterator[tuple[Store, Path]]:
    """A store on which nothing was redacted."""
    with Store.open(f"sqlite:///{tmp_path}/x.db") as store:
        store.write(records())
        assert found(store, SECRET) == ["s1"]
        yield store, tmp_path


def records() -> list[Record]:
    text = f"the key {SECRET} of {EMAIL}"
    other = episode("e2", EpisodeStatus.COMPLETED, agent_id="b", metadata={"note": text})
    return [
        episode("e1", EpisodeStatus.COMPLETED, error=text, metadata={"a": [text], "b": 1}),
        other,
        Task(task_id="pack:more", created_at=T0, metadata={"t": text}),
        span("s1", name="call", attributes={"input": [text], "padding": "x" * 9_000, "output": "fine"}),
        span("s2", attributes={"input": "ordinary"}),
        reward("r1", reason=text),
        Agent(agent_id="packer", created_at=T0),
        share("sh1", episode_id="e1", metadata={"judge": text}, created_at=T0),
        request("q1", episode_id="e1", reason=text, suggested_by="model", created_at=T0),
    ]


def bytes_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob("x.db*")))


def redactor(**patterns: str) -> Redactor:
    return Redactor(RedactionSettings(patterns=patterns), lambda: b"k")


def test_what_is_taken_out_is_gone_from_the_files(planted: tuple[Store, Path]) -> None:
    store, folder = planted
    assert SECRET.encode() in bytes_of(folder)
    done = redact_stored(store, redactor(), None)
    assert (done.num_changed, done.scrubbed) == (CHANGED, True)
    assert done.num_found == {"[key]": 8, "[email]": 8}
    assert "[key]" in store.get(RewardShare, "sh1").metadata["judge"]
    content = bytes_of(folder)
    for mark in (SECRET, EMAIL, SECRET.split("-")[1], "0123456789xyz", "abcdefghijkl0123456789xyz"):
        assert mark.encode() not in content, mark
    assert found(store, SECRET) == []
    assert found(store, "fine") == ["s1"]
    assert store.get(Episode, "e1").metadata == {"a": [store.get(Reward, "r1").reason], "b": 1}
    again = redact_stored(store, redactor(), None)
    assert (again.num_changed, again.num_found) == ({}, {})


def test_what_is_removed_is_gone_from_the_files(planted: tuple[Store, Path]) -> None:
    store, folder = planted
    assert remove_episodes(store, EpisodeQuery()).num_spans == 2
    content = bytes_of(folder)
    assert content.count(SECRET.encode()) == 1  # in a task that is nobody's attempt
    assert b"abcdefghijkl0123456789xyz" not in content


def test_a_look_changes_nothing(planted: tuple[Store, Path]) -> None:
    store, _ = planted
    before = [list(store.iterate(kind)) for kind in (Episode, Span, Reward, Task, Event)]
    looked = redact_stored(store, redactor(), None, dry_run=True)
    assert looked.num_changed == CHANGED
    assert [list(store.iterate(kind)) for kind in (Episode, Span, Reward, Task, Event)] == before


def test_only_the_episodes_that_are_meant_change_on_every_back_end(store: Store) -> None:
    store.write(records())
    done = redact_stored(store, redactor(), EpisodeQuery(agent_id="b"))
    assert done.num_changed == {"episode": 1}
    done = redact_stored(store, redactor(word="ordi[a-z]{3,5}"), EpisodeQuery(ids=["e1"]))
    assert done.num_changed == {"episode": 1, "span": 2, "reward": 1, "share": 1, "label_request": 1}
    assert store.get(Span, "s2").attributes == {"input": "[word]"}
    assert found(store, "ordinary") == []
    assert found(store, "word") == ["s2"]
    assert "records.redacted" in [each.kind for each in store.events()]
    assert store.get(Task, "pack:more").metadata["t"].startswith("the key sk-")  # no episode is a try at it


def test_many_records_are_looked_through_in_steps(store: Store) -> None:
    store.write(span(f"s{number:04}", attributes={"input": f"{EMAIL} {number}"}) for number in range(700))
    told: list[int] = []
    done = redact_stored(store, redactor(), None, progress=told.append)
    assert done.num_changed == {"span": 700}
    assert sum(told) == done.num_records == 700
    assert all("@" not in str(each.attributes) for each in store.iterate(Span))
