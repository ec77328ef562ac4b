"""The database of records, its blob files, its event feed, its migrations and its backups."""

from sqlalchemy import Connection

from learnloop.store.backup import backup, restore
from learnloop.store.blobs import BlobStore
from learnloop.store.insert import insert_events, insert_new, insert_records
from learnloop.store.store import Store
from learnloop.store.writer import Patience, StoreCounters

__all__ = [
    "BlobStore",
    "Connection",
    "Patience",
    "Store",
    "StoreCounters",
    "backup",
    "insert_events",
    "insert_new",
    "insert_records",
    "restore",
]
