"""Record what an agent does, and read what others recorded.

Capture fails open: it never raises into the agent and never waits; what could not be kept is counted.
"""

from learnloop.traces.clients import wrap
from learnloop.traces.exchange import export_records, import_file
from learnloop.traces.hooking import hook
from learnloop.traces.instrument import instrument
from learnloop.traces.langchain import make_callback
from learnloop.traces.recorder import ActiveEpisode, ActiveSpan, Recorder, RecorderCounters
from learnloop.traces.report import ImportReport

__all__ = [
    "ActiveEpisode",
    "ActiveSpan",
    "ImportReport",
    "Recorder",
    "RecorderCounters",
    "export_records",
    "hook",
    "import_file",
    "instrument",
    "make_callback",
    "wrap",
]
