"""Which prompt makes a model solve a task: an environment of one step over any OpenAI-compatible endpoint.

The policy sees a task's input and picks one of the prompts; the prompt goes to the model, and its answer is scored.
What could not be asked or scored is an error, never a reward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from learnloop.core.checks import check_whole
from learnloop.core.decoding import convert_record, decode_json
from learnloop.core.errors import NotFoundError, UsageError
from learnloop.envs.answer_scores import check_target, find_score, scored, to_attempt
from learnloop.envs.spaces import refuse_step
from learnloop.models import ChatEndpoint, EndpointConfig

_LABEL = "llm-task"
SLOT = "{input}"
"""Where a prompt has the task's input."""

Observation = str | dict[str, Any]


class LLMTask(gymnasium.Env[Any, int]):
    """Tasks, drawn one an episode, and prompts to choose from.

    Shows the task's input as text; where tasks have ``features``, a list of numbers, a dict of ``features`` and
    ``input``. ``info`` after the step has the ``answer``, and the ``num_requests`` that were sent so far.

    A task is a mapping with ``input``, what the score looks at (``target`` for the built-in ones), and anything else.
    """

    def __init__(
        self,
        prompts: Sequence[str],
        tasks: Sequence[Mapping[str, Any]] | str,
        reward: str = "exact_match",
        **endpoint: Any,
    ) -> None:
        """Checks everything but the endpoint, which is asked when a prompt is chosen.

        Args:
            prompts: what can be sent; ``{input}`` in each is replaced by the task's input.
            tasks: the tasks, or a JSON Lines file of them.
            reward: ``exact_match``, ``contains``, ``numeric``, or ``module:function``, called with the attempt: what
                was sent, the answer, the task's ``target`` as ``expected`` and the task as ``metadata``.
            endpoint: the fields of ``EndpointConfig``: ``base_url``, ``model``, ``max_tokens``, ``temperature``,
                ``timeout_seconds``, ``api_key_env``, ``cache``, ``max_requests`` (of this one environment) ...

        Raises:
            UsageError: a value has no meaning.
            NotFoundError: there is no such file of tasks.
            FormatError: a line of it is no task.
        """
        self._prompts = _checked_prompts(prompts)
        self._tasks = _read_tasks(Path(tasks)) if isinstance(tasks, str) else list(tasks)
        self._reward = reward
        self._score = find_score(reward)
        self._num_features = _check_tasks(self._tasks, reward)
        hint = "; see EndpointConfig for what can be said of the endpoint"
        self._endpoint = ChatEndpoint(convert_record(endpoint, _LABEL, EndpointConfig, hint=hint))
        self._task: Mapping[str, Any] | None = None
        inputs = [task["input"] for task in self._tasks]
        text = gymnasium.spaces.Text(
            max_length=max(map(len, inputs)), min_length=0, charset=frozenset("".join(inputs)) or frozenset(" ")
        )
        self.observation_space: gymnasium.Space[Any] = text
        if self._num_features:
            numbers = gymnasium.spaces.Box(-np.inf, np.inf, (self._num_features,), np.float32)
            self.observation_space = gymnasium.spaces.Dict({"features": numbers, "input": text})
        self.action_space: Any = gymnasium.spaces.Discrete(len(self._prompts))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Draws a task."""
        super().reset(seed=seed)
        self._task = task = self._tasks[int(self.np_random.integers(len(self._tasks)))]
        return self._shown(task), {}

    def step(self, action: int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Sends the chosen prompt, scores the answer and ends the episode.

        Raises:
            UnreachableError: the endpoint does not answer; see ``ChatEndpoint.complete`` for this and other failures.
            RewardError: the score is not a finite number.
        """
        task = self._task
        if task is None:
            raise refuse_step(_LABEL)
        check_whole(f"action of {_LABEL}", action, 0, len(self._prompts) - 1)
        prompt = self._prompts[int(action)].replace(SLOT, task["input"])
        answer = self._endpoint.complete(prompt).text
        reward = scored(self._reward, self._score, to_attempt(prompt, answer, task))
        self._task = None
        return self._shown(task), reward, True, False, {"answer": answer, "num_requests": self._endpoint.num_requests}

    def close(self) -> None:
        """Closes the connection."""
        self._endpoint.close()

    def _shown(self, task: Mapping[str, Any]) -> Observation:
        if not self._num_features:
            return str(task["input"])
        return {"features": np.array(task["features"], dtype=np.float32), "input": task["input"]}


def _checked_prompts(prompts: object) -> list[str]:
    if isinstance(prompts, str) or not isinstance(prompts, Sequence) or len(prompts) < 2:
        raise UsageError(f"prompts of {_LABEL} is {prompts!r}; a list of at least two texts to choose from is needed")
    for number, prompt in enumerate(prompts):
        if not isinstance(prompt, str) or SLOT not in prompt:
            raise UsageError(f"prompt {number} of {_LABEL} is {prompt!r}; a text with {SLOT} in it is needed")
    return list(prompts)


def _read_tasks(path: Path) -> list[Mapping[str, Any]]:
    if not path.is_file():
        raise NotFoundError(f"{_LABEL}: no file {str(path)!r}; name a JSON Lines file of tasks, or give a list of them")
    tasks: list[Mapping[str, Any]] = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        if line.strip():
            tasks.append(decode_json(line, f"{path.name}, line {number}, is no task", dict[str, Any]))
    return tasks


def _check_tasks(tasks: Sequence[object], reward: str) -> int:
    """Returns how many features each task has."""
    if not tasks:
        raise UsageError(f"{_LABEL} has no tasks; give at least one")
    sizes: set[int] = set()
    for number, task in enumerate(tasks):
        if not isinstance(task, Mapping) or not isinstance(task.get("input"), str):
            raise UsageError(f"task {number} is {task!r}; a mapping with a text under 'input' is needed")
        check_target(reward, task, number)
        sizes.add(_num_features(task, number))
    if len(sizes) > 1:
        raise UsageError(f"tasks have {sorted(sizes)} features; each must have as many")
    return sizes.pop()


def _num_features(task: Mapping[str, Any], number: int) -> int:
    features = task.get("features", ())
    if isinstance(features, str) or not isinstance(features, Sequence):
        raise UsageError(f"task {number} has the features {features!r}; a list of numbers is needed")
    fine = all(isinstance(each, int | float) and abs(each) < 1e30 for each in features)
    if not fine:
        raise UsageError(f"task {number} has the features {list(features)}; finite numbers are needed")
    return len(features)
