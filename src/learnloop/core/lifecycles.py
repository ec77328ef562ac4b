"""The one place where a change of state is allowed or refused; and what is closed at the end of a ``with``."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Self, TypeVar

from learnloop.core.errors import TransitionError, one_of
from learnloop.core.records import EpisodeStatus, LabelStatus

State = TypeVar("State", bound=StrEnum)

EPISODE_TRANSITIONS: Mapping[EpisodeStatus, frozenset[EpisodeStatus]] = {
    EpisodeStatus.RUNNING: frozenset({EpisodeStatus.COMPLETED, EpisodeStatus.FAILED}),
    EpisodeStatus.COMPLETED: frozenset(),
    EpisodeStatus.FAILED: frozenset(),
}
"""The allowed changes of an episode's status; a status without any is final."""

REOPENED_SOURCES = frozenset({"otlp"})
"""Sources of episodes whose spans come from others, in any order: one that ended runs again when a span comes late, and
says so (``episode.reopened``). All other episodes stay as they ended."""

LABEL_TRANSITIONS: Mapping[LabelStatus, frozenset[LabelStatus]] = {
    LabelStatus.OPEN: frozenset({LabelStatus.ANSWERED, LabelStatus.SKIPPED}),
    LabelStatus.ANSWERED: frozenset(),
    LabelStatus.SKIPPED: frozenset(),
}
"""The allowed changes of a label request's status; a status without any is final."""


def check_transition(table: Mapping[State, frozenset[State]], subject: str, current: State, wanted: State) -> None:
    """Returns if ``table`` allows ``subject`` to go from ``current`` to ``wanted``.

    Raises:
        TransitionError: it does not; the message says what is allowed.
    """
    allowed = table[current]
    if wanted not in allowed:
        raise TransitionError(
            f"{subject} is {current.value} and cannot become {wanted.value}; allowed from here: "
            f"{one_of(sorted(state.value for state in allowed))}"
        )


class Closing:
    """Something that a ``with`` closes at its end."""

    def __enter__(self) -> Self:
        """Returns itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Closes it."""
        self.close()

    def close(self) -> None:
        """Gives back what it holds."""
        raise NotImplementedError
