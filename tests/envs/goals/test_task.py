"""Goals: what an action does decides what comes of it, rewards are what was agreed, ends are told apart."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check

from learnloop.algorithms.building import build_algorithm, configure
from learnloop.core.errors import UsageError
from learnloop.envs import check_env, make_stream, register_envs
from learnloop.envs.goals.records import CRASHED, DONE, FAILED, NOTHING, Goal, GoalExecutor, Outcome
from learnloop.envs.goals.simulator import ACTIONS, FIRST_FACTS, GOALS, GoalSimulator, WorldAction
from learnloop.envs.goals.task import GoalRewards, GoalTask
from learnloop.evaluation.returns import evaluate_returns

register_envs()
NAMES = [action.name for action in ACTIONS]
SIMULATED: dict[str, Any] = {"make_executor": "simulated"}


class Scripted:
    """Plays outcomes in their order, whatever is asked for."""

    goals = (Goal("only", "Whatever.", bool),)
    actions = ("one", "two")
    state_size = 1
    is_simulated = False

    def __init__(self, *outcomes: Outcome) -> None:
        self.outcomes = list(outcomes)
        self.started: list[int] = []
        self.asked: list[int] = []
        self.num_closed = 0

    def start(self, goal: Goal, seed: int) -> Any:
        self.started.append(seed)
        return np.zeros(1, dtype=np.float32)

    def perform(self, action: int) -> Outcome:
        self.asked.append(action)
        return self.outcomes.pop(0)

    def allowed(self) -> Any:
        return None

    def close(self) -> None:
        self.num_closed += 1


def outcome(seconds: float = 1.0, **said: bool) -> Outcome:
    return Outcome(np.zeros(1, dtype=np.float32), seconds, **said)


def scripted(*outcomes: Outcome, **options: Any) -> GoalTask:
    env = GoalTask(lambda: Scripted(*outcomes), **options)
    env.reset(seed=0)
    return env


@pytest.mark.parametrize("options", [{}, {"goal_view": "text"}, {"masked": True}, {"crash_terminates": False}])
def test_it_keeps_the_rules(options: dict[str, Any]) -> None:
    assert check_env("goal-task", env_kwargs=SIMULATED | options) == []
    if options != {"masked": True}:
        gymnasium_check(gymnasium.make("learnloop/GoalTask-v0", **SIMULATED, **options).unwrapped)


def test_the_defaults_are_those_of_seed_0() -> None:
    env = GoalTask(make_executor="simulated")
    assert (len(env.goals), env.action_space.n, env.max_steps) == (5, 10, 50)
    assert env.rewards == GoalRewards(
        step=-0.01, success=1.0, failure=-0.5, crash=-1.0, speed_bonus=0.2, fast_seconds=0.1
    )


# Rewards and ends --------------------------------------------------------------------------------------------------

CASES: list[tuple[Outcome, float, bool, int]] = [
    (outcome(), -0.01, False, DONE),
    (outcome(0.01), -0.01, False, DONE),
    (outcome(failed=True), -0.51, False, FAILED),
    (outcome(crashed=True), -1.51, True, CRASHED),
    (outcome(failed=True, crashed=True), -1.51, True, CRASHED),
    (outcome(0.1, succeeded=True), 0.99, True, DONE),
    (outcome(0.0999, succeeded=True), 1.19, True, DONE),
]


@pytest.mark.parametrize(("said", "reward", "is_end", "last"), CASES)
def test_rewards_by_hand(said: Outcome, reward: float, is_end: bool, last: int) -> None:
    observation, found, terminated, truncated, info = scripted(said).step(1)
    assert found == pytest.approx(reward)
    assert (terminated, truncated) == (is_end, False)
    assert observation["last"] == last
    assert info["is_success"] is said.succeeded
    assert (info["action"], info["seconds"], info["crashed"]) == ("two", said.seconds, said.crashed)


def test_each_reward_can_be_set() -> None:
    rewards = {"step": -1, "success": 20, "failure": -300, "crash": -4000, "speed_bonus": 50_000, "fast_seconds": 2}
    for given in (rewards, GoalRewards(**rewards)):
        found = [scripted(said, rewards=given).step(0)[1] for said, *_ in CASES]
        assert found == [-1, -1, -301, -4301, -4301, 50_019, 50_019]
    assert scripted(outcome(), rewards={"step": -0.5}).step(0)[1] == -0.5


def test_a_crash_may_go_on() -> None:
    env = scripted(outcome(crashed=True), outcome(succeeded=True), crash_terminates=False)
    assert env.step(0)[2:4] == (False, False)
    assert env.step(0)[2:4] == (True, False)


def test_the_limit_cuts_and_an_end_at_the_limit_is_an_end() -> None:
    """F0.5: a time limit is told as one, so that what would have come is bootstrapped; never both."""
    env = scripted(outcome(), outcome(), max_steps=2)
    assert [env.step(0)[2:4] for _ in range(2)] == [(False, False), (False, True)]
    with pytest.raises(UsageError, match="goal-task is stepped while no episode runs"):
        env.step(0)
    env = scripted(outcome(), outcome(succeeded=True), max_steps=2)
    assert [env.step(0)[2:4] for _ in range(2)] == [(False, False), (True, False)]
    env = scripted(outcome(), outcome(crashed=True), max_steps=2)
    assert [env.step(0)[2:4] for _ in range(2)] == [(False, False), (True, False)]
    with pytest.raises(UsageError, match="call reset first"):
        GoalTask(make_executor="simulated").step(0)


def test_what_is_shown() -> None:
    env = scripted(outcome(), outcome(failed=True), max_steps=4)
    observation, info = env.reset(seed=1)
    assert {key: np.asarray(value).tolist() for key, value in observation.items()} == {
        "goal": 0,
        "state": [0.0],
        "last": NOTHING,
        "step_share": [0.0],
    }
    assert info == {"simulated": False, "goal": "only", "is_success": False}
    assert [env.step(0)[0]["step_share"].item() for _ in range(2)] == [0.25, 0.5]


# Executors of one's own --------------------------------------------------------------------------------------------


def test_each_environment_has_an_executor_of_its_own() -> None:
    made: list[Scripted] = []

    def maker() -> Scripted:
        made.append(Scripted(*[outcome()] * 10))
        return made[-1]

    stream = make_stream(lambda: GoalTask(maker), 3, check=False)
    stream.reset(0)
    for actions in ([0, 1, 1], [1, 0, 1]):
        stream.step(np.array(actions))
    stream.close()
    assert [each.asked for each in made] == [[0, 1], [1, 0], [1, 1]]
    assert len({each.started[0] for each in made}) == 3, "each has a seed of its own"
    assert [each.num_closed for each in made] == [1, 1, 1]
    assert isinstance(made[0], GoalExecutor)


class Files:
    """A user's executor: files in a folder of its own memory, with real effects."""

    goals = (Goal("report", "Write a report.", lambda files: files.get("report") == "ok"),)
    actions = ("draft", "publish", "wipe")
    state_size = 2
    is_simulated = False

    def __init__(self) -> None:
        self.files: dict[str, str] = {}

    def start(self, goal: Goal, seed: int) -> Any:
        self.goal = goal
        self.files.clear()
        return self.shown()

    def shown(self) -> Any:
        return np.array([name in self.files for name in ("draft", "report")], dtype=np.float32)

    def perform(self, action: int) -> Outcome:
        failed = action == 1 and "draft" not in self.files
        if action == 0:
            self.files["draft"] = "ok"
        elif action == 1 and not failed:
            self.files["report"] = self.files.pop("draft")
        elif action == 2:
            self.files.clear()
        return Outcome(self.shown(), 0.2, succeeded=self.goal.verifier(self.files), failed=failed)

    def allowed(self) -> Any:
        return np.array([True, "draft" in self.files, True])

    def close(self) -> None:
        self.files.clear()


