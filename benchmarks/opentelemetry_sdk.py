"""The OpenTelemetry SDK on the work of ``capture``, run by the Python of its own environment.

Reads one JSON object from standard input and writes one to standard output; imports nothing of learnloop.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from typing import Any


def main() -> None:
    task = json.load(sys.stdin)
    with tempfile.TemporaryDirectory() as folder, open(os.path.join(folder, "spans.jsonl"), "w") as file:
        json.dump(measure(task, file), sys.stdout)


def measure(task: dict[str, int], file: Any) -> dict[str, float]:
    """Returns the same measures as ``benchmarks.capture.measure``."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import (
        BatchSpanProcessor,
        ConsoleSpanExporter,
    )

    exporter = ConsoleSpanExporter(out=file, formatter=lambda span: span.to_json(indent=None) + "\n")
    processor = BatchSpanProcessor(exporter, max_queue_size=2 * task["num_durable"], max_export_batch_size=2048)
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(processor)
    tracer = provider.get_tracer("bench")

    def span() -> None:
        with tracer.start_as_current_span("step"):
            pass

    def traced() -> None:
        with tracer.start_as_current_span("work") as current:
            current.set_attribute("input", json.dumps({"number": 3, "text": "abc"}))
            current.set_attribute("output", work(3, text="abc"))

    with tracer.start_as_current_span("episode"):
        span_us = thread_us(task["num_calls"], span) - thread_us(task["num_calls"], lambda: None)
        provider.force_flush(120_000)
        call_us = thread_us(task["num_calls"], traced) - thread_us(task["num_calls"], lambda: work(3, text="abc"))
        provider.force_flush(120_000)
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(task["num_durable"]):
            span()
        provider.force_flush(120_000)
        file.flush()
        os.fsync(file.fileno())
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    provider.shutdown()
    file.seek(0)
    return {
        "span_us": span_us,
        "call_us": call_us,
        "durable_per_second": task["num_durable"] / wall,
        "durable_cpu_us": cpu / task["num_durable"] * 1e6,
    }


def work(number: int, text: str) -> str:
    return text * number


def thread_us(count: int, call: Any) -> float:
    started = time.thread_time()
    for _ in range(count):
        call()
    return (time.thread_time() - started) / count * 1e6


if __name__ == "__main__":
    main()
