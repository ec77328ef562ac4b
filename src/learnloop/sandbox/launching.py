"""Launches commands in sandboxes, whatever protects there: for ``Sandbox``, which asks first, and for what tries it."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import msgspec

from learnloop.core.errors import SandboxError
from learnloop.sandbox.cgroups import Group, groups_of
from learnloop.sandbox.interrupts import uninterrupted
from learnloop.sandbox.records import Command, CommandOutcome, Limits
from learnloop.sandbox.running import Running


def launch(command: Command, limits: Limits) -> CommandOutcome:
    """Runs a command in a sandbox of its own and returns what came of it."""
    with contextlib.ExitStack() as stack:
        with uninterrupted():
            group = _make_group(limits, stack)
            running = stack.enter_context(contextlib.closing(Running(command, limits, group)))
        running.begin()
        return _with_files(running, command, running.listen(command.stdin, group))


def launch_pair(first: Command, second: Command, limits: Limits) -> tuple[CommandOutcome, CommandOutcome]:
    """Runs two commands in two sandboxes between which two pipes go; ``Sandbox.run_pair`` says how."""
    with contextlib.ExitStack() as stack:
        with uninterrupted(), _two_pipes() as links:
            groups = [_make_group(limits, stack) for _ in range(2)]
            pair = [
                stack.enter_context(contextlib.closing(Running(command, limits, group, link)))
                for command, group, link in zip((first, second), groups, links, strict=True)
            ]
        with ThreadPoolExecutor(1, thread_name_prefix="sandbox-partner") as pool:
            for each in pair:
                each.begin()
            listened = pool.submit(pair[1].listen, second.stdin, groups[1])
            try:
                outcome = pair[0].listen(first.stdin, groups[0])
            finally:
                pair[1].kill()
            return _with_files(pair[0], first, outcome), _with_files(pair[1], second, listened.result())


@contextlib.contextmanager
def _two_pipes() -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Gives the reading and the writing end of each partner; they are the sandboxes' alone afterwards."""
    ends: list[int] = []
    try:
        for _ in range(2):
            for end in os.pipe():
                ends.append(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10))  # the shell inside uses those below
                os.close(end)
        to_first, from_second, to_second, from_first = ends
        yield (to_first, from_first), (to_second, from_second)
    finally:
        for each in ends:
            os.close(each)


def _make_group(limits: Limits, stack: contextlib.ExitStack) -> Group | None:
    """Returns a group that ``stack`` removes; None where there are none."""
    groups = groups_of(os.getpid())
    if groups.trees.reason is not None:
        return None
    try:
        group = groups.make(limits)
    except OSError as error:
        raise SandboxError(f"a control group for the sandbox cannot be made: {error}; nothing was run") from error
    stack.callback(uninterrupted()(group.remove))
    return group


def _with_files(running: Running, command: Command, outcome: CommandOutcome) -> CommandOutcome:
    with uninterrupted():
        found = running.collect(command.returns)
    return msgspec.structs.replace(outcome, files=found.files, left_out=found.left_out)
