"""The formats of traces that can be imported, one file each; ``FORMATS`` is the list of them.

A reader turns one item of a file after the other into records. Ids are made of the content, so that importing the same
lines again makes the same records; what a format does not carry stays None.
"""

from collections.abc import Mapping
from typing import Any

from learnloop.core.errors import FormatError, one_of
from learnloop.traces.importing.formats.atif import ATIF, ATIF_LINES
from learnloop.traces.importing.formats.benchmarks.reflexion import REFLEXION, REFLEXION_TRIALS
from learnloop.traces.importing.formats.benchmarks.swe_agent import SWE_AGENT
from learnloop.traces.importing.formats.benchmarks.tau2_bench import TAU2_BENCH
from learnloop.traces.importing.formats.benchmarks.tau_bench import TAU_BENCH
from learnloop.traces.importing.formats.benchmarks.toolbench import TOOLBENCH
from learnloop.traces.importing.formats.claude_code import CLAUDE_CODE
from learnloop.traces.importing.formats.codex import CODEX, CODEX_DOCUMENT
from learnloop.traces.importing.formats.execution_trace import EXECUTION_TRACE, EXECUTION_TRACE_LINES
from learnloop.traces.importing.formats.feedback import FEEDBACK
from learnloop.traces.importing.formats.flow_agent import FLOW_AGENT
from learnloop.traces.importing.formats.goal import GOAL
from learnloop.traces.importing.formats.inspect.log import INSPECT, INSPECT_EVAL
from learnloop.traces.importing.formats.native import NATIVE
from learnloop.traces.importing.formats.openai_agents import OPENAI_AGENTS, OPENAI_AGENTS_DOCUMENT
from learnloop.traces.importing.formats.otlp import OTLP, OTLP_DOCUMENT, OTLP_PROTOBUF
from learnloop.traces.importing.formats.rag import RAG
from learnloop.traces.importing.reader import ItemReader, Line, Shape, Source, TraceFormat

FORMATS: Mapping[str, TraceFormat] = {
    each.name: each
    for each in (
        NATIVE,
        GOAL,
        RAG,
        FEEDBACK,
        OTLP,
        OTLP_DOCUMENT,
        OTLP_PROTOBUF,
        TAU_BENCH,
        TAU2_BENCH,
        REFLEXION,
        REFLEXION_TRIALS,
        SWE_AGENT,
        INSPECT,
        INSPECT_EVAL,
        TOOLBENCH,
        CLAUDE_CODE,
        CODEX,
        CODEX_DOCUMENT,
        ATIF,
        ATIF_LINES,
        FLOW_AGENT,
        OPENAI_AGENTS,
        OPENAI_AGENTS_DOCUMENT,
        EXECUTION_TRACE,
        EXECUTION_TRACE_LINES,
    )
}


def recognise(value: Any, shape: Shape) -> TraceFormat | None:
    """Returns the format whose files have this shape and begin with, or hold, ``value``; None: there is none."""
    return next((each for each in FORMATS.values() if each.shape == shape and each.fits(value)), None)


def what_is_looked_for() -> str:
    """Returns by what each format is recognised, for messages."""
    return "; ".join(f"{each.name}: {each.looks_for}" for each in FORMATS.values())


def by_name(name: str) -> TraceFormat:
    """Returns the format called ``name``.

    Raises:
        FormatError: there is none; the message names those that exist.
    """
    if name not in FORMATS:
        raise FormatError(f"unknown trace format {name!r}; known are {one_of(FORMATS)}")
    return FORMATS[name]


__all__ = ["FORMATS", "ItemReader", "Line", "Source", "TraceFormat", "by_name", "recognise", "what_is_looked_for"]
