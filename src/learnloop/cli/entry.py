"""The entry point: the first thing that runs, so that Ctrl-C ends the command quietly, imports included."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_AGAIN_SECONDS = 0.02


def main() -> None:
    """Runs the command line and exits with the code that the outcome has; 130 where it is interrupted."""
    try:
        sys.unraisablehook = _interrupt_again
        from learnloop.cli.main import run

        code = run()
        _finish()
    except KeyboardInterrupt:
        _finish()
        if sys.stderr is not None:
            sys.stderr.write("Interrupted.\n")
        code = 130
    sys.exit(code)


def _interrupt_again(unraisable: UnraisableHookArgs) -> None:
    """Interrupts once more where Ctrl-C hit a callback of the interpreter, from which nothing can be raised."""
    if not isinstance(unraisable.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
        return
    import _thread
    import threading

    timer = threading.Timer(_AGAIN_SECONDS, _thread.interrupt_main)
    timer.daemon = True
    timer.start()


def _finish() -> None:
    """Ignores a further Ctrl-C: all is done, the exit code stands, and a traceback would say nothing."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
