"""Finds the shared samples of real traces, which are test data of others and no part of the project."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_SIBLING = Path(__file__).resolve().parents[3] / "shared" / "traces"


def shared_trace(name: str) -> Path:
    """Returns the sample ``name`` below ``LEARNLOOP_TEST_TRACES``, or a folder ``shared/traces`` beside the project.

    The test is skipped where there is none: samples written in the tests cover the same cases.
    """
    path = Path(os.environ.get("LEARNLOOP_TEST_TRACES", _SIBLING)) / name
    if not path.exists():
        pytest.skip(f"no shared sample {name}: set LEARNLOOP_TEST_TRACES to the folder that holds them")
    return path
