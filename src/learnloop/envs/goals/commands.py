"""Goals that are reached for real: each action is a command, run in a sandbox on the files of a small world.

What a command leaves in the world's folder is the world that the next one finds; nothing else lasts. Whether a goal is
reached is asked of a command of its own, in another sandbox, on a copy: no action can touch it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from learnloop.core.arrays import F32, Bools
from learnloop.core.errors import UsageError
from learnloop.envs.goals.records import Goal, Outcome
from learnloop.sandbox import Command, Ending, Limits, Sandbox, fits

_LABEL = "the goal executor"
_LIMITS = Limits(wall_seconds=10.0, cpu_seconds=5.0)
_CRASHES = frozenset({Ending.SIGNALLED, Ending.WALL, Ending.CPU, Ending.MEMORY, Ending.OUTPUT})

World = Mapping[str, bytes]
"""The files of a world, by their relative paths."""


@dataclass(frozen=True)
class CommandAction:
    """An action that is a command."""

    name: str
    argv: Sequence[str]
    """The program and its arguments; ``python`` is the interpreter of the sandbox."""


def shell(name: str, text: str) -> CommandAction:
    """Returns the action that runs a text of shell."""
    return CommandAction(name, ("sh", "-c", text))


@dataclass(frozen=True)
class CheckedBy:
    """A verifier: a command exits with 0 on a copy of the world, in a sandbox of its own.

    What is in the world may be made to mislead: let the command compare what its programs print, and not load them
    into its own process, which they could end with 0.
    """

    argv: Sequence[str]
    files: World = field(default_factory=dict)
    """What the command brings, in the place of what the world has of these names: an action never sees it."""
    sandbox: Sandbox = field(default_factory=lambda: Sandbox(_LIMITS), compare=False, repr=False)

    def __call__(self, world: World) -> bool:
        """Returns whether it does."""
        files = {**{path: world[path] for path in world if not self._is_in_the_way(path)}, **self.files}
        if not fits(files, self.sandbox.limits):
            return False
        return self.sandbox.run(Command(argv=list(self.argv), files=files)).is_success

    def _is_in_the_way(self, path: str) -> bool:
        return any(f"{path}/".startswith(f"{own}/") or f"{own}/".startswith(f"{path}/") for own in self.files)


@dataclass(frozen=True)
class HasFiles:
    """A verifier: the world has files with these contents."""

    files: World

    def __call__(self, world: World) -> bool:
        """Returns whether it has."""
        return all(world.get(path) == content for path, content in self.files.items())


_PROGRAM = b"""import sys


def total(lines):
    return sum(int(line) for line in lines if line.strip()) + 1


if __name__ == "__main__":
    print(total(sys.stdin))
"""
FIRST_WORLD: World = {"program.py": _PROGRAM, "numbers.txt": b"1\n2\n39\n"}
"""A program with a fault in it, and what it is to add up."""

_TEST_IT = "import program; assert program.total(['1', '2']) == 3; open('tested', 'w')"
_PACKAGE_IT = """import zipfile
with open('program.py') as file, zipfile.ZipFile('program.pyz', 'w') as made:
    made.writestr(zipfile.ZipInfo('__main__.py'), file.read())
