"""Repeats of a claim: each run of the tests has the first, the long form the others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def repeats(values: Iterable[Any], *, first: int = 1) -> list[Any]:
    """Returns values for ``parametrize``, all but the first of them marked ``nightly``: ``make nightly PART=repeats``.

    They are further seeds of a claim, never another claim.
    """
    listed = list(values)
    return [*listed[:first], *(pytest.param(value, marks=pytest.mark.nightly) for value in listed[first:])]
