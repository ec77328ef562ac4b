"""The settings of policies in the store: versions, one after another; the newest holds."""

from __future__ import annotations

from concurrent.futures import Future
from typing import get_args

import msgspec

from learnloop.algorithms.bandits.config import ExplorationAlgorithm
from learnloop.core.checks import check_name
from learnloop.core.clock import now
from learnloop.core.errors import ConflictError, CorruptError, UsageError
from learnloop.core.ids import new_id
from learnloop.core.records import Agent, PolicySettings
from learnloop.decisions.service.settings import ONLINE, DecisionSettings, VersionedSettings, stored_settings
from learnloop.store import Connection, Store, insert_records
from learnloop.store.queries.decisions import has_decisions_of
from learnloop.store.queries.policies import settings_versions

FIRST_CHOICE = "first choice"
"""The author of settings that a policy got because a door asked it first."""


def current(store: Store, agent_id: str, policy: str) -> VersionedSettings:
    """Returns the settings that hold; version 0 where nothing was set.

    Then they are the defaults; or those of a policy that learns online, where the log has its decisions from before
    settings were kept of it.

    Raises:
        CorruptError: what is stored are no settings.
    """
    newest = store.read(_newest, agent_id, policy)
    if newest is None:
        is_online = store.read(has_decisions_of, agent_id, policy, get_args(ExplorationAlgorithm))
        return VersionedSettings(0, ONLINE if is_online else DecisionSettings())
    try:
        return VersionedSettings(newest.version, stored_settings(newest.settings))
    except UsageError as error:
        raise CorruptError(f"version {newest.version} of the settings of {agent_id}.{policy}: {error}") from error


def history(
    store: Store, agent_id: str, policy: str, *, limit: int | None = None, before: int | None = None
) -> list[PolicySettings]:
    """Returns the versions, the newest first.

    Args:
        store: where they are.
        agent_id: whose policy.
        policy: which policy.
        limit: the most to return; None: all.
        before: only versions with a lower number.
    """
    return store.read(settings_versions, agent_id, policy, before=before, limit=limit)


def put(
    store: Store,
    agent_id: str,
    policy: str,
    settings: DecisionSettings,
    *,
    author: str | None = None,
    expected_version: int | None = None,
) -> VersionedSettings:
    """Writes settings as the next version and returns them; durable.

    Args:
        store: where to.
        agent_id: whose policy; made where it is not there.
        policy: which policy.
        settings: what shall hold.
        author: who says so.
        expected_version: the version that they are to follow; None: whichever there is.

    Raises:
        UsageError: the names cannot be names.
        ConflictError: another version holds than the expected one.
    """
    check_name("an agent", agent_id)
    check_name("a policy", policy)

    return store.run(_write, agent_id, policy, settings, author, expected_version)


def put_first(store: Store, agent_id: str, policy: str, settings: DecisionSettings) -> Future[VersionedSettings]:
    """Has settings written as the first version of a policy, where none was set by then, without waiting for it.

    Returns:
        What holds once that is durable: these, or those of somebody who was faster.
    """
    return store.run_later(_write_first, agent_id, policy, settings)


def _write(
    connection: Connection,
    agent_id: str,
    policy: str,
    settings: DecisionSettings,
    author: str | None,
    expected_version: int | None,
) -> VersionedSettings:
    newest = _newest(connection, agent_id, policy)
    before = 0 if newest is None else newest.version
    if expected_version is not None and before != expected_version:
        raise ConflictError(
            f"the settings of {agent_id}.{policy} are at version {before}, not {expected_version}; read them again"
        )
    moment = now()
    record = PolicySettings(
        policy_settings_id=new_id(),
        agent_id=agent_id,
        policy=policy,
        version=before + 1,
        settings=msgspec.to_builtins(settings),
        author=author,
        created_at=moment,
    )
    insert_records(connection, [Agent(agent_id=agent_id, created_at=moment), record])
    return VersionedSettings(record.version, settings)


def _write_first(connection: Connection, agent_id: str, policy: str, settings: DecisionSettings) -> VersionedSettings:
    newest = _newest(connection, agent_id, policy)
    if newest is not None:
        return VersionedSettings(newest.version, stored_settings(newest.settings))
    return _write(connection, agent_id, policy, settings, FIRST_CHOICE, None)


def _newest(connection: Connection, agent_id: str, policy: str) -> PolicySettings | None:
    return next(iter(settings_versions(connection, agent_id, policy, limit=1)), None)
