"""The facade for an agent: record its runs, choose for it, reward it, prove what was learned."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from learnloop.algorithms import build_config
from learnloop.core.checks import check_name, check_whole
from learnloop.core.errors import ConflictError, LearnloopError, NotFoundError, UsageError, one_of
from learnloop.core.lifecycles import Closing
from learnloop.core.records import Decision, Episode, Json, LearningUpdate
from learnloop.core.rewards import RewardTarget
from learnloop.decisions import Choice, DecisionRequest, DecisionSettings, Policies, Slot
from learnloop.decisions.inputs import plain_actions, plain_context, plain_mask, plain_vector
from learnloop.decisions.learning.champion_watch import ChampionWatch
from learnloop.decisions.learning.learner import Learner
from learnloop.decisions.service.policies import policy_name
from learnloop.decisions.service.request import check_slots
from learnloop.decisions.service.settings import ONLINE, VersionedSettings, read_settings
from learnloop.decisions.service.settings_store import current, put
from learnloop.decisions.service.snapshot import PolicySnapshot
from learnloop.loop.agent.capture import Capture
from learnloop.loop.agent.episode import OpenEpisode
from learnloop.loop.agent.policy_sync import PolicySync
from learnloop.loop.agent.proving import ProofResult, prove_from_log, verification_options
from learnloop.loop.decisions.changes import activate
from learnloop.loop.nouns.workspace import Workspace
from learnloop.loop.rewards.recording import find_queued, record_rewards
from learnloop.loop.workspace.settings import find_settings
from learnloop.nn import FeatureKind
from learnloop.traces.recording.recorder import Recorder

if TYPE_CHECKING:
    from learnloop.loop.rewards.rewarding import RewardProcess, TaskCompletion

EXIT_SECONDS = 5.0
"""How long the end of a program waits, at most, for each thing that is still to be saved."""
EXPLORATION_SHARE = 0.05
"""The share of decisions that is drawn uniformly unless a policy is declared otherwise: what it costs keeps the log
informative, so that what was learned can be proven from it."""


class LoopCounters(msgspec.Struct, frozen=True, kw_only=True):
    """What a loop has kept and what it has lost."""

    num_written: int
    """Records that are durable."""
    num_dropped: int
    """Records that found the queue full, or the store closed."""
    num_failed: int
    """Records that could not be built or stored."""
    last_error: str | None


class Loop(Capture, Closing):
    """The learning loop of one agent.

    Records into SQLite under ``./.learnloop`` unless told otherwise; no server is needed. Recording never raises into
    the agent and never makes it wait: what cannot be kept is counted (``counters``). Choosing and rewarding do raise
    on wrong input.

    Args:
        agent: the agent's name.
        home: the folder of the store; see ``find_settings``.
        database: the URL of the database, ``sqlite:///...`` or ``postgresql://...``.
        seed: makes the choices repeatable; None for choices that nobody can foresee.
        queue_size: how many records may wait to be written before further ones are dropped.

    Raises:
        UsageError: ``agent`` cannot be a name, or ``seed`` or ``queue_size`` is no such number.
        StoreError: the store cannot be opened.
    """

    def __init__(
        self,
        agent: str,
        *,
        home: str | Path | None = None,
        database: str | None = None,
        seed: int | None = None,
        queue_size: int = 65_536,
    ) -> None:
        self.agent_id = check_name("an agent", agent)
        if seed is not None:
            check_whole("seed", seed, None)
        check_whole("queue_size", queue_size)
        self.workspace = Workspace(find_settings(home, database), create=True, queue_size=queue_size)
        super().__init__(Recorder(self.workspace.store.offer, self.agent_id))
        self._policies = Policies(self.workspace.store, self.workspace.registry, seed=seed)
        self._declaring = threading.Lock()
        self._sync = PolicySync(self._policies)
        self._process = os.getpid()
        self._closed = False
        atexit.register(_close_at_exit, weakref.ref(self))

    # ------------------------------------------------------------------ record

    def episode(
        self, task: str | None = None, *, attempt: int | None = None, metadata: Json | None = None
    ) -> OpenEpisode:
        """Returns a context manager that records one try at ``task`` with all spans and choices inside.

        Args:
            task: the key of the task, the same for each try at it.
            attempt: which try it is, from 0.
            metadata: what else there is to say, as JSON.
        """
        task_id = None if task is None else str(task)
        return OpenEpisode(self._recorder, self._reward_episode, task_id=task_id, attempt=attempt, metadata=metadata)

    # ------------------------------------------------------------------ decide

    def policy(
        self,
        name: str,
        *,
        algorithm: str = "squarecb",
        features: Mapping[str, FeatureKind] | None = None,
        epsilon: float = EXPLORATION_SHARE,
        settings: DecisionSettings | Mapping[str, Any] | None = None,
        **options: Any,
    ) -> VersionedSettings:
        """Says how the policy ``name`` chooses and learns, before its first choice here; returns what holds now.

        The settings are kept in the store, as their next version where they differ from those that hold: every process
        and the server decide by them. ``choose`` alone takes what is there, or the defaults of this method.

        Args:
            name: the policy's name within this agent.
            algorithm: how it explores: ``squarecb``, ``linucb``, ``thompson``, ``epsilon_greedy`` or ``softmax``.
            features: the kind of each context feature: ``number``, ``category`` or ``text``; found out from the first
                contexts where None.
            epsilon: the share of decisions that is drawn uniformly from the allowed actions.
            settings: all that there is to set, instead of the above, such as ``{"model": {"kind": "hashed"}}``.
            options: further fields of the model and of the exploration, such as ``gamma_scale``.

        Raises:
            UsageError: an unknown algorithm, option or setting.
            ConflictError: the policy was used here before.
        """
        if settings is None:
            config = build_config(
                algorithm, epsilon=epsilon, features=None if features is None else dict(features), **options
            )
            settings = DecisionSettings(model=config.model, exploration=config.exploration)
        elif features is not None or options:
            raise UsageError(f"settings say all; give {one_of(sorted({*options, 'features'}))} in them")
        chosen = settings if isinstance(settings, DecisionSettings) else read_settings(settings)
        policy_name(self.agent_id, name)
        with self._declaring:
            if self._policies.find(self.agent_id, name) is not None:
                raise ConflictError(f"policy {name!r} is in use already; declare it before its first choice")
            store = self.workspace.store
            held = current(store, self.agent_id, name)
            if held.version == 0 or held.settings != chosen:
                held = put(store, self.agent_id, name, chosen, expected_version=held.version)
            self._policies.load(self.agent_id, name)
            self._sync.start()
        return held

    def snapshot(self, name: str) -> PolicySnapshot:
        """Returns the policy ``name`` as it chooses now: its settings, its version, and what it learns online."""
        return self._policies.find(self.agent_id, name) or self._policies.load(self.agent_id, name, ONLINE)

    def choose(
        self,
        name: str,
        actions: Sequence[str],
        context: Mapping[str, Any] | None = None,
        *,
        mask: Sequence[bool] | None = None,
        action_features: Sequence[Mapping[str, Any]] | None = None,
        vector: Sequence[float] | None = None,
        baseline: str | None = None,
        deferred: bool = False,
    ) -> Choice:
        """Returns one of ``actions``, chosen by the policy ``name``, which learns from the rewards that follow.

        The result is the action's name and knows its ``decision_id`` and ``propensity``. Inside an episode the
        episode's reward is the decision's, unless it gets one of its own.

        A policy that nobody has set up learns online from the names of the actions and a flat context, unless its first
        choice brings more: then its model is ``hashed``, which learns in updates (``learnloop serve``, ``learn``).

        Args:
            name: the policy: the same at each choice of this kind.
            actions: what can be chosen, distinct names; they may differ from call to call.
            context: what is known: numbers, categories and text by feature name, the same features at each call; nested
                objects and lists where the model is ``hashed``.
            mask: which actions are allowed now; None: all.
            action_features: what is known of each action, in their order.
            vector: numbers such as an embedding.
            baseline: what the program's own logic chooses; in apprentice mode that is the choice.
            deferred: whether it counts only after ``activate``: what was chosen may never be used.

        Raises:
            ContextError: a feature is missing, unknown, or not of its kind.
            ActionError: no action is allowed, or two have one name.
        """
        request = self._request(actions, context, mask, action_features, vector, baseline, deferred)
        return self._decide(name, request)[0]

    def choose_slots(
        self,
        name: str,
        actions: Sequence[str],
        slots: Sequence[str | Slot],
        context: Mapping[str, Any] | None = None,
        *,
        mask: Sequence[bool] | None = None,
        action_features: Sequence[Mapping[str, Any]] | None = None,
        vector: Sequence[float] | None = None,
        deferred: bool = False,
    ) -> list[Choice]:
        """Returns an action for each of several ``slots``, each a decision of its own; no action is chosen twice.

        Args:
            name: the policy.
            actions: what can be chosen.
            slots: names of the places to fill, or ``Slot`` with features, exclusions and a baseline.
            context: as for ``choose``; the slot's own features are added to it as ``slot``.
            mask: as for ``choose``.
            action_features: as for ``choose``.
            vector: as for ``choose``.
            deferred: as for ``choose``.

        Raises:
            ContextError: as for ``choose``.
            ActionError: as for ``choose``; there are more slots than actions, or two have one name.
        """
        places = [slot if isinstance(slot, Slot) else Slot(str(slot)) for slot in slots]
        check_slots(places)
        request = self._request(actions, context, mask, action_features, vector, None, deferred, places)
        return self._decide(name, request)

    def activate(self, target: Choice | str, /) -> None:
        """Says that the action of a deferred decision was used: it counts from now on.

        Args:
            target: the choice, or its id.

        Raises:
            NotFoundError: there is no such decision.
        """
        decision_id = target.decision_id if isinstance(target, Choice) else target
        self.flush()  # the decision itself may still be queued
        activate(self.workspace, decision_id)
        self._sync.keep()

    def learn(self, name: str) -> LearningUpdate | None:
        """Tries to make a better version of a policy that learns in updates; returns the record of it.

        The same that the server's learner does beside it: where the log has enough news, a candidate is trained, judged
        on held-out decisions, and chosen by from then on if it is proven. Before that, a champion that is worse than
        what is tried besides it is put out. None: there is too little news, or the policy learns online.

        Raises:
            StoreError, UnreachableError: the store refuses; nothing was recorded.
        """
        self.flush()
        store, registry = self.workspace.store, self.workspace.registry
        ChampionWatch(store, registry).look(self.agent_id, name)
        record = Learner(store, registry).update(self.agent_id, name, current(store, self.agent_id, name))
        self._policies.refresh()
        return record

    def reward(
        self,
        target: Choice | str,
        /,
        *,
        weights: Mapping[str, float] | None = None,
        reason: str | None = None,
        **values: float | None,
    ) -> None:
        """Says what a decision or an episode was worth, now or much later, also in another process.

        Args:
            target: a choice, or the id of a decision or an episode.
            weights: weight by part, 1 where not given; 0 makes a metric: recorded, not learned from.
            reason: why a part is None, or what the scorer has to say.
            values: the parts, such as ``solved=1.0``; None: could not be computed.

        Raises:
            NotFoundError: there is no such decision or episode.
            RewardError: a value is neither None nor a finite number.
        """
        fields: dict[str, Any] = {"weights": weights, "reason": reason}
        if isinstance(target, Choice):
            given = RewardTarget(target.episode_id, target.decision_id)
            self._reward(given, [target.policy], values, **fields)
            return
        if not isinstance(target, str):
            raise UsageError(f"{target!r} cannot be rewarded; give a choice, or the id of a decision or an episode")
        decision = find_queued(self.workspace, Decision, target)
        if decision is not None:
            self._reward(RewardTarget(decision.episode_id, target), [decision.policy], values, **fields)
            return
        if self.workspace.store.find(Episode, target) is None:
            raise NotFoundError(f"no decision and no episode has the id {target!r}")
        decisions = self.workspace.store.iterate(Decision, where={"episode_id": target, "agent_id": self.agent_id})
        policies = list(dict.fromkeys(each.policy for each in decisions))
        self._reward(RewardTarget(target), policies, values, **fields)

    def process_task_completion(
        self, task_id: str, result: Mapping[str, Any], *, process: RewardProcess | None = None
    ) -> TaskCompletion:
        """Scores a finished task, shapes its reward, shares it out over steps and agents, and stores all of it.

        Args:
            task_id: of the task.
            result: fields of ``Attempt``, such as ``output``, ``expected``, ``task_type`` and ``steps``; with
                ``episode_id`` the reward is that episode's.
            process: how; as ``[rewards]`` of the settings says where None.

        Raises:
            FormatError: ``result`` has unknown fields, or fields of another type.
            NotFoundError: there is no such episode, or the settings name what there is not.
            UsageError: the reward cannot be shaped or shared out as the settings say.
            StoreError: the store refuses.
        """
        from learnloop.loop.rewards.rewarding import process_task_completion

        return process_task_completion(self.workspace, task_id, result, process=process or self._reward_process)

    @cached_property
    def _reward_process(self) -> RewardProcess:
        from learnloop.loop.rewards.rewarding import RewardProcess

        return RewardProcess(self.workspace)

    def prove(self, name: str, *, unit: str = "episode", **options: Any) -> ProofResult:
        """Returns the verdict on what can be learned from the log of policy ``name``, and registers what was proven.

        A policy is trained on about 60 % of the episodes and judged on the others. Only the verdict ``learned`` makes
        a version, named ``AGENT.NAME``.

        Args:
            name: the policy.
            unit: what is independent of each other: ``episode``, ``task``, or the name of a feature of contexts or of
                a key of episodes' metadata, such as ``user`` or ``session``. All decisions of one unit are trained on,
                or all of them are judged on.
            options: of ``VerificationOptions``, such as ``seed`` or ``alpha``.

        Raises:
            NotFoundError: no decision of the policy has a reward.
            UsageError: decisions do not say which unit they are of.
        """
        chosen = verification_options(options)
        self.flush()
        return prove_from_log(self.workspace, self.agent_id, name, chosen, unit=unit)

    # ------------------------------------------------------------------ keep

    def flush(self, timeout_seconds: float = 30.0) -> None:
        """Returns when all that was recorded before is durable.

        Raises:
            StoreError: it could not be written.
            UnreachableError: it took longer than ``timeout_seconds``.
        """
        self.workspace.store.flush(timeout_seconds)

    def counters(self) -> LoopCounters:
        """Returns what was kept and what was lost so far."""
        store, recorder = self.workspace.store.counters(), self._recorder.counters()
        return LoopCounters(
            num_written=store.num_written,
            num_dropped=store.num_dropped,
            num_failed=store.num_failed + recorder.num_failures,
            last_error=store.last_error or recorder.last_failure or self._learning_trouble(),
        )

    def close(self, timeout_seconds: float = 30.0) -> None:
        """Saves what the policies have learned and closes the store; further records are dropped and counted.

        Raises:
            StoreError, UnreachableError: not all could be saved in time; the store is closed all the same.
        """
        if self._closed or self._process != os.getpid():  # a forked child's copy: store and policies are its parent's
            return
        self._closed = True
        self._sync.stop(timeout_seconds)
        failures: list[LearnloopError] = []
        try:
            self._policies.checkpoint(timeout_seconds)
        except LearnloopError as error:
            failures.append(error)
        try:
            self.workspace.close(timeout_seconds)
        except LearnloopError as error:
            failures.append(error)
        if failures:
            raise failures[0]

    def __repr__(self) -> str:
        return f"Loop({self.agent_id!r}, database={self.workspace.settings.shown_database!r})"

    # ------------------------------------------------------------------ inside

    def _request(
        self,
        actions: Sequence[str],
        context: Mapping[str, Any] | None,
        mask: Sequence[bool] | None,
        action_features: Sequence[Mapping[str, Any]] | None,
        vector: Sequence[float] | None,
        baseline: str | None,
        deferred: bool,
        slots: Sequence[Slot] | None = None,
    ) -> DecisionRequest:
        """Returns what is asked, made plain: what is decided by, kept and logged is the same."""
        span = self._recorder.current
        episode = None if span is None else span.episode
        return DecisionRequest(
            actions=plain_actions(actions),
            context={} if context is None else plain_context(context),
            action_features=None if action_features is None else [plain_context(each) for each in action_features],
            vector=None if vector is None else plain_vector(vector),
            mask=None if mask is None else plain_mask(mask),
            baseline=baseline,
            is_deferred=deferred,
            episode_id=None if episode is None else episode.episode_id,
            span_id=None if span is None else span.span_id,
            slots=slots,
            is_strict=True,
        )

    def _decide(self, name: str, request: DecisionRequest) -> list[Choice]:
        decisions = self._policies.decide(self.agent_id, name, request, ONLINE)
        self._sync.start()
        if request.episode_id is not None:
            span = self._recorder.current
            if span is not None and isinstance(span.episode, OpenEpisode):
                span.episode.policies[name] = None
        for decision in decisions:
            self.workspace.store.offer(decision)
        return [Choice.of(each, each.actions.index(each.action), each.propensity or 0.0) for each in decisions]

    def _reward_episode(
        self,
        episode: OpenEpisode,
        values: Mapping[str, float | None],
        weights: Mapping[str, float] | None,
        reason: str | None,
    ) -> None:
        target = RewardTarget(episode.episode_id)
        self._reward(target, list(episode.policies), values, weights=weights, reason=reason)

    def _reward(
        self, target: RewardTarget, policies: Sequence[str], values: Mapping[str, float | None], **fields: Any
    ) -> None:
        """Records a reward and lets ``policies`` learn from it.

        Where a decision is not in memory and the log cannot be read now, its policy learns when it next syncs.
        """
        rewards = record_rewards(self.workspace, target, values, is_queued=True, **fields)
        for policy in policies:
            try:
                self._policies.apply(self.agent_id, policy, rewards)
            except LearnloopError as error:
                self._sync.last_error = f"{policy} has not learned a reward yet: {error}"

    def _learning_trouble(self) -> str | None:
        return self._sync.last_error or self._policies.damage()


def _close_at_exit(reference: weakref.ref[Loop]) -> None:
    """Closes a loop that its program left open; what cannot be saved is said on standard error, not raised."""
    loop = reference()
    if loop is None:
        return
    try:
        loop.close(EXIT_SECONDS)
    except LearnloopError as error:
        sys.stderr.write(f"learnloop: {loop.agent_id}: not all was saved: {error}\n")
