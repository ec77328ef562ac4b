"""Whether two expressions are equal: exactly where that can be decided, else at points, to 30 digits.

All work is bounded: numbers have at most some thousand bits, powers and functions are not computed where they would
grow beyond that.
"""

from __future__ import annotations

import math
import operator
import threading
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import reduce
from typing import Any

from learnloop.core.errors import needs_extra
from learnloop.rewards.grading.tasks.math_parsing import Node, symbols_of

_MAX_BITS = 8_000
_MAX_FACTORIAL = 500
_MAX_DEGREE = 60
_MAX_TERMS = 2_000
_DIGITS = 50
_AGREE = 10**30
_MAX_LOG = 10_000
"""Larger powers of e are not computed."""
_MAX_ANGLE = 10**6
_POINTS = (
    (0.7390851332, 1.3247179572, 2.5029078751, 0.5671432904, 1.9021605831, 3.3598856662),
    (1.6180339887, 0.3183098862, 0.8346268417, 2.6854520011, 1.2020569032, 0.2614972128),
    (-0.4669201609, -1.1865691104, 0.6434105463, -2.8077702420, 1.4513692349, -0.9159655942),
    (2.2955871494, -0.6627434193, -1.7632228344, 0.1149420449, -3.1699250014, 1.0986122887),
    (0.0854245431, 4.1327313541, -0.3775396641, 1.7724538509, 0.5963473623, -2.2360679775),
)
"""Values of the symbols, in their order; without meaning, so that nothing else than equality makes two sides agree."""
_TOLERANCE = 5e-6


class TooLargeError(ValueError):
    """A number is larger than any that a task asks for."""


def are_equal(first: Node, second: Node) -> bool:
    """Returns whether two expressions are equal wherever both are defined.

    Rational numbers and polynomials are decided exactly, all else by 50 digit arithmetic at five points.

    Raises:
        MissingExtraError: sympy is not installed, and the expressions are no plain numbers.
        TooLargeError: they cannot be computed within the limits.
    """
    numbers = (exact_value(first), exact_value(second))
    if None not in numbers:
        return numbers[0] == numbers[1]
    names = sorted(symbols_of(first) | symbols_of(second))
    if not _agree_at_points(first, second, names):
        return False
    variables = [name for name in names if name not in _CONSTANTS]
    if len(variables) < len(names) or not variables:
        return True
    degrees = (_degree(first), _degree(second))
    degree = max(degrees)
    if -1 in degrees or degree > _MAX_DEGREE or math.comb(len(variables) + degree, degree) > _MAX_TERMS:
        return True
    generators = _polynomial_ring(variables)
    return bool(_polynomial(first, generators) == _polynomial(second, generators))


def are_close(value: Node, truth: Node) -> bool:
    """Returns whether two constants are the same to five digits, for those that are written as rounded decimals.

    Where the truth is a whole number nothing is rounded.
    """
    wanted = exact_value(truth)
    is_rounded = any("." in number for number in (*_numbers(value), *_numbers(truth)))
    if not is_rounded or (wanted is not None and wanted.denominator == 1):
        return False
    names = (symbols_of(value) | symbols_of(truth)) - _CONSTANTS
    if names:
        return False
    found, other = _at_point(value, {}, []), _at_point(truth, {}, [])
    return found is not None and other is not None and bool(abs(found - other) <= abs(other) * _TOLERANCE)


def exact_value(node: Node) -> Fraction | None:
    """Returns the rational number that a tree is; None: it is not one, or cannot be had without rounding.

    Raises:
        TooLargeError: it has too many digits.
    """
    if node.operation == "number":
        return _bounded(node.value)
    values = [exact_value(each) for each in node.arguments]
    if not values or any(value is None for value in values):
        return None
    known = [value for value in values if value is not None]
    operate = _EXACT.get(node.operation)
    found = None if operate is None else operate(*known)
    return None if found is None else _bounded(found)


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > _MAX_BITS:
        raise TooLargeError("a number has too many digits")
    return value


def _divide(first: Fraction, second: Fraction) -> Fraction | None:
    return first / second if second else None


def _exact_power(base: Fraction, exponent: Fraction) -> Fraction | None:
    if exponent.denominator != 1:
        return _exact_root(base, exponent)
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if bits > 1 and bits * abs(exponent) > _MAX_BITS:
        raise TooLargeError("a power is too large")
    if not base and exponent < 0:
        return None
    if bits > 1:
        return base ** int(exponent)
    is_odd = exponent.numerator % 2 == 1  # the base is 0, 1 or -1: any exponent is computed at once
    return base if is_odd or (not base and exponent) else Fraction(1)


def _exact_root(base: Fraction, exponent: Fraction) -> Fraction | None:
    """Returns a square root that is rational, so that sqrt(9) is 3."""
    if exponent != Fraction(1, 2) or base < 0:
        return None
    root = Fraction(math.isqrt(base.numerator), math.isqrt(base.denominator))
    return root if root * root == base else None


def _exact_factorial(value: Fraction) -> Fraction | None:
    if value.denominator != 1 or value < 0:
        return None
    if value > _MAX_FACTORIAL:
        raise TooLargeError("a factorial is too large")
    return Fraction(math.factorial(int(value)))


_ARITHMETIC: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
_EXACT: Mapping[str, Callable[..., Fraction | None]] = {
    **_ARITHMETIC,
    "/": _divide,
    "^": _exact_power,
    "!": _exact_factorial,
    "abs": abs,
    "sqrt": lambda a: _exact_root(a, Fraction(1, 2)),
}
_CONSTANTS = frozenset({"pi", "e", "i"})


# At points -----------------------------------------------------------------------------------------------------------


