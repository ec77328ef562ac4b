"""Policies as ONNX files: what ``NetworkPolicy`` computes, for runtimes in any language.

Inputs: ``observation``, float32 ``(batch, size)``, as ``ObservationEncoder`` encodes them; if it was asked for also
``mask``, bool ``(batch, num_choices)``. Both must be given: ONNX has defaults only for what never changes.

Outputs, by what the policy is:

- of PPO, A2C or discrete SAC over one choice: ``logits`` and ``probabilities`` ``(batch, n)``, ``action`` ``(batch,)``;
- over several choices: ``logits`` and ``probabilities`` ``(batch, sum(nvec))``, each choice's after the other's,
  ``action`` ``(batch, num_choices)``;
- by values (DQN, duelling too): ``q_values`` ``(batch, n)``, ``action`` ``(batch,)``;
- over a box: ``mean`` and ``log_std`` ``(batch, size)``, of SAC before the squashing; ``action`` ``(batch, *shape)``.

``action`` is the greedy one, int64 or float32, in the units of the space: counted from its ``start``, in its bounds.
What is not allowed has the logit or value minus infinity and the probability 0. A graph refuses nothing: where a row
allows nothing, probabilities are NaN and the action means nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from learnloop.algorithms.policies.network_policy import NetworkPolicy
from learnloop.core.errors import UsageError
from learnloop.core.spaces import Box, Discrete, MultiDiscrete, num_choices
from learnloop.core.version import __version__
from learnloop.nn.encoders.action_codec import bounds_of
from learnloop.nn.encoders.normalisation import CLIP, Normaliser
from learnloop.nn.encoders.observation_encoder import ObservationEncoder
from learnloop.nn.mlp.network import MLP
from learnloop.nn.squashed_gaussian import MAX_LOG_STD, MIN_LOG_STD
from learnloop.system.files import replacing

if TYPE_CHECKING:
    from learnloop.nn.onnx_graph import Graph

OBSERVATION, MASK, ACTION = "observation", "mask", "action"


def export_onnx(policy: NetworkPolicy, path: str | Path, *, masked: bool = False, label: str | None = None) -> Path:
    """Writes ``policy`` as an ONNX file; returns its path.

    The model's metadata has ``learnloop.version``, ``learnloop.algorithm``, ``learnloop.outputs``, ``learnloop.spaces``
    (JSON) and, if given, ``learnloop.policy``. A file that is there already is replaced once the new one is whole.

    Args:
        policy: what is written; its dropout is off, and it draws nothing.
        path: of the file.
        masked: whether it takes a mask of allowed choices.
        label: what the policy is called, such as ``cartpole@3``.

    Raises:
        MissingExtraError: onnx is not installed.
        UsageError: its network is a torch module of one's own, or it has none; or its actions cannot be masked.
        CorruptError: a parameter is not finite.
        StoreError: the file cannot be written.
    """
    target = Path(path)
    data = onnx_bytes(policy, masked=masked, label=label)
    with replacing(target) as stream:
        stream.write(data)
    return target


def onnx_bytes(policy: NetworkPolicy, *, masked: bool = False, label: str | None = None) -> bytes:
    """Returns ``policy`` as the bytes of an ONNX file: the same policy gives the same bytes.

    Raises:
        MissingExtraError: onnx is not installed.
        UsageError: its network is a torch module of one's own, or it has none; or its actions cannot be masked.
        CorruptError: a parameter is not finite.
    """
    from learnloop.nn.onnx_graph import Graph, add_mlp

    artifact = NetworkPolicy.from_artifact(policy.to_artifact()).to_artifact()  # looks at shapes and numbers
    stored = artifact.config["network"]
    if stored is None:
        raise UsageError(f"a policy of {policy.learned_by} draws its actions and computes nothing; there is no network")
    if "module" in stored:
        raise UsageError(
            f"the network {stored['module']!r} is a torch module of another's; export it with torch.onnx.export"
        )
    if masked and isinstance(policy.spaces.action, Box):
        raise UsageError("a box of continuous actions cannot be masked; leave masked out")
    network = MLP.from_config(stored, artifact.tensors["parameters"])
    graph = Graph()
    seen = graph.input(OBSERVATION, "f", ObservationEncoder(policy.spaces.observation).size)
    normaliser = Normaliser.from_tensors(artifact.tensors, "normaliser.")
    if normaliser is not None:
        seen = _normalised(graph, normaliser, seen)
    _add_outputs(graph, policy, add_mlp(graph, network, seen), masked=masked)
    metadata = {
        "learnloop.version": __version__,
        "learnloop.algorithm": policy.learned_by,
        "learnloop.outputs": policy.outputs,
        "learnloop.spaces": msgspec.json.encode(policy.spaces).decode(),
    }
    if label is not None:
        metadata["learnloop.policy"] = label
    return graph.to_bytes(f"learnloop_{policy.learned_by}", __version__, metadata)


def _normalised(graph: Graph, normaliser: Normaliser, seen: str) -> str:
    centred = graph.node("Sub", seen, graph.floats(normaliser.shift))
    scaled = graph.node("Div", centred, graph.floats(normaliser.scale))
    return graph.node("Clip", scaled, graph.floats(-CLIP), graph.floats(CLIP))


def _add_outputs(graph: Graph, policy: NetworkPolicy, outputs: str, *, masked: bool) -> None:
    space = policy.spaces.action
    if isinstance(space, Box):
        _add_box(graph, space, outputs, is_squashed=policy.outputs == "squashed")
        return
    n = num_choices(space)
    scores = _duelling(graph, outputs, n) if policy.outputs == "duelling" else graph.columns(outputs, 0, n)
    if masked:
        scores = graph.node("Where", graph.input(MASK, "b", n), scores, graph.floats(-np.inf))
    if policy.outputs == "distribution":
        _add_choices(graph, space, scores)
        return
    graph.output("q_values", "f", scores, (n,))
    graph.output(ACTION, "i", _best(graph, scores, space.start if isinstance(space, Discrete) else 0), ())


def _duelling(graph: Graph, outputs: str, n: int) -> str:
    """Adds V plus each advantage less their mean; ``duelling_values`` has the source."""
    advantages = graph.columns(outputs, 1, n + 1)
    sums = graph.node("Add", graph.columns(outputs, 0, 1), advantages)
    return graph.node("Sub", sums, graph.node("ReduceMean", advantages, axes=[1], keepdims=1))


def _best(graph: Graph, scores: str, start: int = 0, *, keepdims: int = 0) -> str:
    """Adds the number of the highest of each row, the first one of equals, counted from ``start``."""
    best = graph.node("ArgMax", scores, axis=1, keepdims=keepdims)
    return graph.node("Add", best, graph.constant(np.array(start, dtype=np.int64))) if start else best


def _add_choices(graph: Graph, space: Discrete | MultiDiscrete, logits: str) -> None:
    if isinstance(space, Discrete):
        probabilities, action = graph.node("Softmax", logits, axis=1), _best(graph, logits, space.start)
        shape: tuple[int, ...] = ()
    else:
        ends = np.cumsum(space.nvec).tolist()
        parts = [graph.columns(logits, end - size, end) for size, end in zip(space.nvec, ends, strict=True)]
        probabilities = graph.join([graph.node("Softmax", part, axis=1) for part in parts])
        action = graph.join([_best(graph, part, keepdims=1) for part in parts])
        shape = (len(space.nvec),)
    graph.output("logits", "f", logits, (num_choices(space),))
    graph.output("probabilities", "f", probabilities, (num_choices(space),))
    graph.output(ACTION, "i", action, shape)


def _add_box(graph: Graph, space: Box, outputs: str, *, is_squashed: bool) -> None:
    mean = graph.columns(outputs, 0, space.size)
    log_std = graph.columns(outputs, space.size, 2 * space.size)
    low, high = bounds_of(space)
    action = mean
    if is_squashed:
        log_std = graph.node("Clip", log_std, graph.floats(MIN_LOG_STD), graph.floats(MAX_LOG_STD))
        scaled = graph.node("Mul", graph.node("Tanh", mean), graph.floats((high - low) / np.float32(2)))
        action = graph.node("Add", scaled, graph.floats((high + low) / np.float32(2)))
    bounded = graph.node("Min", graph.node("Max", action, graph.floats(low)), graph.floats(high))
    shaped = graph.node("Reshape", bounded, graph.integers(0, *space.shape))  # 0: as many rows as there are
    graph.output("mean", "f", mean, (space.size,))
    graph.output("log_std", "f", log_std, (space.size,))
    graph.output(ACTION, "f", shaped, space.shape)
