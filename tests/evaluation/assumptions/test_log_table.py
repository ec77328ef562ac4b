"""A log as arrays: order, weights, slices, what was offered."""

from __future__ import annotations

import math

import numpy as np
import pytest

from learnloop.core.protocols import Context, Question, Sample
from learnloop.evaluation.assumptions.log_table import (
    MAX_ACTIONS,
    MAX_FEATURES,
    NUM_BINS,
    LogTable,
    Slicing,
    content_of,
    is_number,
)

ROW = Sample("u", {}, ["a", "b"], None, "a", 0.5, 0.0)


def rows(contexts: list[Context]) -> list[Sample]:
    return [ROW._replace(unit=f"u{i}", context=context) for i, context in enumerate(contexts)]


def slicing_of(contexts: list[Context], name: str) -> Slicing:
    return next(each for each in LogTable(rows(contexts)).slicings if each.name == name)


def test_rows_are_in_the_order_of_time_where_all_have_one() -> None:
    timed = [ROW._replace(unit=unit, made_at=at) for unit, at in (("c", 3.0), ("a", 1.0), ("b", 2.0))]
    table = LogTable(timed)
    assert table.has_times
    assert [each.unit for each in table.samples] == ["a", "b", "c"]
    assert table.places.tolist() == [1, 2, 0]
    one_lacks = LogTable([*timed, ROW._replace(unit="d")])
    assert not one_lacks.has_times
    assert [each.unit for each in one_lacks.samples] == ["c", "a", "b", "d"]
    assert all(each.name != "time" for each in one_lacks.slicings)


def test_rows_without_a_valid_propensity_are_left_out() -> None:
    given = [0.25, None, 0.0, -0.1, 1.0001, math.nan, 1.0]
    table = LogTable([ROW._replace(unit=f"u{i}", propensity=each) for i, each in enumerate(given)])
    assert (len(table), table.num_units, table.places.tolist()) == (2, 2, [0, 6])
    assert table.weights.tolist() == [4.0, 1.0]


def test_excess_is_one_over_p_less_one_and_zero_where_it_was_not_offered() -> None:
    table = LogTable(
        [
            ROW._replace(unit="0", action="a", propensity=0.25),
            ROW._replace(unit="1", action="b", propensity=0.8),
            ROW._replace(unit="2", action="a", propensity=1.0, mask=[True, False]),
            ROW._replace(unit="3", action="a", propensity=0.5, actions=["a", "c"]),
        ]
    )
    assert table.actions == ["a", "b"]
    assert table.taken.tolist() == [0, 1, 0, 0]
    assert table.offered.tolist() == [[True, True], [True, True], [True, False], [True, False]]
    np.testing.assert_allclose(table.excess, [[3, -1], [-1, 0.25], [0, 0], [1, 0]], atol=1e-12)


def test_excess_counts_by_importance_in_means_of_it() -> None:
    table = LogTable([ROW._replace(unit="0", importance=3.0), ROW._replace(unit="1", action="b")])
    assert table.importance.tolist() == [3, 1]
    np.testing.assert_allclose(table.excess, [[1.5, -1.5], [-0.5, 0.5]])


def test_only_the_commonest_actions_are_looked_at() -> None:
    names = [f"n{i}" for i in range(MAX_ACTIONS + 3)]
    counts = [*range(MAX_ACTIONS + 3, 0, -1)]
    log = [ROW._replace(unit=f"{name}-{i}", actions=names, action=name) for name, count in zip(names, counts, strict=True) for i in range(count)]  # noqa: E501  # fmt: skip
    table = LogTable(log)
    assert table.actions == names[:MAX_ACTIONS]
    assert int((table.taken < 0).sum()) == 1 + 2 + 3


def test_numbers_are_sliced_into_bins_of_as_many_rows() -> None:
    found = slicing_of([{"x": float(i)} for i in range(800)], "x")
    assert np.bincount(found.parts).tolist() == [100] * NUM_BINS
    assert found.labels[0].startswith("below ")
    assert found.labels[-1].endswith(" on")
    assert (np.diff(found.parts) >= 0).all()


