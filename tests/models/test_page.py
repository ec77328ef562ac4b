"""The example of docs/models.md runs as it stands there, against the real model."""

from __future__ import annotations

import re

import pytest

from tests.model_server.server import ModelServer
from tests.project import ROOT


def test_the_example(model_server: ModelServer, capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    (body,) = re.findall(r"^```py\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert '"http://127.0.0.1:8080/v1"' in body
    assert model_server.model in body
    exec(compile(body.replace("http://127.0.0.1:8080/v1", model_server.url), "models.md", "exec"), {})  # noqa: S102
    said = capsys.readouterr().out
    assert re.match(r".+ (stop|length) \d+ \d+$", said, re.MULTILINE)  # which words a model says is its own affair
    assert "{'city': " in said
