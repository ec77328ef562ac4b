"""Exported policies: what onnxruntime computes is what numpy computes, within 1e-5."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from learnloop import __version__
from learnloop.algorithms.building import build_algorithm, configure
from learnloop.algorithms.policies.network_policy import NetworkPolicy
from learnloop.algorithms.policies.onnx_export import export_onnx, onnx_bytes
from learnloop.core.errors import MissingExtraError, StoreError, UsageError
from learnloop.core.spaces import Box, Discrete, MultiDiscrete, Spaces, num_choices
from learnloop.nn.encoders.normalisation import Normaliser
from learnloop.nn.mlp.network import MLP, Head, MLPConfig
from learnloop.nn.torch.network import TorchNetwork
from tests.algorithms.steps import box, drive, spaces

F = np.float32
SIZE = 6
TOLERANCE = 1e-5

BOX = Box(shape=(2, 2), low=(-1.0, 0.0, None, -3.0), high=(1.0, 0.5, 2.0, None))
BOUNDED = Box(shape=(3,), low=(-2.0, 0.0, 5.0), high=(2.0, 1.0, 9.0))
FORMS: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "discrete": ("ppo", Discrete(n=5, start=-2), {}),
    "discrete relu norm": ("ppo", Discrete(n=3), {"activation": "relu", "layer_norm": True}),
    "discrete shared": ("a2c", Discrete(n=3), {"shared_trunk": True, "layer_norm": True}),
    "discrete dropout": ("ppo", Discrete(n=3), {"dropout": 0.2}),
    "discrete linear": ("ppo", Discrete(n=4), {"net_arch": ()}),
    "discrete scaled": ("ppo", Discrete(n=4), {"normalize_observations": True, "n_steps": 8, "batch_size": 8}),
    "multi-discrete": ("ppo", MultiDiscrete(nvec=(3, 2, 4)), {}),
    "one of one": ("ppo", MultiDiscrete(nvec=(1, 3)), {}),
    "box": ("ppo", BOX, {"log_std_init": -0.7}),
    "box scaled": ("a2c", box(2), {"normalize_observations": True}),
    "values": ("dqn", Discrete(n=4, start=3), {}),
    "duelling": ("dqn", Discrete(n=4, start=1), {"duelling": True, "layer_norm": True}),
    "squashed": ("sac", BOUNDED, {"layer_norm": True}),
    "soft discrete": ("sac", Discrete(n=4), {}),
}


def make(form: str, seed: int = 0) -> NetworkPolicy:
    """A policy whose parameters are far from where they start, so that no output is near 0."""
    name, action, options = FORMS[form]
    config = configure(name, {"net_arch": (16, 8), **options})
    algorithm = build_algorithm(config, spaces(SIZE, action), num_envs=2, seed=seed)
    if config.__class__.__name__ in ("PPOConfig", "A2CConfig"):
        drive(algorithm, 20, seed)
    policy = algorithm.policy()
    artifact = policy.to_artifact()
    noise = np.random.default_rng(seed).standard_normal(artifact.tensors["parameters"].size)
    moved = artifact.tensors["parameters"] + F(0.4) * noise.astype(F)
    return NetworkPolicy.from_artifact(artifact._replace(tensors={**artifact.tensors, "parameters": moved}))


def session_of(policy: NetworkPolicy, *, masked: bool = False) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(
        onnx_bytes(policy, masked=masked), sess_options=options, providers=["CPUExecutionProvider"]
    )


def run(session: onnxruntime.InferenceSession, **inputs: Any) -> dict[str, Any]:
    names = [each.name for each in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def random_masks(space: Any, batch: int, rng: np.random.Generator) -> np.ndarray:
    parts = []
    for size in (space.n,) if isinstance(space, Discrete) else space.nvec:
        part = rng.random((batch, size)) < 0.5
        part[np.arange(batch), rng.integers(size, size=batch)] = True
        parts.append(part)
    return np.concatenate(parts, axis=1)


def check_actions(found: np.ndarray, wanted: np.ndarray, scores: np.ndarray) -> None:
    """Both are the same, unless two scores of a row are as good as equal."""
    best = np.sort(scores, axis=1)
    clear = (best[:, -1] - best[:, -2] if best.shape[1] > 1 else np.full(len(best), np.inf)) > 1e-4
    assert clear.mean() > 0.9
    np.testing.assert_array_equal(found[clear], wanted[clear])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("batch", [1, 64])
def test_onnxruntime_computes_what_numpy_computes(form: str, batch: int) -> None:
    """What is compared with is recomputed from the policy's outputs, and from ``act`` and ``probabilities``."""
    for seed in range(4):
        policy = make(form, seed)
        rng = np.random.default_rng(seed)
        observations = (3 * rng.standard_normal((batch, SIZE))).astype(F)
        session, outputs, space = session_of(policy), policy._outputs(observations), policy.spaces.action
        if isinstance(space, Box):
            found = run(session, observation=observations)
            acted = np.stack([policy.act(row) for row in observations])
            np.testing.assert_allclose(found["action"], acted, rtol=TOLERANCE, atol=TOLERANCE)
            np.testing.assert_allclose(found["mean"], outputs[:, : space.size], rtol=TOLERANCE, atol=TOLERANCE)
            log_std = outputs[:, space.size : 2 * space.size]
            if policy.outputs == "squashed":
                log_std = np.clip(log_std, -20, 2)
            np.testing.assert_allclose(found["log_std"], log_std, rtol=TOLERANCE, atol=TOLERANCE)
            continue
        check_choices(policy, run(session, observation=observations), observations, None)
        masks = random_masks(space, batch, rng)
        found = run(session_of(policy, masked=True), observation=observations, mask=masks)
        check_choices(policy, found, observations, masks)


