"""Policies of a training on the disk, in the registry's form."""

from __future__ import annotations

from pathlib import Path

from learnloop.algorithms.network_policy import NetworkPolicy
from learnloop.core.errors import CorruptError
from learnloop.core.protocols import PolicyArtifact
from learnloop.registry.artifacts import POLICY_FILE, WEIGHTS_FILE, decode_policy, decode_weights, encode_artifact
from learnloop.training.disk import writing

HASH_FILE = "content_hash"


def write_policy(folder: Path, policy: NetworkPolicy) -> None:
    """Writes ``policy`` as ``policy.json`` and ``weights.safetensors``, with the hash that vouches for both.

    Raises:
        UsageError: it cannot be stored.
        StoreError: the disk refuses.
    """
    files = encode_artifact(policy.to_artifact())
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / POLICY_FILE).write_bytes(files.policy)
        (folder / WEIGHTS_FILE).write_bytes(files.weights)
        (folder / HASH_FILE).write_text(files.content_hash)


def read_policy(folder: Path) -> NetworkPolicy:
    """Returns the policy that ``write_policy`` wrote.

    Raises:
        CorruptError: the files are not what was written.
    """
    try:
        content_hash = (folder / HASH_FILE).read_text()
        described = decode_policy((folder / POLICY_FILE).read_bytes(), content_hash)
        tensors = decode_weights((folder / WEIGHTS_FILE).read_bytes(), described)
    except OSError as error:
        raise CorruptError(f"the policy in {folder} cannot be read: {error}") from error
    return NetworkPolicy.from_artifact(PolicyArtifact(described.algorithm, described.config, tensors))
