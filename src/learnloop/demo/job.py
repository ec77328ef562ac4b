"""Runs the demo: an agent packs files one after the other and learns; then it is judged on files it never saw.

Each run is an experiment of its own: it learns from its own decisions only, so that no file that it is judged on was
packed by it before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from learnloop.core.errors import NotFoundError
from learnloop.core.protocols import Context
from learnloop.core.records import PolicyVersion, Verdict
from learnloop.core.seeding import derive_seed, generator
from learnloop.decisions import logged_samples
from learnloop.decisions.learning.candidates import trainer_of
from learnloop.demo.files import FoundFile, count_files, find_files, stream
from learnloop.demo.packing import CODECS, Packing, context_of, pack
from learnloop.evaluation import FixedPolicy, OutcomeTable, Verification, VerificationOptions, verify_learning
from learnloop.loop import Loop, register_proven
from learnloop.store.queries.decisions import num_policies

NUM_TRAINING = 1_000
NUM_HELD_OUT = 300
NUM_STEPS = NUM_TRAINING + NUM_HELD_OUT
AGENT = "packer"
POLICY = "packer.codec"
BEST_FIXED = "best-fixed"

Advance = Callable[[int], None]
Files = Iterator[tuple[FoundFile, bytes]]


class DemoResult(NamedTuple):
    """What a run found."""

    verification: Verification
    version: PolicyVersion | None
    """None unless the verdict is ``learned``."""
    training_rewards: list[float]
    """Of each file, in the order in which they were packed."""
    best_fixed: str
    """The packer that is best on the held-out files when it is used for all of them, known in hindsight."""
    optimum_reward: float
    num_files: dict[str, int]
    """Files found on this machine, by kind."""
    seconds: float

    @property
    def learned(self) -> bool:
        """Whether it is proven that the agent learned."""
        return self.verification.verdict is Verdict.LEARNED

    def arm(self, name: str) -> float | None:
        """Returns the mean held-out reward of ``trained``, ``random`` or ``best-fixed``; None if it was not run."""
        arm = self.verification.arms.get(name)
        return None if arm is None else arm.mean

    @property
    def p_value(self) -> float | None:
        """Of the learned policy against the best fixed packer, one-sided; None if it was not tested."""
        return next((test.p_value for test in self.verification.tests if test.against == BEST_FIXED), None)

    def summary(self) -> dict[str, Any]:
        """Returns the result as the fields of ``learnloop.demo/v1``."""
        return {
            "verdict": self.verification.verdict.value,
            "learned_reward": self.arm("trained"),
            "best_fixed_reward": self.arm(BEST_FIXED),
            "random_reward": self.arm("random"),
            "optimum_reward": self.optimum_reward,
            "p_value": self.p_value,
            "seconds": round(self.seconds, 3),
            "policy_version": None if self.version is None else f"{self.version.policy}@{self.version.version}",
        }


def run_job(
    loop: Loop, folder: Path, *, seed: int, shuffle_rewards: bool = False, advance: Advance | None = None
) -> DemoResult:
    """Packs, learns, proves and registers, and returns what was found.

    Args:
        loop: where all of it is recorded.
        folder: for the files that are made once.
        seed: of the order of the files, the shuffling and the tests; the loop has its own for its choices.
        shuffle_rewards: reward each choice with the outcome of a random earlier file, so that nothing can be learned.
        advance: told of each file that is done.

    Raises:
        NotFoundError: this machine has too few files.
    """
    started = time.perf_counter()
    advance = advance or (lambda done: None)
    found = find_files(folder)
    files = stream(found, seed)
    policy = f"codec-run-{loop.workspace.store.read(num_policies, loop.agent_id) + 1}"
    loop.policy(policy)
    training_rewards = _train(loop, policy, files, derive_seed(seed, "shuffle") if shuffle_rewards else None, advance)
    loop.flush()
    table = _try_everything(files, advance)
    best_fixed = table.best_fixed().action
    samples = list(logged_samples(loop.workspace.store, loop.agent_id, policy))
    options = VerificationOptions(seed=seed, hindsight={BEST_FIXED: FixedPolicy(best_fixed)})
    verification = verify_learning(trainer_of(loop.snapshot(policy).settings), samples, table, options=options)
    lineage = {"agent": loop.agent_id, "policy": policy, "num_samples": len(samples), "seed": seed}
    version = None
    if verification.verdict is Verdict.LEARNED and loop.workspace.store.blobs is not None:
        lineage["held_out"] = {"kind": "outcomes", "blob": loop.workspace.store.blobs.put(table.to_bytes())}
        version = register_proven(loop.workspace, POLICY, verification, lineage).version
    return DemoResult(
        verification=verification,
        version=version,
        training_rewards=training_rewards,
        best_fixed=best_fixed,
        optimum_reward=float(table.optimum().mean()),
        num_files=count_files(found),
        seconds=time.perf_counter() - started,
    )


def _train(loop: Loop, policy: str, files: Files, shuffle_seed: int | None, advance: Advance) -> list[float]:
    """Packs ``NUM_TRAINING`` files, each as the policy chooses, and returns the measured rewards.

    With ``shuffle_seed`` each choice but the first is credited with the outcome of a random earlier file.
    """
    outcomes: list[Packing] = []
    rng = None if shuffle_seed is None else generator(shuffle_seed)
    for found, data in _take(files, NUM_TRAINING):
        with loop.episode(task=f"pack:{found.path}") as episode:
            choice = loop.choose(policy, list(CODECS), context_of(found.kind, data))
            with loop.span(choice, "execute_tool", num_bytes=len(data)) as span:
                packing = pack(choice, data)
                span.set(packed_bytes=packing.packed_bytes, cpu_seconds=packing.cpu_seconds)
            credited = packing if rng is None or not outcomes else outcomes[int(rng.integers(len(outcomes)))]
            outcomes.append(packing)
            episode.reward(saved=credited.saved, time=credited.reward - credited.saved)
        advance(1)
    return [packing.reward for packing in outcomes]


def _try_everything(files: Files, advance: Advance) -> OutcomeTable:
    """Packs ``NUM_HELD_OUT`` further files in every way."""
    units: list[str] = []
    contexts: list[Context] = []
    rewards: list[list[float]] = []
    for found, data in _take(files, NUM_HELD_OUT):
        units.append(f"pack:{found.path}")
        contexts.append(context_of(found.kind, data))
        rewards.append([pack(codec, data).reward for codec in CODECS])
        advance(1)
    return OutcomeTable(units, contexts, list(CODECS), np.array(rewards))


def _take(files: Files, number: int) -> Files:
    """Yields the next ``number`` files.

    Raises:
        NotFoundError: there are fewer.
    """
    for count in range(number):
        pair = next(files, None)
        if pair is None:
            raise NotFoundError(f"this machine has too few files to pack: {count} of the next {number} were found")
        yield pair