def _agree_at_points(first: Node, second: Node, names: list[str]) -> bool:
    variables = [name for name in names if name not in _CONSTANTS]
    if len(variables) > len(_POINTS[0]):
        raise TooLargeError(f"it has {len(variables)} variables")
    num_decided = 0
    for point in _POINTS if variables else _POINTS[:1]:
        places = dict(zip(variables, point, strict=False))
        sizes: list[Any] = [0]
        values = (_at_point(first, places, sizes), _at_point(second, places, sizes))
        if None in values:
            continue
        one, other = values
        if abs(one - other) > max(*sizes, abs(one), abs(other)) / _AGREE:
            return False
        num_decided += 1
    return num_decided > 0


def _at_point(node: Node, places: Mapping[str, float], sizes: list[Any]) -> Any:
    """Returns the value of a tree at a point; None: it is not defined there.

    To ``sizes`` is added what sums and functions were made of: their results are as exact as these are large.
    """
    context = _context()
    try:
        value = _evaluate(node, places, context, sizes)
    except (ZeroDivisionError, OverflowError):
        return None
    return value if context.isfinite(value) else None


def _evaluate(node: Node, places: Mapping[str, float], context: Any, sizes: list[Any]) -> Any:
    if node.operation == "number":
        value = _bounded(node.value)
        return context.mpf(value.numerator) / value.denominator
    if node.operation == "symbol":
        return _constant(node.name, context) if node.name in _CONSTANTS else context.mpf(places[node.name])
    if node.operation == "^":
        base = _evaluate(node.arguments[0], places, context, sizes)
        return _power(base, _evaluate(node.arguments[1], places, context, []), context)
    values = [_evaluate(each, places, context, sizes) for each in node.arguments]
    if node.operation not in ("*", "/"):
        sizes.extend(abs(value) for value in values)
    if node.operation == "!":
        exact = exact_value(node)
        if exact is None:
            raise TooLargeError("a factorial of no whole number")
        return context.mpf(exact.numerator)
    if node.operation in _ARITHMETIC:
        return _ARITHMETIC[node.operation](*values)
    limit = _MAX_LOG if node.operation in ("exp", "sinh", "cosh", "tanh") else _MAX_ANGLE
    if node.operation not in ("sqrt", "ln", "log", "abs") and abs(values[0]) > limit:
        raise TooLargeError("the argument of a function is too large")
    if node.operation == "log":
        return context.log(values[0]) / context.log(10)
    return getattr(context, "fabs" if node.operation == "abs" else node.operation)(values[0])


def _power(base: Any, exponent: Any, context: Any) -> Any:
    if base == 0:
        if context.re(exponent) <= 0:
            raise ZeroDivisionError
        return base
    if abs(exponent) * (abs(context.log(abs(base))) + context.pi) > _MAX_LOG:
        raise TooLargeError("a power is too large")
    return context.power(base, exponent)


def _constant(name: str, context: Any) -> Any:
    return {"pi": context.pi, "e": context.e, "i": context.j}[name] * 1


_LOCAL = threading.local()


def _context() -> Any:
    """Returns this thread's arithmetic: another thread's has state of its own."""
    if not getattr(_LOCAL, "context", None):
        with needs_extra("Comparing mathematics", "rewards"):
            import mpmath
        _LOCAL.context = mpmath.MPContext()
        _LOCAL.context.dps = _DIGITS
    return _LOCAL.context


# Polynomials ---------------------------------------------------------------------------------------------------------


def _degree(node: Node) -> int:
    """Returns an upper bound of the degree of a polynomial; -1: the tree is not a polynomial."""
    if exact_value(node) is not None:
        return 0
    if node.operation == "symbol":
        return -1 if node.name in _CONSTANTS else 1
    degrees = [_degree(each) for each in node.arguments]
    if -1 in degrees:
        return -1
    if node.operation in ("+", "-"):
        return max(degrees)
    if node.operation == "*":
        return sum(degrees)
    if node.operation == "/":
        return degrees[0] if degrees[1] == 0 and exact_value(node.arguments[1]) else -1
    if node.operation == "^":
        exponent = exact_value(node.arguments[1]) if degrees[1] == 0 else None
        if exponent is None or exponent.denominator != 1 or not 0 <= exponent <= _MAX_DEGREE:
            return -1
        return degrees[0] * int(exponent)
    return -1


def _polynomial_ring(names: list[str]) -> dict[str, Any]:
    with needs_extra("Comparing mathematics", "rewards"):
        from sympy.polys.domains import QQ
        from sympy.polys.rings import PolyRing
    from sympy import Symbol

    ring = PolyRing([Symbol(name) for name in names], QQ)
    return {"": ring, **dict(zip(names, ring.gens, strict=True))}


def _polynomial(node: Node, generators: Mapping[str, Any]) -> Any:
    if node.operation == "symbol":
        return generators[node.name]
    value = exact_value(node)
    if value is not None:
        ring = generators[""]
        return ring.ground_new(ring.domain(value.numerator, value.denominator))
    if node.operation == "^":
        return _polynomial(node.arguments[0], generators) ** int(exact_value(node.arguments[1]) or 0)
    if node.operation == "/":
        divisor = exact_value(node.arguments[1]) or Fraction(1)
        ring = generators[""]
        return _polynomial(node.arguments[0], generators) * ring.domain(divisor.denominator, divisor.numerator)
    parts = [_polynomial(each, generators) for each in node.arguments]
    return reduce(_ARITHMETIC[node.operation], parts)


def _numbers(node: Node) -> list[str]:
    own = [node.name] if node.operation == "number" else []
    return own + [name for each in node.arguments for name in _numbers(each)]
