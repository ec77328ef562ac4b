"""``ws.policies``: registered versions, their proofs and aliases."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from learnloop.core.errors import NotFoundError, UsageError, one_of
from learnloop.core.records import AliasMove, Certificate, PolicyVersion
from learnloop.loop.nouns.listing import Listing, Noun, columns

if TYPE_CHECKING:
    from learnloop.evaluation.compare import Comparison
    from learnloop.loop.agent.proving import ProofResult


class ListedVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A version as lists show it."""

    version: PolicyVersion
    proven: bool
    """Whether its learning is proven; no alias can point to one whose learning is not."""
    aliases: list[str]
    """Those that point to it."""

    def row(self) -> dict[str, Any]:
        """Returns it as a row of a table."""
        return {
            "policy": self.version.policy,
            "version": self.version.version,
            "reward": self.version.metrics.get("reward"),
            "algorithm": self.version.algorithm,
            "is_proven": self.proven,
            "aliases": self.aliases,
            "created_at": self.version.created_at,
        }


class VersionDetail(msgspec.Struct, frozen=True, kw_only=True):
    """A version with all that is known of it."""

    version: PolicyVersion
    proven: bool
    aliases: dict[str, int]
    """Of its policy: which version each points to."""
    certificates: list[Certificate]

    def _repr_html_(self) -> str:
        """Returns its proofs as a table, which notebooks show."""
        from learnloop.evaluation.tables import html_table

        pointing = ", ".join(sorted(each for each, number in self.aliases.items() if number == self.version.version))
        title = f"{self.version.policy}@{self.version.version} {pointing}".rstrip()
        return html_table([_CERTIFICATE(each) for each in self.certificates], title)


_CERTIFICATE = columns("certificate_id", "verdict", "reasons", "created_at")


class RegisteredPolicies(Noun):
    """The policies of a workspace. A version is named ``NAME`` (the latest proven), ``NAME@3`` or ``NAME@alias``."""

    def list(self) -> Listing[ListedVersion]:
        """Returns all versions of all policies, the newest last."""
        registry = self._workspace.registry
        versions = registry.versions()
        proven = registry.proven(versions)
        pointing: dict[str, list[str]] = {}
        for name in sorted({each.policy for each in versions}):
            for alias, target in registry.aliases(name).items():
                pointing.setdefault(target.policy_version_id, []).append(alias)
        listed = [
            ListedVersion(
                version=each,
                proven=each.policy_version_id in proven,
                aliases=pointing.get(each.policy_version_id, []),
            )
            for each in versions
        ]
        return Listing(listed, ListedVersion.row)

    def find(self, reference: str) -> PolicyVersion:
        """Returns the version that a reference names.

        Raises:
            NotFoundError: there is no such version.
        """
        return self._workspace.registry.resolve(reference)

    def show(self, reference: str) -> VersionDetail:
        """Returns a version with its proofs, and where the aliases of its policy point.

        Raises:
            NotFoundError: there is no such version.
            CorruptError: its files are not what was registered: it is not shown as if it were whole.
        """
        version = self._workspace.registry.resolve(reference)
        self._workspace.registry.load(version)
        aliases = self._workspace.registry.aliases(version.policy)
        return VersionDetail(
            version=version,
            proven=bool(self._workspace.registry.proven([version])),
            aliases={alias: target.version for alias, target in aliases.items()},
            certificates=self._workspace.registry.certificates(version),
        )

    def alias(self, reference: str, alias: str, *, reason: str, actor: str = "python") -> AliasMove:
        """Points an alias, such as ``champion``, at a version, and returns the move.

        Args:
            reference: the version.
            alias: which alias of its policy.
            reason: why it is moved; kept with the move.
            actor: who moves it.

        Raises:
            NotFoundError: there is no such version.
            CheckFailedError: its learning is not proven.
        """
        version = self._workspace.registry.resolve(reference)
        return self._workspace.registry.set_alias(version.policy, alias, version, actor=actor, reason=reason)

    def prune(self, policy: str, *, keep: int, dry_run: bool = False) -> builtins.list[PolicyVersion]:
        """Removes old versions of a policy, never the best, an aliased or a referenced one, and returns them.

        Args:
            policy: its name.
            keep: how many of the newest stay.
            dry_run: only say what would go.

        Raises:
            NotFoundError: there is no such policy.
            UsageError: ``keep`` is below 1.
        """
        names = {each.policy for each in self._workspace.registry.versions()}
        if policy not in names:  # said, not taken for one without old versions
            raise NotFoundError(f"there is no policy {policy!r}; registered are {one_of(sorted(names))}")
        return self._workspace.registry.prune(policy, keep, dry_run=dry_run)

    def export(self, reference: str, file: str | Path, *, masked: bool = False) -> PolicyVersion:
        """Writes a version as an ONNX file, for runtimes without Python, and returns it.

        Args:
            reference: the version.
            file: where to.
            masked: whether the model takes a mask of allowed choices.

        Raises:
            NotFoundError: there is no such version.
            UsageError: it has no network, or its actions cannot be masked.
            MissingExtraError: onnx is not installed.
            CorruptError: its files are not what was registered.
            StoreError: the file cannot be written.
        """
        from learnloop.algorithms.policies.network_policy import TAG, NetworkPolicy
        from learnloop.algorithms.policies.onnx_export import export_onnx

        version = self.find(reference)
        artifact = self._workspace.registry.load(version)
        label = f"{version.policy}@{version.version}"
        if artifact.algorithm != TAG:
            raise UsageError(
                f"{label} was learned from logged choices and has no network; only policies that learnloop train made "
                "can be exported. A Loop serves it"
            )
        export_onnx(NetworkPolicy.from_artifact(artifact), file, masked=masked, label=label)
        return version

    def evaluate(self, reference: str, *, baseline: str = "random", seed: int = 0) -> tuple[PolicyVersion, Comparison]:
        """Returns how a version fares against a baseline on tasks that it was not trained on.

        Args:
            reference: the version.
            baseline: ``random``, ``best-fixed``, ``optimum``, or another version.
            seed: of the permutation test.

        Raises:
            NotFoundError: no such version, or none of its held-out tasks is left.
            UsageError: the baseline is unknown or cannot be had for these tasks.
        """
        from learnloop.loop.agent.proving import evaluate

        return evaluate(self._workspace, reference, baseline, seed=seed)

    def prove(self, agent: str, policy: str, *, unit: str = "episode", **options: Any) -> ProofResult:
        """Learns a policy from its log and registers it if that is proven; options are of ``VerificationOptions``.

        Decisions of one ``unit`` are learned from together or judged on together: ``episode``, ``task``, or a feature
        of contexts or key of episodes' metadata, such as ``user``.

        Raises:
            NotFoundError: no decision of the policy has a reward.
            UsageError: there is no such option.
        """
        from learnloop.loop.agent.proving import prove_from_log, verification_options

        return prove_from_log(self._workspace, agent, policy, verification_options(options), unit=unit)
