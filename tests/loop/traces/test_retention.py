"""learnloop.loop.traces.retention: by name, by age, by the settings; and what is taken out of what is stored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from learnloop.core.clock import now
from learnloop.core.errors import NotFoundError, UsageError
from learnloop.core.records import Episode, EpisodeStatus
from learnloop.loop import Loop, Workspace, find_settings
from learnloop.loop.traces.retention import apply_retention, expiry, remove_old
from learnloop.loop.workspace.times import parse_age, parse_moment
from learnloop.testing.contracts.store_examples import episode, span


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LEARNLOOP_HOME", raising=False)
    monkeypatch.delenv("LEARNLOOP_DATABASE", raising=False)


def make(*ages: float, settings: str = "") -> Workspace:
    Path("learnloop.toml").write_text(settings)
    workspace = Workspace(find_settings(), create=True)
    for age in ages:
        moment = now() - timedelta(days=age)
        workspace.store.write([episode(f"e{age:g}", EpisodeStatus.COMPLETED, started_at=moment, ended_at=moment)])
    return workspace


def keys(workspace: Workspace) -> list[str]:
    return [each.episode_id for each in workspace.store.iterate(Episode)]


def test_the_settings_say_how_long_episodes_stay() -> None:
    with make(1, 29, 31, settings="retention_days = 30") as workspace:
        assert workspace.settings.retention_days == 30
        removed = apply_retention(workspace)
        assert removed is not None
        assert removed.num_episodes == 1
        assert keys(workspace) == ["e1", "e29"]
        assert apply_retention(workspace).num_episodes == 0  # type: ignore[union-attr]


def test_without_a_setting_nothing_expires() -> None:
    with make(9_000) as workspace:
        assert apply_retention(workspace) is None
        with pytest.raises(UsageError, match="no retention_days is set"):
            expiry(workspace)
        assert keys(workspace) == ["e9000"]


@pytest.mark.parametrize("value", ["0", "-1", '"30"', "1.5", "99999"])
def test_a_wrong_number_of_days_is_refused(value: str) -> None:
    with pytest.raises(UsageError, match=r"learnloop\.toml cannot be used.*'retention_days'"):
        make(settings=f"retention_days = {value}")


def test_by_name_or_the_beginning_of_it_and_by_age() -> None:
    with make(1, 2, 30) as workspace:
        with pytest.raises(NotFoundError, match="'x'"):
            workspace.episodes.remove("e1", "x")
        assert len(keys(workspace)) == 3
        assert workspace.episodes.remove("e3", dry_run=True).num_episodes == 1
        assert workspace.episodes.remove("e3").num_episodes == 1
        assert remove_old(workspace, now() - timedelta(days=1.5), agent="nobody").num_episodes == 0
        assert remove_old(workspace, now() - timedelta(days=1.5), dry_run=True).num_episodes == 1
        assert keys(workspace) == ["e1", "e2"]
        assert remove_old(workspace, now() - timedelta(days=1.5)).num_episodes == 1
        assert keys(workspace) == ["e1"]


def test_an_agent_goes_on_while_its_runs_expire() -> None:
    Path("learnloop.toml").write_text("retention_days = 1")
    with Loop("bot") as loop:
        loop.workspace.store.write(
            [episode("old", EpisodeStatus.COMPLETED, agent_id="bot", ended_at=datetime(2026, 1, 1, tzinfo=UTC))]
        )
        with loop.episode(task="t") as ep:
            choice = loop.choose("p", ["a", "b"])
            removed = apply_retention(loop.workspace)
            ep.reward(done=1.0)
        loop.flush()
        assert removed is not None
        assert removed.num_episodes == 1
        assert keys(loop.workspace) == [ep.episode_id]
        assert choice.decision_id
        assert loop.counters().num_failed == 0


def test_the_settings_of_redaction_hold_for_what_is_recorded() -> None:
    settings = '[redaction]\nkinds = ["keys"]\n[redaction.patterns]\norder = "ORD-[0-9]{4}"\n'
    with make(settings=settings) as workspace:
        workspace.store.write([span("s", attributes={"input": "ORD-1234 of eve@example.org, password=hunter2"})])
        found = next(iter(workspace.store.iterate(type(span("s"))))).attributes["input"]
        assert found == "[order] of eve@example.org, password=[key]"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ('[redaction]\nkinds = ["names"]', "'names' are not known"),
        ('[redaction.patterns]\nx = "(a+)+"', "repeats what repeats"),
        ('[redaction.patterns]\nX = "a"', "needs another name"),
        ('[redaction]\nkind = ["keys"]', r"learnloop\.toml cannot be used"),
    ],
)
def test_wrong_settings_of_redaction_are_refused(settings: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make(settings=settings)


def test_redaction_can_be_switched_off_and_done_later() -> None:
    with make(settings="[redaction]\nkinds = []") as workspace:
        workspace.store.write([episode(error="eve@example.org and ORD-1234")])
        assert workspace.store.get(Episode, "e1").error == "eve@example.org and ORD-1234"
        with pytest.raises(UsageError, match="switched off"):
            workspace.episodes.redact()
        assert workspace.episodes.redact(patterns={"order": "ORD-[0-9]{4}"}).num_changed == {"episode": 1}
        assert workspace.store.get(Episode, "e1").error == "eve@example.org and [order]"
        with pytest.raises(NotFoundError):
            workspace.episodes.redact(episodes=["x"], patterns={"order": "ORD"})
    with make() as workspace:
        assert workspace.episodes.redact(agent="nobody").num_records == 0
        assert workspace.episodes.redact(agent="packer", episodes=["e"]).num_changed == {"episode": 1}
        assert str(workspace.store.get(Episode, "e1").error).startswith("[email:")


def test_times_as_people_write_them() -> None:
    assert parse_age(" 90M ") == timedelta(minutes=90)
    assert parse_age("4w") == timedelta(days=28)
    for wrong in ("", "30", "d", "-1d", "1y", "1.5d", "9999999d", "30 d"):
        with pytest.raises(UsageError, match="is not a span of time"):
            parse_age(wrong)
    assert parse_moment("2026-01-31") == datetime(2026, 1, 31, tzinfo=UTC)
    assert parse_moment("2026-01-31T12:00:00+02:00") == datetime(2026, 1, 31, 10, tzinfo=UTC)
    assert abs(now() - timedelta(hours=2) - parse_moment("2h")) < timedelta(seconds=10)
    for wrong in ("", "yesterday", "2026-13-01", "0001-01-01T00:00:00+14:00"):
        with pytest.raises(UsageError, match="is not a time"):
            parse_moment(wrong)
