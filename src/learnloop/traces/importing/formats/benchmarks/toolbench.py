"""ToolBench answers: one query and the calls of the search for its answer, a JSON object with ``answer_generation``.

A file is one episode: the path that was chosen (``train_messages``, each entry of which repeats the ones before it).
The other branches of a depth-first search are no attempts of their own, since each is told of the ones before it; how
many there were is in the metadata (``tree``). ``win`` is the outcome: the search ended with an answer. Nothing checked
that answer, so the episode says ``verified: false``. A search that its limits ended has neither answer nor messages.

A query is known by its text: the numbers in the names of files are unique within a group only.

Source: Qin et al. 2023, "ToolLLM", ``data_example/answer`` of the ToolBench repository.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from learnloop.core.errors import FormatError
from learnloop.core.records import Record
from learnloop.traces.conversation.messages import (
    Message,
    Part,
    fingerprint,
    parsed,
    read_message,
    tool_calls_of,
    tool_responses_of,
)
from learnloop.traces.importing.building import Calls, EpisodeBuilder
from learnloop.traces.importing.reader import ItemReader, TraceFormat, convert, digest
from learnloop.traces.json_values import find, known_list, known_text

_FILE = re.compile(r"(?P<query_id>\d+)_(?:(?P<model>.+)_)?(?P<method>(?:DFS|CoT|ETS).*)\.json", re.IGNORECASE)


_KEPT = ("finish_type", "final_answer", "valid_data", "query_count", "total_tokens")


class _Answer(msgspec.Struct):
    query: str | None = None
    train_messages: list[list[dict[str, Any]]] = []
    final_answer: Any = None
    finish_type: str | None = None
    valid_data: bool | None = None
    function: list[Any] | None = None
    query_count: Any = None
    total_tokens: Any = None


class _File(msgspec.Struct):
    answer_generation: _Answer
    win: bool | None = None
    tree: Any = None
    trys: Any = None
    forward_args: Any = None


class ToolBenchReader(ItemReader):
    """Reads a file into one episode."""

    format_name = "toolbench"

    def read(self, item: Any) -> list[Record]:
        """Returns the episode of the path that was chosen, with a step for each call of the model on it."""
        file = convert(item, _File)
        answer, named = file.answer_generation, self.source.says(_FILE)
        query = answer.query or _first_request(answer)
        task_id = f"toolbench:{digest(query)}" if query else None
        builder = EpisodeBuilder(
            self,
            self.unnamed_id(item),
            task_id=task_id,
            metadata={
                **named,
                "verified": False,
                **{name: getattr(answer, name) for name in _KEPT},
                "forward_args": file.forward_args,
                "num_tries": len(file.trys) if isinstance(file.trys, list) else None,
                "tree": _branches(file.tree),
            },
        )
        _add_path(builder, answer, named.get("model") or "")
        if file.win is not None:
            builder.reward("win", float(file.win))
        ended = answer.valid_data is not False
        records = builder.finish(terminated=ended, truncated=not ended)
        about = {"query": query, "query_id": named.get("query_id"), "tools": answer.function}
        return [*(self.task_records(task_id, about) if task_id else []), *records]


def _add_path(builder: EpisodeBuilder, answer: _Answer, model: str) -> None:
    """Adds a call for each entry of ``train_messages``, and each tool between them once."""
    calls, earlier, tools = Calls(builder), list[str](), answer.function
    for entry in answer.train_messages:
        said = [read_message(raw) for raw in entry]
        if not said or said[-1]["role"] != "assistant":
            raise FormatError("train_messages has an entry that does not end with what the assistant said")
        marks = [fingerprint(each) for each in said]
        for place in range(_num_common(earlier, marks), len(said)):
            for part in tool_responses_of(said[place]):
                _add_tool(builder, known_text(entry[place].get("name")), _last_call(said[:place]), part.get("response"))
        calls.add(model, said[:-1], marks[:-1], [(marks[-1], said[-1])], tools=tools)
        earlier, tools = marks, None


def _add_tool(builder: EpisodeBuilder, name: str | None, call: Part, result: Any) -> None:
    error = known_text(find(parsed(result), "error"))
    builder.tool(name or str(call.get("name") or ""), call.get("arguments"), result, error=error)


def _last_call(said: list[Message]) -> Part:
    """Returns the call that comes last in ``said``: a result has no id, it answers the call before it."""
    return next((call for each in reversed(said) for call in tool_calls_of(each)), {})


def _num_common(one: list[str], other: list[str]) -> int:
    return next((place for place, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), len(one))


def _first_request(answer: _Answer) -> str | None:
    """Returns what the user asked for; older files do not repeat it as ``query``."""
    said = (raw.get("content") for entry in answer.train_messages[:1] for raw in entry if raw.get("role") == "user")
    return known_text(next(said, None))


def _branches(tree: Any) -> dict[str, int] | None:
    """Returns how many nodes of which kind a search tree has."""
    root = find(tree, "tree")
    if not isinstance(root, dict):
        return None
    counts = {"num_nodes": 0, "num_branches": 0, "num_pruned": 0}
    waiting = [root]
    while waiting:
        node = waiting.pop()
        children = [each for each in known_list(node.get("children")) if isinstance(each, dict)]
        counts["num_nodes"] += 1
        counts["num_branches"] += not children
        counts["num_pruned"] += node.get("pruned") is True
        waiting += children
    return counts


def _fits(value: Any) -> bool:
    return isinstance(value, dict) and "win" in value and isinstance(value.get("answer_generation"), dict)


TOOLBENCH = TraceFormat(
    "toolbench",
    "an object with win and answer_generation",
    _fits,
    ToolBenchReader,
    shape="document",
)
