"""Backups: one format, restored whole or not at all, on either back end."""

from __future__ import annotations

import hashlib
import io
import sqlite3
import tarfile
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from learnloop.core.errors import ConflictError, CorruptError, LearnloopError, NotFoundError, SchemaVersionError
from learnloop.core.records import (
    Agent,
    Decision,
    DecisionActivation,
    DecisionMode,
    Episode,
    EpisodeStatus,
    IdempotentAnswer,
    LearningUpdate,
    Memory,
    MemoryKind,
    ModelCheckpoint,
    PolicySettings,
    PolicyVersion,
    Record,
    Reward,
    RewardShare,
)
from learnloop.store import BlobStore, Store, backup, restore
from learnloop.store.backup import set_aside
from learnloop.store.schema import TABLES

T0 = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)


def records() -> list[Record]:
    return [
        Episode(episode_id="e", trace_id="t", agent_id="a", task_id="k", status=EpisodeStatus.RUNNING, started_at=T0),
        *(Reward(reward_id=f"r{n}", episode_id="e", name="r", value=n / 7, created_at=T0) for n in range(9, 0, -1)),
        Memory(
            memory_id="m",
            agent_id="a",
            memory_type=MemoryKind.SEMANTIC,
            content={"text": "\u00e9\U0001f600"},
            embedding=[0.1, -3.0],
            created_at=T0,
        ),
    ]


def content(store: Store) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {table.name: list(store.iterate(kind)) for kind, table in TABLES.items()}
    found["rewards in order"] = [reward for _, reward in store.rewards_after(0)]
    return found


@pytest.fixture
def filled(sqlite_url: str, tmp_path: Path) -> str:
    with Store.open(sqlite_url, blobs=tmp_path / "blobs") as store:
        store.write(records())
        assert store.blobs is not None
        store.blobs.put(b"weights")
    return sqlite_url


@pytest.fixture
def saved(filled: str, tmp_path: Path) -> Path:
    backup(filled, BlobStore(tmp_path / "blobs"), tmp_path / "backup.tar")
    return tmp_path / "backup.tar"


def test_from_sqlite_to_postgresql_and_back(filled: str, saved: Path, postgres_url: str, tmp_path: Path) -> None:
    other = BlobStore(tmp_path / "other")
    restore(saved, postgres_url, other)
    backup(postgres_url, other, tmp_path / "second.tar")
    restore(tmp_path / "second.tar", f"sqlite:///{tmp_path}/third.db", BlobStore(tmp_path / "third"))
    stores = [Store.open(url) for url in (filled, postgres_url, f"sqlite:///{tmp_path}/third.db")]
    first, second, third = (content(store) for store in stores)
    assert first == second == third
    assert len(first["rewards"]) == 9
    assert list(other.addresses()) == list(BlobStore(tmp_path / "third").addresses())
    assert other.get(next(other.addresses())) == b"weights"
    for store in stores:  # sequences go on
        last = store.last_sequence(Reward)
        newest = store.events()[-1].sequence
        store.write([Reward(reward_id="new", episode_id="e", name="r", value=1.0, created_at=T0)])
        assert [reward.reward_id for _, reward in store.rewards_after(last)] == ["new"]
        assert [event.subject for event in store.events(after=newest)] == ["new"]
        store.close()


def of_the_decision_service() -> list[Record]:
    mine: dict[str, Any] = {"agent_id": "a", "policy": "p"}
    return [
        Decision(decision_id="d", episode_id=None, algorithm="uniform", context={}, actions=["x", "y"], action="x",
                 propensity=0.1 + 0.2, action_features=[{"f": 1}, {}], vector=b"\0\xff\x80?", slot="s",
                 mode=DecisionMode.APPRENTICE, settings_version=3, baseline_action="x", policy_action="y",
                 request_id="q", is_deferred=True, created_at=T0, **mine),
        DecisionActivation(decision_id="d", created_at=T0),
        PolicySettings(policy_settings_id="v", version=3, settings={"mode": "frozen"}, created_at=T0, **mine),
        LearningUpdate(learning_update_id="u", settings_version=3, reward_sequence=7, num_samples=1, num_held_out=2,
                       verdict=None, reasons=["none"], metrics={"x": 0.1}, started_at=T0, ended_at=T0, **mine),
        IdempotentAnswer(idempotent_answer_id="i", fingerprint="f", status=201, media_type="application/json",
                         body=b"\0\xfe", created_at=T0),
    ]  # fmt: skip


