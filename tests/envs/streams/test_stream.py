"""Every form of stream against one reference, transition by transition; ownership, seeds, episodes, wrong arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from learnloop.core.errors import NotFoundError, UsageError
from learnloop.core.stepping import EnvStep
from learnloop.envs import EnvStream, make_stream
from learnloop.envs.streams.stream import FinishedEpisode
from tests.envs.counting import Counting, Transition, lane_tag, transitions

NUM_LANES = 5
NUM_STEPS = 40


def vector(mode: AutoresetMode, kind: Any = SyncVectorEnv, **kwargs: Any) -> Callable[..., EnvStream]:
    return lambda **made: make_stream(
        kind([lambda: Counting(**made) for _ in range(NUM_LANES)], autoreset_mode=mode, **kwargs)
    )


FORMS: dict[str, Callable[..., EnvStream]] = {
    "sync": lambda **made: make_stream(Counting, NUM_LANES, env_kwargs=made),
    "subprocess": lambda **made: make_stream(Counting, NUM_LANES, vectorization="subprocess", env_kwargs=made),
    "same-step": vector(AutoresetMode.SAME_STEP),
    "same-step, not copied": vector(AutoresetMode.SAME_STEP, copy=False),
    "next-step": vector(AutoresetMode.NEXT_STEP),
    "disabled": vector(AutoresetMode.DISABLED),
    "disabled, not copied": vector(AutoresetMode.DISABLED, copy=False),
    "async": vector(AutoresetMode.SAME_STEP, AsyncVectorEnv, context="forkserver"),
}


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> Callable[..., EnvStream]:
    return FORMS[request.param]


def played(stream: EnvStream, seed: int) -> tuple[list[list[Transition]], list[FinishedEpisode]]:
    """Plays and returns the valid transitions of each env, read as an algorithm would."""
    observations, masks = stream.reset(seed)
    assert masks is None
    lanes: list[list[Transition]] = [[] for _ in range(NUM_LANES)]
    rng = np.random.default_rng(seed)
    for _ in range(NUM_STEPS):
        actions = rng.integers(3, size=NUM_LANES)
        before = observations.copy()
        step = stream.step(actions)
        for lane in range(NUM_LANES):
            if step.valid is None or step.valid[lane]:
                lanes[lane].append(transition(before, actions, step, lane))
            else:
                assert (step.rewards[lane], step.terminated[lane], step.truncated[lane]) == (0.0, False, False)
        observations = step.observations
    return lanes, stream.episodes()


def transition(before: Any, actions: Any, step: EnvStep, lane: int) -> Transition:
    return Transition(
        tuple(before[lane]),
        int(actions[lane]),
        float(step.rewards[lane]),
        tuple(step.final_observations[lane]),
        bool(step.terminated[lane]),
        bool(step.truncated[lane]),
        tuple(step.observations[lane]),
    )


def test_transitions(form: Callable[..., EnvStream]) -> None:
    """F0.11: terminated and truncated stay apart. F1.3: what follows a cut episode is its own last observation."""
    stream = form()
    lanes, _ = played(stream, seed=3)
    stream.close()
    for lane, found in enumerate(lanes):
        wanted = list(transitions(lane_tag(3, lane), [each.action for each in found]))
        for ours, right in zip(found, wanted, strict=True):
            assert ours[:6] == right[:6]
        assert sum(each.terminated for each in found) >= 2
        assert sum(each.truncated for each in found) >= 2


def test_next_observations(form: Callable[..., EnvStream], request: pytest.FixtureRequest) -> None:
    stream = form()
    lanes, _ = played(stream, seed=4)
    stream.close()
    for lane, found in enumerate(lanes):
        for ours, right in zip(found, transitions(lane_tag(4, lane), [each.action for each in found]), strict=True):
            if "next-step" in request.node.name and (right.terminated or right.truncated):
                assert ours.next_observation == ours.final_observation  # the first one comes with the invalid step
            else:
                assert ours.next_observation == right.next_observation


def test_lanes_that_will_only_reset_themselves_are_told(form: Callable[..., EnvStream]) -> None:
    stream = form()
    stream.reset(4)
    expected: Any = None
    num_resets = 0
    for at in range(NUM_STEPS):
        step = stream.step(np.full(NUM_LANES, at % 3))
        assert (step.valid is None) == (expected is None)
        if expected is not None and step.valid is not None:
            np.testing.assert_array_equal(~step.valid, expected)
            num_resets += int(expected.sum())
        expected = None if step.resetting is None else step.resetting.copy()
    stream.close()
    assert (num_resets > 0) == (form is FORMS["next-step"])


def test_episodes_are_counted_without_a_wrapper(form: Callable[..., EnvStream]) -> None:
    stream = form()
    lanes, episodes = played(stream, seed=5)
    assert stream.episodes() == []
    stream.close()
    for lane, found in enumerate(lanes):
        wanted, total, length = [], 0.0, 0
        for each in found:
            total, length = total + each.reward, length + 1
            if each.terminated or each.truncated:
                wanted.append((total, length, each.terminated, each.truncated))
                total, length = 0.0, 0
        mine = [each for each in episodes if each.env_index == lane]
        assert [(e.total_reward, e.length, e.terminated, e.truncated) for e in mine] == wanted
        assert all(e.seconds > 0 for e in mine)


@pytest.mark.parametrize("masked", ["info", "method"])
@pytest.mark.parametrize("name", [each for each in FORMS if each != "async"])
def test_masks(name: str, masked: str) -> None:
    stream = FORMS[name](masked=masked)
    observations, masks = stream.reset(0)
    step = None
    for _ in range(NUM_STEPS):
        assert masks is not None
        lasts = observations.copy()
        for lane in range(NUM_LANES):
            ignored = step is not None and (step.terminated | step.truncated)[lane] and name == "next-step"
            if not ignored:
                np.testing.assert_array_equal(masks[lane], np.arange(3) != lasts[lane, 2] % 3)
        step = stream.step(masks.argmax(axis=1))
        assert step.final_masks is not None
        for lane in range(NUM_LANES):
            if step.terminated[lane]:
                assert step.final_masks[lane].all()  # nothing is chosen any more
            elif masked == "info" and not (step.truncated[lane] and name == "next-step"):
                last = step.final_observations[lane, 2]
                np.testing.assert_array_equal(step.final_masks[lane], np.arange(3) != last % 3)
        observations, masks = step.observations, step.masks
    stream.close()


def test_arrays_stay_until_the_next_call_but_one(form: Callable[..., EnvStream]) -> None:
    stream = form()
    stream.reset(0)
    before: EnvStep | None = None
    copies: list[Any] = []
    for _ in range(12):
        step = stream.step(np.zeros(NUM_LANES, dtype=np.int64))
        if before is not None:
            for kept, copy in zip(before[:5], copies, strict=True):
                np.testing.assert_array_equal(kept, copy)
        before, copies = step, [np.array(each) for each in step[:5]]
    stream.close()


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1", "learnloop/Identity-v0"])
def test_a_reset_forgets_what_came_before(env: str) -> None:
    """What resume rests on: equal seeds and actions give equal steps."""

    def play(stream: EnvStream) -> list[Any]:
        observations, _ = stream.reset(11)
        found = [observations.copy()]
        for _ in range(30):
            found += [np.array(each) for each in stream.step(actions)[:5]]
        return found

    stream, other = make_stream(env, 3), make_stream(env, 3)
    actions = np.zeros((3, 1) if env == "Pendulum-v1" else 3, dtype=np.int64)
    first = play(stream)
    assert [len(each) for each in (first, play(other))] == [151, 151]
    stream.reset(5)
    stream.step(actions)
    for one, two in zip(first, play(stream), strict=True):
        np.testing.assert_array_equal(one, two)
    firsts = stream.reset(11)[0].copy()
    assert len(np.unique(firsts, axis=0)) > 1, "envs start from different seeds"
    assert not np.array_equal(firsts, stream.reset(12)[0])


def test_dropped_episodes_are_not_reported() -> None:
    stream = make_stream(Counting, 1)
    stream.reset(0)
    stream.step(np.array([0]))
    stream.reset(0)
    while not (ended := stream.episodes()):
        stream.step(np.array([0]))
    tag = lane_tag(0, 0)
    assert (ended[0].length, ended[0].first_step) == (2 + tag % 3, 1)


def test_first_step_counts_the_steps_of_all_lanes() -> None:
    stream = make_stream("learnloop/EndlessReward-v0", 3)
    stream.reset(0)
    for _ in range(8):
        stream.step(np.zeros(3, dtype=np.int64))
    assert [(e.env_index, e.first_step, e.length) for e in stream.episodes()] == [
        *((lane, 0, 4) for lane in range(3)),
        *((lane, 12, 4) for lane in range(3)),
    ]


@pytest.mark.parametrize("vectorization", ["sync", "vector", "subprocess"])
def test_a_time_limit_truncates_and_does_not_terminate(vectorization: Any) -> None:
    """F0.11: at CartPole's step limit truncated is True and terminated False."""
    stream = make_stream("CartPole-v1", 2, vectorization=vectorization, env_kwargs={"max_episode_steps": 5})
    stream.reset(0)
    for _ in range(16):
        stream.step(np.array([0, 1]))
    stream.close()
    found = [(e.total_reward, e.length, e.terminated, e.truncated) for e in stream.episodes()]
    assert found[:4] == [(5.0, 5, False, True)] * 4


