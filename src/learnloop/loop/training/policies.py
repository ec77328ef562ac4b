"""Registered policies that act in an environment: loaded, and compared on held-out episodes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from learnloop.algorithms.policies.network_policy import NetworkPolicy
from learnloop.core.arrays import F64
from learnloop.core.errors import UsageError
from learnloop.core.records import PolicyVersion
from learnloop.core.seeding import derive_seed
from learnloop.evaluation import Comparison
from learnloop.evaluation.intervals import paired_interval
from learnloop.evaluation.permutation import sign_flip_p_value
from learnloop.loop.workspace.core import WorkspaceCore
from learnloop.loop.workspace.settings import find_settings

NUM_EPISODES = 100


def acts_in_environment(version: PolicyVersion) -> bool:
    """Returns whether ``version`` was trained in an environment, not on a log."""
    held_out: Mapping[str, Any] = version.lineage.get("held_out", {})
    return held_out.get("kind") == "environment"


def load_policy(reference: str, *, home: str | Path | None = None, database: str | None = None) -> NetworkPolicy:
    """Returns a registered policy that acts on observations: ``policy.act(observation)``, with numpy alone.

    Args:
        reference: ``NAME``, ``NAME@3`` or ``NAME@alias``.
        home: the store's folder.
        database: the store's URL.

    Raises:
        NotFoundError: there is no such policy.
        UsageError: it was learned from logged choices; a ``Loop`` serves it.
        CorruptError: its files are not what was registered.
    """
    with WorkspaceCore(find_settings(home, database)) as workspace:
        version = workspace.registry.resolve(reference)
        if not acts_in_environment(version):
            raise UsageError(f"{reference} was learned from logged choices; serve it with Loop(...).policy(...)")
        return NetworkPolicy.from_artifact(workspace.registry.load(version))


def evaluate_in_environment(
    workspace: WorkspaceCore, version: PolicyVersion, baseline: str, *, seed: int = 0, num_episodes: int = NUM_EPISODES
) -> Comparison:
    """Returns how ``version`` fares against ``baseline`` on episodes that neither trained nor chose it.

    Args:
        workspace: where it is registered.
        version: trained in an environment.
        baseline: ``random``, or a reference to another version that acts in the same spaces.
        seed: of the episodes and of the sign flips.
        num_episodes: the same ones for both.

    Raises:
        UsageError: the baseline is unknown or acts in other spaces, or the environment was the caller's own.
    """
    if version.lineage.get("own_env"):
        raise UsageError(
            f"{version.policy}@{version.version} was trained in an environment of the caller's own "
            f"({version.lineage['env']}), which is not registered; evaluate its run with open_run(..., env=...)"
        )
    policy = NetworkPolicy.from_artifact(workspace.registry.load(version))
    # Loop imports this file, and needs no gymnasium where nothing is played.
    from learnloop.evaluation.returns import evaluate_returns

    name, other = _baseline(workspace, policy, baseline, seed)

    def returns(each: NetworkPolicy) -> F64:
        found = evaluate_returns(
            each,
            version.lineage["env"],
            num_episodes=num_episodes,
            seed=derive_seed(seed, "compare", version.content_hash),
            env_kwargs=version.lineage["env_kwargs"] or None,
        )
        return np.array(found.returns, dtype=np.float64)

    own, others = returns(policy), returns(other)
    return Comparison(
        baseline=name,
        mean=float(own.mean()),
        baseline_mean=float(others.mean()),
        difference=float((own - others).mean()),
        interval=paired_interval(own - others),
        p_value=sign_flip_p_value(own - others, seed=seed),
        num_units=num_episodes,
    )


def _baseline(workspace: WorkspaceCore, policy: NetworkPolicy, baseline: str, seed: int) -> tuple[str, NetworkPolicy]:
    if baseline == "random":
        return baseline, NetworkPolicy(policy.spaces, None, outputs="uniform", learned_by="random", seed=seed)
    if not workspace.registry.versions(baseline.partition("@")[0]):
        raise UsageError(
            f"unknown baseline {baseline!r}; allowed for a policy that acts in an environment are random and a "
            "policy's NAME@version"
        )
    version = workspace.registry.resolve(baseline)
    other = NetworkPolicy.from_artifact(workspace.registry.load(version)) if acts_in_environment(version) else None
    if other is None or other.spaces != policy.spaces:
        raise UsageError(f"{baseline} does not act in the same environment; compare policies with the same spaces")
    return f"{version.policy}@{version.version}", other
