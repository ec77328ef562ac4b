"""How children of tests take signals."""

from __future__ import annotations

import signal


def heed_interrupts() -> None:
    """For a child: a shell that runs these tests in the background has told its children to ignore interrupts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
