"""What an installed package adds, through whole trainings: in processes, proven, resumed, served without it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import learnloop as ll
from learnloop.algorithms.policies.onnx_export import onnx_bytes
from learnloop.core.errors import ExtensionError, NotFoundError, UsageError
from learnloop.core.extensions import POINTS
from learnloop.envs import make_stream

MODULE = '''
"""What a third party wrote."""

import gymnasium
import numpy as np

from learnloop.algorithms import A2C, A2CConfig


class KindConfig(A2CConfig, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="kind"):
    learning_rate: float = 0.003


class Kind(A2C):
    """A2C that is kind."""

    tag = "kind"
    config_type = KindConfig


class Side(gymnasium.Env):
    """Says a side; the same is right."""

    def __init__(self, as_text=True):
        self.as_text = as_text
        self.observation_space = gymnasium.spaces.Text(5) if as_text else gymnasium.spaces.Discrete(4)
        self.action_space = gymnasium.spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.side = int(self.np_random.integers(4))
        return self.shown(), {}

    def shown(self):
        return ("left", "right", "up", "down")[self.side] if self.as_text else self.side

    def step(self, action):
        return self.shown(), float(action == self.side), True, False, {}


class Initials:
    """The first letter of a text."""

    size = 4

    def encode(self, texts):
        return np.array([[text[:1] == letter for letter in "lrud"] for text in texts], dtype=np.float32)


def residual(input_size, output_size):
    """A layer around which the input goes."""
    import torch

    torch.set_num_threads(1)

    class Residual(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(input_size, input_size)
            self.outer = torch.nn.Linear(input_size, output_size)

        def forward(self, inputs):
            return self.outer(inputs + torch.tanh(self.inner(inputs)))

    return Residual()
'''
ENTRY_POINTS = """
[learnloop.algorithms]
kind = third_party:Kind
[learnloop.environments]
side = third_party:Side
[learnloop.encoders]
initials = third_party:Initials
[learnloop.networks]
residual = third_party:residual
"""
FAST = {"n_envs": 4, "eval_episodes": 10}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed package: a module, and what pip writes beside it."""
    folder = tmp_path / "site"
    (folder / "third_party-2.1.dist-info").mkdir(parents=True)
    (folder / "third_party.py").write_text(MODULE)
    (folder / "third_party-2.1.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: third-party\nVersion: 2.1\n"
    )
    (folder / "third_party-2.1.dist-info" / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(folder))
    for point in POINTS.values():
        monkeypatch.setattr(point, "_declared", None)
        monkeypatch.setattr(point, "_loaded", {})
        monkeypatch.setattr(point, "registered", {})
    yield folder
    sys.modules.pop("third_party", None)