def test_an_executor_of_ones_own() -> None:
    env = GoalTask(Files, masked=True)
    assert check_env(lambda: GoalTask(Files, masked=True)) == []
    _, info = env.reset(seed=0)
    assert info["action_mask"].tolist() == [True, False, True]
    assert env.step(1)[1] == pytest.approx(-0.51)
    assert env.step(0)[4]["action_mask"].tolist() == [True, True, True]
    _, reward, terminated, _, info = env.step(1)
    assert (reward, terminated, info["is_success"], info["simulated"]) == (0.99, True, True, False)


def test_goals_of_ones_own() -> None:
    goals = [
        Goal("stopped", "Stop whatever runs.", lambda facts: "running" not in facts and "backup" in facts),
        Goal("nothing", "Reach it by anything.", lambda facts: True),
    ]
    env = GoalTask(goals=goals, goal_view="text", make_executor="simulated")
    observation, _ = env.reset(seed=0, options={"goal": "stopped"})
    assert observation["goal"] == "Stop whatever runs."
    env.step(NAMES.index("stop"))
    assert env.step(NAMES.index("back-up"))[2]
    env.reset(seed=0, options={"goal": "nothing"})
    assert env.step(NAMES.index("back-up"))[2]
    with pytest.raises(UsageError, match="goal-task has no goal 'lunch'; it has 'stopped', 'nothing'"):
        env.reset(options={"goal": "lunch"})