"""
_CHECK_PROGRAM = 'test "$(printf \'1\\n2\\n\\n\' | python program.py)" = 3 && test "$(: | python program.py)" = 0'
_CHECK_PACKAGE = "test -s report.txt && test \"$(printf '20\\n22\\n' | python program.pyz)\" = 42"

ACTIONS = (
    shell("fix", "sed 's/ + 1$//' program.py > fixed && mv fixed program.py"),
    CommandAction("test", ("python", "-c", _TEST_IT)),
    shell("run", "python program.py < numbers.txt > out.txt && mv out.txt result.txt"),
    shell("report", "test -s result.txt && { printf 'total: '; cat result.txt; } > report.txt"),
    CommandAction("package", ("python", "-c", _PACKAGE_IT)),
    shell("spoil", "echo none >> numbers.txt; rm -f result.txt"),
    shell("restore", "grep -v none numbers.txt > kept; mv kept numbers.txt"),
    shell("kill", "kill -SEGV $$"),
)
"""The actions of the default world. Some only work after others, one harms, one crashes."""

FILES = ("numbers.txt", "program.py", "program.pyz", "report.txt", "result.txt", "tested")
"""What is shown of the default world: whether each is there, and 8 bits of what it holds."""

GOALS = (
    Goal("fixed", "Correct the program.", CheckedBy(("sh", "-c", _CHECK_PROGRAM))),
    Goal(
        "tested",
        "Correct the program and leave the mark of its tests.",
        CheckedBy(("sh", "-c", f"test -e tested && {_CHECK_PROGRAM}")),
    ),
    Goal("computed", "Write the right total into result.txt.", HasFiles({"result.txt": b"42\n"})),
    Goal("reported", "Write a report of the right total.", HasFiles({"report.txt": b"total: 42\n"})),
    Goal("packaged", "Package the corrected program beside a report.", CheckedBy(("sh", "-c", _CHECK_PACKAGE))),
)
"""The goals of the default world: one to four actions each."""


class GoalCommands:
    """Performs actions as commands in a sandbox. See ``GoalExecutor``.

    A verifier is called with the world: its files, by their paths. An exit code other than 0 is a failure. A run that
    was killed, by a signal or for what it used, or that left more than a world holds, is a crash, and leaves the world
    as it was. Links and what else is no file do not last.

    Attributes:
        goals: that can be asked for.
        actions: their names.
        is_simulated: False: what it says happened.
        world: the files as they are now.
    """

    is_simulated = False

    def __init__(
        self,
        goals: Iterable[Goal] = GOALS,
        actions: Iterable[CommandAction] = ACTIONS,
        make_world: Callable[[int], World] | World = FIRST_WORLD,
        shown: Sequence[str] = FILES,
        limits: Limits = _LIMITS,
    ) -> None:
        """Takes the world.

        Args:
            goals: with verifiers of the world.
            actions: commands.
            make_world: the files that an episode begins with, or what makes them from its seed.
            shown: which files the state shows, 9 numbers each: whether it is there, then 8 bits of what it holds.
            limits: of each command.

        Raises:
            UsageError: there is no goal, action or file to show.
            SandboxError: nothing can be protected here, so nothing could be run; the simulator needs no sandbox.
        """
        self.goals: Sequence[Goal] = tuple(goals)
        self._actions = tuple(actions)
        self.actions: Sequence[str] = tuple(action.name for action in self._actions)
        self._shown = tuple(shown)
        self.state_size = 9 * len(self._shown)
        if not (self.goals and self._actions and self._shown):
            raise UsageError(
                f"{_LABEL} has {len(self.goals)} goals, {len(self._actions)} actions and {len(self._shown)} files to "
                "show; at least 1 of each is needed"
            )
        self._sandbox = Sandbox(limits)
        self._sandbox.require()
        self._make_world = make_world
        self._goal = self.goals[0]
        self.world: World = {}

    def start(self, goal: Goal, seed: int) -> F32:
        """Lays out the world of an episode."""
        self._goal = goal
        self.world = dict(self._make_world(seed) if callable(self._make_world) else self._make_world)
        return self._state()

    def perform(self, action: int) -> Outcome:
        """Runs the command of an action, then the goal's verifier.

        Raises:
            SandboxError: nothing can be protected here.
        """
        argv = list(self._actions[action].argv)
        ran = self._sandbox.run(Command(argv=argv, files=self.world, returns=["*"]))
        if ran.ended_by in _CRASHES or not fits(ran.files, self._sandbox.limits):
            return Outcome(self._state(), ran.wall_seconds, crashed=True)
        self.world = ran.files
        if not ran.is_success:
            return Outcome(self._state(), ran.wall_seconds, failed=True)
        return Outcome(self._state(), ran.wall_seconds, succeeded=bool(self._goal.verifier(self.world)))

    def allowed(self) -> Bools | None:
        """Returns that it does not know: commands are tried."""
        return None

    def close(self) -> None:
        """Has nothing to give back: nothing outlives a run."""

    def _state(self) -> F32:
        state = np.zeros((len(self._shown), 9), dtype=np.float32)
        for row, path in zip(state, self._shown, strict=True):
            content = self.world.get(path)
            if content is not None:
                digest = hashlib.sha256(content).digest()[:1]
                row[0] = 1.0
                row[1:] = np.unpackbits(np.frombuffer(digest, dtype=np.uint8))
        return state.reshape(-1)