def without(package: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Runs ``code`` in a process that does not have the package."""
    path = os.pathsep.join(each for each in sys.path if each != str(package))
    variables = {**os.environ, "PYTHONPATH": path}
    return subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=False)


def served(package: Path, run: Any, observation: Any) -> subprocess.CompletedProcess[str]:
    """Reads the best policy of a run where the package is not installed, and lets it act."""
    folder = run.folder / f"seed-{run.best.seed}" / "best"
    return without(
        package,
        "import pathlib, sys\n"
        "from learnloop.training.run_files import read_policy\n"
        f"policy = read_policy(pathlib.Path({str(folder)!r}))\n"
        f"sys.stdout.write(policy.learned_by + ' ' + str(policy.act({observation!r})))\n",
    )


def test_all_in_processes(package: Path, tmp_path: Path) -> None:
    """Several seeds, in processes of their own, whose environments are in further ones."""
    options = {**FAST, "vectorization": "subprocess", "text_encoder": "initials"}
    run = ll.train("kind", env="side", steps=2_000, seeds=2, options=options, home=tmp_path)
    assert run.evaluate(20).means == [1.0, 1.0]
    assert run.record.options.env_kwargs == {"text_encoder": "initials"}
    policy = run.best.policy
    assert msgspec.to_builtins(policy.spaces.observation) == {"type": "text", "num_buckets": 4, "encoder": "initials"}
    found = served(package, run, "left")
    assert "NotFoundError" in found.stderr
    assert "no encoder is called 'initials'" in found.stderr


def test_a_policy_is_served_without_the_package(package: Path, tmp_path: Path) -> None:
    options = {**FAST, "env_kwargs": {"as_text": False}}
    run = ll.train("kind", env="side", steps=2_000, options=options, home=tmp_path)
    found = served(package, run, 1)
    assert found.stdout == "kind 1", found.stderr


SEEN = {**FAST, "env_kwargs": {"as_text": False}, "network": "residual"}


def test_a_network_of_a_package(package: Path, tmp_path: Path) -> None:
    """Seeds in processes of their own; the same seeds end the same; the policy is served where the package is."""
    options = {**SEEN, "learning_rate": 0.01}
    run = ll.train("kind", env="side", steps=2_000, seeds=2, options=options, home=tmp_path)
    assert run.evaluate(20).means == [1.0, 1.0]
    hashes = [result.parameter_hash for result in run.record.results]
    assert len(set(hashes)) == 2
    policy = ll.open_run(home=tmp_path).best.policy
    again = ll.train("kind", env="side", steps=2_000, seeds=1, options=options, home=tmp_path)
    assert [result.parameter_hash for result in again.record.results] == hashes[:1]
    assert [int(policy.act(side)) for side in range(4)] == [0, 1, 2, 3]
    artifact = policy.to_artifact()
    assert artifact.config["network"]["module"] == "residual"
    assert "network.towers.tower_policy.outer.weight" in artifact.tensors
    assert not any("value" in name for name in artifact.tensors)
    found = served(package, run, 1)
    assert "no network is called 'residual'" in found.stderr
    with pytest.raises(UsageError, match="'residual' is a torch module of another's"):
        onnx_bytes(policy)


@pytest.mark.parametrize(
    ("algorithm", "env", "options"),
    [
        ("ppo", "side", {"shared_trunk": True, "n_steps": 64, **SEEN}),
        ("dqn", "side", {"duelling": True, "learning_starts": 50, **SEEN}),
        ("sac", "Pendulum-v1", {"learning_starts": 50, "network": "residual"}),
    ],
)
def test_a_network_in_each_family(
    package: Path, algorithm: str, env: str, options: dict[str, Any], tmp_path: Path
) -> None:
    """A run that is resumed ends as the uninterrupted one, bit for bit."""
    whole = ll.train(algorithm, env=env, steps=512, options={**options, "checkpoint_interval": 256}, home=tmp_path)
    assert whole.record.results[0].num_updates > 0
    record = json.loads((whole.folder / "run.json").read_text()) | {"status": "interrupted", "results": []}
    (whole.folder / "run.json").write_text(json.dumps(record))
    (whole.folder / "seed-0" / "result.json").unlink()
    checkpoints = sorted((whole.folder / "seed-0" / "checkpoints").iterdir())
    assert len(checkpoints) == 2
    checkpoints[1].rename(tmp_path / "newest")  # of the end: from there nothing is left to do
    again = ll.resume(home=tmp_path)
    assert again.record.results[0].parameter_hash == whole.record.results[0].parameter_hash


def test_networks_that_do_not_fit(package: Path, tmp_path: Path) -> None:
    for algorithm, options, error, message in [
        ("ppo", {"network": "resdual"}, NotFoundError, "did you mean 'residual'"),
        ("ppo", {"network": 3}, UsageError, "network is 3; the name of one is needed"),
        ("ppo", {"network": "residual", "net_arch": [8]}, UsageError, "layers of its own; leave out 'net_arch'"),
        ("dqn", {"network": "residual", "hidden_dim": 8}, UsageError, "leave out 'net_arch'"),
        ("random", {"network": "residual"}, UsageError, "random has no network that 'residual' could stand in for"),
    ]:
        with pytest.raises(error, match=message):
            ll.train(algorithm, env="CartPole-v1", steps=100, options=options, home=tmp_path)


def test_a_package_that_changed_its_encoder(package: Path, tmp_path: Path) -> None:
    options = {**FAST, "text_encoder": "initials"}
    run = ll.train("kind", env="side", steps=200, options=options, home=tmp_path)
    text = (package / "third_party.py").read_text().replace("size = 4", "size = 5")
    (package / "third_party.py").write_text(text)
    code = "import sys; sys.argv = ['learnloop']; from learnloop.training.run_files import read_policy; "
    folder = run.folder / "seed-0" / "best"
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"}
    found = subprocess.run(
        [sys.executable, "-c", f"{code}import pathlib; read_policy(pathlib.Path({str(folder)!r}))"],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "the encoder 'initials' gives 5 numbers and observation has room for 4" in found.stderr
    assert ExtensionError.__name__ in found.stderr


def test_a_run_is_resumed_only_with_the_package(package: Path, tmp_path: Path) -> None:
    options = {**FAST, "env_kwargs": {"as_text": False}, "checkpoint_interval": 200}
    run = ll.train("kind", env="side", steps=600, options=options, home=tmp_path)
    record = json.loads((run.folder / "run.json").read_text())
    record |= {"status": "interrupted", "results": []}
    (run.folder / "run.json").write_text(json.dumps(record))
    (run.folder / "seed-0" / "result.json").unlink()
    found = without(package, f"import learnloop as ll; ll.resume(home={str(tmp_path)!r})")
    assert "no algorithm is called 'kind'" in found.stderr
    again = ll.resume(home=tmp_path)
    first, second = run.record.results[0], again.record.results[0]
    assert second.parameter_hash == first.parameter_hash


def test_subprocesses_get_what_was_registered_here(package: Path) -> None:
    import third_party  # type: ignore[import-not-found]

    class Other(third_party.Side):  # type: ignore[misc]
        pass

    ll.register("environment", "other", Other)
    stream = make_stream("other", 2, vectorization="subprocess")
    try:
        assert stream.reset(0)[0].shape == (2, 256)
    finally:
        stream.close()


def test_a_name_of_a_package_is_not_registered_again(package: Path) -> None:
    with pytest.raises(UsageError, match=r"'side' is that of third-party 2\.1"):
        ll.register("environment", "side", "CartPole-v1")
    assert next(each.source for each in ll.extensions("algorithm") if each.name == "kind") == "third-party 2.1"


def test_a_cell_that_runs_again(tmp_path: Path) -> None:
    """A class that is defined again at the same place takes the place of the first; another one does not."""
    names: dict[str, Any] = {"__name__": "a_notebook"}
    cell = MODULE + "\nimport learnloop as ll\nll.register('environment', 'side-again', Side)\n"
    try:
        for answer in ("action == self.side", "7"):
            exec(cell.replace("action == self.side", answer), names)  # noqa: S102 - as a notebook does
            made = make_stream("side-again", 1, env_kwargs={"as_text": False}, check=False)
        made.reset(0)
        import numpy as np

        assert made.step(np.zeros(1, dtype=np.int64)).rewards.tolist() == [7.0]
        with pytest.raises(UsageError, match="another environment is registered as 'side-again'"):
            ll.register("environment", "side-again", "CartPole-v1")
    finally:
        POINTS["environment"].registered.clear()


def test_text_encoders_need_texts(package: Path, tmp_path: Path) -> None:
    for env, options, error, message in [
        ("cartpole", {"text_encoder": "initials"}, UsageError, "shows no text"),
        ("side", {"text_encoder": "initails"}, NotFoundError, "did you mean 'initials'"),
        ("side", {"text_encoder": "initials", "env_kwargs": {"text_encoder": "x"}}, UsageError, "without 'text_enc"),
    ]:
        with pytest.raises(error, match=message):
            ll.train("kind", env=env, steps=100, options=options, home=tmp_path)


@pytest.mark.slow
def test_it_is_proven_and_registered(package: Path, tmp_path: Path) -> None:
    """Controls of a package's algorithm train as ours do; what is registered is evaluated by its name."""
    options = {**FAST, "text_encoder": "initials"}
    run = ll.train("kind", env="side", steps=2_000, seeds=5, options=options, home=tmp_path)
    version = run.best.register("sides")
    assert (version.policy, version.version) == ("sides", 1)
    command = [sys.executable, "-m", "learnloop", "--home", str(tmp_path), "policies", "evaluate", "sides", "--json"]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    assert json.loads(found.stdout)["comparison"]["mean"] == 1.0
