"""What a person says of a run."""

from __future__ import annotations

from typing import Final

from learnloop.algorithms import check_reward
from learnloop.core.clock import now
from learnloop.core.errors import NotFoundError, RewardError, UsageError
from learnloop.core.ids import new_id
from learnloop.core.names import check_name
from learnloop.core.records import Reward, Span
from learnloop.loop.tracing import resolve_episode
from learnloop.loop.workspace import Workspace

SOURCE = "label"
"""The source of rewards that people gave."""
WORDS: Final = {"good": 1.0, "bad": 0.0}


def label(
    workspace: Workspace,
    episode: str,
    value: str | float,
    *,
    name: str = "label",
    note: str | None = None,
    span: str | None = None,
) -> Reward:
    """Writes the reward that a person gives an episode, or a span of it, and returns it.

    It is a part of the episode's reward, called ``name``. Labelling again replaces it: the last one counts.

    Args:
        workspace: whose.
        episode: its id, or the beginning of it that no other has.
        value: ``good``, ``bad`` or a number from 0 to 1.
        name: of the part.
        note: why.
        span: the id of a span of the episode; a reward of a span is no part of the episode's.

    Raises:
        NotFoundError: there is no such episode, or no such span in it.
        UsageError: ``value`` is no such value.
    """
    number = _value(value)
    check_name("a reward", name)
    episode_id = resolve_episode(workspace, episode)
    if span is not None:
        found = workspace.store.find(Span, span)
        if found is None or found.episode_id != episode_id:
            raise NotFoundError(
                f"the episode {episode_id} has no span {span!r}; learnloop traces show --json lists them"
            )
    reward = Reward(
        reward_id=new_id(),
        episode_id=episode_id,
        span_id=span,
        name=name,
        value=number,
        source=SOURCE,
        reason=note,
        created_at=now(),
    )
    workspace.store.write([reward])
    return reward


def _value(value: str | float) -> float:
    if isinstance(value, str) and value.lower() in WORDS:
        return WORDS[value.lower()]
    try:
        number = check_reward(float(value))
    except (ValueError, RewardError) as error:
        raise UsageError(f"{value!r} is no label; give good, bad or a number from 0 to 1") from error
    if not 0.0 <= number <= 1.0:
        raise UsageError(f"{value!r} is no label; give good, bad or a number from 0 to 1")
    return number
