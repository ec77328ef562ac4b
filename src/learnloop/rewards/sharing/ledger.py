"""The ledger of rewards: what each was worth before and after shaping, and which step of whom got how much of it.

The lines of one sharing have one ``completion_id``, are written in one transaction and never changed. A run may be
shared out again: that is a further completion, the newest counts, and the history keeps both.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Literal

import msgspec

from learnloop.core.attempts import Attempt
from learnloop.core.checks import check_range
from learnloop.core.clock import now
from learnloop.core.errors import RewardError, UsageError, one_of
from learnloop.core.ids import new_id
from learnloop.core.records import Agent, Json, Record, RewardShare, Task
from learnloop.core.rewards import check_learnable
from learnloop.rewards.sharing.credit import UNASSIGNED, Credit, adds_up, participants
from learnloop.store import Connection, Store, insert_events, insert_records
from learnloop.store.queries.shares import ShareLine, counting_shares, credit_totals, lines_by_completion

_COMPLETIONS = 500
"""Completions that an audit reads at once, in one snapshot."""
_MAX_PAGE = 1_000

FindingKind = Literal["sum", "duplicate", "mixed", "no_run"]


class SharePage(msgspec.Struct, frozen=True, kw_only=True):
    """Some shares, and where the next ones begin."""

    rows: list[RewardShare]
    next_cursor: str | None


class AgentTotal(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent was credited with."""

    agent_id: str
    credit: float
    num_shares: int
    num_completions: int


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something in the ledger that must not be there."""

    kind: FindingKind
    """``sum``: the shares do not add up; ``duplicate``: one line is there twice; ``mixed``: the lines do not agree on
    what they share; ``no_run``: the episode, or both episode and task, are missing."""
    completion_id: str
    episode_id: str | None
    shaped_reward: float
    total: float
    """What the shares add up to."""
    message: str


# ---------------------------------------------------------------------- write


def shares_of(
    attempt: Attempt, raw_reward: float, credit: Credit, *, completion_id: str, metadata: Json | None = None
) -> list[RewardShare]:
    """Returns the lines that book a reward which was shared out.

    Args:
        attempt: the run, or the try at a task.
        raw_reward: what it was worth before shaping.
        credit: the shares of the reward after shaping.
        completion_id: one for all of them.
        metadata: what else there is to say of this reward. It stands in the first line, and with it, as ``credit``,
            the details of the sharing.

    Raises:
        RewardError: a number is not finite, or the shares do not add up to the reward.
        UsageError: a share is not of this run (its agent, step or span), is there twice, or the run has no id.
    """
    raw = check_learnable("the raw reward", raw_reward)
    shaped = check_learnable("the shaped reward", credit.reward)
    if attempt.episode_id is None and attempt.task_id is None:
        raise UsageError("the attempt has neither an episode_id nor a task_id, so nobody could find its reward again")
    _check_lines(attempt, credit)
    values = [check_learnable(f"the share of {share.agent_id!r}", share.value) for share in credit.shares]
    if not adds_up(values, shaped):
        raise RewardError(
            f"the shares add up to {math.fsum(values)!r} and the reward is {shaped!r}; book what is nobody's as a "
            f"share of {UNASSIGNED!r}"
        )
    details = {**(metadata or {}), "credit": dict(credit.details)}
    moment = now()
    return [
        RewardShare(
            reward_share_id=new_id(),
            completion_id=completion_id,
            episode_id=attempt.episode_id,
            task_id=attempt.task_id,
            agent_id=share.agent_id,
            span_id=share.span_id,
            step=share.step,
            raw_reward=raw,
            shaped_reward=shaped,
            credit_assigned=value,
            method=credit.method,
            metadata=details if number == 0 else {},
            created_at=moment,
        )
        for number, (share, value) in enumerate(zip(credit.shares, values, strict=True))
    ]


def _check_lines(attempt: Attempt, credit: Credit) -> None:
    known = [*participants(attempt), UNASSIGNED]
    if not credit.shares:
        raise RewardError(f"the reward {credit.reward!r} has no shares; book it as one of {UNASSIGNED!r}")
    seen = set()
    for share in credit.shares:
        line = (share.agent_id, share.step, share.span_id)
        if share.agent_id not in known:
            raise UsageError(f"a share is of {share.agent_id!r}, who took no part in the run; allowed: {one_of(known)}")
        if share.step is not None and not 0 <= share.step < len(attempt.steps):
            raise UsageError(f"a share is of step {share.step}; the run has {len(attempt.steps)}, counted from 0")
        span_id = None if share.step is None else attempt.steps[share.step].span_id
        if share.span_id != span_id:
            raise UsageError(f"a share of step {share.step} is of the span {share.span_id!r}; that is {span_id!r}")
        if line in seen:
            raise UsageError(f"two shares are of {share.agent_id!r} and step {share.step}; give one")
        seen.add(line)


class RewardLedger:
    """Writes and reads the shares of rewards in a store.

    Args:
        store: where they lie.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def book(
        self,
        attempt: Attempt,
        raw_reward: float,
        credit: Credit,
        *,
        metadata: Json | None = None,
        also: Sequence[Record] = (),
    ) -> list[RewardShare]:
        """Writes the shares of a reward, all or none, and returns them when they are durable.

        Agents and the task that they name are made where they are missing. It is reported as ``reward.shared``, in the
        same transaction; its subject is the ``completion_id``.

        Args:
            attempt: see ``shares_of``, as for the next two.
            raw_reward: before shaping.
            credit: the shares.
            metadata: what else there is to say of this reward.
            also: further records, such as the rewards themselves, that are written with the shares or not at all.

        Raises:
            RewardError, UsageError: see ``shares_of``; nothing was written.
            StoreLockedError, UnreachableError, StoreFullError, StoreReadOnlyError: the database or the disk refuses.
        """
        shares = shares_of(attempt, raw_reward, credit, completion_id=new_id(), metadata=metadata)
        self._store.run(_write, shares, also)
        return shares

    # ------------------------------------------------------------------ read

    def shares(
        self,
        *,
        completion: str | None = None,
        episode: str | None = None,
        task: str | None = None,
        agent: str | None = None,
        span: str | None = None,
        step: int | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> SharePage:
        """Returns a page of the history, what was booked last first, narrowed by what is not None.

        Args:
            completion: only those of this sharing.
            episode: only this run's.
            task: only those of tries at this task.
            agent: only this agent's.
            span: only those of the step with this span.
            step: only those of steps with this number.
            limit: the most to return, 1 to 1,000.
            after: the cursor of the page before.

        Raises:
            UsageError: the limit is out of range.
        """
        check_range("limit", limit, 1, _MAX_PAGE)
        columns = {
            "completion_id": completion, "episode_id": episode, "task_id": task, "agent_id": agent, "span_id": span,
            "step": step,
        }  # fmt: skip
        where = {name: value for name, value in columns.items() if value is not None}
        rows = self._store.select(RewardShare, where=where, after=after, limit=limit + 1, descending=True)
        return SharePage(rows=rows[:limit], next_cursor=rows[limit - 1].reward_share_id if len(rows) > limit else None)

    def newest(self, episode: str) -> list[RewardShare]:
        """Returns the shares of a run that count: those of its newest sharing, in the order of booking; none if none.

        They are as many as the run has steps and agents.
        """
        return self._store.read(counting_shares, episode)

    def totals(
        self,
        *,
        agent: str | None = None,
        task: str | None = None,
        episode: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> list[AgentTotal]:
        """Returns what agents were credited with, by name; of each run, only what counts (see ``newest``).

        Args:
            agent: only this one.
            task: only for tries at this task.
            episode: only for this run.
            limit: the most agents to return, 1 to 1,000.
            after: the last agent of the page before.

        Raises:
            UsageError: the limit is out of range.
        """
        check_range("limit", limit, 1, _MAX_PAGE)
        where = {"agent_id": agent, "task_id": task, "episode_id": episode}
        rows = self._store.read(credit_totals, where, after, limit)
        return [AgentTotal(agent_id=row[0], credit=row[1], num_shares=row[2], num_completions=row[3]) for row in rows]

    def audit(self) -> Iterator[Finding]:
        """Yields what is wrong in the ledger, in the order of the completions; nothing where all is well.

        Whoever writes meanwhile is not held up. It holds the lines of one completion at a time.
        """
        after: str | None = ""
        while after is not None:
            after, findings = self._store.read(_audit_some, after)
            yield from findings


def _write(connection: Connection, shares: Sequence[RewardShare], also: Sequence[Record]) -> None:
    first = shares[0]
    agents = dict.fromkeys(share.agent_id for share in shares)
    records: list[Record] = [Agent(agent_id=agent_id, created_at=first.created_at) for agent_id in agents]
    if first.task_id is not None:
        records.append(Task(task_id=first.task_id, created_at=first.created_at))
    insert_records(connection, [*records, *also, *shares])
    told = ("episode_id", "task_id", "raw_reward", "shaped_reward", "method")
    payload = {**{name: getattr(first, name) for name in told}, "num_shares": len(shares)}
    insert_events(connection, [("reward.shared", first.completion_id, payload)], first.created_at)


# ---------------------------------------------------------------------- audit


def _audit_some(connection: Connection, after: str) -> tuple[str | None, list[Finding]]:
    """Returns what is wrong with the completions after that one, and the last of them; None: there are no more."""
    last: str | None = None
    findings: list[Finding] = []
    found = lines_by_completion(connection, after, _COMPLETIONS)
    for completion_id, lines in groupby(found, attrgetter("completion_id")):
        last = completion_id
        findings += _audit_one([*lines])
    return last, findings


def _audit_one(lines: Sequence[ShareLine]) -> Iterator[Finding]:
    """Yields what is wrong with the lines of one completion."""
    first = lines[0]
    values = [line.credit_assigned for line in lines]
    total = math.fsum(values)

    def found(kind: FindingKind, message: str) -> Finding:
        return Finding(
            kind=kind,
            completion_id=first.completion_id,
            episode_id=first.episode_id,
            shaped_reward=first.shaped_reward,
            total=total,
            message=message,
        )

    if not adds_up(values, first.shaped_reward):
        off = total - first.shaped_reward
        yield found("sum", f"the shares add up to {total!r} and not to {first.shaped_reward!r}: {off:g} too much")
    keys = [(line.agent_id, line.step, line.span_id) for line in lines]
    (agent_id, step, _), number = Counter(keys).most_common(1)[0]
    if number > 1:
        yield found("duplicate", f"there are {number} shares of {agent_id!r} and step {step}")
    shared = {(line.episode_id, line.task_id, line.raw_reward, line.shaped_reward, line.method) for line in lines}
    if len(shared) > 1:
        yield found("mixed", "the shares name different runs, rewards or methods")
    if first.episode_id is not None and not first.has_episode:
        yield found("no_run", f"there is no episode {first.episode_id!r}")
    elif first.episode_id is None and first.task_id is None:
        yield found("no_run", "the shares name neither an episode nor a task")
