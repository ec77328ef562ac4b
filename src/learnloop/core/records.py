"""The records that learnloop keeps: one definition each, used by the store, the API and the clients.

Frozen, without I/O. Times are UTC. Ids are opaque text that sorts by time (UUIDv7) where learnloop makes them;
agents and tasks are known by the name that their owner gives them. ``None`` means "not known" or "not computed"
and never becomes 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

Json = Mapping[str, Any]
"""What a JSON object can hold: text keys; text, numbers, booleans, None, lists and objects as values."""

MAX_REWARD = 1e100
"""The largest value x weight that can be learned from: sums, squares and differences of such stay finite."""

TOTAL = "total"
"""The name of the part of a reward that is the whole of it: where it is known, other parts beside it are metrics."""

DEFAULT = "default"
"""The name of the part of a reward that a policy's settings give to a decision nobody rewarded in time. It counts only
until another part is known."""


class EpisodeStatus(StrEnum):
    """Where an episode stands."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"


class SpanStatus(StrEnum):
    """How a span ended."""

    OK = "ok"
    ERROR = "error"


class Verdict(StrEnum):
    """What a proof of learning found. Only ``learned`` makes a policy version."""

    LEARNED = "learned"
    NO_SIGNAL = "no_signal"
    REGRESSED = "regressed"
    INCONCLUSIVE = "inconclusive"


class ApiScope(StrEnum):
    """What a key of the HTTP API allows."""

    READ = "read"
    """See what is stored."""
    INGEST = "ingest"
    """Bring traces and rewards."""
    ACT = "act"
    """Ask for decisions and give their rewards."""
    TRAIN = "train"
    """Start and stop learning."""
    ADMIN = "admin"
    """All of the others too, and what changes the server itself."""


class MemoryKind(StrEnum):
    """The kinds of memory record (CoALA, Sumers et al. 2023, section 4.1)."""

    EPISODIC = "episodic"
    SEMANTIC = "semantic"
    PROCEDURAL = "procedural"


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of all records: frozen, keyword-only, encoded and validated by msgspec."""


class Agent(Record, frozen=True, kw_only=True):
    """An external program that is being improved."""

    agent_id: str
    """Its name, unique in a store."""
    created_at: datetime


class Task(Record, frozen=True, kw_only=True):
    """A problem that is given to an agent; each try at it is an episode."""

    task_id: str
    """The key that its owner gives it, such as ``pack:readme``."""
    created_at: datetime
    metadata: Json = {}


class Episode(Record, frozen=True, kw_only=True):
    """One try of an agent at a task: the MDP view of a trace."""

    episode_id: str
    trace_id: str
    """The trace whose spans belong to it."""
    agent_id: str
    task_id: str | None
    """None: the run was not given a task."""
    attempt: int | None = None
    """Which try at the task, counted from 0; None: not known."""
    source: str = "loop"
    """``loop`` where learnloop recorded it itself, else the format that it was imported from."""
    status: EpisodeStatus
    terminated: bool = False
    """It came to an end of its own (solved, failed, gave up)."""
    truncated: bool = False
    """A limit cut it off; what would have come is unknown."""
    error: str | None = None
    """What ended a failed episode."""
    started_at: datetime
    ended_at: datetime | None = None
    metadata: Json = {}


class Span(Record, frozen=True, kw_only=True):
    """One timed operation in a trace."""

    span_id: str
    trace_id: str
    episode_id: str | None
    parent_id: str | None
    """The span that it ran in; None for the root."""
    operation: str
    """``invoke_agent``, ``chat``, ``execute_tool``, ``custom`` ... (OpenTelemetry GenAI operation names)."""
    name: str
    """Which agent, model or tool."""
    status: SpanStatus
    error: str | None = None
    started_at: datetime
    ended_at: datetime
    attributes: Json = {}
    """``input`` and ``output`` where they were recorded, and what the caller added."""


class DecisionMode(StrEnum):
    """How a policy of the decision service acts."""

    LEARNING = "learning"
    """It chooses and explores, and learns from the rewards."""
    APPRENTICE = "apprentice"
    """The caller's own choice is returned; the policy learns to make the same one, not from rewards."""
    FROZEN = "frozen"
    """It chooses and explores as it is, and does not change."""


