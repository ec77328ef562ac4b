"""``ll.register`` and ``ll.extensions``: what others add by name, beside what learnloop has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from learnloop.algorithms.building import ALGORITHMS, check_algorithm
from learnloop.core.errors import UsageError, one_of
from learnloop.core.extensions import KINDS, POINTS, Extension, Kind
from learnloop.envs.answer_scores import BUILT_IN as SCORES
from learnloop.envs.answer_scores import check_score
from learnloop.envs.registry import ALIASES, check_env_maker
from learnloop.nn.encoders.text_encoders import BUILT_IN as ENCODERS
from learnloop.nn.encoders.text_encoders import check_encoder
from learnloop.nn.network_builders import BUILT_IN as NETWORKS
from learnloop.nn.network_builders import check_builder


class _Room(NamedTuple):
    """What the room of a kind says of it."""

    built_in: Mapping[str, Any]
    check: Callable[[str, Any], object]
    """Raises UsageError where a value is not of the kind."""


_ROOMS: Mapping[Kind, _Room] = {
    "algorithm": _Room(ALGORITHMS, check_algorithm),
    "environment": _Room(ALIASES, check_env_maker),
    "reward": _Room(SCORES, check_score),
    "encoder": _Room(ENCODERS, check_encoder),
    "network": _Room(NETWORKS, check_builder),
}


def register(kind: str, name: str, value: Any) -> None:
    """Makes ``value`` usable by ``name`` in this process, wherever learnloop takes a name of its kind.

    An installed package declares an entry point of the group ``learnloop.algorithms``, ``learnloop.environments``,
    ``learnloop.rewards``, ``learnloop.encoders`` or ``learnloop.networks`` in the place of that, and is known in every
    process.

    Args:
        kind: ``algorithm``, ``environment``, ``reward``, ``encoder`` or ``network``.
        name: lower-case letters, digits, ``_``, ``.`` and ``-``.
        value: a subclass of ``Algorithm`` with ``config_type``; the id of a gymnasium environment or what makes one; a
            function of an ``Attempt`` that returns a number or a ``Score``; an object with ``size`` and
            ``encode(texts)``; or a function of ``(input_size, output_size)`` that returns a ``torch.nn.Module``.

    Raises:
        UsageError: the kind is unknown, the name is taken or cannot be used, or the value is not of its kind.
    """
    room = _ROOMS[_kind(kind)]
    room.check(name, value)
    POINTS[_kind(kind)].register(name, value, room.built_in)


def extensions(kind: str | None = None) -> list[Extension]:
    """Returns all that can be used by name, learnloop's own included, with the reason of what cannot.

    Args:
        kind: of which; None: of all kinds.

    Raises:
        UsageError: there is no such kind.
    """
    kinds = KINDS if kind is None else (_kind(kind),)
    return [each for one in kinds for each in POINTS[one].listing(*_ROOMS[one])]


def _kind(kind: str) -> Kind:
    if kind not in KINDS:
        raise UsageError(f"there is no kind {kind!r} of extension; allowed are {one_of(KINDS)}")
    return kind
