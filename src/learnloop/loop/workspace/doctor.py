"""Looks at an installation as its operator would: is all there, does it write, is it whole."""

from __future__ import annotations

import importlib.util
import shutil
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from learnloop.core.errors import CorruptError, LearnloopError
from learnloop.core.ids import new_id
from learnloop.core.records import Event, ModelCheckpoint, PolicyVersion
from learnloop.loop.workspace.core import WorkspaceCore
from learnloop.loop.workspace.settings import Settings
from learnloop.sandbox import Sandbox
from learnloop.store import BlobStore, insert_events
from learnloop.system.files import from_disk

MIN_FREE_BYTES = 512 * 1024 * 1024
EXTRAS = {"postgres": ("psycopg", "pgvector")}
"""The packages that each extra brings."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at."""

    name: str
    ok: bool
    found: str
    advice: str = ""
    """What to do where it is not ok, or could be better."""


def examine(settings: Settings) -> list[Check]:
    """Returns what was found; nothing is changed, but a store that is there gets the event ``doctor.checked``."""
    checks = [_python(), _sqlite(), *_extras(), _sandbox(), _settings(settings)]
    try:
        if not WorkspaceCore.is_made(settings):
            found = f"none in {settings.home}"
            return [*checks, Check(name="store", ok=False, found=found, advice="make one with: learnloop init")]
        checks.append(_disk(settings))
        with WorkspaceCore(settings) as workspace:
            checks.extend(_store_checks(workspace))
    except LearnloopError as error:
        checks.append(Check(name="store", ok=False, found=type(error).__name__, advice=str(error)))
    return checks


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    return Check(name="python", ok=sys.version_info >= (3, 11), found=version, advice="")


def _sqlite() -> Check:
    fits = sqlite3.sqlite_version_info >= (3, 35)
    advice = "" if fits else "RETURNING and upserts need SQLite 3.35 or newer; use a newer Python"
    return Check(name="sqlite", ok=fits, found=sqlite3.sqlite_version, advice=advice)


def _extras() -> Iterator[Check]:
    for extra, packages in EXTRAS.items():
        missing = [package for package in packages if importlib.util.find_spec(package) is None]
        advice = f'optional: pip install "learnloop[{extra}]"' if missing else ""
        found = f"without {', '.join(missing)}" if missing else "installed"
        yield Check(name=f"extra {extra}", ok=True, found=found, advice=advice)


def _sandbox() -> Check:
    """Looks at what runs code that nobody trusts. Without it all works but what needs it, which then refuses."""
    report = Sandbox().report()
    if report.missing:
        reasons = dict.fromkeys(each.reason or "" for each in report.missing)
        return Check(name="sandbox", ok=True, found="no code can be run", advice="; ".join(reasons))
    idle = [each for each in report.protections if not each.is_active]
    reasons = dict.fromkeys(each.reason or "" for each in idle)
    found = f"without {', '.join(each.name for each in idle)}" if idle else "all protections are active"
    return Check(name="sandbox", ok=True, found=found, advice="; ".join(reasons))


def _settings(settings: Settings) -> Check:
    origins = ", ".join(f"{name}: {origin}" for name, origin in settings.origins.items())
    return Check(name="settings", ok=True, found=f"{settings.shown_database} ({origins})")


def _disk(settings: Settings) -> Check:
    try:
        free = shutil.disk_usage(_nearest(settings.home)).free
    except OSError as error:
        raise from_disk(error, str(settings.home)) from error
    advice = "" if free >= MIN_FREE_BYTES else f"free some space: below {MIN_FREE_BYTES // 2**20} MiB"
    return Check(name="disk", ok=free >= MIN_FREE_BYTES, found=f"{free / 2**30:.1f} GiB free", advice=advice)


def _nearest(folder: Path) -> Path:
    """Returns the folder, or the nearest above it that is there."""
    return next(each for each in (folder, *folder.parents) if each.exists())


def _store_checks(workspace: WorkspaceCore) -> Iterator[Check]:
    yield Check(name="store", ok=True, found=f"{workspace.store.backend}, schema {workspace.store.revision}")
    yield _attempt("write and read", lambda: _round_trip(workspace))
    versions = list(workspace.store.iterate(PolicyVersion))
    for version in versions:
        yield _attempt(f"policy {version.policy}@{version.version}", lambda version=version: _load(workspace, version))  # type: ignore[misc]
    if not versions:
        yield Check(name="policies", ok=True, found="none yet")
    if workspace.store.blobs is not None:
        yield from _blob_checks(workspace, workspace.store.blobs, versions)


def _blob_checks(workspace: WorkspaceCore, blobs: BlobStore, versions: list[PolicyVersion]) -> Iterator[Check]:
    """Yields a check for each blob that cannot be read, and one that counts the others."""
    num_whole = 0
    for version in versions:
        for address in _blobs_in(version.lineage):
            check = _attempt(f"blob of {version.policy}@{version.version}", partial(_read, blobs, address))
            num_whole += check.ok
            if not check.ok:
                yield check
    for state in workspace.store.iterate(ModelCheckpoint):
        check = _attempt(f"checkpoint of {state.agent_id}.{state.policy}", partial(_read, blobs, state.checkpoint_path))
        num_whole += check.ok
        if not check.ok:
            advice = f"nothing to do, it is learned again from the log ({check.advice})"
            yield msgspec.structs.replace(check, ok=True, advice=advice)
    yield Check(name="blobs", ok=True, found=f"{num_whole:,} whole")


def _blobs_in(lineage: object) -> Iterator[str]:
    """Yields the addresses that a lineage names, at any depth, under the key ``blob``."""
    items: Mapping[str, Any] = lineage if isinstance(lineage, Mapping) else {}
    for key, value in items.items():
        if key == "blob" and isinstance(value, str):
            yield value
        yield from _blobs_in(value)


def _read(blobs: BlobStore, address: str) -> str:
    return f"{len(blobs.get(address)):,} bytes"


def _attempt(name: str, examine_it: Callable[[], str]) -> Check:
    try:
        return Check(name=name, ok=True, found=examine_it())
    except LearnloopError as error:
        return Check(name=name, ok=False, found=type(error).__name__, advice=str(error))


def _round_trip(workspace: WorkspaceCore) -> str:
    """Writes an event durably, reads it back and returns how long that took."""
    store = workspace.store
    subject = new_id()
    started = time.perf_counter()
    store.run(insert_events, [("doctor.checked", subject, {})])
    elapsed_ms = (time.perf_counter() - started) * 1000
    newest = store.select(Event, limit=100, descending=True)
    if subject not in {event.subject for event in newest}:
        raise CorruptError("an event that was acknowledged cannot be read back")
    return f"{elapsed_ms:.1f} ms"


def _load(workspace: WorkspaceCore, version: PolicyVersion) -> str:
    workspace.registry.load(version)
    return f"whole, {version.content_hash[:12]}"