def test_a_simulator_of_ones_own() -> None:
    actions = [
        WorldAction("boil", gives=frozenset({"water"}), seconds=0.0),
        WorldAction("brew", frozenset({"water"}), frozenset({"tea"}), takes=frozenset({"water"}), seconds=0.0),
    ]
    goals = [Goal("tea", "Make tea.", lambda facts: "tea" in facts)]
    env = GoalTask(lambda: GoalSimulator(goals, actions, {}))
    env.reset(seed=0)
    assert [env.step(action)[1:3] for action in (1, 0, 1)] == [(-0.51, False), (-0.01, False), (1.19, True)]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: GoalTask(max_steps=0), "max_steps of goal-task is 0; a whole number from 1"),
        (lambda: GoalTask(goal_view="picture"), "goal_view of goal-task is 'picture'; allowed are 'number', 'text'"),  # type: ignore[arg-type]
        (lambda: GoalTask(crash_terminates="no"), "crash_terminates of goal-task is 'no'; allowed are True, False"),  # type: ignore[arg-type]
        (lambda: GoalTask(masked=2), "masked of goal-task is 2"),  # type: ignore[arg-type]
        (
            lambda: GoalTask(rewards={"step": 0.1}, make_executor="simulated"),
            "the reward 'step' of goal-task is 0.1; a number up to 0 is needed",
        ),
        (
            lambda: GoalTask(rewards={"success": -1}, make_executor="simulated"),
            "the reward 'success' of goal-task is -1.0; a number from 0",
        ),
        (
            lambda: GoalTask(rewards={"speed": 1}, make_executor="simulated"),
            "have 'step', 'success', 'failure', 'crash', 'speed_bonus'",
        ),
        (
            lambda: GoalTask(rewards={"step": "low"}, make_executor="simulated"),
            r"rewards of goal-task are {'step': 'low'}: Expected `float`",
        ),
        (lambda: GoalRewards(crash=float("nan")), "the reward 'crash' of goal-task is nan"),
        (lambda: GoalTask(goals=[], make_executor="simulated"), r"goals of goal-task are \[\]; at least 1 is needed"),
        (lambda: GoalTask(goals=[GOALS[0], GOALS[0]], make_executor="simulated"), "each with a name of its own"),
        (lambda: GoalTask(lambda: 5), "make_executor of goal-task made 5; an object with goals, actions"),  # type: ignore[arg-type,return-value]
        (lambda: GoalSimulator(first_facts={"sources": 2}), "the probability of 'sources' of the goal simulator is 2"),
        (lambda: GoalSimulator(goals=[]), "has 0 goals, 10 actions and 8 facts; at least 1 of each"),
        (
            lambda: GoalSimulator(actions=[WorldAction("fly", frozenset({"wings"}))]),
            "the action 'fly' of the goal simulator names 'wings', which no action gives .* known are 'running'",
        ),
        (lambda: GoalSimulator(actions=[WorldAction("x", seconds=-1)]), "the seconds of 'x' .* is -1; a number"),
        (lambda: GoalSimulator(actions=[WorldAction("x", failure_rate=2)]), "the failure_rate of 'x'"),
    ],
)
def test_what_has_no_meaning_is_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call()


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (outcome(succeeded=True, crashed=True), "says that 'one' failed or crashed and reached the goal"),
        (outcome(succeeded=True, failed=True), "only one is right"),
        (outcome(float("nan")), "says that 'one' took nan seconds; at least 0 is needed"),
        (outcome(-1.0), "took -1.0 seconds"),
    ],
)
def test_outcomes_that_contradict_themselves_are_refused(said: Outcome, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        scripted(said).step(0)


# The simulator -----------------------------------------------------------------------------------------------------


def effect(facts: frozenset[str], action: WorldAction) -> frozenset[str] | None:
    """What holds afterwards; None: it fails or crashes."""
    if not action.needs <= facts or action.crashes_with & facts or not action.crashes_without <= facts:
        return None
    return (facts - action.takes) | action.gives


def plan(goal: Goal, facts: frozenset[str]) -> list[int]:
    """The fewest actions that reach a goal, by a search of its own; ``quick-test``, which may fail, left out."""
    queue = deque([(facts, [])])
    seen = {facts}
    while queue:
        held, done = queue.popleft()
        for number, action in enumerate(ACTIONS):
            after = effect(held, action)
            if after is None or action.failure_rate or after in seen:
                continue
            if goal.verifier(after):
                return [*done, number]
            seen.add(after)
            queue.append((after, [*done, number]))
    raise AssertionError(goal)


def facts_of(state: Any) -> frozenset[str]:
    return frozenset(fact for fact, value in zip(GoalSimulator().facts, state, strict=True) if value)


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: goal.name)
def test_every_goal_is_reached_by_a_plan_and_not_without_its_order(goal: Goal) -> None:
    """F0.5: what comes of an action depends on the action."""
    env = GoalTask(make_executor="simulated")
    lengths = set()
    for seed in range(20):
        observation, _ = env.reset(seed=seed, options={"goal": goal.name})
        steps = plan(goal, facts_of(observation["state"]))
        lengths.add(len(steps))
        ends = [env.step(action)[2:] for action in steps]
        assert [end[0] for end in ends] == [False] * (len(steps) - 1) + [True]
        assert ends[-1][2]["is_success"]
        if len(steps) > 1:
            env.reset(seed=seed, options={"goal": goal.name})
            assert not any(env.step(action)[4]["is_success"] for action in steps[1:] if env.is_running)
    assert (
        lengths
        == {
            "configured": {1, 2},
            "tested": {3, 4},
            "packaged": {4, 5},
            "migrated": {2, 3},
            "running": {7, 8, 9},
        }[goal.name]
    )