def test_what_the_decision_service_keeps_goes_both_ways(sqlite_url: str, postgres_url: str, tmp_path: Path) -> None:
    with Store.open(sqlite_url) as store:
        store.write(of_the_decision_service())
        expected = content(store)
    backup(sqlite_url, None, tmp_path / "first.tar")
    restore(tmp_path / "first.tar", postgres_url, None)
    with Store.open(postgres_url) as store:
        assert content(store) == expected
    backup(postgres_url, None, tmp_path / "second.tar")
    restore(tmp_path / "second.tar", f"sqlite:///{tmp_path}/again.db", None)
    with Store.open(f"sqlite:///{tmp_path}/again.db") as store:
        assert content(store) == expected
        assert store.get(Decision, "d") == of_the_decision_service()[0]


def test_while_others_write(sqlite_url: str, tmp_path: Path) -> None:
    stop = threading.Event()
    with Store.open(sqlite_url) as store:

        def work() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                store.write([Agent(agent_id=f"{number}-{part}", created_at=T0) for part in range(10)])

        thread = threading.Thread(target=work)
        thread.start()
        for number in range(5):
            backup(sqlite_url, None, tmp_path / f"{number}.tar")
        stop.set()
        thread.join()
    for number in range(5):
        restore(tmp_path / f"{number}.tar", "sqlite:///:memory:", None)
        restore(tmp_path / f"{number}.tar", f"sqlite:///{tmp_path}/{number}.db", None)
        with Store.open(f"sqlite:///{tmp_path}/{number}.db") as copy:
            assert copy.count(Agent) % 10 == 0


