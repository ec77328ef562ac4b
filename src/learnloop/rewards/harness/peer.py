"""Two processes that call each other's functions and share no interpreter; runs in the sandbox.

A message is one line of JSON. Plain values cross as values, everything else stays where it is and crosses as a
number, by which the other side can use it. Nothing that comes in is ever run: it is data or a number that was given
out. A proxy of a foreign object is equal to no value of one's own, whatever the object says of itself.
"""

from __future__ import annotations

import base64
import builtins
import collections
import datetime
import decimal
import fractions
import itertools
import json
import operator
import os
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

MAX_LINE = 8 * 1024 * 1024
MAX_DEPTH = 64
MAX_NODES = 1_000_000
REMOTE_OPERATORS = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor", "lshift", "rshift", "neg",
    "pos", "abs", "invert", "getitem", "setitem", "delitem", "contains", "eq", "lt", "le", "gt", "ge",
)  # fmt: skip
LOCAL_CALLS: dict[str, Callable[[Any], Any]] = {
    "len": len,
    "str": str,
    "repr": repr,
    "bool": bool,
    "iter": iter,
    "next": next,
    "hash": hash,
}


class PeerError(Exception):
    """The other side ended, or sent what is no message."""


_ITERABLES: tuple[Any, ...] = (list, tuple, set, frozenset, collections.deque)
_PLAIN: dict[type[Any], Callable[[Any], Any]] = {str: str.__str__, int: int.__int__, float: float.__float__}


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
        made = self._scalar(kind, value)
        if made is not None:
            return made
        for base in _ITERABLES:
            if issubclass(kind, base):
                return {base.__name__: [self.encode(each, depth + 1) for each in base.__iter__(value)]}
        if issubclass(kind, dict):
            pairs = dict.items(value)
            return {"dict": [[self.encode(k, depth + 1), self.encode(v, depth + 1)] for k, v in pairs]}
        for plain, read in _PLAIN.items():
            if issubclass(kind, plain):
                found = read(value)  # by the base type's own method, whatever the class makes of it
                return self.encode(found, depth + 1) if type(found) is plain else self._keep(value)
        return self._keep(value)

    def _scalar(self, kind: type[Any], value: Any) -> Any:
        if kind is bytes:
            return {"bytes": base64.b64encode(value).decode()}
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
        if isinstance(value, type):
            name = next((name for name, each in vars(builtins).items() if each is value), None)
            return None if name is None else {"type": name}
        return None


def _builtin_type(name: str) -> type[Any]:
    found = vars(builtins).get(name)
    if not isinstance(found, type):
        raise PeerError("no type")
    return found


