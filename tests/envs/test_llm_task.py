"""Prompts chosen against a real HTTP endpoint: scored answers, no reward for what could not be asked, learning."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from learnloop.algorithms import build_algorithm, configure
from learnloop.core.attempts import Score
from learnloop.core.errors import (
    FormatError,
    NotFoundError,
    RewardError,
    UnreachableError,
    UsageError,
)
from learnloop.envs import check_env, make_stream
from learnloop.envs.answer_scores import BUILT_IN, to_attempt
from learnloop.envs.llm_task import LLMTask
from tests.loopback import Fault, LoopbackServer

PROMPTS = ["Add: {input}", "Be brief. {input}", "Shout! {input}"]
TASKS = [{"input": f"{a} plus {b}", "target": a + b} for a in range(3) for b in range(3)]


def adder(prompt: str) -> str:
    """Adds where it is told to; answers something else otherwise."""
    if not prompt.startswith("Add: "):
        return "It depends."
    first, second = prompt.removeprefix("Add: ").split(" plus ")
    return f"The sum is {int(first) + int(second)}."


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer(adder) as opened:
        yield opened


def make(server: LoopbackServer, **settings: Any) -> LLMTask:
    defaults: dict[str, Any] = {"prompts": PROMPTS, "tasks": TASKS, "reward": "numeric", "backoff_seconds": 0.01}
    server.clients.append(env := LLMTask(base_url=server.url, model="m", **(defaults | settings)))
    return env


# The environment -----------------------------------------------------------------------------------------------------


def test_an_episode(server: LoopbackServer) -> None:
    env = make(server, max_tokens=5, temperature=0.5)
    shown, _ = env.reset(seed=0)
    observation, earned, terminated, truncated, info = env.step(0)
    assert observation == shown
    assert (earned, terminated, truncated) == (1.0, True, False)
    assert info["answer"].startswith("The sum is ")
    assert server.requests == [
        {
            "model": "m",
            "messages": [{"role": "user", "content": f"Add: {shown}"}],
            "max_tokens": 5,
            "temperature": 0.5,
        }
    ]
    assert server.paths == ["/v1/chat/completions"]
    assert "Authorization" not in server.headers[0]
    env.reset()
    assert env.step(1)[1] == 0.0
    with pytest.raises(UsageError, match="while no episode runs"):
        env.step(0)
    env.close()


@pytest.mark.parametrize("features", [False, True])
def test_it_passes_the_check_of_environments(server: LoopbackServer, features: bool) -> None:
    tasks = [{**task, "features": [index, 0.5]} for index, task in enumerate(TASKS)] if features else TASKS
    kwargs = {"base_url": server.url, "model": "m", "prompts": PROMPTS, "tasks": tasks, "reward": "numeric"}
    json.dumps(kwargs)
    assert check_env("llm-task", env_kwargs=kwargs) == []
    assert len(server.requests) == 24


def test_an_error_names_the_status(server: LoopbackServer) -> None:
    env = make(server, max_retries=1)
    env.reset(seed=0)
    server.script = [Fault(500), Fault(503)]
    with pytest.raises(UnreachableError, match=r"/chat/completions answered 503 Service Unavailable: .*busy"):
        env.step(0)
    assert env.step(0)[1] == 1.0  # the episode goes on: nothing was scored


def test_tasks_from_a_file(server: LoopbackServer, tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(json.dumps(task) + "\n\n" for task in TASKS))
    env = make(server, tasks=str(path))
    assert {env.reset(seed=seed)[0] for seed in range(100)} == {task["input"] for task in TASKS}
    path.write_text('{"input": "1 plus 1", "target": 2}\n[]\n')
    with pytest.raises(FormatError, match=r"tasks\.jsonl, line 2"):
        make(server, tasks=str(path))
    with pytest.raises(NotFoundError, match=r"no file .*none\.jsonl"):
        make(server, tasks=str(tmp_path / "none.jsonl"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"prompts": ["{input}"]}, "at least two texts"),
        ({"prompts": ["{input}", "hello"]}, r"prompt 1 .*'hello'.*\{input\}"),
        ({"tasks": []}, "no tasks"),
        ({"tasks": [{"target": 1}]}, "task 0 is .*'input'"),
        ({"tasks": [{"input": "x"}]}, "task 0 has the target None; numeric"),
        ({"tasks": [{"input": "x", "target": "many"}]}, "'many', which is no number"),
        ({"tasks": [{"input": "x", "target": 1, "features": [1]}, *TASKS]}, r"tasks have \[0, 1\] features"),
        ({"tasks": [{"input": "x", "target": 1, "features": [float("nan")]}]}, "finite numbers"),
        ({"reward": "best"}, r"reward is 'best'; give 'exact_match', 'contains', 'numeric', or 'module:function'"),
        ({"reward": "json:decoder"}, "is no function"),
        ({"timeout": 3}, "unknown field `timeout`"),
        ({"timeout_seconds": 0}, "timeout_seconds is 0"),
        ({"max_requests": 0}, "max_requests is 0"),
        ({"base_url": "localhost:80"}, "'localhost:80'; an address such as"),
        ({"base_url": "http://h:port"}, "is not a valid address"),
        ({"api_key_env": "LEARNLOOP_TEST_NO_KEY"}, "LEARNLOOP_TEST_NO_KEY .* is not set"),
    ],
)
def test_wrong_settings(settings: dict[str, Any], message: str) -> None:
    defaults: dict[str, Any] = {"prompts": PROMPTS, "tasks": TASKS, "reward": "numeric"}
    with pytest.raises(UsageError, match=message):
        LLMTask(**({"base_url": "http://127.0.0.1:9/v1", "model": "m"} | defaults | settings))


def test_a_score_whose_module_is_missing() -> None:
    with pytest.raises(NotFoundError, match="the reward 'no_such_module:f' needs the module 'no_such_module'"):
        LLMTask(base_url="http://127.0.0.1:9/v1", model="m", prompts=PROMPTS, tasks=TASKS, reward="no_such_module:f")


# Scores --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("score", "answer", "target", "value"),
    [
        ("exact_match", " Paris\n", "Paris", 1.0),
        ("exact_match", "Paris.", "Paris", 0.0),
        ("exact_match", "4", 4, 1.0),
        ("contains", "It is PARIS.", "Paris", 1.0),
        ("contains", "London", "Paris", 0.0),
        ("numeric", "2 and 2 make 4", 4, 1.0),
        ("numeric", "about 1,000.0 kg", "1000", 1.0),
        ("numeric", "-1.5e3", -1500, 1.0),
        ("numeric", "4 or 5", 4, 0.0),
        ("numeric", "four", 4, 0.0),
    ],
)
def test_built_in_scores(score: str, answer: str, target: Any, value: float) -> None:
    assert BUILT_IN[score](to_attempt("?", answer, {"target": target})) == value


def test_a_score_of_the_callers(server: LoopbackServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A score that is not known is an error, never 0."""
    module = types.ModuleType("own_scores")
    values: list[Any] = [2.5, None, float("nan"), "good"]
    module.length = lambda attempt: values.pop(0)  # type: ignore[attr-defined]
    module.broken = lambda attempt: 1 / 0  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "own_scores", module)
    env = make(server, reward="own_scores:length", tasks=[{"input": "1 plus 1"}])
    env.reset(seed=0)
    assert env.step(0)[1] == 2.5
    values.insert(0, Score.of(0.5))
    env.reset()
    assert env.step(0)[1] == 0.5
    for wrong in ("None", "nan", "'good'"):
        env.reset()
        with pytest.raises(RewardError, match=rf"'own_scores:length' is {wrong} for the answer 'The sum"):
            env.step(0)
    values.append(Score.unknown("the judge is down"))
    env.reset()
    with pytest.raises(RewardError, match=r"is None for the answer .*the judge is down"):
        env.step(0)
    env = make(server, reward="own_scores:broken")
    env.reset(seed=0)
    with pytest.raises(UsageError, match="raised ZeroDivisionError"):
        env.step(0)


