"""The table of the seeded bugs, at the end of a run: what is printed in another process is not seen."""

from __future__ import annotations

import pytest

MUTANT = "mutant"
"""Tests record a line of the table under this name."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the table, if there are lines."""
    reports = terminalreporter.getreports("passed")
    lines = [str(value) for report in reports for name, value in report.user_properties if name == MUTANT]
    if lines:
        terminalreporter.section("seeded bugs and the tests that killed them")
        for line in dict.fromkeys(lines):
            terminalreporter.write_line(line)