_READERS: dict[str, Callable[[Any], Any]] = {
    "type": _builtin_type,
    "int": lambda text: int(text, 16),
    "float": float.fromhex,
    "bytes": base64.b64decode,
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


class Peer:
    """One end: calls what the other side has, and answers what it asks meanwhile.

    Args:
        reading: the file descriptor to read on.
        writing: the one to write on.
        may_use: called with a kept object and what is to be done with it (``call``, ``get`` and a name, or an
            operator); whether the other side may.
    """

    def __init__(self, reading: int, writing: int, may_use: Callable[[Any, str, Any], bool]) -> None:
        self._input = os.fdopen(reading, "rb", buffering=1 << 16)
        self._writing = writing
        self._may_use = may_use
        self._kept: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}
        self._proxies: dict[int, Proxy] = {}
        self._count = itertools.count()
        self.mirrored: dict[int, type[Exception]] = {}

    def ask(self, operation: str, target: int, *arguments: Any, **named: Any) -> Any:
        """Returns what the other side answers; raises what it raised."""
        changing = [each for each in (*arguments, *named.values()) if type(each) in (list, dict, set)]
        encoder = Encoder(self._keep)
        self._send({
            "do": operation, "on": target,
            "with": [encoder.encode(each) for each in arguments],
            "named": {name: encoder.encode(each) for name, each in named.items()},
        })  # fmt: skip
        while True:
            message = self._receive()
            if "do" in message:
                self._answer(message)
                continue
            for mine, theirs in zip(changing, message.get("changed") or [], strict=False):
                if theirs is not None:
                    _become(mine, self.decode(theirs))
            if "raised" in message:
                raise self._exception(message["raised"])
            return self.decode(message.get("gave"))

    def serve(self) -> None:
        """Answers until the other side ends."""
        while True:
            try:
                message = self._receive()
            except PeerError:
                return
            self._answer(message)

    def decode(self, value: Any, depth: int = 0) -> Any:
        """Returns the value that JSON stands for; of what is not plain, a proxy."""
        if depth > MAX_DEPTH + 4:
            raise PeerError("too deep")
        if value is None or type(value) in (bool, int, float, str):
            return value
        if type(value) is not dict or len(value) != 1:
            raise PeerError("no value")
        ((tag, content),) = value.items()
        if tag in _CONTAINERS:
            return _CONTAINERS[tag](self.decode(each, depth + 1) for each in content)
        if tag == "dict":
            return {self.decode(key, depth + 1): self.decode(each, depth + 1) for key, each in content}
        if tag == "yours":
            return self._kept[content]
        if tag == "mine":
            return self._proxy(content)
        return _READERS[tag](content)

    def _answer(self, message: dict[str, Any]) -> None:
        before = None
        try:
            arguments = [self.decode(each) for each in message.get("with") or []]
            named = {name: self.decode(each) for name, each in (message.get("named") or {}).items()}
            changing = [each for each in (*arguments, *named.values()) if type(each) in (list, dict, set)]
            before = [json.dumps(Encoder(self._keep).encode(each)) for each in changing]
            encoder = Encoder(self._keep)
            answer: dict[str, Any] = {"gave": encoder.encode(self._do(message["do"], message["on"], arguments, named))}
        except PeerError:
            raise
        except BaseException as error:  # whatever the code of an answer raises is told to the other side
            answer = {"raised": _described(error)}
        if before:
            after = [Encoder(self._keep).encode(each) for each in changing]
            answer["changed"] = [
                new if json.dumps(new) != old else None for old, new in zip(before, after, strict=True)
            ]
        self._send(answer)

    def _do(self, operation: str, target: int, arguments: list[Any], named: dict[str, Any]) -> Any:
        kept = self._kept[target]
        name = str(arguments[0]) if operation == "get" else ""
        if not self._may_use(kept, operation, name):
            raise PermissionError(f"{operation} {name} is not allowed here")
        if operation == "call":
            return kept(*arguments, **named)
        if operation == "get":
            return getattr(kept, name)
        if operation == "set":
            return setattr(kept, *arguments)
        if operation in LOCAL_CALLS:
            return LOCAL_CALLS[operation](kept)
        if operation in REMOTE_OPERATORS:
            return getattr(operator, operation)(kept, *arguments)
        if operation.startswith("r_") and operation[2:] in REMOTE_OPERATORS:
            return getattr(operator, operation[2:])(*arguments, kept)
        raise PeerError(f"no operation is called {operation}")

    def _keep(self, value: Any) -> dict[str, int]:
        proxied = Proxy.number_of(value)
        if proxied is not None:
            return {"yours": proxied}
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = next(self._count)
            self._kept[number] = value  # kept for as long as the process lives, so that its id stays its own
        return {"mine": number}

    def keep(self, value: Any) -> int:
        """Returns the number by which the other side may use ``value``."""
        return self._keep(value)["mine"]

    def _proxy(self, number: Any) -> Proxy:
        if type(number) is not int:
            raise PeerError("no number")
        if number not in self._proxies:
            self._proxies[number] = Proxy(self, number)
        return self._proxies[number]

    def _exception(self, described: dict[str, Any]) -> Exception:
        mirrored = next((self.mirrored[each] for each in described["ids"] if each in self.mirrored), None)
        if mirrored is None:
            found = [vars(builtins).get(each) for each in described["types"]]
            kinds = [each for each in found if isinstance(each, type) and issubclass(each, Exception)]
            mirrored = kinds[0] if kinds else RuntimeError  # SystemExit of the other side is no exit of ours
        try:
            return mirrored(described["text"])
        except Exception:  # one that wants other arguments, such as UnicodeDecodeError
            return RuntimeError(described["text"])

    def _send(self, message: dict[str, Any]) -> None:
        data = json.dumps(message).encode() + b"\n"
        try:
            while data:
                data = data[os.write(self._writing, data) :]
        except OSError as error:
            raise PeerError("the other side ended") from error

    def _receive(self) -> dict[str, Any]:
        line = self._input.readline(MAX_LINE)
        if not line.endswith(b"\n"):
            raise PeerError("the other side ended" if len(line) < MAX_LINE else "the message is too long")
        try:
            message = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise PeerError("no message") from error
        if type(message) is not dict:
            raise PeerError("no message")
        return message


