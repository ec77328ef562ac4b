"""S2.5, F2.7: no failure is hidden, nothing is simulated, defaulted or skipped in silence (checked on the source).

A regular expression over words would find nothing (F2.7), so this reads the syntax tree: broad handlers, handlers that
do nothing or hand out a constant instead of a result, waits without a deadline, and words that promise work for later.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

import pytest

from tests.project import name_of, source_files, tree_of

BROAD = {"Exception", "BaseException"}

BROAD_HANDLERS = {
    "traces/recording/recorder.py: keep": "the boundary of capture and agent; it counts and keeps the reason",
    "traces/recording/recorder.py: guard": "as above; what it guards goes on unrecorded",
    "traces/recording/recorder.py: describe": "the agent's own objects; counted, with the reason in the record",
    "traces/recording/recorder.py: describe_error": "another's __str__ must not break the agent; the text says so",
    "store/writer.py: _run_function": "the failure is set on the future of the one who waits for it",
    "store/writer.py: _write": "raised at once where the place failed, else found again record by record",
    "store/writer.py: _write_halves": "kept for the one record that it comes from, whose owner is told",
    "store/store.py: _open_schema": "a database that another process holds is waited for until the deadline",
    "traces/otlp/assembly.py: _write": "the failure is set on the futures of those who wait for it",
    "traces/otlp/assembly.py: _look_after": "logged and kept as the reason; open traces are looked at again",
    "traces/recording/clients/wrapping.py: _parse_raw": "the program reads its own response itself",
    "traces/recording/instrument.py: wrapper": "an exception thrown at a generator is handed on to that generator",
    "serve/http/application.py: __call__": "becomes the answer of the one who asked, and is logged with its request id",
    "serve/routes/gateway.py: _begin": "the boundary of capture and agent: logged, and the call goes on unrecorded",
    "serve/routes/gateway.py: _unharmed": "as above",
    "serve/http/ndjson.py: _answer": "becomes the problem of the item, and is logged with the request id",
    "serve/http/threads.py: _work": "the failure is set on the future of the one who waits for it",
    "rewards/scoring/function.py: _work": "the failure is kept for the one who waits for it",
    "rewards/scoring/function.py: _call_own": "a fault of the grader becomes a score of None with the reason",
    "decisions/learning/learner.py: update": "the error is the result: kept in the record of the update, and logged",
    "testing/contracts/contract.py: check_contract": "an error of any kind breaks the rule it comes from, and is told",
}
"""Where a broad handler or ``suppress`` may swallow, and why. One that raises on each of its paths hides nothing."""

CONSTANT_HANDLERS = {
    "nn/encoders/context_schema.py: _fits": "a value that is refused does not fit; that is the question it answers",
    "cli/main.py: run": "the exit code that each kind of error has; the error itself was printed",
    "registry/folders.py: _is_whole": "a version that cannot be read is not whole; that is the question it answers",
    "traces/importing/exchange.py: _read": "the bad line is counted and reported with its number",
    "demo/files.py: _fits": "other people's files come and go; one that cannot be read is no candidate",
    "demo/files.py: _read": "as above; an empty content is left out of the stream",
    "cli/entry.py: main": "130 is the exit code of a process that was interrupted",
    "decisions/online/checkpoints.py: newest": "no state, with the reason; the whole log is read instead",
    "loop/workspace/doctor.py: _attempt": "not ok is what a check found that failed; its error is the advice",
    "store/backup.py: _is_damaged": "a database that cannot be read is damaged; that is the question it answers",
    "store/wal_checkpoints.py: num_frames": "a log that is not there has no pages; that is the question it answers",
    "store/blobs.py: _holds": "a file that is not there holds nothing; it is written then",
    "serve/sockets.py: _has_ipv6": "an address that cannot be bound is what it asks for",
    "serve/key_ring.py: _run": "that the keys could not be read, which was logged; those of before hold",
    "traces/otlp/content.py: is_storable": "what cannot be encoded cannot be stored; that is the question it answers",
    "rewards/learned/files.py: _is_whole": "files that cannot be read are not whole; that is the question it answers",
    "rewards/functions/json_shapes.py: same_json": "what is no JSON value is the same as nothing; that is what it asks",
    "sandbox/collecting.py: _take": "why a file did not come back: the result tells it, CommandOutcome.left_out",
    "sandbox/running.py: _read": "a pipe that holds nothing now is within its limit; that is the question it answers",
    "traces/recording/instrument.py: _positional_names": "a builtin does not tell its parameters: all go to 'args'",
    "rewards/grading/tasks/math.py: is_same": "what is no mathematics equals only its own text: that is what it asks",
    "rewards/grading/tasks/math.py: _is_math": "a text that cannot be read is none; that is the question it answers",
}
"""Where a handler returns or assigns a constant, or makes a result from numbers, and why that is the true result."""

BANNED_WORDS = re.compile(
    r"\b(TODO|FIXME|XXX|HACK)\b|not implemented|placeholder|dummy|for now|simulated|in a real (system|implementation)",
    re.IGNORECASE,
)
SIMULATORS = {
    "envs/goals/simulator.py": "is one by its name; info['simulated'] says so at every step",
    "envs/goals/commands.py": "says that it is none",
    "envs/goals/records.py": "an executor says whether it is one",
    "envs/goals/task.py": "asks its executor whether it is one, and says so in info and in what it renders",
    "envs/prompt_mutation.py": "is one by its name, for tests; info['simulated'] says so at every step",
}
"""Which files may say that something is simulated, and why: it is what they are for, and they tell their users."""
SANDBOX_PROGRAMS = {f"rewards/grading/harness/{name}.py" for name in ("peer", "values", "candidate", "examiner")}
"""Programs that run in the sandbox: they are there to run what is not trusted, and to report how it ended."""
BANNED_CALLS = {"eval", "exec", "compile", "__import__", "print"}
BANNED_MODULES = {"pickle", "cloudpickle", "joblib", "dill", "marshal", "shelve"}


Handler = ast.ExceptHandler

_GIVING = (ast.Return, ast.Yield, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)


def handlers(tree: ast.Module) -> Iterator[tuple[str, Handler]]:
    """Yields each except clause with the name of the function that it stands in."""
    return ((name, node) for name, node in _placed(tree) if isinstance(node, ast.ExceptHandler))


def suppressions(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    """Yields each call of ``contextlib.suppress`` with the name of the function that it stands in."""
    return (
        (name, node)
        for name, node in _placed(tree)
        if isinstance(node, ast.Call) and _last_name(node.func) == "suppress"
    )


def _placed(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    def walk(node: ast.AST, name: str) -> Iterator[tuple[str, ast.AST]]:
        for child in ast.iter_child_nodes(node):
            inside = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else name
            yield name, child
            yield from walk(child, inside)

    return walk(tree, "(module)")


def _last_name(node: ast.expr) -> str:
    return ast.unparse(node).rsplit(".", 1)[-1]


def is_broad(caught: ast.expr | None) -> bool:
    """Returns whether these exceptions are all that there are."""
    each = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(kind is None or _last_name(kind) in BROAD for kind in each)


def always_raises(body: Sequence[ast.stmt]) -> bool:
    """Returns whether each way through these statements ends in a raise."""
    for statement in body:
        if isinstance(statement, ast.Raise):
            return True
        if _leaves(statement):
            return False
        if isinstance(statement, ast.If) and always_raises(statement.body) and always_raises(statement.orelse):
            return True
        if isinstance(statement, ast.With) and always_raises(statement.body):
            return True
        if isinstance(statement, ast.Try) and (
            always_raises(statement.finalbody)
            or (always_raises(statement.body) and all(always_raises(each.body) for each in statement.handlers))
        ):
            return True
    return False


def _leaves(statement: ast.stmt) -> bool:
    """Returns whether there may be a way out of ``statement`` that is no raise."""
    return any(isinstance(node, ast.Return | ast.Break | ast.Continue) for node in ast.walk(statement))


def does_nothing(handler: Handler) -> bool:
    """Returns whether a handler forgets that anything happened."""
    return all(isinstance(each, ast.Pass) for each in handler.body)


def gives_constant(handler: Handler) -> bool:
    """Returns whether a handler puts a fixed value in the place of the failed result: returned, made or assigned."""
    nodes = [node for statement in handler.body for node in ast.walk(statement)]
    given = [node.value for node in nodes if isinstance(node, _GIVING)]
    return any(value is not None and (_is_constant(value) or _is_made_of_numbers(value)) for value in given)


def _is_constant(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return node.value is not None  # None says "not known", which is what it is
    if isinstance(node, ast.UnaryOp):
        return _is_constant(node.operand)
    if isinstance(node, ast.Dict):
        return all(_is_constant(value) for value in node.values)
    return isinstance(node, ast.List | ast.Tuple) and all(_is_constant(each) for each in node.elts)


def _is_made_of_numbers(node: ast.expr) -> bool:
    """Returns whether this is a call that is given a number, such as ``Result(reward=0.9)`` or ``float(0)``."""
    if not isinstance(node, ast.Call):
        return False
    given = [*node.args, *(keyword.value for keyword in node.keywords)]
    return any(_is_number(value) or _is_made_of_numbers(value) for value in given)


def _is_number(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp):
        return _is_number(node.operand)
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def faults(name: str, tree: ast.Module) -> list[str]:
    """Returns what hides a failure in the file ``name``."""
    found = []
    for function, handler in handlers(tree):
        place = f"{name}: {function}"
        if is_broad(handler.type) and not always_raises(handler.body) and place not in BROAD_HANDLERS:
            found.append(f"{place}, line {handler.lineno}: a broad except that does not raise")
        if does_nothing(handler):
            found.append(
                f"{place}, line {handler.lineno}: an except that does nothing; say contextlib.suppress and why"
            )
        if gives_constant(handler) and place not in CONSTANT_HANDLERS:
            found.append(f"{place}, line {handler.lineno}: a constant in the place of a failed result")
    for function, call in suppressions(tree):
        place = f"{name}: {function}"
        if any(is_broad(kind) for kind in call.args) and place not in BROAD_HANDLERS:
            found.append(f"{place}, line {call.lineno}: suppresses everything")
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in BANNED_CALLS:
            found.append(f"{name}, line {node.lineno}: {node.func.id}()")
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            found += [f"{name}, line {node.lineno}: {module}" for module in modules if module in BANNED_MODULES]
        if isinstance(node, ast.Assert):
            found.append(
                f"{name}, line {node.lineno}: an assert, which -O removes; raise an error that says what to do"
            )
    return found


def test_nothing_hides_a_failure() -> None:
    found = []
    for path in source_files():
        name = name_of(path)
        if name in SANDBOX_PROGRAMS:
            continue
        found += faults(name, tree_of(path))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            banned = BANNED_WORDS.search(line)
            if banned and not (banned.group().lower() == "simulated" and name in SIMULATORS):
                found.append(f"{name}, line {number}: {line.strip()}")
    assert found == []


def test_the_allowed_places_exist() -> None:
    existing = {f"{name_of(path)}: {function}" for path in source_files() for function, _ in handlers(tree_of(path))}
    assert BROAD_HANDLERS.keys() <= existing
    assert CONSTANT_HANDLERS.keys() <= existing
    assert SIMULATORS.keys() | SANDBOX_PROGRAMS <= {name_of(path) for path in source_files()}


@pytest.mark.parametrize(
    ("source", "number"),
    [
        ("try:\n    f()\nexcept Exception:\n    pass", 2),
        ("try:\n    f()\nexcept:\n    log()", 1),
        ("try:\n    f()\nexcept (ValueError, Exception) as e:\n    log(e)", 1),
        ("try:\n    f()\nexcept Exception as e:\n    raise Wrong() from e", 0),
        ("def g():\n    try:\n        return f()\n    except ValueError:\n        return 0.0", 1),
        ("def g():\n    try:\n        return f()\n    except ValueError:\n        return -1", 1),
        ("def g():\n    try:\n        return f()\n    except ValueError:\n        return []", 1),
        ("def g():\n    try:\n        return f()\n    except ValueError:\n        return None", 0),
        ("try:\n    f()\nexcept ValueError:\n    r = 0.5", 1),
        ("try:\n    f()\nexcept ValueError:\n    self.r: str = 'x'", 1),
        ("try:\n    f()\nexcept ValueError:\n    if x:\n        r = [0.0, 1]", 1),
        ("try:\n    f()\nexcept ValueError:\n    r += -1", 1),
        ("try:\n    f()\nexcept ValueError:\n    log(r := {'a': 0})", 1),
        ("try:\n    f()\nexcept ValueError:\n    r = None", 0),
        ("try:\n    f()\nexcept ValueError as error:\n    failure = str(error)", 0),
        ("def g():\n    try:\n        return f()\n    except ValueError:\n        return Result(reward=0.9)", 1),
        ("def g():\n    try:\n        return f()\n    except ValueError:\n        return Result(float(-1), x)", 1),
        (
            "def g():\n    try:\n        return f()\n    except ValueError as e:\n        return Bad('no', e)",
            0,
        ),
        ("with suppress(Exception):\n    f()", 1),
        ("with contextlib.suppress(KeyError, BaseException):\n    f()", 1),
        ("with suppress(ProcessLookupError):\n    f()", 0),
        ("try:\n    f()\nexcept builtins.Exception:\n    log()", 1),
        ("try:\n    f()\nexcept Exception:\n    if debug:\n        raise", 1),
        ("try:\n    f()\nexcept Exception:\n    if debug:\n        return\n    raise", 1),
        (
            "while x:\n  try:\n    f()\n  except Exception:\n    if x:\n      continue\n    raise",
            1,
        ),
        ("try:\n    f()\nexcept Exception:\n    if debug:\n        log()\n    raise", 0),
        (
            "try:\n    f()\nexcept Exception as e:\n    if debug:\n        raise\n    else:\n        raise Wrong()",
            0,
        ),
        ("try:\n    f()\nexcept Exception:\n    with lock:\n        raise", 0),
        ("try:\n    f()\nexcept Exception:\n    def g():\n        raise Wrong()", 1),
        ("import pickle", 1),
        ("x = eval('1')", 1),
        ("assert x", 1),
    ],
)
def test_the_check_itself(source: str, number: int) -> None:
    assert len(faults("x.py", ast.parse(source))) == number
