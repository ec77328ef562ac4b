"""The rl benchmark: its clock, the CartPole that it evaluates in, its settings, rows without a peer."""

from __future__ import annotations

import json
import subprocess
import sys
import types
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from benchmarks import peers, rl
from benchmarks.__main__ import main
from benchmarks.peers import PeerError, peer_python, peer_source
from benchmarks.rl_peers import measuring
from benchmarks.rl_peers.measuring import Watch, advance, evaluate, reached
from benchmarks.rl_peers.prompts import NUM_ACTIONS, Prompts
from benchmarks.rl_rows import make_rows
from benchmarks.rl_settings import DQN_ZOO, PEERS, PPO_MANY, PPO_ZOO, SAC_ZOO, sides

SHAPES = ("1536-256-256-128-5", "4-64-64-2")
SOLVED = "time to 475, many-envs (cpu time)"
STEADY = [(2048, 500.0, 1.0, 1.5), (4096, 500.0, 2.0, 2.5), (6144, 480.0, 3.0, 3.5)]


def test_cartpole_is_gymnasiums_step_by_step() -> None:
    env, rng = gymnasium.make("CartPole-v1").unwrapped, np.random.default_rng(7)
    num_failed = 0
    for seed in range(40):
        env.reset(seed=seed)
        state = np.array(env.state, dtype=np.float64)  # type: ignore[attr-defined]
        failed, bias = False, rng.uniform(0.2, 0.8)
        for _ in range(200):
            action = int(rng.random() < bias)
            observation, reward, terminated, _, _ = env.step(action)
            states, fails = advance(np.stack([state, state]), np.array([action, 1 - action]))
            state, failed = states[0], bool(fails[0])
            np.testing.assert_array_equal(state, env.state)  # type: ignore[attr-defined]
            np.testing.assert_array_equal(state.astype(np.float32), observation)
            assert failed is terminated
            assert reward == 1.0
            if terminated:
                num_failed += 1
                break
    assert num_failed > 20


def test_an_evaluation_is_the_mean_return_of_gymnasiums_episodes() -> None:
    def act(observations: Any) -> Any:  # rights the pole a while, ever wilder
        return (observations[:, 2] > 0).astype(np.int64)

    starts = np.random.default_rng(measuring.EVALUATION_SEED).uniform(-0.05, 0.05, (20, 4))
    env = gymnasium.make("CartPole-v1")
    returns = []
    for start in starts:
        env.reset(seed=0)
        env.unwrapped.state = start  # type: ignore[attr-defined]
        observation, total, ended = start.astype(np.float32), 0.0, False
        while not ended:
            observation, reward, terminated, truncated, _ = env.step(int(act(observation[None])[0]))
            total += float(reward)
            ended = terminated or truncated
        returns.append(total)
    assert 20 < np.mean(returns) < 500
    assert evaluate(act) == pytest.approx(np.mean(returns), abs=1e-9)
    assert evaluate(lambda observations: observations[:, 2] + 0.3 * observations[:, 3] > 0) == 500  # and no longer


def test_three_evaluations_in_a_row_count_as_reached_at_the_first() -> None:
    def curve(*means: float) -> list[tuple[float, ...]]:
        return [(index, mean, index / 10, index / 5) for index, mean in enumerate(means)]

    assert reached(curve(500, 500, 474, 500, 475, 480, 500)) == (3, 500, 0.3, 0.6)
    assert reached(curve(500, 500, 474, 500, 500)) is None
    assert reached([]) is None


def test_the_clock_stands_still_while_the_policy_is_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = types.SimpleNamespace(now=0.0)

    def take_long(act: Any) -> float:
        clock.now += 100.0
        return 100.0

    monkeypatch.setattr(measuring, "evaluate", take_long)
    tell = lambda: clock.now  # noqa: E731 - both clocks
    monkeypatch.setattr(measuring, "time", types.SimpleNamespace(process_time=tell, perf_counter=tell))
    watch = Watch({"at_most": 40, "eval_interval": 10})
    watch.start()
    ended = []
    for steps in (5, 10, 14, 25, 30, 40):
        clock.now += 1.0
        ended.append(watch.look(steps, lambda observations: observations))
    assert ended == [False] * 5 + [True]
    assert [mark.num_steps for mark in watch.curve] == [10, 25, 30, 40]
    result = watch.result(num_episodes=3)
    assert (result["num_steps"], result["num_episodes"]) == (40, 3)
    assert (result["cpu_seconds"], result["wall_seconds"]) == (6.0, 6.0)  # four evaluations took 400


