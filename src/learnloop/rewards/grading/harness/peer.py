"""Two processes that call each other's functions and share no interpreter; runs in the sandbox.

A message is one line of JSON. Plain values cross as values, everything else stays where it is and crosses as a
number, by which the other side can use it. Nothing that comes in is ever run: it is data or a number that was given
out. A proxy of a foreign object is equal to no value of one's own, whatever the object says of itself.
"""

from __future__ import annotations

import itertools
import json
import operator
import os
from collections.abc import Callable
from typing import Any, TypeVar

from values import CHANGEABLE, Decoder, Encoder, PeerError

T = TypeVar("T")

MAX_LINE = 32 * 1024 * 1024
REMOTE_OPERATORS = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor", "lshift", "rshift", "neg",
    "pos", "abs", "invert", "getitem", "setitem", "delitem", "contains", "eq", "lt", "le", "gt", "ge",
)  # fmt: skip
_DESCRIBED: dict[str, type[Any]] = {
    "str": str, "repr": str, "format": str, "len": int, "bool": bool, "hash": int, "float": float, "int": int,
}  # fmt: skip
_ABOUT_ITEMS = ("getitem", "setitem", "delitem")
_JUDGES = frozenset({"startswith", "endswith", "issubset", "issuperset", "isdisjoint", "difference",
                     "symmetric_difference"})  # fmt: skip
"""What strings and sets are asked about a value."""


def _wait_for(coroutine: Any) -> Any:
    """Returns what a coroutine gives; in a thread, as a loop may run in this one."""
    import asyncio  # which is slow to load, and seldom needed
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


LOCAL_CALLS: dict[str, Callable[..., Any]] = {
    "len": len, "str": str, "repr": repr, "bool": bool, "iter": iter, "next": next, "hash": hash, "await": _wait_for,
    "float": float, "int": int, "round": round, "format": format, "reversed": reversed, "isinstance": lambda kind, each:
    isinstance(each, kind), "issubclass": lambda kind, each: issubclass(each, kind),
}  # fmt: skip


