"""A budget is never passed, and what was reserved but not used is given back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop.core.errors import ConflictError
from learnloop.models import Budget


@given(st.lists(st.tuples(st.integers(0, 60), st.floats(0.0, 1.0))), st.integers(1, 100))
def test_tokens_stay_within_the_limit(requests: list[tuple[int, float]], limit: int) -> None:
    budget = Budget("x", None, limit)
    used = 0
    for reserved, share in requests:
        if used + reserved > limit:
            with pytest.raises(ConflictError, match="max_total_tokens"):
                budget.reserve(reserved)
        else:
            budget.reserve(reserved)
            assert budget.num_tokens == used + reserved
            spent = int(share * reserved)
            budget.settle(reserved, spent)
            used += spent
        assert budget.num_tokens == used <= limit


def test_requests() -> None:
    budget = Budget("the judge", 2, None)
    budget.reserve(10)
    budget.reserve(10)
    with pytest.raises(ConflictError, match=r"the 2 requests that the judge may be sent \(max_requests\) are used up"):
        budget.reserve(10)
    assert (budget.num_requests, budget.num_tokens) == (2, 20)
