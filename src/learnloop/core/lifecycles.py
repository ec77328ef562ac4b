"""The one place where a change of state is allowed or refused; and what is closed at the end of a ``with``."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Self, TypeVar

from learnloop.core.errors import TransitionError, one_of

State = TypeVar("State", bound=StrEnum)


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
