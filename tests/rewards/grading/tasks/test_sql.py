"""SQL: both queries are run; nothing but reading is possible, and every query comes to an end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from learnloop.core.attempts import Attempt, Score, TaskType
from learnloop.rewards.functions.built_in import correctness
from tests.waiting import costs_at_most

SETUP = """
CREATE TABLE users (id INTEGER, name TEXT, age REAL);
INSERT INTO users VALUES (1, 'Ann', 30), (2, 'Bob', 25), (3, 'Cid', NULL), (4, 'Bob', 25);
"""
TRUTH = {"query": "SELECT name FROM users WHERE age < 40", "setup": SETUP}


def score(output: str, expected: Any = TRUTH) -> Score:
    return correctness(Attempt(output=output, expected=expected, task_type=TaskType.SQL))


@pytest.mark.parametrize(
    "output",
    [
        "SELECT name FROM users WHERE age < 40",
        "Here:\n```sql\n-- all of them\nSELECT u.name AS who FROM users u WHERE NOT age >= 40 ORDER BY id DESC;\n```",
        "WITH young AS (SELECT * FROM users WHERE age <= 39) SELECT name FROM young",
        "Here is the query:\nSELECT name FROM users WHERE age < 40;\n\nIt gives the names.",
        "SQL: SELECT name FROM users WHERE age < 40",
        "`SELECT name FROM users WHERE age < 40`",
        "/* all */ SELECT name FROM users WHERE age < 40;;",
        "```postgresql\nSELECT name FROM users WHERE age < 40\n```\nIt gives:\n```\nAnn\n```",
    ],
)
def test_right(output: str) -> None:
    assert score(output).value == 1.0


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("SELECT DISTINCT name FROM users WHERE age < 40", "gives 2 rows, not the 3"),  # F4.7: SELECT alone is nothing
        ("SELECT 'Ann' UNION ALL SELECT 'Bob' UNION ALL SELECT 'Bob'", "reads no table"),
        ("SELECT name FROM nobody", "no such table"),
        ("SELEC name", "no query"),
        ("", "no query"),
        ("SELECT name FROM users; DROP TABLE users", "failed"),
        ("SELECT name FROM users WHERE age < 40;\nSELECT age FROM users", "failed"),
        ("DELETE FROM users", "no query"),
        ("WITH a AS (SELECT 1) DELETE FROM users", "not authorized"),
        ("PRAGMA table_info(users)", "no query"),
        ("SELECT load_extension('x')", "not authorized"),
        ("SELECT * FROM pragma_table_info('users')", "failed"),
        ("SELECT hex(zeroblob(1000000000)) FROM users", "not authorized"),
        ("SELECT printf('%*c', 100000000, 'x') FROM users", "4 rows"),  # a value has a limit
        (
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n, users",
            "interrupted",
        ),
        (
            "SELECT a.name FROM users a, users b, users c, users d, users e, users f, users g, users h",
            "more than 10000 rows",
        ),
        ("SELECT " + "(" * 5000 + "1" + ")" * 5000, "failed"),
        ("SELECT '" + "x" * 30_000, "no query"),
    ],
)
def test_wrong(output: str, reason: str) -> None:
    with costs_at_most(10):
        found = score(output)
    assert found.value == 0.0
    assert reason in str(found.reason)


def test_attached_files_cannot_be_had(tmp_path: Path) -> None:
    target = tmp_path / "x.db"
    attack = f"ATTACH '{target}' AS x"
    assert score(attack).value == 0.0
    assert score(f"SELECT name FROM users; {attack}").value == 0.0
    assert score("SELECT name FROM users", {"query": "SELECT name FROM users", "setup": SETUP + attack}).value is None
    assert not target.exists()


def test_order_counts_where_the_truth_has_one() -> None:
    ordered = {"query": "SELECT id FROM users ORDER BY id DESC", "setup": SETUP}
    assert score("SELECT id FROM users ORDER BY id DESC", ordered).value == 1.0
    assert score("SELECT id FROM users ORDER BY id", ordered).value == 0.0
    assert score("SELECT id FROM users ORDER BY id", ordered | {"ordered": False}).value == 1.0
    assert score("SELECT id FROM users ORDER BY id", ordered | {"ordered": "no"}).value is None
    by_function = ordered | {"query": "SELECT id FROM users ORDER BY abs(id) DESC -- (last first)"}
    assert score("SELECT id FROM users ORDER BY id", by_function).value == 0.0
    within = ordered | {"query": "SELECT id, 'order by' FROM (SELECT id FROM users ORDER BY id DESC)"}
    assert score("SELECT id, 'order by' FROM users ORDER BY id", within).value == 1.0


def test_a_guess_that_fits_one_database_only() -> None:
    other = "CREATE TABLE users (id INTEGER, name TEXT, age REAL); INSERT INTO users VALUES (9, 'Dan', 39)"
    both = TRUTH | {"setup": [SETUP, other]}
    assert score("SELECT name FROM users WHERE age IN (25, 30)").value == 1.0
    assert score("SELECT name FROM users WHERE age IN (25, 30)", both).value == 0.0
    assert score(TRUTH["query"], both).value == 1.0


def test_null_and_sums() -> None:
    assert score(
        "SELECT age FROM users WHERE id = 3", {"query": "SELECT NULL FROM users WHERE id=3", "setup": SETUP}
    ).value
    average = {"query": "SELECT avg(age) FROM users", "setup": SETUP}
    assert score("SELECT sum(age) / count(age) FROM users", average).value == 1.0
    assert score("SELECT sum(age) / count(*) FROM users", average).value == 0.0
    large = {"query": "SELECT 12345678901 + id FROM users", "setup": SETUP}
    assert score("SELECT 12345678901.0 + id FROM users", large).value == 1.0
    assert score("SELECT 12345678901.4 + id FROM users", large).value == 0.0


@pytest.mark.parametrize(
    "expected",
    [
        "SELECT 1",
        {"query": 1},
        {"query": "SELECT x FROM nobody"},
        {"query": "SELECT 1", "setup": 3},
        {"query": "x", "setup": "y"},
    ],
)
def test_a_ground_truth_that_cannot_be_had(expected: Any) -> None:
    found = score("SELECT 1", expected)
    assert found.value is None
    assert found.reason


def test_one_answer_does_not_change_the_next() -> None:
    score("DROP TABLE users")
    assert score(TRUTH["query"]).value == 1.0
