"""Goals that are reached by actions with effects: the environment, and what executes its actions.

The environment knows nothing of the world. An executor performs each action and says what came of it; a verifier,
which each goal brings, says whether the goal is reached. Where no executor is given, ``GoalCommands`` runs commands in
a sandbox; ``make_executor="simulated"`` takes ``GoalSimulator`` instead, which is thousands of times faster. Which of
them it is, ``info["simulated"]`` says at every step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import gymnasium
import msgspec
import numpy as np

from learnloop.core.arrays import F32
from learnloop.core.checks import check_choice, check_number, check_whole
from learnloop.core.decoding import convert_record
from learnloop.core.errors import UsageError, one_of
from learnloop.envs.goals.commands import GoalCommands
from learnloop.envs.goals.records import CRASHED, DONE, FAILED, NOTHING, Goal, GoalExecutor, Outcome
from learnloop.envs.goals.simulator import GoalSimulator
from learnloop.envs.spaces import refuse_step

_LABEL = "goal-task"

Shown = dict[str, Any]


class GoalRewards(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a step earns: the sum of all that apply."""

    step: float = -0.01
    """Each step."""
    success: float = 1.0
    """The goal is reached."""
    failure: float = -0.5
    """The action failed or crashed."""
    crash: float = -1.0
    """The action crashed: beside ``failure``."""
    speed_bonus: float = 0.2
    """The goal is reached by an action that took less than ``fast_seconds``."""
    fast_seconds: float = 0.1

    def __post_init__(self) -> None:
        """Refuses values without a meaning."""
        for name in ("step", "failure", "crash"):
            check_number(f"the reward {name!r} of {_LABEL}", getattr(self, name), high=0.0)
        for name in ("success", "speed_bonus", "fast_seconds"):
            check_number(f"the reward {name!r} of {_LABEL}", getattr(self, name), low=0.0)

    def of(self, outcome: Outcome) -> float:
        """Returns what a step with this outcome earns."""
        reward = self.step
        if outcome.failed or outcome.crashed:
            reward += self.failure
        if outcome.crashed:
            reward += self.crash
        if outcome.succeeded:
            reward += self.success + (self.speed_bonus if outcome.seconds < self.fast_seconds else 0.0)
        return reward