def test_each_number_is_an_action_of_its_own() -> None:
    """F0.2: no action is taken for another."""
    env = GoalTask(make_executor="simulated")
    for number, name in enumerate(NAMES):
        env.reset(seed=0)
        assert env.step(number)[4]["action"] == name
        env.reset(seed=0)
        assert env.step(np.int64(number))[4]["action"] == name  # type: ignore[arg-type]


def test_effects_are_those_that_are_written() -> None:
    simulator = GoalSimulator()
    rng = np.random.default_rng(0)
    reached: set[tuple[str, str]] = set()
    for seed in range(300):
        held = facts_of(simulator.start(GOALS[4], seed))
        for _ in range(20):
            number = int(rng.integers(len(ACTIONS)))
            action, found = ACTIONS[number], simulator.perform(number)
            after = effect(held, action)
            is_crash = action.needs <= held and after is None
            assert found.crashed == is_crash
            if after is None or found.failed:
                assert facts_of(found.state) == held, "what fails or crashes changes nothing"
                assert found.failed or found.crashed
                assert not found.succeeded
                if after is not None:
                    assert action.name == "quick-test"
            else:
                assert facts_of(found.state) == after
                assert found.succeeded == GOALS[4].verifier(after)
            held = facts_of(found.state)
            reached.add((action.name, "crashed" if found.crashed else "failed" if found.failed else "done"))
    assert {name for name, kind in reached if kind == "done"} == set(NAMES)
    assert {name for name, kind in reached if kind == "crashed"} == {"build", "start", "migrate"}


