"""What OpenInference's instrumentor adds to a call of a model, run by the Python of its own environment.

Reads one JSON object from standard input and writes one to standard output; imports nothing of learnloop. It patches
the class, so the client that is not recorded is one whose calls run with instrumentation suppressed.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.model_calls import added_ms


def main() -> None:
    json.load(sys.stdin)
    with tempfile.TemporaryDirectory() as folder, open(os.path.join(folder, "spans.jsonl"), "w") as file:
        json.dump(measure(file), sys.stdout)


def measure(file: Any) -> dict[str, float]:
    """Returns the same measures as ``benchmarks.wrapped_client``."""
    import openai
    from openinference.instrumentation import suppress_tracing
    from openinference.instrumentation.openai import OpenAIInstrumentor
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

    provider = TracerProvider(shutdown_on_exit=False)
    exporter = ConsoleSpanExporter(out=file, formatter=lambda span: span.to_json(indent=None) + "\n")
    provider.add_span_processor(BatchSpanProcessor(exporter))
    OpenAIInstrumentor().instrument(tracer_provider=provider)

    class Suppressed:
        """A client whose calls are not recorded."""

        def __init__(self, client: Any) -> None:
            self.chat = self
            self.completions = self
            self._client = client

        def create(self, **request: Any) -> Any:
            with suppress_tracing():
                return self._client.chat.completions.create(**request)

    def make(url: str) -> tuple[Any, Any]:
        client = openai.OpenAI(base_url=url, api_key="k", max_retries=0)
        return Suppressed(client), client

    measured = added_ms(make)
    provider.shutdown()
    return measured


if __name__ == "__main__":
    main()
