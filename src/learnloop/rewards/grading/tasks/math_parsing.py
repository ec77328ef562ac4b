"""Reads mathematics in plain or LaTeX notation into a tree, by a small grammar. Nothing is evaluated as code.

sum     = product (("+" | "-") product)*
product = factor (("*" | "/" | nothing) factor)*
factor  = ("-" | "+") factor | whole frac group group | power
unary   = ("-" | "+") unary | power
power   = postfix ("^" unary)?
postfix = atom ("!" | "%")*
atom    = number | letter | function argument | "(" sum ")" | "|" sum "|" | frac group group | sqrt [group] group
argument = "(" sum ")" | power (number | letter | frac)*
"""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction
from typing import NamedTuple

MAX_CHARS = 1_000
MAX_TOKENS = 400
_MAX_DEPTH = 40
_MAX_EXPONENT = 300
_MAX_PRODUCT = 3
"""A word of more letters is no product of them."""


class MathSyntaxError(ValueError):
    """A text is no mathematics that this grammar knows."""


class Node(NamedTuple):
    """An operation and what it is applied to."""

    operation: str
    """``number``, ``symbol``, ``+``, ``-``, ``*``, ``/``, ``^``, ``!`` or the name of a function."""
    arguments: tuple[Node, ...] = ()
    value: Fraction = Fraction(0)
    name: str = ""


_ALIASES = {
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "inf": "infty", "infinity": "infty", "dbinom": "binom",
}  # fmt: skip
_INVERSES = {"sin": "asin", "cos": "acos", "tan": "atan"}
_ON_WORDS = "sinh|cosh|tanh|sin|cos|tan|cot|sec|csc|exp|ln|log"
"""What may be written without brackets or a space, as in ``sinx``; of two that begin alike the longer one first."""
_PREFIX = re.compile(rf"(?:{_ON_WORDS})(?=[A-Za-z])")
FUNCTIONS = frozenset({*_ON_WORDS.split("|"), *_INVERSES.values(), "sqrt", "abs"})
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:[eE][-+]?\d{1,4}(?![\w.]))?|\.\d+)"
    r"|(?P<command>\\[A-Za-z]+)|(?P<word>[A-Za-z]+)|(?P<sign>\*\*|[-+*/^!%()\[\]{}|_]))"
)
_SPELLINGS = (
    ("\\left", ""), ("\\right", ""), ("\\dfrac", "\\frac"), ("\\tfrac", "\\frac"), ("\\,", " "), ("\\;", " "),
    ("\\!", ""),
    ("\\ ", " "), ("\\cdot", "*"), ("\\times", "*"), ("\\div", "/"), ("\\%", "%"), ("\\$", ""), ("^\\circ", ""),
    ("^{\\circ}", ""), ("°", ""), ("€", ""), ("£", ""), ("∞", "\\infty "),
    ("−", "-"), ("–", "-"), ("×", "*"), ("·", "*"), ("÷", "/"), ("π", "\\pi "), ("√", "\\sqrt "),
    ("\\(", ""), ("\\)", ""), ("\\[", ""), ("\\]", ""),
    ("$", ""), ("\\lvert", "|"), ("\\rvert", "|"), ("\\mathrm", ""), ("\\operatorname", ""),
)  # fmt: skip

_GREEK_LETTERS = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "θ": "theta", "λ": "lambda", "μ": "mu",
    "ν": "nu", "ρ": "rho", "σ": "sigma", "τ": "tau", "φ": "phi", "ω": "omega",
}  # fmt: skip
_GREEK = frozenset({*_GREEK_LETTERS.values(), "pi", "infty"})
_GROUPS = re.compile(r"(?<=\d)(?:\\[,;! ]|[\u00a0\u2009\u202f ])(?=\d{3}(?!\d|\s*/|\s*\\frac))")
"""Between groups of three digits."""
_TIMES_TEN = re.compile(r"(?<=\d)\s*[xX]\s*(?=10\s*\^)")
_RAISED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺]+")
_PERCENT = re.compile(r"(?i)(?<=\d)\s*per ?cent\b")


def read_expression(text: str) -> Node:
    """Returns the tree of an expression.

    Raises:
        MathSyntaxError: it is not an expression, or larger than anything that a task asks for.
    """
    return _Reader(_tokens(plain(text))).read()