class GoalTask(gymnasium.Env[Shown, int]):
    """Reaches goals by actions. It ends in success, ends in a crash, or is cut after ``max_steps``.

    The observation is a dict: ``goal`` (its number, or its text), ``state`` (what the executor shows), ``last`` (of the
    last action: nothing yet, done, failed, crashed) and ``step_share`` (of the steps that are used). The goal of an
    episode is drawn, unless ``reset(options={"goal": NAME})`` says one.

    Attributes:
        executor: performs the actions.
        goals: that are asked for.
        rewards: what steps earn.
        is_running: whether an episode has begun and not ended.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012 - gymnasium's own form

    def __init__(
        self,
        make_executor: Callable[[], GoalExecutor] | Literal["commands", "simulated"] = "commands",
        goals: Sequence[Goal] | None = None,
        rewards: GoalRewards | Mapping[str, float] | None = None,
        max_steps: int = 50,
        crash_terminates: bool = True,
        goal_view: Literal["number", "text"] = "number",
        masked: bool = False,
        render_mode: str | None = None,
    ) -> None:
        """Makes the executor.

        Args:
            make_executor: makes one executor; several environments side by side call it once each. "commands":
                ``GoalCommands``; "simulated": ``GoalSimulator``, which executes nothing.
            goals: asked for; None: all that the executor knows.
            rewards: what steps earn; as a mapping, what is left out is as in ``GoalRewards``.
            max_steps: an episode is cut after so many.
            crash_terminates: whether a crash ends an episode; else it goes on.
            goal_view: whether the goal is shown by its number among ``goals`` or by its text, which lets a policy be
                asked for goals that it was not trained on.
            masked: whether ``info["action_mask"]`` says which actions make sense.
            render_mode: ``ansi`` or None.

        Raises:
            UsageError: a value has no meaning, or the executor does not fit.
            SandboxError: the default executor cannot protect this machine, so nothing is executed.
        """
        check_whole(f"max_steps of {_LABEL}", max_steps)
        check_choice(f"goal_view of {_LABEL}", goal_view, ("number", "text"))
        check_choice(f"crash_terminates of {_LABEL}", crash_terminates, (True, False))
        check_choice(f"masked of {_LABEL}", masked, (True, False))
        self.executor = _executor(make_executor)
        self.goals = tuple(self.executor.goals if goals is None else goals)
        self.rewards = _rewards(rewards)
        self.max_steps = max_steps
        self.render_mode = render_mode
        _check_names("goals", [goal.name for goal in self.goals])
        _check_names("actions", self.executor.actions)
        self._numbers = {goal.name: number for number, goal in enumerate(self.goals)}
        self._crash_terminates = crash_terminates
        self._shows_text = goal_view == "text"
        self._masked = masked
        self.action_space: Any = gymnasium.spaces.Discrete(len(self.executor.actions))
        self.observation_space: Any = self._observation_space()
        self._goal = self.goals[0]
        self._num_steps = 0
        self.is_running = False
        self._said = "nothing yet"

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Shown, dict[str, Any]]:
        """Begins an episode with a goal.

        Raises:
            UsageError: ``options`` name a goal that there is not.
        """
        super().reset(seed=seed)
        self._goal = self.goals[self._draw_goal(options or {})]
        state = self.executor.start(self._goal, int(self.np_random.integers(2**31)))
        self._num_steps = 0
        self.is_running = True
        self._said = "nothing yet"
        return self._observe(state, NOTHING), self._info({"is_success": False})

    def step(self, action: int) -> tuple[Shown, float, bool, bool, dict[str, Any]]:
        """Performs an action.

        Raises:
            UsageError: no episode runs, or what the executor says contradicts itself.
        """
        if not self.is_running:
            raise refuse_step(_LABEL)
        name = self.executor.actions[action]
        outcome = self.executor.perform(int(action))
        _check_outcome(name, outcome)
        self._num_steps += 1
        terminated = outcome.succeeded or (outcome.crashed and self._crash_terminates)
        truncated = not terminated and self._num_steps >= self.max_steps
        self.is_running = not (terminated or truncated)
        last = CRASHED if outcome.crashed else FAILED if outcome.failed else DONE
        self._said = f"{name} {('', 'done', 'failed', 'crashed')[last]} in {outcome.seconds:.2f} s"
        more = {"is_success": outcome.succeeded, "action": name, "seconds": outcome.seconds, "crashed": outcome.crashed}
        return self._observe(outcome.state, last), self.rewards.of(outcome), terminated, truncated, self._info(more)

    def render(self) -> Any:
        """Returns a line on the last step (``ansi``)."""
        if self.render_mode is None:
            return None
        kind = "simulated, " if self.executor.is_simulated else ""
        return f"{kind}{self._goal.name}, step {self._num_steps} of {self.max_steps}: {self._said}\n"

    def close(self) -> None:
        """Closes the executor."""
        self.executor.close()

    def _draw_goal(self, options: Mapping[str, Any]) -> int:
        named = options.get("goal")
        if named is None:
            return int(self.np_random.integers(len(self.goals)))
        if named not in self._numbers:
            raise UsageError(f"{_LABEL} has no goal {named!r}; it has {one_of(self._numbers)}")
        return self._numbers[named]

    def _observation_space(self) -> gymnasium.spaces.Dict:
        texts = [goal.text for goal in self.goals]
        goal: gymnasium.Space[Any] = gymnasium.spaces.Discrete(len(self.goals))
        if self._shows_text:
            goal = gymnasium.spaces.Text(max(map(len, texts)), charset=frozenset("".join(texts)))
        return gymnasium.spaces.Dict(
            {
                "goal": goal,
                "state": gymnasium.spaces.Box(-1.0, 1.0, (self.executor.state_size,), np.float32),
                "last": gymnasium.spaces.Discrete(4),
                "step_share": gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32),
            }
        )

    def _observe(self, state: F32, last: int) -> Shown:
        return {
            "goal": self._goal.text if self._shows_text else self._numbers[self._goal.name],
            "state": state,
            "last": last,
            "step_share": np.array([self._num_steps / self.max_steps], dtype=np.float32),
        }

    def _info(self, more: dict[str, Any]) -> dict[str, Any]:
        info = {"simulated": self.executor.is_simulated, "goal": self._goal.name, **more}
        if self._masked:
            allowed = self.executor.allowed()
            is_known = allowed is not None and bool(allowed.any())
            info["action_mask"] = allowed if is_known else np.ones(len(self.executor.actions), dtype=np.bool_)
        return info


def _executor(make_executor: Callable[[], object] | str) -> GoalExecutor:
    if not callable(make_executor):
        check_choice(f"make_executor of {_LABEL}", make_executor, ("commands", "simulated"))
        make_executor = GoalSimulator if make_executor == "simulated" else GoalCommands
    made = make_executor()
    if not isinstance(made, GoalExecutor):
        raise UsageError(
            f"make_executor of {_LABEL} made {made!r}; an object with goals, actions, state_size, is_simulated, start, "
            "perform, allowed and close is needed"
        )
    return made


def _rewards(rewards: GoalRewards | Mapping[str, float] | None) -> GoalRewards:
    if rewards is None or isinstance(rewards, GoalRewards):
        return rewards or GoalRewards()
    hint = f"; they have {one_of(GoalRewards.__struct_fields__)}"
    return convert_record(rewards, f"rewards of {_LABEL} are {rewards!r}", GoalRewards, hint=hint)


def _check_names(what: str, names: Sequence[str]) -> None:
    if not names or len(set(names)) != len(names):
        raise UsageError(f"{what} of {_LABEL} are {list(names)!r}; at least 1 is needed, each with a name of its own")


def _check_outcome(action: str, outcome: Outcome) -> None:
    if outcome.succeeded and (outcome.failed or outcome.crashed):
        raise UsageError(f"the executor says that {action!r} failed or crashed and reached the goal; only one is right")
    if not math.isfinite(outcome.seconds) or outcome.seconds < 0:
        raise UsageError(f"the executor says that {action!r} took {outcome.seconds!r} seconds; at least 0 is needed")
