"""``ll.register`` and ``ll.extensions``: what others add by name, beside what learnloop has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from learnloop.algorithms.building import ALGORITHMS, entry_of
from learnloop.core.errors import UsageError, one_of
from learnloop.core.extensions import KINDS, POINTS, Extension, Kind
from learnloop.envs.answer_scores import BUILT_IN as SCORES
from learnloop.envs.registry import ALIASES

ENCODERS: Mapping[str, str] = {"hashing": "Words and parts of words of a text, hashed: what every Text space has."}


def register(kind: str, name: str, value: Any) -> None:
    """Makes ``value`` usable by ``name`` in this process, wherever learnloop takes a name of its kind.

    An installed package declares an entry point of the group ``learnloop.algorithms``, ``learnloop.environments``,
    ``learnloop.rewards`` or ``learnloop.encoders`` in the place of that, and is known in every process.

    Args:
        kind: ``algorithm``, ``environment``, ``reward`` or ``encoder``.
        name: lower-case letters, digits, ``_``, ``.`` and ``-``.
        value: a subclass of ``Algorithm`` with ``config_type``; the id of a gymnasium environment or what makes one; a
            function of an answer and its task that returns a number; or an object with ``size`` and ``encode(texts)``.

    Raises:
        UsageError: the kind is unknown, the name is taken or cannot be used, or the value is not of its kind.
    """
    known = _kind(kind)
    if known == "algorithm":
        entry_of(name, value)
    elif known == "encoder":
        if not isinstance(value, type) and not callable(getattr(value, "encode", None)):
            raise UsageError(f"the encoder {name!r} is {value!r}; an object with size and encode(texts) is needed")
    elif not callable(value) and not (known == "environment" and isinstance(value, str)):
        raise UsageError(f"the {known} {name!r} is {value!r}; a callable is needed")
    POINTS[known].register(name, value, _built_in(known))


def extensions(kind: str | None = None) -> list[Extension]:
    """Returns all that can be used by name, learnloop's own included, with the reason of what cannot.

    Args:
        kind: of which; None: of all kinds.

    Raises:
        UsageError: there is no such kind.
    """
    kinds = KINDS if kind is None else (_kind(kind),)
    return [each for one in kinds for each in _checked(POINTS[one].listing(_built_in(one)))]


def _checked(found: list[Extension]) -> list[Extension]:
    """Returns ``found`` with what its room says of an algorithm that a package declares."""
    return [_judged(each) if each.kind == "algorithm" and each.error is None else each for each in found]


def _judged(extension: Extension) -> Extension:
    if extension.name in ALGORITHMS:
        return extension
    try:
        entry_of(extension.name, POINTS["algorithm"].find(extension.name))
    except UsageError as error:
        return Extension(kind="algorithm", name=extension.name, source=extension.source, error=str(error))
    return extension


def _kind(kind: str) -> Kind:
    if kind not in KINDS:
        raise UsageError(f"there is no kind {kind!r} of extension; allowed are {one_of(KINDS)}")
    return kind


def _built_in(kind: Kind) -> Mapping[str, Any]:
    tables: Mapping[Kind, Mapping[str, Any]] = {
        "algorithm": {name: entry.algorithm for name, entry in ALGORITHMS.items()},
        "environment": ALIASES,
        "reward": SCORES,
        "encoder": ENCODERS,
    }
    return tables[kind]
