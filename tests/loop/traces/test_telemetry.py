"""learnloop.loop.traces.telemetry: an answer and a promise for each request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from learnloop.core.errors import ConflictError, FormatError
from learnloop.core.records import Reward, Span
from learnloop.loop import Workspace
from learnloop.loop.traces.telemetry import Telemetry
from learnloop.loop.workspace.settings import find_settings
from tests.traces.otlp import requests as otlp
from tests.traces.otlp.requests import log, span
from tests.waiting import PATIENCE_SECONDS


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with Workspace(find_settings(tmp_path / "home"), create=True) as opened:
        yield opened


def test_traces_and_logs_are_received(workspace: Workspace) -> None:
    with Telemetry(workspace) as telemetry:
        receipt = telemetry.receive_traces(otlp.traces_pb([span(1, 1)]), "protobuf")
        receipt.durable.result(PATIENCE_SECONDS)
        assert receipt.body == b""
        score = {"gen_ai.evaluation.name": "x", "gen_ai.evaluation.score.value": 1.0}
        receipt = telemetry.receive_logs(otlp.logs_json([log(1, 1, "gen_ai.evaluation.result", score)]), "json")
        receipt.durable.result(PATIENCE_SECONDS)
        assert receipt.body == b"{}"
        assert (workspace.store.count(Span), workspace.store.count(Reward)) == (1, 1)
        counters = telemetry.counters()
        assert (counters.num_added, counters.num_open, counters.num_waiting, counters.last_error) == (1, 1, 0, None)


def test_what_is_no_request_is_refused_and_a_closed_one_takes_nothing(workspace: Workspace) -> None:
    telemetry = Telemetry(workspace)
    telemetry.start()
    with pytest.raises(FormatError):
        telemetry.receive_traces(b"{", "json")
    telemetry.close()
    with pytest.raises(ConflictError):
        telemetry.receive_traces(b"{}", "json")
