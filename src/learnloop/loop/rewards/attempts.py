"""Recorded runs as what scorers look at: an ``Attempt`` for an episode."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from learnloop.core.attempts import Attempt, AttemptStep, TaskType
from learnloop.core.errors import FormatError, one_of
from learnloop.core.records import Episode, EpisodeStatus, Json, Span, Task
from learnloop.loop.traces.reading import span_tree
from learnloop.loop.workspace.core import WorkspaceCore
from learnloop.traces.conversation.messages import as_text, messages_of, text_of
from learnloop.traces.conversation.steps import MODEL_OPERATIONS, Step, in_time_order, steps_of

_ANSWERING = frozenset({"invoke_agent", "invoke_workflow", "custom"})
"""Operations whose output can be a run's answer."""
_PAGE = 500
_TASK_FIELDS = ("task_type", "expected", "prompt")
"""What the metadata of a task, or else of an episode, may say of it."""


class TaskTruth(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a task beside its runs: a line of a tasks file."""

    task_id: str
    task_type: TaskType | None = None
    expected: Any = None
    prompt: str | None = None
    documents: list[str] = []
    metadata: Json = {}


Truths = Mapping[str, TaskTruth]
"""What is known of tasks, by their ids."""


def stored_episodes(workspace: WorkspaceCore, ids: Sequence[str]) -> Iterator[Episode]:
    """Yields those of the episodes that are still there, in the order of their ids as given."""
    for start in range(0, len(ids), _PAGE):
        page = ids[start : start + _PAGE]
        found = {each.episode_id: each for each in workspace.store.iterate(Episode, where={"episode_id": page})}
        yield from (found[each] for each in page if each in found)


def attempt_of(
    workspace: WorkspaceCore, episode: Episode, truths: Truths | None = None, *, is_graded: bool = True
) -> Attempt:
    """Returns an episode as an attempt at its task.

    What the task was comes from ``truths``, else from the metadata of the stored task, else from the episode's own:
    ``task_type``, ``expected``, ``prompt`` and ``documents``. Other metadata of the task win over the episode's, which
    whoever ran it wrote.

    Args:
        workspace: whose.
        episode: a stored one.
        truths: what is known of tasks beside the store.
        is_graded: False: it is only looked at, so an unknown task type counts as not known.

    Raises:
        FormatError: the metadata names an unknown task type.
    """
    spans = in_time_order(workspace.store.iterate(Span, where={"episode_id": episode.episode_id}))
    steps = steps_of(spans)
    facts = _task_facts(workspace, episode, truths or {})
    agents = _Agents(spans, episode.agent_id)
    models = {span.span_id for span in spans if span.operation in MODEL_OPERATIONS}
    calls = [step for step in steps if step.span_id in models]
    return Attempt(
        episode_id=episode.episode_id,
        task_id=episode.task_id,
        task_type=_task_type(facts.get("task_type"), episode, is_graded),
        prompt=facts["prompt"] if isinstance(facts.get("prompt"), str) else _prompt(steps),
        output=_final_output(steps, spans),
        expected=facts.get("expected"),
        documents=_documents(facts.get("documents"), spans),
        steps=[_step(step, agents) for step in steps],
        agents=agents.listed(steps),
        completed=_completed(episode),
        error=episode.error,
        num_input_tokens=_tokens(calls, "input_tokens"),
        num_output_tokens=_tokens(calls, "output_tokens"),
        num_model_calls=len(calls) if spans else None,
        duration_seconds=_duration(episode),
        metadata={**episode.metadata, **facts["metadata"]},
    )


def _task_facts(workspace: WorkspaceCore, episode: Episode, truths: Truths) -> dict[str, Any]:
    """Returns what is said of the task, by field."""
    metadata: dict[str, Any] = {}
    if episode.task_id is not None:
        task = workspace.store.find(Task, episode.task_id)
        metadata = {} if task is None else dict(task.metadata)
    fields = (*_TASK_FIELDS, "documents")
    facts = {name: episode.metadata[name] for name in fields if name in episode.metadata}
    facts.update({name: metadata[name] for name in fields if name in metadata})
    facts["metadata"] = {name: value for name, value in metadata.items() if name not in fields}
    truth = truths.get(episode.task_id or "")
    if truth is not None:
        given = msgspec.structs.asdict(truth)
        facts.update({name: given[name] for name in fields if given[name] not in (None, [])})
        facts["metadata"] = {**facts["metadata"], **truth.metadata}
    return facts


def _task_type(value: Any, episode: Episode, is_graded: bool) -> TaskType | None:
    if value is None:
        return None
    try:
        return TaskType(value)
    except ValueError as error:
        if not is_graded:
            return None
        raise FormatError(
            f"the task of episode {episode.episode_id} has the type {value!r}; allowed are "
            f"{one_of([each.value for each in TaskType])}"
        ) from error


def _prompt(steps: Sequence[Step]) -> str | None:
    """Returns what the user said first."""
    for step in steps:
        for said in step.messages:
            if said["role"] == "user" and text_of(said):
                return text_of(said)
    return None


def _final_output(steps: Sequence[Step], spans: Sequence[Span]) -> str | None:
    """Returns the last answer of a model that asks for no tool, else what the outermost span with an output gave back.

    Of several that lie equally deep it is the last one.
    """
    for step in reversed(steps):
        if step.output is not None and step.error is None and not step.tool_calls:
            return text_of(step.output)
    depths = [(depth, span) for depth, span in span_tree(spans) if span.operation in _ANSWERING]
    given = [(depth, span.attributes["output"]) for depth, span in depths if span.attributes.get("output") is not None]
    if not given:
        return None
    top = min(depth for depth, _ in given)
    answer = [output for depth, output in given if depth == top][-1]
    said = messages_of(answer) if isinstance(answer, list) else []
    return text_of(said[-1]) if said else as_text(answer)


def _documents(told: Any, spans: Iterable[Span]) -> list[str]:
    """Returns what was retrieved: as the task says, else what the spans of retrieval gave back."""
    if isinstance(told, list):
        return [as_text(each) for each in told]
    found: list[str] = []
    for span in spans:
        if span.operation == "retrieval" and (output := span.attributes.get("output")) is not None:
            found.extend(as_text(each) for each in (output if isinstance(output, list) else [output]))
    return found


def _step(step: Step, agents: _Agents) -> AttemptStep:
    return AttemptStep(
        span_id=step.span_id,
        agent_id=agents.of(step.span_id),
        output=None if step.output is None else text_of(step.output),
        tool_calls=step.tool_calls,
        error=step.error,
    )


class _Agents:
    """Whose each span is: the agent's that was invoked around it, else the episode's."""

    def __init__(self, spans: Iterable[Span], agent_id: str) -> None:
        self._by_id = {span.span_id: span for span in spans}
        self._default = agent_id

    def of(self, span_id: str) -> str:
        seen: set[str] = set()
        span = self._by_id.get(span_id)
        while span is not None and span.span_id not in seen:
            if span.operation == "invoke_agent" and span.name:
                return span.name
            seen.add(span.span_id)
            span = self._by_id.get(span.parent_id or "")
        return self._default

    def listed(self, steps: Sequence[Step]) -> list[str]:
        """Returns who took part, each once, in the order of their first steps; those without a step come last."""
        invoked = [span.name for span in self._by_id.values() if span.operation == "invoke_agent" and span.name]
        return list(dict.fromkeys([*(self.of(step.span_id) for step in steps), *invoked])) or [self._default]


def _completed(episode: Episode) -> bool | None:
    if episode.status is EpisodeStatus.RUNNING:
        return None
    return episode.status is EpisodeStatus.COMPLETED and not episode.truncated


def _tokens(calls: Sequence[Step], name: str) -> int | None:
    """Returns how many tokens all calls took; None where one of them does not say."""
    counts = [step.attributes.get("usage") for step in calls]
    numbers = [usage.get(name) for usage in counts if isinstance(usage, Mapping)]
    known = [number for number in numbers if isinstance(number, int)]
    return sum(known) if known and len(known) == len(counts) else None


def _duration(episode: Episode) -> float | None:
    if episode.ended_at is None or episode.metadata.get("time_unknown") is True:
        return None
    return (episode.ended_at - episode.started_at).total_seconds()