def test_a_run_may_end_at_the_threshold_but_not_before_its_least_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "evaluate", lambda act: 500.0)
    watch = Watch({"at_least": 40, "at_most": 90, "eval_interval": 10})
    watch.start()
    ended = [watch.look(steps, lambda observations: observations) for steps in (10, 20, 30, 40)]
    assert ended == [False, False, False, True]
    plain = Watch({"at_most": 30})
    plain.start()
    assert [plain.look(steps, lambda observations: observations) for steps in (10, 29, 31)] == [False, False, True]
    assert plain.result()["curve"] == []


def test_prompts_has_five_steps_and_can_be_learned() -> None:
    env = Prompts()
    observation, _ = env.reset(seed=3)
    again, _ = env.reset(seed=3)
    np.testing.assert_array_equal(observation, again)
    assert env.observation_space.contains(observation)
    env.reset(seed=3)
    best = env.best[env.current]
    rewards, ends = [], []
    for _ in range(5):
        best = env.best[env.current]
        _, reward, terminated, truncated, _ = env.step(best)
        rewards.append(reward)
        ends.append((terminated, truncated))
    assert rewards == [1.0] * 5
    assert ends == [(False, False)] * 4 + [(True, False)]
    assert set(env.best) == set(range(NUM_ACTIONS))
    env.reset(seed=3)
    assert env.step((env.best[env.current] + 1) % NUM_ACTIONS)[1] == 0.0


def test_the_settings_are_those_of_our_presets() -> None:
    from learnloop.training.options import make_options

    for algorithm, env, preset, settings in (
        ("ppo", "CartPole-v1", None, PPO_ZOO),
        ("ppo", "CartPole-v1", "many-envs", PPO_MANY),
        ("dqn", "CartPole-v1", None, DQN_ZOO),
        ("sac", "Pendulum-v1", None, {name: value for name, value in SAC_ZOO.items() if name != "buffer_size"}),
    ):  # SB3's buffer of a million is larger than our default
        plain = make_options(algorithm, env, preset=preset)
        assert make_options(algorithm, env, preset=preset, options=settings) == plain, (algorithm, preset)
    many = sides(quick=False)["ppo many"].task
    assert (many["n_envs"], many["vectorization"]) == (64, "auto")
    assert make_options("ppo", "CartPole-v1", preset="many-envs").n_envs == 64


@pytest.mark.parametrize("quick", [False, True])
def test_both_sides_of_a_comparison_have_the_same_settings(quick: bool) -> None:
    found = sides(quick)
    for ours, theirs in (
        ("ppo sync", "ppo sb3"),
        ("ppo sync", "ppo tianshou"),
        ("ppo sync", "ppo sbx"),
        ("ppo cleanrl settings", "ppo cleanrl"),
        ("dqn", "dqn sb3"),
        ("sac", "sac sb3"),
        ("ppo compiled", "ppo rejax"),
        ("seed 1", "seed 1 sb3"),
    ):
        for name in ("options", "env", "n_envs", "total"):
            assert found[ours].task[name] == found[theirs].task[name], (ours, name)


def canned(task: dict[str, Any]) -> dict[str, Any]:
    """What each kind of measurement would return."""
    timed = {"p50": 10.0, "p99": 20.0}
    return {
        "training": {
            "num_steps": 100_000,
            "cpu_seconds": 10.0,
            "wall_seconds": 12.5,
            "curve": STEADY if "eval_interval" in task else [],
            "num_episodes": 1_000,
            "final_return": 500.0,
        },
        "trainer": {"num_steps": 100_000, "cpu_seconds": 11.0, "wall_seconds": 13.0, "curve": []},
        "update": {"update_ms": 4.5, "products_ms": 3.0},
        "act": {f"{shape} {way}": timed for shape in SHAPES for way in ("greedy", "drawn")},
        "replay": timed,
        "checkpoint": {"CartPole-v1": 0.1},
    }[task["kind"]]


def test_a_missing_peer_is_said_and_its_goals_are_not_checked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unreachable(name: str, requirement: tuple[str, ...]) -> None:
        raise PeerError(f"no network for {requirement[0]}")

    monkeypatch.setattr(rl, "measure_ours", canned)
    monkeypatch.setattr(rl, "peer_python", unreachable)
    assert main(["rl", "--json", "--seeds", "2"]) == 1
    rows = json.loads(capsys.readouterr().out)["rows"]
    labels = {peer.label: peer.requirements[0] for peer in PEERS.values()}
    missing = 0
    for row in rows:
        label = next((label for label in labels if (row["peer"] or "").startswith(label)), None)
        if label is not None:
            missing += 1
            assert row["note"] == f"not measured: no network for {labels[label]}"
            assert row["peer_value"] is row["ratio"] is row["holds"] is None
        assert row["repetitions"] == len(row["values"]) == 2
    assert missing == 23
    assert {row["holds"] for row in rows if row["goal"] and row["goal"].startswith("value")} == {True}