def test_vector_entry_point_is_cartpole() -> None:
    """The vectorised CartPole (NEXT_STEP) gives the episodes that the single one gives from the same states."""
    stream = make_stream("CartPole-v1", 16)
    single = gymnasium.make("CartPole-v1").unwrapped
    observations, _ = stream.reset(7)
    rng = np.random.default_rng(0)
    num_ends = 0
    resets = np.zeros(16, dtype=bool)
    for _ in range(200):
        actions = rng.integers(2, size=16)
        before = observations.copy()
        step = stream.step(actions)
        valid = np.ones(16, dtype=bool) if step.valid is None else step.valid
        np.testing.assert_array_equal(valid, ~resets)
        for lane in np.flatnonzero(valid)[:4]:
            single.reset()
            single.state = before[lane].astype(np.float64)  # type: ignore[attr-defined]
            observation, reward, terminated, _, _ = single.step(int(actions[lane]))
            np.testing.assert_allclose(step.final_observations[lane], observation, rtol=1e-4, atol=1e-5)
            assert (reward, terminated) == (step.rewards[lane], step.terminated[lane])
        resets = step.terminated | step.truncated
        num_ends += int(resets.sum())
        observations = step.observations
    assert num_ends == len(stream.episodes()) > 50
    assert all(e.total_reward == e.length for e in stream.episodes())


