"""From a log to a proven, registered policy: train on some episodes, verify on others, register what learned.

Which episodes are held out depends on their id alone, so an episode that was held out once is never trained on later,
and a version can be evaluated on what its log has grown by since.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from learnloop.algorithms import load_policy
from learnloop.core.decoding import convert_record
from learnloop.core.errors import NotFoundError, UsageError, one_of
from learnloop.core.protocols import HeldOut, Policy
from learnloop.core.records import Decision, Episode, PolicyVersion, Verdict
from learnloop.decisions.learning.candidates import shared_questions, trainer_of
from learnloop.decisions.proof_log import read_log, split_log
from learnloop.decisions.service.settings import EPISODE
from learnloop.decisions.service.settings_store import current
from learnloop.evaluation import (
    Comparison,
    OutcomeTable,
    Verification,
    VerificationOptions,
    compare,
    verify_learning,
)
from learnloop.evaluation.compare import BASELINES
from learnloop.evaluation.splitting import HELD_OUT_SHARE
from learnloop.evaluation.tables import html_table
from learnloop.loop.training.policies import acts_in_environment, evaluate_in_environment
from learnloop.loop.workspace.core import WorkspaceCore
from learnloop.registry import Alias

CANDIDATE = "candidate"
MIN_SHARED_UNITS = 20
"""Held-out tasks that neither of two versions was trained on, at the least, to compare them on."""


class ProofResult(NamedTuple):
    """A verdict, and the version that it made."""

    verification: Verification
    version: PolicyVersion | None
    """None unless the verdict is ``learned``."""

    def _repr_html_(self) -> str:
        """Returns the verdict with its reasons as a table, which notebooks show."""
        made = None if self.version is None else f"{self.version.policy}@{self.version.version}"
        reasons = "; ".join(self.verification.reasons)
        return html_table([{"verdict": str(self.verification.verdict), "version": made, "reasons": reasons}])


def verification_options(options: Mapping[str, Any]) -> VerificationOptions:
    """Returns the options of a proof that a caller gives by name.

    Raises:
        UsageError: there is no such option, or its value is not allowed.
    """
    allowed = VerificationOptions.__struct_fields__
    unknown = options.keys() - set(allowed)
    if unknown:
        raise UsageError(f"prove has no options {one_of(sorted(unknown))}; allowed are {one_of(allowed)}")
    hint = f"; allowed are {one_of(allowed)}"
    return convert_record(options, f"the options {options} cannot be used", VerificationOptions, hint=hint)


def prove_from_log(
    workspace: WorkspaceCore, agent_id: str, policy: str, options: VerificationOptions, *, unit: str = EPISODE
) -> ProofResult:
    """Learns a policy from the decisions logged for ``policy``, as its settings say, and registers it if it is proven.

    ``unit`` is what ``read_log`` takes: decisions of one unit are learned from together or judged on together.

    Held-out decisions whose propensity is not known say nothing and are left out, which the reasons mention.

    Raises:
        NotFoundError: no decision of that policy has a reward.
    """
    settings = current(workspace.store, agent_id, policy).settings
    log = read_log(workspace.store, agent_id, policy, unit=unit)
    if not log.samples and not log.num_recent:
        raise NotFoundError(f"no decision of {agent_id!r} at {policy!r} has a reward yet; give one with ep.reward(...)")
    split = split_log(log._replace(samples=shared_questions(log.samples), missing=shared_questions(log.missing)))
    verification = verify_learning(trainer_of(settings), split.train, split.held_out, options=options)
    notes = log.notes
    if split.num_without_propensity:
        notes.append(f"{split.num_without_propensity} held-out decisions without a propensity were left out")
    verification = msgspec.structs.replace(verification, reasons=[*verification.reasons, *notes])
    held_out = {"kind": "log", "unit": unit}
    lineage = {"agent": agent_id, "policy": policy, "num_samples": len(split.train), "held_out": held_out}
    return register_proven(workspace, f"{agent_id}.{policy}", verification, lineage)


def register_proven(
    workspace: WorkspaceCore, name: str, verification: Verification, lineage: Mapping[str, Any]
) -> ProofResult:
    """Registers what ``verification`` trained as the next version of ``name``, and as its candidate, if it learned."""
    if verification.verdict is not Verdict.LEARNED or verification.policy is None:
        return ProofResult(verification, None)
    alias = Alias(CANDIDATE, "learnloop", "its learning was proven")
    version = workspace.registry.register_proven(name, verification.policy, verification, lineage=lineage, alias=alias)
    return ProofResult(verification, version)


def evaluate(
    workspace: WorkspaceCore, reference: str, baseline: str, *, seed: int = 0
) -> tuple[PolicyVersion, Comparison]:
    """Returns how a registered policy fares against a baseline on tasks that it was not trained on.

    Args:
        workspace: where it is registered.
        reference: ``NAME``, ``NAME@3`` or ``NAME@alias``.
        baseline: ``random``, ``best-fixed``, ``optimum``, or a reference to another version.
        seed: of the permutation test.

    Raises:
        NotFoundError: no such policy, or none of its held-out tasks is left.
        UsageError: the baseline is unknown or cannot be had for these tasks.
    """
    version = workspace.registry.resolve(reference)
    if acts_in_environment(version):
        return version, evaluate_in_environment(workspace, version, baseline, seed=seed)
    held_out = _held_out(workspace, version)
    policy = load_policy(workspace.registry.load(version))
    if baseline in BASELINES:
        return version, compare(policy, baseline, held_out, seed=seed)
    if not workspace.registry.versions(baseline.partition("@")[0]):
        raise UsageError(
            f"unknown baseline {baseline!r}; allowed are {', '.join(BASELINES)} and a policy's NAME@version"
        )
    other = workspace.registry.resolve(baseline)
    if isinstance(held_out, OutcomeTable):
        held_out = _unseen_by(workspace, other, held_out)
    against: Policy = load_policy(workspace.registry.load(other))
    label = f"{other.policy}@{other.version}"
    return version, compare(policy, against, held_out, baseline_name=label, seed=seed)


def _unseen_by(workspace: WorkspaceCore, other: PolicyVersion, table: OutcomeTable) -> OutcomeTable:
    """Returns the held-out tasks that ``other`` was not trained on either: two runs may share tasks.

    Raises:
        UsageError: too few are left to compare on.
    """
    mine = {"agent_id": other.lineage["agent"], "policy": other.lineage["policy"]}
    episodes = {each.episode_id for each in workspace.store.iterate(Decision, where=mine)} - {None}
    trained = {each.task_id for each in workspace.store.iterate(Episode, where={"episode_id": episodes})} - {None}
    left = table.without({str(task_id) for task_id in trained})
    if len(left.units) < MIN_SHARED_UNITS:
        raise UsageError(
            f"{other.policy}@{other.version} was trained on all but {len(left.units)} of these held-out tasks; "
            f"at least {MIN_SHARED_UNITS} are needed to compare on"
        )
    return left


def _held_out(workspace: WorkspaceCore, version: PolicyVersion) -> HeldOut:
    lineage = version.lineage
    if lineage["held_out"]["kind"] == "outcomes":
        if workspace.store.blobs is None:
            raise NotFoundError(f"{version.policy}@{version.version} was proven on tasks that this store does not hold")
        return OutcomeTable.from_bytes(workspace.store.blobs.get(lineage["held_out"]["blob"]))
    chosen = lineage["held_out"]
    log = read_log(workspace.store, lineage["agent"], lineage["policy"], unit=chosen.get("unit", EPISODE))
    # A version that does not say its unit was proven before there was a model of contexts, and is judged as it was.
    held_out = split_log(log, chosen.get("share", HELD_OUT_SHARE), by_context="unit" in chosen).held_out
    if not held_out.units:
        raise NotFoundError(f"no held-out decision of {version.policy!r} is left in the log to evaluate on")
    return held_out
