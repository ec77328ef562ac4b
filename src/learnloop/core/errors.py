"""The errors of learnloop: each names the value, what is allowed and what to do.

The tree, with the exit code that the command line gives each::

    LearnloopError             1  something failed
    ├── UsageError             2  the call or the input is wrong; nothing was changed
    │   ├── ContextError          a context does not fit its policy's features
    │   ├── ActionError           an unknown action, or none that is allowed
    │   ├── RewardError           a reward that is not a finite number or None
    │   ├── FormatError           a file or a line that cannot be read as what it claims to be
    │   └── MissingExtraError     an optional package is not installed
    ├── NotFoundError          3  no such thing
    ├── AuthError              4  not allowed
    ├── ConflictError          5  the thing is in a state that forbids this
    │   └── TransitionError       a lifecycle does not allow this change of state
    ├── UnreachableError       6  a database or server does not answer
    │   └── StoreLockedError      another process holds the database
    ├── CheckFailedError       7  a check ran and the answer is no
    ├── StoreError             1  the database or the disk refused
    │   ├── StoreFullError        no space left
    │   ├── StoreReadOnlyError    the folder or the file cannot be written
    │   └── SchemaVersionError    the database is newer than this learnloop, or is not ours
    ├── ExtensionError         1  what another package added by name cannot be used
    ├── SandboxError           1  the protection of a sandbox cannot be had; nothing was run
    ├── DivergedError          1  learning met a number that is not finite, and stopped
    └── CorruptError           1  stored bytes are not what was written
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class LearnloopError(Exception):
    """The base of every error that learnloop raises on purpose.

    Attributes:
        exit_code: what the command line exits with.
    """

    exit_code = 1


class UsageError(LearnloopError):
    """The call or its input is wrong; nothing was changed."""

    exit_code = 2


class ContextError(UsageError):
    """A context does not fit the features that its policy knows."""


class ActionError(UsageError):
    """An action is unknown, repeated or not allowed by the mask."""


class RewardError(UsageError):
    """A reward is neither a finite number nor None."""


class FormatError(UsageError):
    """A file, a line or a message cannot be read as what it claims to be."""


class MissingExtraError(UsageError):
    """An optional package is not installed; the message prints the line that installs it."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f'{feature} needs an optional package. Install it with: pip install "learnloop[{extra}]"')
        self.extra = extra


@contextmanager
def needs_extra(feature: str, extra: str) -> Iterator[None]:
    """Says what is to be installed where an import within the block fails.

    Raises:
        MissingExtraError: it does.
    """
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(feature, extra) from error


class NotFoundError(LearnloopError):
    """No such thing in the store or on the disk."""

    exit_code = 3


class AuthError(LearnloopError):
    """The caller may not do this."""

    exit_code = 4


class ConflictError(LearnloopError):
    """The thing exists already, or is in a state that forbids this."""

    exit_code = 5


class TransitionError(ConflictError):
    """A lifecycle does not allow this change of state."""


class UnreachableError(LearnloopError):
    """A database or a server does not answer in time."""

    exit_code = 6


class StoreLockedError(UnreachableError):
    """Another process holds the database for longer than we wait."""


class CheckFailedError(LearnloopError):
    """A check ran to its end and the answer is no."""

    exit_code = 7


class StoreError(LearnloopError):
    """The database or the disk refused."""


class StoreFullError(StoreError):
    """No space is left where the data lies; what was acknowledged is intact."""


class StoreReadOnlyError(StoreError):
    """The folder or the file cannot be written."""


class SchemaVersionError(StoreError):
    """The database is newer than this learnloop, or was not made by it."""


class ExtensionError(LearnloopError):
    """What another package added by name cannot be used: the message names the package and the reason."""


class SandboxError(LearnloopError):
    """A protection that every sandboxed run must have cannot be had here; the message names it, and nothing was run."""


class DivergedError(LearnloopError):
    """A loss, a gradient, a parameter or an output of a network is not finite; the message names the update."""


class CorruptError(LearnloopError):
    """Stored bytes are not what was written: a checksum, a shape or a value is wrong."""


def one_of(values: Iterable[object], limit: int = 12) -> str:
    """Returns the allowed values as text for a message, at most ``limit`` of them."""
    items = [repr(value) for value in values]
    if len(items) > limit:
        return ", ".join(items[:limit]) + f" and {len(items) - limit} more"
    return ", ".join(items) or "none"