def test_auto_takes_the_vectorised_form_for_many_lanes_only() -> None:
    assert type(make_stream("CartPole-v1", 15)).__name__ == "SyncStream"
    assert type(make_stream("CartPole-v1", 16)).__name__ == "VectorStream"
    assert type(make_stream("cartpole", 16, vectorization="sync")).__name__ == "SyncStream"
    assert type(make_stream("Acrobot-v1", 16, check=False)).__name__ == "SyncStream"


def test_continuous_actions_are_clipped_and_discrete_ones_shifted() -> None:
    class Echo(gymnasium.Env[Any, Any]):
        observation_space = gymnasium.spaces.Box(-100, 100, (2,), np.float32)

        def __init__(self, space: Any) -> None:
            self.action_space = space

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return np.zeros(2, dtype=np.float32), {}

        def step(self, action: Any) -> Any:
            assert self.action_space.contains(action)
            return np.broadcast_to(np.float32(action), (2,)).copy(), 0.0, False, False, {}

    box = gymnasium.spaces.Box(np.array([-1, -5], dtype=np.float32), np.array([1, np.inf], dtype=np.float32))
    wide = np.array([[-3.0, 7.0], [0.5, -9.0]], dtype=np.float32)
    for made in (
        make_stream(Echo, 2, env_kwargs={"space": box}),
        make_stream(SyncVectorEnv([lambda: Echo(box)] * 2)),
    ):
        made.reset(0)
        assert made.step(wide).observations.tolist() == [[-1, 7], [0.5, -5]]
    assert wide.tolist() == [[-3, 7], [0.5, -9]], "the algorithm's own actions are not written to"
    shifted = gymnasium.spaces.Discrete(3, start=-1)
    for made in (
        make_stream(Echo, 2, env_kwargs={"space": shifted}),
        make_stream(SyncVectorEnv([lambda: Echo(shifted)] * 2)),
    ):
        made.reset(0)
        assert made.step(np.array([0, 2])).observations.tolist() == [[-1, -1], [1, 1]]


