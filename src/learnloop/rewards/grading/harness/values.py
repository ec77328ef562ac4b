"""Values as JSON: what is plain crosses as a value, all else as the number it is kept under; runs in the sandbox.

What is read is data alone: built-in types, exceptions, and numbers that were given out.
"""

from __future__ import annotations

import base64
import builtins
import collections
import contextlib
import datetime
import decimal
import fractions
import sys
import types
from collections.abc import Callable
from typing import Any

MAX_DEPTH = 160
MAX_NODES = 2_000_000
CHANGEABLE: tuple[type[Any], ...] = (
    list, dict, set, bytearray, collections.deque, collections.Counter, collections.OrderedDict,
    collections.defaultdict,
)  # fmt: skip
"""What a function may change in place, exactly these types."""
_NUMBER, _TEXT = "_peer_number", "_peer_text"
_FUNCTIONS = frozenset({
    "abs", "all", "any", "ascii", "bin", "callable", "chr", "divmod", "format", "hash", "hex", "isinstance",
    "issubclass", "iter", "len", "max", "min", "next", "oct", "ord", "pow", "print", "repr", "round", "sorted", "sum",
})  # fmt: skip
"""Built-in functions of which each side has its own."""
_make_named: Any = collections.namedtuple
_ITERABLES: tuple[Any, ...] = (list, tuple, set, frozenset, collections.deque)
_PLAIN: dict[type[Any], Callable[[Any], Any]] = {str: str.__str__, int: int.__int__, float: float.__float__}


class PeerError(BaseException):
    """The other side ended, or sent what is no message. No test that expects an exception expects this one."""


class Encoder:
    """Plain values to JSON; what is not plain is kept and becomes a number."""

    def __init__(self, keep: Callable[[Any], dict[str, int]]) -> None:
        self._keep = keep
        self._num_nodes = 0

    def encode(self, value: Any, depth: int = 0) -> Any:
        self._num_nodes += 1
        if depth > MAX_DEPTH or self._num_nodes > MAX_NODES:
            return self._keep(value)
        kind = type(value)
        if kind in (bool, type(None), str):
            return value
        if kind is int:
            return value if -(2**53) < value < 2**53 else {"int": hex(value)}
        if kind is float:
            return {"float": value.hex()}
        made = self._scalar(kind, value) or self._container(kind, value, depth)
        if made is not None:
            return made
        for plain, read in _PLAIN.items():
            if issubclass(kind, plain):
                found = read(value)  # by the base type's own method, whatever the class makes of it
                return self.encode(found, depth + 1) if type(found) is plain else self._keep(value)
        return self.error(value, depth) if isinstance(value, BaseException) else self._keep(value)

    def _container(self, kind: type[Any], value: Any, depth: int) -> Any:
        fields = getattr(kind, "_fields", None)
        if issubclass(kind, tuple) and type(fields) is tuple:
            return {"named": [kind.__name__, list(fields), [self.encode(each, depth + 1) for each in value]]}
        for base in _ITERABLES:
            if issubclass(kind, base):
                return {base.__name__: [self.encode(each, depth + 1) for each in base.__iter__(value)]}
        if not issubclass(kind, dict):
            return None
        pairs = [[self.encode(k, depth + 1), self.encode(v, depth + 1)] for k, v in dict.items(value)]
        if kind is collections.defaultdict:
            return {"defaultdict": [self.encode(value.default_factory, depth + 1), pairs]}
        return {kind.__name__ if kind in (collections.Counter, collections.OrderedDict) else "dict": pairs}

    def _scalar(self, kind: type[Any], value: Any) -> Any:
        if kind in (bytes, bytearray):
            return {kind.__name__: base64.b64encode(value).decode()}
        if kind is complex:
            return {"complex": [value.real.hex(), value.imag.hex()]}
        if kind is range:
            return {"range": [value.start, value.stop, value.step]}
        if kind in (fractions.Fraction, decimal.Decimal):
            return {kind.__name__: str(value)}
        if kind in (datetime.datetime, datetime.date, datetime.time):
            return {kind.__name__: kind.isoformat(value)}
        if kind is datetime.timedelta:
            return {"timedelta": [value.days, value.seconds, value.microseconds]}
        if kind is types.CoroutineType:
            return {"coroutine": self._keep(value)["mine"]}
        if isinstance(value, type | types.BuiltinFunctionType):
            name = next((name for name, each in vars(builtins).items() if each is value), None)
            if isinstance(value, type):
                return None if name is None else {"type": name}
            return {"builtin": name} if name in _FUNCTIONS else None
        return None

    def error(self, error: BaseException, depth: int = 0) -> Any:
        """Returns an exception as data; one that came from the other side as the number it has there."""
        known = vars(error).get(_NUMBER)
        if type(known) is int:
            return {"returned": known}
        try:
            text = str(error)[:1000]
        except Exception:  # an exception whose text raises
            text = ""
        fields = {name: value for name, value in vars(error).items() if not name.startswith("_")}
        return {"error": {
            "kind": describe(type(error)), "text": text, "number": self._keep(error)["mine"],
            "args": [self.encode(each, depth + 1) for each in error.args],
            "fields": {name: self.encode(each, depth + 1) for name, each in fields.items()},
        }}  # fmt: skip


def describe(kind: type[Any]) -> list[Any]:
    """Returns the name of a kind of exceptions, its module (None: a built-in one), its number and its bases."""
    if vars(builtins).get(kind.__name__) is kind:
        return [kind.__name__, None, id(kind), []]
    bases = [describe(each) for each in kind.__bases__ if issubclass(each, BaseException)]
    return [kind.__name__, kind.__module__, id(kind), bases]


