"""Rows, goals, exit codes and the two ways to print them."""

from __future__ import annotations

import json

import pytest

from benchmarks import report
from benchmarks.__main__ import main
from benchmarks.report import Goal, Options, exit_code, format_table, make_row, to_json

RATIO = Goal(of="ratio", relation=">=", bound=1)


def test_a_row_has_means_and_their_ratio() -> None:
    row = make_row("x", [1.0, 3.0], "1/s", peer="p", peer_values=[4.0, 4.0], goal=RATIO)
    assert (row.value, row.peer_value, row.ratio, row.repetitions) == (2.0, 4.0, 0.5, 2)
    assert row.goal == "ratio >= 1"
    assert row.holds is False


@pytest.mark.parametrize(
    ("goal", "holds"),
    [
        (Goal(of="value", relation=">=", bound=2), True),
        (Goal(of="value", relation="<=", bound=1.9), False),
        (RATIO, None),
        (None, None),
    ],
)
def test_goals_without_a_peer(goal: Goal | None, holds: bool | None) -> None:
    row = make_row("x", [2.0], "µs", peer="p", goal=goal, note="not measured: no network")
    assert row.holds is holds
    assert row.peer_value is None
    assert row.ratio is None


def test_the_exit_code_is_7_for_a_failed_goal_and_1_for_one_not_checked() -> None:
    good = make_row("x", [2.0], "s", goal=Goal(of="value", relation="<=", bound=2))
    plain = make_row("x", [2.0], "s")
    bad = make_row("x", [2.0], "s", goal=Goal(of="value", relation="<=", bound=1))
    unknown = make_row("x", [2.0], "s", goal=RATIO)
    assert exit_code([good, plain]) == 0
    assert exit_code([good, unknown]) == 1
    assert exit_code([unknown, bad, good]) == 7


def test_table_and_json_hold_the_rows() -> None:
    rows = [
        make_row("decide", [5234.5], "1/s", peer="Peer 1", peer_values=[5000.0], goal=RATIO),
        make_row("other", [0.5], "s", peer="Peer 2", goal=RATIO, note="not measured: no network"),
    ]
    table = format_table(rows).splitlines()
    assert table[1].split() == ["decide", "5,234", "1/s", "Peer", "1", "5,000", "1.047", "ratio", ">=", "1", "yes", "1"]
    assert "not checked" in table[2]
    assert table[3] == "Peer 2: not measured: no network"
    document = json.loads(to_json("decide", rows))
    assert document["schema"] == report.SCHEMA == "learnloop.benchmark/v1"
    wanted = {"name", "value", "unit", "peer", "peer_value", "ratio", "goal", "holds", "repetitions"}
    assert wanted <= set(document["rows"][0])


def test_options_choose_how_often_to_repeat() -> None:
    assert Options().repetitions(20, 2) == 20
    assert Options(quick=True).repetitions(20, 2) == 2
    assert Options(quick=True, seeds=5).repetitions(20, 2) == 5


@pytest.mark.parametrize("arguments", [["nothing"], [], ["decide", "--seeds", "0"], ["decide", "--seeds", "x"]])
def test_wrong_usage_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert "usage" in capsys.readouterr().err
