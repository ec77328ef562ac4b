"""Reads a pickle without running it: nothing is imported, and nothing is called but the makers of plain values here.

The opcodes are walked one by one, as ``pickletools`` tells them, and build dicts, lists, tuples, sets, text, numbers,
bytes, the types of ``datetime``, and ``PickledRecord`` in the place of the few classes that are known by name. A name
that is not listed, an opcode that calls or loads anything else, and a pickle that claims or makes more than is allowed
are refused where they are met. There is no ``pickle`` here, so there is no way out of this list.

Source: the opcodes of CPython's ``pickletools``, protocols 0 to 5.
"""

from __future__ import annotations

import io
import pickletools
import struct
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta, timezone
from typing import Any

import msgspec

from learnloop.core.errors import FormatError

MAX_OPERATIONS = 4_000_000
MAX_DEPTH = 64
"""Of lists, objects and records in one another."""
MAX_NODES = 2_000_000
"""Values in all, counted as often as they are referred to: a few opcodes can stand for billions."""
MAX_CHARACTERS = 256 * 1024 * 1024
"""Characters in all, counted as often as they are referred to."""

_MAX_COPIED = 64 * 1024 * 1024
"""Items and characters that are given to makers, and fields that are set: each may copy the same memo entry again."""
_MAX_INTEGER = 2**63 - 1
_Maker = Callable[..., Any]
_SCALARS = (str, int, float, bool, bytes, type(None), date, time, timedelta)


class PickledRecord(msgspec.Struct):
    """What stands in for an object of a known class: its name and its fields."""

    name: str
    fields: dict[str, Any] = {}


class _Name(msgspec.Struct):
    """A name that the pickle loads: of a maker, of a record, or only a mark."""

    make: _Maker | None = None
    record: str | None = None


def _encode(text: Any, encoding: Any = None) -> bytes:
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise TypeError("only text in Latin 1 stands for bytes")
    return text.encode("latin-1")


def _bytes(value: Any = b"", encoding: Any = None) -> bytes:
    return value if isinstance(value, bytes) else _encode(value, encoding)


def _dict(*unused: Any) -> dict[Any, Any]:
    """Makes an empty mapping: its items follow; a factory of missing ones is left out."""
    return {}


def _listed(items: Any = (), *unused: Any) -> list[Any]:
    if not isinstance(items, list | tuple):
        raise TypeError("only a list can become one")
    return list(items)


def _rebuilt(kind: Any, base: Any, state: Any) -> PickledRecord:
    if not isinstance(kind, _Name) or kind.record is None or base is not _OBJECT or state is not None:
        raise TypeError("only a known record can be made so")
    return PickledRecord(kind.record)


_OBJECT = _Name()
_NAMES: Mapping[tuple[str, str], _Name] = {
    **{("datetime", kind.__name__): _Name(make=kind) for kind in (datetime, date, time, timedelta, timezone)},
    ("collections", "OrderedDict"): _Name(make=_dict),
    ("collections", "defaultdict"): _Name(make=_dict),
    ("collections", "deque"): _Name(make=_listed),
    ("_codecs", "encode"): _Name(make=_encode),
    ("copy_reg", "_reconstructor"): _Name(make=_rebuilt),
    ("copyreg", "_reconstructor"): _Name(make=_rebuilt),
    **{
        (module, name): known
        for module in ("builtins", "__builtin__")
        for name, known in {
            "dict": _Name(make=_dict),
            "list": _Name(make=_listed),
            "set": _Name(make=_listed),
            "frozenset": _Name(make=_listed),
            "bytes": _Name(make=_bytes),
            "bytearray": _Name(make=_bytes),
            "object": _OBJECT,
            "int": _Name(),  # as the factory of a defaultdict
            "str": _Name(),
        }.items()
    },
}


