"""What a benchmark returns and how it is printed.

The contract: a module ``benchmarks/NAME.py`` has ``run(options: Options) -> list[Row]`` and an entry in
``benchmarks.__main__.BENCHMARKS``. Rows are made by ``make_row``.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

SCHEMA = "learnloop.benchmark/v1"


@dataclass(frozen=True, kw_only=True)
class Options:
    """How large a run is wanted."""

    quick: bool = False
    seeds: int | None = None
    """Seeds or repetitions; None: as many as the published number has, or few if ``quick``."""

    def repetitions(self, published: int, quick: int) -> int:
        """Returns how many seeds or repetitions to run."""
        return self.seeds or (quick if self.quick else published)


@dataclass(frozen=True, kw_only=True)
class Goal:
    """A bound on the value of a row, or on its ratio to the peer's."""

    of: Literal["value", "ratio"]
    relation: Literal[">=", "<="]
    bound: float

    def __str__(self) -> str:
        return f"{self.of} {self.relation} {self.bound:,g}"

    def holds(self, value: float, ratio: float | None) -> bool | None:
        """Returns whether it is met; None: there is no ratio to look at."""
        measured = value if self.of == "value" else ratio
        if measured is None:
            return None
        return measured >= self.bound if self.relation == ">=" else measured <= self.bound


@dataclass(frozen=True, kw_only=True)
class Row:
    """One published number."""

    name: str
    value: float
    unit: str
    peer: str | None
    """The peer with its version and settings; None: the number has no peer."""
    peer_value: float | None
    """None: no peer, or it could not be measured; ``note`` says why."""
    ratio: float | None
    """``value`` / ``peer_value``."""
    goal: str | None
    holds: bool | None
    """None: no goal, or it could not be checked."""
    repetitions: int
    values: list[float] = field(default_factory=list)
    """The value of each repetition or seed."""
    peer_values: list[float] = field(default_factory=list)
    note: str | None = None


def make_row(
    name: str,
    values: Sequence[float],
    unit: str,
    *,
    peer: str | None = None,
    peer_values: Sequence[float] = (),
    goal: Goal | None = None,
    note: str | None = None,
) -> Row:
    """Returns the row whose value is the mean of ``values``, one of each repetition."""
    value = statistics.fmean(values)
    peer_value = statistics.fmean(peer_values) if peer_values else None
    ratio = value / peer_value if peer_value else None
    return Row(
        name=name,
        value=value,
        unit=unit,
        peer=peer,
        peer_value=peer_value,
        ratio=ratio,
        goal=None if goal is None else str(goal),
        holds=None if goal is None else goal.holds(value, ratio),
        repetitions=len(values),
        values=list(values),
        peer_values=list(peer_values),
        note=note,
    )


def exit_code(rows: Sequence[Row]) -> int:
    """Returns 7 if a goal fails, else 1 if one could not be checked, else 0."""
    if any(row.holds is False for row in rows):
        return 7
    return 1 if any(row.goal is not None and row.holds is None for row in rows) else 0


def to_json(name: str, rows: Sequence[Row]) -> str:
    """Returns the rows of benchmark ``name`` as JSON."""
    return json.dumps({"schema": SCHEMA, "benchmark": name, "rows": [asdict(row) for row in rows]}, indent=2)


def format_table(rows: Sequence[Row]) -> str:
    """Returns the rows as text, one a line, and the notes below."""
    header = ("name", "value", "unit", "peer", "peer value", "ratio", "goal", "holds", "n")
    lines = [header, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    table = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    notes = dict.fromkeys(f"{row.peer or row.name}: {row.note}" for row in rows if row.note)
    return "\n".join([*table, *notes])


def _cells(row: Row) -> tuple[str, ...]:
    holds = "-" if row.goal is None else {True: "yes", False: "NO", None: "not checked"}[row.holds]
    numbers = [_number(row.value), row.unit, row.peer or "-", _number(row.peer_value), _number(row.ratio)]
    return (row.name, *numbers, row.goal or "-", holds, str(row.repetitions))


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
