"""learnloop.decisions.importing.choices: names and ids of what was logged."""

from __future__ import annotations

from learnloop.decisions.importing.choices import name_actions


def test_names_that_are_stored_as_the_same_text_stay_apart() -> None:
    assert name_actions([("a\0", {}), ("a\ufffd", {})]) == ["a\ufffd", "a\ufffd#2"]
