"""A store on each back end and a registry on a real disk, and small policies to put in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from learnloop.core.protocols import PolicyArtifact
from learnloop.core.records import Verdict
from learnloop.registry import Proof, Registry
from learnloop.store import Store


@pytest.fixture(params=["sqlite_url", "postgres_url"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    with Store.open(request.getfixturevalue(request.param)) as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "policies"


@pytest.fixture
def registry(store: Store, folder: Path) -> Registry:
    return Registry(store, folder)


@pytest.fixture
def make_artifact() -> Callable[..., PolicyArtifact]:
    def make(value: float = 1.0, **tensors: np.ndarray) -> PolicyArtifact:
        given = tensors or {
            "theta": np.full((2, 3), value),
            "scale.mean": np.array([0.5, -0.0], dtype=np.float32),
            "counts": np.array([[2**62, -3]], dtype=np.int64),
            "known": np.array([True, False, True]),
            "bias": np.array(0.25),
        }
        config = {"alpha": 0.1, "actions": ["a", "ü"], "nested": {"on": True, "none": None, "n": 3}}
        return PolicyArtifact("linucb", config, given)

    return make


@pytest.fixture
def proof() -> Callable[..., Proof]:
    def make(reward: float | None = 0.5, verdict: Verdict = Verdict.LEARNED) -> Proof:
        metrics = {} if reward is None else {"reward": reward}
        return Proof(verdict=verdict, reasons=["better than random"], statistics={"p": 0.01}, metrics=metrics)

    return make
