"""``kill -9`` between any two lines of registering and pruning leaves whole versions or none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

DRIVER = r'''
import json, os, signal, sys, threading
from pathlib import Path
import numpy as np
from learnloop.core.protocols import PolicyArtifact
from learnloop.core.records import Verdict
from learnloop.registry import Proof, Registry
from learnloop.store import Store

place = Path(sys.argv[1])
action = sys.argv[2]
proof = Proof(verdict=Verdict.LEARNED, reasons=[])

def opened():
    store = Store.open(f"sqlite:///{place / 'store.db'}")
    return store, Registry(store, place / "policies")

def artifact(value):
    return PolicyArtifact("x", {}, {"w": np.full(3, float(value))})

def in_child(work):
    child = os.fork()
    if child == 0:
        code = 70
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def register(step):
    """Registers and dies before the step-th line of the code of the registry, or of the writing of its files."""
    seen = 0
    def trace(frame, event, argument):
        nonlocal seen
        if not any(room in frame.f_code.co_filename for room in ("/learnloop/registry/", "/learnloop/system/")):
            return None
        if event == "line":
            seen += 1
            if seen == step:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace
    threading.settrace(trace)  # the store's writer runs part of it
    store, registry = opened()
    sys.settrace(trace)
    if action == "prune":
        registry.prune("p", 1)
    else:
        registry.register("p", artifact(step), proof, lineage={})
    sys.settrace(None)
    print(json.dumps({"acknowledged": step}), flush=True)
    os._exit(0)

def check():
    store, registry = opened()
    versions = registry.versions("p")
    for version in versions:
        registry.load(version)
        assert registry.certificates(version), version
    numbers = [version.version for version in versions]
    assert len(set(numbers)) == len(numbers), numbers
    if action == "register":
        assert numbers == list(range(1, len(numbers) + 1)), numbers
    assert registry.resolve("p@latest") == versions[-1]

def fill():
    store, registry = opened()
    versions = registry.versions("p")
    last = versions[-1].version if versions else 0
    for value in range(last + 1, last + 5 - len(versions)):
        registry.register("p", artifact(-10.0 * value), proof, lineage={})

def finish():
    store, registry = opened()
    registry.register("p", artifact(-1), proof, lineage={})
    if action == "prune":
        registry.prune("p", 1)
    for entry in (place / "policies").iterdir():
        assert not entry.name.endswith(".part"), entry
    store.close()

kills = 0
assert in_child(fill) == 0
for step in range(int(sys.argv[3]), 2000, int(sys.argv[4])):
    if action == "prune":
        assert in_child(fill) == 0
    code = in_child(lambda: register(step))
    assert code in (0, -9), code
    assert in_child(check) == 0, f"after a kill at line {step}"
    if code == 0:
        break
    kills += 1
assert in_child(finish) == 0
print(json.dumps({"kills": kills}))
'''


@pytest.mark.slow
@pytest.mark.parametrize(("action", "stride", "least"), [("register", 4, 45), ("prune", 6, 10)])
def test_a_kill_at_any_line_leaves_whole_versions(tmp_path: Path, action: str, stride: int, least: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(tmp_path), action, "1", str(stride)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1])["kills"] >= least
