"""What a context may hold: the kind of each feature, and the checks of a value of each kind."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping
from typing import Any, Literal, NoReturn, get_args

import msgspec

from learnloop.core.errors import ContextError, one_of

FeatureKind = Literal["number", "category", "text"]

_SCALARS = frozenset({float, int, bool, str})
MAX_FEATURES = 64
"""How many features a context may have."""


def read_number(name: str, value: object) -> float:
    """Returns ``value`` as a float; a boolean counts as 0 or 1.

    Raises:
        ContextError: it is not a finite number.
    """
    if not isinstance(value, numbers.Real):
        raise ContextError(f"context feature {name!r} is declared a number and is {value!r}; give a finite number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ContextError(
            f"context feature {name!r} is {number}; give a finite number, or leave the feature out of all"
        )
    return number


def read_category(name: str, value: object) -> str:
    """Returns the key of a category: text as it is, ``true`` and ``false``, a number in its shortest form.

    Raises:
        ContextError: it is none of these.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, numbers.Real):
        number = read_number(name, value)
        return str(int(number)) if number.is_integer() else repr(number)
    raise ContextError(
        f"context feature {name!r} is declared a category and is {value!r}; give text, a boolean or a number"
    )


def read_text(name: str, value: object) -> str:
    """Returns ``value``.

    Raises:
        ContextError: it is not text.
    """
    if not isinstance(value, str):
        raise ContextError(f"context feature {name!r} is declared text and is {value!r}; give text")
    return value


CHECKS: Mapping[FeatureKind, Callable[[str, object], float | str]] = {
    "number": read_number,
    "category": read_category,
    "text": read_text,
}


class ContextSchema(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The features of a context and the kind of each."""

    features: dict[str, FeatureKind]
    """Feature name -> kind. May be empty: a bandit without context."""
    inferred: bool = False
    """Whether the kinds were read off the first context; then text-like categories become text at fitting."""

    def __post_init__(self) -> None:
        """Refuses too many features, unknown kinds and names that are not text."""
        if len(self.features) > MAX_FEATURES:
            raise ContextError(f"a context has {len(self.features)} features; at most {MAX_FEATURES} are allowed")
        declared: Mapping[Any, Any] = self.features
        for name, kind in declared.items():
            if not isinstance(name, str) or not name:
                raise ContextError(f"{name!r} cannot name a context feature; give text that is not empty")
            if kind not in CHECKS:
                raise ContextError(
                    f"context feature {name!r} is declared {kind!r}; allowed are {one_of(get_args(FeatureKind))}"
                )

    @classmethod
    def infer(cls, context: Mapping[str, Any], *, strict: bool = True) -> ContextSchema:
        """Returns the schema of ``context``: numbers are numbers; text and booleans are categories.

        Args:
            context: of which it is.
            strict: False: features of which nothing can be read are left out, and so are those beyond ``MAX_FEATURES``.

        Raises:
            ContextError: a value is not a finite number, a boolean or text.
        """
        check_mapping(context)
        features: dict[str, FeatureKind] = {}
        for name, value in context.items():
            kind: FeatureKind = "category" if isinstance(value, bool | str) else "number"
            if strict:
                CHECKS[kind](name, value)
            elif len(features) == MAX_FEATURES or not name or not _fits(kind, name, value):
                continue
            features[name] = kind
        return cls(features=features, inferred=True)

    def known_part(self, context: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the features of ``context`` that the schema knows and whose values are of their kind."""
        return {
            name: context[name]
            for name, kind in self.features.items()
            if name in context and _fits(kind, name, context[name])
        }

    def validate(self, context: Mapping[str, Any]) -> None:
        """Returns if ``context`` has exactly these features, each with a value of its kind.

        Raises:
            ContextError: a feature is missing or unknown, or a value is not of its kind.
        """
        check_mapping(context)
        if len(context) != len(self.features) or any(name not in context for name in self.features):
            self.refuse(context)
        for name, kind in self.features.items():
            CHECKS[kind](name, context[name])

    def refuse(self, context: Mapping[str, Any]) -> NoReturn:
        """Raises the error for a ``context`` whose features are not those of the schema."""
        missing = [name for name in self.features if name not in context]
        if missing:
            raise ContextError(
                f"the context lacks {one_of(missing)}; it has {one_of(context)} and needs {one_of(self.features)}"
            )
        unknown = [name for name in context if name not in self.features]
        raise ContextError(f"the context has unknown features {one_of(unknown)}; allowed are {one_of(self.features)}")


def _fits(kind: FeatureKind, name: str, value: object) -> bool:
    try:
        CHECKS[kind](name, value)
    except ContextError:
        return False
    return True


def check_mapping(context: object) -> None:
    """Returns if ``context`` is a mapping.

    Raises:
        ContextError: it is not.
    """
    if not isinstance(context, Mapping):
        raise ContextError(f"a context is {context!r}; give a mapping from feature names to numbers, booleans or text")


def flat_context(context: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns ``context`` with the features of nested objects under dotted names: ``{"a": {"b": 1}}`` as ``a.b``.

    Raises:
        ContextError: two features get one name.
    """
    for value in context.values():
        if type(value) not in _SCALARS and isinstance(value, Mapping):  # the first check takes a tenth of the other
            return _flattened(context)
    return context


def _flattened(context: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    waiting = list(context.items())[::-1]
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, Mapping):
            waiting += [(f"{name}.{inner}", each) for inner, each in value.items()][::-1]
        elif name in found:
            raise ContextError(f"the context has two features {name!r}, one of them nested; rename one")
        else:
            found[name] = value
    return found
