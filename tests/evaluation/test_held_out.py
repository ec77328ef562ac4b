"""Held-out tasks on which every action was tried, against known truth."""

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop.core.errors import FormatError, RewardError, UsageError
from learnloop.core.protocols import Context, HeldOut
from learnloop.evaluation.held_out import OutcomeTable
from learnloop.evaluation.logged import LoggedHeldOut
from learnloop.evaluation.policies import FixedPolicy, UniformPolicy

ACTIONS = ("a", "b", "c")


class ByFeature:
    """Prefers ``a`` by as much as the context says."""

    def probabilities(self, context: Context, actions: object, mask: object = None) -> np.ndarray:
        share = float(context["share"])
        return np.array([share, (1 - share) / 2, (1 - share) / 2])


def table(**changes: object) -> OutcomeTable:
    arguments: dict = {
        "units": ["u1", "u2"],
        "contexts": [{"share": 0.5, "kind": "text"}, {"share": 1.0, "kind": "image"}],
        "actions": ACTIONS,
        "rewards": [[1.0, 2.0, 4.0], [3.0, 0.0, -1.0]],
    }
    return OutcomeTable(**(arguments | changes))


def test_expected_reward_is_the_sum_over_actions() -> None:
    outcomes = table()
    assert isinstance(outcomes.rewards(ByFeature()), np.ndarray)
    np.testing.assert_allclose(outcomes.rewards(ByFeature()), [0.5 * 1 + 0.25 * 2 + 0.25 * 4, 3.0])
    np.testing.assert_allclose(outcomes.rewards(UniformPolicy()), outcomes.random())
    np.testing.assert_allclose(outcomes.random(), [7 / 3, 2 / 3])
    np.testing.assert_array_equal(outcomes.optimum(), [4.0, 3.0])
    best = outcomes.best_fixed()
    assert best.action == "a"  # means: a 2, b 1, c 1.5
    np.testing.assert_array_equal(best.rewards, outcomes.rewards(FixedPolicy("a")))


def test_masked_actions_are_never_read() -> None:
    outcomes = table(rewards=[[1.0, 2.0, math.nan], [3.0, 0.0, 9.0]], masks=[[True, True, False], [True, True, True]])
    np.testing.assert_allclose(outcomes.random(), [1.5, 4.0])
    np.testing.assert_allclose(outcomes.rewards(UniformPolicy()), [1.5, 4.0])
    np.testing.assert_array_equal(outcomes.optimum(), [2.0, 9.0])
    assert outcomes.best_fixed().action == "a"  # c earns more where it is allowed, but it is not allowed everywhere


def test_no_fixed_choice_where_no_action_is_allowed_everywhere() -> None:
    outcomes = table(masks=[[True, False, False], [False, True, True]])
    with pytest.raises(UsageError, match="none of the 3 actions"):
        outcomes.best_fixed()


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"rewards": [[1.0, 2.0, math.nan], [3.0, 0.0, -1.0]]}, RewardError, "1 of 6 held-out rewards"),
        ({"rewards": [[1.0, 2.0, None], [3.0, None, -1.0]]}, RewardError, "2 of 6"),
        ({"rewards": [[1.0, 2.0, math.inf], [3.0, 0.0, -1.0]]}, RewardError, "1 of 6"),
        ({"rewards": [[1.0, 2.0], [3.0]]}, RewardError, "table of numbers"),
        ({"rewards": [["x", 1, 2], [1, 2, 3]]}, RewardError, "table of numbers"),
        ({"rewards": [[1.0, 2.0, 3.0]]}, UsageError, r"\(2, 3\)"),
        ({"contexts": [{}]}, UsageError, "1 contexts"),
        ({"units": ["u", "u"]}, UsageError, "unit 'u' is there more than once"),
        ({"actions": ["a", "b", "a"]}, UsageError, "action 'a' is there more than once"),
        ({"masks": [[True, True, True]]}, UsageError, "masks have shape"),
        ({"masks": [[True, True, True], [False, False, False]]}, UsageError, "unit 'u2' allows no action"),
    ],
)
def test_tables_that_do_not_fit_are_refused(changes: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        table(**changes)


finite = st.floats(allow_nan=False, allow_infinity=False, width=64)


@given(st.lists(st.tuples(finite, finite), min_size=1, max_size=5), st.data())
def test_json_round_trip_is_exact(rows: list[tuple[float, float]], data: st.DataObject) -> None:
    masks = data.draw(
        st.none() | st.lists(st.sampled_from([[True, True], [True, False]]), min_size=len(rows), max_size=len(rows))
    )
    contexts = [{"size": row, "kind": "té\u2028xt", "x": value[0], "flag": True} for row, value in enumerate(rows)]
    units = [f"u{row}" for row in range(len(rows))]
    before = OutcomeTable(units, contexts, ["p", "q"], rows, masks)
    after = OutcomeTable.from_bytes(before.to_bytes())
    assert after.to_bytes() == before.to_bytes()
    assert (list(after.units), list(after.contexts), after.actions) == (units, contexts, ("p", "q"))
    np.testing.assert_array_equal(after.rewards(FixedPolicy("p")), [row[0] for row in rows])
    np.testing.assert_array_equal(after.optimum(), before.optimum())


@pytest.mark.parametrize("change", ["cut", "schema", "row", "mask", "text", "extra"])
def test_other_bytes_are_refused(change: str) -> None:
    data = table().to_bytes()
    content = msgspec.json.decode(data)
    if change == "schema":
        content["schema"] = "learnloop.outcomes/v2"
    if change == "row":
        content["rewards"][0].append(1.0)
    if change == "mask":
        content["masks"] = [[True], [True]]
    if change == "text":
        content["rewards"][0][0] = "much"
    if change == "extra":
        content["more"] = 1
    with pytest.raises(FormatError):
        OutcomeTable.from_bytes(data[:-2] if change == "cut" else msgspec.json.encode(content))


def test_a_table_is_held_out_and_no_log() -> None:
    outcomes: HeldOut = table()
    assert len(outcomes.units) == 2
    assert isinstance(outcomes, LoggedHeldOut) is False
