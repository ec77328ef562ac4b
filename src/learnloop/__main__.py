"""``python -m learnloop`` is the command ``learnloop``."""

from learnloop.cli.main import main

main()
