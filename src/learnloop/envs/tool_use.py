"""Sequential tool use: a generator of tasks in which what pays now is not what pays.

A world has tools and intents. Each intent has a chain of tools that must be called in its order, each with the result
of the one before. An answer is worth the more the more of the chain is complete, up to 1, but it can be had at once; a
call costs, and one that helps costs four times as much as one that returns an error at once. So whoever takes what
pays best in the next step, however well it knows the whole observation, guesses before it knows anything.
``bandit_optimum`` is exact, and a world in which it is more than ``BANDIT_SHARE`` of ``optimum`` is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from learnloop.core.arrays import F32, F64, I64
from learnloop.core.checks import check_number, check_whole
from learnloop.core.errors import UsageError
from learnloop.core.seeding import generator
from learnloop.envs.spaces import refuse_step

BANDIT_SHARE = 0.6
"""No world is made in which a bandit can have more than this share of the optimum."""
IDLE_COST = 0.25
"""What a call that does not help costs, in shares of what the tool costs: it returns an error at once."""
COMPLETE_REWARD = 1.0
"""What an answer is worth once the chain is complete."""
STEPS_PER_CALL = 4
"""An episode is cut after so many steps for each tool of a chain."""

_LABEL = "tool-use"

Weigh = Callable[[F64, F64], F64]
"""The worth of states, shape ``(intents, results)``, from the rewards and the values of their actions, each of shape
``(intents, results, actions)``."""


class ToolWorld:
    """Tools, intents and their chains, drawn from ``seed``, with exact values of policies in them.

    The state of an episode is its intent and how many results of the chain are in hand. A tool costs ``cost`` times a
    number drawn from [0.5, 1.5]. The call of the next tool of the chain fails, and its result is not there, with a
    probability that is drawn for the tool from [0, 2 ``failure_rate``]. Any other call costs a quarter of that and
    changes nothing. An answer ends the episode; with k results of a chain of L it is worth ``guess_reward`` + (1 -
    ``guess_reward``) k / L. Values are sums of rewards, not discounted, over whole episodes, which
    are cut after ``max_steps``.

    Attributes:
        answers: what an answer is worth by the number of results, shape ``(length + 1,)``.
        chains: the tools of each intent in their order, shape ``(num_intents, length)``.
        costs: of each tool, shape ``(num_tools,)``.
        failure_rates: of each tool, shape ``(num_tools,)``.
        max_steps: of an episode.
    """

    def __init__(
        self,
        num_tools: int = 6,
        length: int = 3,
        num_intents: int = 4,
        seed: int = 0,
        cost: float = 0.04,
        failure_rate: float = 0.1,
        guess_reward: float = 0.25,
    ) -> None:
        """Draws the world.

        Args:
            num_tools: how many tools there are; one more action answers.
            length: how many tools the chain of an intent has, no tool twice.
            num_intents: how many intents.
            seed: of the world; that of episodes is another.
            cost: of a call, about.
            failure_rate: of calls, about.
            guess_reward: what an answer is worth without any result.

        Raises:
            UsageError: a value has no meaning, or a bandit could earn more than ``BANDIT_SHARE`` of the optimum.
        """
        check_whole(f"length of {_LABEL}", length)
        check_whole(f"num_tools of {_LABEL}", num_tools, low=length)
        check_whole(f"num_intents of {_LABEL}", num_intents)
        check_whole(f"seed of {_LABEL}", seed, low=0)
        check_number(f"cost of {_LABEL}", cost, 1e-3, 1.0)
        check_number(f"failure_rate of {_LABEL}", failure_rate, 0.0, 0.45)
        check_number(f"guess_reward of {_LABEL}", guess_reward, 0.0, COMPLETE_REWARD)
        rng = generator(seed, "tool-use", "world")
        self.chains: I64 = np.stack([rng.permutation(num_tools)[:length] for _ in range(num_intents)])
        self.costs: F64 = cost * rng.uniform(0.5, 1.5, num_tools)
        self.failure_rates: F64 = 2 * failure_rate * rng.random(num_tools)
        self.answers: F64 = guess_reward + (COMPLETE_REWARD - guess_reward) * np.arange(length + 1) / length
        self.max_steps = STEPS_PER_CALL * length
        self._check_share()

    @property
    def num_tools(self) -> int:
        """How many tools there are; the action of this number answers."""
        return len(self.costs)

    @property
    def num_intents(self) -> int:
        """How many intents there are."""
        return len(self.chains)

    @property
    def length(self) -> int:
        """How many tools a chain has."""
        return int(self.chains.shape[1])

    def optimum(self) -> float:
        """Returns what the best policy is expected to earn in an episode, by backward induction."""
        return self._expected(lambda rewards, values: values.max(axis=2))

    def bandit_optimum(self) -> float:
        """Returns what a contextual bandit can be expected to earn in an episode at most.

        The better of two: the best policy among those that take, knowing the whole state, an action of the highest
        expected reward of the next step (among equal ones the one that turns out best); and the best policy that knows
        the intent alone and always takes one action for it.
        """
        fixed = [self._by_intent(lambda rewards, values, a=a: values[:, :, a]) for a in range(self.num_tools + 1)]  # type: ignore[misc]
        return max(self._expected(_myopic), float(np.max(fixed, axis=0).mean()))

    def random_return(self) -> float:
        """Returns what uniformly drawn actions are expected to earn in an episode."""
        return self._expected(lambda rewards, values: values.mean(axis=2))

    def rewards(self) -> F64:
        """Returns the expected reward of each action, shape ``(num_intents, length + 1, num_tools + 1)``."""
        found = np.empty((self.num_intents, self.length + 1, self.num_tools + 1))
        found[:, :, :-1] = -IDLE_COST * self.costs
        for intent, chain in enumerate(self.chains):
            found[intent, np.arange(self.length), chain] = -self.costs[chain]
        found[:, :, -1] = self.answers
        return found

    def _expected(self, weigh: Weigh) -> float:
        return float(self._by_intent(weigh).mean())

    def _by_intent(self, weigh: Weigh) -> F64:
        """Returns the value of the first state of each intent, shape ``(num_intents,)``."""
        rewards = self.rewards()
        helped = np.zeros_like(rewards)  # the probability that an action adds a result
        for intent, chain in enumerate(self.chains):
            helped[intent, np.arange(self.length), chain] = 1 - self.failure_rates[chain]
        goes_on = np.ones(self.num_tools + 1)
        goes_on[-1] = 0.0
        worth = np.zeros((self.num_intents, self.length + 1))
        for _ in range(self.max_steps):
            better = np.concatenate([worth[:, 1:], worth[:, -1:]], axis=1)
            following = helped * better[:, :, None] + (1 - helped) * worth[:, :, None]
            worth = weigh(rewards, rewards + goes_on * following)
        return worth[:, 0]

    def _check_share(self) -> None:
        bandit, best = self.bandit_optimum(), self.optimum()
        if bandit > BANDIT_SHARE * best:
            raise UsageError(
                f"in this world of {_LABEL} a bandit earns up to {bandit:.3f} of {best:.3f}, more than "
                f"{BANDIT_SHARE:.0%}, so that nothing sequential need be learned; lower guess_reward "
                f"({self.answers[0]:g}), cost, failure_rate or length"
            )


def _myopic(rewards: F64, values: F64) -> F64:
    highest = rewards.max(axis=2, keepdims=True)
    best: F64 = np.where(rewards >= highest - 1e-12, values, -np.inf).max(axis=2)
    return best


class ToolUse(gymnasium.Env[F32, int]):
    """Calls the tools of a ``ToolWorld`` for an intent that is drawn for each episode.

    The observation shows the intent (one number for each, 1 for the one that is asked), the tools whose results are in
    hand (0 or 1 each), whether the last call brought nothing, and the share of the steps that are used. Actions are the
    tools, then the answer.

    Attributes:
        world: the world; it says what can be earned.
        is_running: whether an episode has begun and not ended.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012 - gymnasium's own form

    def __init__(
        self,
        num_tools: int = 6,
        length: int = 3,
        num_intents: int = 4,
        world_seed: int = 0,
        cost: float = 0.04,
        failure_rate: float = 0.1,
        guess_reward: float = 0.25,
        render_mode: str | None = None,
    ) -> None:
        """See ``ToolWorld``, whose ``seed`` is ``world_seed`` here."""
        self.world = ToolWorld(
            num_tools=num_tools,
            length=length,
            num_intents=num_intents,
            seed=world_seed,
            cost=cost,
            failure_rate=failure_rate,
            guess_reward=guess_reward,
        )
        self.render_mode = render_mode
        self._size = self.world.num_intents + self.world.num_tools + 2
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (self._size,), np.float32)
        self.action_space: Any = gymnasium.spaces.Discrete(self.world.num_tools + 1)
        self._chains: list[list[int]] = self.world.chains.tolist()
        self._answers: list[float] = self.world.answers.tolist()
        self._costs: list[float] = self.world.costs.tolist()
        self._failure_rates: list[float] = self.world.failure_rates.tolist()
        self._intent = 0
        self._num_results = 0
        self._num_steps = 0
        self.is_running = False
        self._said = "nothing yet"

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[F32, dict[str, Any]]:
        """Begins an episode with a new intent."""
        super().reset(seed=seed)
        self._intent = int(self.np_random.integers(self.world.num_intents))
        self._num_results = self._num_steps = 0
        self.is_running = True
        self._said = "nothing yet"
        return self._observe(False), self._info()

    def step(self, action: int) -> tuple[F32, float, bool, bool, dict[str, Any]]:
        """Calls a tool, or answers, which ends the episode."""
        if not self.is_running:
            raise refuse_step(_LABEL)
        self._num_steps += 1
        chain, num_results = self._chains[self._intent], self._num_results
        is_answer = action == self.world.num_tools
        if is_answer:
            reward = self._answers[num_results]
            self._said = f"answered for {reward:g}"
        elif num_results < len(chain) and action == chain[num_results]:
            reward = -self._costs[action]
            self._num_results += self.np_random.random() >= self._failure_rates[action]
            self._said = f"tool {action} {'gave its result' if self._num_results > num_results else 'failed'}"
        else:
            reward = -IDLE_COST * self._costs[action]
            self._said = f"tool {action} was of no use"
        truncated = not is_answer and self._num_steps >= self.world.max_steps
        self.is_running = not (is_answer or truncated)
        is_idle = not is_answer and self._num_results == num_results
        return self._observe(is_idle), reward, is_answer, truncated, self._info()

    def render(self) -> Any:
        """Returns a line on the last step (``ansi``)."""
        if self.render_mode is None:
            return None
        return (
            f"intent {self._intent}, step {self._num_steps} of {self.world.max_steps}: {self._said}; "
            f"{self._num_results} of {self.world.length} results\n"
        )

    def _observe(self, is_idle: bool) -> F32:
        shown = np.zeros(self._size, dtype=np.float32)
        shown[self._intent] = 1.0
        first = self.world.num_intents
        for tool in self._chains[self._intent][: self._num_results]:
            shown[first + tool] = 1.0
        shown[-2] = is_idle
        shown[-1] = self._num_steps / self.world.max_steps
        return shown

    def _info(self) -> dict[str, Any]:
        return {"intent": self._intent, "num_results": self._num_results}
