"""learnloop labels ask and learn, with the real sentence model."""

from __future__ import annotations

from pathlib import Path

import pytest

from learnloop.loop import Settings, Workspace
from tests.cli.calling import Call
from tests.loop.recorded_runs import answered
from tests.rewards.labelled_texts import labelled_attempts


@pytest.fixture
def labelled(call: Call, tmp_path: Path, embedder_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store with 90 labelled episodes of thirty tasks, and three without labels."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(embedder_folder))
    assert call("init").code == 0
    home = tmp_path / ".learnloop"
    with Workspace(Settings(home=home, database=f"sqlite:///{home}/learnloop.db", origins={})) as workspace:
        for number, each in enumerate(labelled_attempts(seed=3, per_topic=3)):
            name, attempt = f"e{number:03}", each.attempt
            workspace.store.write(answered(name, str(attempt.prompt), str(attempt.output), attempt.task_id))
            workspace.labels.give(name, each.value, author="ada")
        for number in range(3):
            workspace.store.write(answered(f"n{number}", "How do I swim?", f"Jump in {number} times.", "swim"))


def test_a_reward_is_learned_shown_and_used_to_ask(call: Call, labelled: None) -> None:
    asked = call("labels", "ask", "1", "--json").json()["data"]
    assert [(each["reason"], each["suggested_value"]) for each in asked] == [("different", None)]
    text = call("labels", "learn")
    assert text.code == 0, text.err
    assert "from 90 labels of 30 tasks" in text.out
    for word in ("held-out AUC", "calibration error", "best of n"):
        assert word in text.out
    told = call("labels", "learn", "--json").json()
    assert (told["ok"], told["reason"]) == (True, None)
    assert told["report"]["auc"]["low"] > 0.5
    assert told["report"]["curve"]["points"][0]["n"] == 1
    more = call("labels", "ask", "5", "--json").json()["data"]
    assert len(more) == 2  # one waits already
    assert all(0.0 <= each["suggested_value"] <= 1.0 for each in more)
    assert {each["suggested_by"] for each in more} == {told["content_hash"]}
    assert "suggested: 0." in call("labels", "list").out
