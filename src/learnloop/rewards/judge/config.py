"""How a judge is set up: its rubric, the model, how often that is asked and what it may cost."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Literal

import msgspec

from learnloop.core.checks import check_range
from learnloop.core.errors import FormatError, NotFoundError, UsageError
from learnloop.core.records import Record
from learnloop.models import EndpointConfig

MAX_VOTES = 101
MAX_LEVELS = 101
"""Of one criterion's scale: 0 to 100."""

Part = Literal["prompt", "expected", "documents", "tools", "output"]
"""What of an attempt is shown; see ``core.attempts.Attempt``."""


class Criterion(Record, frozen=True, kw_only=True):
    """One thing that is scored, in whole numbers from ``lowest`` to ``highest``."""

    name: str
    """A word, which is a key of the judge's answer."""
    text: str
    """What it means, and what earns which number."""
    weight: float = 1.0
    lowest: int = 1
    highest: int = 5

    def __post_init__(self) -> None:
        """Refuses a criterion that cannot be scored."""
        if not self.name.isidentifier():
            raise UsageError(f"a criterion is named {self.name!r}; a word of letters, digits and _ is needed")
        if not self.text.strip():
            raise UsageError(f"the criterion {self.name} has no text; say what it means")
        if not 0.0 < self.weight < math.inf:
            raise UsageError(f"the criterion {self.name} has the weight {self.weight}; it must be above 0 and finite")
        if not self.lowest < self.highest < self.lowest + MAX_LEVELS:
            raise UsageError(
                f"the criterion {self.name} has a scale from {self.lowest} to {self.highest}; "
                f"it needs at least 2 and at most {MAX_LEVELS} whole numbers"
            )

    def fraction(self, number: float) -> float:
        """Returns where a number lies between ``lowest`` (0) and ``highest`` (1)."""
        return (number - self.lowest) / (self.highest - self.lowest)


class Rubric(Record, frozen=True, kw_only=True):
    """The criteria by which answers are judged, and what of an attempt the judge is shown."""

    criteria: list[Criterion]
    instructions: str = ""
    """What the judge should know besides: whose answers these are, what matters."""
    shows: list[Part] = msgspec.field(default_factory=lambda: ["prompt", "expected", "output"])
    """Parts that an attempt does not have are left out."""

    def __post_init__(self) -> None:
        """Refuses a rubric that says nothing, or twice the same."""
        names = [criterion.name for criterion in self.criteria]
        if not names or len(set(names)) < len(names):
            raise UsageError(f"a rubric has the criteria {names}; at least one is needed, each with a name of its own")
        if "output" not in self.shows:
            raise UsageError(f"a rubric shows {self.shows}; without 'output' there is nothing to judge")

    @classmethod
    def of(cls, text: str) -> Rubric:
        """Returns a rubric of one criterion, ``quality`` from 1 to 5."""
        return cls(criteria=[Criterion(name="quality", text=text)])

    def value(self, numbers: dict[str, int]) -> float:
        """Returns the weighted mean, from 0 to 1, of one number for each criterion."""
        total = sum(criterion.weight for criterion in self.criteria)
        return sum(each.weight * each.fraction(numbers[each.name]) for each in self.criteria) / total


def read_rubric(path: Path) -> Rubric:
    """Returns the rubric in a TOML file, whose keys are the fields of ``Rubric``.

    Raises:
        NotFoundError: there is no such file.
        FormatError: it is no TOML, or no rubric.
        UsageError: it cannot be read.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        return msgspec.convert(data, type=Rubric)
    except FileNotFoundError as error:
        raise NotFoundError(f"there is no rubric {path}; write one, or give rubric_file another path") from error
    except OSError as error:
        raise UsageError(f"the rubric {path} cannot be read ({error.strerror or error})") from error
    except (ValueError, RecursionError, UsageError) as error:  # of tomllib, the encoding, msgspec, the records above
        raise FormatError(f"{path} is no rubric: {error}") from error


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
    """Of the first vote; the others count on from there. Another seed asks again where votes are kept."""
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
        check_range("votes", self.votes, 1, MAX_VOTES)
        check_range("temperature", self.temperature or 0.0, 0, below=math.inf)
        check_range("seed", self.seed, 0, below=2**31 - MAX_VOTES)
        check_range("max_part_characters", self.max_part_characters, 100)
        check_range("deadline_seconds", self.deadline_seconds, above=0, below=math.inf)
        check_range("max_usd", 1.0 if self.max_usd is None else self.max_usd, above=0, below=math.inf)
        check_range("input_usd_per_million", self.input_usd_per_million or 0.0, 0, below=math.inf)
        check_range("output_usd_per_million", self.output_usd_per_million or 0.0, 0, below=math.inf)
        check_range("max_pairs", self.max_pairs, 1)
        check_range("prior", self.prior, 0.01, below=math.inf)
        if (self.rubric is None) == (self.rubric_file is None):
            raise UsageError("a judge needs either rubric or rubric_file")
        if self.max_usd is not None and None in (self.input_usd_per_million, self.output_usd_per_million):
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
