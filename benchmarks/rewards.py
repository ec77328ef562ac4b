"""How fast attempts are scored, and what a run in the sandbox costs.

Engine: attempts at tasks of six types (math, qa, text, rag, tool use, several agents), a third of them wrong, through
all of learnloop's reward functions, with answers of some 500 characters and two blocks of code that are parsed; one
thread, CPU time of the process. Tasks of SQL, whose queries are executed, have a row of their own.

Sandbox: ``benchmarks/sandbox_runs.py``.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from benchmarks.report import Goal, Options, Row, make_row
from benchmarks.sandbox_runs import rows as sandbox_rows
from learnloop.core.attempts import Attempt, AttemptStep, TaskType, ToolCall
from learnloop.rewards import RewardEngine

NUM_ATTEMPTS = 3_000
_PROSE = "The answer follows from what was asked, step by step, and each step is checked against the one before.\n"
_CODE = '```python\ndef double(number):\n    return number * 2\n```\n```json\n{"a": [1, 2, {"b": null}]}\n```\n'


def run(options: Options) -> list[Row]:
    return [*_engine_rows(options), *sandbox_rows(options)]


def _engine_rows(options: Options) -> list[Row]:
    number = 300 if options.quick else NUM_ATTEMPTS
    repetitions = options.repetitions(published=5, quick=2)
    kinds = [kind for kind in TaskType if kind not in (TaskType.CODE, TaskType.SQL)]
    name = "attempts scored by all functions (cpu time)"
    goal = Goal(of="value", relation=">=", bound=2_000)
    return [
        make_row(f"{name}, no code is run", _rates(make_attempts(number, kinds), repetitions), "1/s", goal=goal),
        make_row(f"{name}, SQL is executed", _rates(make_attempts(number // 5, [TaskType.SQL]), repetitions), "1/s"),
    ]


def _rates(attempts: list[Attempt], repetitions: int) -> list[float]:
    engine = RewardEngine()
    known = sum(scored.total is not None for scored in engine.score_many(attempts[:60]))  # parsers are imported here
    if known != 60:
        raise ValueError(f"only {known} of 60 attempts got a score; the engine would be timed on what it cannot score")
    rates = []
    for _ in range(repetitions):
        started = time.process_time()
        engine.score_many(attempts)
        rates.append(len(attempts) / (time.process_time() - started))
    return rates


def make_attempts(number: int, kinds: Sequence[TaskType]) -> list[Attempt]:
    """Returns attempts of these types in turn; every third is wrong."""
    return [_attempt(index, kinds[index % len(kinds)]) for index in range(number)]


def _attempt(index: int, kind: TaskType) -> Attempt:
    task = _task(kind, index)
    history = {"num_tokens": [800.0, 900.0, 1_000.0], "duration_seconds": [2.0, 3.0, 4.0]}
    return Attempt(
        task_id=f"{kind}-{index % 50}",
        task_type=kind,
        prompt=task["prompt"],
        output=_PROSE * 3 + _CODE + (task["wrong"] if index % 3 == 0 else task["right"]),
        expected=task["expected"],
        documents=task.get("documents", []),
        steps=[
            AttemptStep(
                agent_id=agent,
                output=_PROSE,
                tool_calls=[ToolCall(name="search", arguments={"query": f"{agent} {index}"}, result={"status": "ok"})],
            )
            for agent in ("planner", "writer")
        ],
        agents=["planner", "writer"],
        completed=True,
        num_input_tokens=700,
        num_output_tokens=200,
        num_model_calls=2,
        duration_seconds=2.5,
        metadata={"history": history, "format": {"max_chars": 4_000, "no_xml_tags": True}},
    )


def _task(kind: TaskType, index: int) -> dict[str, Any]:
    """Returns a task of its own for each number, so that nothing can be looked up from the one before."""
    tasks: dict[TaskType, dict[str, Any]] = {
        TaskType.MATH: {
            "prompt": "Simplify it.", "expected": f"{index + 1}*x + {index}", "right": f"Answer: {index}(x + 1) + x",
            "wrong": f"Answer: {index}x + 1",
        },
        TaskType.QA: {
            "prompt": "Which street is it?", "expected": [f"{index} Main Street"],
            "right": f"Answer: {index} Main Street", "wrong": "Answer: Elm Street",
        },
        TaskType.TEXT: {
            "prompt": "Which color is it?", "expected": f"blue {index}", "right": f"Answer: blue {index}",
            "wrong": "Answer: red",
        },
        TaskType.RAG: {
            "prompt": "When was it built?", "expected": [f"{index}"], "right": f"Answer: {index}",
            "wrong": "Answer: -1", "documents": [f"{_PROSE}The tower was built in {index}."],
        },
        TaskType.TOOL_USE: {
            "prompt": "Search it.", "right": "Done.", "wrong": "Done.",
            "expected": [{"name": "search", "arguments": {"query": f"writer {index + index % 3}"}}],
        },
        TaskType.MULTI_AGENT: {
            "prompt": "Which street is it?", "right": f"Answer: {index} Main Street", "wrong": "Answer: Elm Street",
            "expected": {"expected": [f"{index} Main Street"], "agents": ["planner", "writer"]},
        },
        TaskType.SQL: {
            "prompt": "How many users are there?", "right": "```sql\nSELECT count(id) FROM users\n```",
            "wrong": "```sql\nSELECT max(id) + 1 FROM users\n```",
            "expected": {
                "setup": f"CREATE TABLE users (id INTEGER); INSERT INTO users VALUES (1), ({index + 2});",
                "query": "SELECT count(*) FROM users",
            },
        },
    }  # fmt: skip
    return tasks[kind]
