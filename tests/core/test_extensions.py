"""What packages add: found when asked for, named when broken, and never in the way of the rest."""

from __future__ import annotations

import importlib.metadata
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from learnloop.core.errors import ExtensionError, NotFoundError, UsageError
from learnloop.core.extensions import ExtensionPoint


def declare(monkeypatch: pytest.MonkeyPatch, **entries: str) -> ExtensionPoint:
    """Returns a point of rewards for which packages have declared ``entries``."""
    found = [EntryPoint(name.rstrip("_"), value, "learnloop.rewards") for name, value in entries.items()]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [e for e in found if e.group == group])
    return ExtensionPoint("reward")


def test_registered_in_this_process() -> None:
    point = ExtensionPoint("reward")
    point.register("mine", len, built_in=())
    point.register("mine", len, built_in=())  # again is harmless
    assert point.find("mine") is len
    assert point.is_local("mine")
    assert point.find("others") is None
    with pytest.raises(UsageError, match="another reward is registered as 'mine'"):
        point.register("mine", max, built_in=())


@pytest.mark.parametrize("name", ["", "Mine", "a b", "-a", "a/b", 3, None])
def test_names_that_cannot_be_used(name: Any) -> None:
    with pytest.raises(UsageError, match="cannot name an extension"):
        ExtensionPoint("reward").register(name, len, built_in=())


def test_names_that_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    point = declare(monkeypatch, length="builtins:len")
    with pytest.raises(UsageError, match="learnloop's own"):
        point.register("contains", len, built_in=["contains"])
    with pytest.raises(UsageError, match="is that of an unknown package"):
        point.register("length", max, built_in=())


def test_a_package_is_imported_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    point = declare(monkeypatch, length="builtins:len", broken="no_such_module_at_all:function", gone="builtins:absent")
    assert point.names() == ["broken", "gone", "length"]
    assert point.find("length") is len
    assert not point.is_local("length")
    with pytest.raises(
        ExtensionError, match=r"'broken' of an unknown package cannot be imported \(ModuleNotFoundError"
    ):
        point.find("broken")
    with pytest.raises(ExtensionError, match="AttributeError"):
        point.find("gone")
    listing = {each.name: each for each in point.listing({})}
    assert listing["length"].error is None
    assert listing["length"].description.startswith("Return the number of items")
    assert "no_such_module_at_all" in str(listing["broken"].error)


def test_two_packages_of_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    point = declare(monkeypatch, length="builtins:len", length_="builtins:max")
    with pytest.raises(ExtensionError, match="uninstall all but one"):
        point.find("length")


def test_a_package_with_a_name_of_ours_is_told_and_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    point = declare(monkeypatch, contains="builtins:len")
    found = point.listing({"contains": max})
    assert [(each.name, each.error is None) for each in found] == [("contains", True), ("contains", False)]
    assert "learnloop's own" in str(found[1].error)


def test_unknown_names(monkeypatch: pytest.MonkeyPatch) -> None:
    point = declare(monkeypatch, brevity="builtins:len")
    with pytest.raises(NotFoundError, match=r"'brevty'; did you mean brevity|did you mean 'brevity'"):
        point.get("brevty")
    with pytest.raises(NotFoundError, match="known are none"):
        ExtensionPoint("encoder").get("x")
