"""The kinds of features, and what each refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest

from learnloop.core.errors import ContextError
from learnloop.nn import ContextSchema
from learnloop.nn.encoders.context_encoder import ContextEncoder
from learnloop.nn.encoders.context_schema import MAX_FEATURES, read_category

DECLARED = ContextSchema(features={"size": "number", "kind": "category", "note": "text"})
GOOD = {"size": 3, "kind": "a", "note": "two words"}


def test_infer_reads_the_kinds_off_the_first_context() -> None:
    schema = ContextSchema.infer({"size": 1, "entropy": 2.5, "kind": "text", "cached": True})
    assert schema.features == {"size": "number", "entropy": "number", "kind": "category", "cached": "category"}
    assert schema.inferred


def test_an_empty_context_is_legal() -> None:
    schema = ContextSchema.infer({})
    schema.validate({})
    with pytest.raises(ContextError, match="unknown features 'x'; allowed are none"):
        schema.validate({"x": 1})


def test_a_good_context_is_accepted() -> None:
    for change in ({}, {"size": True, "kind": 7}, {"size": np.int64(4), "kind": False}):
        context = GOOD | change
        encoder = ContextEncoder.fit(DECLARED, [context] * 3)
        DECLARED.validate(context)
        assert encoder.encode(context).shape == (encoder.dimension,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": "big"}, "'size' is declared a number and is 'big'"),
        ({"size": None}, "'size' is declared a number and is None"),
        ({"size": math.nan}, "'size' is nan; give a finite number"),
        ({"size": -math.inf}, "'size' is -inf"),
        ({"size": 10**400}, "'size' is inf"),
        ({"note": 5}, "'note' is declared text and is 5"),
        ({"kind": [1]}, r"'kind' is declared a category and is \[1\]"),
        ({"kind": math.nan}, "'kind' is nan"),
        ({"extra": 1}, "unknown features 'extra'; allowed are 'size', 'kind', 'note'"),
    ],
)
def test_a_bad_value_is_refused_by_name(change: dict[str, object], message: str) -> None:
    with pytest.raises(ContextError, match=message):
        DECLARED.validate(GOOD | change)


def test_a_missing_feature_is_named_with_what_is_needed() -> None:
    with pytest.raises(ContextError, match="lacks 'note'; it has 'size', 'kind' and needs 'size', 'kind', 'note'"):
        DECLARED.validate({"size": 3, "kind": "a"})


@pytest.mark.parametrize("context", [None, 5, ["size"], "size"])
def test_a_context_that_is_no_mapping_is_refused(context: object) -> None:
    with pytest.raises(ContextError, match="give a mapping"):
        ContextSchema.infer(context)  # type: ignore[arg-type]
    with pytest.raises(ContextError, match="give a mapping"):
        DECLARED.validate(context)  # type: ignore[arg-type]


def test_inference_refuses_what_is_neither_number_nor_text() -> None:
    with pytest.raises(ContextError, match="'when' is declared a number and is None"):
        ContextSchema.infer({"when": None})
    with pytest.raises(ContextError, match="nan"):
        ContextSchema.infer({"size": math.nan})


def test_a_schema_refuses_unknown_kinds_bad_names_and_too_many_features() -> None:
    with pytest.raises(ContextError, match="declared 'vector'; allowed are 'number', 'category', 'text'"):
        ContextSchema(features={"x": "vector"})  # type: ignore[dict-item]
    with pytest.raises(ContextError, match="cannot name a context feature"):
        ContextSchema(features={"": "number"})
    with pytest.raises(ContextError, match="cannot name a context feature"):
        ContextSchema(features={3: "number"})  # type: ignore[dict-item]
    with pytest.raises(ContextError, match=f"at most {MAX_FEATURES}"):
        ContextSchema(features={f"x{index}": "number" for index in range(MAX_FEATURES + 1)})


def test_category_keys() -> None:
    assert [read_category("x", value) for value in ("a", True, False, 3, 3.0, 2.5)] == [
        "a",
        "true",
        "false",
        "3",
        "3",
        "2.5",
    ]
