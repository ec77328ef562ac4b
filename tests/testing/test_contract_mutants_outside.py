"""As ``test_contract_mutants``, for the contracts of what meets the world: environments, policies and stores."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, ClassVar

import gymnasium
import msgspec
import numpy as np
import pytest

from learnloop.algorithms.policies.network_policy import NetworkPolicy
from learnloop.core.errors import ActionError, ContextError, CorruptError, LearnloopError
from learnloop.core.protocols import PolicyArtifact
from learnloop.core.records import Reward
from learnloop.core.spaces import Discrete
from learnloop.nn.mlp.network import MLP, Head, MLPConfig
from learnloop.store import Store
from learnloop.testing.contracts import (
    EnvironmentContract,
    PolicyContract,
    SpacePolicyContract,
    StoreContract,
    check_contract,
)
from learnloop.testing.contracts.step_stream import spaces_for
from tests.testing.test_contract_mutants import broken, rules

F = np.float32

# Environments ------------------------------------------------------------------------------------------------------

MAIN_PROCESS = os.environ.setdefault("TEST_MAIN_PROCESS", str(os.getpid()))
"""Of the process that runs the tests; its children have it from their environment."""


class Walk(gymnasium.Env[Any, Any]):
    """A walk of ten steps; with a fault where one is named."""

    places: ClassVar[list[int]] = [0]

    def __init__(self, fault: str = "") -> None:
        self.fault = fault
        high = {"outside": 0.5, "endless": 1_000.0}.get(fault, 20.0)
        self.observation_space = gymnasium.spaces.Box(-high, high, (2,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.buffer = np.zeros(2, dtype=F)
        self.place, self.age, self.life = 0, 0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place = int(self.np_random.integers(3))
        self.age = 0
        self.places[0] = 0
        return self.shown(), self.info()

    def step(self, action: Any) -> Any:
        self.age += 1
        self.life += 1
        self.places[0] += 1
        self.place += 1 if action else -1
        if self.fault == "true chance":
            self.place += random.SystemRandom().choice([-1, 1])
        if self.fault == "global chance":
            np.random.random()
        reward: Any = float(self.place)
        if self.fault == "fractions":
            reward = Fraction(self.place)
        ended = False if self.fault == "endless" else self.age >= 10
        if self.fault == "whole numbers":
            return self.shown(), reward, int(ended), False, self.info()
        return self.shown(), reward, ended, False, self.info()

    def info(self) -> dict[str, Any]:
        blocks = self.fault == "blocks" and self.life > 45 and self.age == 5
        return {"action_mask": np.array([not blocks, self.age % 2 == 0 and not blocks])}

    def shown(self) -> Any:
        age = {"long memory": self.life, "shared": self.places[0]}.get(self.fault, self.age)
        if self.fault == "another process" and str(os.getpid()) != MAIN_PROCESS:
            age += 1
        found = self.buffer if self.fault == "one buffer" else np.zeros(2, dtype=F)
        found[:] = self.place, min(age, 19)
        return found


ENVIRONMENTS: Mapping[str, set[str]] = {
    "": set(),
    "outside": {"it_passes_the_check", "observations_fit_their_space"},
    "true chance": {"the_same_seed_plays_the_same", "a_reset_to_a_seed_begins_anew", "environments_do_not_share"},
    "long memory": {"a_reset_to_a_seed_begins_anew"},
    "shared": {"environments_do_not_share"},
    "global chance": {"global_random_numbers_are_left_alone"},
    "one buffer": {"what_it_returns_stays"},
    "fractions": {"rewards_and_flags_have_their_types"},
    "whole numbers": {"it_passes_the_check", "rewards_and_flags_have_their_types"},
    "blocks": {"masks_allow_something", "a_reset_to_a_seed_begins_anew"},
    "endless": {"episodes_end"},
}


def environment(named: str, subprocess: bool = False) -> type[EnvironmentContract]:
    class Mutant(EnvironmentContract):
        max_steps = 20
        check_subprocess = subprocess

        def make(self) -> Any:
            return Walk(named)

    return Mutant


@pytest.mark.parametrize("fault", ENVIRONMENTS)
def test_environments(fault: str) -> None:
    assert broken(environment(fault)) == ENVIRONMENTS[fault]


@pytest.mark.slow
def test_environments_in_processes() -> None:
    assert broken(environment("", True)) == set()
    assert broken(environment("another process", True)) == {"it_plays_the_same_in_a_process_of_its_own"}


def test_each_rule_of_environments_has_a_mutant() -> None:
    found = set().union(*ENVIRONMENTS.values(), {"it_plays_the_same_in_a_process_of_its_own"})
    assert found == rules(EnvironmentContract)


# Policies ----------------------------------------------------------------------------------------------------------

NAMES = ("left", "right", "stay")


class Proportional:
    """Chances in proportion to a weight for each name; with a fault where one is named."""

    def __init__(self, weights: Any, fault: str = "") -> None:
        self.weights = np.asarray(weights, dtype=np.float64)
        self.fault = fault
        self.count = 0

    def probabilities(self, context: Any, actions: Any, mask: Any = None) -> Any:
        self.count += 1
        self.check(context, list(actions), mask)
        known = dict(zip(NAMES, self.weights, strict=True))
        if self.fault == "by place":
            known = dict(zip(actions, self.weights, strict=False))
        found = np.array([known.get(action, 1.0) for action in actions])
        if mask is not None and self.fault != "no masks":
            found = np.where(mask, found, 0.0)
        if self.fault == "not one":
            return found
        if self.fault == "counts":
            found[0] *= self.count
        return found / found.sum()

    def check(self, context: Any, actions: list[Any], mask: Any) -> None:
        if set(context) != {"size"} and self.fault != "any context":
            raise ContextError("size is needed")
        if self.fault == "any action":
            return
        if not actions or len(set(actions)) != len(actions) or not all(isinstance(a, str) and a for a in actions):
            raise ActionError("names, each once")
        if self.fault == "crashes" and set(actions) - set(NAMES):
            raise KeyError("unknown")
        if mask is not None and (len(mask) != len(actions) or not any(mask) or "yes" in mask):
            raise ActionError("a mask")

    def to_artifact(self) -> PolicyArtifact:
        return PolicyArtifact("proportional", {"fault": self.fault}, {"weights": self.weights})

    @classmethod
    def from_artifact(cls, artifact: PolicyArtifact) -> Any:
        fault = artifact.config["fault"]
        weights = artifact.tensors.get("weights", np.ones(3) if fault == "any artifact" else None)
        if weights is None or not (np.isfinite(weights).all() or fault == "any artifact"):
            raise CorruptError("weights")
        return cls(weights[::-1] if fault == "read wrong" else weights, fault)


POLICIES: Mapping[str, set[str]] = {
    "": set(),
    "not one": {"probabilities_sum_to_one", "masked_actions_have_none", "an_unknown_action_is_handled"},
    "no masks": {"masked_actions_have_none"},
    "any action": {"what_cannot_be_chosen_from_is_refused"},
    "crashes": {"an_unknown_action_is_handled"},
    "by place": {"the_order_of_actions_does_not_matter"},
    "counts": {
        "being_asked_changes_nothing",
        "an_unknown_action_is_handled",
        "the_order_of_actions_does_not_matter",
    },
    "any context": {"contexts_that_do_not_fit_are_refused"},
    "read wrong": {"it_is_stored_as_it_is"},
    "any artifact": {"a_damaged_artifact_is_refused"},
}


@pytest.mark.parametrize("fault", POLICIES)
def test_policies(fault: str) -> None:
    class Mutant(PolicyContract):
        actions = NAMES

        def make(self) -> Any:
            return Proportional([1.0, 2.0, 5.0], fault)

        def contexts(self) -> Any:
            return [{"size": 1.0}, {"size": 2.0}]

        def wrong_contexts(self) -> Any:
            return [{}]

    assert broken(Mutant) == POLICIES[fault]


def test_each_rule_of_policies_has_a_mutant() -> None:
    assert set().union(*POLICIES.values()) == rules(PolicyContract)


class FaultyPolicy(NetworkPolicy):
    fault: ClassVar[str]

    def act(self, observation: Any, mask: Any = None) -> Any:
        if self.fault == "act is batch":
            return np.array([super().act(observation, mask)])
        if self.fault == "act rotates" and mask is None:
            return (super().act(observation) + 1) % 3
        if self.fault == "any mask" and mask is not None and not any(mask):
            return 0
        if self.fault == "any observation":
            observation = np.nan_to_num(np.resize(np.asarray(observation, dtype=F), 4))
        return super().act(observation, mask)

    def choose(self, observations: Any, masks: Any = None) -> Any:
        found = super().choose(observations, None if self.fault == "no masks" else masks)
        if self.fault == "drifts" and self._network is not None:
            self._network.parameters[:] += np.random.default_rng(0).standard_normal(self._network.parameters.size)
        return found

    def probabilities(self, observation: Any, mask: Any = None) -> Any:
        found = super().probabilities(observation, mask)
        return found * 2 if self.fault == "sums to two" else found

    @classmethod
    def from_artifact(cls, artifact: PolicyArtifact) -> Any:
        tensors = dict(artifact.tensors)
        if cls.fault == "read wrong" and "parameters" in tensors:
            tensors["parameters"] = -tensors["parameters"]
        if cls.fault == "any artifact":
            tensors["parameters"] = np.nan_to_num(tensors.get("parameters", np.zeros(15, dtype=F)))
        return super().from_artifact(artifact._replace(tensors=tensors))


SPACE_POLICIES: Mapping[str, set[str]] = {
    "": set(),
    "act is batch": {"actions_fit_the_space", "act_and_choose_agree"},
    "act rotates": {"act_and_choose_agree"},
    "sums to two": {"probabilities_sum_to_one"},
    "no masks": {"masks_are_kept"},
    "any mask": {"masks_are_kept"},
    "drifts": {"being_asked_changes_nothing", "act_and_choose_agree"},
    "any observation": {"observations_that_do_not_fit_are_refused"},
    "read wrong": {"it_is_stored_as_it_is"},
    "any artifact": {"a_damaged_artifact_is_refused"},
}


@pytest.mark.parametrize("named", SPACE_POLICIES)
def test_policies_over_spaces(named: str) -> None:
    class Faulty(FaultyPolicy):
        fault = named

    class Mutant(SpacePolicyContract):
        def make(self) -> Any:
            network = MLP(MLPConfig(input_size=4, hidden=(), heads=(Head(name="policy", size=3),)), 1)
            return Faulty(spaces_for(Discrete(n=3), 4), network, outputs="q_values", learned_by="x")

    assert broken(Mutant) == SPACE_POLICIES[named]


def test_each_rule_of_policies_over_spaces_has_a_mutant() -> None:
    assert set().union(*SPACE_POLICIES.values()) == rules(SpacePolicyContract)


# Stores ------------------------------------------------------------------------------------------------------------


class Faulty:
    """A store in memory with one of its methods replaced: ``change(store)`` returns the replacement."""

    def __init__(self, changes: Mapping[str, Any], options: Mapping[str, Any]) -> None:
        self._store = Store.open("sqlite:///:memory:", **options)
        self._changes = {name: change(self._store) for name, change in changes.items()}

    def __getattr__(self, name: str) -> Any:
        return self._changes.get(name) or getattr(self._store, name)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: Any) -> None:
        self._store.close()


def first_only(store: Store) -> Any:
    return lambda records: store.write(list(records)[:1])


def suppressed(name: str) -> Any:
    """Returns a change by which refusals of the method ``name`` are passed over in silence."""

    def change(store: Store) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            with contextlib.suppress(LearnloopError, TimeoutError, ValueError):
                return getattr(store, name)(*given, **named)

        return call

    return change


def answering(name: str, change: Any) -> Any:
    """Returns a change by which the method ``name`` returns ``change(what it would)``."""
    return lambda store: lambda *given, **named: change(getattr(store, name)(*given, **named))


def without(**fields: Any) -> Any:
    """Returns a change of what ``get`` and ``find`` return: these fields are others."""

    def change(record: Any) -> Any:
        known = {key: value for key, value in fields.items() if record is not None and key in record.__struct_fields__}
        return msgspec.structs.replace(record, **known) if known else record

    return change


def writing_each(store: Store) -> Any:
    def write(records: Any) -> None:
        for record in records:
            store.write([record])

    return write


def under_new_keys(store: Store) -> Any:
    """A reward that comes a second time is written beside the first."""
    seen: set[str] = set()

    def write(records: Any) -> None:
        changed = []
        for record in records:
            is_again = isinstance(record, Reward) and record.reward_id in seen
            changed.append(msgspec.structs.replace(record, reward_id="again") if is_again else record)
            seen.update([record.reward_id] if isinstance(record, Reward) else [])
        store.write(changed)

    return write


def counters_of(**fields: int) -> Any:
    return answering("counters", lambda found: msgspec.structs.replace(found, **fields))


STORES: Mapping[str, Mapping[str, Any]] = {
    "a_record_comes_back_as_it_was": {"get": answering("get", without(metadata={}))},
    "all_at_once_in_any_order_and_a_second_time_changes_nothing": {"write": under_new_keys},
    "times_come_back_in_utc_to_the_microsecond": {
        "get": answering("get", lambda found: without(created_at=found.created_at.replace(microsecond=0))(found))
    },
    "an_episode_brings_its_agent_and_task": {
        "select": answering("select", lambda found: [each for each in found if each.agent_id != "other"])
    },
    "a_running_episode_changes_and_a_final_one_does_not": {"get": answering("get", without(metadata={"n": 1}))},
    "an_episode_that_starts_and_ends_in_one_batch": {"events": answering("events", lambda found: found[::-1])},
    "the_first_record_of_a_key_stays": {"get": answering("get", without(value=3.0))},
    "a_version_number_is_unique_within_its_policy": {"write": suppressed("write")},
    "a_memory_of_an_unknown_agent_is_refused": {"write": suppressed("write")},
    "a_failed_write_leaves_nothing": {"write": writing_each},
    "what_cannot_be_stored_is_named": {"write": suppressed("write")},
    "a_poisoned_record_does_not_take_others_down": {"flush": suppressed("flush")},
    "an_unknown_kind_is_refused": {"write": suppressed("write")},
    "text_that_postgresql_cannot_hold_becomes_a_replacement_character": {"get": answering("get", without(name="ab c"))},
    "embeddings_keep_half_precision_and_their_dimension": {"run": suppressed("run")},
    "run_is_one_transaction": {"run": suppressed("run")},
    "a_reader_cannot_write": {"read": lambda store: store.run},
    "threads_write_and_read_at_once": {"offer": lambda store: lambda record: True},
    "closing_writes_what_was_offered_and_takes_nothing_more": {"offer": lambda store: lambda record: True},
    "a_full_queue_drops_and_counts": {"counters": counters_of(num_dropped=0)},
    "changes_take_the_same_values_as_records": {"get": answering("get", without(truncated=False))},
    "get_names_what_is_missing": {"get": suppressed("get")},
    "pages_by_key": {"select": answering("select", lambda found: found[::-1])},
    "keys_are_ordered_by_code_point": {
        "iterate": answering("iterate", lambda found: sorted(found, key=lambda each: each.agent_id.lower()))
    },
    "conditions": {"select": lambda store: lambda kind, where=None, **named: store.select(kind, **named)},
    "a_condition_of_many_values": {"count": lambda store: lambda kind, where=None: len(next(iter(where.values())))},
    "events_in_order_with_what_they_report": {"events": answering("events", lambda found: found[1:])},
    "waiting_for_events": {"wait_for_events": lambda store: lambda after, seconds: True},
    "rewards_in_the_order_of_their_commit": {
        "rewards_after": answering("rewards_after", lambda found: sorted(found, key=lambda each: each[1].reward_id))
    },
}


def store_contract(changes: Mapping[str, Any]) -> type[StoreContract]:
    class Mutant(StoreContract):
        def open_store(self, **options: Any) -> Any:
            return Faulty(changes, options)

    return Mutant


@pytest.mark.parametrize("rule", STORES)
def test_stores(rule: str) -> None:
    contract = store_contract(STORES[rule])
    with pytest.raises(AssertionError, match="Why it matters"):
        getattr(contract(), f"test_{rule}")()


def test_a_store_that_is_whole() -> None:
    assert check_contract(store_contract({})).broken == {}


def test_each_rule_of_stores_has_a_mutant() -> None:
    assert STORES.keys() == rules(StoreContract)
