"""learnloop.decisions.importing.dsjson: what a line says, and which lines are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop.core.errors import FormatError
from learnloop.decisions.importing import Activated, LoggedChoice, Observation
from learnloop.decisions.importing.dsjson import read_line


def cb(**changes: Any) -> dict[str, Any]:
    """A joined line with three actions, the second of which was chosen."""
    line = {
        "_label_cost": -0.5, "_label_probability": 0.7, "_label_Action": 2, "_labelIndex": 1,
        "o": [{"v": 0.5, "EventId": "e1", "ActionTaken": False}], "Timestamp": "2026-01-31T12:00:00.5000000Z",
        "Version": "1", "EventId": "e1", "a": [2, 3, 1],
        "c": {"user": {"age": 3, "_secret": 1}, "_multi": [{"_tag": "x", "f": 1}, {"i": {"id": "y"}}, {"g": 2}]},
        "p": [0.7, 0.2, 0.1], "VWState": {"m": "abc"},
    }  # fmt: skip
    return {name: value for name, value in {**line, **changes}.items() if value is not ...}


def ccb() -> dict[str, Any]:
    outcomes = [
        {"_label_cost": -1.0, "_id": "top", "_a": [2, 0, 1], "_p": [0.5, 0.25, 0.25], "_o": [{"v": 1.0}]},
        {"_label_cost": 0.0, "_id": "side", "_a": [1, 0], "_p": [0.75, 0.25], "_o": []},
    ]
    inner = {"s": 1, "_multi": [{"_tag": "a"}, {"_tag": "b"}, {"_tag": "c"}], "_slots": [{"size": 2}, {}]}
    return {"EventId": "m", "c": inner, "_outcomes": outcomes, "pdrop": 0.25}


def one(line: dict[str, Any]) -> LoggedChoice:
    (found,) = read_line(json.dumps(line).encode())
    assert isinstance(found, LoggedChoice)
    return found


def test_a_choice_with_its_exact_propensities_by_action() -> None:
    found = one(cb())
    assert found.actions[:2] == ["x", "y"]
    assert found.actions[2].startswith("action-")
    assert (found.chosen, found.propensity, found.probabilities) == (1, 0.7, [0.1, 0.7, 0.2])
    assert found.rewards == {"reward": 0.5}
    assert found.context == {"user": {"age": 3}}  # what begins with _ is no feature
    assert found.features == [{"f": 1}, {"i": {"id": "y"}}, {"g": 2}]
    assert (found.model, found.mask, found.is_deferred) == ("abc", None, False)
    assert found.moment is not None
    assert found.moment.isoformat() == "2026-01-31T12:00:00.500000+00:00"


def test_the_same_features_have_the_same_name_in_every_line() -> None:
    first = one(cb()).actions[2]
    turned = cb(c={"_multi": [{"g": 2}, {"_tag": "x"}, {"g": 2}]})
    assert one(turned).actions == [first, "x", f"{first}#3"]
    assert one(cb(c={"_multi": [{}, {}, {}]})).actions == ["action-1", "action-2", "action-3"]


def test_a_probability_that_float32_put_just_above_one_is_one() -> None:
    found = one(cb(_label_probability=1.0000001, p=[1.0000001, 0.0, 0.0]))
    assert (found.propensity, max(found.probabilities or [])) == (1.0, 1.0)


def test_actions_that_were_not_ranked_are_masked() -> None:
    found = one(cb(a=[2, 1], p=[0.7, 0.3]))
    assert (found.mask, found.probabilities) == ([True, True, False], [0.3, 0.7, 0.0])


def test_numbers_of_actions_from_zero_are_understood() -> None:
    assert one(cb(a=[1, 2, 0])).probabilities == [0.1, 0.7, 0.2]


def test_what_nobody_rewarded_is_a_default_and_what_was_observed_is_kept_beside() -> None:
    assert one(cb(o=[], _label_cost=0.0)).rewards == {"default": 0.0}
    assert one(cb(_original_label_cost=-1.0)).rewards == {"reward": 0.5, "original_reward": 1.0}
    assert one(cb(_label_cost=...)).rewards == {"reward": 0.5}
    assert one(cb(_label_cost=..., o=...)).rewards == {}  # missing is never 0


def test_deferred_choices_count_only_once_activated() -> None:
    skipped = one(cb(_skipLearn=True))
    assert (skipped.is_deferred, skipped.is_activated) == (True, False)
    used = one(cb(DeferredAction=True, o=[{"EventId": "e1", "ActionTaken": True}]))
    assert (used.is_deferred, used.is_activated) == (True, True)


def test_a_choice_for_each_slot() -> None:
    first, second = read_line(json.dumps(ccb()).encode())
    assert isinstance(first, LoggedChoice)
    assert isinstance(second, LoggedChoice)
    assert (first.slot, first.chosen, first.propensity, first.mask) == ("top", 2, 0.5, None)
    assert first.context == {"s": 1, "slot": {"size": 2, "id": "top"}}
    assert first.rewards == {"reward": 1.0, "pdrop": 0.25}
    assert (second.slot, second.actions[second.chosen], second.propensity) == ("side", "b", 0.75)
    assert (second.mask, second.probabilities) == ([True, True, False], [0.25, 0.75, 0.0])
    assert second.rewards == {"default": 0.0, "pdrop": 0.25}


def test_slates_have_actions_of_their_own_for_each_slot() -> None:
    inner = {
        "_multi": [{"_tag": "a", "_slot_id": 0}, {"_tag": "b", "_slot_id": 0}, {"_tag": "c", "_slot_id": 1}],
        "_slots": [{}, {}],
    }
    line = {"c": inner, "_label_cost": -2.0, "_outcomes": [{"_a": [1, 0], "_p": [0.6, 0.4]}, {"_a": [0], "_p": [1.0]}]}
    first, second = read_line(json.dumps(line).encode())
    assert isinstance(first, LoggedChoice)
    assert isinstance(second, LoggedChoice)
    assert (first.actions, first.chosen, first.propensity) == (["a", "b"], 1, 0.6)
    assert (second.actions, second.rewards) == (["c"], {"reward": 2.0})


def test_observations_without_their_choice() -> None:
    assert read_line(b'{"EventId":"e","RewardValue":0.5}') == [Observation("e", 0.5, None)]
    assert read_line(b'{"EventId":"e","o":[{"v":2,"ActionTaken":true}]}') == [
        Observation("e", 2.0, None),
        Activated("e", None),
    ]
    assert read_line(b'{"EventId":"e","ActionTaken":true}') == [Activated("e", None)]
    assert read_line(b'{"EventId":"e","ActionTaken":true,"o":[{"v":1.0}]}') == [Activated("e", None)]


@pytest.mark.parametrize("outcomes", ['"zzz"', "[7]", '["x",{"v":1}]', '[{"v":true},{"v":1}]', '[{"v":"1"}]', "[]"])
def test_observations_that_cannot_be_are_refused(outcomes: str) -> None:
    with pytest.raises(FormatError):
        read_line(f'{{"EventId":"e","o":{outcomes}}}'.encode())


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"p": [0.7, 0.3]}, "2 probabilities for 3 actions"),
        ({"p": [0.7, 0.2, 0.9]}, "add up to 1"),
        ({"p": [0.7, 0.4, -0.1]}, "from 0 to 1"),
        ({"p": [0.1, 0.2, 0.7]}, "_label_probability is 0.7, and p says 0.1"),
        ({"a": [2, 2, 1]}, "at most once"),
        ({"a": [2, 3, 4]}, "at most once"),
        ({"_label_Action": 4, "_labelIndex": 3}, "_label_Action is 4"),
        ({"_label_Action": 3}, "_label_Action is 3 and _labelIndex 1"),
        ({"_label_Action": ..., "_labelIndex": ...}, "what was chosen"),
        ({"_label_probability": ..., "p": ..., "a": ...}, "no probability"),
        ({"pdrop": 1.0}, "pdrop is 1.0"),
        ({"_label_cost": "x"}, "_label_cost is 'x'"),
        ({"Timestamp": "yesterday"}, "yesterday"),
        ({"_skipLearn": 3}, "_skipLearn is 3"),
        ({"c": []}, "c holds a list"),
        ({"c": {}}, "_multi"),
    ],
)
def test_what_cannot_be_is_refused_by_name(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(FormatError, match=named):
        read_line(json.dumps(cb(**changes)).encode())


@given(st.data())
def test_damaged_lines_are_read_or_refused_and_nothing_else(data: st.DataObject) -> None:
    raw = bytearray(json.dumps(data.draw(st.sampled_from([cb(), ccb()]))).encode())
    raw = raw[: data.draw(st.integers(0, len(raw)))] if data.draw(st.booleans()) else raw
    for at in data.draw(st.lists(st.integers(0, max(0, len(raw) - 1)), max_size=3)):
        if raw:
            raw[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        read_line(bytes(raw))
    except FormatError as error:
        assert str(error)  # noqa: PT017 - either is right


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["v", "m", "_a", "_p", "_multi", "_slots", "id", "x"]), inner, max_size=3)
        ),
        max_leaves=6,
    ),
    st.sampled_from([*cb(), "_outcomes", "pdrop", "_skipLearn", "DeferredAction", "RewardValue"]),
    st.booleans(),
)
def test_any_value_in_any_field_is_read_or_refused(value: object, field: str, multi_slot: bool) -> None:
    line = {**(ccb() if multi_slot else cb()), field: value}
    try:
        read_line(json.dumps(line).encode())
    except FormatError as error:
        assert str(error)  # noqa: PT017 - either is right
