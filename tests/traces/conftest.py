"""A recorder and where its records go."""

from __future__ import annotations

import pytest

from learnloop.traces.recording.recorder import Recorder
from tests.traces.sink import Sink


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
def recorder(sink: Sink) -> Recorder:
    return Recorder(sink, "agent")
