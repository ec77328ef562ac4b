"""How aliases move, inside a transaction: no other writer comes between what is looked at and what is written."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from learnloop.core.errors import CheckFailedError, ConflictError, NotFoundError
from learnloop.core.ids import new_id
from learnloop.core.records import AliasMove, Certificate, PolicyVersion, Verdict
from learnloop.registry.references import CHAMPION, PREVIOUS
from learnloop.store import Connection, insert_records
from learnloop.store.queries.records import find_record, select_records


def _current_move(connection: Connection, policy: str, alias: str) -> AliasMove | None:
    moves = select_records(connection, AliasMove, {"policy": policy, "alias": alias}, None, 1, True)
    return moves[0] if moves else None


def move_alias(connection: Connection, move: AliasMove, expected: str | msgspec.UnsetType | None) -> AliasMove:
    """Writes ``move``, unless the alias points there already, and returns what was written; see ``Registry.set_alias``.

    Raises:
        CheckFailedError: the learning of its version is not proven.
        ConflictError: the alias points elsewhere than ``expected``, or the clock runs behind that of its last move.
        NotFoundError: its version is none of its policy.
    """
    version = find_record(connection, PolicyVersion, move.policy_version_id)
    if version is None or version.policy != move.policy:
        raise NotFoundError(f"{move.policy_version_id} is no version of {move.policy}; it was removed, or is another's")
    current = _current_move(connection, move.policy, move.alias)
    pointed = _check_pointed(move, current, expected)
    if current is not None and pointed == move.policy_version_id:
        return current
    if not is_proven(connection, version):
        raise CheckFailedError(
            f"{version.policy}@{version.version} has no certificate with the verdict 'learned'; no alias can point to "
            f"it, so neither can {move.alias!r}: use its number, or prove it first"
        )
    return _insert_move(connection, move, pointed)


def remove_alias(connection: Connection, removal: AliasMove) -> AliasMove:
    """Writes ``removal``, by which an alias that points to its version points nowhere, and returns what was written."""
    current = _current_move(connection, removal.policy, removal.alias)
    return _insert_move(connection, removal, _check_pointed(removal, current, removal.policy_version_id))


def _check_pointed(move: AliasMove, current: AliasMove | None, expected: str | msgspec.UnsetType | None) -> str | None:
    """Returns the id of the version that the alias points to; None: it points nowhere.

    Raises:
        ConflictError: it is not the expected one.
    """
    pointed = None if current is None or current.is_removal else current.policy_version_id
    if expected is not msgspec.UNSET and pointed != expected:
        raise ConflictError(
            f"{move.policy}@{move.alias} points to {pointed or 'nothing'}, not to {expected or 'nothing'}: "
            "somebody moved it; look at it again"
        )
    return pointed


def _insert_move(connection: Connection, move: AliasMove, pointed: str | None) -> AliasMove:
    """Writes a move, and with one of the champion that of ``previous`` to the champion until now."""
    moves = [msgspec.structs.replace(move, alias_move_id=new_id())]
    if move.alias == CHAMPION and pointed is not None:
        moves.append(
            msgspec.structs.replace(
                move,
                alias_move_id=new_id(),
                alias=PREVIOUS,
                policy_version_id=pointed,
                is_removal=False,
                reason=f"champion moved: {move.reason}",
            )
        )
    _check_clock(connection, moves)
    insert_records(connection, moves)
    return moves[0]


def is_proven(connection: Connection, version: PolicyVersion) -> bool:
    """Returns whether the content of ``version`` has a certificate with the verdict ``learned``."""
    where = {"content_hash": version.content_hash, "verdict": Verdict.LEARNED.value}
    return bool(select_records(connection, Certificate, where, None, 1, False))


def _check_clock(connection: Connection, moves: Iterable[AliasMove]) -> None:
    """Returns if the new moves sort after the last one: the newest id says where an alias points."""
    for move in moves:
        last = _current_move(connection, move.policy, move.alias)
        if last is not None and last.alias_move_id >= move.alias_move_id:
            raise ConflictError(
                f"{move.policy}@{move.alias} was last moved at {last.created_at.isoformat()}, which is later than this "
                "machine's clock; set the clock and try again"
            )
