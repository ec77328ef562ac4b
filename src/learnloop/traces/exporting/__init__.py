"""Writes episodes in formats of others: ATIF, and dated folders of ExecutionTrace files.

What a format has no place for is not written, and what is not known is left out: nothing is made up to fill a field.
"""

from learnloop.traces.exporting.atif import atif_files, to_atif, write_atif_lines
from learnloop.traces.exporting.episodes import EpisodeRecords, episode_records, file_name
from learnloop.traces.exporting.execution_trace import execution_trace_files, to_execution_trace

__all__ = [
    "EpisodeRecords",
    "atif_files",
    "episode_records",
    "execution_trace_files",
    "file_name",
    "to_atif",
    "to_execution_trace",
    "write_atif_lines",
]