class Decision(Record, frozen=True, kw_only=True):
    """A choice by a policy, with all that off-policy evaluation needs."""

    decision_id: str
    episode_id: str | None
    span_id: str | None = None
    agent_id: str
    policy: str
    """The name of the policy, unique per agent: the point in the program where the choice is made."""
    policy_version_id: str | None = None
    """The registered version that chose; None while a policy learns as it goes, or a caller chose."""
    algorithm: str | None
    """The algorithm that chose; None where the log does not say."""
    num_updates: int | None = None
    """How many rewards the policy had learned from when it chose."""
    context: Json
    actions: list[str]
    """All actions, in the caller's order."""
    mask: list[bool] | None = None
    """Which of them were allowed; None: all."""
    action: str
    propensity: float | None
    """The probability with which ``action`` was chosen; None where the log does not say."""
    probabilities: list[float] | None = None
    """The probability of each of ``actions``; None where the log does not say."""
    action_features: list[Json] | None = None
    """What is known of each of ``actions``; None: their names alone."""
    vector: bytes | None = None
    """What is known besides ``context`` as numbers, such as an embedding: little-endian float32."""
    mode: DecisionMode | None = None
    """The mode of the policy's settings; None: it was made before settings were kept of it, or elsewhere."""
    settings_version: int | None = None
    """The version of the policy's settings that it was made with."""
    baseline_action: str | None = None
    """What the caller's own logic chooses; ``action`` in apprentice mode."""
    policy_action: str | None = None
    """What the policy alone would have chosen greedily; None where it was not asked."""
    request_id: str | None = None
    """The request whose slots were filled together, or the event that an import had it from; None: neither."""
    slot: str | None = None
    """The slot of that request."""
    is_deferred: bool = False
    """Whether it counts only once it is activated (``DecisionActivation``): what was chosen may never be used."""
    created_at: datetime


class DecisionActivation(Record, frozen=True, kw_only=True):
    """Says that the action of a deferred decision was used after all."""

    decision_id: str
    created_at: datetime


class PolicySettings(Record, frozen=True, kw_only=True):
    """One version of how a policy of the decision service chooses and learns; the newest version holds."""

    policy_settings_id: str
    agent_id: str
    policy: str
    version: int
    """Counted from 1 within the policy."""
    settings: Json
    author: str | None = None
    """The name of the key that changed them; None: none was needed."""
    created_at: datetime


class LearningUpdate(Record, frozen=True, kw_only=True):
    """One attempt of the learner of a policy to make a better version of it from the log."""

    learning_update_id: str
    agent_id: str
    policy: str
    settings_version: int
    reward_sequence: int
    """The log of rewards up to here was learned from."""
    num_samples: int
    """Decisions that the candidate was trained on."""
    num_held_out: int
    """Decisions that it was judged on."""
    verdict: Verdict | None
    """None: it failed before it could be judged, or there is too little to judge it on."""
    reasons: list[str]
    metrics: Json = {}
    """Diagnostics by their names, such as ``train/loss``; what was not computed is not there."""
    policy_version_id: str | None = None
    """The version that it made; only ``learned`` makes one."""
    parent_version_id: str | None = None
    """The version that was served while the log was made; None: the policy had not learned yet."""
    error: str | None = None
    """Why it failed."""
    started_at: datetime
    ended_at: datetime


class IdempotentAnswer(Record, frozen=True, kw_only=True):
    """What was answered to a request with an ``Idempotency-Key``, so that the same request is answered the same."""

    idempotent_answer_id: str
    """SHA-256 over who asked and the key."""
    fingerprint: str
    """SHA-256 over route and body."""
    status: int
    """Of the answer; 0: some server works on the request, and ``body`` says which run of it."""
    media_type: str
    body: bytes
    created_at: datetime


class Reward(Record, frozen=True, kw_only=True):
    """A number that says what a run or a decision was worth."""

    reward_id: str
    episode_id: str | None
    decision_id: str | None = None
    """The decision that it is for; None: for the episode as a whole."""
    span_id: str | None = None
    name: str
    """The component; the parts of one total have different names. ``total`` stands for all of them."""
    value: float | None
    """None: could not be computed; it is not learned from and never read as 0."""
    weight: float = 1.0
    """The learned reward is value x weight."""
    source: str = "user"
    """What gave it: ``user``, ``label``, a reward function, an import."""
    author: str | None = None
    """The person who gave it; None: no person did, or it is not known which."""
    reason: str | None = None
    """Why ``value`` is None, or what the scorer has to say."""
    created_at: datetime


class Event(Record, frozen=True, kw_only=True):
    """One entry of the event feed: what changed, in the order in which it became durable."""

    sequence: int
    kind: str
    """``episode.started``, ``episode.ended``, ``episode.reopened``, ``decision.made``, ``reward.recorded`` ..."""
    subject: str
    """The id of what it is about."""
    payload: Json = {}
    created_at: datetime


class PolicyVersion(Record, frozen=True, kw_only=True):
    """An immutable, registered policy."""

    policy_version_id: str
    policy: str
    """The name of the policy, such as ``packer.codec``."""
    version: int
    """Counted from 1 within the name."""
    content_hash: str
    """SHA-256 of its ``policy.json``, which in turn holds the checksum of its weights."""
    algorithm: str
    parent_id: str | None = None
    """The version that it was learned from."""
    metrics: Json = {}
    """Held-out figures by name; the best version is the one with the highest ``reward``."""
    lineage: Json = {}
    """Which data it was learned from."""
    created_at: datetime


class AliasMove(Record, frozen=True, kw_only=True):
    """One move of an alias; the newest move of a name says where the alias points."""

    alias_move_id: str
    policy: str
    alias: str
    policy_version_id: str
    actor: str
    """Who moved it."""
    reason: str
    is_removal: bool = False
    """Whether the alias points nowhere from now on; ``policy_version_id`` is where it pointed until then."""
    created_at: datetime


