"""learnloop.decisions.importing.vw_text: lines of cb and cb_adf."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop.core.errors import FormatError
from learnloop.decisions.importing.vw_text import adf_choice, cb_choice, read_example


def test_cb_names_actions_by_number() -> None:
    found = cb_choice(read_example("2:-1.5:0.25 |user age:3 old |page:2 sport"), 4)
    assert found.actions == ["1", "2", "3", "4"]
    assert (found.chosen, found.propensity, found.rewards) == (1, 0.25, {"reward": 1.5})
    assert found.context == {"user": {"age": 3.0, "old": 1.0}, "page": {"sport": 2.0}}


def test_cb_with_a_cost_for_each_action() -> None:
    found = cb_choice(read_example("1:5 3:2:0.5 | x"), 9)
    assert (found.actions, found.chosen, found.rewards) == (["1", "3"], 1, {"reward": -2.0})


def test_adf_has_a_line_an_action() -> None:
    lines = ["shared | s:2", "'red | f", "0:1:0.5 | g", " | h"]
    found = adf_choice([read_example(line) for line in lines])
    assert (found.actions[0], found.chosen, found.propensity) == ("red", 1, 0.5)
    assert (found.context, found.rewards) == ({"s": 2.0}, {"reward": -1.0})
    assert found.features == [{"f": 1.0}, {"g": 1.0}, {"h": 1.0}]


@pytest.mark.parametrize(
    ("line", "named"),
    [("1:2:0.5", r"no '\|'"), ("ccb shared | x", "'ccb'"), ("1:x:0.5 | f", "not a number"), ("1:1:nan | f", "finite"),
     ("a b | f", "no label"), ("1:1:0.5 | f:y", "not a number"), ("shared 0:1:0.5 | f", "shared line")],
)  # fmt: skip
def test_other_lines_are_refused(line: str, named: str) -> None:
    with pytest.raises(FormatError, match=named):
        read_example(line)


def test_a_choice_needs_one_probability() -> None:
    with pytest.raises(FormatError, match="0 actions have a probability"):
        cb_choice(read_example("1:2 | f"), 2)
    with pytest.raises(FormatError, match="2 actions have a probability"):
        adf_choice([read_example("0:1:0.5 | f")] * 2)


@given(st.text(alphabet="0123:.-|' sharedx\t", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        example = read_example(text)
        cb_choice(example, 3)
    except FormatError as error:
        assert str(error)  # noqa: PT017 - either is right
