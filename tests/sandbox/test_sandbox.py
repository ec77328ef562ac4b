"""What a run is given and what comes back, bad input, many at once, and refusal where nothing can be protected."""

from __future__ import annotations

import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from learnloop.core.errors import SandboxError, UsageError
from learnloop.sandbox import Command, Ending, Limits, Sandbox, probing, running
from tests.sandbox.running import python, run, said, traces
from tests.waiting import PATIENCE_SECONDS, eventually


def test_what_a_run_says(sandbox: Sandbox) -> None:
    code = "import os, sys; print(sys.stdin.read()[::-1]); print(os.getcwd(), file=sys.stderr); sys.exit(7)"
    outcome = run(sandbox, code, stdin=b"abc" * 100_000)
    assert (outcome.exit_code, outcome.signal, outcome.ended_by) == (7, None, Ending.EXITED)
    assert outcome.stdout == b"cba" * 100_000 + b"\n"
    assert outcome.stderr == b"/box/work\n"
    assert not outcome.is_success
    assert not outcome.is_output_cut
    assert 0.005 < outcome.wall_seconds < 10
    assert outcome.cpu_seconds is not None
    assert 0.005 < outcome.cpu_seconds < 10


def test_files_go_in_and_come_back(sandbox: Sandbox) -> None:
    files = {"a": b"\0\xff" * 5000, "deep/er/b": b"", "deep/c.txt": "ü".encode(), "name with 'quotes'": b"1"}
    code = "import os\nfor name in ('a', 'deep/c.txt'): open(name, 'ab').write(b'+')\nos.unlink(\"name with 'quotes'\")"
    outcome = run(sandbox, code, files=files, returns=["*"])
    assert outcome.files == {"a": b"\0\xff" * 5000 + b"+", "deep/er/b": b"", "deep/c.txt": "ü".encode() + b"+"}
    assert outcome.left_out == {}
    for returns, names in ((["deep/*.txt"], {"deep/c.txt"}), (["a", "none"], {"a"}), (["?"], {"a"}), ([], set())):
        found = run(sandbox, "pass", files=files, returns=returns)
        assert found.files == {name: files[name] for name in names}


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGTERM, signal.SIGKILL, signal.SIGABRT])
def test_signals(sandbox: Sandbox, number: int) -> None:
    outcome = run(sandbox, f"import os; os.kill(os.getpid(), {number})")
    assert (outcome.exit_code, outcome.signal, outcome.ended_by) == (None, number, Ending.SIGNALLED)
    assert outcome.stderr == b"", "nothing but what the command says"


def test_commands_of_the_system(sandbox: Sandbox) -> None:
    assert sandbox.run(Command(argv=["sh", "-c", "printf '3\n1\n2\n' | sort | head -1"])).stdout == b"1\n"
    assert sandbox.run(Command(argv=["no-such-program"])).exit_code == 127
    assert said(sandbox, "import sys; print(sys.version_info[:2])") == str(tuple(__import__("sys").version_info[:2]))
    assert sandbox.run(Command(argv=[sandbox.python, "-c", "print(1)"])).stdout == b"1\n"


def test_stdin_that_nobody_reads(sandbox: Sandbox) -> None:
    assert run(sandbox, "print('done')", stdin=b"x" * 5_000_000).stdout == b"done\n"


def test_a_pair_talks(sandbox: Sandbox) -> None:
    first = "import os\nos.write(4, b'ping')\nprint(os.read(3, 99).decode())"
    second = "import os, time\nos.write(4, os.read(3, 99) + b'pong')\nprint('said', flush=True)\ntime.sleep(600)"
    one, two = sandbox.run_pair(python(first), python(second))
    assert (one.stdout, one.ended_by) == (b"pingpong\n", Ending.EXITED)
    assert two.ended_by is Ending.PARTNER
    one, two = sandbox.run_pair(python("import os, sys; sys.exit(os.read(3, 9) != b'')"), python("raise SystemExit(5)"))
    assert (one.exit_code, two.exit_code, two.ended_by) == (0, 5, Ending.EXITED), "the end of the other is heard"