def plain(text: str) -> str:
    """Returns a text with the spellings of LaTeX and of typography that have a plain one replaced.

    Raises:
        MathSyntaxError: it is too long.
    """
    if len(text) > MAX_CHARS:
        raise MathSyntaxError(f"it has {len(text)} characters, more than {MAX_CHARS}")
    text = _RAISED.sub(lambda digits: f"^{{{unicodedata.normalize('NFKC', digits.group())}}}", text)
    text = _PERCENT.sub("%", _GROUPS.sub("", text.replace("{,}", ",")))
    for spelling, simple in _SPELLINGS:
        text = text.replace(spelling, simple)
    if not text.isascii():
        text = "".join(map(_ascii, text))
    return _TIMES_TEN.sub("*", text).strip()


def _ascii(letter: str) -> str:
    """Returns how a letter of typography is written in LaTeX: fractions and Greek; else itself."""
    if letter in _GREEK_LETTERS:
        return f"\\{_GREEK_LETTERS[letter]} "
    form = unicodedata.decomposition(letter)
    if form.startswith("<fraction>"):
        above, _, below = unicodedata.normalize("NFKC", letter).partition("⁄")
        return f"\\frac{{{above}}}{{{below}}}" if above and below else letter
    return letter


def symbols_of(node: Node) -> set[str]:
    """Returns the names of the symbols in a tree."""
    if node.operation == "symbol":
        return {node.name}
    return set().union(*(symbols_of(each) for each in node.arguments))