def test_a_writer_that_never_lets_go_does_not_hold_a_backup_up(sqlite_url: str, tmp_path: Path) -> None:
    """A backup only reads: it needs no turn among those who write, and on a busy machine it would get none."""
    with Store.open(sqlite_url) as store:
        store.write([Agent(agent_id="a", created_at=T0)])
    writer = sqlite3.connect(tmp_path / "learnloop.db", isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    backup(sqlite_url, None, tmp_path / "b.tar")
    writer.execute("ROLLBACK")
    writer.close()
    restore(tmp_path / "b.tar", f"sqlite:///{tmp_path}/copy.db", None)
    with Store.open(f"sqlite:///{tmp_path}/copy.db") as copy:
        assert copy.count(Agent) == 1


def _as_of_revision_3(parts: dict[str, bytes]) -> None:
    """Makes of a backup one that was written before shares had a completion and rewards an author."""
    later = (
        "label_requests",
        "decision_activations",
        "policy_settings",
        "learning_updates",
        "idempotent_answers",
        "champion_tests",
    )
    for table in later:
        del parts[f"tables/{table}.jsonl"]
    old = {"reward_share_id": "s1", "task_id": "k", "agent_id": "a", "raw_reward": 1.0, "shaped_reward": 0.5,
           "credit_assigned": 0.25, "metadata": {"x": 1}, "created_at": T0}  # fmt: skip
    parts["tables/reward_history.jsonl"] = msgspec.json.encode((None, old)) + b"\n"
    rewards = [msgspec.json.decode(line) for line in parts["tables/rewards.jsonl"].splitlines()]
    for _, reward in rewards:
        del reward["author"]
    parts["tables/rewards.jsonl"] = b"".join(msgspec.json.encode(line) + b"\n" for line in rewards)


def _changed(saved: Path, target: Path, revision: str, change: Callable[[dict[str, bytes]], None]) -> None:
    """Writes a backup with other content and a manifest that says so."""
    with tarfile.open(saved) as tar:
        parts = {member.name: _read(tar, member) for member in tar}
    manifest = msgspec.json.decode(parts.pop("manifest.json"))
    change(parts)
    manifest["revision"] = revision
    manifest["parts"] = {
        name: {**manifest["parts"][name], "sha256": hashlib.sha256(data).hexdigest()} for name, data in parts.items()
    }
    with tarfile.open(target, "w") as tar:
        for name, data in {**parts, "manifest.json": msgspec.json.encode(manifest)}.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_a_backup_of_an_older_revision_is_restored(
    request: pytest.FixtureRequest, saved: Path, tmp_path: Path, backend: str
) -> None:
    old = tmp_path / "old.tar"
    _changed(saved, old, "0003", _as_of_revision_3)
    url = f"sqlite:///{tmp_path}/copy.db" if backend == "sqlite" else request.getfixturevalue("postgres_url")
    restore(old, url, BlobStore(tmp_path / "copies"))
    with Store.open(url) as store:
        assert list(store.iterate(RewardShare)) == [
            RewardShare(reward_share_id="s1", completion_id="s1", task_id="k", agent_id="a", raw_reward=1.0,
                        shaped_reward=0.5, credit_assigned=0.25, method="unknown", metadata={"x": 1}, created_at=T0)
        ]  # fmt: skip
        assert [reward.author for reward in store.iterate(Reward)] == [None] * 9


@pytest.mark.parametrize("line", [b"[null, {}]", b'[null, {"reward_share_id": 3}]', b"[1, {}]", b"nonsense"])
def test_a_share_that_cannot_be_read_is_named(saved: Path, tmp_path: Path, line: bytes) -> None:
    def change(parts: dict[str, bytes]) -> None:
        _as_of_revision_3(parts)
        parts["tables/reward_history.jsonl"] = line + b"\n"

    _changed(saved, tmp_path / "old.tar", "0003", change)
    with pytest.raises(CorruptError, match=r"line 1 of tables/reward_history\.jsonl"):
        restore(tmp_path / "old.tar", f"sqlite:///{tmp_path}/copy.db", BlobStore(tmp_path / "copies"))


def test_a_store_that_is_not_empty_is_kept_unless_forced(saved: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/target.db"
    blobs = BlobStore(tmp_path / "blobs")
    with Store.open(url) as store:
        store.write([Agent(agent_id="mine", created_at=T0)])
    with pytest.raises(ConflictError, match=r"not empty.*agents.*--force"):
        restore(saved, url, blobs)
    with pytest.raises(ConflictError, match="blobs"):
        restore(saved, url, None, force=True)
    with Store.open(url) as store:
        assert [agent.agent_id for agent in store.select(Agent)] == ["mine"]
    restore(saved, url, blobs, force=True)
    with Store.open(url) as store:
        assert [agent.agent_id for agent in store.select(Agent)] == ["a"]


def test_neither_target_nor_source_is_guessed(filled: str, saved: Path, tmp_path: Path) -> None:
    with pytest.raises(ConflictError, match="is there already"):
        backup(filled, None, saved)
    with pytest.raises(NotFoundError, match="no store"):
        backup(f"sqlite:///{tmp_path}/none.db", None, tmp_path / "new.tar")
    assert not (tmp_path / "none.db").exists()
    with pytest.raises(NotFoundError, match=f"^the folder {tmp_path}/missing is not there; create it, or give"):
        backup(filled, None, tmp_path / "missing" / "new.tar")
    with pytest.raises(NotFoundError, match="no backup"):
        restore(tmp_path / "none.tar", filled, None)


def _no_database(path: Path) -> None:
    path.write_bytes(b"this was a database" * 500)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:20_000])


def _overwritten(path: Path) -> None:
    """The header and the schema are whole: the damage shows only where tables are read."""
    data = path.read_bytes()
    path.write_bytes(data[:40_960] + b"\xff" * (len(data) - 40_960))


