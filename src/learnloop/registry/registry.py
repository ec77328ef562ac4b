"""The registry: immutable policy versions with their proofs, aliases that move, retention of all that is needed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from learnloop.core.checks import check_name, check_range, is_number
from learnloop.core.clock import now
from learnloop.core.errors import CheckFailedError, NotFoundError, one_of
from learnloop.core.ids import new_id
from learnloop.core.protocols import PolicyArtifact, SavedPolicy
from learnloop.core.records import AliasMove, Certificate, Json, PolicyVersion, Verdict
from learnloop.registry.alias_moves import is_proven, move_alias, remove_alias
from learnloop.registry.artifacts import encode_artifact
from learnloop.registry.folders import VersionFolders
from learnloop.registry.references import CHAMPION, LATEST, check_alias, parse_reference
from learnloop.store import Connection, Store, insert_records
from learnloop.store.queries.policies import last_version_number, referred_versions
from learnloop.store.queries.records import all_records, remove_records, select_records


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a policy when it is registered."""

    verdict: Verdict
    reasons: list[str]
    statistics: Json = {}
    """The figures of each arm and each test; kept as its certificate."""
    metrics: Json = {}
    """Held-out figures by name; ``reward`` decides which version is the best."""


class LearningFinding(Protocol):
    """What a proof of learning found."""

    @property
    def verdict(self) -> Verdict:
        """Whether it has learned."""

    @property
    def reasons(self) -> Sequence[str]:
        """Why."""

    def to_statistics(self) -> dict[str, Any]:
        """Returns all figures, for the certificate."""

    def to_metrics(self) -> dict[str, Any]:
        """Returns held-out figures by name, for the version; ``reward`` is what it earned."""


class Alias(NamedTuple):
    """An alias that is to point to a new version."""

    name: str
    actor: str
    """Who moves it."""
    reason: str
    expected: str | msgspec.UnsetType | None = msgspec.UNSET
    """See ``Registry.set_alias``."""


