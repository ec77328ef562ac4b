"""Receives OpenTelemetry: OTLP requests to spans, spans to episodes, scores to rewards. HTTP is not known here.

``decode`` reads the wire, ``mapping`` turns what was sent into our records, ``assembly`` makes it durable and decides
when a trace is over.
"""

from learnloop.traces.otlp.assembly import Assembler, AssemblyCounters, AssemblyOptions
from learnloop.traces.otlp.decode import (
    Encoding,
    decode_logs,
    decode_traces,
    encode_logs_answer,
    encode_status,
    encode_traces_answer,
)
from learnloop.traces.otlp.mapping import Mapped, map_logs, map_spans, our_span_id

__all__ = [
    "Assembler",
    "AssemblyCounters",
    "AssemblyOptions",
    "Encoding",
    "Mapped",
    "decode_logs",
    "decode_traces",
    "encode_logs_answer",
    "encode_status",
    "encode_traces_answer",
    "map_logs",
    "map_spans",
    "our_span_id",
]
