"""learnloop.loop.workspace.doctor: what is damaged is found, and what mends itself is no fault."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from learnloop.core.protocols import PolicyArtifact
from learnloop.core.records import Verdict
from learnloop.loop import Loop, Settings, find_settings
from learnloop.loop.workspace.doctor import Check, examine
from learnloop.registry import Proof


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A store with a version whose lineage names a blob, and a checkpoint."""
    with Loop("bot", home=tmp_path / "home", seed=1) as loop:
        for _ in range(5):
            with loop.episode(task="t") as episode:
                loop.choose("route", ["l", "r"], {"kind": "x"})
                episode.reward(solved=1.0)
        store, registry = loop.workspace.store, loop.workspace.registry
        assert store.blobs is not None
        lineage = {"held_out": {"kind": "outcomes", "blob": store.blobs.put(b"held-out")}, "agent": "bot"}
        artifact = PolicyArtifact("linear", {}, {"w": np.ones(3)})
        registry.register("bot.route", artifact, Proof(verdict=Verdict.LEARNED, reasons=[]), lineage=lineage)
    return tmp_path / "home"


def checks(home: Path) -> dict[str, Check]:
    return {check.name: check for check in examine(find_settings(home))}


def blob(home: Path, *, held_out: bool) -> Path:
    return next(path for path in (home / "blobs").glob("*/*") if (path.read_bytes() == b"held-out") == held_out)


def test_all_is_whole(home: Path) -> None:
    found = checks(home)
    assert all(check.ok for check in found.values())
    assert found["blobs"].found == "2 whole"


@pytest.mark.parametrize(("damage", "error"), [(True, "CorruptError"), (False, "NotFoundError")])
def test_a_held_out_table_that_is_damaged_or_gone(home: Path, damage: bool, error: str) -> None:
    path = blob(home, held_out=True)
    path.unlink()
    if damage:
        path.write_bytes(b"other")
    found = checks(home)
    broken = found["blob of bot.route@1"]
    assert (broken.ok, broken.found) == (False, error)
    assert found["blobs"].found == "1 whole"


@pytest.mark.parametrize("damage", [True, False])
def test_a_checkpoint_that_is_damaged_is_made_anew(home: Path, damage: bool) -> None:
    path = blob(home, held_out=False)
    path.unlink()
    if damage:
        path.write_bytes(b"other")
    check = checks(home)["checkpoint of bot.route"]
    assert check.ok
    assert "it is learned again from the log" in check.advice


def test_a_home_that_is_not_there_yet_has_a_disk(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "a" / "b", database="sqlite:///:memory:", origins={})
    assert next(check for check in examine(settings) if check.name == "disk").ok