def test_rows_have_ratios_floors_and_medians() -> None:
    found = {name: [canned(side.task)] * 3 for name, side in sides(quick=True).items()}
    slow = {**canned({"kind": "training", "eval_interval": 1}), "cpu_seconds": 60.0}
    late = {**slow, "curve": [(steps, mean, 30 * cpu, wall) for steps, mean, cpu, wall in STEADY]}
    never = {**slow, "curve": STEADY[:2]}
    found["ppo sb3"] = [slow, late, never]
    rows = make_rows(found, {})
    first = rows[0]
    assert first.name == "PPO CartPole-v1, rl-zoo (cpu time)"
    assert (first.value, first.goal, first.holds) == (10_000, "ratio >= 5", True)
    assert first.ratio == pytest.approx(6)
    assert first.note is not None
    assert "goal 8" in first.note
    assert "best evaluation 500" in first.note
    solved = next(row for row in rows if row.name == SOLVED and row.peer_values == [1, 30, 60])
    assert (solved.value, solved.peer_value, solved.ratio, solved.holds) == (1, 30, 1 / 30, True)
    assert solved.repetitions == 3
    assert solved.note is not None
    assert "the peer solved it in 2 of 3 runs" in solved.note
    assert next(row for row in rows if row.name.startswith("one update")).ratio == 1.5


def test_a_median_that_was_not_reached_does_not_hold() -> None:
    found = {name: [canned(side.task)] * 2 for name, side in sides(quick=True).items()}
    slow = canned({"kind": "training", "eval_interval": 1}) | {"cpu_seconds": 1e6, "curve": STEADY[:2]}
    found["ppo many"] = [{**canned({"kind": "training"}), "curve": STEADY[:2]}] * 2
    found["ppo sb3"] = [slow] * 2
    solved = [row for row in make_rows(found, {}) if row.name == SOLVED]
    assert solved[0].ratio is not None
    assert solved[0].ratio < 0.1
    assert solved[0].holds is False


@pytest.mark.parametrize("name", ["ppo sync", "ppo vector", "dqn", "sac", "seed 1", "act", "replay", "update"])
def test_our_side_runs(name: str) -> None:
    from benchmarks.rl_ours import measure

    task = {**sides(quick=True)[name].task, "seed": 0, "num_calls": 20, "rounds": 1}
    short = {"n_steps": 64, "batch_size": 32, "n_epochs": 1}
    short |= {"learning_starts": 64, "train_freq": 8, "gradient_steps": 1}
    if "options" in task:
        task["options"] = {key: short.get(key, value) for key, value in task["options"].items()}
        task |= {"at_least": 128, "at_most": 128} | ({"eval_interval": 128} if "eval_interval" in task else {})
    result = json.loads(json.dumps(measure(task)))
    if task["kind"] == "training":
        assert result["num_steps"] >= 128
        assert result["cpu_seconds"] > 0
        assert len(result["curve"]) == ("eval_interval" in task)
    elif task["kind"] == "update":
        assert result["update_ms"] > 0
        assert result["products_ms"] > 0
    else:
        timed = [result] if task["kind"] == "replay" else list(result.values())
        assert all(0 < each["p50"] <= each["p99"] for each in timed)


def test_a_checkpoint_is_weighed() -> None:
    """Parameters and Adam's two means of them, four bytes each, and little else: two towers with their heads."""
    from benchmarks.rl_ours import weigh_checkpoint

    found = weigh_checkpoint({"seed": 0})
    for name, sizes in (("CartPole-v1", (4, 64, 64, 2)), ("seed 1's problem", (1536, 256, 256, 128, 5))):
        hidden = sum((first + 1) * second for first, second in pairwise(sizes[:-1]))
        parameters = 2 * hidden + (sizes[-2] + 1) * (sizes[-1] + 1)
        assert 1.0 < found[name] / (12 * parameters / 1e6) < 1.3


def test_the_bare_products_are_those_of_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import rl_ours

    flops = 0

    def count(left: Any, right: Any, out: Any) -> None:
        nonlocal flops
        assert (left.shape[0], right.shape[1]) == out.shape
        flops += 2 * left.shape[0] * left.shape[1] * right.shape[1]

    multiply = rl_ours.bare_products(64, rl_ours.SHAPES["1536-256-256-128-5"])
    monkeypatch.setattr(np, "matmul", count)
    multiply()
    first, rest = 1536 * 256, 256 * 256 + 256 * 128
    assert flops == 2 * 64 * (2 * (2 * first + 3 * rest) + 3 * 128 * (5 + 1))