def test_rates_and_seconds() -> None:
    simulator = GoalSimulator(first_facts={"sources": 0.5, "built": 1.0, "running": 0.25})
    shares = np.mean([simulator.start(GOALS[0], seed) for seed in range(2_000)], axis=0)
    found = dict(zip(simulator.facts, shares, strict=True))
    assert (found["sources"], found["running"]) == (pytest.approx(0.5, abs=0.04), pytest.approx(0.25, abs=0.04))
    assert found["built"] == 1.0
    quick = [simulator.perform(NAMES.index("quick-test")) for _ in range(2_000)]
    assert np.mean([each.failed for each in quick]) == pytest.approx(0.15, abs=0.03)
    assert np.median([each.seconds for each in quick]) == pytest.approx(0.03, rel=0.03)
    assert simulator.perform(NAMES.index("start")).seconds == pytest.approx(0.01)


def test_the_same_seed_gives_the_same_episode() -> None:
    def episode(env: GoalTask, seed: int) -> str:
        rng = np.random.default_rng(seed)
        steps = [env.reset(seed=seed)]
        while env.is_running:
            steps.append(env.step(int(rng.integers(10))))  # type: ignore[arg-type]
        return str(steps)

    env = GoalTask(make_executor="simulated")
    assert episode(env, 1) == episode(GoalTask(make_executor="simulated"), 1)
    assert episode(pickle.loads(pickle.dumps(env)), 2) == episode(env, 2)  # noqa: S301 - our own
    assert len({episode(env, seed) for seed in range(20)}) == 20
    assert {env.reset(seed=seed)[0]["goal"] for seed in range(60)} == set(range(5))
    assert set(FIRST_FACTS) == {"sources", "running"}


def test_masks_are_what_actions_need() -> None:
    env = GoalTask(masked=True, make_executor="simulated")
    rng = np.random.default_rng(0)
    for seed in range(50):
        observation, info = env.reset(seed=seed)
        while env.is_running:
            held = facts_of(observation["state"])
            assert info["action_mask"].tolist() == [action.needs <= held for action in ACTIONS]
            observation, _, _, _, info = env.step(int(rng.choice(np.flatnonzero(info["action_mask"]))))
            assert observation["last"] != FAILED or info["action"] == "quick-test"
    blocked = [WorldAction("x", frozenset({"y"}), frozenset({"y"}))]
    env = GoalTask(lambda: GoalSimulator(actions=blocked, first_facts={"y": 0.0}), masked=True)
    assert env.reset(seed=0)[1]["action_mask"].tolist() == [True], "where nothing makes sense nothing is masked"


def test_a_line_on_each_step() -> None:
    env = GoalTask(render_mode="ansi", make_executor="simulated")
    env.reset(seed=0, options={"goal": "tested"})
    assert env.render() == "simulated, tested, step 0 of 50: nothing yet\n"
    env.step(NAMES.index("test"))
    assert env.render() == "simulated, tested, step 1 of 50: test failed in 0.01 s\n"
    assert GoalTask(make_executor="simulated").render() is None


def test_it_runs_in_processes() -> None:
    stream = make_stream("goal-task", 2, vectorization="subprocess", env_kwargs=SIMULATED | {"max_steps": 3})
    observations, _ = stream.reset(0)
    assert observations.shape == (2, 5 + 4 + 8 + 1)
    for _ in range(4):
        stream.step(np.array([8, 8]))
    stream.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_ppo_learns_to_reach_goals(seed: int) -> None:
    """F0.5: there is something to learn, and it is learned."""
    kwargs = SIMULATED | {"masked": True}
    stream = make_stream("goal-task", 8, env_kwargs=kwargs)
    options = {"n_steps": 128, "learning_rate": 1e-3, "ent_coef": 0.01}
    algorithm = build_algorithm(configure("ppo", options), stream.spaces, num_envs=8, seed=seed)
    first = algorithm.policy().sampled
    random = evaluate_returns(first, "goal-task", num_episodes=200, seed=7, env_kwargs=kwargs)
    observations, masks = stream.reset(seed)
    while algorithm.num_steps < 30_000:
        step = stream.step(algorithm.choose(observations, masks))
        algorithm.record(step)
        observations, masks = step.observations, step.masks
        algorithm.learn()
    found = evaluate_returns(algorithm.policy(), "goal-task", num_episodes=200, seed=7, env_kwargs=kwargs)
    assert np.mean(np.array(found.returns) > 0.5) >= 0.85, "the share of goals that are reached"
    assert random.mean < 0 < found.mean
