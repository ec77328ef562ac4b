"""Modules that a caller names: found, or told what is wrong in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from learnloop.core.errors import NotFoundError, UsageError
from learnloop.core.importing import import_named


def test_one_that_is_there() -> None:
    assert import_named("json.decoder", "the test", "my_package:Mine").__name__ == "json.decoder"


@pytest.mark.parametrize("name", ["", ".relative", "..up"])
def test_names_that_are_not_whole(name: str) -> None:
    with pytest.raises(UsageError, match=r"the test names the module .* the whole name .* such as my_package:Mine"):
        import_named(name, "the test", "my_package:Mine")


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "module_of_mine.py").write_text("import module_of_nobody\n")
    (tmp_path / "module_that_fails.py").write_text("raise RuntimeError('no such luck')\n")
    with pytest.raises(NotFoundError, match="the test needs the module 'module_of_nobody'"):
        import_named("module_of_mine", "the test", "my_package:Mine")
    with pytest.raises(UsageError, match=r"the test: the module 'module_that_fails' .* RuntimeError: no such luck"):
        import_named("module_that_fails", "the test", "my_package:Mine")