@pytest.mark.parametrize("harm", [_no_database, _cut, _overwritten])
def test_a_damaged_database_is_replaced_and_kept(
    saved: Path, filled: str, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    path = tmp_path / "learnloop.db"
    with Store.open(filled) as store:
        before = content(store)
    harm(path)
    damaged = path.read_bytes()
    blobs = BlobStore(tmp_path / "blobs")
    if harm is not _overwritten:
        with pytest.raises(CorruptError):
            restore(saved, filled, blobs)
        assert path.read_bytes() == damaged
    restore(saved, filled, blobs, force=True)
    assert (tmp_path / "learnloop.db.damaged-1").read_bytes() == damaged
    with Store.open(filled) as store:
        assert content(store) == before
    _no_database(path)
    restore(saved, filled, blobs, force=True)
    assert (tmp_path / "learnloop.db.damaged-1").read_bytes() == damaged
    assert (tmp_path / "learnloop.db.damaged-2").read_bytes().startswith(b"this was a database")
    assert not list(tmp_path.glob(".restore-*"))


def test_the_log_of_a_damaged_database_isset_aside_with_it(tmp_path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        (tmp_path / f"x.db{suffix}").write_text(f"content{suffix}")
    (tmp_path / "x.db.damaged-1-wal").write_text("of an earlier one")
    set_aside(tmp_path / "x.db")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "x.db.damaged-1-wal": "of an earlier one",
        "x.db.damaged-2": "content",
        "x.db.damaged-2-wal": "content-wal",
        "x.db.damaged-2-shm": "content-shm",
    }


def test_a_sound_database_is_notset_aside(saved: Path, filled: str, tmp_path: Path) -> None:
    restore(saved, filled, BlobStore(tmp_path / "blobs"), force=True)
    assert not list(tmp_path.glob("*.damaged-*"))


def test_a_restore_that_fails_leaves_the_damaged_database(saved: Path, filled: str, tmp_path: Path) -> None:
    path = tmp_path / "learnloop.db"
    _no_database(path)
    _without_agents(saved, tmp_path / "changed.tar")
    with pytest.raises(NotFoundError):
        restore(tmp_path / "changed.tar", filled, BlobStore(tmp_path / "blobs"), force=True)
    assert path.read_bytes().startswith(b"this was a database")
    assert {each.name for each in tmp_path.glob("*learnloop.db*")} == {"learnloop.db"}
    assert not list(tmp_path.glob(".restore-*"))


class Vanishing(BlobStore):
    """One blob is removed by somebody else right after it was listed."""

    gone = ""

    def get(self, address: str) -> bytes:
        if address == self.gone:
            self.remove(address)
        return super().get(address)


def test_a_blob_that_vanishes_matters_only_if_it_is_needed(filled: str, tmp_path: Path) -> None:
    blobs = Vanishing(tmp_path / "blobs")
    replaced, needed = blobs.put(b"an old checkpoint"), blobs.put(b"held-out tasks")
    checkpoint = ModelCheckpoint(
        checkpoint_id="c",
        agent_id="a",
        checkpoint_path=replaced,
        performance_metrics={},
        training_iteration=1,
        created_at=T0,
    )
    version = PolicyVersion(
        policy_version_id="v",
        policy="p",
        version=1,
        content_hash="0" * 64,
        algorithm="x",
        lineage={"held_out": {"kind": "outcomes", "blob": needed}},
        created_at=T0,
    )
    with Store.open(filled) as store:
        store.write([checkpoint, version])
    blobs.gone = replaced
    manifest = backup(filled, blobs, tmp_path / "first.tar")
    assert {name for name in manifest.parts if name.startswith("blobs/")} == {
        f"blobs/{address}" for address in blobs.addresses()
    }
    assert f"blobs/{needed}" in manifest.parts
    restore(tmp_path / "first.tar", f"sqlite:///{tmp_path}/copy.db", BlobStore(tmp_path / "copies"))
    blobs.gone = needed
    with pytest.raises(NotFoundError, match=f"no blob {needed}"):
        backup(filled, blobs, tmp_path / "second.tar")
    assert not (tmp_path / "second.tar").exists()


Change = Callable[[dict[str, bytes]], None]


def _damage(parts: dict[str, bytes]) -> None:
    parts["tables/rewards.jsonl"] = parts["tables/rewards.jsonl"].replace(b'"r5"', b'"r0"')


def _remove(parts: dict[str, bytes]) -> None:
    del parts["tables/spans.jsonl"]


def _add(parts: dict[str, bytes]) -> None:
    parts["../../evil"] = b"x"


def _no_manifest(parts: dict[str, bytes]) -> None:
    del parts["manifest.json"]


def _no_json(parts: dict[str, bytes]) -> None:
    parts["manifest.json"] = b"{"


def _manifest(**fields: object) -> Change:
    def change(parts: dict[str, bytes]) -> None:
        manifest = msgspec.json.decode(parts["manifest.json"])
        parts["manifest.json"] = msgspec.json.encode({**manifest, **fields})

    return change


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (_damage, CorruptError, "tables/rewards.jsonl.*checksum"),
        (_remove, CorruptError, "spans"),
        (_add, CorruptError, "evil"),
        (_no_manifest, CorruptError, "manifest"),
        (_no_json, CorruptError, "manifest"),
        (_manifest(format="other"), CorruptError, "'other'"),
        (_manifest(revision="9999"), SchemaVersionError, "'9999'"),
        (_manifest(parts={}), CorruptError, "do not agree"),
    ],
)
def test_a_changed_backup_changes_nothing(
    saved: Path, tmp_path: Path, change: Change, error: type[LearnloopError], message: str
) -> None:
    with tarfile.open(saved) as tar:
        parts = {member.name: _read(tar, member) for member in tar}
    change(parts)
    with tarfile.open(tmp_path / "changed.tar", "w") as tar:
        for name, data in parts.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    url = f"sqlite:///{tmp_path}/target.db"
    with pytest.raises(error, match=message):
        restore(tmp_path / "changed.tar", url, BlobStore(tmp_path / "target"))
    assert not (tmp_path / "target").exists()
    assert not (tmp_path / "target.db").exists()


