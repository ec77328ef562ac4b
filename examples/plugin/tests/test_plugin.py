"""What learnloop promises of algorithms, kept by the plug-in's; and a probe whose answer is known."""

from __future__ import annotations

from typing import Any

import numpy as np
from learnloop_example.brevity import brevity
from learnloop_example.letters import Letters
from learnloop_example.reinforce import Reinforce, ReinforceConfig
from learnloop_example.two_doors import TwoDoors

from learnloop.core.attempts import Attempt
from learnloop.envs import check_env
from learnloop.testing.contracts import AlgorithmContract
from learnloop.testing.probing import Plan, run_probe, subject_of


class TestReinforce(AlgorithmContract):
    def make(self, spaces: Any, *, num_envs: int, seed: int) -> Reinforce:
        return Reinforce(ReinforceConfig(n_steps=8), spaces, num_envs=num_envs, seed=seed)


def test_it_learns_which_action_is_better() -> None:
    options = {"n_steps": 16, "net_arch": (32,), "learning_rate": "lin_0.02"}
    outcome = run_probe(subject_of(Reinforce), "P4", Plan(options=options, steps=8_000, num_envs=8))
    assert outcome.verdict == "passed", outcome


def test_the_environment_keeps_the_rules() -> None:
    assert check_env(TwoDoors) == []


def test_letters() -> None:
    found = Letters().encode(["abba", ""])
    assert found.shape == (2, 26)
    assert found[0, :2].tolist() == [2, 2]
    assert not np.any(found[1])


def test_brevity() -> None:
    attempts = [Attempt(output=answer, expected="42") for answer in ("42", "it is 42", "7")]
    assert [brevity(attempt) for attempt in attempts] == [1.0, 0.25, 0.0]