# Learning ------------------------------------------------------------------------------------------------------------


def by_input(prompt: str) -> str:
    """Solves sums where it is told to add, and capitals where it is told to be brief."""
    start, _, question = prompt.partition(": ")
    if "plus" in question:
        return adder(f"Add: {question}") if start == "Add" else "It depends."
    return {"capital of France": "Paris", "capital of Peru": "Lima"}[question] if start == "Brief" else "A city."


def test_the_best_prompt_for_each_kind_of_task_is_learned(server: LoopbackServer, tmp_path: Path) -> None:
    """Sums need one prompt and capitals another: neither alone earns more than half."""
    server.model = by_input
    capitals = [("France", "Paris"), ("Peru", "Lima")]
    tasks = [{"input": f"capital of {country}", "target": city} for country, city in capitals]
    tasks += [{"input": f"{a} plus {a}", "target": str(2 * a)} for a in range(2)]
    kwargs = {
        "base_url": server.url,
        "model": "m",
        "prompts": ["Add: {input}", "Brief: {input}", "Shout: {input}"],
        "tasks": tasks,
        "reward": "contains",
        "cache": str(tmp_path / "answers"),
    }
    config = configure("dqn", {"learning_rate": 1e-3, "learning_starts": 50, "train_freq": 1, "gamma": 0.0})
    stream = make_stream("llm-task", num_envs=4, env_kwargs=kwargs)
    algorithm = build_algorithm(config, stream.spaces, num_envs=4, seed=0)
    observations, masks = stream.reset(0)
    earned = []
    for number in range(150):
        algorithm.set_progress(number / 150)
        step = stream.step(algorithm.choose(observations, masks))
        algorithm.record(step)
        algorithm.learn()
        observations, masks = step.observations, step.masks
        earned.append(step.rewards.mean())
    stream.close()
    assert np.mean(earned[-30:]) > 0.8
