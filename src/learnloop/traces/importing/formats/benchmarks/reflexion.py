"""Reflexion results: programming tasks as JSON Lines, and the trials of an environment as a JSON list.

Programming: a line is one run at a task. Its model calls are the implementations and the reflections between them;
where the file holds the last solution alone, those before it are not made up. ``is_solved`` is the outcome of the
task's own tests. A task is known by its name and its prompt: the same name in two languages is two tasks.

Trials (ALFWorld, WebShop): a file holds each environment's outcome and the verbal memory after one trial, without any
step. An environment that was solved is not run again, its success is copied into each later file. So the trials are no
independent attempts. Where the memories of the file show it, such a copy is marked (``carried_over``), with the trial
in which it was solved.

Source: Shinn et al. 2023, "Reflexion", the files in ``programming_runs``, ``alfworld_runs`` and ``webshop_runs`` of its
repository.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from learnloop.core.records import Record
from learnloop.traces.conversation.messages import Message, as_text, message, text_part
from learnloop.traces.importing.building import EpisodeBuilder
from learnloop.traces.importing.reader import (
    ItemReader,
    Line,
    Source,
    TraceFormat,
    Words,
    convert,
    digest,
    first_has_fields,
)
from learnloop.traces.json_values import known_object

_RUN_FIELDS = frozenset({"solution", "is_solved", "reflections", "implementations", "test_feedback"})
_RUN_FILE = re.compile(r"(?:.*_)?(?P<strategy>[a-z-]+)_(?P<max_iterations>\d+)_(?P<model>[^_]+)_pass_at_k_\d+.*")
_TRIAL_FILE = re.compile(r"trial_(\d{1,6})")


class _Run(msgspec.Struct):
    prompt: str
    name: Words | None = None
    task_id: Words | int | None = None
    solution: Any = None
    is_solved: bool | None = None
    reflections: list[str] | None = None
    implementations: list[str] | None = None
    test_feedback: list[str] | None = None


class ReflexionReader(ItemReader):
    """Reads each line into an episode."""

    format_name = "reflexion"

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._run = source.says(_RUN_FILE)
        self._num_calls = 0

    def read(self, line: Line) -> list[Record]:
        """Returns the episode of one run at a task."""
        run = convert(line, _Run)
        name = run.name if run.name is not None else run.task_id
        task_id = f"reflexion:{'unnamed' if name is None else name}:{digest(run.prompt)}"
        builder = EpisodeBuilder(self, self.unnamed_id(line), task_id=task_id, metadata=self._run)
        self._add_steps(builder, run)
        if run.is_solved is not None:
            builder.reward("is_solved", float(run.is_solved))
        definition = {field: value for field, value in line.items() if field not in _RUN_FIELDS}
        return [*self.task_records(task_id, definition), *builder.finish()]

    def _add_steps(self, builder: EpisodeBuilder, run: _Run) -> None:
        reflections, codes, feedback = run.reflections or [], run.implementations or [], run.test_feedback or []
        heard: list[Message] = []
        for number, code in enumerate(codes):
            self._call(builder, [*heard, _user(run.prompt)], code, "implementation")
            results = [_user(text) for text in feedback[number : number + 1]]
            for text in feedback[number : number + 1]:
                builder.tool("tests", None, text)
            for reflection in reflections[number : number + 1]:
                self._call(builder, [_user(code), *results], reflection, "reflection")
            heard = [_assistant(code), *results, *map(_assistant, reflections[number : number + 1])]
        if not codes:
            for reflection in reflections:
                self._call(builder, [], reflection, "reflection")
            builder.note(num_implementations_unknown=len(reflections) or None)
            heard = [_assistant(reflection) for reflection in reflections[-1:]]
        if run.solution is not None and codes[-1:] != [run.solution]:
            self._call(builder, [*heard, _user(run.prompt)], as_text(run.solution), "implementation")

    def _call(self, builder: EpisodeBuilder, messages: list[Message], output: str, purpose: str) -> None:
        """Adds a call; each has a prompt of its own, of which ``messages`` is what the file holds."""
        self._num_calls += 1
        model, thread = self._run.get("model") or "", str(self._num_calls)
        builder.chat(model, messages, _assistant(output), thread=thread, purpose=purpose)


def _user(text: str) -> Message:
    return message("user", text_part(text))


def _assistant(text: str) -> Message:
    return message("assistant", text_part(text))


class _Trial(msgspec.Struct):
    name: Words
    is_success: bool | None = None
    memory: list[str] = []


class _Memories(NamedTuple):
    """How many memories the environments of a file have."""

    num_environments: int
    of_failed: frozenset[int]
    longest: int


class ReflexionTrialsReader(ItemReader):
    """Reads the outcome of each environment into an episode without steps."""

    format_name = "reflexion-trials"

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        found = _TRIAL_FILE.search(source.plain_name)
        self._attempt = int(found[1]) if found else None

    def read(self, item: Any) -> list[Record]:
        """Returns the episode of one environment in this trial."""
        memories, raw = item
        trial = convert(raw, _Trial)
        copied = bool(trial.is_success) and self._is_copy(memories, len(trial.memory))
        builder = EpisodeBuilder(
            self,
            self.unnamed_id(raw),
            task_id=f"reflexion:{memories.num_environments}-environments:{trial.name}",
            attempt=self._attempt,
            metadata={
                "memory": trial.memory,
                "carried_over": copied or None,
                "solved_in_trial": len(trial.memory) if copied else None,
            },
        )
        if trial.is_success is not None:
            builder.reward("is_success", float(trial.is_success))
        return builder.finish()

    def _is_copy(self, memories: _Memories, num_own: int) -> bool:
        """Returns whether a success with so many memories is one of an earlier trial.

        Each trial that fails adds a memory, so a success of trial N has N of them, if the file's are of that kind.
        """
        trial = self._attempt
        if trial is None or num_own >= trial:
            return False
        return memories.of_failed <= {trial + 1} and memories.longest >= trial


def _trials(value: list[Any]) -> Iterator[tuple[_Memories, Any]]:
    known = [trial for trial in map(known_object, value) if isinstance(trial.get("memory"), list)]
    failed = frozenset(len(trial["memory"]) for trial in known if trial.get("is_success") is False)
    memories = _Memories(len(value), failed, max((len(trial["memory"]) for trial in known), default=0))
    return ((memories, trial) for trial in value)


def _fits(line: Line) -> bool:
    return {"prompt", "is_solved"} <= line.keys() and ("name" in line or "task_id" in line)


REFLEXION = TraceFormat("reflexion", "the fields prompt, is_solved, and name or task_id", _fits, ReflexionReader)
REFLEXION_TRIALS = TraceFormat(
    "reflexion-trials",
    "a list of objects with name, memory and is_success",
    first_has_fields("name", "memory", "is_success"),
    ReflexionTrialsReader,
    shape="document",
    items=_trials,
)
