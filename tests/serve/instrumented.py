"""An agent under real OpenTelemetry instruments, run in a process of its own: they patch their clients globally.

``python -m tests.serve.instrumented FAMILY SUBJECT MODEL_URL RECEIVER CONTENT``
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

QUESTION = "Weather in Paris?"
RESULT = {"city": "Paris", "temp_c": 18}


def main(family: str, subject: str, model_url: str, receiver: str, content: str) -> None:
    os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = content
    if content == "event_only":
        os.environ["OTEL_INSTRUMENTATION_GENAI_EMIT_EVENT"] = "true"
    os.environ["OPENAI_API_KEY"] = "k"
    providers = _providers(receiver)
    _instrument(family, subject, providers)
    {"openai": _openai, "agents": _agents}[subject](model_url)
    for provider in providers:
        provider.force_flush()
        provider.shutdown()


def _providers(receiver: str) -> tuple[Any, Any]:
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create({"service.name": "demo-service", "learnloop.task_id": "weather"})
    tracers = TracerProvider(resource=resource)
    tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{receiver}/v1/traces")))
    loggers = LoggerProvider(resource=resource)
    loggers.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter(endpoint=f"{receiver}/v1/logs")))
    return tracers, loggers


def _instrument(family: str, subject: str, providers: tuple[Any, Any]) -> None:
    tracers, loggers = providers
    if family == "genai":
        from opentelemetry.instrumentation.genai.openai import OpenAIInstrumentor
        from opentelemetry.instrumentation.genai.openai_agents import OpenAIAgentsInstrumentor
    else:
        from openinference.instrumentation.openai import OpenAIInstrumentor
        from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor

    given = {"tracer_provider": tracers}
    if family == "genai":
        given["logger_provider"] = loggers
    OpenAIInstrumentor().instrument(**given)
    if subject == "agents":
        import agents

        agents.set_trace_processors([])  # its own would send to its maker
        OpenAIAgentsInstrumentor().instrument(**given)


def _openai(model_url: str) -> None:
    import openai

    client = openai.OpenAI(base_url=model_url, max_retries=0)
    client.chat.completions.create(model="m", messages=[{"role": "user", "content": QUESTION}], temperature=0.5)
    stream = client.chat.completions.create(
        model="m",
        messages=[{"role": "user", "content": "and in Rome?"}],
        stream=True,
        stream_options={"include_usage": True},
    )
    for _ in stream:
        pass


def _agents(model_url: str) -> None:
    import agents
    import openai

    @agents.function_tool
    def get_weather(city: str) -> str:
        """Weather for a city."""
        return json.dumps({**RESULT, "city": city})

    client = openai.AsyncOpenAI(base_url=model_url, max_retries=0)
    model = agents.OpenAIChatCompletionsModel(model="m", openai_client=client)
    agent = agents.Agent(name="Weather agent", instructions="Use the tool.", model=model, tools=[get_weather])
    asyncio.run(agents.Runner.run(agent, QUESTION))


if __name__ == "__main__":
    main(*sys.argv[1:])
