"""``ws.runs``: trainings listed, opened again and compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import learnloop as ll
from learnloop.core.errors import CorruptError, NotFoundError, UsageError
from learnloop.loop import find_settings


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two runs in CartPole, of two seeds and of one, and one in another environment."""
    folder = tmp_path_factory.mktemp("home")
    with ll.Workspace(find_settings(folder), create=True) as workspace:
        for seeds, env in ((2, "cartpole"), (1, "cartpole"), (1, "Acrobot-v1")):
            workspace.runs.train("random", env, steps=200, seeds=seeds, options={"eval_episodes": 2})
    return folder


def test_runs_are_listed_opened_and_compared(home: Path) -> None:
    with ll.Workspace(find_settings(home)) as workspace:
        runs = workspace.runs
        listed = runs.list()
        assert [row["num_seeds"] for row in listed.rows()] == [2, 1, 1]
        assert [row["env"] for row in listed.rows()] == ["CartPole-v1", "CartPole-v1", "Acrobot-v1"]
        first, second, other = (run.run_id for run in listed)
        assert runs.open().run_id == other
        assert runs.open(first).record == listed[0]
        found = runs.compare(first, second, num_episodes=3)
        assert [row["run_id"] for row in found.rows()] == [first, second]
        assert [len(each.means) for each in found.evaluations] == [2, 1]
        assert 0 <= found.improvement.probability <= 1
        assert found._repr_html_().startswith("<p>the first is better with probability")
        assert f"<td>{second}</td><td>random</td>" in found._repr_html_()
        with pytest.raises(UsageError):
            runs.compare(first, other)
        with pytest.raises(NotFoundError):
            runs.open("none")


def test_a_run_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "broken"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"format": "other"}))
    with ll.Workspace(find_settings(tmp_path), create=True) as workspace:
        with pytest.raises(CorruptError, match="broken"):
            workspace.runs.list()
        (folder / "run.json").unlink()
        assert workspace.runs.list() == []
