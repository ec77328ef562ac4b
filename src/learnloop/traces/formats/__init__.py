"""The formats of traces that can be imported, one file each; ``FORMATS`` is the list of them.

A reader turns one decoded line after the other into records. Ids are made of the content, so that importing the same
lines again makes the same records; what a format does not carry stays None.
"""

from collections.abc import Mapping

from learnloop.core.errors import FormatError, one_of
from learnloop.traces.formats.base import Line, LineReader, TraceFormat
from learnloop.traces.formats.goal import GOAL
from learnloop.traces.formats.native import NATIVE
from learnloop.traces.formats.rag import RAG

FORMATS: Mapping[str, TraceFormat] = {each.name: each for each in (NATIVE, GOAL, RAG)}


def recognise(line: Line) -> TraceFormat:
    """Returns the format that ``line``, the first of a file, belongs to.

    Raises:
        FormatError: to none; the message says what each looks for.
    """
    for each in FORMATS.values():
        if each.fits(line):
            return each
    looked_for = "; ".join(f"{each.name}: {each.looks_for}" for each in FORMATS.values())
    raise FormatError(f"the first line has the fields {one_of(sorted(line))} and fits no known format ({looked_for})")


def by_name(name: str) -> TraceFormat:
    """Returns the format called ``name``.

    Raises:
        FormatError: there is none; the message names those that exist.
    """
    if name not in FORMATS:
        raise FormatError(f"unknown trace format {name!r}; known are {one_of(FORMATS)}")
    return FORMATS[name]


__all__ = ["FORMATS", "Line", "LineReader", "TraceFormat", "by_name", "recognise"]
