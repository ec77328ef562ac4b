"""Requests with an ``Idempotency-Key``: who works on one, and what was answered, for all servers over one store.

A row with the status 0 is a claim: some server works on that request; its body says which run. The first one to write
the row has the claim, and only the run that has it may put the answer in its place.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from learnloop.core.clock import now
from learnloop.core.errors import ConflictError
from learnloop.core.ids import new_id
from learnloop.core.records import IdempotentAnswer
from learnloop.loop.workspace.core import WorkspaceCore
from learnloop.store import Connection, insert_records
from learnloop.store.queries.idempotent_answers import has_answers_before, remove_answers_before
from learnloop.store.queries.records import Where, change_records, find_record, remove_records

RUNNING = 0
"""The status of a claim."""
KEPT_HOURS = 24
CLAIM_SECONDS = 60.0
"""After this a claim without an answer counts as that of a server that died, and the request may run again."""


class RequestClaim(NamedTuple):
    """That a run may answer a request."""

    answer_id: str
    effect_id: str
    """For what the request makes: the same one when the request runs again after its server died."""
    run_id: str

    @property
    def body(self) -> bytes:
        """Returns what the claim's row holds in place of an answer."""
        return f"{self.effect_id} {self.run_id}".encode()

    @property
    def where(self) -> Where:
        """Returns what tells the claim's row from that of another run, and from an answer."""
        return {"idempotent_answer_id": self.answer_id, "status": RUNNING, "body": self.body}


def claim_request(workspace: WorkspaceCore, answer_id: str, fingerprint: str) -> RequestClaim | IdempotentAnswer:
    """Claims a request, or returns what is known of it where it is not to be run.

    Args:
        workspace: whose.
        answer_id: made of who asks and of the key.
        fingerprint: of the request.

    Returns:
        The claim, or else the answer or the row of another run's claim (status ``RUNNING``): compare its fingerprint.
    """
    moment = now()

    def take(connection: Connection) -> RequestClaim | IdempotentAnswer:
        found = find_record(connection, IdempotentAnswer, answer_id)
        effect_id = new_id()
        if found is not None:
            age = moment - found.created_at
            is_dead = found.status == RUNNING and age > timedelta(seconds=CLAIM_SECONDS)
            if age <= timedelta(hours=KEPT_HOURS):
                if not is_dead or found.fingerprint != fingerprint:
                    return found
                effect_id = found.body.decode().partition(" ")[0]
            remove_records(connection, IdempotentAnswer, {"idempotent_answer_id": answer_id})
        claim = RequestClaim(answer_id, effect_id, new_id())
        insert_records(connection, [_row(claim, fingerprint, moment)])
        return claim

    return workspace.store.run(take)


def keep_answer(workspace: WorkspaceCore, claim: RequestClaim, status: int, media_type: str, body: bytes) -> None:
    """Puts the answer in the place of its claim; when this returns it is on the disk.

    Raises:
        ConflictError: the run took so long that another one has the claim by now; that one's answer counts.
    """
    values = {"status": status, "media_type": media_type, "body": body}
    if workspace.store.run(change_records, IdempotentAnswer, claim.where, values) == 0:
        raise ConflictError("this request took so long that another run of it has begun; the answer of that one counts")


def release_request(workspace: WorkspaceCore, claim: RequestClaim) -> None:
    """Gives up a claim, so that the request may be tried again at once."""
    workspace.store.run(remove_records, IdempotentAnswer, claim.where)


def remove_old_answers(workspace: WorkspaceCore) -> int:
    """Removes answers older than ``KEPT_HOURS`` and returns how many; a server calls it every hour."""
    before = now() - timedelta(hours=KEPT_HOURS)
    if not workspace.store.read(has_answers_before, before):
        return 0
    return workspace.store.run(remove_answers_before, before)


def _row(claim: RequestClaim, fingerprint: str, moment: datetime) -> IdempotentAnswer:
    return IdempotentAnswer(
        idempotent_answer_id=claim.answer_id,
        fingerprint=fingerprint,
        status=RUNNING,
        media_type="",
        body=claim.body,
        created_at=moment,
    )