class Registry:
    """Policy versions of one store, with their files under one folder. Safe to use from many threads and processes."""

    def __init__(self, store: Store, folder: Path) -> None:
        self._store = store
        self._folders = VersionFolders(folder)

    def register(
        self,
        policy: str,
        artifact: PolicyArtifact,
        proof: Proof | None,
        *,
        lineage: Json,
        parent_id: str | None = None,
        allow_unproven: bool = False,
    ) -> PolicyVersion:
        """Returns the new version of ``policy``, durable with its certificate; the same content gives the same version.

        The files come first, then the rows in one transaction: a version that can be seen is whole.

        Args:
            policy: its name.
            artifact: its content.
            proof: what is known of it; None: nothing, and it gets no certificate.
            lineage: what it was learned from.
            parent_id: the version that it was learned from.
            allow_unproven: take one whose learning is not proven too. No alias can point to it, and it is found by its
                number alone.

        Raises:
            CheckFailedError: its learning is not proven, and that is not allowed; nothing is made.
            NotFoundError: there is no version ``parent_id``.
            UsageError: the name, a tensor or the config cannot be stored.
            StoreFullError, StoreReadOnlyError, StoreLockedError: the disk or the database refuses.
        """
        check_name("a policy", policy)
        if not allow_unproven:
            _check_proof(policy, proof)
        files = encode_artifact(artifact)
        moment = now()
        version = PolicyVersion(
            policy_version_id=new_id(),
            policy=policy,
            version=1,
            content_hash=files.content_hash,
            algorithm=artifact.algorithm,
            parent_id=parent_id,
            metrics={} if proof is None else proof.metrics,
            lineage=lineage,
            created_at=moment,
        )
        certificate = None if proof is None else _certificate(files.content_hash, proof, moment)
        if parent_id is not None:
            self._store.get(PolicyVersion, parent_id)
        with self._folders.lock():
            self._folders.sweep()
            self._folders.write(files)
            return self._store.run(_insert_version, version, certificate)

    def register_proven(
        self,
        policy: str,
        learned: object,
        finding: LearningFinding,
        *,
        lineage: Json,
        alias: Alias | None = None,
        parent_id: str | msgspec.UnsetType | None = msgspec.UNSET,
    ) -> PolicyVersion:
        """Registers what a proof says has learned, and lets an alias point to it: one way for all that learns.

        Args:
            policy: its name.
            learned: the policy itself.
            finding: the proof.
            lineage: what it was learned from.
            alias: the alias that is to point to it; None: none.
            parent_id: the version that it was learned from, None: none; not given: the latest proven one.

        Raises:
            CheckFailedError: it has not learned, or cannot be stored; nothing is made.
            ConflictError, NotFoundError, UsageError, StoreError: as ``register`` and ``set_alias``.
        """
        proof = Proof(
            verdict=finding.verdict,
            reasons=list(finding.reasons),
            statistics=finding.to_statistics(),
            metrics=finding.to_metrics(),
        )
        _check_proof(policy, proof)
        if not isinstance(learned, SavedPolicy):
            raise CheckFailedError(f"{learned!r} learned but cannot be stored; give it to_artifact()")
        if isinstance(parent_id, msgspec.UnsetType):
            latest = self._latest_proven(policy)
            parent_id = None if latest is None else latest.policy_version_id
        version = self.register(policy, learned.to_artifact(), proof, lineage=lineage, parent_id=parent_id)
        if alias is not None:
            self.set_alias(policy, alias.name, version, actor=alias.actor, reason=alias.reason, expected=alias.expected)
        return version

    def load(self, version: PolicyVersion) -> PolicyArtifact:
        """Returns the policy of ``version`` after checking every byte, name, shape, type and number of it.

        Raises:
            CorruptError: the files are not what was registered; the message names the file and the fault.
        """
        return self._folders.load(version.content_hash)

    def versions(self, policy: str | None = None) -> list[PolicyVersion]:
        """Returns the versions of ``policy``, or of all policies, by name and number."""
        found = self._store.iterate(PolicyVersion, where={} if policy is None else {"policy": policy})
        return sorted(found, key=lambda version: (version.policy, version.version))

    def certificates(self, version: PolicyVersion) -> list[Certificate]:
        """Returns the certificates of the version's content, oldest first."""
        return list(self._store.iterate(Certificate, where={"content_hash": version.content_hash}))

    def proven(self, versions: Iterable[PolicyVersion]) -> set[str]:
        """Returns the ids of those versions whose content has a certificate with the verdict ``learned``."""
        wanted = list(versions)
        where = {"content_hash": {each.content_hash for each in wanted}, "verdict": Verdict.LEARNED.value}
        hashes = {each.content_hash for each in self._store.iterate(Certificate, where=where)} if wanted else set()
        return {each.policy_version_id for each in wanted if each.content_hash in hashes}

    def resolve(self, reference: str) -> PolicyVersion:
        """Returns the version that ``reference`` names.

        ``NAME@3`` is a number, ``NAME@latest`` the highest that is proven, ``NAME@ALIAS`` where the alias points;
        ``NAME`` alone is the champion, or the latest while there is none. ``latest`` is computed, so it cannot dangle.

        Raises:
            NotFoundError: there is none; the message lists what there is.
            UsageError: it is no reference.
        """
        wanted = parse_reference(reference)
        versions = self.versions(wanted.policy)
        if not versions:
            policies = sorted({version.policy for version in self.versions()})
            raise NotFoundError(f"there is no policy {wanted.policy!r}; registered are {one_of(policies)}")
        if wanted.version is not None:
            by_number = {version.version: version for version in versions}
            if wanted.version in by_number:
                return by_number[wanted.version]
            raise NotFoundError(f"{wanted.policy} has no version {wanted.version}; it has {one_of(by_number)}")
        aliases = self.aliases(wanted.policy)
        if wanted.alias is None and CHAMPION in aliases:
            return aliases[CHAMPION]
        if wanted.alias is None or wanted.alias == LATEST:
            latest = self._latest_proven(wanted.policy)
            if latest is not None:
                return latest
            raise NotFoundError(
                f"no version of {wanted.policy} is proven, and only those are found without a number; it has "
                f"{one_of(each.version for each in versions)}"
            )
        if wanted.alias in aliases:
            return aliases[wanted.alias]
        raise NotFoundError(
            f"{wanted.policy} has no alias {wanted.alias!r}; it has {one_of(sorted([*aliases, LATEST]))}"
        )

    def _latest_proven(self, policy: str) -> PolicyVersion | None:
        versions = self.versions(policy)
        proven = self.proven(versions)
        return next((each for each in reversed(versions) if each.policy_version_id in proven), None)

    def aliases(self, policy: str) -> dict[str, PolicyVersion]:
        """Returns where each alias of ``policy`` points."""
        current = {move.alias: move for move in self.alias_history(policy)}
        versions = {version.policy_version_id: version for version in self.versions(policy)}
        return {
            alias: versions[move.policy_version_id] for alias, move in sorted(current.items()) if not move.is_removal
        }

    def alias_history(self, policy: str) -> list[AliasMove]:
        """Returns all moves of the aliases of ``policy``, oldest first."""
        return list(self._store.iterate(AliasMove, where={"policy": policy}))

    def set_alias(
        self,
        policy: str,
        alias: str,
        version: PolicyVersion,
        *,
        actor: str,
        reason: str,
        expected: str | msgspec.UnsetType | None = msgspec.UNSET,
    ) -> AliasMove:
        """Returns the move by which ``alias`` now points to ``version``; nothing moves if it does so already.

        Moving ``champion`` lets ``previous`` point to the champion until now, in the same transaction.

        Args:
            policy: whose alias.
            alias: which one: ``champion``, ``candidate``, ``previous`` or a name of your own.
            version: where to, a version of ``policy``.
            actor: who moves it.
            reason: why.
            expected: the id of the version that it must point to now, None: it must not exist; not given: no check.

        Raises:
            CheckFailedError: an alias needs a version with a ``learned`` certificate.
            ConflictError: it points elsewhere than ``expected``, or the clock runs behind that of its last move.
            CorruptError: ``champion`` needs a version whose files are whole.
            NotFoundError: the version is no (longer a) version of ``policy``.
            UsageError: the alias cannot be moved.
        """
        check_alias(alias)
        if alias == CHAMPION:
            self.load(version)
        move = AliasMove(
            alias_move_id="",
            policy=policy,
            alias=alias,
            policy_version_id=version.policy_version_id,
            actor=actor,
            reason=reason,
            created_at=now(),
        )
        return self._store.run(move_alias, move, expected)

    def remove_alias(self, policy: str, alias: str, *, actor: str, reason: str, expected: str) -> AliasMove:
        """Returns the move by which ``alias`` points nowhere any more; what it pointed to stays a version.

        Without a champion a policy chooses as before there was one. ``previous`` then points to the one until now, so
        that it can be brought back.

        Args:
            policy: whose alias.
            alias: which one.
            actor: who removes it.
            reason: why.
            expected: the id of the version that it must point to now.

        Raises:
            ConflictError: it points elsewhere, or the clock runs behind that of its last move.
            UsageError: the alias cannot be moved.
        """
        check_alias(alias)
        removal = AliasMove(
            alias_move_id="",
            policy=policy,
            alias=alias,
            policy_version_id=expected,
            actor=actor,
            reason=reason,
            is_removal=True,
            created_at=now(),
        )
        return self._store.run(remove_alias, removal)

    def prune(self, policy: str, keep: int, *, dry_run: bool = False) -> list[PolicyVersion]:
        """Removes the oldest versions beyond the ``keep`` newest and returns them; certificates stay.

        Never removed: the latest and the latest proven, the best proven (highest ``metrics["reward"]``), one that an
        alias points to or once pointed to, one that a decision refers to, and the parent of a kept one.

        Args:
            policy: whose versions.
            keep: how many of the newest stay, at least 1.
            dry_run: only return what would be removed.

        Raises:
            UsageError: ``keep`` is below 1.
        """
        if dry_run:
            return self._store.read(_removable, policy, keep)
        with self._folders.lock():
            removed, known = self._store.run(_remove_versions, policy, keep)
            for content_hash in {version.content_hash for version in removed} - known:
                self._folders.remove(content_hash)
            self._folders.sweep(known)
        return removed