class Peer:
    """One end: calls what the other side has, and answers what it asks meanwhile.

    Args:
        reading: the file descriptor to read on.
        writing: the one to write on.
        may_use: called with a kept object and what is to be done with it (``call``, ``get`` or ``set`` and a name, or
            an operator); whether the other side may.
        is_strict: whether what the other side gives is asked nothing that would tell it what is expected.

    Attributes:
        is_over: the other side ended, or sent what is no message.
        num_asked: how often the other side was asked.
        classes: the numbers of its classes.
        functions: the numbers of what else it defines.
        objects: the numbers of objects that were made by calling these.
    """

    def __init__(
        self, reading: int, writing: int, may_use: Callable[[Any, str, Any], bool], *, is_strict: bool = False
    ) -> None:
        self._input = os.fdopen(reading, "rb", buffering=1 << 16)
        self._writing = writing
        self._may_use = may_use
        self._is_strict = is_strict
        self._kept: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}
        self._proxies: dict[int, Proxy] = {}
        self._count = itertools.count()
        self.decoder = Decoder(self._kept, self._proxy, _waiting)
        self.is_over = False
        self.num_asked = 0
        self.classes: set[int | None] = set()
        self.functions: set[int | None] = set()
        self.objects: set[int] = set()

    def ask(self, operation: str, target: int, *arguments: Any, **named: Any) -> Any:
        """Returns what the other side answers; raises what it raised."""
        self.num_asked += 1
        changing = _changeable(arguments, named)
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
                raise self.decoder.error(message["raised"])
            if "same" in message:
                return changing[message["same"]]
            return self.decode(message.get("gave"))

    def serve(self) -> None:
        """Answers until the other side ends."""
        while True:
            try:
                message = self._receive()
            except PeerError:
                return
            self._answer(message)

    def decode(self, value: Any) -> Any:
        """Returns the value that JSON stands for; of what is not plain, a proxy."""
        return self.decoder.decode(value)

    def trusts(self, number: int) -> bool:
        """Whether an object may be asked how it stands to a value: one of a class that is itself what is asked for.

        What a function gave in the place of a number or a list would learn what is expected, and agree.
        """
        return not self._is_strict or number in self.objects

    def _answer(self, message: dict[str, Any]) -> None:
        before = None
        try:
            arguments = [self.decode(each) for each in message.get("with") or []]
            named = {name: self.decode(each) for name, each in (message.get("named") or {}).items()}
            changing = _changeable(arguments, named)
            before = [json.dumps(Encoder(self._keep).encode(each)) for each in changing]
            gave = self._do(message["do"], message["on"], arguments, named)
            same = next((number for number, each in enumerate(changing) if each is gave), None)
            answer: dict[str, Any] = {"gave": Encoder(self._keep).encode(gave)} if same is None else {"same": same}
        except PeerError:
            raise
        except BaseException as raised:  # whatever the code of an answer raises is told to the other side
            is_verdict = self._is_strict and isinstance(raised, AssertionError)
            error = AssertionError() if is_verdict else raised  # whose text may say what is expected
            answer = {"raised": Encoder(self._keep).error(error)}
        if before:
            after = [Encoder(self._keep).encode(each) for each in changing]
            answer["changed"] = [
                new if json.dumps(new) != old else None for old, new in zip(before, after, strict=True)
            ]
        self._send(answer)

    def _do(self, operation: str, target: int, arguments: list[Any], named: dict[str, Any]) -> Any:
        kept = self._kept[target]
        name = str(arguments[0]) if operation in ("get", "set") else ""
        if not self._may_use(kept, operation, name):
            refused = AttributeError if name else TypeError
            raise refused(f"{operation} {name} is not allowed here")
        if operation == "call":
            return kept(*arguments, **named)
        if operation == "get":
            return getattr(kept, name)
        if operation == "set":
            return setattr(kept, name, arguments[1])
        if operation in LOCAL_CALLS:
            return LOCAL_CALLS[operation](kept, *arguments)
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

    def _send(self, message: dict[str, Any]) -> None:
        data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        try:
            while data:
                data = data[os.write(self._writing, data) :]
        except OSError as error:
            raise self._over("the other side ended") from error

    def _receive(self) -> dict[str, Any]:
        line = self._input.readline(MAX_LINE)
        if not line.endswith(b"\n"):
            raise self._over("the other side ended" if len(line) < MAX_LINE else "the message is too long")
        try:
            message = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise self._over("no message") from error
        if type(message) is not dict:
            raise self._over("no message")
        return message

    def _over(self, why: str) -> PeerError:
        self.is_over = True
        return PeerError(why)


def _changeable(arguments: Any, named: dict[str, Any]) -> list[Any]:
    return [each for each in (*arguments, *named.values()) if type(each) in CHANGEABLE]


def _become(mine: Any, theirs: Any) -> None:
    """Makes what can be changed in place what the other side made of it."""
    if type(mine) is not type(theirs):
        return
    if type(mine) in (list, bytearray):
        mine[:] = theirs
        return
    mine.clear()
    if isinstance(mine, dict | set):
        mine.update(theirs)
    else:
        mine.extend(theirs)


