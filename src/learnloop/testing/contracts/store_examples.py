"""Records by which a store is checked: one of each kind, with what is hard to keep."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from learnloop.core.records import (
    Agent,
    AliasMove,
    Certificate,
    Decision,
    DecisionActivation,
    DecisionMode,
    Episode,
    EpisodeStatus,
    IdempotentAnswer,
    LabelRequest,
    LabelStatus,
    LearningUpdate,
    Memory,
    MemoryKind,
    ModelCheckpoint,
    PolicySettings,
    PolicyVersion,
    Record,
    Reward,
    RewardShare,
    Span,
    SpanStatus,
    Task,
    Transition,
    Verdict,
)

T0 = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def episode(episode_id: str = "e1", status: EpisodeStatus = EpisodeStatus.RUNNING, **fields: Any) -> Episode:
    """Returns an episode, running unless told otherwise."""
    given = {"trace_id": "t1", "agent_id": "packer", "task_id": "pack:readme", "started_at": T0, **fields}
    return Episode(episode_id=episode_id, status=status, **given)


def span(span_id: str, **fields: Any) -> Span:
    """Returns a span of the episode ``e1``."""
    given: dict[str, Any] = {
        "trace_id": "t1",
        "episode_id": "e1",
        "parent_id": None,
        "operation": "chat",
        "name": "model",
        "status": SpanStatus.OK,
        "started_at": T0,
        "ended_at": T0 + timedelta(milliseconds=3),
        **fields,
    }
    return Span(span_id=span_id, **given)


def decision(decision_id: str, **fields: Any) -> Decision:
    """Returns a decision of the episode ``e1``."""
    given: dict[str, Any] = {
        "episode_id": "e1",
        "agent_id": "packer",
        "policy": "codec",
        "algorithm": "squarecb",
        "context": {"size": 5120, "kind": "text", "ratio": 0.25, "new": True},
        "actions": ["store", "gzip"],
        "action": "gzip",
        "propensity": 0.75,
        "created_at": T0,
        **fields,
    }
    return Decision(decision_id=decision_id, **given)


def reward(reward_id: str, **fields: Any) -> Reward:
    """Returns a reward of the episode ``e1``."""
    return Reward(
        reward_id=reward_id, **{"episode_id": "e1", "name": "saved", "value": 0.5, "created_at": T0, **fields}
    )


def version(policy_version_id: str, number: int, **fields: Any) -> PolicyVersion:
    """Returns a version of the policy ``packer.codec``."""
    given: dict[str, Any] = {"policy": "packer.codec", "content_hash": "ab" * 32, "algorithm": "linucb", **fields}
    return PolicyVersion(policy_version_id=policy_version_id, version=number, created_at=T0, **given)


EVERY_RECORD: list[Record] = [
    Agent(agent_id="packer", created_at=T0),
    Task(task_id="pack:readme", created_at=T0, metadata={"path": "README.md"}),
    episode(status=EpisodeStatus.FAILED, attempt=2, truncated=True, error="time", ended_at=T0, metadata={"a": [1, {}]}),
    span(
        "s1", error="no", status=SpanStatus.ERROR, parent_id="s0", attributes={"input": "é\U0001f600", "n": [1.5, None]}
    ),
    decision(
        "d1",
        mask=[True, False],
        probabilities=[0.25, 0.75],
        num_updates=7,
        span_id="s1",
        policy_version_id="p",
        action_features=[{"kind": "old", "tags": ["a", 1.5, None]}, {}],
        vector=b"\x00\x00\x80?\xff\x00\x00\x00",
        mode=DecisionMode.APPRENTICE,
        settings_version=3,
        baseline_action="gzip",
        policy_action="store",
        request_id="q1",
        slot="top",
        is_deferred=True,
    ),
    reward("r1", decision_id="d1", value=None, reason="no file", weight=2.0, source="scorer"),
    version("v1", 1, parent_id="v0", metrics={"reward": 0.5}, lineage={"episodes": ["e1"]}),
    AliasMove(
        alias_move_id="m1",
        policy="packer.codec",
        alias="champion",
        policy_version_id="v1",
        actor="ann",
        reason="better",
        created_at=T0,
    ),
    Certificate(
        certificate_id="c1",
        content_hash="ab" * 32,
        verdict=Verdict.NO_SIGNAL,
        reasons=["p = 0.5"],
        statistics={"p": 0.5},
        created_at=T0,
    ),
    Memory(
        memory_id="me1",
        agent_id="packer",
        memory_type=MemoryKind.SEMANTIC,
        content={"text": "gzip suits text"},
        embedding=[0.5, -1.0, 65504.0],
        last_accessed=T0,
        created_at=T0,
    ),
    Transition(
        transition_id="tr1",
        agent_id="packer",
        observation={"x": [0.5]},
        action={"index": 1},
        reward=None,
        next_observation={"x": [1.5]},
        terminated=True,
        truncated=False,
        batch_id="b",
        created_at=T0,
    ),
    RewardShare(
        reward_share_id="rs1",
        completion_id="co1",
        episode_id="ep1",
        task_id="pack:readme",
        agent_id="packer",
        span_id="sp1",
        step=0,
        raw_reward=1.0,
        shaped_reward=0.5,
        credit_assigned=0.25,
        method="uniform",
        created_at=T0,
    ),
    LabelRequest(
        label_request_id="lr1",
        episode_id="ep1",
        status=LabelStatus.ANSWERED,
        priority=0.5,
        reason="uncertain",
        suggested_value=0.75,
        suggested_by="ab" * 32,
        reward_id="rw1",
        created_at=T0,
        closed_at=T0,
        closed_by="ada",
    ),
    DecisionActivation(decision_id="d1", created_at=T0),
    PolicySettings(
        policy_settings_id="ps1",
        agent_id="packer",
        policy="codec",
        version=3,
        settings={"mode": "apprentice"},
        author="ada",
        created_at=T0,
    ),
    LearningUpdate(
        learning_update_id="lu1",
        agent_id="packer",
        policy="codec",
        settings_version=3,
        reward_sequence=7,
        num_samples=200,
        num_held_out=100,
        verdict=Verdict.LEARNED,
        reasons=["better than what is served"],
        metrics={"train/loss": 0.25},
        policy_version_id="v2",
        parent_version_id="v1",
        error="none",
        started_at=T0,
        ended_at=T0,
    ),
    IdempotentAnswer(
        idempotent_answer_id="ef" * 32,
        fingerprint="01" * 32,
        status=201,
        media_type="application/json",
        body=b'{"a": "\xc3\xa9"}\x00',
        created_at=T0,
    ),
    ModelCheckpoint(
        checkpoint_id="ch1",
        agent_id="packer",
        policy="packer.codec",
        checkpoint_path="cd" * 32,
        performance_metrics={"reward": 0.5},
        training_iteration=100,
        created_at=T0,
    ),
]
