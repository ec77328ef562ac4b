"""``python -m learnloop`` is the command ``learnloop``."""

from learnloop.cli.entry import main

main()
