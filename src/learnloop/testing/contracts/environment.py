"""What an environment promises beyond gymnasium's rules: that a training in it can be had again."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Iterator
from itertools import count, islice
from typing import Any, ClassVar, NamedTuple

import gymnasium
import numpy as np

from learnloop.core.seeding import generator
from learnloop.envs.spaces import ActionEdge, random_actions
from learnloop.envs.streams.make import check_env, make_stream
from learnloop.envs.streams.masks import KEY, MaskReader, with_masks
from learnloop.envs.streams.sync_stream import spaces_of
from learnloop.nn.encoders.observation_encoder import ObservationEncoder
from learnloop.testing.contracts.contract import Contract, expect, same

Env = gymnasium.Env[Any, Any]


class Played(NamedTuple):
    """One step as it was seen."""

    observation: bytes
    reward: float
    terminated: bool
    truncated: bool
    mask: str


class EnvironmentContract(Contract):
    """Rules of environments, on top of ``check_env``.

    ::

        class TestMine(EnvironmentContract):
            def make(self):
                return MyEnv()

    Attributes:
        allowed_findings: what ``check_env`` may find odd: parts of its messages.
        num_steps: so many random steps are played.
        max_steps: within so many steps an episode must end; None: it need not.
        check_subprocess: whether it is tried in a process of its own, which takes a second.
    """

    allowed_findings: ClassVar[tuple[str, ...]] = ()
    num_steps: ClassVar[int] = 60
    max_steps: ClassVar[int | None] = None
    check_subprocess: ClassVar[bool] = False

    @abstractmethod
    def make(self) -> Env:
        """Returns a new environment."""

    def test_it_passes_the_check(self) -> None:
        """check_env finds nothing that is wrong or odd."""
        findings = [
            each for each in check_env(self.make) if not any(allowed in each for allowed in self.allowed_findings)
        ]
        expect(not findings, "check_env finds nothing odd", findings, "what is odd is used as it is")

    def test_the_same_seed_plays_the_same(self) -> None:
        """Two environments with the same seed and actions play the same steps to the bit."""
        first, second = (play(self.make(), self.num_steps, seed=3) for _ in range(2))
        same(first, second, "the same seed and actions give the same steps", "a training could not be had again")

    def test_a_reset_to_a_seed_begins_anew(self) -> None:
        """What was played before does not matter after a reset to a seed."""
        used = self.make()
        play(used, self.num_steps, seed=9, close=False)
        fresh = play(self.make(), self.num_steps, seed=3)
        found = play(used, self.num_steps, seed=3)
        same(found, fresh, "a reset to a seed begins an episode of that seed", "evaluations reset what was used")

    def test_environments_do_not_share(self) -> None:
        """Two environments side by side play what each would alone."""
        alone = play(self.make(), self.num_steps, seed=3)
        one, other = self.make(), self.make()
        beside = zip(_steps(one, 3), _steps(other, 4), strict=True)
        found = [step for (step, _), _ in zip(beside, range(self.num_steps), strict=False)]
        same(found, alone, "environments side by side do not touch each other", "envs run side by side")

    def test_global_random_numbers_are_left_alone(self) -> None:
        """It draws from numbers of its own."""
        before = (random.getstate(), np.random.get_state())
        play(self.make(), self.num_steps, seed=3)
        after = (random.getstate(), np.random.get_state())
        why = "other parts of the process would change its episodes, and it theirs; draw from self.np_random"
        same(repr(after), repr(before), "global random numbers are left alone", why)

    def test_what_it_returns_stays(self) -> None:
        """An observation that was returned is not written over by the next step, nor by its reader."""
        kept = [(step[0], _bytes(step[0])) for step in _raw_steps(self.make(), 0, 5)]
        changed = [number for number, (each, before) in enumerate(kept) if _bytes(each) != before]
        why = "a training keeps what it was shown until it learns from it"
        expect(not changed, "observations that were returned stay as they are", f"{changed} changed", why)

    def test_rewards_and_flags_have_their_types(self) -> None:
        """A reward is a finite number; terminated and truncated are booleans."""
        why = "what is not a number cannot be learned from"
        for step in _raw_steps(self.make(), 0, self.num_steps):
            reward, terminated, truncated = step[1:4]
            is_number = isinstance(reward, int | float | np.number) and bool(np.isfinite(reward))
            expect(is_number, "a reward is a finite number", repr(reward), why)
            for name, flag in (("terminated", terminated), ("truncated", truncated)):
                expect(isinstance(flag, bool | np.bool_), f"{name} is True or False", repr(flag), why)

    def test_observations_fit_their_space(self) -> None:
        """Each observation lies in the observation space, the first one and the last one too."""
        env = self.make()
        space = env.observation_space
        why = "networks are built for the space"
        for step in _raw_steps(env, 0, self.num_steps):
            expect(space.contains(step[0]), f"observations lie in {space}", repr(step[0])[:200], why)

    def test_masks_allow_something(self) -> None:
        """Where there are masks, each allows an action of each choice, and has the length of the space."""
        env = with_masks(self.make())
        space = spaces_of(env).action
        reader = MaskReader(space)
        masks = [
            step[4][KEY] for step in _raw_steps(env, 0, self.num_steps) if not (step[2] or step[3]) and KEY in step[4]
        ]
        if not masks:
            return  # it has none
        rows = np.ones((len(masks), reader.num_choices), dtype=np.bool_)
        for row, mask in zip(rows, masks, strict=True):
            reader.put(mask, row, "an action mask")
        blocked = reader.first_blocked(rows)
        why = "an agent that may do nothing cannot go on"
        expect(blocked is None, "a mask allows something of each choice", f"step {blocked} does not", why)

    def test_episodes_end(self) -> None:
        """An episode of random actions ends within ``max_steps``."""
        if self.max_steps is None:
            return
        steps = play(self.make(), self.max_steps, seed=1)
        ended = any(step.terminated or step.truncated for step in steps)
        expect(ended, f"an episode ends within {self.max_steps} steps", "none did", "returns are counted at ends")

    def test_it_plays_the_same_in_a_process_of_its_own(self) -> None:
        """In worker processes it plays what it plays here."""
        if not self.check_subprocess:
            return
        found = []
        for vectorization in ("sync", "subprocess"):
            stream = make_stream(self.make, 2, vectorization=vectorization)
            observations, masks = stream.reset(5)
            rng, seen = generator(0, "contract"), [observations.tobytes()]
            for _ in range(20):
                step = stream.step(random_actions(stream.spaces.action, masks, 2, rng))
                masks = step.masks
                seen += [step.observations.tobytes(), step.rewards.tobytes(), step.terminated.tobytes()]
            stream.close()
            found.append(seen)
        same(found[0], found[1], "it plays the same in another process", "vectorization would change a training")


def play(env: Env, num_steps: int, *, seed: int, close: bool = True) -> list[Played]:
    """Returns ``num_steps`` random steps of ``env``, which is reset to ``seed``, and closed."""
    steps = list(islice(_steps(env, seed), num_steps))
    if close:
        env.close()
    return steps


def _steps(env: Env, seed: int) -> Iterator[Played]:
    """Yields random steps for ever, the first one what the reset shows."""
    encoder = ObservationEncoder(spaces_of(with_masks(env)).observation)
    for observation, reward, terminated, truncated, info in _raw_steps(env, seed):
        mask = repr(info.get(KEY))
        yield Played(encoder.encode(observation).tobytes(), float(reward), bool(terminated), bool(truncated), mask)


def _raw_steps(env: Env, seed: int, num_steps: int | None = None) -> Iterator[tuple[Any, Any, Any, Any, Any]]:
    """Yields what the environment returns for random actions, resets included, and closes it; None: for ever."""
    watched = with_masks(env)
    space = spaces_of(watched).action
    edge, rng = ActionEdge(space, watched.action_space.dtype), generator(seed, "contract", "actions")
    observation, info = watched.reset(seed=seed)
    yield observation, 0.0, False, False, info
    for _ in count() if num_steps is None else range(num_steps):
        action = edge.to_envs(random_actions(space, _masks(info, space), 1, rng))[0]
        observation, reward, terminated, truncated, info = watched.step(action)
        yield observation, reward, terminated, truncated, info
        if terminated or truncated:
            observation, info = watched.reset()
            yield observation, 0.0, False, False, info
    watched.close()


def _masks(info: Any, space: Any) -> Any:
    reader = MaskReader(space)
    if not reader.num_choices or info.get(KEY) is None:
        return None
    row = np.ones((1, reader.num_choices), dtype=np.bool_)
    reader.put(info[KEY], row[0], "an action mask")
    return row


def _bytes(observation: Any) -> bytes:
    if isinstance(observation, dict):
        return b"".join(_bytes(observation[key]) for key in sorted(observation))
    if isinstance(observation, tuple | list):
        return b"".join(map(_bytes, observation))
    return observation.tobytes() if isinstance(observation, np.ndarray) else repr(observation).encode()
