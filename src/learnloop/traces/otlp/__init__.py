"""Receives OpenTelemetry: OTLP requests to spans, spans to episodes, scores to rewards. HTTP is not known here.

``decode`` reads the wire, ``mapping`` turns what was sent into our records, ``assembly`` makes it durable and decides
when a trace is over.
"""
