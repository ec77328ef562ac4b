"""Sees to the system packages that the tests need: installs them as root, else says what to type.

Run by ``make test``. A test whose part is missing fails; none is skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping

PROGRAMS: Mapping[str, str] = {"bwrap": "bubblewrap", "chromium": "chromium", "unshare": "util-linux", "mount": "mount"}
"""The package that each program comes from. bubblewrap: the sandbox; chromium: the dashboard; util-linux and mount:
full and read-only disks."""


def missing_packages() -> list[str]:
    """Returns the packages whose program is not there."""
    return sorted({package for program, package in PROGRAMS.items() if shutil.which(program) is None})


def main() -> int:
    """Installs what is missing, or says how; returns the exit code."""
    missing = missing_packages()
    if not missing:
        return 0
    line = f"apt-get install -y --no-install-recommends {' '.join(missing)}"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        sys.stderr.write(f"The tests need system packages that are not here. Type: sudo {line}\n")
        return 1
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], check=True, env=environment)
    subprocess.run([*line.split(), "-qq"], check=True, env=environment)
    still = missing_packages()
    if still:
        sys.stderr.write(f"apt-get did not bring the programs of {', '.join(still)}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
