"""How often a proof says ``learned`` where nothing can be, and how often where something is.

Nulls are those of ``proof_logs``. Each log is split, learned from and judged as ``loop.prove`` does, with the online
model. The peer does what is done by hand: it trains on the same part, estimates by inverse propensities what the policy
would have earned on the other one, and believes a 95 % bootstrap interval of its gain over uniform choice. Power is
compared with a z-test on the whole log that knows which action to ask about.
"""

from __future__ import annotations

import math
import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from benchmarks.proof_champions import champion_rows
from benchmarks.proof_logs import NULLS, Maker, better_by, by_kind
from benchmarks.report import Goal, Options, Row, make_row
from learnloop.algorithms import BanditTrainer
from learnloop.core.records import Verdict
from learnloop.decisions.learning.candidates import shared_questions
from learnloop.decisions.proof_log import HeldOutSplit, ProofLog, split_log
from learnloop.evaluation import UniformPolicy, VerificationOptions, verify_learning
from learnloop.evaluation.policies import logged_probabilities

MAX_LEARNED, MAX_LEARNED_IN_ANY = 0.05, 0.09
MIN_POWER, MIN_REAL = 0.6, 0.95
GRID = ((0.025, 5_000), (0.05, 1_500), (0.1, 600), (0.2, 600))
"""Gain over uniform choice, which earns .5, and decisions: a z-test that knows the action finds nearly all of them."""
PEER = "bootstrap of inverse propensities"


class Judged(NamedTuple):
    """What was said of one log."""

    is_learned: bool
    is_learned_by_peer: bool


def run(options: Options) -> list[Row]:
    repetitions = options.repetitions(published=200, quick=2)
    few, rare, sure = (
        Goal(of="value", relation="<=", bound=MAX_LEARNED),
        Goal(of="value", relation="<=", bound=MAX_LEARNED_IN_ANY),
        Goal(of="value", relation=">=", bound=MIN_REAL),
    )
    rows, all_found = [], list[Judged]()
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        for name in NULLS:
            found = list(pool.map(partial(judge, name), range(repetitions), chunksize=1))
            all_found += found
            rows.append(_share(f"learned: {name.replace('_', ' ')}", found, rare))
        rows.insert(0, _share("learned: all nulls", all_found, few))
        real = list(pool.map(partial(judge, "by_kind"), range(min(repetitions, 40)), chunksize=1))
        rows.append(_share("learned: another action for each kind of task", real, sure))
        for gain, number in GRID:
            found = list(pool.map(partial(judge, f"{gain} {number}"), range(repetitions), chunksize=1))
            rows.append(_power(gain, number, found))
        rows += champion_rows(pool.map, repetitions)
    return rows


def judge(name: str, seed: int) -> Judged:
    """Draws the log ``name`` with ``seed``, and returns what is said of it."""
    log = _maker(name)(np.random.default_rng([seed, *name.encode()]))
    samples, missing = shared_questions(log.known), shared_questions(log.missing)
    split = split_log(ProofLog(samples, [], missing, 0, 0, 0))
    trainer = BanditTrainer(strict=False)
    options = VerificationOptions(seed=seed, num_permutations=2_000)
    found = verify_learning(trainer, split.train, split.held_out, options=options)
    return Judged(found.verdict is Verdict.LEARNED, _peer_learned(trainer, split, seed))


def z_test_power(gain: float, number: int, alpha: float = 0.05) -> float:
    """Returns how often a one-sided z-test of two shares on all ``number`` decisions finds 2 ``gain``.

    Source: Cohen 1988, Statistical Power Analysis for the Behavioral Sciences, section 6.4.
    """
    variance = sum((0.5 + sign * gain) * (0.5 - sign * gain) / (number / 2) for sign in (1, -1))
    return NormalDist().cdf(2 * gain / math.sqrt(variance) - NormalDist().inv_cdf(1 - alpha))


def _maker(name: str) -> Maker:
    if name in NULLS:
        return NULLS[name]
    if name == "by_kind":
        return by_kind
    gain, number = name.split()
    return better_by(float(gain), int(number))


def _peer_learned(trainer: BanditTrainer, split: HeldOutSplit, seed: int) -> bool:
    policy = trainer.train(split.train, seed)
    samples = split.held_out.samples
    rewards = np.array([each.reward for each in samples])
    propensities = np.array([each.propensity for each in samples], dtype=np.float64)
    chosen = logged_probabilities(policy, samples) - logged_probabilities(UniformPolicy(), samples)
    gains = chosen / propensities * rewards
    drawn = np.random.default_rng(seed).multinomial(gains.size, np.full(gains.size, 1 / gains.size), size=1_000)
    return bool(np.quantile(drawn @ gains / gains.size, 0.025) > 0)


def _share(name: str, found: list[Judged], goal: Goal) -> Row:
    return make_row(
        name,
        [float(np.mean([each.is_learned for each in found]))],
        "of logs",
        peer=PEER,
        peer_values=[float(np.mean([each.is_learned_by_peer for each in found]))],
        goal=goal,
        note=f"{len(found)} logs",
    )


def _power(gain: float, number: int, found: list[Judged]) -> Row:
    return make_row(
        f"power: a gain of {gain} in {number:,} decisions",
        [float(np.mean([each.is_learned for each in found]))],
        "of logs",
        peer="a z-test on all of them that knows the action (by its formula)",
        peer_values=[z_test_power(gain, number)],
        goal=Goal(of="ratio", relation=">=", bound=MIN_POWER),
        note=f"{len(found)} logs",
    )
