"""Modules that a caller names, such as ``my_package.rewards`` of ``my_package.rewards:brevity``."""

from __future__ import annotations

import importlib
from types import ModuleType

from learnloop.core.errors import NotFoundError, UsageError


def import_named(module: str, what: str, example: str) -> ModuleType:
    """Returns the module ``module``, imported now.

    Args:
        module: its whole name.
        what: what named it, for messages, such as ``the environment 'mine:Mine-v0'``.
        example: how such a name is written right.

    Raises:
        NotFoundError: there is no such module, or none of one that it imports.
        UsageError: it is not named by its whole name, or raises something while it is imported.
    """
    if not module or module.startswith("."):
        raise UsageError(
            f"{what} names the module {module!r}; the whole name of one that can be imported is needed before the "
            f"colon, such as {example}"
        )
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = module if f"{module}.".startswith(f"{error.name}.") else error.name
        raise NotFoundError(f"{what} needs the module {missing!r}, which cannot be found from here") from error
    except Exception as error:  # whatever a module of the caller's raises
        raise UsageError(
            f"{what}: the module {module!r} cannot be imported; it raised {type(error).__name__}: {error}"
        ) from error
