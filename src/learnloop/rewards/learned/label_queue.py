"""The label queue: which episodes a person is asked about, in which order, and what becomes of the answers.

A request is open until somebody answers or skips it, once. The answer and the end of its request are one transaction,
so that of two people who answer at the same time one is told that the other was first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import msgspec

from learnloop.core.checks import check_number, check_range
from learnloop.core.clock import now
from learnloop.core.errors import ConflictError, NotFoundError, TransitionError, UsageError
from learnloop.core.ids import new_id
from learnloop.core.lifecycles import LABEL_TRANSITIONS, check_transition
from learnloop.core.records import Episode, LabelRequest, LabelStatus, Reward
from learnloop.core.rewards import LABEL, RewardTarget, new_rewards
from learnloop.store import Connection, Store, insert_records
from learnloop.store.queries.episodes import episode_states
from learnloop.store.queries.labels import open_requests
from learnloop.store.queries.records import Where, all_records, change_records, find_record

MAX_PAGE = 1_000


class LabelAsk(msgspec.Struct, frozen=True, kw_only=True):
    """An episode that a person should be asked about."""

    episode_id: str
    reason: str
    """Why: ``uncertain``, ``different``, ``random``, ``asked`` ..."""
    priority: float = 0.0
    """The highest is asked first."""
    suggested_value: float | None = None
    """What a model takes the answer to be, from 0 to 1."""
    suggested_by: str | None = None
    """The model's content hash."""


class LabelPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some requests, the most urgent first, and where the next ones begin."""

    requests: list[LabelRequest]
    next_cursor: str | None
    """What ``pending`` is given for the next page; None: this is the last."""


class LabelQueue:
    """Requests for labels in a store. For any number of threads and processes."""

    def __init__(self, store: Store) -> None:
        """Reads and writes nothing yet."""
        self._store = store

    def ask(self, asks: Iterable[LabelAsk]) -> list[LabelRequest]:
        """Opens a request for each episode that has none open, and returns those that were opened.

        Raises:
            NotFoundError: there is no such episode; nothing was opened.
            UsageError: a priority is not finite, or a suggestion is not from 0 to 1.
        """
        wanted = {ask.episode_id: ask for ask in map(_checked, asks)}

        def write(connection: Connection) -> list[LabelRequest]:
            missing = wanted.keys() - episode_states(connection, wanted).keys()
            if missing:
                raise NotFoundError(f"there is no episode {min(missing)!r} to be labelled")
            waiting = {request.episode_id for request in all_records(connection, LabelRequest, _open_of(*wanted))}
            opened = [_opened(ask) for key, ask in wanted.items() if key not in waiting]
            insert_records(connection, opened)
            return opened

        return self._store.run(write)

    def pending(self, *, limit: int = 50, after: str | None = None) -> LabelPage:
        """Returns open requests, the highest priority first; of equal ones the oldest.

        Args:
            limit: the most to return, 1 to 1,000.
            after: ``next_cursor`` of the page before.

        Raises:
            UsageError: the limit is out of range, or the cursor is not of a page.
        """
        check_range("limit", limit, 1, MAX_PAGE)
        place = None if after is None else _read_cursor(after)
        found = self._store.read(open_requests, place, limit + 1)
        shown = found[:limit]
        return LabelPage(requests=shown, next_cursor=_cursor(shown[-1]) if len(found) > limit else None)

    def answer(
        self, label_request_id: str, value: float, author: str, *, name: str = LABEL, note: str | None = None
    ) -> Reward:
        """Writes a person's answer as a reward of the episode, closes the request, and returns the reward.

        Args:
            label_request_id: which request.
            value: from 0 to 1.
            author: who says so.
            name: of the reward.
            note: why.

        Raises:
            NotFoundError: there is no such request, or its episode was removed.
            ConflictError: it was answered or skipped already; nothing was written.
            UsageError: the value is not from 0 to 1, or nobody is named.
        """
        number = check_number("the answer", value, 0, 1)
        return self._store.run(_answer, label_request_id, number, _checked_author(author), name, note)

    def accept(self, label_request_id: str, author: str, *, note: str | None = None) -> Reward:
        """Answers with the value that a model suggested; raises as ``answer`` does.

        Raises:
            UsageError: nothing was suggested.
        """
        return self._store.run(_answer, label_request_id, None, _checked_author(author), LABEL, note)

    def skip(self, label_request_id: str, author: str) -> LabelRequest:
        """Closes a request without an answer and returns it; raises as ``answer`` does."""
        person = _checked_author(author)

        def write(connection: Connection) -> LabelRequest:
            request = _open_request(connection, label_request_id, LabelStatus.SKIPPED)
            return _close(connection, request, LabelStatus.SKIPPED, person, None)

        return self._store.run(write)

    def record(self, reward: Reward) -> None:
        """Writes a label that nobody was asked for; it answers the open request of its episode, where there is one."""

        def write(connection: Connection) -> None:
            insert_records(connection, [reward])
            if reward.episode_id is not None and reward.span_id is None:
                for request in all_records(connection, LabelRequest, _open_of(reward.episode_id)):
                    _close(connection, request, LabelStatus.ANSWERED, reward.author, reward.reward_id)

        self._store.run(write)


def _answer(connection: Connection, key: str, value: float | None, author: str, name: str, note: str | None) -> Reward:
    """Writes the answer to a request, None being what was suggested, and closes it."""
    request = _open_request(connection, key, LabelStatus.ANSWERED)
    given = request.suggested_value if value is None else value
    if given is None:
        raise UsageError(f"the request {key} has no suggestion to accept; answer it with a value")
    if find_record(connection, Episode, request.episode_id) is None:
        raise NotFoundError(f"the episode {request.episode_id} that the request is about was removed; skip the request")
    target = RewardTarget(request.episode_id)
    (reward,) = new_rewards(target, {name: given}, source=LABEL, author=author, reason=note)
    insert_records(connection, [reward])
    _close(connection, request, LabelStatus.ANSWERED, author, reward.reward_id)
    return reward


def _open_request(connection: Connection, key: str, wanted: LabelStatus) -> LabelRequest:
    """Returns the request if it may become ``wanted``."""
    request = find_record(connection, LabelRequest, key)
    if request is None:
        raise NotFoundError(f"there is no label request {key!r}; learnloop labels list shows the open ones")
    try:
        check_transition(LABEL_TRANSITIONS, f"the label request {key}", request.status, wanted)
    except TransitionError as error:
        raise ConflictError(f"{error}; {request.closed_by or 'somebody'} was first, at {request.closed_at}") from error
    return request


def _close(
    connection: Connection, request: LabelRequest, status: LabelStatus, author: str | None, reward_id: str | None
) -> LabelRequest:
    check_transition(LABEL_TRANSITIONS, f"the label request {request.label_request_id}", request.status, status)
    changes: dict[str, Any] = {"status": status, "reward_id": reward_id, "closed_at": now(), "closed_by": author}
    change_records(connection, LabelRequest, {"label_request_id": request.label_request_id}, changes)
    return msgspec.structs.replace(request, **changes)


def _open_of(*episode_ids: str) -> Where:
    """Returns the condition of the open requests for these episodes."""
    return {"episode_id": episode_ids, "status": LabelStatus.OPEN}


def _opened(ask: LabelAsk) -> LabelRequest:
    return LabelRequest(
        label_request_id=new_id(), status=LabelStatus.OPEN, created_at=now(), **msgspec.structs.asdict(ask)
    )


def _checked(ask: LabelAsk) -> LabelAsk:
    check_number(f"the priority of {ask.episode_id}", ask.priority)
    if ask.suggested_value is not None:
        check_number(f"the suggestion for {ask.episode_id}", ask.suggested_value, 0, 1)
    return ask


def _checked_author(author: str) -> str:
    if not author.strip():
        raise UsageError("author is empty; a label needs the name of the person who gives it")
    return author


def _cursor(request: LabelRequest) -> str:
    return f"{request.priority!r}:{request.label_request_id}"


def _read_cursor(cursor: str) -> tuple[float, str]:
    priority, colon, key = cursor.partition(":")
    try:
        number = float(priority)
    except ValueError:
        number = math.nan
    if not colon or not math.isfinite(number):
        raise UsageError(f"{cursor!r} is not a cursor; give the next_cursor of a page")
    return number, key