def test_an_environment_may_need_several_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(peers, "ROOT", tmp_path)
    monkeypatch.setattr(peers, "_run", lambda command, text: commands.append(command) or "")
    monkeypatch.setattr("venv.create", lambda folder, with_pip, clear: folder.mkdir(parents=True, exist_ok=True))
    for requirements in (("thing==1", "other==2"), ["thing==1", "other==2"], ["thing==1", "other==3"]):
        peer_python("thing", requirements)
    assert [command[-2:] for command in commands] == [["thing==1", "other==2"], ["thing==1", "other==3"]]


def test_a_source_is_cloned_once_and_must_be_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    origin = tmp_path / "origin"
    origin.mkdir()

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(origin), "-c", "user.name=x", "-c", "user.email=x@example.org", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "--quiet")
    (origin / "ppo.py").write_text("1")
    git("add", "ppo.py")
    git("commit", "--quiet", "-m", "one")
    commit = git("rev-parse", "HEAD")
    (origin / "ppo.py").write_text("2")
    git("commit", "--quiet", "-a", "-m", "two")
    (tmp_path / ".bench").mkdir()
    monkeypatch.setattr(peers, "ROOT", tmp_path)
    folder = peer_source("peer", str(origin), commit)
    assert folder == tmp_path / ".bench" / "peer-source"
    assert (folder / "ppo.py").read_text() == "1"
    assert peer_source("peer", "/nowhere", commit) == folder
    with pytest.raises(PeerError, match="remove the folder"):
        peer_source("peer", "/nowhere", "0" * 40)
    (folder / "ppo.py").write_text("3")
    with pytest.raises(PeerError, match="with changes"):
        peer_source("peer", "/nowhere", commit)
    with pytest.raises(PeerError, match="clone"):
        peer_source("other", str(tmp_path / "nothing"), commit)


def test_cleanrls_script_is_watched_from_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from benchmarks.rl_peers import cleanrl_ppo

    script = tmp_path / "ppo.py"
    script.write_text(
        "import sys, gymnasium as gym, numpy as np, torch.nn as nn\n"
        "class Agent(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.actor = nn.Linear(4, 2)\n"
        "assert sys.argv[1:] == ['--seed', '5', '--total-timesteps', '1000', '--num-envs', '2'], sys.argv\n"
        "envs = gym.vector.SyncVectorEnv([lambda: gym.make('CartPole-v1')] * 2)\n"
        "agent = Agent().to('cpu')\n"
        "envs.reset(seed=5)\n"
        "for step in range(500):\n"
        "    envs.step(np.array([0, 1]))\n"
    )
    monkeypatch.setattr(torch.nn.Module, "to", torch.nn.Module.to)  # put back what the hooks replace
    for name in ("reset", "step"):
        monkeypatch.setattr(gymnasium.vector.SyncVectorEnv, name, getattr(gymnasium.vector.SyncVectorEnv, name))
    monkeypatch.setattr("sys.argv", ["x"])
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    task = {"script": str(script), "seed": 5, "total": 1000, "n_envs": 2, "at_most": 100, "eval_interval": 40}
    result = cleanrl_ppo.measure(task)
    torch.set_num_threads(threads)
    assert result["num_steps"] == 100
    assert [mark.num_steps for mark in result["curve"]] == [40, 80, 100]
    assert all(8 <= mark.mean_return <= 500 for mark in result["curve"])
    assert result["wall_seconds"] > 0


def test_stable_baselines_gets_its_own_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    for name in ("stable_baselines3", "stable_baselines3.common"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    callbacks = types.SimpleNamespace(BaseCallback=object)
    monkeypatch.setitem(sys.modules, "stable_baselines3.common.callbacks", callbacks)
    monkeypatch.setitem(sys.modules, "stable_baselines3.common.env_util", types.SimpleNamespace(make_vec_env=None))
    monkeypatch.delitem(sys.modules, "benchmarks.rl_peers.stable_baselines", raising=False)
    from benchmarks.rl_peers.stable_baselines import keywords

    zoo = keywords(PPO_ZOO)
    assert set(zoo) == set(PPO_ZOO)
    assert (zoo["learning_rate"](0.5), zoo["clip_range"](1.0)) == (0.0005, 0.2)
    assert (zoo["gamma"], zoo["n_steps"]) == (0.98, 32)
    dqn = keywords(DQN_ZOO)
    assert dqn["policy_kwargs"] == {"net_arch": [256, 256], "activation_fn": torch.nn.ReLU}
    assert "activation" not in dqn
    monkeypatch.delitem(sys.modules, "benchmarks.rl_peers.stable_baselines")
