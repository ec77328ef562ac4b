"""``ll.train`` from end to end: train, prove, register, load, serve."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import learnloop as ll
from learnloop.core.errors import CheckFailedError, CorruptError, NotFoundError, StoreError, UsageError
from learnloop.core.records import Verdict
from learnloop.loop import evaluate
from learnloop.loop.training.training import training_options

QUICK = {"preset": "many-envs", "eval_interval": 8_000}
EASY = {"n_envs": 8, "n_steps": 16, "batch_size": 64, "learning_rate": 0.01, "net_arch": [32], "eval_episodes": 20}
"""For Identity, which is learned within 3,000 steps; in short episodes its proof is cheap."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a policy that learned CartPole, registered."""
    folder = tmp_path_factory.mktemp("home")
    run = ll.train("ppo", env="cartpole", steps=16_000, options=QUICK, home=folder)
    version = run.best.register("cartpole")
    assert version.metrics["reward"] > 200
    return folder


def test_a_registered_policy_knows_where_it_comes_from(home: Path) -> None:
    with ll.Workspace(ll.loop.find_settings(home)) as workspace:  # type: ignore[attr-defined]
        version = workspace.registry.resolve("cartpole")
        (certificate,) = workspace.registry.certificates(version)
    run = ll.open_run("latest", home=home)
    assert version.lineage["run_id"] == run.run_id
    assert version.lineage["env"] == "CartPole-v1"
    assert version.metrics.keys() >= {"reward", "frozen", "random", "shuffled"}
    assert certificate.verdict is Verdict.LEARNED
    assert len(certificate.statistics["tests"]) == 3


def test_a_registered_policy_acts_like_the_trained_one(home: Path) -> None:
    policy = ll.load_policy("cartpole@1", home=home)
    trained = ll.open_run("latest", home=home).best.policy
    observations = np.random.default_rng(0).standard_normal((200, 4)).astype(np.float32)
    np.testing.assert_array_equal(policy.choose(observations), trained.choose(observations))
    for observation in observations[:20]:
        assert policy.act(observation) in (0, 1)
        assert policy.probabilities(observation).sum() == pytest.approx(1)
    assert policy.learned_by == "ppo"


