"""``learnloop policies export``: a registered policy becomes a file that another runtime computes the same with."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from learnloop.algorithms.building import build_algorithm, configure
from learnloop.algorithms.policies.network_policy import NetworkPolicy
from learnloop.cli.main import run
from learnloop.core.protocols import PolicyArtifact
from learnloop.core.records import Verdict
from learnloop.core.spaces import Discrete
from learnloop.loop import Workspace, find_settings
from learnloop.registry import Proof
from tests.algorithms.steps import spaces


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LEARNLOOP_HOME", raising=False)
    monkeypatch.delenv("LEARNLOOP_DATABASE", raising=False)


@pytest.fixture
def policy() -> NetworkPolicy:
    """A policy that is registered as ``cart``, and beside it a linear one as ``route``."""
    built = build_algorithm(configure("ppo", {}), spaces(4, Discrete(n=3))).policy()
    assert isinstance(built, NetworkPolicy)
    with Workspace(find_settings(), create=True) as workspace:
        proof = Proof(verdict=Verdict.LEARNED, reasons=[])
        workspace.registry.register("cart", built.to_artifact(), proof, lineage={})
        linear = PolicyArtifact("linear", {"a": 1}, {"weights": np.zeros(3)})
        workspace.registry.register("route", linear, proof, lineage={})
    return built


def test_what_was_registered_is_computed(policy: NetworkPolicy, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["policies", "export", "cart", "cart.onnx"]) == 0
    assert capfd.readouterr().out == "cart@1 is in cart.onnx\n"
    session = onnxruntime.InferenceSession("cart.onnx", providers=["CPUExecutionProvider"])
    observations = np.random.default_rng(0).standard_normal((20, 4)).astype(np.float32)
    (found,) = session.run(["probabilities"], {"observation": observations})
    np.testing.assert_allclose(found, [policy.probabilities(row) for row in observations], atol=1e-5)
    assert session.get_modelmeta().custom_metadata_map["learnloop.policy"] == "cart@1"


def test_a_mask_is_an_input_if_asked_for(policy: NetworkPolicy, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["policies", "export", "cart@1", "cart.onnx", "--masked", "--json"]) == 0
    said = json.loads(capfd.readouterr().out)
    assert (said["schema"], said["file"], said["format"], said["masked"]) == (
        "learnloop.export/v1",
        "cart.onnx",
        "onnx",
        True,
    )
    assert said["version"]["policy"] == "cart"
    session = onnxruntime.InferenceSession("cart.onnx", providers=["CPUExecutionProvider"])
    given = {"observation": np.zeros((2, 4), np.float32), "mask": np.array([[False, True, False]] * 2)}
    assert session.run(["action"], given)[0].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["nothing", "a.onnx"], 3, "nothing"),
        (["route", "a.onnx"], 2, "learned from logged choices"),
        (["cart", "missing/a.onnx"], 1, "cannot be written"),
        (["cart", "a.onnx", "--format", "pickle"], 2, "pickle"),
    ],
)
def test_what_cannot_be_exported(
    policy: NetworkPolicy, arguments: list[str], code: int, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["policies", "export", *arguments]) == code
    assert words in capfd.readouterr().err
    assert not Path("a.onnx").exists()


def test_without_onnx_the_extra_is_named(
    policy: NetworkPolicy, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.delitem(sys.modules, "learnloop.nn.onnx_graph", raising=False)
    assert run(["policies", "export", "cart", "a.onnx"]) == 2
    assert "learnloop[onnx]" in capfd.readouterr().err
