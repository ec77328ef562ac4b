"""The facade for an agent: record its runs, choose for it, reward it, prove what was learned."""

from __future__ import annotations

import atexit
import math
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, overload

import msgspec

from learnloop.algorithms import build_config
from learnloop.algorithms.contextual import AnyConfig
from learnloop.core.clock import now
from learnloop.core.errors import ConflictError, LearnloopError, NotFoundError, RewardError, UsageError
from learnloop.core.ids import new_id
from learnloop.core.names import check_name
from learnloop.core.protocols import Context
from learnloop.core.records import Decision, Episode, Json, Reward
from learnloop.decisions import Choice, DecisionPoint
from learnloop.evaluation import VerificationOptions
from learnloop.loop.episode import OpenEpisode
from learnloop.loop.proving import ProofResult, prove_from_log
from learnloop.loop.workspace import Workspace, find_settings
from learnloop.nn import ContextSchema, FeatureKind
from learnloop.traces import ActiveEpisode, ActiveSpan, Recorder, instrument

P = ParamSpec("P")
R = TypeVar("R")

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


class Loop:
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
        UsageError: ``agent`` cannot be a name.
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
        self.workspace = Workspace(find_settings(home, database), create=True, queue_size=queue_size)
        self._seed = seed
        self._recorder = Recorder(self.workspace.store.offer, self.agent_id)
        self._points: dict[str, DecisionPoint] = {}
        self._points_lock = threading.Lock()
        self._checkpointing = threading.Lock()
        self._background_error: str | None = None
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
        return OpenEpisode(self._recorder, self._reward_episode, task_id=task, attempt=attempt, metadata=metadata)

    def span(self, name: str, operation: str = "custom", **attributes: object) -> ActiveSpan:
        """Returns a context manager that records one timed operation inside the current episode.

        Args:
            name: which model, tool or part.
            operation: ``chat``, ``execute_tool`` ... (OpenTelemetry GenAI operation names) or ``custom``.
            attributes: what to keep with it; ``span.set(...)`` adds more.
        """
        return self._recorder.span(name, operation, attributes)

    @overload
    def agent(self, function: Callable[P, R], /) -> Callable[P, R]: ...
    @overload
    def agent(
        self, /, *, name: str | None = None, content: bool = True
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
    def agent(self, function: Any = None, /, *, name: str | None = None, content: bool = True) -> Any:
        """Decorates the function that runs the agent, of any kind; outside of an episode each call makes one.

        Args:
            function: a function, coroutine function, generator or async generator.
            name: of the span; the function's name where None.
            content: whether arguments and result are recorded.
        """
        return self._decorate("invoke_agent", function, name, content)

    @overload
    def tool(self, function: Callable[P, R], /) -> Callable[P, R]: ...
    @overload
    def tool(
        self, /, *, name: str | None = None, content: bool = True
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
    def tool(self, function: Any = None, /, *, name: str | None = None, content: bool = True) -> Any:
        """Decorates a tool of the agent, a function of any kind, so that each call is a span.

        Args:
            function: a function, coroutine function, generator or async generator.
            name: of the span; the function's name where None.
            content: whether arguments and result are recorded.
        """
        return self._decorate("execute_tool", function, name, content)

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
        schema = None if features is None else ContextSchema(features=dict(features))
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
        decision, index = point.choose(
            actions,
            context or {},
            mask,
            episode_id=episode.episode_id if episode else None,
            span_id=span.span_id if span else None,
        )
        self.workspace.store.offer(decision)
        return Choice.of(decision, index, decision.propensity or 0.0)

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
        if isinstance(target, Choice):
            self._write_rewards(values, weights, reason, decision_id=target.decision_id)
            return
        decision = self._find_decision(target)
        if decision is not None:
            self._point(decision.policy)
            self._write_rewards(values, weights, reason, decision_id=target, episode_id=decision.episode_id)
        else:
            self._require_episode(target)
            self._write_rewards(values, weights, reason, episode_id=target)

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
        self.flush()
        config = self.policy_config(name)
        return prove_from_log(self.workspace, self.agent_id, name, config, VerificationOptions(**options))

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
            last_error=store.last_error or recorder.last_failure or self._background_error or self._damage(),
        )

    def _damage(self) -> str | None:
        return next((point.damage for point in list(self._points.values()) if point.damage), None)

    def close(self) -> None:
        """Saves what the policies have learned and closes the store; further records are dropped and counted."""
        if self._closed:
            return
        self._closed = True
        try:
            with self._checkpointing:
                for point in self._points.values():
                    point.checkpoint()
        finally:
            self.workspace.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Loop({self.agent_id!r}, database={self.workspace.settings.shown_database!r})"

    # ------------------------------------------------------------------ inside

    def _decorate(self, operation: str, function: Any, name: str | None, content: bool) -> Any:
        def decorate(wrapped: Callable[P, R]) -> Callable[P, R]:
            return instrument(self._recorder, wrapped, operation=operation, name=name, content=content)

        return decorate if function is None else decorate(function)

    def _point(self, name: str) -> DecisionPoint:
        with self._points_lock:
            if name not in self._points:
                check_name("a policy", name)
                self._open_point(name, build_config("squarecb", epsilon=EXPLORATION_SHARE), None)
            return self._points[name]

    def _open_point(self, name: str, config: AnyConfig, schema: ContextSchema | None) -> DecisionPoint:
        self.workspace.store.write([])  # what was recorded before is in the log that the point reads
        point = DecisionPoint(self.workspace.store, self.agent_id, name, config, schema=schema, seed=self._seed)
        self._points[name] = point
        return point

    def _reward_episode(
        self,
        episode: ActiveEpisode,
        values: Mapping[str, float | None],
        weights: Mapping[str, float] | None,
        reason: str | None,
    ) -> None:
        self._write_rewards(values, weights, reason, episode_id=episode.episode_id)

    def _write_rewards(
        self,
        values: Mapping[str, float | None],
        weights: Mapping[str, float] | None,
        reason: str | None,
        *,
        episode_id: str | None = None,
        decision_id: str | None = None,
    ) -> None:
        """Checks all parts, then records and learns each."""
        if not values:
            raise UsageError("a reward needs at least one named part, such as solved=1.0")
        unknown = set(weights or {}) - set(values)
        if unknown:
            raise UsageError(f"weights name {sorted(unknown)}, which are no parts of this reward ({sorted(values)})")
        rewards = [
            Reward(
                reward_id=new_id(),
                episode_id=episode_id,
                decision_id=decision_id,
                name=name,
                value=_checked(name, value),
                weight=_checked(f"weight of {name}", (weights or {}).get(name, 1.0)) or 0.0,
                reason=reason,
                created_at=now(),
            )
            for name, value in values.items()
        ]
        for reward in rewards:
            self.workspace.store.offer(reward)
            for point in list(self._points.values()):
                point.apply(reward)
                if point.checkpoint_due():
                    self._checkpoint_in_background(point)

    def _find_decision(self, decision_id: str) -> Decision | None:
        self.workspace.store.write([])  # a decision of a moment ago may still be queued
        return self.workspace.store.find(Decision, decision_id)

    def _require_episode(self, episode_id: str) -> None:
        episode = self.workspace.store.find(Episode, episode_id)
        if episode is None:
            raise NotFoundError(f"no decision and no episode has the id {episode_id!r}")

    def _checkpoint_in_background(self, point: DecisionPoint) -> None:
        """Starts a checkpoint unless one is running; the agent does not wait for it."""
        if self._checkpointing.acquire(blocking=False):
            threading.Thread(target=self._checkpoint, args=(point,), name="learnloop-checkpoint", daemon=True).start()

    def _checkpoint(self, point: DecisionPoint) -> None:
        try:
            point.checkpoint()
        except LearnloopError as error:  # the log still has everything; the next checkpoint tries again
            self._background_error = f"checkpoint of {point.name}: {error}"
        finally:
            self._checkpointing.release()


def _checked(name: str, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool | int | float) and math.isfinite(value):
        return float(value)
    raise RewardError(f"reward {name} is {value!r}; allowed are finite numbers, and None for 'could not be computed'")


def _close_at_exit(reference: weakref.ref[Loop]) -> None:
    """Closes a loop that its program left open; what cannot be saved is said on standard error, not raised."""
    loop = reference()
    if loop is None:
        return
    try:
        loop.close()
    except LearnloopError as error:
        sys.stderr.write(f"learnloop: {loop.agent_id}: not all was saved: {error}\n")
