"""How a judge is set up: the model, what it looks at, how often it is asked and what that may cost."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

import msgspec

from learnloop.core.errors import UsageError
from learnloop.models import EndpointConfig
from learnloop.rewards.judge.rubric import Rubric, read_rubric

MAX_VOTES = 101


class JudgeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A judge. ``endpoint.max_requests`` and ``endpoint.max_total_tokens`` bound all its votes together."""

    endpoint: EndpointConfig
    """Its ``deadline_seconds`` is for one vote with its repetitions. Its ``cache`` is the folder where votes are kept;
    None: they are kept in memory."""
    rubric: Rubric | str | None = None
    """A text is a rubric of one criterion."""
    rubric_file: str | None = None
    """A TOML file in the place of ``rubric``."""
    votes: int = 3
    """How often the question is asked, with as many seeds; in pairwise mode each vote asks in both orders."""
    combine: Literal["median", "mean"] = "median"
    temperature: float | None = 0.7
    """None: the endpoint's."""
    seed: int = 0
    """Of the first vote; the others count on from there. Another seed asks anew where votes are kept."""
    answer_format: Literal["json_schema", "json_object", "text"] = "json_schema"
    """What the endpoint is told of the answer's form (``response_format``); ``text``: nothing but our words."""
    max_part_characters: int = 20_000
    """Of each part of an attempt that is shown; the middle of a longer one is cut, and the judge is told."""
    deadline_seconds: float = 600.0
    """For all votes on one attempt or pair."""
    max_usd: float | None = None
    """That this judge may spend as long as it lives; None: any sum."""
    input_usd_per_million: float | None = None
    """What a million tokens of a question cost; needed for ``max_usd``."""
    output_usd_per_million: float | None = None
    """What a million tokens of an answer cost; needed for ``max_usd``."""
    max_pairs: int = 60
    """Of one group in pairwise mode; each costs at most ``2 x votes`` questions."""
    prior: float = 1.0
    """Games against an average answer, half of them won, that each answer of a group is credited with; 0.01 or more."""

    def __post_init__(self) -> None:
        """Refuses values without a meaning, and those that contradict each other."""
        prices = (self.input_usd_per_million, self.output_usd_per_million)
        checks = {
            "votes": 1 <= self.votes <= MAX_VOTES,
            "temperature": self.temperature is None or 0.0 <= self.temperature < math.inf,
            "seed": 0 <= self.seed < 2**31 - MAX_VOTES,
            "max_part_characters": self.max_part_characters >= 100,
            "deadline_seconds": 0.0 < self.deadline_seconds < math.inf,
            "max_usd": self.max_usd is None or 0.0 < self.max_usd < math.inf,
            "input_usd_per_million": prices[0] is None or 0.0 <= prices[0] < math.inf,
            "output_usd_per_million": prices[1] is None or 0.0 <= prices[1] < math.inf,
            "max_pairs": self.max_pairs >= 1,
            "prior": 0.01 <= self.prior < math.inf,
        }
        for name, is_fine in checks.items():
            if not is_fine:
                raise UsageError(f"{name} is {getattr(self, name)}, which has no meaning; see JudgeConfig")
        if (self.rubric is None) == (self.rubric_file is None):
            raise UsageError("a judge needs either rubric or rubric_file")
        if self.max_usd is not None and None in prices:
            raise UsageError("max_usd needs prices: set input_usd_per_million and output_usd_per_million")
        temperature = self.endpoint.temperature if self.temperature is None else self.temperature
        if self.votes > 1 and temperature == 0.0:
            raise UsageError(f"votes is {self.votes} at temperature 0, where all are the same; set votes = 1")

    def read_rubric(self, folder: Path | None = None) -> Rubric:
        """Returns the rubric; a relative ``rubric_file`` starts at ``folder``, which is this folder where None.

        Raises:
            NotFoundError: there is no such file.
            UsageError: the file is no rubric.
        """
        if self.rubric_file is not None:
            return read_rubric((folder or Path()) / self.rubric_file)
        return self.rubric if isinstance(self.rubric, Rubric) else Rubric.of(self.rubric or "")