def _tokens(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None or match.lastgroup is None:
            raise MathSyntaxError(f"{text[place : place + 20]!r} is not understood")
        found.append((match.lastgroup, match.group(match.lastgroup)))
        place = match.end()
        if len(found) > MAX_TOKENS:
            raise MathSyntaxError(f"it has more than {MAX_TOKENS} parts")
    return found


class _Reader:
    """Reads tokens from left to right."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = tokens
        self._place = 0
        self._depth = 0

    def read(self) -> Node:
        found = self._sum()
        if self._place < len(self._tokens):
            raise MathSyntaxError(f"{self._peek()!r} is not expected there")
        return found

    def _peek(self) -> str:
        return self._tokens[self._place][1] if self._place < len(self._tokens) else ""

    def _kind(self) -> str:
        return self._tokens[self._place][0] if self._place < len(self._tokens) else "end"

    def _take(self, *signs: str) -> str:
        """Returns the next token if it is one of ``signs``, and passes it; else nothing."""
        if self._kind() != "end" and self._peek() in signs:
            self._place += 1
            return self._tokens[self._place - 1][1]
        return ""

    def _demand(self, sign: str) -> None:
        if not self._take(sign):
            raise MathSyntaxError(f"{sign!r} is missing before {self._peek() or 'the end'!r}")

    def _sum(self) -> Node:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise MathSyntaxError("it is nested too deeply")
        found = self._product()
        while sign := self._take("+", "-"):
            found = Node(sign, (found, self._product()))
        self._depth -= 1
        return found

    def _product(self) -> Node:
        found = self._factor()
        while True:
            if sign := self._take("*", "/"):
                found = Node(sign, (found, self._factor()))
            elif self._starts_factor():
                found = self._joined(found)
            else:
                return found

    def _starts_factor(self) -> bool:
        if self._kind() == "number":
            raise MathSyntaxError("two numbers stand side by side")
        return self._kind() in ("word", "command") or self._peek() in ("(", "{")

    def _joined(self, before: Node) -> Node:
        """Returns two factors without a sign between: their product."""
        return Node("*", (before, self._power()))

    def _factor(self) -> Node:
        """Returns a factor with its sign; a whole number before a fraction of numbers is a mixed number."""
        signs = self._signs()
        found = self._power()
        if found.operation == "number" and found.value.denominator == 1 and self._peek() == "\\frac":
            fraction = self._power()
            is_mixed = fraction.operation == "/" and all(each.operation == "number" for each in fraction.arguments)
            found = Node("+" if is_mixed else "*", (found, fraction))
        return Node("-", (_number(0), found)) if signs % 2 else found

    def _unary(self) -> Node:
        signs = self._signs()
        found = self._power()
        return Node("-", (_number(0), found)) if signs % 2 else found

    def _signs(self) -> int:
        """Passes all signs and returns how many are a minus."""
        signs = 0
        while sign := self._take("-", "+"):
            signs += sign == "-"
        return signs

    def _power(self) -> Node:
        base = self._postfix()
        if self._take("^", "**"):
            self._depth += 1
            if self._depth > _MAX_DEPTH:
                raise MathSyntaxError("it is nested too deeply")
            base = Node("^", (base, self._unary()))
            self._depth -= 1
        return base

    def _postfix(self) -> Node:
        found = self._atom()
        while sign := self._take("!", "%"):
            found = Node("!", (found,)) if sign == "!" else Node("/", (found, _number(100)))
        return found

    def _atom(self) -> Node:
        kind, text = self._kind(), self._peek()
        if kind == "number":
            self._place += 1
            return Node("number", value=_fraction(text), name=text)
        if kind in ("word", "command"):
            self._place += 1
            return self._read_name(text.removeprefix("\\"), is_command=kind == "command")
        for opening, closing in (("(", ")"), ("{", "}"), ("|", "|")):
            if self._take(opening):
                found = self._sum()
                self._demand(closing)
                return Node("abs", (found,)) if opening == "|" else found
        raise MathSyntaxError(f"{text or 'the end'!r} is not expected there")

    def _read_name(self, name: str, *, is_command: bool) -> Node:
        name = _ALIASES.get(name, name)
        if name == "frac" and is_command:
            return Node("/", (self._group(), self._group()))
        if name == "binom" and is_command:
            return _binomial(self._group(), self._group())
        if name == "sqrt" and self._take("["):
            degree = self._sum()
            self._demand("]")
            return Node("^", (self._group(), Node("/", (_number(1), degree))))
        if name in FUNCTIONS:
            return self._function(name)
        if name in _GREEK or len(name) == 1:
            return self._symbol(name)
        prefix = None if is_command else _PREFIX.match(name)
        if prefix is not None:  # sinx is sin x
            self._insert(name[prefix.end() :])
            return self._function(prefix.group())
        if not is_command and len(name) <= _MAX_PRODUCT:  # xy is x times y
            self._insert(*name[1:])
            return Node("symbol", name=name[0])
        raise MathSyntaxError(f"{name[:20]!r} is not known")

    def _insert(self, *words: str) -> None:
        if len(self._tokens) + len(words) > MAX_TOKENS:
            raise MathSyntaxError(f"it has more than {MAX_TOKENS} parts")
        self._tokens[self._place : self._place] = [("word", word) for word in words]

    def _function(self, name: str) -> Node:
        exponent = self._group(is_signed=True) if self._take("^", "**") else None
        if exponent is not None and name in _INVERSES and _is_minus_one(exponent):
            name, exponent = _INVERSES[name], None
        base = self._group() if name == "log" and self._take("_") else None
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise MathSyntaxError("it is nested too deeply")
        found = Node(name, (self._argument(name),))
        self._depth -= 1
        if base is not None:
            found = Node("/", (Node("ln", found.arguments), Node("ln", (base,))))
        return found if exponent is None else Node("^", (found, exponent))

    def _argument(self, name: str) -> Node:
        """Returns what a function is applied to: what stands in brackets, else all up to a sign, as in cos 2x."""
        if name == "sqrt" or self._peek() in ("(", "{", "|"):  # sin(x)^2 is the square of the sine, sin x^2 is not
            return self._group() if self._peek() in ("(", "{", "|") else self._power()
        found = self._unary()
        while self._kind() in ("word", "command") and not _is_function(self._peek()):
            found = Node("*", (found, self._power()))
        return found

    def _symbol(self, name: str) -> Node:
        if self._take("_"):  # x_1 is a name
            index = self._group()
            name += f"_{index.name or index}"
        return Node("symbol", name=name)

    def _group(self, *, is_signed: bool = False) -> Node:
        """Returns what stands in braces or brackets, or the next digit, letter or function."""
        if is_signed and self._take("-"):
            return Node("-", (_number(0), self._atom()))
        kind, text = self._kind(), self._peek()
        if (
            kind == "number"
            and len(text) > 1
            and text.isdigit()
            and self._place
            and self._tokens[self._place - 1][1] == "\\frac"
        ):
            self._tokens[self._place] = (kind, text[1:])  # \frac12 is one half
            return _number(int(text[0]))
        return self._atom()


def _is_function(text: str) -> bool:
    name = text.removeprefix("\\")
    return _ALIASES.get(name, name) in FUNCTIONS or _PREFIX.match(text) is not None


def _is_minus_one(node: Node) -> bool:
    return node == Node("-", (_number(0), _number(1)))


def _binomial(upper: Node, lower: Node) -> Node:
    """Returns n! / (k! (n - k)!)."""
    others = Node("!", (Node("-", (upper, lower)),))
    return Node("/", (Node("!", (upper,)), Node("*", (Node("!", (lower,)), others))))


def _number(value: int) -> Node:
    return Node("number", value=Fraction(value), name=str(value))


def _fraction(text: str) -> Fraction:
    digits, _, exponent = text.replace(",", "").lower().partition("e")
    if abs(int(exponent or 0)) > _MAX_EXPONENT:
        raise MathSyntaxError(f"{text[:20]!r} is larger than any number that a task asks for")
    return Fraction(digits) * Fraction(10) ** int(exponent or 0)