def check_choices(policy: NetworkPolicy, found: dict[str, Any], observations: np.ndarray, masks: Any) -> None:
    space, outputs = policy.spaces.action, policy._outputs(observations)
    scores = outputs[:, : num_choices(space)]
    if policy.outputs == "duelling":
        scores = outputs[:, :1] + outputs[:, 1:] - outputs[:, 1:].mean(axis=1, keepdims=True)
    allowed = scores if masks is None else np.where(masks, scores, -np.inf)
    name = "logits" if policy.outputs == "distribution" else "q_values"
    np.testing.assert_allclose(found[name], allowed, rtol=TOLERANCE, atol=TOLERANCE)
    rows = [None] * len(observations) if masks is None else masks
    acted = np.array([policy.act(row, mask) for row, mask in zip(observations, rows, strict=True)])
    if isinstance(space, Discrete):
        check_actions(found["action"], acted, allowed)
        if name == "logits":
            chances = [policy.probabilities(row, mask) for row, mask in zip(observations, rows, strict=True)]
            np.testing.assert_allclose(found["probabilities"], chances, atol=TOLERANCE)
            if masks is not None:
                assert (found["probabilities"][~masks] == 0).all()
        return
    start = 0
    for at, size in enumerate(space.nvec):
        part = slice(start, start + size)
        check_actions(found["action"][:, at], acted[:, at], allowed[:, part])
        weights = np.exp(allowed[:, part] - allowed[:, part].max(axis=1, keepdims=True))
        chances = weights / weights.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(found["probabilities"][:, part], chances, atol=TOLERANCE)
        start += size


def test_equal_scores_give_the_first_action() -> None:
    network = MLP(MLPConfig(input_size=2, hidden=(), heads=(Head(name="policy", size=3),)))
    network.parameters[:] = 0
    policy = NetworkPolicy(spaces(2, Discrete(n=3)), network, outputs="distribution", learned_by="test")
    found = run(session_of(policy), observation=np.ones((4, 2), dtype=F))
    assert found["action"].tolist() == [0] * 4 == [policy.act([1.0, 1.0])] * 4


