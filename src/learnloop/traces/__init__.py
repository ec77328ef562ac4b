"""Record what an agent does, and read what others recorded.

Capture fails open: it never raises into the agent and never waits; what could not be kept is counted.
"""

from learnloop.traces.importing.exchange import export_records, import_file
from learnloop.traces.importing.report import ImportReport
from learnloop.traces.recording.clients import wrap
from learnloop.traces.recording.hooking import hook
from learnloop.traces.recording.instrument import instrument
from learnloop.traces.recording.langchain import make_callback
from learnloop.traces.recording.recorder import ActiveEpisode, ActiveSpan, Recorder, RecorderCounters

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
