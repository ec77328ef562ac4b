"""What ``loop.wrap`` adds to a call of a model; prints one JSON object."""

from __future__ import annotations

import json
import sys
import tempfile
from typing import Any

from benchmarks.model_calls import added_ms


def main() -> None:
    import openai

    from learnloop.loop import Loop

    with tempfile.TemporaryDirectory() as folder, Loop("bench", home=folder) as loop:

        def make(url: str) -> tuple[Any, Any]:
            client = openai.OpenAI(base_url=url, api_key="k", max_retries=0)
            return client, loop.wrap(client)

        measured = added_ms(make)
        loop.flush()
        counters = loop.counters()
        if counters.num_dropped or counters.num_failed:
            raise RuntimeError(f"{counters.num_dropped} records were dropped, {counters.num_failed} failed")
    sys.stdout.write(json.dumps(measured))


if __name__ == "__main__":
    main()
