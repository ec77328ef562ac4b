"""Which samples are learned from and which are judged on: by the id of their unit alone."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from learnloop.core.protocols import Sample

HELD_OUT_SHARE = 0.4
HELD_OUT_SALT = "learnloop.held-out/v1"


class Split(NamedTuple):
    """Samples apart by episode."""

    train: list[Sample]
    held_out: list[Sample]


def is_held_out(unit: str, share: float = HELD_OUT_SHARE, salt: str = HELD_OUT_SALT) -> bool:
    """Returns whether ``unit`` is one of the about ``share`` of all units that are held out, the same ones always.

    One that is held out at a share is held out at each larger one; another ``salt`` draws again.
    """
    digest = hashlib.sha256(f"{salt}\x1f{unit}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64


def split_by_unit(samples: Sequence[Sample], share: float = HELD_OUT_SHARE, salt: str = HELD_OUT_SALT) -> Split:
    """Returns ``samples`` split so that about ``share`` of the units, always the same ones, are held out."""
    split = Split([], [])
    for sample in samples:
        (split.held_out if is_held_out(sample.unit, share, salt) else split.train).append(sample)
    return split
