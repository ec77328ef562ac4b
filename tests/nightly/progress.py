"""A plugin of pytest that keeps what passed in a file, with figures, and leaves that out in the next run.

``python -m tests.nightly.parts NAME`` loads it. A test gives figures by ``record_property(FIGURES, {...})``; they are
printed at the end and kept beside its outcome.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.project import ROOT

FIGURES = "figures"
"""Tests record what they measured under this name, as a dict that JSON can hold."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kept", metavar="FILE", help="where outcomes are kept; what passed there is not run again")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Progress(Path(config.getoption("--kept"))))


def read(file: Path) -> dict[str, Any]:
    """Returns what is kept of each test: outcome, seconds, commit, moment and figures."""
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


class _Progress:
    def __init__(self, file: Path) -> None:
        self.file = file
        self.kept = read(file)
        self.commit = _commit()

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        passed = [item for item in items if self.kept.get(item.nodeid, {}).get("outcome") == "passed"]
        if passed:
            config.hook.pytest_deselected(items=passed)
            items[:] = [item for item in items if item not in passed]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # A worker can send plain dicts and lists only, and ends at anything else, such as a Counter.
        report.user_properties = [
            (name, json.loads(json.dumps(value)) if name == FIGURES else value)
            for name, value in report.user_properties
        ]
        if "PYTEST_XDIST_WORKER" in os.environ or (report.when != "call" and report.passed):
            return  # a worker's reports come to the one who started it
        self.kept[report.nodeid] = {
            "outcome": report.outcome,
            "seconds": round(report.duration, 1),
            "commit": self.commit,
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "figures": {name: value for name, value in report.user_properties if name == FIGURES}.get(FIGURES),
        }
        _write(self.file, self.kept)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section(f"kept in {self.file}")
        for line in self._lines():
            terminalreporter.write_line(line)

    def _lines(self) -> Iterator[str]:
        for test, found in sorted(self.kept.items()):
            before = "" if found["commit"] == self.commit else f" (at {found['commit']})"
            yield f"{found['outcome']}{before} {found['seconds']:.0f} s {test}"
            if found["figures"] is not None:
                yield f"    {json.dumps(found['figures'], ensure_ascii=False)}"


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=10"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _write(file: Path, kept: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    part.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    part.replace(file)
