"""A policy as it is asked now: one way to decide for every door and every kind of model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec
import numpy as np

from learnloop.algorithms import HashedConfig, Prepared, draw
from learnloop.algorithms.bandits.actions import allowed_actions
from learnloop.algorithms.bandits.config import NEEDS_WIDTHS
from learnloop.algorithms.bandits.exploration import explore, explore_distribution
from learnloop.core.arrays import F64, Bools
from learnloop.core.clock import now
from learnloop.core.errors import ActionError, ContextError, one_of
from learnloop.core.ids import new_id
from learnloop.core.protocols import Context, Policy, Question
from learnloop.core.records import Decision, DecisionMode
from learnloop.decisions.online.learner import OnlineLearner
from learnloop.decisions.service.request import DecisionRequest, check_request
from learnloop.decisions.service.settings import DecisionSettings


@runtime_checkable
class Scoring(Protocol):
    """A policy that predicts rewards, so that it can explore by them."""

    num_updates: int

    def scores(self, context: Mapping[str, Any], actions: Sequence[str]) -> F64:
        """Returns the predicted reward of each action in standard deviations, shape ``(len(actions),)``."""
        ...


class _Place(msgspec.Struct, frozen=True, gc=False):
    """One choice of a request: the whole of it, or one of its slots."""

    context: Mapping[str, Any]
    allowed: Bools
    mask: list[bool] | None
    baseline: str | None
    decision_id: str
    request_id: str | None = None
    slot: str | None = None


class PolicySnapshot(msgspec.Struct, frozen=True):
    """A policy as it is asked now. Nothing in it changes but what an online learner learns."""

    agent_id: str
    policy: str
    settings_version: int
    settings: DecisionSettings
    version_id: str | None
    """The registered version that chooses; None: there is none yet, or the policy serves what it learns as it goes."""
    algorithm: str
    model: Policy | None
    """That version. Without one an online policy chooses by its learner, any other uniformly."""
    scoring: Scoring | None
    """The model itself, where it predicts rewards; before there is one, what reads features as it would."""
    learner: OnlineLearner | None = None
    """Of a policy that learns online."""

    @property
    def num_updates(self) -> int:
        """How many rewards the policy has learned from, as far as it says so."""
        if self.model is None and self.learner is not None:
            return self.learner.num_updates
        return 0 if self.scoring is None else self.scoring.num_updates

    def decide(self, request: DecisionRequest, rng: np.random.Generator) -> list[Decision]:
        """Returns one decision, or one a slot, not yet stored. Safe to call from many threads with an ``rng`` each.

        An online learner expects their rewards from now on, unless the request has a client's own id: another may
        decide under it too, so give what the log keeps of it to ``OnlineLearner.expect_kept``.

        Raises:
            ActionError: there is nothing to choose from, or two actions have one name.
            ContextError: features or vector are not what the policy can read.
        """
        self._check(request)
        allowed = allowed_actions(request.actions, request.mask)
        if self.learner is None:
            return self._decide(request, allowed, rng)
        with self.learner.lock:  # what it chose by and what it will learn from belong together
            return self._decide(request, allowed, rng)

    def _decide(self, request: DecisionRequest, allowed: Bools, rng: np.random.Generator) -> list[Decision]:
        request_id = request.decision_id or new_id()
        if request.slots is None:
            place = _Place(request.context, allowed, request.mask, request.baseline, request_id)
            made = [self._choose(request, place, rng)]
        else:
            made = self._fill(request, allowed, request_id, rng)
        if self.learner is not None and request.decision_id is None:
            # Only now: a request that is refused half way decides nothing.
            for decision, prepared in made:
                if prepared is not None:
                    self.learner.expect(decision, prepared)
        return [decision for decision, _ in made]

    def _fill(
        self, request: DecisionRequest, allowed: Bools, request_id: str, rng: np.random.Generator
    ) -> list[tuple[Decision, Prepared | None]]:
        """Returns what ``_choose`` does for each slot in their order; no action is chosen twice."""
        made: list[tuple[Decision, Prepared | None]] = []
        left = allowed.copy()
        for number, slot in enumerate(request.slots or ()):
            offered = left & np.array([action not in slot.excluded for action in request.actions])
            if not offered.any():
                raise ActionError(f"no action is left for the slot {slot.slot!r}; give more actions, or fewer slots")
            context = {**request.context, "slot": {**slot.features, "id": slot.slot}}
            mask: list[bool] = offered.tolist()
            own_id = slot_decision_id(request_id, number)
            place = _Place(context, offered, mask, slot.baseline, own_id, request_id, slot.slot)
            made.append(self._choose(request, place, rng))
            left[request.actions.index(made[-1][0].action)] = False
        return made

    def _choose(
        self, request: DecisionRequest, place: _Place, rng: np.random.Generator
    ) -> tuple[Decision, Prepared | None]:
        """Returns a decision, and the context as an online learner will learn from it; None: nothing learns online."""
        actions, baseline = request.actions, place.baseline
        is_apprentice = self.settings.mode is DecisionMode.APPRENTICE
        if baseline is None and is_apprentice:
            baseline = actions[int(place.allowed.argmax())]
        if baseline is not None and not place.allowed[actions.index(baseline)]:
            raise ActionError(f"the baseline {baseline!r} is not allowed here, by the mask or by an earlier slot")
        question: Context = place.context
        if request.action_features is not None or request.vector is not None:
            question = Question(question, request.action_features, request.vector)
        prepared = None if self.learner is None else self.learner.bandit.prepare(question, strict=request.is_strict)
        preferred, probabilities = self._distribution(question, prepared, actions, place, rng)
        if is_apprentice:
            index = actions.index(baseline or "")
            probabilities = [float(position == index) for position in range(len(actions))]
        else:
            index = draw(probabilities, rng)
        decision = Decision(
            decision_id=place.decision_id,
            episode_id=request.episode_id,
            span_id=request.span_id,
            agent_id=self.agent_id,
            policy=self.policy,
            policy_version_id=self.version_id,
            algorithm=self.algorithm,
            num_updates=self.num_updates,
            context=place.context,
            actions=actions,
            mask=place.mask,
            action=actions[index],
            propensity=probabilities[index],
            probabilities=probabilities,
            action_features=request.action_features,
            vector=None if request.vector is None else request.vector.tobytes(),
            mode=self.settings.mode,
            settings_version=self.settings_version,
            baseline_action=baseline,
            policy_action=None if baseline is None or preferred is None else actions[preferred],
            request_id=place.request_id,
            slot=place.slot,
            is_deferred=request.is_deferred,
            created_at=now(),
        )
        return decision, prepared

    def _distribution(
        self,
        question: Context,
        prepared: Prepared | None,
        actions: Sequence[str],
        place: _Place,
        rng: np.random.Generator,
    ) -> tuple[int | None, list[float]]:
        """Returns the index of the preferred action, and the probability of each with exploration.

        The first is None before the policy has learned, and where an online policy has no use for it.
        """
        if self.model is not None:
            return self._of_version(self.model, question, actions, place, rng)
        if self.learner is not None and prepared is not None:
            bandit = self.learner.bandit
            needs_preferred = place.baseline is not None or self.settings.mode is DecisionMode.APPRENTICE
            preferred = bandit.preferred(prepared, actions, place.mask) if needs_preferred else None
            return preferred, bandit.probabilities(prepared, actions, place.mask, rng).tolist()
        if self.scoring is not None:  # what could not be learned from must not get into the log
            self.scoring.scores(question, actions)
        return None, (place.allowed / np.count_nonzero(place.allowed)).tolist()

    def _of_version(
        self, model: Policy, question: Context, actions: Sequence[str], place: _Place, rng: np.random.Generator
    ) -> tuple[int, list[float]]:
        """Returns the preferred action and the probabilities of a registered version."""
        exploration = self.settings.exploration
        if self.scoring is not None and exploration.algorithm not in NEEDS_WIDTHS:
            scores = self.scoring.scores(question, actions)
            preferred = int(np.where(place.allowed, scores, -np.inf).argmax())
            return preferred, explore(scores, place.allowed, self.scoring.num_updates, exploration, rng).tolist()
        probabilities = model.probabilities(question, actions, place.mask)
        preferred = int(probabilities.argmax())
        if self.settings.network is None:  # a network explores by itself, and PPO learns from its own distribution
            probabilities = explore_distribution(probabilities, place.allowed, exploration.epsilon)
        return preferred, probabilities.tolist()

    def _check(self, request: DecisionRequest) -> None:
        model = self.settings.model
        check_request(request, interactions=isinstance(model, HashedConfig) and model.interactions)
        vector, network = request.vector, self.settings.network
        is_read = network is not None and self.model is not None  # then the network's encoder looks at each number
        if vector is not None and not is_read and not math.isfinite(np.add.reduce(vector, dtype=np.float64)):
            raise ContextError("the vector holds a number that is not finite; give finite numbers only")
        if network is None:
            return
        if vector is None or len(vector) != network.input_dim:
            given = "none" if vector is None else f"one of {len(vector)} numbers"
            raise ContextError(f"this policy decides by a vector of {network.input_dim} numbers; given is {given}")
        unknown = [action for action in request.actions if action not in network.actions]
        if unknown:
            raise ActionError(f"{one_of(unknown)} is no action of this policy; it has {one_of(network.actions)}")


def slot_decision_id(request_id: str, number: int) -> str:
    """Returns the id of the decision for a request's slot of that number, from 0."""
    return f"{request_id}.{number}"
