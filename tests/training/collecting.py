"""Data sets from environments: what policies did there, whole episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from learnloop.algorithms.policies.network_policy import NetworkPolicy
from learnloop.core.arrays import F32, I64
from learnloop.core.datasets import Dataset
from learnloop.core.errors import UsageError
from learnloop.core.seeding import derive_seed
from learnloop.core.spaces import Box, Spaces, num_choices
from learnloop.core.stepping import Actions, EnvStep, Masks
from learnloop.envs import EnvStream, make_stream
from learnloop.envs.streams.make import AnyEnv
from learnloop.evaluation.returns import MAX_EPISODE_STEPS, BatchPolicy
from learnloop.nn.encoders.action_codec import ActionCodec


def collect_dataset(
    env: AnyEnv,
    policies: BatchPolicy | Literal["random"] | Sequence[BatchPolicy | Literal["random"]],
    *,
    num_steps: int | None = None,
    num_episodes: int | None = None,
    seed: int,
    mix: Sequence[float] | None = None,
    num_envs: int | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
) -> Dataset:
    """Returns what ``policies`` do in ``env``: the episodes of the first, then of the next, without goals.

    Each policy's episodes are the first ones that it began, so that long ones are not left out for being late. The same
    arguments give the same data set if the policies draw the same: those of a ``sampled`` policy are its own.

    Args:
        env: what ``make_stream`` takes.
        policies: one or several; ``"random"``: any allowed action.
        num_steps: at least so many steps, and no whole episode more than needed for each policy's share.
        num_episodes: so many episodes, instead of ``num_steps``.
        seed: of the environments, and of ``"random"``.
        mix: the share of each policy in the steps (or episodes); None: equal ones. They are divided by their sum.
        num_envs: how many environments run at once; None: 1, or as many as a vector environment has.
        env_kwargs: what ids and callables are called with.

    Raises:
        UsageError: an argument is out of range, a policy is for other spaces, or the environment breaks the rules.
        NotFoundError: there is no environment of this name.
    """
    several = list(policies) if isinstance(policies, list | tuple) else [policies]
    counts = _counts(num_steps, num_episodes, mix, len(several))
    stream = make_stream(env, num_envs, env_kwargs=env_kwargs)
    try:
        logs = []
        for number, (policy, count) in enumerate(zip(several, counts, strict=True)):
            log = _Log(stream.num_envs)
            log.play(stream, _policy(policy, stream.spaces, seed, number), derive_seed(seed, "collect", number), count)
            logs.append(log.columns(stream.spaces))
        source = f"{env if isinstance(env, str) else 'an environment'}, {len(several)} policies, seed {seed}"
        return _join(logs, stream.spaces, source)
    finally:
        if isinstance(env, str) or callable(env):
            stream.close()


class _Count(NamedTuple):
    """How much is wanted; None: it does not matter."""

    steps: int | None
    episodes: int | None

    def is_met(self, num_steps: int, num_episodes: int) -> bool:
        if self.steps is not None:
            return num_steps >= self.steps
        return self.episodes is not None and num_episodes >= self.episodes


def _counts(
    num_steps: int | None, num_episodes: int | None, mix: Sequence[float] | None, num_policies: int
) -> list[_Count]:
    if (num_steps is None) == (num_episodes is None):
        raise UsageError("say how much to collect: num_steps or num_episodes, one of them")
    name, total = ("num_steps", num_steps) if num_steps is not None else ("num_episodes", num_episodes)
    if total is None or total < num_policies or not num_policies:
        raise UsageError(
            f"{name} is {total} for {num_policies} policies; at least 1 policy, and 1 for each, are needed"
        )
    shares = [1.0] * num_policies if mix is None else list(mix)
    if len(shares) != num_policies or not all(0 < share < float("inf") for share in shares):
        raise UsageError(f"mix is {mix}; a share above 0 for each of the {num_policies} policies is needed")
    ends = np.rint(np.cumsum(shares) / sum(shares) * total).astype(int).tolist()
    parts = [max(1, end - start) for start, end in zip([0, *ends], ends, strict=False)]
    return [_Count(part, None) if num_steps is not None else _Count(None, part) for part in parts]


def _policy(policy: object, spaces: Spaces, seed: int, number: int) -> Any:
    if isinstance(policy, str):
        if policy != "random":
            raise UsageError(f"{policy!r} is no policy; give one that chooses, or 'random'")
        drawn = derive_seed(seed, "random", number)
        return NetworkPolicy(spaces, None, outputs="uniform", learned_by="random", seed=drawn)
    theirs = getattr(policy, "spaces", spaces)
    if theirs != spaces:
        raise UsageError(f"policy {number} is for {theirs}, and the environment has {spaces}; give one for the same")
    return policy


class _Tick(NamedTuple):
    """One step of all envs; the arrays are copies."""

    observations: F32
    masks: Masks | None
    actions: Actions
    step: EnvStep


class _Episode:
    """Where an episode lies: from tick ``start`` to before ``stop`` in an env; ``stop`` 0: it still runs."""

    def __init__(self, lane: int, start: int) -> None:
        self.lane, self.start, self.stop = lane, start, 0


class _Log:
    """What one policy did, tick by tick, and where its episodes lie in that."""

    def __init__(self, num_envs: int) -> None:
        self._ticks: list[_Tick] = []
        self._begun: list[_Episode] = [_Episode(lane, 0) for lane in range(num_envs)]
        self._running = list(self._begun)
        self._num_whole = self._num_steps = 0
        """Of the episodes that were begun first and have all ended."""

    def play(self, stream: EnvStream, policy: BatchPolicy, seed: int, count: _Count) -> None:
        """Plays until the first episodes are as many, or as long, as wanted."""
        codec = ActionCodec(stream.spaces.action)
        observations, masks = stream.reset(seed)
        while not count.is_met(self._num_steps, self._num_whole):
            if len(self._ticks) - self._begun[self._num_whole].start > MAX_EPISODE_STEPS:
                raise UsageError(
                    f"an episode has not ended within {MAX_EPISODE_STEPS:,} steps, and a data set is of whole "
                    "episodes; give the environment a time limit (max_episode_steps)"
                )
            actions = np.array(codec.clip(policy.choose(observations, masks)))
            seen = observations.copy(), None if masks is None else masks.copy()
            step = stream.step(actions)
            self._ticks.append(_Tick(*seen, actions, _copied(step)))
            observations, masks = step.observations, step.masks
            if step.valid is not None:
                for lane in np.flatnonzero(~step.valid):  # it only reset itself: its episode begins with the next tick
                    self._running[lane].start = len(self._ticks)
            ended = np.flatnonzero(step.terminated | step.truncated)
            if len(ended):
                self._end(ended.tolist(), count)

    def _end(self, lanes: list[int], count: _Count) -> None:
        now = len(self._ticks)
        for lane in lanes:
            self._running[lane].stop = now
            self._running[lane] = _Episode(lane, now)
            self._begun.append(self._running[lane])
        for episode in self._begun[self._num_whole :]:
            if not episode.stop or count.is_met(self._num_steps, self._num_whole):
                break
            self._num_whole += 1
            self._num_steps += episode.stop - episode.start

    def columns(self, spaces: Spaces) -> dict[str, NDArray[Any]]:
        """Returns the arrays of a data set, all masks given if any are."""
        episodes = self._begun[: self._num_whole]
        ticks, lanes = self._places(episodes)

        def column(values: list[NDArray[Any]]) -> NDArray[Any]:
            found: NDArray[Any] = np.stack(values)[ticks, lanes]
            return found

        steps = [tick.step for tick in self._ticks]
        found = {
            "observations": column([tick.observations for tick in self._ticks]),
            "actions": column([tick.actions for tick in self._ticks]),
            "rewards": column([step.rewards for step in steps]),
            "next_observations": column([step.final_observations for step in steps]),
            "terminated": column([step.terminated for step in steps]),
            "truncated": column([step.truncated & ~step.terminated for step in steps]),
            "episodes": np.repeat(np.arange(len(episodes)), [each.stop - each.start for each in episodes]),
        }
        masks = [tick.masks for tick in self._ticks]
        next_masks = [step.final_masks for step in steps]
        if any(each is not None for each in [*masks, *next_masks]):
            found |= {"masks": column(_filled(masks)), "next_masks": column(_filled(next_masks))}
        return found

    @staticmethod
    def _places(episodes: list[_Episode]) -> tuple[I64, I64]:
        """Returns the tick and the env of each step, episode by episode."""
        ticks = np.concatenate([np.arange(each.start, each.stop) for each in episodes])
        lanes = np.concatenate([np.full(each.stop - each.start, each.lane) for each in episodes])
        return ticks, lanes


def _copied(step: EnvStep) -> EnvStep:
    """Returns ``step`` with arrays of its own: the stream writes over them."""
    return step._replace(**{name: array.copy() for name, array in step._asdict().items() if array is not None})


def _filled(masks: Sequence[Masks | None]) -> list[NDArray[Any]]:
    """Returns ``masks`` with all allowed where none were told."""
    shape = next(each.shape for each in masks if each is not None)
    return [np.ones(shape, dtype=np.bool_) if each is None else each for each in masks]


def _join(logs: Sequence[Mapping[str, NDArray[Any]]], spaces: Spaces, source: str) -> Dataset:
    """Returns the columns of several policies, one after the other, as one data set."""
    first, names = 0, set().union(*logs)
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for log in logs:
        for name in names:
            columns[name].append(log[name] if name in log else _all_allowed(spaces, len(log["rewards"])))
        columns["episodes"][-1] = log["episodes"] + first
        first += int(log["episodes"][-1]) + 1
    joined: dict[str, Any] = {name: np.concatenate(parts) for name, parts in columns.items()}
    return Dataset(spaces=spaces, goals=[""] * first, source=source, **joined)


def _all_allowed(spaces: Spaces, num_steps: int) -> Masks:
    """Returns masks for what was played before the environment told any."""
    if isinstance(spaces.action, Box):
        raise UsageError("the environment told action masks for a box, which has no choices to mask")
    return np.ones((num_steps, num_choices(spaces.action)), dtype=np.bool_)
