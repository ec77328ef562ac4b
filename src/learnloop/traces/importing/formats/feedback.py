"""Feedback on goals: one line for each executed goal, with its reward, known by the goal's id.

The id is that of the decision, or of the episode, that the goal came from; what is said of neither is kept as a reward
that names the id, and counts as soon as a decision of this id is recorded. Texts are never compared: two goals of the
same words are two goals.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from learnloop.core.records import Record, Reward
from learnloop.store import Connection
from learnloop.store.queries.decisions import episodes_of_decisions
from learnloop.store.queries.episodes import episode_states
from learnloop.traces.importing.reader import ItemReader, Line, TraceFormat, Words, convert, parse_time


class _FeedbackLine(msgspec.Struct):
    goal_id: Words
    success: bool
    timestamp: str
    goal: str = ""
    reward: float | None = None
    execution_time_ms: float | None = None
    output: str | None = None
    error: str | None = None


class FeedbackReader(ItemReader):
    """Reads each line into rewards of the decision that its goal's id names."""

    format_name = "feedback"

    def read(self, line: Line) -> list[Record]:
        """Returns the reward, if the line has one, and the success as a metric of weight 0."""
        said = convert(line, _FeedbackLine)
        about = {"decision_id": said.goal_id, "reason": said.error, "created_at": parse_time(said.timestamp)}
        return [*self.outcome(said.success, said.reward, said.goal_id, said.timestamp, episode_id=None, **about)]


def place_feedback(connection: Connection, records: Sequence[Record]) -> list[Record]:
    """Returns ``records`` with each reward's episode: the decision's, or the one that the goal's id itself names."""
    ids = {each.decision_id for each in records if isinstance(each, Reward) and each.decision_id}
    homes: dict[str, tuple[str | None, str | None]] = {each: (each, None) for each in episode_states(connection, ids)}
    homes |= {each: (episode_id, each) for each, episode_id in episodes_of_decisions(connection, ids).items()}
    return [_place(each, homes) for each in records]


def _place(record: Record, homes: dict[str, tuple[str | None, str | None]]) -> Record:
    if not isinstance(record, Reward) or record.decision_id not in homes:
        return record
    episode_id, decision_id = homes[record.decision_id]
    return msgspec.structs.replace(record, episode_id=episode_id, decision_id=decision_id)


def _fits(line: Line) -> bool:
    return {"goal_id", "success", "reward"} <= line.keys() and "injected" not in line


FEEDBACK = TraceFormat(
    "feedback", "the fields goal_id, success and reward", _fits, FeedbackReader, place=place_feedback
)