def read_pickle(data: bytes, records: frozenset[str]) -> Any:
    """Returns what a pickle holds as plain values: what JSON has, times as text, a record as the object of its fields.

    Args:
        data: the whole of it.
        records: the names of the classes whose objects are read as records; their modules are not looked at.

    Raises:
        FormatError: it asks for anything else, is damaged, or is larger or deeper than allowed.
    """
    machine = _Machine(records)
    stream = io.BytesIO(data)
    try:
        for number, (opcode, argument, position) in enumerate(pickletools.genops(stream)):
            if number >= MAX_OPERATIONS:
                raise FormatError(f"the pickle has more than {MAX_OPERATIONS:,} operations")
            machine.step(opcode.name, argument, position)
    except (ValueError, OverflowError, struct.error, IndexError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(f"the pickle is damaged ({type(error).__name__}: {error})") from error
    if stream.tell() != len(data):
        raise FormatError(f"{len(data) - stream.tell()} bytes follow the end of the pickle")
    return _Plain().convert(machine.result, 0)


class _Machine:
    """The stack and the memo of a pickle; ``do_NAME`` is what the operation of that name does."""

    def __init__(self, records: frozenset[str]) -> None:
        self.result: Any = None
        self._records = {name: _Name(record=name) for name in records}
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        self._copied = 0

    def step(self, opcode: str, argument: Any, position: int | None) -> None:
        """Does what one opcode says.

        Raises:
            FormatError: it is refused.
        """
        if opcode in _CONSTANTS:
            self._stack.append(_CONSTANTS[opcode])
        elif opcode in _VALUES:
            self._stack.append(argument)
        elif opcode in _EMPTY:
            self._stack.append(_EMPTY[opcode]())
        elif opcode in _SHORT_TUPLES:
            self._make_short_tuple(_SHORT_TUPLES[opcode])
        elif opcode in _ACTIONS:
            _ACTIONS[opcode](self, argument)
        elif opcode not in _NOTHING:
            raise FormatError(
                f"the pickle has the operation {opcode} at byte {position}, which could load or call anything; "
                "only plain values and known records are read"
            )

    def do_mark(self, argument: Any) -> None:
        self._marks.append(len(self._stack))

    def do_stop(self, argument: Any) -> None:
        self.result = self._pop()

    def do_pop(self, argument: Any) -> None:
        if self._marks and self._marks[-1] == len(self._stack):
            self._marks.pop()
        else:
            self._pop()

    def do_pop_mark(self, argument: Any) -> None:
        self._take_marked()

    def do_dup(self, argument: Any) -> None:
        self._stack.append(self._stack[-1])

    def do_get(self, argument: Any) -> None:
        self._stack.append(self._memo[int(argument)])

    do_binget = do_long_binget = do_get

    def do_put(self, argument: Any) -> None:
        self._memo[int(argument)] = self._stack[-1]

    do_binput = do_long_binput = do_put

    def do_memoize(self, argument: Any) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def do_append(self, argument: Any) -> None:
        value = self._pop()
        self._top(list).append(value)

    def do_appends(self, argument: Any) -> None:
        values = self._take_marked()
        self._top(list).extend(values)

    do_additems = do_appends

    def do_list(self, argument: Any) -> None:
        self._stack.append(self._take_marked())

    do_frozenset = do_list

    def do_tuple(self, argument: Any) -> None:
        self._stack.append(tuple(self._take_marked()))

    def _make_short_tuple(self, number: int) -> None:
        values = self._stack[-number:]
        if len(values) < number:
            raise IndexError("the stack is empty")
        del self._stack[-number:]
        self._stack.append(tuple(values))

    def do_dict(self, argument: Any) -> None:
        values = self._take_marked()
        self._stack.append({})
        self._set_all(values)

    def do_setitem(self, argument: Any) -> None:
        value, key = self._pop(), self._pop()
        self._set_all([key, value])

    def do_setitems(self, argument: Any) -> None:
        self._set_all(self._take_marked())

    def do_global(self, argument: Any) -> None:
        module, _, name = str(argument).partition(" ")
        self._load(module, name)

    def do_stack_global(self, argument: Any) -> None:
        name, module = self._pop(), self._pop()
        self._load(module, name)

    def do_reduce(self, argument: Any) -> None:
        arguments, called = self._pop(), self._pop()
        if not isinstance(called, _Name) or called.make is None or not isinstance(arguments, tuple):
            raise FormatError("the pickle calls what is no maker of plain values; it is refused")
        self._charge(arguments)
        self._stack.append(called.make(*arguments))

    def do_newobj(self, argument: Any) -> None:
        arguments, kind = self._pop(), self._pop()
        if not isinstance(kind, _Name) or kind.record is None or arguments != ():
            raise FormatError("the pickle makes an object of a class that is no known record; it is refused")
        self._stack.append(PickledRecord(kind.record))

    def do_build(self, argument: Any) -> None:
        state = self._pop()
        record = self._top(PickledRecord)
        for part in state if isinstance(state, tuple) and len(state) == 2 else (state,):
            if part is None:
                continue
            if not isinstance(part, dict) or not all(isinstance(name, str) for name in part):
                raise FormatError(f"the fields of a {record.name} are no object; it is refused")
            self._charge((part,))
            record.fields.update(part)

    def _charge(self, values: tuple[Any, ...]) -> None:
        self._copied += len(values) + sum(
            len(value) for value in values if isinstance(value, str | bytes | bytearray | list | tuple | dict)
        )
        if self._copied > _MAX_COPIED:
            raise FormatError(f"the pickle copies more than {_MAX_COPIED:,} values; it is refused")

    def _load(self, module: Any, name: Any) -> None:
        known = self._records.get(name) if isinstance(name, str) else None
        if known is None and isinstance(module, str) and isinstance(name, str):
            known = _NAMES.get((module, name))
        if known is None:
            raise FormatError(
                f"the pickle asks for {str(module)[:100]}.{str(name)[:100]}, which is refused: nothing of it was run. "
                "Only checkpoints of plain values are read"
            )
        self._stack.append(known)

    def _pop(self) -> Any:
        if self._marks and self._marks[-1] >= len(self._stack):
            raise IndexError("the stack is empty")
        return self._stack.pop()

    def _take_marked(self) -> list[Any]:
        start = self._marks.pop()
        values = self._stack[start:]
        del self._stack[start:]
        return values

    def _top(self, kind: type[Any]) -> Any:
        value = self._stack[-1]
        if not isinstance(value, kind):
            raise TypeError(f"a {type(value).__name__} where a {kind.__name__} belongs")
        return value

    def _set_all(self, values: list[Any]) -> None:
        target = self._top(dict)
        if len(values) % 2:
            raise IndexError("a key without a value")
        for key, value in zip(values[::2], values[1::2], strict=True):
            if not _is_key(key):
                raise FormatError(f"the pickle has a {type(key).__name__} as a key; text and numbers are read")
            target[key] = value


def _is_key(value: Any) -> bool:
    """Returns whether a value may be a key: hashing it takes neither long nor a deep stack."""
    if isinstance(value, tuple):
        return len(value) <= 8 and all(not isinstance(part, tuple) and _is_key(part) for part in value)
    if isinstance(value, int):
        return abs(value) <= _MAX_INTEGER
    return isinstance(value, _SCALARS)


class _Plain:
    """Turns what was built into what JSON has, within a budget."""

    def __init__(self) -> None:
        self._nodes = MAX_NODES
        self._characters = MAX_CHARACTERS

    def convert(self, value: Any, depth: int) -> Any:
        self._nodes -= 1
        if self._nodes < 0 or depth > MAX_DEPTH:
            raise FormatError(f"the pickle holds more than {MAX_NODES:,} values, or is deeper than {MAX_DEPTH}")
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, PickledRecord):
            value = value.fields
        if isinstance(value, dict):
            return {self._key(key): self.convert(each, depth + 1) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.convert(each, depth + 1) for each in value]
        return self._scalar(value)

    def _scalar(self, value: Any) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            return value if abs(value) <= _MAX_INTEGER else f"an integer of {value.bit_length()} bits"
        if isinstance(value, float):
            return value if value - value == 0.0 else repr(value)
        if isinstance(value, date | time):
            return value.isoformat()
        if isinstance(value, bytes | bytearray):
            return self._text(value.decode("utf-8", "replace"))
        if isinstance(value, timedelta | timezone):
            return str(value)
        raise FormatError("the pickle holds a class where a value belongs; it is refused")

    def _key(self, key: Any) -> str:
        if isinstance(key, tuple):
            return self._text(", ".join(map(str, key)))
        return self._text(key.decode("utf-8", "replace") if isinstance(key, bytes) else str(key))

    def _text(self, value: str) -> str:
        self._characters -= len(value)
        if self._characters < 0:
            raise FormatError(f"the pickle holds more than {MAX_CHARACTERS:,} characters")
        try:
            value.encode()
        except UnicodeEncodeError:  # half of a character, which neither JSON nor a database takes
            return value.encode("utf-8", "replace").decode()
        return value


_CONSTANTS: Mapping[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_VALUES = frozenset(
    (
        "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING", "BINSTRING",
        "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES",
        "BINBYTES8", "BYTEARRAY8",
    )
)  # fmt: skip
_EMPTY: Mapping[str, Callable[[], Any]] = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_SET": list}
_NOTHING = frozenset({"PROTO", "FRAME"})
_SHORT_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_ACTIONS: Mapping[str, Callable[[_Machine, Any], None]] = {
    name.removeprefix("do_").upper(): action for name, action in vars(_Machine).items() if name.startswith("do_")
}
