"""Large files are streamed: what an import holds in memory does not grow with the file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

MAX_BYTES = 300 * 2**20
_CHILD = """
import json, sys
from pathlib import Path
from learnloop.store import Store
from learnloop.traces.importing.exchange import import_file

with Store.open(f"sqlite:///{sys.argv[2]}") as store:
    report = import_file(store, Path(sys.argv[1]), agent_id="a")
status = Path("/proc/self/status").read_text()  # of this program alone; rusage counts what forked it, too
peak = int(status.partition("VmHWM:")[2].split()[0]) * 1024
print(json.dumps({"peak": peak, "episodes": report.num_records["episode"], "spans": report.num_records["span"]}))
"""


def write_goals(path: Path, num_bytes: int) -> tuple[int, int]:
    """Writes lines of goal traces, 5 a goal; returns how many goals and lines."""
    num_lines, output = 0, "x" * 700
    with path.open("w") as file:
        while file.tell() < num_bytes:
            for step in range(5):
                clock = f"{num_lines // 3600 % 24:02}:{num_lines // 60 % 60:02}:{num_lines % 60:02}"
                line = {
                    "timestamp": f"2026-01-01T{clock}Z",
                    "goal": f"goal {num_lines // 5}",
                    "action": f"action-{step}",
                    "result": {"success": step != 2, "output": output, "execution_time_ms": 5},
                }
                file.write(json.dumps(line) + "\n")
                num_lines += 1
    return num_lines // 5, num_lines


def check(folder: Path, num_bytes: int) -> None:
    file = folder / "goals.jsonl"
    num_goals, num_lines = write_goals(file, num_bytes)
    command = [sys.executable, "-c", _CHILD, str(file), str(folder / "learnloop.db")]
    child = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(child.stdout)
    assert (found["episodes"], found["spans"]) == (num_goals, num_lines)
    assert found["peak"] <= MAX_BYTES


@pytest.mark.slow
def test_a_file_of_20_megabytes(tmp_path: Path) -> None:
    check(tmp_path, 20 * 2**20)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_a_file_of_a_gigabyte(tmp_path: Path) -> None:
    check(tmp_path, 2**30)
