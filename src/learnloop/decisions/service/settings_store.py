"""The settings of policies in the store: versions, one after another; the newest holds."""

from __future__ import annotations

import msgspec

from learnloop.core.clock import now
from learnloop.core.errors import ConflictError, CorruptError, UsageError
from learnloop.core.ids import new_id
from learnloop.core.names import check_name
from learnloop.core.records import Agent, PolicySettings
from learnloop.decisions.service.settings import DecisionSettings, VersionedSettings, read_settings
from learnloop.store import Connection, Store, insert_records
from learnloop.store.queries.policies import settings_versions


def current(store: Store, agent_id: str, policy: str) -> VersionedSettings:
    """Returns the settings that hold; version 0, the defaults, where nothing was set.

    Raises:
        CorruptError: what is stored are no settings.
    """
    newest = store.read(_newest, agent_id, policy)
    if newest is None:
        return VersionedSettings(0, DecisionSettings())
    try:
        return VersionedSettings(newest.version, read_settings(newest.settings))
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

    def write(connection: Connection) -> int:
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
        return record.version

    return VersionedSettings(store.run(write), settings)


def _newest(connection: Connection, agent_id: str, policy: str) -> PolicySettings | None:
    return next(iter(settings_versions(connection, agent_id, policy, limit=1)), None)
