"""The long form of the tests in parts that take less than an hour each: ``make nightly PART=mutants``.

What passed is kept in ``.nightly/NAME.json`` with its figures and is not run again, so that a part that was interrupted
goes on where it was; ``FRESH=1`` in the environment begins again. Without a name all parts run, one after the other.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

from tests.nightly.progress import read
from tests.project import ROOT

FOLDER = ROOT / ".nightly"
MAX_SECONDS = 3_300
"""A part begins no further test after so long."""
NOTHING_LEFT = 5
"""pytest's exit code where no test was run: all passed before."""


class Part(NamedTuple):
    """Tests that are run together."""

    about: str
    tests: tuple[str, ...]
    """Arguments of pytest; of what they name, the tests with the marker ``nightly`` are run."""


def _learning(words: str) -> tuple[str, ...]:
    return ("tests/nightly/test_learning_tables.py", "-k", words)


PARTS = {
    "mutants": Part("seeded bugs, and the tests that must fail then", ("tests/nightly/test_mutants.py",)),
    "cartpole": Part("rl-zoo's table: CartPole", _learning("CartPole")),
    "control": Part("rl-zoo's table: Acrobot, Pendulum and MountainCar", _learning("not CartPole and not LunarLander")),
    "lunar-lander": Part("rl-zoo's table: LunarLander", _learning("LunarLander")),
    "null-campaign": Part("trainings that cannot have learned", ("tests/nightly/test_null_campaign.py",)),
    "asynchronous": Part("A3C beside A2C, twenty seeds each", ("tests/nightly/test_asynchronous.py",)),
    "environments": Part("learning in our own environments", ("tests/nightly/test_environments.py",)),
    "offline": Part("learning from logs, longer and in more places", ("tests/training/trainers",)),
    "repeats": Part(
        "more seeds, kills and bytes of what each run of the tests does with few",
        ("tests", "--ignore=tests/nightly", "--ignore=tests/training/trainers"),
    ),
}


def main(names: Sequence[str]) -> int:
    """Runs parts and returns the exit code: 0 if all of their tests passed, now or before."""
    if unknown := [name for name in names if name not in PARTS]:
        tell(f"no part is named {unknown[0]!r}; there are:", *(f"  {name}: {PARTS[name].about}" for name in PARTS))
        return 2
    left = [name for name in names or PARTS if not run(name)]
    tell(f"not yet passed: {', '.join(left)}; call again for what is left" if left else "all passed")
    return 1 if left else 0


def run(name: str) -> bool:
    """Runs what is left of a part and returns whether all of it has passed."""
    file = FOLDER / f"{name}.json"
    if os.environ.get("FRESH") == "1":
        file.unlink(missing_ok=True)
    tell(f"{name}: {PARTS[name].about}; {len(read(file))} outcomes are kept in {file.relative_to(ROOT)}")
    options = ["-m", "nightly", "-n", "1", "--dist", "load", "-p", "tests.nightly.progress", f"--kept={file}"]
    command = [sys.executable, "-m", "pytest", *options, f"--session-timeout={MAX_SECONDS}", *PARTS[name].tests]
    return subprocess.run(command, cwd=ROOT, check=False).returncode in (0, NOTHING_LEFT)


def tell(*lines: str) -> None:
    """Writes lines where they are seen at once."""
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
