"""What the log has new for those who learn from it."""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, CompoundSelect, Connection, Select, exists, func, select, union

from learnloop.core.records import DecisionMode
from learnloop.store import schema
from learnloop.store.queries.rewards import is_of_whole


class News(NamedTuple):
    """What a page of the log is about."""

    policies: set[tuple[str, str]]
    """Whose decisions: agent and policy."""
    last: int | None
    """The sequence of the page's last entry; None: there are no more entries."""


def policies_rewarded(connection: Connection, after: int, limit: int) -> News:
    """Returns of which policies of the decision service the rewards of a page are.

    Args:
        connection: in a transaction.
        after: the sequence of the last reward of the page before.
        limit: the size of a page.
    """
    rewards, decisions = schema.rewards.c, schema.decisions.c
    last = _last_of_page(connection, rewards.sequence, after, limit)
    if last is None:
        return News(set(), None)
    within = (rewards.sequence > after, rewards.sequence <= last, decisions.mode.is_not(None))
    query = select(decisions.agent_id, decisions.policy).where(*within).distinct()
    own = query.where(decisions.decision_id == rewards.decision_id)
    of_episodes = query.where(decisions.episode_id == rewards.episode_id, is_of_whole(schema.rewards))
    return News(_policies(connection, own) | _policies(connection, of_episodes), last)


def policies_imitating(connection: Connection, after: int, limit: int) -> News:
    """Returns of which policies in apprentice mode the decisions of a page are; see ``policies_rewarded``."""
    table = schema.decisions.c
    last = _last_of_page(connection, table.sequence, after, limit)
    if last is None:
        return News(set(), None)
    within = (table.sequence > after, table.sequence <= last, table.mode == DecisionMode.APPRENTICE.value)
    return News(_policies(connection, select(table.agent_id, table.policy).where(*within).distinct()), last)


def num_rewarded_since(connection: Connection, agent_id: str, policy: str, sequence: int, limit: int) -> int:
    """Returns how many decisions got a reward after this one of the log, at the most ``limit``."""
    rewards, decisions = schema.rewards.c, schema.decisions.c
    new = (rewards.sequence > sequence, rewards.value.is_not(None), rewards.weight != 0.0)
    mine = (decisions.agent_id == agent_id, decisions.policy == policy)
    joined = select(decisions.decision_id).where(*new, *mine, decisions.decision_id == rewards.decision_id)
    looked_up = select(rewards.decision_id).where(
        *new, exists().where(decisions.decision_id == rewards.decision_id, *mine)
    )
    of_episodes = (*new, is_of_whole(schema.rewards))
    episode = select(decisions.decision_id).where(*of_episodes, *mine, decisions.episode_id == rewards.episode_id)
    num_rewards = max(0, (connection.execute(select(func.max(rewards.sequence))).scalar_one() or 0) - sequence)
    num_decisions = number_of(connection, select(decisions.sequence).where(*mine).limit(num_rewards))
    own = (joined if num_decisions < num_rewards else looked_up).distinct()  # from the side where there are fewer
    some = connection.execute(select(rewards.sequence).where(*of_episodes).limit(1)).first()
    return number_of(connection, own.limit(limit) if some is None else union(own, episode).limit(limit))


def num_imitated_since(connection: Connection, agent_id: str, policy: str, sequence: int, limit: int) -> int:
    """Returns how many decisions in apprentice mode came after this one of the log, at the most ``limit``."""
    table = schema.decisions.c
    query = select(table.decision_id).where(
        table.sequence > sequence,
        table.agent_id == agent_id,
        table.policy == policy,
        table.mode == DecisionMode.APPRENTICE.value,
        table.baseline_action.is_not(None),
    )
    return number_of(connection, query.limit(limit))


def number_of(connection: Connection, query: Select[Any] | CompoundSelect[Any]) -> int:
    """Returns how many rows a query has."""
    return int(connection.execute(select(func.count()).select_from(query.subquery())).scalar_one())


def _policies(connection: Connection, query: Select[Any]) -> set[tuple[str, str]]:
    return {(row[0], row[1]) for row in connection.execute(query)}


def _last_of_page(connection: Connection, column: ColumnElement[int], after: int, limit: int) -> int | None:
    """Returns the highest of the ``limit`` numbers that follow ``after`` in a column; None: none do."""
    page = select(column.label("place")).where(column > after).order_by(column).limit(limit).subquery()
    last: int | None = connection.execute(select(func.max(page.c.place))).scalar_one()
    return last
