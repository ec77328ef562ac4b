"""``learnloop runs``: what is listed, shown and compared is what the noun gives."""

from __future__ import annotations

from pathlib import Path

import learnloop as ll
from tests.cli.calling import Call


def test_runs_are_listed_shown_and_compared(call: Call, tmp_path: Path) -> None:
    assert call("init").code == 0
    assert "learnloop train" in call("runs", "list").err
    assert call("runs", "show").code == 3
    for seeds in (2, 1):
        ll.train("random", "cartpole", steps=200, seeds=seeds, options={"eval_episodes": 2})
    listed = call("runs", "list", "--json").json()["data"]
    first, second = (each["run_id"] for each in listed)
    lines = call("runs", "list").out.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [[first, "random"], [second, "random"]]
    assert call("runs", "show", "--json").json()["run"] == listed[1]
    assert "not measured" not in call("runs", "show", first).out
    measured = call("runs", "show", first, "--evaluate", "--episodes", "2", "--json").json()["evaluation"]
    assert (measured["num_episodes"], len(measured["means"])) == (2, 2)
    alone = call("runs", "show", first, "--episodes", "2")
    assert (alone.code, "--evaluate" in alone.err) == (2, True)
    compared = call("runs", "compare", first, second, "--episodes", "2")
    assert compared.code == 0
    assert "is better with probability" in compared.out
    assert call("runs", "show", "none").code == 3
