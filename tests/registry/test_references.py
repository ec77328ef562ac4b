"""Names of versions."""

import pytest

from learnloop.core.errors import UsageError
from learnloop.registry.references import Reference, check_alias, parse_reference


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("packer.codec", Reference("packer.codec")),
        ("packer.codec@3", Reference("packer.codec", version=3)),
        ("packer.codec@latest", Reference("packer.codec", alias="latest")),
        ("packer.codec@my-own_1", Reference("packer.codec", alias="my-own_1")),
    ],
)
def test_references(text: str, reference: Reference) -> None:
    assert parse_reference(text) == reference


@pytest.mark.parametrize("text", ["", "@1", "a@", "a@b@c", "../a", "a/b@1", "a@../b", "a@-1", "a\n", "a@²"])
def test_what_is_no_reference(text: str) -> None:
    with pytest.raises(UsageError):
        parse_reference(text)


@pytest.mark.parametrize("alias", ["latest", "7", "", "a b", "../x"])
def test_aliases_that_cannot_be_moved(alias: str) -> None:
    with pytest.raises(UsageError):
        check_alias(alias)


def test_aliases_that_can() -> None:
    assert [check_alias(alias) for alias in ("champion", "candidate", "team-a")] == ["champion", "candidate", "team-a"]
