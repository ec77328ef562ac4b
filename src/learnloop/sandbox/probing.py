"""Tries out, once a process, what a sandbox on this machine keeps code from. Versions and settings prove nothing."""

from __future__ import annotations

import functools
import json
import os
import tempfile
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from learnloop.core.errors import SandboxError
from learnloop.sandbox.cgroups import groups_of
from learnloop.sandbox.launching import launch
from learnloop.sandbox.layout import ENVIRONMENT
from learnloop.sandbox.records import MIB, Command, Limits, Protection, SandboxReport

_LIMITS = Limits(wall_seconds=30.0, cpu_seconds=7.0, memory_bytes=256 * MIB, num_processes=12, output_bytes=65536)
_lock = threading.Lock()
Told = Mapping[str, Any]
"""What the code that tried says."""

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
    failure, held = None, dict.fromkeys(TRIALS, False)
    try:
        held = judge_trial(try_out())
    except SandboxError as error:
        failure = str(error)
    advice = groups_of(os.getpid()).trees.reason
    protections = []
    for name, trial in TRIALS.items():
        reason = failure or (advice if name.endswith("group") else None) or "it was tried out, and code got through"
        why = None if held[name] else reason
        protections.append(Protection(name=name, is_mandatory=trial.is_mandatory, is_active=held[name], reason=why))
    return SandboxReport(protections=protections)


def judge_trial(told: Told) -> dict[str, bool]:
    """Returns by its name whether each protection held."""
    return {name: bool(trial.held(told)) for name, trial in TRIALS.items()}


def try_out() -> Told:
    """Runs code that tries, and returns what it says."""
    limits = msgspec.structs.replace(_LIMITS, disk_bytes=4 * MIB)
    theirs = os.readlink("/proc/self/ns/net")
    with tempfile.NamedTemporaryFile(prefix="learnloop-probe-") as secret:
        os.chmod(secret.name, 0o644)
        outcome = launch(Command(argv=["python", "-I", "-S", "-c", TRIAL, secret.name, theirs]), limits)
    if not outcome.is_success:
        said = (outcome.stderr or outcome.stdout)[-500:].decode(errors="replace")
        raise SandboxError(f"a trial in the sandbox ended by {outcome.ended_by} with {outcome.exit_code}: {said}")
    flood = Command(argv=["python", "-I", "-S", "-c", "import os\nwhile True: os.write(1, bytes(65536))"])
    cut = launch(flood, limits)
    is_cut = cut.is_output_cut and len(cut.stdout) == limits.output_bytes
    return {**json.loads(outcome.stdout), "cut": is_cut, "trees": sorted(groups_of(os.getpid()).trees.places)}


class Trial(NamedTuple):
    """How it is judged whether a protection held."""

    held: Callable[[Told], bool]
    """Says so by what the code told that tried."""
    is_mandatory: bool = True


def _has_no_privileges(told: Told) -> bool:
    status = told["status"]
    is_filtered = status["NoNewPrivs"] == "1" and status["Seccomp"] == "2"
    return is_filtered and not status["CapEff"].strip("0") and bool(status["Uid"].split()[0] != "0")


def _has_no_secrets(told: Told) -> bool:
    known = {**ENVIRONMENT, "PWD": ENVIRONMENT["HOME"]}
    return all(known.get(name) == value for name, value in told["env"].items())


TRIALS: Mapping[str, Trial] = {
    "network": Trial(lambda told: told["sockets"] and not told["namespace"] and set(told["interfaces"]) <= {"lo"}),
    "host files": Trial(lambda told: not told["found"] and not told["written"]),
    "environment secrets": Trial(_has_no_secrets),
    "other processes": Trial(lambda told: len(told["processes"]) <= 4),
    "privileges": Trial(_has_no_privileges),
    "process group kill": Trial(lambda told: told["processes"][0] == 1),  # the first in a space of its own ends all
    "memory of a process": Trial(lambda told: told["memory"] and told["as"] == _LIMITS.memory_bytes),
    "cpu time of a process": Trial(lambda told: told["cpu"] == _LIMITS.cpu_seconds),
    "output cap": Trial(lambda told: told["cut"]),
    "number of processes": Trial(lambda told: told["forked"] < _LIMITS.num_processes + 2, False),
    "disk": Trial(lambda told: told["filled"] <= 4 * MIB, False),
    "memory of the group": Trial(lambda told: "memory" in told["trees"], False),
    "cpu time of the group": Trial(lambda told: "cpuacct" in told["trees"], False),
    "processes of the group": Trial(lambda told: "pids" in told["trees"], False),
}
"""The protections by name."""
