"""Checkpoints of a point's learner: shortcuts to what its log says, found, kept few and never trusted blindly."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

import msgspec

from learnloop.algorithms import ContextualBandit
from learnloop.core.clock import now
from learnloop.core.errors import CorruptError, LearnloopError
from learnloop.core.ids import new_id
from learnloop.core.protocols import PolicyArtifact
from learnloop.core.records import Agent, ModelCheckpoint
from learnloop.store import Store
from learnloop.store.queries.records import remove_records
from learnloop.system.state_file import State, decode_state, encode_state, load_tensors

KEPT = 2
"""How many checkpoints of a point are kept."""
GRACE = timedelta(minutes=10)
"""An older one is kept so long all the same: a backup that is being made may be about to copy it."""

_FORMAT = "learnloop.online/v2"


class Restored(NamedTuple):
    """What the newest checkpoint gave."""

    bandit: ContextualBandit | None
    """None: there is none, or it cannot be used."""
    sequence: int
    """The log up to here is learned."""
    waiting: list[str]
    """Deferred decisions that may still be activated."""
    damage: str | None
    """Why it cannot be used."""


class Checkpoints:
    """The checkpoints of one policy of one agent in a store."""

    def __init__(self, store: Store, agent_id: str, policy: str) -> None:
        self._store = store
        self._agent_id = agent_id
        self._policy = policy

    def newest(self) -> Restored:
        """Returns the state of the newest checkpoint; without one, the state before the log began."""
        found = self._list_checkpoints()
        if not found or self._store.blobs is None:
            return Restored(None, 0, [], None)
        record = found[0]
        metrics = record.performance_metrics
        try:
            artifact = _unpack(self._store.blobs.get(record.checkpoint_path), self._owner())
            if "declared" in metrics:  # written before the features were part of the settings
                artifact = artifact._replace(config={**artifact.config, "declared": metrics["declared"]})
            bandit = ContextualBandit.from_artifact(artifact)
        except LearnloopError as error:
            return Restored(None, 0, [], f"a checkpoint of {self._policy} could not be used, the log was: {error}")
        return Restored(bandit, int(metrics["reward_sequence"]), metrics.get("waiting", []), None)

    def save(self, artifact: PolicyArtifact, num_updates: int, sequence: int, waiting: list[str]) -> ModelCheckpoint:
        """Writes a checkpoint durably, removes old ones and returns its record.

        Raises:
            StoreError, UnreachableError: it could not be written; the log still has everything.
        """
        if self._store.blobs is None:
            raise CorruptError("a store without a folder for blobs cannot keep checkpoints")
        record = ModelCheckpoint(
            checkpoint_id=new_id(),
            agent_id=self._agent_id,
            policy=self._policy,
            checkpoint_path=self._store.blobs.put(_pack(artifact, self._owner())),
            performance_metrics={"reward_sequence": sequence, "waiting": waiting},
            training_iteration=num_updates,
            created_at=now(),
        )
        self._store.write([Agent(agent_id=self._agent_id, created_at=record.created_at), record])
        self._remove_old(record.checkpoint_id)
        return record

    def _owner(self) -> str:
        return f"{self._agent_id}.{self._policy}"

    def _list_checkpoints(self) -> list[ModelCheckpoint]:
        """Returns the checkpoints, the one that has learned most of the log first: clocks may go back."""
        mine = {"agent_id": self._agent_id, "policy": self._policy}
        found = list(self._store.iterate(ModelCheckpoint, where=mine))
        return sorted(found, key=lambda each: int(each.performance_metrics["reward_sequence"]), reverse=True)

    def _remove_old(self, newest: str) -> None:
        found = self._list_checkpoints()
        limit = now() - GRACE
        old = [each for each in found[KEPT:] if each.created_at <= limit and each.checkpoint_id != newest]
        if not old or self._store.blobs is None:
            return
        gone = {"checkpoint_id": [each.checkpoint_id for each in old]}
        self._store.run(remove_records, ModelCheckpoint, gone)
        left = {each.checkpoint_path for each in found} - {each.checkpoint_path for each in old}
        for address in {each.checkpoint_path for each in old} - left:
            self._store.blobs.remove(address)


def _pack(artifact: PolicyArtifact, owner: str) -> bytes:
    """Returns an artefact as one blob."""
    values = {"owner": owner, "algorithm": artifact.algorithm, "config": msgspec.to_builtins(artifact.config)}
    return encode_state(_FORMAT, State(dict(artifact.tensors), values))


def _unpack(blob: bytes, owner: str) -> PolicyArtifact:
    length = int.from_bytes(blob[:8], "big")
    try:
        if length < len(blob):  # of an earlier version: the length of its JSON, the JSON, its tensors
            tensors, values = load_tensors(blob[8 + length :]), msgspec.json.decode(blob[8 : 8 + length])
        else:
            tensors, values = decode_state(blob, _FORMAT)
        if values["owner"] != owner:
            raise CorruptError(f"it is the checkpoint of {values['owner']!r}")
        return PolicyArtifact(values["algorithm"], values["config"], tensors)
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise CorruptError(f"it cannot be read: {error}") from error
