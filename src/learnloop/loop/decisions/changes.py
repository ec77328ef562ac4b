"""What is said of a decision after it was made: that it was used after all."""

from __future__ import annotations

from learnloop.core.clock import now
from learnloop.core.records import Decision, DecisionActivation
from learnloop.loop.workspace.core import WorkspaceCore


def activate(workspace: WorkspaceCore, decision_id: str) -> DecisionActivation:
    """Says that a deferred decision was used; returns when that was said first.

    Raises:
        NotFoundError: there is no such decision.
    """
    workspace.store.get(Decision, decision_id)
    workspace.store.write([DecisionActivation(decision_id=decision_id, created_at=now())])
    return workspace.store.get(DecisionActivation, decision_id)
