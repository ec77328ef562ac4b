"""Upgrades, backs up and restores what a workspace holds: the database, the blobs and the policies."""

from __future__ import annotations

from pathlib import Path

from learnloop.loop.workspace import Settings, Workspace
from learnloop.store import HEAD, Store
from learnloop.store import backup as store_backup
from learnloop.store import restore as store_restore
from learnloop.store.migrate import current as current_revision
