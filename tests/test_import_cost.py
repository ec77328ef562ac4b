"""Importing and asking for help stay cheap: CPU time, and which modules were loaded."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {"numpy", "sqlalchemy", "alembic", "torch", "fastapi", "safetensors", "rich", "msgspec", "psycopg", "pydantic"}

_CHILD = """
import json, resource, runpy, sys
def cpu():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
before = cpu()
sys.argv = {argv!r}
try:
    {statement}
except SystemExit:
    pass
used = cpu() - before
print(json.dumps({{"cpu": used, "modules": sorted(sys.modules)}}), file=sys.stderr)
"""

HELP = "from learnloop.cli.main import run; run(['--help'])"


def measure(statement: str, repetitions: int = 5) -> tuple[float, set[str]]:
    """Returns the least CPU seconds that a statement took in a fresh interpreter, and the modules it loaded."""
    best, modules = float("inf"), set[str]()
    for _ in range(repetitions):
        code = _CHILD.format(argv=["learnloop"], statement=statement)
        child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        report = json.loads(child.stderr.splitlines()[-1])
        best, modules = min(best, report["cpu"]), set(report["modules"])
    return best, modules


@pytest.mark.parametrize(("statement", "limit_seconds"), [("import learnloop", 0.060), (HELP, 0.120)])
def test_cost(statement: str, limit_seconds: float) -> None:
    cpu, modules = measure(statement)
    assert modules & HEAVY == set()
    assert cpu < limit_seconds


@pytest.mark.parametrize("command", ["traces", "policies", "db", "demo", "doctor", "init"])
def test_help_of_a_command_loads_nothing_heavy(command: str) -> None:
    _, modules = measure(f"from learnloop.cli.main import run; run([{command!r}, '--help'])", repetitions=1)
    assert modules & (HEAVY - {"rich"}) == set()


def test_public_names_are_importable() -> None:
    import learnloop

    for name in learnloop.__all__:
        assert getattr(learnloop, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = learnloop.nothing