def test_categories_are_sliced_by_value_and_a_missing_one_is_a_value() -> None:
    found = slicing_of([{"k": "x"}, {"k": "y"}, {}, {"k": "x"}], "k")
    assert list(found.labels) == ["'x'", "'y'", "None"]
    assert found.parts.tolist() == [0, 1, 2, 0]


def test_numbers_that_are_missing_are_in_no_bin() -> None:
    """Too many values to be categories: those without one are in no slice."""
    found = slicing_of([{"x": float(i)} if i % 2 else {} for i in range(200)], "x")
    assert (found.parts[::2] == -1).all()
    assert np.bincount(found.parts[1::2]).max() <= 14


def test_a_text_that_is_different_in_each_row_is_not_sliced_by() -> None:
    found = slicing_of([{"text": f"words {i}", "k": 1} for i in range(100)], "text")
    assert list(found.labels) == []
    assert (found.parts == -1).all()


def test_nested_features_have_dotted_names() -> None:
    assert slicing_of([{"user": {"plan": "free"}}, {"user": {"plan": "paid"}}], "user.plan").parts.tolist() == [0, 1]


def test_no_more_than_so_many_features() -> None:
    assert len(LogTable(rows([{f"f{i}": i for i in range(60)}])).features) == MAX_FEATURES


def test_vectors_are_sliced_by_their_main_component() -> None:
    rng = np.random.default_rng(0)
    vectors = (rng.normal(size=(400, 5)) * [1, 9, 1, 1, 1]).astype(np.float32)
    table = LogTable(rows([Question({}, None, vector) for vector in vectors]))
    main = np.array(next(iter(table.features.values())), dtype=np.float64)
    assert abs(float(np.corrcoef(main, vectors[:, 1])[0, 1])) > 0.99
    mixed = LogTable(rows([Question({}, None, vectors[0]), Question({}, None, vectors[0][:3])]))
    assert not mixed.features


def test_blocks_of_time_have_as_many_rows() -> None:
    table = LogTable([ROW._replace(unit=f"u{i}", made_at=float(i**2)) for i in range(320)])
    blocks = [each for each in table.slicings if each.name == "time"]
    assert [len(each.labels) for each in blocks] == [2, 4, 8, 32]
    for each in blocks:
        assert len(set(np.bincount(each.parts).tolist())) == 1


def test_the_same_question_has_the_same_content() -> None:
    vector = np.array([1.0, 2.0], dtype=np.float32)
    asked = [
        {"x": 1},
        {"x": 2},
        Question({"x": 1}, None, vector),
        Question({"x": 1}, None, vector + 1),
        Question({"x": 1}, [{"size": 1}, {"size": 2}], None),
    ]
    found = [content_of(row) for row in rows(asked)]
    assert len(set(found)) == len(asked)
    assert found == [content_of(row._replace(action="b", reward=9.0, propensity=0.1)) for row in rows(asked)]
    assert content_of(ROW) != content_of(ROW._replace(actions=["b", "a"]))


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1, True), (1.5, True), (np.float32(2), True), (True, False), ("1", False), (None, False), (math.inf, False)],
)
def test_numbers(value: object, expected: bool) -> None:
    assert is_number(value) is expected


def test_numbers_of_any_size_halves_of_characters_and_vectors_without_an_end_are_read() -> None:
    """JSON has integers beyond any float and halves of characters; a library call may bring an infinite vector."""
    assert not is_number(10**400)
    contexts: list[Context] = [{"id": 2**64 + 10**400 * i, "x": "\ud83d"} for i in range(40)]
    table = LogTable(rows(contexts))
    assert len({content_of(each) for each in table.samples}) == 40
    assert {slicing.name for slicing in table.slicings} == {"id", "x"}
    endless = [Question({"k": i % 2}, None, np.array([np.inf, i], dtype=np.float32)) for i in range(40)]
    assert set(LogTable(rows(list(endless))).features) == {"k"}