class ChampionTest(Record, frozen=True, kw_only=True):
    """The test of one version, while it is served, against what is tried besides it (table ``champion_tests``)."""

    champion_test_id: str
    """The id of the move that made the version the champion: each time it becomes one there is a new test."""
    agent_id: str
    policy: str
    policy_version_id: str
    decision_sequence: int
    """The decisions of the log up to here were looked at."""
    num_decisions: int
    """Decisions that say something: another action than the champion's own choice could have been taken."""
    num_others: int
    """Of them, those in which one was."""
    num_missing: int
    """Of them, those whose reward stayed unknown; they count as whatever speaks most for the champion."""
    num_untested: int
    """Decisions that say nothing, since they had one reward with others, or no other action could be taken."""
    evidence: float
    """1 / alpha or more: it is worse than the others."""
    state: Json
    """What the test goes on from."""
    reason: str | None = None
    """Why it was put out, or cannot be tested; None: neither."""
    put_out_at: datetime | None = None
    """When it was found to be worse, and was put out; None: it was not."""
    started_at: datetime
    updated_at: datetime


class Certificate(Record, frozen=True, kw_only=True):
    """The record that proves what a policy version learned."""

    certificate_id: str
    content_hash: str
    """The version that it is about, by the hash of its content."""
    verdict: Verdict
    reasons: list[str]
    statistics: Json
    """The figures of each arm and each test."""
    created_at: datetime


class Memory(Record, frozen=True, kw_only=True):
    """One memory record of an agent (table ``agent_memories``)."""

    memory_id: str
    agent_id: str
    memory_type: MemoryKind
    content: Json
    embedding: list[float] | None = None
    """None until it is computed."""
    importance: float = 0.5
    access_count: int = 0
    last_accessed: datetime | None = None
    created_at: datetime


class Transition(Record, frozen=True, kw_only=True):
    """One step of an agent as a learner sees it (table ``training_transitions``)."""

    transition_id: str
    agent_id: str
    observation: Json
    action: Json
    reward: float | None
    next_observation: Json
    terminated: bool
    truncated: bool
    batch_id: str | None = None
    created_at: datetime


class RewardShare(Record, frozen=True, kw_only=True):
    """The share of a reward that is credited to one step of one agent (table ``reward_history``).

    The shares of one ``completion_id`` are written together, once, and their ``credit_assigned`` add up to the
    ``shaped_reward`` that each of them names.
    """

    reward_share_id: str
    completion_id: str
    """One for each time that a run's reward was shared out; all its shares have it."""
    episode_id: str | None = None
    """None: the reward is of a task whose run is not stored."""
    task_id: str | None = None
    """None: the run was not given a task."""
    agent_id: str
    span_id: str | None = None
    """The step's span; None: the share is the agent's as a whole."""
    step: int | None = None
    """The number of the step, counted from 0; None: the share is the agent's as a whole."""
    raw_reward: float
    """What the whole run was worth, before shaping."""
    shaped_reward: float
    """What was shared out."""
    credit_assigned: float
    """This share of it."""
    method: str
    """How it was shared out: ``last``, ``uniform``, ``discounted``, ``leave_one_out``, ``shapley`` ..."""
    metadata: Json = {}
    created_at: datetime


class LabelStatus(StrEnum):
    """Where a question to a person stands."""

    OPEN = "open"
    ANSWERED = "answered"
    SKIPPED = "skipped"


class LabelRequest(Record, frozen=True, kw_only=True):
    """A question to a person, what an episode was worth: one entry of the label queue (table ``label_requests``)."""

    label_request_id: str
    episode_id: str
    status: LabelStatus
    priority: float
    """The highest is asked first."""
    reason: str
    """Why it is asked: ``uncertain``, ``random``, a person asked for it."""
    suggested_value: float | None = None
    """What a model takes the answer to be, from 0 to 1; None: nothing was suggested."""
    suggested_by: str | None = None
    """Which model: its content hash."""
    reward_id: str | None = None
    """The label that answered it."""
    created_at: datetime
    closed_at: datetime | None = None
    closed_by: str | None = None
    """The person who answered or skipped it."""


class ModelCheckpoint(Record, frozen=True, kw_only=True):
    """The restartable state of something that learns (table ``model_checkpoints``)."""

    checkpoint_id: str
    agent_id: str
    policy: str | None = None
    checkpoint_path: str
    """Where the state lies: a blob's address."""
    performance_metrics: Json
    training_iteration: int
    """How many updates it had seen."""
    created_at: datetime


class ApiKey(Record, frozen=True, kw_only=True):
    """A key of the HTTP API (table ``api_keys``); the secret itself is nowhere."""

    api_key_id: str
    name: str
    """What its owner calls it."""
    prefix: str
    """How the secret begins, to tell keys apart."""
    secret_hash: str
    """SHA-256 of the secret."""
    scopes: list[str]
    """Of ``ApiScope``."""
    created_at: datetime
    expires_at: datetime | None = None
    """None: never."""
    revoked_at: datetime | None = None
    """None: it is not revoked."""