def test_a_hundred_at_once_see_nothing_of_each_other(sandbox: Sandbox) -> None:
    code = """
        import os, sys, time
        secret = sys.stdin.read()
        for place in ('secret', '/tmp/secret'):
            assert not os.path.exists(place)
            open(place, 'w').write(secret)
        time.sleep(0.3)
        print(open('secret').read(), open('/tmp/secret').read(), len(os.listdir('/proc/self/fd')),
              sum(name.isdigit() for name in os.listdir('/proc')))
        """
    keys = [secrets.token_hex(8) for _ in range(100)]
    limits = Limits(wall_seconds=250.0)
    with ThreadPoolExecutor(100) as pool:
        outcomes = list(
            pool.map(lambda key: run(sandbox, code, stdin=key.encode(), limits=limits, returns=["secret"]), keys)
        )
    assert [each.stdout.decode().split() for each in outcomes] == [[key, key, "4", "2"] for key in keys]
    assert [each.files for each in outcomes] == [{"secret": key.encode()} for key in keys]


def test_a_fork_can_run_too(sandbox: Sandbox) -> None:
    """A process that was forked has groups and a caretaker of its own."""
    child = os.fork()
    if not child:
        code = 1
        try:
            code = 0 if run(sandbox, "print(1)").stdout == b"1\n" else 1
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_an_interpreter_in_a_home_folder_is_no_breach(sandbox: Sandbox) -> None:
    """A folder that holds nothing but the way to the interpreter shows nothing of this machine."""
    start, end = probing.TRIAL.index("ways ="), probing.TRIAL.index("places =")
    code = (
        "import os, sys\nos.makedirs('home/me/bin')\nsys.executable = os.path.abspath('home/me/bin/python')\n"
        + probing.TRIAL[start:end]
        + "print(is_way(os.path.abspath('home')), is_way('/usr'), end=' ')\n"
        + "os.mkdir('home/you')\nprint(is_way(os.path.abspath('home')))"
    )
    assert said(sandbox, code) == "True False False"


def test_a_fork_that_lives_on_holds_nothing_up(sandbox: Sandbox) -> None:
    """The end of a program does not wait for a fork of it that knows of the sandbox."""
    code = (
        "import os, sys, time\nfrom learnloop.sandbox import Command, Sandbox\n"
        "Sandbox().run(Command(argv=['true']))\nchild = os.fork()\n"
        "if not child:\n    os.close(1)\n    time.sleep(600)\n    os._exit(0)\nprint(child, flush=True)"
    )
    ran = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, timeout=PATIENCE_SECONDS, check=True)
    os.kill(int(ran.stdout), signal.SIGKILL)  # it lives still