def test_serving_needs_numpy_alone(home: Path) -> None:
    """Neither gymnasium nor torch is imported to load a policy's files and to act."""
    (folder,) = (home / "runs").glob("*/seed-0/best")
    program = (
        "import sys; from pathlib import Path; from learnloop.training.run_files import read_policy\n"
        f"policy = read_policy(Path({str(folder)!r})); print(policy.act([0.0, 0.1, 0.0, 0.1]))\n"
        "print([name for name in ('torch', 'gymnasium') if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split("\n")
    assert out[0] in ("0", "1")
    assert out[1] == "[]"


def test_evaluation_is_against_a_baseline_on_new_episodes(home: Path) -> None:
    with ll.Workspace(ll.loop.find_settings(home)) as workspace:  # type: ignore[attr-defined]
        version, comparison = evaluate(workspace, "cartpole", "random")
        assert comparison.mean > 200
        assert comparison.baseline_mean < 50
        assert comparison.p_value < 0.01
        _, same = evaluate(workspace, "cartpole", "cartpole@1")
        assert same.difference == 0
        with pytest.raises(UsageError, match="unknown baseline 'best-fixed'"):
            evaluate(workspace, "cartpole", "best-fixed")
    assert version.policy == "cartpole"


def test_what_has_not_learned_is_not_registered(tmp_path: Path) -> None:
    """B2: only what learned becomes a version."""
    run = ll.train("ppo", env="CartPole-v1", steps=256, options={"learning_rate": 0.0}, home=tmp_path)
    with pytest.raises(CheckFailedError, match="no_signal"):
        run.best.register("nothing")
    with pytest.raises(NotFoundError):
        ll.load_policy("nothing", home=tmp_path)


def test_seeds_and_statistics(tmp_path: Path) -> None:
    run = ll.train("random", env="CartPole-v1", steps=300, seeds=[7, 3], home=tmp_path)
    evaluation = run.evaluate(10)
    assert evaluation.seeds == [7, 3]
    assert evaluation.summary.mean == pytest.approx(np.mean(evaluation.means))
    assert [seed.seed for seed in run.seeds] == [7, 3]


def test_an_environment_of_ones_own(tmp_path: Path) -> None:
    def make() -> gymnasium.Env[Any, Any]:
        return gymnasium.make("CartPole-v1")

    run = ll.train("a2c", env=make, steps=300, home=tmp_path)
    assert "make" in run.record.options.env
    assert run.best.evaluate(2).mean > 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"algorithm": "ppoo"}, "did you mean 'ppo'"),
        ({"env": "CartPol-v1"}, "did you mean"),
        ({"options": {"gama": 1}}, "did you mean 'gamma'"),
        ({"options": {"n_envs": 0}}, "n_envs is 0"),
        ({"seeds": 0}, "at least one is needed"),
        ({"steps": -5}, "steps is -5"),
    ],
)
def test_a_wrong_call_says_what_is_wrong_and_leaves_nothing(
    arguments: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises((UsageError, NotFoundError)) as caught:
        ll.train(**{"algorithm": "ppo", "env": "CartPole-v1", "home": tmp_path, **arguments})
    assert words in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_changed_registered_policy_is_refused(home: Path, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(home, copy)
    (path,) = (copy / "policies").glob("**/weights.safetensors")
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptError):
        ll.load_policy("cartpole", home=copy)


def test_run_options_are_told_apart_from_the_algorithms() -> None:
    options = training_options("ppo", "CartPole-v1", options={"n_envs": 3, "gamma": 0.5, "eval_episodes": 4})
    assert (options.n_envs, options.eval_episodes, options.config["gamma"]) == (3, 4, 0.5)


def test_an_object_has_the_lanes_that_it_has(tmp_path: Path) -> None:
    made = gymnasium.make_vec("CartPole-v1", 3, vectorization_mode="sync")
    assert ll.train("random", env=made, steps=60, home=tmp_path).record.options.n_envs == 3
    assert ll.train("random", env=gymnasium.make("CartPole-v1"), steps=60, home=tmp_path).record.options.n_envs == 1


def test_a_name_that_cannot_be_registered_is_told_before_the_proof(tmp_path: Path) -> None:
    run = ll.train("random", env="CartPole-v1", steps=60, home=tmp_path)
    with pytest.raises(UsageError, match="cannot name a policy"):
        run.best.register("a/b")


def test_policies_go_into_the_database_that_is_named(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path / 'other.db'}"
    options = {**EASY, "env_kwargs": {"max_episode_steps": 5}}
    ll.train("ppo", env="learnloop/Identity-v0", steps=3_000, options=options, home=tmp_path)
    settings = ll.loop.find_settings(tmp_path, database)  # type: ignore[attr-defined]
    ll.open_run("latest", home=settings).best.register("elsewhere")
    assert ll.load_policy("elsewhere", home=tmp_path, database=database).learned_by == "ppo"
    with pytest.raises(NotFoundError):
        ll.load_policy("elsewhere", home=tmp_path)


def test_a_policy_of_an_environment_of_ones_own_is_not_looked_for(tmp_path: Path) -> None:
    def make() -> gymnasium.Env[Any, Any]:
        return gymnasium.make("learnloop/Identity-v0", max_episode_steps=5)

    run = ll.train("ppo", env=make, steps=3_000, options=EASY, home=tmp_path)
    run.best.register("own")
    with (
        ll.Workspace(ll.loop.find_settings(tmp_path)) as workspace,  # type: ignore[attr-defined]
        pytest.raises(UsageError, match="of the caller's own"),
    ):
        evaluate(workspace, "own", "random")


@pytest.mark.parametrize("seeds", ["12", 1.5, None, True])
def test_seeds_that_are_none(seeds: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="seeds is"):
        ll.train("random", env="CartPole-v1", steps=60, seeds=seeds, home=tmp_path)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        ll.train("random", env="CartPole-v1", steps=60, home=tmp_path / "file")


def test_options_and_numbers_of_another_type_are_refused(home: Path) -> None:
    with pytest.raises(UsageError, match=r"options is \[1\]; hyper-parameters by their names are needed"):
        ll.train("random", steps=10, options=[1], home=home)  # type: ignore[arg-type]
    run = ll.open_run(home=home)
    for evaluated in (run, run.best):
        with pytest.raises(UsageError, match="num_episodes is '5'; a whole number from 1 is needed"):
            evaluated.evaluate("5")  # type: ignore[arg-type]
