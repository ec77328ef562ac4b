"""Imports logs of Azure Personalizer and Vowpal Wabbit as decisions of a policy, with their propensities."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from learnloop.core.checks import check_name
from learnloop.core.clock import now
from learnloop.core.errors import FormatError, LearnloopError
from learnloop.core.records import Decision, DecisionActivation, Record, Reward
from learnloop.decisions.importing import (
    Activated,
    Choices,
    LogFile,
    Observation,
    format_of,
)
from learnloop.decisions.importing.choices import DROPPED, REWARD, reward_of
from learnloop.decisions.importing.reading import modified_at
from learnloop.loop.workspace.core import WorkspaceCore
from learnloop.store import insert_new
from learnloop.store.queries.decisions import decisions_of_requests
from learnloop.traces.importing.files import Progress
from learnloop.traces.importing.report import LineFault

_BATCH = 2_000
_OBSERVATIONS = 20_000
"""So many observations are looked up at once: each look-up reads all decisions of the policy."""

Late = Observation | Activated


class DecisionImport(Record, frozen=True, kw_only=True):
    """What was found in a log, and what of it is new."""

    file: str
    format: str
    num_lines: int
    num_decisions: int
    num_rewards: int
    """Metrics such as ``pdrop`` not counted."""
    num_without_reward: int
    """Decisions whose line gives none; observations may."""
    num_deferred: int
    num_activated: int
    num_observations: int
    """Rewards and activations that were logged apart from their decisions."""
    num_unmatched: int
    """Of these, those whose decision is not in the store."""
    num_dropping: int
    """Decisions of lines that stand for others that were left out of the log (``pdrop``)."""
    num_new: int
    """Records that the store did not have yet; 0 when a file is imported again."""
    num_bad_lines: int
    bad_lines: list[LineFault]
    """The first 20."""


def import_decisions(
    workspace: WorkspaceCore,
    path: Path,
    *,
    agent: str,
    policy: str,
    format_name: str | None = None,
    first_is_baseline: bool = False,
    strict: bool = False,
    progress: Progress | None = None,
) -> DecisionImport:
    """Writes the decisions of a log with their rewards and returns what was found.

    A line that cannot be read is counted and left out. The same file again adds nothing. Memory does not grow with
    the file.

    Args:
        workspace: where to.
        path: the log, gzipped or not.
        agent: whose decisions; made where it is not there.
        policy: of which policy.
        format_name: ``dsjson`` or ``vw``; None: by what the file holds.
        first_is_baseline: whether the first action is the caller's own choice, as Azure Personalizer has it.
        strict: check the whole file first, and import nothing if a line is bad.
        progress: told of the bytes read, of each pass.

    Raises:
        NotFoundError: there is no such file.
        FormatError: no line can be read, one is bad and ``strict`` is set, or the file is damaged; the message says
            what was imported before that.
        UsageError: a name cannot be one, or the file cannot be read.
    """
    check_name("an agent", agent)
    check_name("a policy", policy)
    found_format = format_of(path)
    chosen = format_name or found_format
    choices = Choices(
        agent, policy, path.name.removesuffix(".gz"), modified_at(path), first_is_baseline=first_is_baseline
    )
    if strict:
        for _ in LogFile(path, chosen, choices, strict=True).items():
            pass
    log = LogFile(path, chosen, choices, strict=strict, progress=progress)
    writing = _Writing(workspace, agent, policy)
    try:
        writing.write_all(log)
    except LearnloopError as error:
        if writing.num_new:
            error.args = (
                f"{error}; {writing.num_new:,} records were imported before, importing again adds the others",
            )
        raise
    if log.num_bad_lines and not writing.num_items:
        first = log.bad_lines[0]
        raise FormatError(
            f"{path.name}: no line can be read as {chosen}, nothing was imported; line {first.line}: {first.reason}"
        )
    return writing.report(path, chosen, log)


class _Writing:
    """Writes what a log says in batches, and counts."""

    def __init__(self, workspace: WorkspaceCore, agent: str, policy: str) -> None:
        self._store = workspace.store
        self._agent = agent
        self._policy = policy
        self._late: list[Late] = []
        self._num_decisions = self._num_rewards = self._num_rewarded = self._num_dropping = 0
        self._num_deferred = self._num_activated = self._num_observations = self._num_unmatched = 0
        self.num_new = 0
        self.num_items = 0

    def write_all(self, log: LogFile) -> None:
        """Writes all of ``log``."""
        batch: list[Record] = []
        for item in log.items():
            self.num_items += 1
            records = [each for each in item if isinstance(each, Record)]
            self._count(records)
            batch += records
            self._late += [each for each in item if not isinstance(each, Record)]
            if len(batch) >= _BATCH:
                self._write(batch)
                batch = []
            if len(self._late) >= _OBSERVATIONS:
                self._write(batch)
                batch = []
                self._join()
        self._write(batch)
        self._join()

    def report(self, path: Path, format_name: str, log: LogFile) -> DecisionImport:
        """Returns what was counted."""
        return DecisionImport(
            file=str(path),
            format=format_name,
            num_lines=log.num_lines,
            num_decisions=self._num_decisions,
            num_rewards=self._num_rewards,
            num_without_reward=self._num_decisions - self._num_rewarded,
            num_deferred=self._num_deferred,
            num_activated=self._num_activated,
            num_observations=self._num_observations,
            num_unmatched=self._num_unmatched,
            num_dropping=self._num_dropping,
            num_new=self.num_new,
            num_bad_lines=log.num_bad_lines,
            bad_lines=log.bad_lines,
        )

    def _count(self, records: Sequence[Record]) -> None:
        rewarded = set()
        for each in records:
            if isinstance(each, Decision):
                self._num_decisions += 1
                self._num_deferred += each.is_deferred
            elif isinstance(each, DecisionActivation):
                self._num_activated += 1
            elif isinstance(each, Reward) and each.weight:
                self._num_rewards += 1
                rewarded.add(each.decision_id)
            elif isinstance(each, Reward):
                self._num_dropping += each.name == DROPPED
        self._num_rewarded += len(rewarded)

    def _write(self, batch: Sequence[Record]) -> None:
        if batch:
            self.num_new += self._store.run(insert_new, batch)

    def _join(self) -> None:
        """Writes the observations whose decisions are in the store by now."""
        late, self._late = self._late, []
        if not late:
            return
        self._num_observations += len(late)
        ids = self._store.read(decisions_of_requests, self._agent, self._policy, {each.event_id for each in late})
        batch: list[Record] = []
        for each in late:
            found = ids.get(each.event_id, [])
            self._num_unmatched += not found
            batch += self._records(each, found)
        self._count(batch)
        self._num_rewarded = min(self._num_rewarded, self._num_decisions)
        for start in range(0, len(batch), _BATCH):
            self._write(batch[start : start + _BATCH])

    def _records(self, late: Late, decision_ids: Sequence[str]) -> Iterator[Record]:
        moment = late.moment or now()
        for decision_id in decision_ids:
            if isinstance(late, Activated):
                yield DecisionActivation(decision_id=decision_id, created_at=moment)
            else:
                known_by = (repr(late.value), "" if late.moment is None else late.moment.isoformat())
                yield reward_of(decision_id, REWARD, late.value, moment, *known_by)