def test_numbers_are_scaled_and_clipped_as_in_the_policy() -> None:
    network = MLP(MLPConfig(input_size=2, hidden=(4,), heads=(Head(name="policy", size=4),)), seed=2)
    normaliser = Normaliser(np.array([1, -50], F), np.array([0.5, 1e-3], F))
    policy = NetworkPolicy(
        spaces(2, Box(shape=(2,), low=(-9.0,) * 2, high=(9.0,) * 2)),
        network,
        outputs="squashed",
        learned_by="sac",
        normaliser=normaliser,
    )
    observations = np.array([[0, 0], [1, -50], [1e6, -1e6], [1.2, -49.9999]], dtype=F)
    found = run(session_of(policy), observation=observations)
    np.testing.assert_allclose(found["action"], [policy.act(row) for row in observations], rtol=1e-5, atol=1e-5)


def test_the_file_says_what_it_is(tmp_path: Path) -> None:
    policy = make("multi-discrete")
    path = export_onnx(policy, tmp_path / "policy.onnx", masked=True, label="router@3")
    assert [each.name for each in tmp_path.iterdir()] == ["policy.onnx"]
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    said = {each.key: each.value for each in model.metadata_props}
    spaces_said = json.loads(said.pop("learnloop.spaces"))
    assert spaces_said["action"] == {"type": "multi_discrete", "nvec": [3, 2, 4]}
    assert said == {
        "learnloop.version": __version__,
        "learnloop.algorithm": "ppo",
        "learnloop.outputs": "distribution",
        "learnloop.policy": "router@3",
    }
    assert model.producer_name == "learnloop"
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert [(each.name, each.type, each.shape) for each in session.get_inputs()] == [
        ("observation", "tensor(float)", ["batch", SIZE]),
        ("mask", "tensor(bool)", ["batch", 9]),
    ]
    assert [(each.name, each.type, each.shape) for each in session.get_outputs()] == [
        ("logits", "tensor(float)", ["batch", 9]),
        ("probabilities", "tensor(float)", ["batch", 9]),
        ("action", "tensor(int64)", ["batch", 3]),
    ]


def test_the_same_policy_gives_the_same_bytes() -> None:
    assert onnx_bytes(make("box scaled")) == onnx_bytes(make("box scaled"))


def test_what_has_no_graph_is_refused(tmp_path: Path) -> None:
    import torch

    target = tmp_path / "policy.onnx"
    uniform = build_algorithm(configure("random", {}), spaces(SIZE, Discrete(n=3))).policy()
    assert isinstance(uniform, NetworkPolicy)
    with pytest.raises(UsageError, match="draws its actions"):
        export_onnx(uniform, target)
    own = TorchNetwork(torch.nn.Linear(SIZE, 3), input_size=SIZE, output_size=3)
    policy = NetworkPolicy(spaces(SIZE, Discrete(n=3)), own, outputs="distribution", learned_by="ppo")
    with pytest.raises(UsageError, match="TorchNetwork"):
        export_onnx(policy, target)
    with pytest.raises(UsageError, match="cannot be masked"):
        export_onnx(make("box"), target, masked=True)
    assert not target.exists()


@pytest.mark.parametrize("where", ["missing/policy.onnx", "."])
def test_a_file_that_cannot_be_written(where: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be written"):
        export_onnx(make("values"), tmp_path / where)
    assert list(tmp_path.iterdir()) == []


def test_without_onnx_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.delitem(sys.modules, "learnloop.nn.onnx_graph", raising=False)
    with pytest.raises(MissingExtraError, match=r"learnloop\[onnx\]"):
        onnx_bytes(make("values"))


def test_nothing_else_loads_onnx() -> None:
    code = "import sys, learnloop.algorithms.policies.onnx_export, learnloop.loop; print('onnx' in sys.modules)"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert child.stdout.strip() == "False"


def test_an_observation_of_text_is_encoded_first() -> None:
    from learnloop.core.spaces import Text
    from learnloop.nn.encoders.observation_encoder import ObservationEncoder

    seen = Spaces(observation=Text(num_buckets=32), action=Discrete(n=3))
    network = MLP(MLPConfig(input_size=32, heads=(Head(name="policy", size=3),)), seed=4)
    policy = NetworkPolicy(seen, network, outputs="distribution", learned_by="ppo")
    encoded = ObservationEncoder(seen.observation).encode("where is my order?")
    found = run(session_of(policy), observation=encoded[None])
    np.testing.assert_allclose(found["probabilities"][0], policy.probabilities("where is my order?"), atol=1e-5)
