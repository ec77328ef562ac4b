"""What a policy earns in an environment, over whole episodes that never depend on the policy or on training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import gymnasium
import msgspec
import numpy as np
from gymnasium.vector import VectorEnv

from learnloop.core.arrays import F32
from learnloop.core.checks import check_whole
from learnloop.core.errors import UsageError
from learnloop.core.seeding import derive_seed
from learnloop.core.spaces import Spaces
from learnloop.core.stepping import Actions, Masks
from learnloop.envs.registry import EnvMaker, MadeEnv, label_of, make_env, resolve_env
from learnloop.envs.streams.masks import with_masks
from learnloop.envs.streams.stream import StepBlock
from learnloop.envs.streams.sync_stream import SyncEnvs, spaces_of
from learnloop.nn.encoders.observation_encoder import ObservationEncoder

SEED_BITS = 0x7FFF_FFFF
"""Environments are given seeds of 31 bits, which each of them takes."""
MAX_EPISODE_STEPS = 100_000
"""An episode of an environment without a limit of its own is given up after so many steps, and named."""


class BatchPolicy(Protocol):
    """Chooses an action for each of several encoded observations."""

    def choose(self, observations: F32, masks: Masks | None = None) -> Actions:
        """Returns an action for each row, shape ``(batch, size)``; how many rows there are varies."""
        ...


class Returns(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a policy earned in each episode."""

    env: str
    seed: int
    returns: tuple[float, ...]
    """The sum of rewards of each episode, not discounted, in the order of their numbers."""
    lengths: tuple[int, ...]
    """Steps of each episode."""
    mean: float
    std: float
    """Over episodes; divided by their number, as Stable-Baselines3's ``evaluate_policy`` does."""
    unfinished: tuple[int, ...]
    """The numbers of episodes that did not end within ``max_episode_steps``: their returns are what was earned till
    then, and the mean is not that of whole episodes. Empty where all ended."""
    max_episode_steps: int


def evaluate_returns(
    policy: BatchPolicy,
    env: str | EnvMaker | gymnasium.Env[Any, Any],
    *,
    num_episodes: int = 20,
    seed: int,
    env_kwargs: Mapping[str, Any] | None = None,
    max_envs: int = 64,
    max_episode_steps: int | None = None,
) -> Returns:
    """Returns what ``policy`` earns in ``num_episodes`` whole episodes of ``env``.

    Episode k starts from the seed that derives from (``seed``, "evaluation", k), however many run at once and whatever
    the policy does: two policies with one ``seed`` meet the same episodes, and no training has met them. Each episode
    is played to its end, so short ones do not count more than long ones.

    Args:
        policy: what is judged; it sees a batch of all running episodes.
        env: an id or an alias, a callable that returns an environment, or an environment (one episode at a time).
        num_episodes: how many.
        seed: of the episodes.
        env_kwargs: what ids and callables are called with.
        max_envs: at most so many episodes run at once.
        max_episode_steps: an episode is given up after so many steps and named in ``unfinished``; None: the limit of
            the environment, else ``MAX_EPISODE_STEPS``.

    Raises:
        UsageError: an argument is out of range, the policy is for another environment, or the environment breaks
            gymnasium's rules.
        NotFoundError: there is no environment of this name.
    """
    found = evaluate_side_by_side(
        {"": policy},
        env,
        num_episodes=num_episodes,
        seed=seed,
        env_kwargs=env_kwargs,
        max_envs=max_envs,
        max_episode_steps=max_episode_steps,
        num_turns=1,
    )
    return found[""]


def evaluate_side_by_side(
    policies: Mapping[str, BatchPolicy],
    env: str | EnvMaker | gymnasium.Env[Any, Any],
    *,
    num_episodes: int = 20,
    seed: int,
    env_kwargs: Mapping[str, Any] | None = None,
    max_envs: int = 64,
    max_episode_steps: int | None = None,
    num_turns: int = 12,
) -> dict[str, Returns]:
    """Returns what each of ``policies`` earns in the same episodes, as ``evaluate_returns`` would, by their names.

    They take turns, each turn in another order, so that an environment that changes with the clock changes for all of
    them alike.

    Args:
        policies: what is judged, by name.
        env: as for ``evaluate_returns``.
        num_episodes: how many, of each.
        seed: of the episodes.
        env_kwargs: as for ``evaluate_returns``.
        max_envs: at most so many episodes run at once.
        max_episode_steps: as for ``evaluate_returns``.
        num_turns: in how many parts the episodes are played, at most one an episode.

    Raises:
        UsageError: as ``evaluate_returns``.
        NotFoundError: there is no environment of this name.
    """
    for name, value in {"num_episodes": num_episodes, "max_envs": max_envs, "num_turns": num_turns}.items():
        check_whole(name, value)
    if max_episode_steps is not None:
        check_whole("max_episode_steps", max_episode_steps)
    check_whole("seed", seed, None)
    if env_kwargs is not None and not isinstance(env_kwargs, Mapping):
        raise UsageError(f"env_kwargs is {env_kwargs!r}; arguments by their names are needed, or None")
    turns = np.array_split(np.arange(num_episodes), min(num_turns, num_episodes))
    made, label = _make(env, min(len(turns[0]), max_envs), env_kwargs)
    played: dict[str, list[_Games]] = {name: [] for name in policies}
    try:
        spaces = spaces_of(made[0].env)
        for policy in policies.values():
            _check_policy(policy, spaces, label)
        limit = max_episode_steps or made[0].max_steps or _spec_limit(made[0].env) or MAX_EPISODE_STEPS
        for number, turn in enumerate(turns):
            order = list(policies)
            for name in np.roll(order, -number).tolist():
                games = _Games(SyncEnvs(made[: len(turn)], label, spaces), range(turn[0], turn[-1] + 1), seed, limit)
                games.play(policies[name])
                played[name].append(games)
    finally:
        if not isinstance(env, gymnasium.Env):
            for each in made:
                each.env.close()
    return {name: _returns_of(games, label, seed, limit) for name, games in played.items()}


