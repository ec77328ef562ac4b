"""What a policy promises to who serves it: a distribution over what is allowed, the same for the same context."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from learnloop.core.arrays import F32
from learnloop.core.errors import LearnloopError, UsageError
from learnloop.core.seeding import generator
from learnloop.core.spaces import Box, Discrete, Spaces, num_choices
from learnloop.nn.encoders.observation_encoder import ObservationEncoder
from learnloop.registry.artifacts import encode_artifact
from learnloop.testing.contracts.contract import Contract, expect, needs, refuses, same, skip
from learnloop.testing.contracts.step_stream import actions_fault, expect_action, num_forbidden, random_masks

SUM_TOLERANCE = 1e-6


class StoredPolicyContract(Contract):
    """Rules of all policies. Subclass ``PolicyContract`` or ``SpacePolicyContract``.

    Attributes:
        can_store: whether it has ``to_artifact``.
    """

    can_store: ClassVar[bool] = True

    @abstractmethod
    def make(self) -> Any:
        """Returns a policy that has learned."""

    @abstractmethod
    def said_by(self, policy: Any) -> Any:
        """Returns what a policy says, the same each time; None where it is drawn."""

    @abstractmethod
    def ask_otherwise(self, policy: Any) -> None:
        """Asks a policy something else."""

    def again(self, policy: Any) -> Any:
        """Returns the policy that ``to_artifact`` describes: what its class makes of it."""
        return type(policy).from_artifact(policy.to_artifact())

    def test_being_asked_changes_nothing(self) -> None:
        """The same question has the same answer to the bit, whatever was asked between."""
        policy = self.make()
        first = self.said_by(policy)
        needs(first is not None, "its actions are drawn")
        self.ask_otherwise(policy)
        why = "what is served must be what was proven"
        same(self.said_by(policy), first, "a policy never learns from being asked", why)

    def test_it_is_stored_as_it_is(self) -> None:
        """Stored and read again it says the same to the bit; stored again it is the same bytes."""
        policy = self._stored()
        again = self.again(policy)
        why = "what is served would not be what was proven"
        same(self.said_by(again), self.said_by(policy), "a stored policy says what it said", why)
        files = [tuple(encode_artifact(each.to_artifact())) for each in (again, policy)]
        same(files[0], files[1], "stored again it is the same bytes", why)

    def test_a_damaged_artifact_is_refused(self) -> None:
        """An artifact whose tensors are missing or not finite is refused when it is read."""
        policy = self._stored()
        artifact, read = policy.to_artifact(), type(policy).from_artifact
        why = "what is served would be something else than what was stored"
        for name, tensor in artifact.tensors.items():
            lacking = {key: each for key, each in artifact.tensors.items() if key != name}
            damaged = tensor.copy()
            refuses(LearnloopError, f"without {name} it is refused", why, read, artifact._replace(tensors=lacking))
            damaged.reshape(-1)[0] = np.nan
            tensors = {**artifact.tensors, name: damaged}
            refuses(LearnloopError, f"with NaN in {name} it is refused", why, read, artifact._replace(tensors=tensors))

    def _stored(self) -> Any:
        """Returns a policy, if it can be stored."""
        needs(self.can_store, "can_store is False")
        return self.make()


class PolicyContract(StoredPolicyContract):
    """Rules of policies that choose one of some named actions, ``core.protocols.Policy``.

    ::

        class TestMine(PolicyContract):
            actions = ("left", "right")

            def make(self):
                return MyPolicy()

            def contexts(self):
                return [{"size": 1.0}, {"size": 2.0}]

            def wrong_contexts(self):
                return [{}]

    Attributes:
        actions: names that it knows, at least two.
    """

    actions: ClassVar[Sequence[str]] = ("left", "right", "stay")

    @abstractmethod
    def contexts(self) -> list[Mapping[str, Any]]:
        """Returns contexts that fit."""

    def wrong_contexts(self) -> list[Mapping[str, Any]]:
        """Returns contexts that do not fit."""
        return []

    def said_by(self, policy: Any) -> list[Any]:
        """Returns the probabilities of the actions in each context."""
        return [np.array(policy.probabilities(context, self.actions)) for context in self.contexts()]

    def ask_otherwise(self, policy: Any) -> None:
        """Asks for the contexts in another order, under a mask too."""
        for context in reversed(self.contexts()):
            policy.probabilities(context, self.actions, [True, *[False] * (len(self.actions) - 1)])
            policy.probabilities(context, self.actions)

    def test_probabilities_sum_to_one(self) -> None:
        """It gives each action a probability, from 0 to 1, together 1."""
        policy = self.make()
        for context in self.contexts():
            fault = distribution_fault(policy.probabilities(context, self.actions), len(self.actions))
            promise = "probabilities are a distribution over the actions"
            expect(fault is None, promise, fault, "actions are drawn from it")

    def test_masked_actions_have_none(self) -> None:
        """What a mask forbids has the probability 0, and the rest sums to one."""
        policy = self.make()
        for context in self.contexts():
            for mask in _masks(len(self.actions)):
                found = policy.probabilities(context, self.actions, mask)
                why = "a mask stands for what cannot or must not be done"
                fault = distribution_fault(found, len(self.actions))
                expect(fault is None, f"under the mask {mask} probabilities sum to one", fault, why)
                wrong = float(np.asarray(found)[~np.array(mask)].sum())
                expect(wrong == 0, f"under the mask {mask} what is forbidden has none", f"{wrong:g}", why)

    def test_what_cannot_be_chosen_from_is_refused(self) -> None:
        """No action at all, repeated or empty names, and masks that do not fit or allow nothing are refused."""
        policy, context = self.make(), self.contexts()[0]
        why = "whatever came back would be no distribution over what was asked"
        for bad in ([], [self.actions[0], self.actions[0]], [self.actions[0], ""], [self.actions[0], 5]):
            refuses(UsageError, f"the actions {bad!r} are refused", why, policy.probabilities, context, bad)
        for mask in ([False] * len(self.actions), [True], ["yes"] * len(self.actions)):
            refuses(UsageError, f"the mask {mask!r} is refused", why, policy.probabilities, context, self.actions, mask)

    def test_an_unknown_action_is_handled(self) -> None:
        """Names that it never learned get a distribution, or are refused with an ActionError; they change nothing."""
        policy, context = self.make(), self.contexts()[0]
        before = np.array(policy.probabilities(context, self.actions))
        names = [*self.actions, "an action that nobody knows"]
        why = "new actions are tried out in agents that run"
        try:
            fault = distribution_fault(policy.probabilities(context, names), len(names))
        except UsageError as error:
            fault = None if str(error) else "an error without a message"
        expect(fault is None, "an unknown action gets a probability or is refused in words", fault, why)
        same(np.array(policy.probabilities(context, self.actions)), before, "being asked changes nothing", why)

    def test_the_order_of_actions_does_not_matter(self) -> None:
        """Each action has its probability, in whatever place it is named."""
        policy = self.make()
        for context in self.contexts():
            straight = np.asarray(policy.probabilities(context, self.actions))
            turned = np.asarray(policy.probabilities(context, list(reversed(self.actions))))[::-1]
            why = "a decision would depend on how a list was written"
            off = float(np.abs(straight - turned).max())
            expect(off < 1e-12, "an action has its probability wherever it is named", f"{off:g} off", why)

    def test_contexts_that_do_not_fit_are_refused(self) -> None:
        """A context that lacks something, or has too much, is refused."""
        wrong = self.wrong_contexts()
        needs(wrong, "wrong_contexts gives none")
        policy = self.make()
        for context in wrong:
            why = "what is missing would be taken for 0"
            refuses(UsageError, f"the context {context!r} is refused", why, policy.probabilities, context, self.actions)


class SpacePolicyContract(StoredPolicyContract):
    """Rules of policies over an action space, such as those that networks compute.

    They have ``spaces``, ``act``, ``choose`` and, over discrete actions, ``probabilities``.

    ::

        class TestMine(SpacePolicyContract):
            def make(self):
                return algorithm.policy()

    Attributes:
        takes_masks: whether it keeps to masks.
        is_drawn: whether its actions are drawn, and not the same each time.
    """

    takes_masks: ClassVar[bool] = True
    is_drawn: ClassVar[bool] = False

    def said_by(self, policy: Any) -> Any:
        """Returns the actions that it chooses."""
        return None if self.is_drawn else np.array(policy.choose(self.observations(policy.spaces)))

    def ask_otherwise(self, policy: Any) -> None:
        """Asks for fewer observations."""
        policy.choose(self.observations(policy.spaces, 3))

    def observations(self, spaces: Spaces, num: int = 12) -> F32:
        """Returns encoded observations, which a Box of that size takes as they are."""
        size = ObservationEncoder(spaces.observation).size
        return generator(0, "contract", "policy").standard_normal((num, size)).astype(np.float32)

    def test_actions_fit_the_space(self) -> None:
        """``choose`` returns an action for each row, act one in the form of the space."""
        policy = self.make()
        spaces = policy.spaces
        shown = self.observations(spaces)
        fault = actions_fault(spaces.action, policy.choose(shown), len(shown))
        expect(fault is None, f"choose returns actions of {spaces.action}", fault, "environments take them")
        if not isinstance(spaces.observation, Box):
            return
        for row in shown:
            expect_action(spaces.action, policy.act(row))

    def test_act_and_choose_agree(self) -> None:
        """One observation and a row of a batch have the same action."""
        policy = self.make()
        spaces = policy.spaces
        if self.is_drawn or not isinstance(spaces.observation, Box) or not isinstance(spaces.action, Discrete):
            skip("its actions are drawn, or not discrete, or its observations are not numbers alone")
        shown = self.observations(spaces)
        batch = policy.choose(shown) + spaces.action.start
        single = np.array([policy.act(row) for row in shown])
        same(single, batch, "act and choose say the same", "evaluations choose in batches, agents act one by one")

    def test_probabilities_sum_to_one(self) -> None:
        """Over discrete actions it gives each a probability, together 1, and 0 to what a mask forbids."""
        policy = self.make()
        spaces = policy.spaces
        fits = isinstance(spaces.action, Discrete) and isinstance(spaces.observation, Box)
        needs(fits, "its actions are not discrete, or its observations are not numbers alone")
        count = spaces.action.n
        for row in self.observations(spaces):
            for mask in (None, *_masks(count)) if self.takes_masks else (None,):
                found = np.asarray(policy.probabilities(row, mask))
                fault = distribution_fault(found, count)
                expect(fault is None, f"under the mask {mask} probabilities sum to one", fault, "actions are drawn")
                wrong = 0.0 if mask is None else float(found[~np.array(mask)].sum())
                expect(wrong == 0, "what a mask forbids has none", f"{wrong:g}", "it cannot or must not be done")

    def test_masks_are_kept(self) -> None:
        """No action that a mask forbids is chosen; a mask that allows nothing is refused."""
        policy = self.make()
        space = policy.spaces.action
        takes_masks = self.takes_masks and not isinstance(space, Box)
        needs(takes_masks, "it takes no masks, or its actions have no choices to mask")
        shown, rng = self.observations(policy.spaces, 200), generator(0, "contract", "policy masks")
        masks = random_masks(space, len(shown), rng)
        if masks is not None:
            num = num_forbidden(space, policy.choose(shown, masks), masks)
            expect(num == 0, "a masked action is never chosen", f"{num} of 200 were", "it cannot or must not be done")
        if isinstance(policy.spaces.observation, Box):
            why, nothing = "whatever came back would be forbidden", [False] * num_choices(space)
            refuses(UsageError, "a mask that allows nothing is refused", why, policy.act, shown[0], nothing)

    def test_observations_that_do_not_fit_are_refused(self) -> None:
        """Observations of another size, or with NaN, are refused."""
        policy = self.make()
        needs(isinstance(policy.spaces.observation, Box), "its observations are not numbers alone")
        row = self.observations(policy.spaces, 1)[0].reshape(policy.spaces.observation.shape)
        bad = row.copy()
        bad.flat[0] = np.nan
        why = "an action would be chosen on what was never seen"
        refuses(UsageError, "NaN is refused", why, policy.act, bad)
        refuses(UsageError, "an observation of another size is refused", why, policy.act, np.zeros(999, np.float32))


def distribution_fault(found: Any, count: int) -> str | None:
    """Returns what is wrong with probabilities of ``count`` actions; None: nothing."""
    values = np.asarray(found)
    if values.shape != (count,) or values.dtype.kind != "f":
        return f"{values.dtype} numbers of shape {values.shape} in the place of floats of shape ({count},)"
    if not (np.isfinite(values).all() and (values >= 0).all() and abs(float(values.sum()) - 1) <= SUM_TOLERANCE):
        return f"{values.tolist()}, which sum to {float(values.sum()):g}"
    return None


def _masks(count: int) -> list[list[bool]]:
    """Returns masks that allow one action, and those that forbid one."""
    one = [[place == number for place in range(count)] for number in range(count)]
    return one + ([[not each for each in mask] for mask in one] if count > 1 else [])