def _read(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    assert file is not None
    return file.read()


def test_a_link_in_a_backup_is_refused(saved: Path, tmp_path: Path) -> None:
    with tarfile.open(saved, "a") as tar:
        link = tarfile.TarInfo("blobs/link")
        link.type = tarfile.SYMTYPE
        link.linkname = "/etc/passwd"
        tar.addfile(link)
    with pytest.raises(CorruptError, match="not a plain file"):
        restore(saved, f"sqlite:///{tmp_path}/target.db", BlobStore(tmp_path / "target"))


@pytest.mark.parametrize("keep", [0, 100, 512, 5000, 15_000])
def test_a_cut_backup_is_refused(saved: Path, tmp_path: Path, keep: int) -> None:
    saved.write_bytes(saved.read_bytes()[:keep])
    with pytest.raises(CorruptError):
        restore(saved, f"sqlite:///{tmp_path}/target.db", BlobStore(tmp_path / "target"))


def _without_agents(saved: Path, target: Path) -> None:
    with tarfile.open(saved) as tar:
        parts = {member.name: _read(tar, member) for member in tar}
    parts["tables/agents.jsonl"] = b""
    manifest = msgspec.json.decode(parts["manifest.json"])
    manifest["parts"]["tables/agents.jsonl"]["sha256"] = hashlib.sha256(b"").hexdigest()
    parts["manifest.json"] = msgspec.json.encode(manifest)
    with tarfile.open(target, "w") as tar:
        for name, data in parts.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


def test_a_record_that_does_not_fit_leaves_the_store_as_it_was(saved: Path, tmp_path: Path) -> None:
    """The checksums are right, but a row refers to an agent that is not there: nothing of it stays."""
    _without_agents(saved, tmp_path / "changed.tar")
    url = f"sqlite:///{tmp_path}/target.db"
    with Store.open(url) as store:
        store.write([Agent(agent_id="mine", created_at=T0)])
    with pytest.raises(LearnloopError):
        restore(tmp_path / "changed.tar", url, BlobStore(tmp_path / "target"), force=True)
    with Store.open(url) as store:
        assert [agent.agent_id for agent in store.select(Agent)] == ["mine"]
        assert store.count(Reward) == 0
