"""What others add by name: algorithms, environments, rewards, encoders and networks.

A name is registered in this process (``register``), or by an installed package that declares an entry point. Entry
points are looked up when a name is first asked for, and a package is imported only then. One that cannot be imported
is named with its error; all others work.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

from learnloop.core.errors import ExtensionError, NotFoundError, UsageError, one_of

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Kind = Literal["algorithm", "environment", "reward", "encoder", "network"]
KINDS: tuple[Kind, ...] = get_args(Kind)
BUILT_IN = "learnloop"
HERE = "registered here"
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*")


class Extension(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that can be used by its name."""

    kind: Kind
    name: str
    source: str
    """``learnloop``, ``registered here``, or the name and version of the package."""
    description: str = ""
    error: str | None = None
    """Why it cannot be used; None: it can."""


class ExtensionPoint:
    """All that was added of one kind.

    Attributes:
        kind: which one.
        group: of the entry points of packages.
        registered: by this process, by name.
    """

    def __init__(self, kind: Kind) -> None:
        self.kind: Kind = kind
        self.group = f"learnloop.{kind}s"
        self.registered: dict[str, Any] = {}
        self._loaded: dict[str, Any] = {}
        self._declared: dict[str, list[EntryPoint]] | None = None

    def register(self, name: str, value: Any, built_in: Iterable[str]) -> None:
        """Makes ``value`` known in this process as ``name``.

        Args:
            name: lower-case letters, digits, ``_``, ``.`` and ``-``.
            value: what it is; the same one again, or one defined in its place (a cell that runs again), is fine.
            built_in: names that are learnloop's own.

        Raises:
            UsageError: the name cannot be used, or is another one's.
        """
        given: object = name
        if not isinstance(given, str) or not _NAME.fullmatch(given):
            raise UsageError(
                f"{name!r} cannot name an extension; lower-case letters, digits and _ . - are allowed, a letter or a "
                "digit first"
            )
        if name in built_in:
            raise UsageError(f"the {self.kind} {name!r} is learnloop's own; choose another name")
        if name in self.registered and not _is_same(self.registered[name], value):
            raise UsageError(f"another {self.kind} is registered as {name!r} already; choose another name")
        if name in self._entries():
            raise UsageError(f"the {self.kind} {name!r} is that of {self._source(name)}; choose another name")
        self.registered[name] = value

    def find(self, name: str) -> Any | None:
        """Returns what was added as ``name``; None: nothing was.

        Raises:
            ExtensionError: it is a package's and cannot be imported, or two packages have one of this name.
        """
        if name in self.registered:
            return self.registered[name]
        if name in self._loaded:
            return self._loaded[name]
        declared = self._entries().get(name)
        if declared is None:
            return None
        if len(declared) > 1:
            sources = " and ".join(sorted(map(_package, declared)))
            raise ExtensionError(f"the {self.kind} {name!r} is declared by {sources}; uninstall all but one of them")
        try:
            value = declared[0].load()
        except (Exception, SystemExit) as error:  # whatever a package of another's raises
            raise ExtensionError(
                f"the {self.kind} {name!r} of {_package(declared[0])} cannot be imported "
                f"({type(error).__name__}: {error}); mend or uninstall it"
            ) from error
        self._loaded[name] = value
        return value

    def get(self, name: str, built_in: Iterable[str] = ()) -> Any:
        """Returns what was added as ``name``.

        Raises:
            NotFoundError: nothing was; the nearest names are said.
            ExtensionError: as ``find``.
        """
        value = self.find(name)
        if value is None:
            known = sorted({*built_in, *self.names()})
            close = difflib.get_close_matches(name, known, n=3)
            hint = f"did you mean {one_of(close)}?" if close else f"known are {one_of(known) if known else 'none'}"
            raise NotFoundError(f"no {self.kind} is called {name!r}; {hint}")
        return value

    def is_local(self, name: str) -> bool:
        """Returns whether ``name`` was registered in this process alone: another process does not know it."""
        return name in self.registered

    def has_local(self) -> bool:
        """Returns whether anything was registered in this process alone."""
        return bool(self.registered)

    def names(self) -> list[str]:
        """Returns all names that were added, sorted."""
        return sorted({*self.registered, *self._entries()})

    def listing(
        self, built_in: Mapping[str, Any], check: Callable[[str, Any], object] | None = None
    ) -> list[Extension]:
        """Returns learnloop's own and all that was added; packages are imported for it.

        A package's entry point of a name that is learnloop's own is listed with that error, and not used.

        Args:
            built_in: what learnloop has of this kind, by name.
            check: called with the name and the value of what was added; raises UsageError where it is none of
                the kind.
        """
        found = [self._describe_value(name, BUILT_IN, value) for name, value in built_in.items()]
        for name in self.names():
            source = HERE if self.is_local(name) else self._source(name)
            try:
                if name in built_in:
                    raise ExtensionError(
                        f"the {self.kind} {name!r} of {source} is not used: the name is learnloop's own, and {source} "
                        "must choose another one"
                    )
                value = self.find(name)
                if check is not None:
                    check(name, value)
            except (ExtensionError, UsageError) as error:
                found.append(Extension(kind=self.kind, name=name, source=source, error=str(error)))
            else:
                found.append(self._describe_value(name, source, value))
        return found

    def _describe_value(self, name: str, source: str, value: Any) -> Extension:
        text = value if isinstance(value, str) else getattr(value, "__doc__", None) or ""
        return Extension(kind=self.kind, name=name, source=source, description=text.strip().partition("\n")[0])

    def _source(self, name: str) -> str:
        return " and ".join(sorted(map(_package, self._entries()[name])))

    def _entries(self) -> dict[str, list[EntryPoint]]:
        if self._declared is None:
            from importlib.metadata import entry_points  # a twentieth of a second, for those who ask

            declared: dict[str, list[EntryPoint]] = {}
            for entry in entry_points(group=self.group):
                declared.setdefault(entry.name, []).append(entry)
            self._declared = declared
        return self._declared


def _is_same(first: Any, second: Any) -> bool:
    """Returns whether both are one thing, or one place of the source, run twice."""
    places = [(getattr(each, "__module__", None), getattr(each, "__qualname__", None)) for each in (first, second)]
    return first is second or (places[0] == places[1] and None not in places[0] and "<lambda>" not in str(places[0]))


def _package(entry: EntryPoint) -> str:
    return "an unknown package" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"


POINTS: Mapping[Kind, ExtensionPoint] = {kind: ExtensionPoint(kind) for kind in KINDS}
"""Where each kind is added. Rooms look here for names that are not their own."""
