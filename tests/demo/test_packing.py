"""learnloop.demo.packing: the packers are real, and the reward is the documented formula."""

from __future__ import annotations

import bz2
import gzip
import lzma
import math
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop.demo.packing import CODECS, SECONDS_PRICE, Packing, context_of, pack

UNPACK = {
    "store": bytes,
    "gzip-1": gzip.decompress,
    "gzip-9": gzip.decompress,
    "bz2-9": bz2.decompress,
    "xz-6": lzma.decompress,
    "xz-x86": lzma.decompress,
}


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.binary(min_size=1, max_size=2000))
def test_what_is_packed_can_be_unpacked(codec: str, data: bytes) -> None:
    assert UNPACK[codec](CODECS[codec](data)) == data


def test_there_are_at_least_five_ways() -> None:
    assert len(CODECS) >= 5
    assert UNPACK.keys() == CODECS.keys()


def test_reward_formula() -> None:
    packing = Packing(num_bytes=2_000_000, packed_bytes=500_000, cpu_seconds=0.5)
    assert packing.saved == 0.75
    assert packing.reward == pytest.approx(0.75 - SECONDS_PRICE * 0.25)


def test_a_packing_is_measured() -> None:
    text, noise = b"abcd" * 20_000, os.urandom(80_000)
    assert pack("gzip-9", text).saved > 0.99
    assert pack("store", text).saved == 0.0
    assert pack("gzip-9", noise).saved < 0.0
    assert pack("xz-6", text).cpu_seconds > 0.0


def test_context() -> None:
    context = context_of("text", bytes(range(256)) * 16)
    assert context["size"] == 4096
    assert context["entropy"] == pytest.approx(8.0)
    assert context_of("text", b"ab" * 512)["entropy"] == pytest.approx(1.0)
    assert context_of("text", b"a" * 512)["entropy"] == 0.0
    assert isinstance(context["probe"], float)
    assert math.isfinite(context["probe"])