class TextAndDict(gymnasium.Env[Any, Any]):
    """Shows a text and a number in a dict."""

    observation_space = gymnasium.spaces.Dict(
        {"word": gymnasium.spaces.Text(8), "count": gymnasium.spaces.Box(0, 100, (1,), np.float32)}
    )
    action_space = gymnasium.spaces.MultiDiscrete([2, 3])

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.t = 0
        return self.show(), {}

    def step(self, action: Any) -> Any:
        self.t += 1 + int(action[1])
        return self.show(), float(action[0]), self.t > 6, False, {}

    def show(self) -> Any:
        return {"word": "abc"[: 1 + self.t % 3], "count": np.array([self.t], dtype=np.float32)}


def test_composite_observations_are_the_same_in_each_form() -> None:
    streams = [
        make_stream(TextAndDict, 3),
        make_stream(TextAndDict, 3, vectorization="subprocess"),
        make_stream(SyncVectorEnv([TextAndDict] * 3, autoreset_mode=AutoresetMode.SAME_STEP)),
        make_stream(SyncVectorEnv([TextAndDict] * 3, autoreset_mode=AutoresetMode.DISABLED)),
    ]
    firsts = [stream.reset(0)[0] for stream in streams]
    rng = np.random.default_rng(0)
    for _ in range(20):
        actions = np.stack([rng.integers(2, size=3), rng.integers(3, size=3)], axis=1)
        steps = [stream.step(actions) for stream in streams]
        for other in steps[1:]:
            for one, two in zip(steps[0][:5], other[:5], strict=True):
                np.testing.assert_array_equal(one, two)
    for first in firsts[1:]:
        assert first.shape == firsts[0].shape == (3, streams[0].encoder.size)
    for stream in streams:
        stream.close()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: make_stream("CartPole-v1", 0), UsageError, "num_envs is 0"),
        (lambda: make_stream("CartPol-v1"), NotFoundError, "did you mean 'CartPole-v1'"),
        (lambda: make_stream("Acrobot-v1", vectorization="vector"), UsageError, "Acrobot-v1 has no vectorised form"),
        (lambda: make_stream("CartPole-v1", vectorization="fast"), UsageError, "vectorization is 'fast'; allowed"),
        (lambda: make_stream(Counting(), 2), UsageError, "num_envs is 2, but Counting was given as one object"),
        (lambda: make_stream(Counting(), env_kwargs={"a": 1}), UsageError, "env_kwargs 'a' are given, but Counting"),
        (lambda: make_stream(Counting(), vectorization="subprocess"), UsageError, "Counting exists already"),
        (lambda: make_stream(7), UsageError, "7 is no environment; give the id"),  # type: ignore[arg-type]
        (lambda: make_stream(lambda: 7), UsageError, "7 is no environment"),  # type: ignore[arg-type, return-value]
        (lambda: make_stream("CartPole-v1", env_kwargs={"lenght": 1}), UsageError, "cannot be made with.*lenght"),
        (lambda: make_stream("CartPole-v1", 16, env_kwargs={"lenght": 1}), UsageError, "cannot be made with.*lenght"),
        (lambda: make_stream(SyncVectorEnv([Counting] * 2), 3), UsageError, "one object with 2 envs"),
    ],
)
def test_wrong_arguments(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_one_action_for_each_lane() -> None:
    from learnloop.core.errors import ActionError

    for stream in (make_stream("CartPole-v1", 3), make_stream("CartPole-v1", 3, vectorization="vector")):
        stream.reset(0)
        with pytest.raises(ActionError, match="2 actions were given for 3 envs"):
            stream.step(np.zeros(2, dtype=np.int64))
