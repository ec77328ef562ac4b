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
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from learnloop.algorithms import build_config
from learnloop.algorithms.bandits.contextual import AnyConfig
from learnloop.core.errors import ConflictError, LearnloopError, NotFoundError, UsageError, one_of
from learnloop.core.names import check_name
from learnloop.core.protocols import Context
from learnloop.core.records import Decision, Episode, Json
from learnloop.core.rewards import RewardTarget
from learnloop.decisions import Choice, DecisionPoint, declared_schema
from learnloop.evaluation import VerificationOptions
from learnloop.loop.agent.capture import Capture
from learnloop.loop.agent.episode import OpenEpisode
from learnloop.loop.agent.policy_sync import Keeper
from learnloop.loop.agent.proving import ProofResult, prove_from_log
from learnloop.loop.rewards.recording import find_queued, record_rewards
from learnloop.loop.workspace.settings import find_settings
from learnloop.loop.workspace.workspace import Workspace
from learnloop.nn import ContextSchema, FeatureKind
from learnloop.traces import Recorder

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


class Loop(Capture):
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
        if seed is not None and type(seed) is not int:
            raise UsageError(f"seed is {seed!r}; give a whole number, or None")
        if type(queue_size) is not int or queue_size < 1:
            raise UsageError(f"queue_size is {queue_size!r}; give a whole number of at least 1")
        self.workspace = Workspace(find_settings(home, database), create=True, queue_size=queue_size)
        self._seed = seed
        super().__init__(Recorder(self.workspace.store.offer, self.agent_id))
        self._points: dict[str, DecisionPoint] = {}
        self._points_lock = threading.Lock()
        self._keeper = Keeper(lambda: list(self._points.values()))
        self._learning_error: str | None = None
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
        **options: Any,
    ) -> DecisionPoint:
        """Declares how the policy ``name`` learns, before its first choice; ``choose`` alone takes the defaults.

        Args:
            name: the policy's name within this agent.
            algorithm: ``squarecb``, ``linucb`` or ``thompson``.
            features: the kind of each context feature: ``number``, ``category`` or ``text``; found out from the first
                contexts where None.
            epsilon: the share of decisions that is drawn uniformly from the allowed actions.
            options: the algorithm's own, such as ``gamma_scale``.

        Raises:
            UsageError: an unknown algorithm or option.
            ConflictError: the policy was declared or used before.
        """
        check_name("a policy", name)
        config = build_config(algorithm, epsilon=epsilon, **options)
        schema = declared_schema(None if features is None else dict(features))
        with self._points_lock:
            if name in self._points:
                raise ConflictError(f"policy {name!r} is in use already; declare it before its first choice")
            return self._open_point(name, config, schema)

    def policy_config(self, name: str) -> AnyConfig:
        """Returns how the policy ``name`` learns."""
        return self._point(name).bandit.config

    def choose(
        self, name: str, actions: Sequence[str], context: Context | None = None, *, mask: Sequence[bool] | None = None
    ) -> Choice:
        """Returns one of ``actions``, chosen by the policy ``name``, which learns from the rewards that follow.

        The result is the action's name and knows its ``decision_id`` and ``propensity``. Inside an episode the
        episode's reward is the decision's, unless it gets one of its own.

        Args:
            name: the policy: the same at each choice of this kind.
            actions: what can be chosen, distinct names; they may differ from call to call.
            context: what is known: numbers, categories and text by feature name, the same features at each call.
            mask: which actions are allowed now; None: all.

        Raises:
            ContextError: a feature is missing, unknown, or not of its kind.
            ActionError: no action is allowed, or two have one name.
        """
        span = self._recorder.current
        episode = span.episode if span else None
        point = self._points.get(name) or self._point(name)
        decision, position = point.choose(
            actions,
            {} if context is None else context,
            mask,
            episode_id=episode.episode_id if episode else None,
            span_id=span.span_id if span else None,
        )
        if isinstance(episode, OpenEpisode):
            episode.policies[name] = None
        self.workspace.store.offer(decision)
        return Choice.of(decision, position, decision.propensity or 0.0)

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
            FormatError: ``result`` is none.
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

    def prove(self, name: str, **options: Any) -> ProofResult:
        """Returns the verdict on what can be learned from the log of policy ``name``, and registers what was proven.

        A policy is trained on about 60 % of the episodes and judged on the others. Only the verdict ``learned`` makes
        a version, named ``AGENT.NAME``.

        Args:
            name: the policy.
            options: of ``VerificationOptions``, such as ``seed`` or ``alpha``.

        Raises:
            NotFoundError: no decision of the policy has a reward.
        """
        chosen = _verification_options(options)
        self.flush()
        point = self._point(name)
        return prove_from_log(self.workspace, self.agent_id, name, point.bandit.config, point.declared, chosen)

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
        self._keeper.stop(timeout_seconds)
        failures: list[LearnloopError] = []
        for point in list(self._points.values()):
            try:
                point.checkpoint(timeout_seconds)
            except LearnloopError as error:
                failures.append(error)
        try:
            self.workspace.close(timeout_seconds)
        except LearnloopError as error:
            failures.append(error)
        if failures:
            raise failures[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Loop({self.agent_id!r}, database={self.workspace.settings.shown_database!r})"

    # ------------------------------------------------------------------ inside

    def _point(self, name: str) -> DecisionPoint:
        with self._points_lock:
            if name not in self._points:
                check_name("a policy", name)
                self._open_point(name, build_config("squarecb", epsilon=EXPLORATION_SHARE), None)
            return self._points[name]

    def _open_point(self, name: str, config: AnyConfig, schema: ContextSchema | None) -> DecisionPoint:
        point = DecisionPoint(self.workspace.store, self.agent_id, name, config, schema=schema, seed=self._seed)
        self._points[name] = point
        self._keeper.start()
        return point

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
                point = self._points.get(policy) or self._point(policy)
                for reward in rewards:
                    point.apply(reward)
            except LearnloopError as error:
                self._learning_error = f"{policy} has not learned a reward yet: {error}"

    def _learning_trouble(self) -> str | None:
        damage = next((point.damage for point in list(self._points.values()) if point.damage), None)
        return self._learning_error or self._keeper.last_error or damage


def _verification_options(options: Mapping[str, Any]) -> VerificationOptions:
    allowed = VerificationOptions.__struct_fields__
    unknown = options.keys() - set(allowed)
    if unknown:
        raise UsageError(f"prove has no options {one_of(sorted(unknown))}; allowed are {one_of(allowed)}")
    try:
        return msgspec.convert(options, VerificationOptions)
    except msgspec.ValidationError as error:
        raise UsageError(f"the options {options} cannot be used: {error}; allowed are {one_of(allowed)}") from error


def _close_at_exit(reference: weakref.ref[Loop]) -> None:
    """Closes a loop that its program left open; what cannot be saved is said on standard error, not raised."""
    loop = reference()
    if loop is None:
        return
    try:
        loop.close(EXIT_SECONDS)
    except LearnloopError as error:
        sys.stderr.write(f"learnloop: {loop.agent_id}: not all was saved: {error}\n")
