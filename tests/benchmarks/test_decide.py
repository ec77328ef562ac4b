"""The decide benchmark: what it plays, what it tells its peer, and that it says when the peer is missing."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from benchmarks import decide
from benchmarks.__main__ import main
from benchmarks.peers import PeerError
from benchmarks.vowpal_wabbit import play
from learnloop.testing.problems import ACTIONS, expected_rewards


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide, "NUM_DECISIONS", 300)
    monkeypatch.setattr(decide, "NUM_LATE", 100)


@pytest.mark.usefixtures("short")
def test_a_missing_peer_is_said_and_its_goals_are_not_checked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unreachable(name: str, requirement: str) -> None:
        raise PeerError(f"no network for {requirement}")

    monkeypatch.setattr(decide, "peer_python", unreachable)
    code = main(["decide", "--json", "--seeds", "2"])
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert code in (1, 7)  # 7 where this machine is so busy that the rate fails as well
    assert sum(row["peer"] is None for row in rows) == 2  # with a durable log, which the peer does not have
    for row in rows:
        assert (
            row["note"] is None
            if row["peer"] is None
            else row["note"] == "not measured: no network for vowpalwabbit==9.11.9"
        )
        assert row["peer_value"] is None
        assert len(row["values"]) == row["repetitions"] == 2
    assert {row["holds"] for row in rows if row["unit"] == "reward"} == {None}
    rewards = {row["name"]: row["value"] for row in rows if row["unit"] == "reward"}
    assert all(0.3 < value < 0.85 for value in rewards.values()), rewards


@pytest.mark.usefixtures("short")
def test_ours_and_the_peer_are_given_the_same_problem() -> None:
    recording = decide.record(3)
    np.testing.assert_allclose(recording.means[7], expected_rewards(recording.contexts[7]))
    assert np.abs(recording.rewards - recording.means).max() < 1.2
    columns, bins = decide.write_columns(recording.contexts), decide.write_bins(recording.contexts)
    assert len(columns) == len(bins) == 300
    assert columns[0].startswith("shared |k ")
    kind = recording.contexts[5]["kind"]
    assert bins[5].startswith(f"shared |k kind={kind} |l load:")
    assert {part for line in bins for part in line.split() if part.startswith("bin=")} == {f"bin={i}" for i in range(8)}


def test_the_peer_draws_from_its_distribution_and_learns_the_cost_of_its_choice() -> None:
    class Workspace:
        def __init__(self) -> None:
            self.learned: list[list[str]] = []

        def predict(self, lines: list[str]) -> list[float]:
            return [0.0, 0.0, 1.0, 0.0, 0.0]

        def learn(self, lines: list[str]) -> None:
            self.learned.append(lines)

    workspace = Workspace()
    task: dict[str, Any] = {
        "seed": 1,
        "actions": list(ACTIONS),
        "contexts": ["shared |k x"],
        "rewards": [[0.1, 0.2, 0.3, 0.4, 0.5]],
        "means": [[1, 2, 3, 4, 5]],
    }
    assert play(workspace, task)["expected"] == [3]
    assert workspace.learned[0][:2] == ["shared |k x", "|a arm-0"]
    assert workspace.learned[0][3] == "0:-0.300000:1.000000 |a arm-2"
