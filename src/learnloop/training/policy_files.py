"""Policies of a training on the disk, kept as the registry keeps versions."""

from __future__ import annotations

from pathlib import Path

from learnloop.algorithms.policies.network_policy import NetworkPolicy
from learnloop.core.errors import CorruptError
from learnloop.registry.artifacts import encode_artifact
from learnloop.registry.folders import VersionFolders
from learnloop.system.files import write_whole

HASH_FILE = "content_hash"
"""Which of the folders beside it is the policy."""


def write_policy(folder: Path, policy: NetworkPolicy) -> None:
    """Makes ``policy`` the one of ``folder``, durably.

    Raises:
        UsageError: it cannot be stored.
        StoreError: the disk refuses.
    """
    files = encode_artifact(policy.to_artifact())
    VersionFolders(folder).write(files)
    write_whole(folder / HASH_FILE, files.content_hash.encode())


def read_policy(folder: Path) -> NetworkPolicy:
    """Returns the policy that ``write_policy`` wrote.

    Raises:
        CorruptError: the files are not what was written.
    """
    try:
        content_hash = (folder / HASH_FILE).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CorruptError(f"the policy in {folder} cannot be read: {error}") from error
    return NetworkPolicy.from_artifact(VersionFolders(folder).load(content_hash))
