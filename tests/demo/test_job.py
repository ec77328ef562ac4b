"""The main job on this machine's real files: it learns in 5 of 5 seeds, and never where nothing can be learned.

One seed of each is run with each change, the others are ``make nightly PART=repeats``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from learnloop.algorithms import load_policy
from learnloop.cli.main import run
from learnloop.core.records import Decision, Episode, Event, Reward, Span, Verdict
from learnloop.demo.job import BEST_FIXED, DemoResult, run_job
from learnloop.demo.packing import CODECS
from learnloop.loop import Loop, evaluate
from tests.waiting import costs_at_most


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("made")


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory, made: Path) -> Iterator[tuple[Loop, DemoResult]]:
    """The job of seed 0, for all tests that look at one that learned. It takes less than a minute of a processor."""
    with Loop("packer", home=tmp_path_factory.mktemp("first"), seed=0) as loop:
        with costs_at_most(60):
            result = run_job(loop, made, seed=0)
        yield loop, result


def check_learned(result: DemoResult) -> None:
    assert result.verification.verdict is Verdict.LEARNED, result.verification.reasons
    assert result.p_value is not None
    assert result.p_value <= 0.05
    figures = result.summary()
    assert figures["best_fixed_reward"] < figures["learned_reward"] <= figures["optimum_reward"]
    assert figures["random_reward"] < figures["best_fixed_reward"]
    assert figures["policy_version"] == "packer.codec@1"


@pytest.mark.slow
def test_it_learns(first: tuple[Loop, DemoResult]) -> None:
    check_learned(first[1])


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(1, 5))
def test_it_learns_with_each_seed(seed: int, tmp_path: Path, made: Path) -> None:
    with Loop("packer", home=tmp_path, seed=seed) as loop:
        check_learned(run_job(loop, made, seed=seed))


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(3))
def test_shuffled_rewards_teach_nothing_with_each_seed(seed: int, tmp_path: Path, made: Path) -> None:
    with Loop("packer", home=tmp_path, seed=seed) as loop:
        result = run_job(loop, made, seed=seed, shuffle_rewards=True)
        assert result.verification.verdict is Verdict.NO_SIGNAL, result.verification.reasons
        assert result.version is None
        assert loop.workspace.registry.versions() == []


@pytest.mark.slow
def test_all_of_it_is_recorded_and_can_be_evaluated_again(first: tuple[Loop, DemoResult]) -> None:
    loop, result = first
    store = loop.workspace.store
    assert store.count(Decision) == store.count(Episode) == len(result.training_rewards) == 1000
    assert store.count(Span) == 2000
    assert store.count(Reward) == 2000
    assert all(decision.propensity for decision in store.iterate(Decision))
    assert store.count(Event, where={"kind": "policy.registered"}) == 1
    counters = loop.counters()
    assert (counters.num_dropped, counters.num_failed) == (0, 0)
    version, comparison = evaluate(loop.workspace, "packer.codec", "best-fixed")
    assert version == result.version
    assert comparison.mean == pytest.approx(result.arm("trained"))
    assert comparison.baseline_mean == pytest.approx(result.arm(BEST_FIXED))
    policy = load_policy(loop.workspace.registry.load(version))
    trained = result.verification.policy
    assert trained is not None
    for size in (600, 9_000, 120_000):
        context = {"size": size, "kind": "text", "entropy": 4.5, "probe": 0.6}
        expected = trained.probabilities(context, list(CODECS))
        assert (policy.probabilities(context, list(CODECS)) == expected).all()


@pytest.mark.slow
def test_the_command_prints_its_schema(
    first: tuple[Loop, DemoResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """With the job that was run already; the other command below runs it in whole."""
    monkeypatch.setenv("LEARNLOOP_HOME", str(tmp_path))
    monkeypatch.setattr("learnloop.demo.job.run_job", lambda *given, **options: first[1])
    assert run(["demo", "--json"]) == 0
    assert json.loads(capfd.readouterr().out).keys() == {
        "schema", "verdict", "learned_reward", "best_fixed_reward", "random_reward", "optimum_reward", "p_value",
        "seconds", "policy_version",
    }  # fmt: skip


@pytest.mark.slow
def test_shuffled_rewards_teach_nothing_and_the_command_exits_7(tmp_path: Path) -> None:
    shuffled = run_command(tmp_path, "--shuffle-rewards")
    assert shuffled.returncode == 7
    assert json.loads(shuffled.stdout)["verdict"] == "no_signal"
    assert json.loads(shuffled.stdout)["policy_version"] is None
    with Loop("packer", home=tmp_path) as loop:
        assert loop.workspace.registry.versions() == []


def run_command(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "learnloop", "demo", "--json", *arguments]
    environment = {**os.environ, "LEARNLOOP_HOME": str(home)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
