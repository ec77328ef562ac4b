"""Figures of the updates, gathered cheaply and taken when somebody asks."""

from __future__ import annotations


class Metrics:
    """Running means and latest values by name. Figures are for debugging; none of them is proof of learning."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._latest: dict[str, float] = {}

    def add(self, name: str, value: float, count: int = 1) -> None:
        """Adds ``value``, the sum of ``count`` figures, to the mean called ``name``."""
        self._sums[name] = self._sums.get(name, 0.0) + value
        self._counts[name] = self._counts.get(name, 0) + count

    def set(self, name: str, value: float) -> None:
        """Keeps the latest value of ``name``."""
        self._latest[name] = value

    def peek(self) -> dict[str, float]:
        """Returns the figures since they were last taken, as floats."""
        means = {name: float(total) / self._counts[name] for name, total in self._sums.items()}
        return dict(sorted({**means, **{name: float(value) for name, value in self._latest.items()}}.items()))

    def take(self) -> dict[str, float]:
        """Returns the figures since they were last taken, and begins anew."""
        found = self.peek()
        self._sums.clear()
        self._counts.clear()
        self._latest.clear()
        return found
