"""What a judge looks at: criteria with their scales and weights."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Literal

import msgspec

from learnloop.core.errors import FormatError, NotFoundError, UsageError
from learnloop.core.records import Record

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