def _described(error: BaseException) -> dict[str, Any]:
    kinds = type(error).__mro__
    try:
        text = str(error)[:1000]
    except Exception:  # an exception whose text raises
        text = ""
    return {"types": [kind.__name__ for kind in kinds], "ids": [id(kind) for kind in kinds], "text": text}


def _become(mine: Any, theirs: Any) -> None:
    """Makes a list, dict or set of one's own what the other side made of it."""
    if type(mine) is not type(theirs):
        return
    if type(mine) is list:
        mine[:] = theirs
    else:
        mine.clear()
        mine.update(theirs)


class Proxy:
    """An object of the other side."""

    __slots__ = ("_Proxy__number", "_Proxy__peer")

    def __init__(self, peer: Peer, number: int) -> None:
        object.__setattr__(self, "_Proxy__peer", peer)
        object.__setattr__(self, "_Proxy__number", number)

    @staticmethod
    def number_of(value: Any) -> int | None:
        return value.__number if type(value) is Proxy else None

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.__peer.ask("call", self.__number, *arguments, **named)

    def __getattr__(self, name: str) -> Any:
        return self.__peer.ask("get", self.__number, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self.__peer.ask("set", self.__number, name, value)

    def __str__(self) -> str:
        return _checked(self.__peer.ask("str", self.__number), str)

    def __repr__(self) -> str:
        return _checked(self.__peer.ask("repr", self.__number), str)

    def __len__(self) -> int:
        return _checked(self.__peer.ask("len", self.__number), int)

    def __bool__(self) -> bool:
        return _checked(self.__peer.ask("bool", self.__number), bool)

    def __hash__(self) -> int:
        return _checked(self.__peer.ask("hash", self.__number), int)

    def __iter__(self) -> Any:
        answer = self.__peer.ask("iter", self.__number)
        return answer if type(answer) is Proxy else iter(answer)

    def __next__(self) -> Any:
        return self.__peer.ask("next", self.__number)

    def __contains__(self, value: Any) -> bool:
        return _checked(self.__peer.ask("contains", self.__number, value), bool)

    def __enter__(self) -> Any:
        return self.__peer.ask("get", self.__number, "__enter__")()

    def __exit__(self, *error: object) -> bool:
        return bool(self.__peer.ask("get", self.__number, "__exit__")(None, None, None))


def _checked(value: Any, kind: type[T]) -> T:
    if not isinstance(value, kind):
        raise TypeError(f"the code of the answer gave {type(value).__name__}")
    return value


def _compare(name: str) -> Callable[[Any, Any], Any]:
    """Returns a comparison: two objects of the other side are compared there; with one's own values there is none."""

    def compare(self: Any, other: Any) -> Any:
        if type(other) is Proxy:
            return _checked(self._Proxy__peer.ask(name, self._Proxy__number, other), bool)
        return False if name == "eq" else NotImplemented

    return compare


def _operate(name: str) -> Callable[..., Any]:
    def operate(self: Any, *arguments: Any) -> Any:
        return self._Proxy__peer.ask(name, self._Proxy__number, *arguments)

    return operate


for _name in ("eq", "lt", "le", "gt", "ge"):
    setattr(Proxy, f"__{_name}__", _compare(_name))
for _name in REMOTE_OPERATORS:
    if _name not in ("eq", "lt", "le", "gt", "ge", "contains"):
        setattr(Proxy, f"__{_name.strip('_')}__", _operate(_name))
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor"):
    setattr(Proxy, f"__r{_name.strip('_')}__", _operate(f"r_{_name}"))
