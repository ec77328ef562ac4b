"""Immutable policy versions with their proofs, and the aliases that point to them."""

from learnloop.registry.artifacts import ArtifactFiles, encode_artifact
from learnloop.registry.folders import VersionFolders
from learnloop.registry.references import CHAMPION, LATEST, PREVIOUS, Reference, parse_reference
from learnloop.registry.registry import Alias, Proof, Registry

__all__ = [
    "CHAMPION",
    "LATEST",
    "PREVIOUS",
    "Alias",
    "ArtifactFiles",
    "Proof",
    "Reference",
    "Registry",
    "VersionFolders",
    "encode_artifact",
    "parse_reference",
]
