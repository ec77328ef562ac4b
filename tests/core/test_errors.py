"""learnloop.core.errors and names: every error has an exit code and says what is allowed."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from learnloop.core import errors
from learnloop.core.checks import check_name
from learnloop.core.errors import LearnloopError, MissingExtraError, UsageError, one_of
from learnloop.core.seeding import derive_seed, generator
from tests.project import ROOT

ALL = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, LearnloopError)]


@pytest.mark.parametrize("kind", ALL)
def test_exit_codes_are_the_documented_ones(kind: type[LearnloopError]) -> None:
    assert kind.exit_code in {1, 2, 3, 4, 5, 6, 7}
    assert kind.__name__ in (errors.__doc__ or "")


def test_a_missing_extra_prints_a_line_that_works() -> None:
    error = MissingExtraError("PostgreSQL", "postgres")
    assert 'pip install "learnloop[postgres]"' in str(error)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert error.extra in extras


def test_one_of_is_short() -> None:
    assert one_of([]) == "none"
    assert one_of("ab") == "'a', 'b'"
    assert one_of(range(20)).endswith("11 and 8 more")


@pytest.mark.parametrize("name", ["a", "A-1_b.c", "9", "x" * 100])
def test_names_that_are_safe(name: str) -> None:
    assert check_name("a thing", name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../x",
        "a/b",
        "a\\b",
        "/etc/passwd",
        "-rf",
        ".hidden",
        "a b",
        "a\n",
        "a\x00",
        "ü",
        "．．",
        "x" * 101,
        None,
        3,
    ],
)
def test_names_that_are_not(name: Any) -> None:
    with pytest.raises(UsageError, match="cannot name a thing"):
        check_name("a thing", name)


def test_seeds_are_the_same_on_every_machine() -> None:
    assert derive_seed(0, "a", 1) == 2567054096787269053  # sha256sum of the bytes 0, 1f, a, 1f, 1
    assert derive_seed(0, "a", 1) != derive_seed(0, "a", 2) != derive_seed(1, "a", 2)
    assert derive_seed(0, "ab") != derive_seed(0, "a", "b")
    assert generator(3, "x").integers(1000) == generator(3, "x").integers(1000)
