"""Tries out, once a process, what a sandbox on this machine keeps code from. Versions and settings prove nothing."""

from __future__ import annotations

import functools
import json
import os
import tempfile
import threading
from collections.abc import Callable, Mapping
from typing import Any

from learnloop.core.errors import SandboxError
from learnloop.sandbox.cgroups import groups_of
from learnloop.sandbox.launching import launch
from learnloop.sandbox.layout import ENVIRONMENT
from learnloop.sandbox.records import MIB, Command, Limits, Protection, SandboxReport

MANDATORY = (
    "network",
    "host files",
    "environment secrets",
    "other processes",
    "privileges",
    "process group kill",
    "memory of a process",
    "cpu time of a process",
    "output cap",
)
OPTIONAL = ("number of processes", "disk", "memory of the group", "cpu time of the group", "processes of the group")
_LIMITS = Limits(wall_seconds=30.0, cpu_seconds=7.0, memory_bytes=256 * MIB, num_processes=12, output_bytes=65536)
_lock = threading.Lock()

TRIAL = r"""
import errno, json, os, resource, socket, sys, time
told, secret, theirs = {}, sys.argv[1], sys.argv[2]
def refused(*kinds):
    try:
        socket.socket(*kinds).close()
    except OSError as error:
        return error.errno == errno.EPERM
    return False
told["sockets"] = all(map(refused, (2, 10, 16, 17), (1, 2, 3, 3)))
with open("/proc/net/dev") as file:
    told["interfaces"] = [line.split(":")[0].strip() for line in file.readlines()[2:]]
ways = [os.path.realpath(sys.executable), os.path.dirname(os.__file__)]
def is_way(path):  # to the interpreter, which may be someone's own, and to nothing else
    return any(way.startswith(path + "/") for way in ways) and len(os.listdir(path)) == 1
places = (secret, "/etc/shadow", "/home", "/root", "/opt", "/srv", "/var", "/sys")
told["found"] = [path for path in places if os.path.exists(path) and not is_way(path)]
told["written"] = []
for path in ("/x", "/usr/x", "/dev/x", "/etc/x", os.path.dirname(os.__file__) + "/x", "/proc/sys/kernel/hostname"):
    try:
        open(path, "w").close()
        told["written"].append(path)
    except OSError:
        pass
told["env"] = {**os.environ}
try:
    with open("/proc/1/environ") as file:
        told["env"].update(each.partition("=")[::2] for each in file.read().split("\0") if each)
except PermissionError:
    pass
told["processes"] = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
told["namespace"] = os.readlink("/proc/self/ns/net") == theirs
with open("/proc/self/status") as file:
    told["status"] = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
told["as"] = resource.getrlimit(resource.RLIMIT_AS)[1]
told["cpu"] = resource.getrlimit(resource.RLIMIT_CPU)[0]
try:
    bytearray(512 * 2**20)
    told["memory"] = False
except MemoryError:
    told["memory"] = True
filled = 0
try:
    with open("full", "wb", buffering=0) as file:
        while filled < 2**23:
            filled += file.write(bytes(2**16))
except OSError:
    pass
told["filled"] = filled
os.unlink("full")
children = []
try:
    while len(children) < 40:
        child = os.fork()
        if not child:
            time.sleep(600)
        children.append(child)
except OSError:
    pass
told["forked"] = len(children)
print(json.dumps(told), flush=True)
os._exit(0)
"""


def probe() -> SandboxReport:
    """Returns what was found out by the first call in this process."""
    with _lock:
        return probe_once(os.getpid())


@functools.lru_cache(maxsize=1)
def probe_once(process: int) -> SandboxReport:
    """Returns what was found out for a process, whose forks find out for themselves."""
    del process
    try:
        told, reason = try_out()
    except SandboxError as error:
        return _report({}, dict.fromkeys(MANDATORY + OPTIONAL, str(error)))
    return _report(judge_trial(told), reason)


def try_out() -> tuple[Mapping[str, Any], dict[str, str]]:
    """Returns what code says that tries to break out, and for each protection why it may not hold."""
    limits = Limits(**{name: getattr(_LIMITS, name) for name in _LIMITS.__struct_fields__} | {"disk_bytes": 4 * MIB})
    theirs = os.readlink("/proc/self/ns/net")
    with tempfile.NamedTemporaryFile(prefix="learnloop-probe-") as secret:
        os.chmod(secret.name, 0o644)
        outcome = launch(Command(argv=["python", "-I", "-S", "-c", TRIAL, secret.name, theirs]), limits)
    if not outcome.is_success:
        said = (outcome.stderr or outcome.stdout)[-500:].decode(errors="replace")
        raise SandboxError(f"a trial in the sandbox ended by {outcome.ended_by} with {outcome.exit_code}: {said}")
    flood = Command(argv=["python", "-I", "-S", "-c", "import os\nwhile True: os.write(1, bytes(65536))"])
    cut = launch(flood, limits)
    trees = groups_of(os.getpid()).trees
    told = {**json.loads(outcome.stdout), "cut": cut.is_output_cut and len(cut.stdout) == limits.output_bytes}
    told["trees"] = sorted(trees.places)
    advice = trees.reason or "it was tried out, and code got through"
    return told, dict.fromkeys(MANDATORY + OPTIONAL, "it was tried out, and code got through") | {
        name: advice for name in OPTIONAL if name.endswith("group")
    }


def judge_trial(told: Mapping[str, Any]) -> dict[str, bool]:
    """Returns which protections held in a trial, by its outcome."""
    status = told["status"]
    known = {**ENVIRONMENT, "PWD": ENVIRONMENT["HOME"]}
    checks: dict[str, Callable[[], bool]] = {
        "network": lambda: told["sockets"] and not told["namespace"] and set(told["interfaces"]) <= {"lo"},
        "host files": lambda: not told["found"] and not told["written"],
        "environment secrets": lambda: all(known.get(name) == value for name, value in told["env"].items()),
        "other processes": lambda: len(told["processes"]) <= 4,
        "privileges": lambda: (
            status["CapEff"].strip("0") == "" and status["NoNewPrivs"] == "1" and status["Seccomp"] == "2"
            and status["Uid"].split()[0] != "0"
        ),
        "process group kill": lambda: told["processes"][0] == 1,  # the first in a space of its own, whose end ends all
        "memory of a process": lambda: told["memory"] and told["as"] == _LIMITS.memory_bytes,
        "cpu time of a process": lambda: told["cpu"] == _LIMITS.cpu_seconds,
        "output cap": lambda: told["cut"],
        "number of processes": lambda: told["forked"] < _LIMITS.num_processes + 2,
        "disk": lambda: told["filled"] <= 4 * MIB,
        "memory of the group": lambda: "memory" in told["trees"],
        "cpu time of the group": lambda: "cpuacct" in told["trees"],
        "processes of the group": lambda: "pids" in told["trees"],
    }  # fmt: skip
    return {name: bool(check()) for name, check in checks.items()}


def _report(held: Mapping[str, bool], reasons: Mapping[str, str]) -> SandboxReport:
    return SandboxReport(
        protections=[
            Protection(
                name=name,
                is_mandatory=name in MANDATORY,
                is_active=held.get(name, False),
                reason=None if held.get(name, False) else reasons[name],
            )
            for name in MANDATORY + OPTIONAL
        ]
    )