def _insert_version(connection: Connection, version: PolicyVersion, certificate: Certificate | None) -> PolicyVersion:
    """Writes the version under the next number, unless its content is there already; no other writer comes between."""
    same = select_records(
        connection, PolicyVersion, {"policy": version.policy, "content_hash": version.content_hash}, None, 1, False
    )
    if same:
        if certificate is not None and not is_proven(connection, same[0]):
            insert_records(connection, [certificate])  # what was registered unproven may be proven later
        return same[0]
    numbered = msgspec.structs.replace(version, version=last_version_number(connection, version.policy) + 1)
    insert_records(connection, [numbered] if certificate is None else [numbered, certificate])
    return numbered


def _check_proof(policy: str, proof: Proof | None) -> None:
    if proof is None:
        raise CheckFailedError(f"{policy} is not registered: it has no proof; only what has learned becomes a version")
    if proof.verdict is not Verdict.LEARNED:
        raise CheckFailedError(
            f"{policy} is not registered: the verdict is {proof.verdict.value} ({'; '.join(proof.reasons)}); "
            "only what has learned becomes a version"
        )


def _certificate(content_hash: str, proof: Proof, moment: datetime) -> Certificate:
    return Certificate(
        certificate_id=new_id(),
        content_hash=content_hash,
        verdict=proof.verdict,
        reasons=list(proof.reasons),
        statistics=proof.statistics,
        created_at=moment,
    )