def _builtin(name: str) -> Any:
    found = vars(builtins).get(name)
    if not isinstance(found, type) and name not in _FUNCTIONS:
        raise PeerError("no type")
    return found


_READERS: dict[str, Callable[[Any], Any]] = {
    "type": _builtin,
    "builtin": _builtin,
    "int": lambda text: int(text, 16),
    "float": float.fromhex,
    "bytes": base64.b64decode,
    "bytearray": lambda text: bytearray(base64.b64decode(text)),
    "complex": lambda parts: complex(float.fromhex(parts[0]), float.fromhex(parts[1])),
    "range": lambda parts: range(*parts),
    "Fraction": fractions.Fraction,
    "Decimal": decimal.Decimal,
    "datetime": datetime.datetime.fromisoformat,
    "date": datetime.date.fromisoformat,
    "time": datetime.time.fromisoformat,
    "timedelta": lambda parts: datetime.timedelta(*parts),
}
_CONTAINERS: dict[str, Callable[[Any], Any]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "deque": collections.deque,
}
_MAPPINGS: dict[str, Callable[[Any], Any]] = {
    "dict": dict,
    "Counter": lambda pairs: collections.Counter(dict(pairs)),
    "OrderedDict": collections.OrderedDict,
}


class Decoder:
    """JSON to values.

    Args:
        kept: what was given to the other side, by number.
        stand_in: makes what stands for an object of the other side, by its number.
        wait: makes a coroutine that waits for one of the other side.
    """

    def __init__(self, kept: dict[int, Any], stand_in: Callable[[Any], Any], wait: Callable[[Any], Any]) -> None:
        self._kept = kept
        self._links: dict[str, Callable[[Any], Any]] = {
            "yours": kept.__getitem__,
            "mine": stand_in,
            "coroutine": lambda number: wait(stand_in(number)),
        }
        self._named: dict[tuple[str, ...], Any] = {}
        self._kinds: dict[int, type[BaseException]] = {}

    def decode(self, value: Any, depth: int = 0) -> Any:
        if depth > MAX_DEPTH + 4:
            raise PeerError("too deep")
        if value is None or type(value) in (bool, int, float, str):
            return value
        if type(value) is not dict or len(value) != 1:
            raise PeerError("no value")
        ((tag, content),) = value.items()
        if tag in _CONTAINERS:
            return _CONTAINERS[tag](self.decode(each, depth + 1) for each in content)
        if tag in _MAPPINGS:
            return _MAPPINGS[tag](self._pairs(content, depth))
        if tag == "defaultdict":
            return collections.defaultdict(self.decode(content[0]), self._pairs(content[1], depth))
        if tag == "named":
            key = (content[0], *content[1])
            if key not in self._named:
                self._named[key] = _make_named(*content[:2])
            return self._named[key](*(self.decode(each, depth + 1) for each in content[2]))
        if tag in self._links:
            return self._links[tag](content)
        return self.error(value, depth) if tag in ("error", "returned") else _READERS[tag](content)

    def _pairs(self, pairs: Any, depth: int) -> list[tuple[Any, Any]]:
        return [(self.decode(key, depth + 1), self.decode(each, depth + 1)) for key, each in pairs]

    def error(self, described: Any, depth: int = 0) -> BaseException:
        """Returns the exception that is described, or the one of one's own that returns."""
        ((tag, content),) = described.items()
        if tag == "returned":
            found = self._kept[content]
            if not isinstance(found, Exception):
                raise PeerError("no exception")
            return found
        kind, text = self.kind(content["kind"]), str(content["text"])
        arguments = [self.decode(each, depth + 1) for each in content["args"]]
        error = _make_error(kind, arguments, text)
        for name, each in content["fields"].items():
            vars(error)[name] = self.decode(each, depth + 1)
        vars(error).update({_NUMBER: content["number"], _TEXT: text})
        return error

    def kind(self, described: Any) -> type[BaseException]:
        """Returns the kind of exceptions that is described: a built-in one, one of the library, or one made here."""
        name, module, number, bases = described
        if number in self._kinds:
            return self._kinds[number]
        found = vars(builtins).get(name) if module is None else _library(module, name)
        if isinstance(found, type) and (issubclass(found, Exception) or found is SystemExit):
            return found
        parents = tuple(dict.fromkeys(self.kind(each) for each in bases)) or (RuntimeError,)
        body = {"__str__": _show_error, "__module__": "answer"}
        try:
            made = type(name, parents, dict(body))
        except TypeError:  # bases that do not go together here
            made = type(name, parents[:1], dict(body))
        self._kinds[number] = made
        return made


def _library(module: Any, name: Any) -> Any:
    """Returns what a loaded module of the library calls so; unittest's own exceptions mean something to its runner."""
    root = str(module).partition(".")[0]
    known = root in sys.stdlib_module_names and root not in ("unittest", "asyncio", "concurrent")
    return vars(sys.modules[module]).get(name) if known and module in sys.modules else None


def _make_error(kind: type[BaseException], arguments: list[Any], text: str) -> BaseException:
    with contextlib.suppress(Exception):  # one that is made in another way, as its own __init__ says
        return kind(*arguments)
    with contextlib.suppress(Exception):  # not even that: an exception with layout of its own
        return kind.__new__(kind, *arguments)
    return RuntimeError(text)


def _show_error(error: BaseException) -> str:
    text = vars(error).get(_TEXT)
    return text if type(text) is str else Exception.__str__(error)
