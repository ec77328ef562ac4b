"""Registered policies as files for other runtimes."""

from __future__ import annotations

from pathlib import Path

from learnloop.algorithms.policies.network_policy import TAG, NetworkPolicy
from learnloop.algorithms.policies.onnx_export import export_onnx
from learnloop.core.errors import UsageError
from learnloop.core.records import PolicyVersion
from learnloop.loop.workspace.core import WorkspaceCore


def export_version(
    workspace: WorkspaceCore, reference: str, path: str | Path, *, masked: bool = False
) -> PolicyVersion:
    """Writes a registered policy as an ONNX file; returns the version.

    Args:
        workspace: where it is registered.
        reference: ``NAME``, ``NAME@3`` or ``NAME@alias``.
        path: of the file.
        masked: whether the model takes a mask of allowed choices.

    Raises:
        NotFoundError: there is no such policy.
        UsageError: it has no network, or its actions cannot be masked.
        MissingExtraError: onnx is not installed.
        CorruptError: its files are not what was registered.
        StoreError: the file cannot be written.
    """
    version = workspace.registry.resolve(reference)
    artifact = workspace.registry.load(version)
    if artifact.algorithm != TAG:
        raise UsageError(
            f"{version.policy}@{version.version} was learned from logged choices and has no network; only policies "
            "that learnloop train made can be exported. A Loop serves it"
        )
    policy = NetworkPolicy.from_artifact(artifact)
    export_onnx(policy, path, masked=masked, label=f"{version.policy}@{version.version}")
    return version
