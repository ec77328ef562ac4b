"""An open episode as the user holds it: the recorded one, with rewards."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from learnloop.core.errors import UsageError
from learnloop.core.records import Json
from learnloop.traces.recording.recorder import ActiveEpisode, Recorder

RewardWriter = Callable[["OpenEpisode", Mapping[str, float | None], Mapping[str, float] | None, str | None], None]


class OpenEpisode(ActiveEpisode):
    """One try at a task. Use it as a context manager; an exception inside ends it as failed and goes on."""

    __slots__ = ("_write_rewards", "policies")

    def __init__(
        self,
        recorder: Recorder,
        write_rewards: RewardWriter,
        *,
        task_id: str | None,
        attempt: int | None,
        metadata: Json | None,
    ) -> None:
        super().__init__(recorder, recorder.agent_id, task_id, attempt, metadata)
        self._write_rewards = write_rewards
        self.policies: dict[str, None] = {}
        """The policies that chose in it, which learn from its reward."""

    def reward(
        self, *, weights: Mapping[str, float] | None = None, reason: str | None = None, **values: float | None
    ) -> None:
        """Says what the episode was worth, in one or more named parts.

        What is learned is their weighted sum, or the part ``total`` alone where there is one.

        Each decision of the episode that has no reward of its own learns from it. A part that is given again replaces
        the old one. ``None`` means "could not be computed": it is recorded and not learned from. It may be called
        during the episode or after it, here or, by its id, in another process (``Loop.reward``).

        Args:
            weights: weight by part, 1 where not given; 0 makes a metric: recorded, not learned from.
            reason: why a part is None, or what the scorer has to say.
            values: the parts, such as ``solved=1.0, cost=-0.2``.

        Raises:
            RewardError: a value is neither None nor a finite number.
            UsageError: the episode has not begun, or no part is given.
        """
        if self.status is None:
            raise UsageError("the episode has not begun; use it as a context manager: with loop.episode(...) as ep")
        self._write_rewards(self, values, weights, reason)
