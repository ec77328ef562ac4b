"""What a config may be set to: each class has its own ranges, and those of its bases."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from learnloop.algorithms.base.config import Linear, Ranges
from learnloop.algorithms.on_policy.ppo import PPOConfig
from learnloop.core.errors import UsageError


class Mine(PPOConfig, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="mine"):
    share: float
    most: int | None = None

    ranges: ClassVar[Ranges] = {"share": (0, 1), "most": (1, 9)}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"share": 2}, "share is 2; allowed is from 0 to 1"),
        ({"share": float("nan")}, "share is nan"),
        ({"share": None}, "share is None; a number is needed"),
        ({"most": 0}, "most is 0; allowed is from 1 to 9"),
        ({"gamma": 2}, "gamma is 2; allowed is from 0 to 1"),
        ({"gamma": None}, "gamma is None; a number is needed"),
        ({"learning_rate": None}, "learning_rate is None; a number is needed"),
        ({"learning_rate": "lin_20"}, "learning_rate is 20.0; allowed is from 0 to 10"),
        ({"clip_range": Linear(initial=0.2, final=11)}, "clip_range is 11; allowed is from 0 to 10"),
        ({"target_kl": 0.0}, "target_kl is 0.0"),
        ({"gamma": "lin_0.9"}, "gamma is 'lin_0.9'; a number is needed, it cannot change with the progress"),
        ({"n_steps": Linear(initial=4, final=2)}, "n_steps is .*; a number is needed"),
        ({"share": "lin_0.5"}, "share is 'lin_0.5'; a number is needed"),
    ],
)
def test_a_number_outside_of_its_range_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Mine(**{"share": 0.5, **fields})


def test_what_is_none_unless_it_is_said_may_be_none() -> None:
    config = Mine(share=0.5, most=None, target_kl=None, clip_range_vf=None, live_steps=None)
    assert (config.most, config.target_kl) == (None, None)


def test_a_range_without_an_end_has_none() -> None:
    assert Mine(share=0.5, clip_range_vf=1e31).clip_range_vf == 1e31


def test_ranges_are_no_fields() -> None:
    assert "ranges" not in Mine.__struct_fields__
