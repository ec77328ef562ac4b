"""The answers to requests with an ``Idempotency-Key``, kept in the store for all servers over it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from learnloop.core.errors import LearnloopError
from learnloop.loop.workspace.core import WorkspaceCore
from learnloop.loop.workspace.idempotent_answers import RUNNING, Claim, claim_request, keep_answer, release_request
from learnloop.serve.http.problems import ErrorTable
from learnloop.serve.http.site import KeptAnswer
from learnloop.serve.http.threads import Threads

T = TypeVar("T")


class StoredAnswers:
    """Keeps answers in the store of a workspace.

    Args:
        workspace: whose.
        threads: where the store is called.
        errors: says what an error of the store is to the client.
    """

    def __init__(self, workspace: WorkspaceCore, threads: Threads, errors: ErrorTable) -> None:
        self._workspace = workspace
        self._threads = threads
        self._errors = errors

    async def claim(self, answer_id: str, fingerprint: str) -> Claim | KeptAnswer:
        """Claims a request, or returns what is known of it where it is not to be run."""
        found = await self._call(claim_request, answer_id, fingerprint)
        if isinstance(found, Claim):
            return found
        status = None if found.status == RUNNING else found.status
        return KeptAnswer(found.fingerprint, status, found.media_type, found.body)

    async def keep(self, claim: Any, status: int, media_type: str, body: bytes) -> None:
        """Puts the answer in the place of its claim; when this returns it is on the disk."""
        await self._call(keep_answer, claim, status, media_type, body)

    async def release(self, claim: Any) -> None:
        """Gives up a claim, so that the request may be tried again at once."""
        await self._call(release_request, claim)

    async def _call(self, function: Callable[..., T], *args: Any) -> T:
        """Returns what a function of the store returns.

        Raises:
            Problem: the store does not do it, or is too busy.
        """
        try:
            return await self._threads.call(function, self._workspace, *args)
        except LearnloopError as error:
            raise self._errors.problem(error) from error