def _removable(connection: Connection, policy: str, keep: int) -> list[PolicyVersion]:
    versions = all_records(connection, PolicyVersion, order="policy_version_id")
    own = [version for version in versions if version.policy == policy]
    parents = {version.parent_id for version in versions if version.policy != policy and version.parent_id}
    unproven = {each.policy_version_id for each in own if not is_proven(connection, each)}
    return removable(own, keep, referred_versions(connection, policy) | parents, unproven)


def _remove_versions(connection: Connection, policy: str, keep: int) -> tuple[list[PolicyVersion], set[str]]:
    """Removes rows; returns them and the content hashes that still have a version."""
    removed = _removable(connection, policy, keep)
    ids = [version.policy_version_id for version in removed]
    remove_records(connection, PolicyVersion, {"policy_version_id": ids})
    return removed, {version.content_hash for version in all_records(connection, PolicyVersion)}


# Retention: a decision on records alone ---------------------------------------------------------------------------


def reward_of(version: PolicyVersion) -> float | None:
    """Returns the version's held-out reward, or None where it has none."""
    value = version.metrics.get("reward")
    return float(value) if is_number(value) else None


def removable(
    versions: Sequence[PolicyVersion], keep: int, referred: Collection[str], unproven: Collection[str] = ()
) -> list[PolicyVersion]:
    """Returns the versions beyond the ``keep`` newest that nothing needs, oldest first.

    Kept besides the newest: of the proven ones the newest and the best (highest held-out reward; all of them where
    several share it), those whose ids are in ``referred``, and the parents of all that is kept for these reasons. A
    parent is not a reason to keep its own parent, else an unbroken line of descent would keep everything.

    Args:
        versions: all versions of one policy.
        keep: how many of the newest to keep, at least 1.
        referred: the ids that aliases, alias moves, decisions or other policies' versions name.
        unproven: the ids of those whose learning is not proven.

    Raises:
        UsageError: ``keep`` is below 1.
    """
    check_range("keep", keep, 1)
    ordered = sorted(versions, key=lambda version: version.version)
    sound = [version for version in ordered if version.policy_version_id not in unproven]
    rewards = {version.policy_version_id: reward_of(version) for version in sound}
    best = max((reward for reward in rewards.values() if reward is not None), default=None)
    kept = {version.policy_version_id for version in [*ordered[-keep:], *sound[-1:]]} | set(referred)
    kept |= {key for key, reward in rewards.items() if best is not None and reward == best}
    kept |= {version.parent_id for version in ordered if version.policy_version_id in kept and version.parent_id}
    return [version for version in ordered if version.policy_version_id not in kept]
