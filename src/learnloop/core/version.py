"""The version of learnloop, which files, answers and policies are marked with."""

from __future__ import annotations

__version__ = "0.1.0"