def _returns_of(played: Sequence[_Games], label: str, seed: int, limit: int) -> Returns:
    returns = np.concatenate([games.returns for games in played])
    return Returns(
        env=label,
        seed=seed,
        returns=tuple(returns.tolist()),
        lengths=tuple(np.concatenate([games.lengths for games in played]).tolist()),
        mean=float(returns.mean()),
        std=float(returns.std()),
        unfinished=tuple(sorted(games.first + number for games in played for number in games.unfinished)),
        max_episode_steps=limit,
    )


class _Games:
    """Episodes that are being played: row j of the arrays is the episode that runs in env ``running[j]``."""

    def __init__(self, envs: SyncEnvs, episodes: range, seed: int, limit: int) -> None:
        self.first = episodes.start
        """The number of the first of these episodes, which those here are counted from."""
        self.returns = np.zeros(len(episodes))
        self.lengths = np.zeros(len(episodes), dtype=np.int64)
        self.unfinished: list[int] = []
        self._envs = envs
        self._seed = seed
        self._limit = limit
        self._next = 0
        self._running = list(range(len(envs)))
        num, size = len(envs), envs.encoder.size
        self._block, self._other = (StepBlock(num, size, envs.spaces.action) for _ in range(2))
        self._episodes = np.zeros(num, dtype=np.int64)
        for row in range(num):
            self._begin(row)
        self._check_masks()

    def play(self, policy: BatchPolicy) -> None:
        """Plays until all episodes are over."""
        while self._running:
            num = len(self._running)
            masks = self._block.final_masks[:num] if self._envs.has_masks else None
            actions = policy.choose(self._block.finals[:num], masks)
            self._block, self._other = self._other, self._block
            ended = self._envs.advance(self._block, actions, self._running)
            episodes = self._episodes[:num]
            self.returns[episodes] += self._block.rewards[:num]
            self.lengths[episodes] += 1
            given_up = set((self.lengths[episodes] >= self._limit).nonzero()[0].tolist()) - set(ended)
            self.unfinished += [int(episodes[row]) for row in given_up]
            if ended or given_up:
                self._go_on(sorted({*ended, *given_up}))

    def _go_on(self, over: list[int]) -> None:
        """Begins the next episodes in the envs whose episode is over; an env without one is stepped no more."""
        idle = {row for row in over if not self._begin(row)}
        if idle:
            keep = [row for row in range(len(self._running)) if row not in idle]
            num = len(keep)
            self._block.finals[:num] = self._block.finals[keep]
            self._block.final_masks[:num] = self._block.final_masks[keep]
            self._episodes[:num] = self._episodes[keep]
            self._running = [self._running[row] for row in keep]
        self._check_masks()

    def _begin(self, row: int) -> bool:
        if self._next == len(self.returns):
            return False
        block = self._block
        seed = derive_seed(self._seed, "evaluation", self.first + self._next) & SEED_BITS
        self._envs.begin(self._running[row], block, row, seed)
        block.finals[row] = block.observations[row]  # what is chosen on next lies in finals
        block.final_masks[row] = block.masks[row]
        self._episodes[row] = self._next
        self._next += 1
        return True

    def _check_masks(self) -> None:
        if self._envs.has_masks and self._running:
            self._envs.check_masks(self._block.final_masks[: len(self._running)], self._running)


def _make(
    env: str | EnvMaker | gymnasium.Env[Any, Any], num_envs: int, env_kwargs: Mapping[str, Any] | None
) -> tuple[list[MadeEnv], str]:
    given: object = env
    if isinstance(given, VectorEnv):
        raise UsageError(
            f"{label_of(given)} is a vector environment, whose episodes cannot be seeded one by one; give the id, or a "
            "callable that returns a single environment"
        )
    if isinstance(env, gymnasium.Env):
        return [MadeEnv(with_masks(env), None)], label_of(env)
    target = resolve_env(env) if isinstance(env, str) else env
    return [make_env(target, env_kwargs) for _ in range(num_envs)], label_of(target)


def _spec_limit(env: gymnasium.Env[Any, Any]) -> int | None:
    return None if env.spec is None else env.spec.max_episode_steps


def _check_policy(policy: BatchPolicy, spaces: Spaces, label: str) -> None:
    theirs = getattr(policy, "spaces", None)
    if not isinstance(theirs, Spaces):
        return
    ours, size = ObservationEncoder(spaces.observation).size, ObservationEncoder(theirs.observation).size
    if ours != size or theirs.action != spaces.action:
        raise UsageError(
            f"the policy sees {size} numbers and acts in {theirs.action}; {label} shows {ours} and needs "
            f"{spaces.action}"
        )