def _open_files() -> list[str]:
    """Returns what this process has open, for the message."""
    return [
        os.readlink(path)
        for path in (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
        if os.path.lexists(path)
    ]


def test_interruptions_at_any_moment_leave_nothing(sandbox: Sandbox) -> None:
    """What is left would be found by the check after each test; descriptors are counted here."""
    chance = random.Random(6)
    before = len(os.listdir("/proc/self/fd"))
    num_interrupted = 0
    ignored = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background ignores it
    earlier = signal.signal(signal.SIGALRM, lambda *heard: signal.raise_signal(signal.SIGINT))
    try:
        for number in range(60):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.001 + chance.random() * 0.04)
                if number % 4:
                    sandbox.run(Command(argv=["sleep", "0.03"], files={"a": b"1"}, returns=["*"]))
                else:
                    sandbox.run_pair(Command(argv=["sleep", "0.03"]), Command(argv=["sleep", "9"]))
                time.sleep(0.1)
            except KeyboardInterrupt:
                num_interrupted += 1
            # Waited for: something else of this process may just have a file open. What is leaked stays.
            assert eventually(lambda: len(os.listdir("/proc/self/fd")) == before), _open_files()
            assert traces() == []
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, earlier)
        signal.signal(signal.SIGINT, ignored)
    assert num_interrupted == 60


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"argv": []}, r"argv of a sandboxed command is \[\]"),
        ({"argv": ["a\0b"]}, "without NUL"),
        ({"files": {"/etc/x": b""}}, "a file of a command is called '/etc/x'; a relative path"),
        ({"files": {"a/../b": b""}}, "'a/../b'"),
        ({"files": {"a//b": b""}}, "'a//b'"),
        ({"files": {"": b""}}, "is called ''"),
        ({"files": {"x" * 2000: b""}}, "a relative path"),
        ({"files": {"a": b"", "a/b": b""}}, "the file 'a' of a command is a folder for its file 'a/b'"),
        ({"files": {"a": bytes(65 * 2**20)}}, "67,108,864 .disk_bytes. are the most"),
        ({"files": {f"f{number}": b"" for number in range(201)}}, "a command brings 201 files"),
        ({"returns": ["../x"]}, "a returned file of a command is called '../x'"),
        ({"env": {"A=B": "c"}}, "the variable 'A=B'"),
        ({"env": {"A": "c\0"}}, "no NUL"),
        ({"argv": ["echo", "\udcff"]}, "in UTF-8"),
        ({"env": {"A": "\ud800"}}, "the variable 'A'"),
        ({"env": {"LD_PRELOAD": "/box/work/x.so"}}, "tell the loader"),
        ({"files": {"\ud800": b""}}, "in UTF-8"),
        ({"files": {"x" * 256: b""}}, "255 bytes a part"),
        ({"returns": ["\udcff"]}, "in UTF-8"),
        ({"argv": ["true", "x" * 2**18]}, "too long"),
    ],
)
def test_bad_commands(sandbox: Sandbox, given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        sandbox.run(Command(**{"argv": ["true"], **given}))


def test_a_program_that_is_called_like_an_option(sandbox: Sandbox) -> None:
    """It is no option of what starts it."""
    for argv in (["--reuid", "0", "id"], ["-c", "id"]):
        outcome = sandbox.run(Command(argv=argv))
        assert (outcome.exit_code, outcome.stdout) == (127, b"")


@pytest.mark.parametrize(
    "given",
    [{"wall_seconds": 0}, {"wall_seconds": float("nan")}, {"cpu_seconds": -1}, {"memory_bytes": 1},
     {"num_processes": 0}, {"num_processes": 1.5}, {"output_bytes": -1},
     {"disk_bytes": 10}, {"num_open_files": 3}, {"memory_bytes": True}],
)  # fmt: skip
def test_bad_limits(sandbox: Sandbox, given: dict[str, Any]) -> None:
    (name,) = given
    with pytest.raises(UsageError, match=f"the limit {name} of a sandbox is"):
        Sandbox(Limits(**given))
    with pytest.raises(UsageError, match=f"the limit {name} of a sandbox is"):
        sandbox.run(Command(argv=["true"]), Limits(**given))


def test_without_bubblewrap_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """F3.7: nothing runs unsandboxed; the error says what to install."""
    which = shutil.which
    monkeypatch.setattr(running.shutil, "which", lambda name: None if name == "bwrap" else which(name))
    probing.probe_once.cache_clear()
    try:
        report = Sandbox().report()
        assert [each.name for each in report.missing] == [
            name for name, trial in probing.TRIALS.items() if trial.is_mandatory
        ]
        with pytest.raises(SandboxError, match="apt install bubblewrap") as raised:
            Sandbox().run(Command(argv=["true"]))
        assert str(raised.value).count("apt install") == 1
    finally:
        probing.probe_once.cache_clear()


def test_a_sandbox_that_cannot_be_made_says_why(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox.report()  # which tries it out while it still can be made
    made = running.arguments
    monkeypatch.setattr(running, "arguments", lambda **known: [*made(**known), "--ro-bind", "/nowhere", "/nowhere"])
    with pytest.raises(
        SandboxError, match="cannot be made, so nothing was run: bwrap: Can't find source path /nowhere"
    ):
        sandbox.run(Command(argv=["true"]))


def test_each_protection_that_fails_is_found() -> None:
    """A trial in which code got through makes its protection inactive, and no other."""
    told = dict(probing.try_out())
    assert all(probing.judge_trial(told).values()) or os.geteuid() != 0
    status = told["status"]
    failures = {
        "network": {"sockets": False},
        "host files": {"found": ["/etc/shadow"]},
        "environment secrets": {"env": {**told["env"], "KEY": "x"}},
        "other processes": {"processes": list(range(1, 50))},
        "privileges": {"status": {**status, "CapEff": "0000000000000001"}},
        "process group kill": {"processes": [7]},
        "memory of a process": {"memory": False},
        "cpu time of a process": {"cpu": -1},
        "output cap": {"cut": False},
        "number of processes": {"forked": 40},
        "disk": {"filled": 2**23},
    }
    for name, change in failures.items():
        held, after = probing.judge_trial(told), probing.judge_trial({**told, **change})
        assert {each for each in held if held[each] and not after[each]} == {name}


def test_threads_probe_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(probing, "try_out", lambda: asked.append(1) or (_ for _ in ()).throw(SandboxError("no")))
    probing.probe_once.cache_clear()
    try:
        threads = [threading.Thread(target=Sandbox().report) for _ in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert asked == [1]
    finally:
        probing.probe_once.cache_clear()