class Proxy:
    __slots__ = ("_Proxy__number", "_Proxy__peer")

    def __init__(self, peer: Peer, number: int) -> None:
        object.__setattr__(self, "_Proxy__peer", peer)
        object.__setattr__(self, "_Proxy__number", number)

    @property
    def __doc__(self) -> Any:  # type: ignore[override]
        return self.__peer.ask("get", self.__number, "__doc__")

    @staticmethod
    def number_of(value: Any) -> int | None:
        return value.__number if type(value) is Proxy else None

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        try:
            gave = self.__peer.ask("call", self.__number, *arguments, **named)
        except StopIteration:
            if self.__number in self.__peer.functions:  # it would end the loop of a test, with nothing compared
                raise RuntimeError("the code raised StopIteration") from None
            raise
        if type(gave) is Proxy and self.__number in self.__peer.classes:
            self.__peer.objects.add(gave.__number)
        return gave

    def __getattr__(self, name: str) -> Any:
        if name in _JUDGES:
            self.__require_trust(name)
        return self.__peer.ask("get", self.__number, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self.__peer.ask("set", self.__number, name, value)

    def __require_trust(self, what: str) -> None:
        if not self.__peer.trusts(self.__number):
            raise TypeError(f"{what} of an object that is no value and of no class that the tests name")

    def __round__(self, *digits: int) -> Any:
        self.__require_trust("the number")
        return self.__peer.ask("round", self.__number, *digits)

    def __iter__(self) -> Any:
        answer = self.__peer.ask("iter", self.__number)
        return answer if type(answer) is Proxy else iter(answer)

    def __reversed__(self) -> Any:
        return self.__peer.ask("reversed", self.__number)

    def __next__(self) -> Any:
        return self.__peer.ask("next", self.__number)

    def __contains__(self, value: Any) -> bool:
        if type(value) is Proxy or self.__peer.trusts(self.__number):
            return _checked(self.__peer.ask("contains", self.__number, value), bool)
        return any(each is value or each == value for each in self)  # compared here

    def __instancecheck__(self, value: Any) -> bool:
        return type(value) is Proxy and _checked(self.__peer.ask("isinstance", self.__number, value), bool)

    def __subclasscheck__(self, value: Any) -> bool:
        return type(value) is Proxy and _checked(self.__peer.ask("issubclass", self.__number, value), bool)

    def __enter__(self) -> Any:
        return self.__peer.ask("get", self.__number, "__enter__")()

    def __exit__(self, kind: Any, error: Any, trace: object) -> bool:
        is_theirs = error is None or (isinstance(error, Exception) and not isinstance(error, AssertionError))
        leave = self.__peer.ask("get", self.__number, "__exit__")
        if is_theirs:
            return bool(leave(kind, error, None))
        leave(None, None, None)
        return False  # that a test has failed is not for the code to take back


def _checked(value: Any, kind: type[T]) -> T:
    if not isinstance(value, kind):
        raise TypeError(f"the code of the answer gave {type(value).__name__}")
    return value


async def _waiting(coroutine: Proxy) -> Any:
    return coroutine._Proxy__peer.ask("await", coroutine._Proxy__number)


def _describe(name: str, kind: type[T]) -> Callable[..., T]:
    def describe(self: Any, *arguments: Any) -> T:
        if name in ("float", "int"):
            self._Proxy__require_trust("the number")
        return _checked(self._Proxy__peer.ask(name, self._Proxy__number, *arguments), kind)

    return describe


def _compare(name: str) -> Callable[[Any, Any], Any]:
    """Returns a comparison: two objects of the other side are compared there; with one's own values there is none."""

    def compare(self: Any, other: Any) -> Any:
        if type(other) is Proxy:
            return _checked(self._Proxy__peer.ask(name, self._Proxy__number, other), bool)
        return False if name == "eq" else NotImplemented

    return compare


def _operate(name: str) -> Callable[..., Any]:
    def operate(self: Any, *arguments: Any) -> Any:
        if name not in _ABOUT_ITEMS and any(type(each) is not Proxy for each in arguments):
            self._Proxy__require_trust(name)
        gave = self._Proxy__peer.ask(name, self._Proxy__number, *arguments)
        if type(gave) is Proxy and self._Proxy__number in self._Proxy__peer.objects:
            self._Proxy__peer.objects.add(gave._Proxy__number)
        return gave

    return operate


for _name, _kind in _DESCRIBED.items():
    setattr(Proxy, f"__{_name}__", _describe(_name, _kind))
for _name in ("eq", "lt", "le", "gt", "ge"):
    setattr(Proxy, f"__{_name}__", _compare(_name))
for _name in REMOTE_OPERATORS:
    if _name not in ("eq", "lt", "le", "gt", "ge", "contains"):
        setattr(Proxy, f"__{_name.strip('_')}__", _operate(_name))
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor"):
    setattr(Proxy, f"__r{_name.strip('_')}__", _operate(f"r_{_name}"))
