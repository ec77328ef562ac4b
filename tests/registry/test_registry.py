"""The registry on a real store of each back end and a real disk."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from learnloop.core.clock import now
from learnloop.core.errors import (
    CheckFailedError,
    ConflictError,
    CorruptError,
    NotFoundError,
    StoreFullError,
    UsageError,
)
from learnloop.core.ids import new_id
from learnloop.core.protocols import PolicyArtifact
from learnloop.core.records import AliasMove, Certificate, Decision, PolicyVersion, Verdict
from learnloop.registry import Alias, Proof, Registry
from learnloop.store import Store

Make = Callable[..., PolicyArtifact]
Prove = Callable[..., Proof]
Add = Callable[..., PolicyVersion]


@pytest.fixture
def add(registry: Registry, make_artifact: Make, proof: Prove) -> Add:
    def register(
        value: float, reward: float | None = None, policy: str = "packer.codec", parent: PolicyVersion | None = None
    ) -> PolicyVersion:
        parent_id = None if parent is None else parent.policy_version_id
        return registry.register(policy, make_artifact(value), proof(reward), lineage={"rows": 3}, parent_id=parent_id)

    return register


def move(registry: Registry, alias: str, version: PolicyVersion, **options: object) -> AliasMove:
    return registry.set_alias(version.policy, alias, version, actor="ann", reason="test", **options)  # type: ignore[arg-type]


def numbers(versions: list[PolicyVersion]) -> list[int]:
    return [version.version for version in versions]


# --- registering ---


def test_a_registered_policy_comes_back_with_its_proof(
    registry: Registry, add: Add, make_artifact: Make, folder: Path, store: Store
) -> None:
    first = add(1.0, 0.5)
    second = add(2.0, 0.6, parent=first)
    assert (first.version, second.version, second.parent_id) == (1, 2, first.policy_version_id)
    assert (first.algorithm, first.metrics, first.lineage) == ("linucb", {"reward": 0.5}, {"rows": 3})
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == sorted(
        [first.content_hash, second.content_hash]
    )
    loaded = registry.load(second)
    assert (loaded.algorithm, loaded.config) == ("linucb", make_artifact().config)
    np.testing.assert_array_equal(loaded.tensors["theta"], np.full((2, 3), 2.0))
    (certificate,) = registry.certificates(second)
    assert (certificate.verdict, certificate.reasons, certificate.statistics) == (
        Verdict.LEARNED,
        ["better than random"],
        {"p": 0.01},
    )
    assert registry.versions("packer.codec") == registry.versions() == [first, second]
    assert [event.subject for event in store.events() if event.kind == "policy.registered"] == [
        first.policy_version_id,
        second.policy_version_id,
    ]


@pytest.mark.parametrize("verdict", [Verdict.NO_SIGNAL, Verdict.REGRESSED, Verdict.INCONCLUSIVE])
def test_what_has_not_learned_is_not_registered(
    registry: Registry, make_artifact: Make, proof: Prove, store: Store, folder: Path, verdict: Verdict
) -> None:
    """F2.8: only a verdict makes a version, and only one of them."""
    with pytest.raises(CheckFailedError, match=f"the verdict is {verdict.value} \\(better than random\\)"):
        registry.register("p", make_artifact(), proof(verdict=verdict), lineage={})
    assert (store.count(PolicyVersion), store.count(Certificate), store.events(), folder.exists()) == (0, 0, [], False)


def test_what_is_not_proven_is_registered_where_that_is_asked_for(
    registry: Registry, make_artifact: Make, proof: Prove, add: Add
) -> None:
    """No alias can point to it, computed ones included: it is found by its number."""
    plain = registry.register("packer.codec", make_artifact(1.0), None, lineage={}, allow_unproven=True)
    with pytest.raises(CheckFailedError, match="it has no proof"):
        registry.register("packer.codec", make_artifact(1.5), None, lineage={})
    with pytest.raises(NotFoundError, match=r"no version of packer\.codec is proven.*it has 1"):
        registry.resolve("packer.codec")
    known = add(2.0, 0.5)
    vague = registry.register(
        "packer.codec", make_artifact(3.0), proof(0.9, verdict=Verdict.INCONCLUSIVE), lineage={}, allow_unproven=True
    )
    assert (numbers([plain, known, vague]), plain.metrics, vague.metrics) == ([1, 2, 3], {}, {"reward": 0.9})
    assert [each.verdict for each in registry.certificates(vague)] == [Verdict.INCONCLUSIVE]
    assert (registry.certificates(plain), registry.versions()) == ([], [plain, known, vague])
    assert registry.proven(registry.versions()) == {known.policy_version_id}
    assert registry.proven([]) == set()
    assert registry.resolve("packer.codec") == registry.resolve("packer.codec@latest") == known
    assert registry.resolve("packer.codec@3") == vague
    for version in (plain, vague):
        registry.load(version)
        for alias in ("champion", "candidate", "mine"):
            with pytest.raises(CheckFailedError, match=f"so neither can '{alias}': use its number, or prove it first"):
                move(registry, alias, version)
    assert registry.aliases("packer.codec") == {}


def test_what_was_not_proven_may_be_proven_later(registry: Registry, make_artifact: Make, proof: Prove) -> None:
    unsure = proof(verdict=Verdict.INCONCLUSIVE)
    first = registry.register("p", make_artifact(1.0), unsure, lineage={}, allow_unproven=True)
    assert registry.register("p", make_artifact(1.0), proof(), lineage={}) == first
    assert [each.verdict for each in registry.certificates(first)] == [Verdict.INCONCLUSIVE, Verdict.LEARNED]
    move(registry, "champion", first)
    assert registry.resolve("p") == first


def test_what_is_not_proven_keeps_nothing_else_from_staying(
    registry: Registry, make_artifact: Make, proof: Prove, add: Add
) -> None:
    """Neither is it the best, whatever it says of itself, nor does it push out the latest that is proven."""
    best, latest = add(1.0, 0.5), add(2.0, 0.25)
    unsure = proof(0.9, verdict=Verdict.INCONCLUSIVE)
    for value in (3.0, 4.0):
        registry.register("packer.codec", make_artifact(value), unsure, lineage={}, allow_unproven=True)
    assert numbers(registry.prune("packer.codec", 1)) == [3]
    assert numbers(registry.versions()) == [best.version, latest.version, 4]


class Saved:
    """A policy that can be stored."""

    def __init__(self, artifact: PolicyArtifact) -> None:
        self._artifact = artifact

    def probabilities(self, context: object, actions: object, mask: object = None) -> object:
        raise NotImplementedError

    def to_artifact(self) -> PolicyArtifact:
        return self._artifact


class Found:
    """What a proof found."""

    def __init__(self, verdict: Verdict = Verdict.LEARNED) -> None:
        self.verdict = verdict
        self.reasons = ["seen"]

    def to_statistics(self) -> dict[str, object]:
        return {"p": 0.01}

    def to_metrics(self) -> dict[str, object]:
        return {"reward": 0.5}


def test_what_a_proof_says_has_learned(registry: Registry, make_artifact: Make, add: Add, store: Store) -> None:
    before = add(1.0)
    registry.register("packer.codec", make_artifact(9.0), None, lineage={}, allow_unproven=True)
    alias = Alias("candidate", "ann", "proven")
    made = registry.register_proven(
        "packer.codec", Saved(make_artifact(2.0)), Found(), lineage={"rows": 3}, alias=alias
    )
    assert (made.version, made.parent_id, made.metrics) == (3, before.policy_version_id, {"reward": 0.5})
    (certificate,) = registry.certificates(made)
    assert (certificate.verdict, certificate.reasons, certificate.statistics) == (
        Verdict.LEARNED,
        ["seen"],
        {"p": 0.01},
    )
    assert registry.aliases("packer.codec") == {"candidate": made}
    alone = registry.register_proven("other", Saved(make_artifact(3.0)), Found(), lineage={}, parent_id=None)
    assert (alone.parent_id, registry.aliases("other")) == (None, {})
    with pytest.raises(CheckFailedError, match=r"the verdict is no_signal \(seen\)"):
        registry.register_proven("p", Saved(make_artifact(4.0)), Found(Verdict.NO_SIGNAL), lineage={})
    with pytest.raises(CheckFailedError, match="learned but cannot be stored"):
        registry.register_proven("p", object(), Found(), lineage={})
    assert store.count(PolicyVersion) == 4


def test_the_same_content_is_the_same_version(registry: Registry, add: Add, store: Store) -> None:
    first = add(1.0, 0.5)
    assert add(1.0, 0.9) == first
    other = add(1.0, policy="other")
    assert (other.version, other.content_hash) == (1, first.content_hash)
    assert (store.count(PolicyVersion), len(registry.certificates(first))) == (2, 2)


def test_what_cannot_be_registered_leaves_nothing(
    registry: Registry, make_artifact: Make, proof: Prove, store: Store, folder: Path
) -> None:
    with pytest.raises(UsageError, match="cannot name a policy"):
        registry.register("../x", make_artifact(), proof(), lineage={})
    with pytest.raises(UsageError, match="not finite"):
        registry.register("p", make_artifact(np.nan), proof(), lineage={})
    with pytest.raises(NotFoundError, match="no-such-id"):
        registry.register("p", make_artifact(), proof(), lineage={}, parent_id="no-such-id")
    assert (store.count(PolicyVersion), folder.exists()) == (0, False)


def test_numbers_are_unique_and_without_gaps_when_many_register(
    store: Store, folder: Path, make_artifact: Make, proof: Prove
) -> None:
    def work(worker: int) -> None:
        mine = Registry(store, folder)
        for turn in range(4):
            mine.register("p", make_artifact(100.0 * worker + turn), proof(), lineage={})

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert numbers(Registry(store, folder).versions("p")) == list(range(1, 17))


def test_a_full_disk_registers_nothing(
    registry: Registry, add: Add, store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = add(1.0)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("learnloop.registry.folders.os.fsync", full)
        with pytest.raises(StoreFullError, match="no space is left"):
            add(2.0)
    assert registry.versions() == [first]
    assert [path.name for path in folder.iterdir() if path.is_dir()] == [first.content_hash]
    assert add(2.0).version == 2


def test_a_lost_folder_stops_nothing_and_is_repaired_by_registering_again(
    registry: Registry, add: Add, folder: Path
) -> None:
    """F0.6: a pointer to what is gone does not break the next checkpoint, and is reported instead of followed."""
    first, second = add(1.0), add(2.0)
    shutil.rmtree(folder / second.content_hash)
    assert registry.resolve("packer.codec@latest") == second
    with pytest.raises(CorruptError, match=f"{second.content_hash} is missing"):
        registry.load(second)
    registry.load(first)
    third = add(3.0)
    assert registry.resolve("packer.codec@latest") == third
    assert not any(path.is_symlink() for path in folder.rglob("*"))
    assert add(2.0) == second
    registry.load(second)


# --- references and aliases ---


def test_references_resolve(registry: Registry, add: Add) -> None:
    first, second, third = add(1.0), add(2.0), add(3.0)
    assert registry.resolve("packer.codec") == registry.resolve("packer.codec@latest") == third
    assert registry.resolve("packer.codec@2") == second
    move(registry, "champion", first)
    assert registry.resolve("packer.codec") == registry.resolve("packer.codec@champion") == first


def test_what_is_not_there_is_said_with_what_is(registry: Registry, add: Add) -> None:
    with pytest.raises(NotFoundError, match=r"no policy 'packer.codec'; registered are none"):
        registry.resolve("packer.codec")
    add(1.0)
    version = add(2.0)
    move(registry, "candidate", version)
    with pytest.raises(NotFoundError, match=r"no policy 'other'; registered are 'packer.codec'"):
        registry.resolve("other@1")
    with pytest.raises(NotFoundError, match="no version 7; it has 1, 2"):
        registry.resolve("packer.codec@7")
    with pytest.raises(NotFoundError, match="no alias 'champion'; it has 'candidate', 'latest'"):
        registry.resolve("packer.codec@champion")
    with pytest.raises(UsageError):
        registry.resolve("packer.codec@")


def test_moving_the_champion_keeps_the_previous_one(registry: Registry, add: Add) -> None:
    first, second, third = add(1.0), add(2.0), add(3.0)
    move(registry, "champion", first)
    assert registry.aliases("packer.codec") == {"champion": first}
    move(registry, "champion", second)
    assert registry.aliases("packer.codec") == {"champion": second, "previous": first}
    again = move(registry, "champion", second)  # nothing to move: previous must not become the champion itself
    assert registry.aliases("packer.codec") == {"champion": second, "previous": first}
    move(registry, "champion", third)
    move(registry, "champion", registry.resolve("packer.codec@previous"))  # a rollback
    assert registry.aliases("packer.codec") == {"champion": second, "previous": third}
    history = registry.alias_history("packer.codec")
    assert [moved.alias for moved in history] == ["champion", *["champion", "previous"] * 3]
    assert again in history
    assert {moved.actor for moved in history} == {"ann"}
    assert {moved.reason for moved in history} == {"test", "champion moved: test"}


def test_without_its_alias_there_is_no_champion_and_it_can_be_brought_back(registry: Registry, add: Add) -> None:
    first, second = add(1.0), add(2.0)
    move(registry, "champion", first)
    with pytest.raises(ConflictError, match="not to"):
        registry.remove_alias("packer.codec", "champion", actor="ann", reason="bad", expected=second.policy_version_id)
    removed = registry.remove_alias(
        "packer.codec", "champion", actor="ann", reason="bad", expected=first.policy_version_id
    )
    assert (removed.is_removal, removed.policy_version_id) == (True, first.policy_version_id)
    assert registry.aliases("packer.codec") == {"previous": first}
    with pytest.raises(ConflictError, match="points to nothing"):
        registry.remove_alias("packer.codec", "champion", actor="ann", reason="bad", expected=first.policy_version_id)
    with pytest.raises(NotFoundError, match="no alias 'champion'"):
        registry.resolve("packer.codec@champion")
    move(registry, "champion", registry.resolve("packer.codec@previous"), expected=None)  # a person's rollback
    assert registry.aliases("packer.codec") == {"champion": first, "previous": first}
    history = [(each.alias, each.is_removal) for each in registry.alias_history("packer.codec")]
    assert history == [("champion", False), ("champion", True), ("previous", False), ("champion", False)]


def test_expected_guards_against_somebody_else(registry: Registry, add: Add) -> None:
    first, second = add(1.0), add(2.0)
    with pytest.raises(ConflictError, match="points to nothing, not to"):
        move(registry, "champion", second, expected=first.policy_version_id)
    move(registry, "champion", first, expected=None)
    with pytest.raises(ConflictError, match=f"points to {first.policy_version_id}, not to nothing"):
        move(registry, "champion", second, expected=None)
    move(registry, "champion", second, expected=first.policy_version_id)
    assert registry.resolve("packer.codec") == second


def test_only_what_has_a_learned_certificate_gets_an_alias(registry: Registry, store: Store, add: Add) -> None:
    known = add(1.0)
    smuggled = PolicyVersion(
        policy_version_id=new_id(),
        policy="packer.codec",
        version=2,
        content_hash="0" * 64,
        algorithm="x",
        created_at=now(),
    )
    store.write([smuggled])
    with pytest.raises(CorruptError, match="is missing"):
        move(registry, "champion", smuggled)
    other = add(5.0, policy="other")
    copied = PolicyVersion(
        policy_version_id=new_id(),
        policy="packer.codec",
        version=3,
        content_hash=other.content_hash,
        algorithm="x",
        created_at=now(),
    )
    store.write([copied])
    move(registry, "champion", copied)  # same content, and that content has a certificate
    for alias in ("candidate", "previous", "mine"):
        with pytest.raises(CheckFailedError, match=f"no alias can point to it, so neither can '{alias}'"):
            move(registry, alias, smuggled)
    move(registry, "champion", known)


def test_a_version_without_certificate_is_refused(
    registry: Registry, store: Store, add: Add, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = add(1.0)
    store.run(lambda connection: connection.exec_driver_sql("UPDATE certificates SET verdict = 'no_signal'"))
    with pytest.raises(CheckFailedError, match="has no certificate with the verdict 'learned'"):
        move(registry, "champion", version)
    assert registry.aliases("packer.codec") == {}


def test_a_damaged_version_does_not_become_champion(registry: Registry, add: Add, folder: Path) -> None:
    version = add(1.0)
    (folder / version.content_hash / "weights.safetensors").write_bytes(b"")
    with pytest.raises(CorruptError, match=r"weights.safetensors is damaged"):
        move(registry, "champion", version)


def test_aliases_stay_within_their_policy(registry: Registry, add: Add) -> None:
    version = add(1.0)
    with pytest.raises(NotFoundError, match="no version of other"):
        registry.set_alias("other", "candidate", version, actor="ann", reason="")
    with pytest.raises(UsageError, match="'latest'"):
        move(registry, "latest", version)


def test_a_clock_that_runs_behind_is_refused_instead_of_losing_the_move(
    registry: Registry, store: Store, add: Add
) -> None:
    first, second = add(1.0), add(2.0)
    ahead = AliasMove(
        alias_move_id="ffffffff-ffff-7fff-bfff-ffffffffffff",
        policy="packer.codec",
        alias="champion",
        policy_version_id=first.policy_version_id,
        actor="machine with a fast clock",
        reason="",
        created_at=now(),
    )
    store.write([ahead])
    with pytest.raises(ConflictError, match="later than this machine's clock"):
        move(registry, "champion", second)
    assert registry.resolve("packer.codec") == first


# --- retention ---


def test_pruning_removes_only_what_nothing_needs(registry: Registry, store: Store, add: Add, folder: Path) -> None:
    """F0.10: the best, the aliased, the referred-to, parents of kept ones and other policies' versions stay."""
    rewards = [0.1, 0.2, 0.9, 0.1, 0.1, 0.1, 0.1, 0.3, 0.4]
    versions = [add(float(value), reward) for value, reward in enumerate(rewards)]
    child = add(50.0, 0.0, parent=versions[4])
    shared = add(0.0, policy="other")  # has the content of version 1
    move(registry, "champion", versions[5])
    move(registry, "champion", versions[7])
    decision = Decision(
        decision_id=new_id(),
        episode_id=None,
        agent_id="a",
        policy="packer.codec",
        policy_version_id=versions[6].policy_version_id,
        algorithm="linucb",
        context={},
        actions=["x"],
        action="x",
        propensity=1.0,
        created_at=now(),
    )
    store.write([decision])
    would = registry.prune("packer.codec", 2, dry_run=True)
    assert numbers(would) == [1, 2, 4]
    assert len(registry.versions("packer.codec")) == 10
    assert registry.prune("packer.codec", 2) == would
    # 3 best, 5 parent of 10, 6 once and 8 now champion, 7 decided, 9 and 10 newest.
    assert numbers(registry.versions("packer.codec")) == [3, 5, 6, 7, 8, 9, 10]
    assert {path.name for path in folder.iterdir() if path.is_dir()} == {
        version.content_hash for version in registry.versions()
    }
    registry.load(shared)
    assert registry.certificates(versions[1]) != []
    assert registry.prune("packer.codec", 2) == []
    assert add(60.0).version == child.version + 1


def test_numbers_are_not_given_twice_while_the_latest_stays(registry: Registry, add: Add) -> None:
    for value in range(4):
        add(float(value))
    registry.prune("packer.codec", 1)
    assert add(9.0).version == 5


def test_a_pruned_version_cannot_be_aliased(registry: Registry, add: Add) -> None:
    first = add(1.0)
    add(2.0)
    registry.prune("packer.codec", 1)
    with pytest.raises(NotFoundError, match="it was removed"):
        move(registry, "candidate", first)


def test_keep_must_be_positive(registry: Registry) -> None:
    with pytest.raises(UsageError, match="keep is 0"):
        registry.prune("packer.codec", 0)
