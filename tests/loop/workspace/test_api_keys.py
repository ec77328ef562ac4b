"""Keys of the HTTP API: made, listed, revoked, verified; kept by backups and brought in by an upgrade."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from learnloop.core.clock import now
from learnloop.core.errors import NotFoundError, UsageError
from learnloop.core.records import Agent, ApiKey, ApiScope
from learnloop.loop import Workspace
from learnloop.loop.workspace.api_keys import create_key, list_keys, revoke_key, verify_key
from learnloop.loop.workspace.maintenance import backup, restore
from learnloop.loop.workspace.settings import find_settings
from learnloop.store import Store


@pytest.fixture
def workspace(store_url: str, tmp_path: Path) -> Iterator[Workspace]:
    with Workspace(find_settings(tmp_path / "home", store_url), create=True) as opened:
        yield opened


def test_a_key_is_random_and_stored_as_its_hash(workspace: Workspace) -> None:
    first, second = (create_key(workspace, "k", ["ingest", "read", "read"]) for _ in range(2))
    assert first.secret != second.secret
    assert len(first.secret) == 4 + 43  # 256 bits in base64
    assert first.key.prefix == first.secret[:12]
    assert first.key.scopes == ["read", "ingest"]
    assert list_keys(workspace) == [first.key, second.key]
    assert first.key.secret_hash == hashlib.sha256(first.secret.encode()).hexdigest()
    assert first.secret not in msgspec.json.encode(list_keys(workspace)).decode()


def test_verify(workspace: Workspace) -> None:
    made = create_key(workspace, "k", ["act"], expires_days=2)
    keys = list_keys(workspace)
    assert verify_key(keys, made.secret) == made.key
    assert verify_key(keys, made.secret, at=now() + timedelta(days=1, hours=23)) == made.key
    assert verify_key(keys, made.secret, at=now() + timedelta(days=2)) is None
    for wrong in (
        "",
        "llk_",
        made.secret[:-1],
        made.secret + "A",
        made.secret.lower(),
        made.key.secret_hash,
        "é\udcff",
    ):
        assert verify_key(keys, wrong) is None
    assert verify_key([], made.secret) is None


def test_revoke(workspace: Workspace) -> None:
    made = create_key(workspace, "k", ["act"])
    revoked = revoke_key(workspace, made.key.api_key_id)
    assert revoked.revoked_at is not None
    assert revoke_key(workspace, made.key.api_key_id) == revoked
    assert verify_key(list_keys(workspace), made.secret) is None
    with pytest.raises(NotFoundError, match="keys list"):
        revoke_key(workspace, "nothing")


@pytest.mark.parametrize(
    ("name", "scopes", "days", "words"),
    [
        ("", ["read"], None, "name a key"),
        ("../x", ["read"], None, "name a key"),
        ("k", [], None, "no scope"),
        ("k", ["read", "root"], None, "'root'.*'admin'"),
        ("k", ["read"], 0, "1 to 36,500"),
        ("k", ["read"], 10**9, "1 to 36,500"),
        ("k", ["read"], True, "1 to 36,500"),
    ],
)
def test_wrong_keys_are_not_made(
    workspace: Workspace, name: str, scopes: list[str], days: int | None, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        create_key(workspace, name, scopes, expires_days=days)
    assert list_keys(workspace) == []


def test_all_scopes(workspace: Workspace) -> None:
    assert create_key(workspace, "k", ApiScope).key.scopes == ["read", "ingest", "act", "train", "admin"]


def test_a_backup_keeps_keys_and_an_older_one_has_none(tmp_path: Path) -> None:
    """A backup of the first revision has no table of keys; it is restored all the same."""
    settings = find_settings(tmp_path / "a")
    with Workspace(settings, create=True) as workspace:
        made = create_key(workspace, "k", ["read"])
        workspace.store.write([Agent(agent_id="bot", created_at=now())])
    backup(settings, tmp_path / "new.tar")
    _as_first_revision(tmp_path / "new.tar", tmp_path / "old.tar")
    for name, keys in (("new", [made.key]), ("old", [])):
        target = find_settings(tmp_path / f"from-{name}")
        restore(target, tmp_path / f"{name}.tar")
        with Workspace(target) as workspace:
            assert list_keys(workspace) == keys
            assert [agent.agent_id for agent in workspace.store.select(Agent)] == ["bot"]


def _as_first_revision(source: Path, target: Path) -> None:
    names = (
        "api_keys",
        "label_requests",
        "decision_activations",
        "policy_settings",
        "learning_updates",
        "champion_tests",
    )
    later = [f"tables/{name}.jsonl" for name in (*names, "idempotent_answers")]
    with tarfile.open(source) as old, tarfile.open(target, "w") as new:
        for member in old:
            data = (old.extractfile(member) or io.BytesIO()).read()
            if member.name in later:
                continue
            if member.name == "manifest.json":
                manifest = json.loads(data)
                manifest["revision"] = "0001"
                for name in later:
                    del manifest["parts"][name]
                data = json.dumps(manifest).encode()
            member.size = len(data)
            new.addfile(member, io.BytesIO(data))


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_a_store_of_the_first_revision_is_upgraded(
    request: pytest.FixtureRequest, tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from learnloop.store import migrate

    empty = f"sqlite:///{tmp_path}/old.db"
    url: str = empty if backend == "sqlite" else request.getfixturevalue("empty_postgres_url")
    with monkeypatch.context() as patch:
        patch.setattr(migrate, "HEAD", "0001")
        assert migrate.upgrade(url) == "0001"
        with Store.open(url) as store:
            store.write([Agent(agent_id="bot", created_at=now())])
    assert migrate.current(url) == "0001"
    with Workspace(find_settings(tmp_path / "home", url), create=True) as workspace:
        assert workspace.store.revision == migrate.HEAD
        made = create_key(workspace, "k", ["read"])
        assert workspace.store.get(ApiKey, made.key.api_key_id) == made.key
        assert workspace.store.get(Agent, "bot").agent_id == "bot"
