"""Folders of a training: written by one process at a time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from learnloop.core.errors import ConflictError, StoreError
from learnloop.training.run_files import held

HOLDER = """
import sys
from pathlib import Path
from learnloop.training.run_files import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_one_process_at_a_time(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "run")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(ConflictError, match="another process trains"), held(tmp_path / "run"):
            pass
        holder.kill()  # the lock ends with the process, however it ends
        holder.wait()
        with held(tmp_path / "run"):
            pass


def test_what_the_disk_refuses_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"), held(tmp_path / "file" / "run"):
        pass
