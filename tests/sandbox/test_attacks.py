"""Attacks on the sandbox: at least one for each line of what ``Sandbox`` says that it covers. F3.7, S13.

Where an attack is known to work outside, the test shows that first: a check that could not see the attack succeed
would prove nothing.
"""

from __future__ import annotations

import os
import platform
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from learnloop.sandbox import Command, Ending, Limits, Sandbox
from tests.sandbox.running import groups, python, run, said, traces
from tests.waiting import PATIENCE_SECONDS, eventually

MIB = 2**20
SECRET = "canary-4a1f77c0"


# The network -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "kind"),
    [("AF_INET", 1), ("AF_INET", 2), ("AF_INET6", 1), ("AF_NETLINK", 3), ("AF_PACKET", 3), ("AF_VSOCK", 1)],
)
def test_no_socket_of_the_network(sandbox: Sandbox, family: str, kind: int) -> None:
    code = f"""
        import socket
        try:
            socket.socket(socket.{family}, {kind})
        except OSError as error:
            print(error.errno)
        """
    assert said(sandbox, code) == "1"


def test_no_name_is_looked_up(sandbox: Sandbox) -> None:
    assert run(sandbox, "import socket; print(socket.getaddrinfo('example.com', 80))").exit_code == 1


def test_no_socket_of_others(sandbox: Sandbox, tmp_path: Path) -> None:
    """Neither one with a path nor an abstract one, though both answer outside."""
    code = """
        import socket, sys
        for address in (sys.argv[1], chr(0) + sys.argv[2]):
            try:
                socket.socket(socket.AF_UNIX).connect(address)
                print('open')
            except OSError:
                print('closed')
        """
    path, name = str(tmp_path / "s"), f"learnloop-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as by_path, socket.socket(socket.AF_UNIX) as abstract:
        by_path.bind(path)
        abstract.bind("\0" + name)
        by_path.listen()
        abstract.listen()
        outside = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code), path, name], capture_output=True, text=True, check=True
        )
        assert outside.stdout.split() == ["open", "open"]
        assert said(sandbox, code, path, name).split() == ["closed", "closed"]


# Files -------------------------------------------------------------------------------------------------------------


def test_no_files_of_the_host(sandbox: Sandbox, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o644)
    paths = [str(secret), __file__, os.path.dirname(__file__), os.path.expanduser("~/.ssh")]
    paths += ["/etc/shadow", "/etc/passwd", "/etc/hostname", "/sys", "/var", "/run", "/opt", "/home", "/srv", "/mnt"]
    paths += ["/proc/1/root/etc/shadow", "/proc/self/cwd/../../../etc/shadow"]
    ways = [os.path.realpath(path) for path in (sys.base_prefix, getattr(sys, "_base_executable", sys.executable))]
    paths = [path for path in paths if not any(way.startswith(f"{path}/") for way in ways)]  # to the interpreter
    code = "import os, sys; print([path for path in sys.argv[1:] if os.path.exists(path)])"
    assert said(sandbox, code, *paths) == "[]"


def test_what_there_is(sandbox: Sandbox) -> None:
    """Each file that can be read lies under /usr, /lib... or belongs to the interpreter; nothing installed is there."""
    code = """
        import os, sys
        print(sorted(set(os.listdir('/')) - {'usr', 'bin', 'sbin', 'lib', 'lib32', 'lib64', 'libx32'}))
        library = os.path.dirname(os.__file__)
        packages = [os.path.join(library, name) for name in os.listdir(library) if name.endswith('-packages')]
        print(os.listdir('/usr/local'), [os.listdir(each) for each in packages if os.listdir(each)])
        """
    top, installed = said(sandbox, code).splitlines()
    prefix_top = Path(sys.base_prefix).parts[1]
    assert set(eval(top)) <= {"box", "dev", "etc", "proc", "sandbox", "tmp", prefix_top}  # noqa: S307 - our own list
    assert installed.endswith(" []")
    assert run(sandbox, "import numpy").exit_code == 1


def test_nothing_can_be_written_but_the_box(sandbox: Sandbox) -> None:
    code = """
        import os, sys
        library = os.path.dirname(os.__file__)
        places = ['/', '/usr', '/usr/bin', '/usr/local', '/etc', '/dev', '/sandbox', '/sandbox/bin', '/proc', '/root']
        places += ['/proc/sys/kernel', library, library + '/site-packages']
        done = []
        for place in places:
            acts = lambda: open(place + '/x', 'w'), lambda: os.mkdir(place + '/y'), lambda: os.chmod(place, 0o777)
            for act in acts:
                try:
                    act()
                    done.append(place)
                except OSError:
                    pass
        for place in ('/sandbox/bin/python', os.path.realpath(sys.executable), '/bin/sh', os.__file__):
            for act in (lambda: open(place, 'ab'), lambda: os.unlink(place), lambda: os.utime(place)):
                try:
                    act()
                    done.append(place)
                except OSError:
                    pass
        for place in ('.', '/tmp', '/dev/shm'):
            open(place + '/fine', 'w').close()
        print(done)
        """
    assert said(sandbox, code) == "[]"


def test_each_run_has_a_new_folder(sandbox: Sandbox) -> None:
    said(sandbox, "open('left', 'w').write('x'); open('/tmp/left', 'w').write('x')")
    assert said(sandbox, "import os; print(os.listdir('.'), os.listdir('/tmp'))") == "[] []"


def test_device_nodes(sandbox: Sandbox) -> None:
    code = """
        import os, stat
        try:
            os.mknod('disk', stat.S_IFBLK | 0o666, os.makedev(8, 0))
        except PermissionError:
            print('refused', sorted(os.listdir('/dev')))
        """
    assert (
        said(sandbox, code)
        == "refused ['fd', 'full', 'null', 'random', 'shm', 'stderr', 'stdin', 'stdout', 'urandom', 'zero']"
    )


# Secrets and other processes ---------------------------------------------------------------------------------------


def test_no_secret_of_the_environment(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", SECRET)
    code = """
        import glob, os
        for path in glob.glob('/proc/[0-9]*/environ') + glob.glob('/proc/[0-9]*/cmdline'):
            try:
                print(open(path).read())
            except PermissionError:
                pass
        print(dict(os.environ))
        """
    found = said(sandbox, code, env={"MINE": "yes"})
    assert SECRET not in found
    assert "API_KEY" not in found
    mine = {
        "HOME": "/box/work",
        "LANG": "C.UTF-8",
        "PATH": "/sandbox/bin:/usr/bin:/bin",
        "MINE": "yes",
        "PWD": "/box/work",
    }
    assert eval(found.splitlines()[-1]) == mine  # noqa: S307 - our own dict


def test_the_arguments_of_bubblewrap_are_not_there(sandbox: Sandbox) -> None:
    """They would tell where files of the host lie, and what a command's variables are."""
    code = "import glob\nfor path in glob.glob('/proc/[0-9]*/cmdline'): print(open(path).read())"
    found = said(sandbox, code, env={"PASSWORD": SECRET})
    assert "bwrap" not in found
    assert "--ro-bind" not in found
    assert SECRET not in found


def test_other_processes_are_neither_seen_nor_signalled(sandbox: Sandbox) -> None:
    code = """
        import os, sys
        print(sorted(int(name) for name in os.listdir('/proc') if name.isdigit()))
        for number in (1, *map(int, sys.argv[1:])):
            try:
                os.kill(number, 9)
            except OSError:
                pass
        """
    other = subprocess.Popen(["sleep", "60"])
    try:
        numbers = eval(said(sandbox, code, str(other.pid), str(os.getppid())))  # noqa: S307 - our own list
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
    assert numbers[0] == 1
    assert len(numbers) <= 3, "the shell that is process 1, and the command"


def test_process_one_is_out_of_reach(sandbox: Sandbox) -> None:
    """Where we are root it is another user's: neither its memory nor its variables can be read or written."""
    if os.geteuid() != 0:
        pytest.skip("without root there is one user inside; process 1 then tells nothing but the exit code")
    code = """
        for name, mode in (('mem', 'rb'), ('mem', 'r+b'), ('environ', 'rb')):
            try:
                open('/proc/1/' + name, mode)
                print('open')
            except PermissionError:
                pass
        """
    assert said(sandbox, code) == ""


SYSTEM_CALLS = {
    "ptrace": ("x86_64", 101, (16, 1, 0, 0)), "process_vm_readv": ("x86_64", 310, (1, 0, 0, 0, 0, 0)),
    "unshare a user namespace": ("x86_64", 272, (0x10000000,)), "setns": ("x86_64", 308, (0, 0)),
    "clone with a namespace": ("x86_64", 56, (0x10000011, 0, 0, 0, 0)), "mount": ("x86_64", 165, (0, 0, 0, 0, 0)),
    "bpf": ("x86_64", 321, (0, 0, 0)), "perf_event_open": ("x86_64", 298, (0, 0, 0, 0, 0)),
    "io_uring_setup": ("x86_64", 425, (8, 0)), "keyctl": ("x86_64", 250, (0, 0, 0, 0, 0)),
    "userfaultfd": ("x86_64", 323, (0,)), "kexec_load": ("x86_64", 246, (0, 0, 0, 0)),
    "init_module": ("x86_64", 175, (0, 0, 0)), "TIOCSTI": ("x86_64", 16, (0, 0x5412, 0)),
    "TIOCSTI with high bits": ("x86_64", 16, (0, 0x1_0000_5412, 0)), "chroot": ("x86_64", 161, (0,)),
}  # fmt: skip


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers are those of x86_64")
def test_system_calls_that_are_refused(sandbox: Sandbox) -> None:
    """Nested namespaces, tracing, io_uring and the rest answer EPERM; what is too new, clone3 and x32 answer ENOSYS."""
    code = """
        import ctypes, json, sys
        libc = ctypes.CDLL(None, use_errno=True)
        answers = {}
        for name, (number, arguments) in json.loads(sys.argv[1]).items():
            ctypes.set_errno(0)
            result = libc.syscall(ctypes.c_long(number), *map(ctypes.c_ulong, arguments))
            answers[name] = ctypes.get_errno() if result == -1 else 'done'
        print(json.dumps(answers))
        """
    import json

    calls = {name: (number, arguments) for name, (_, number, arguments) in SYSTEM_CALLS.items()}
    calls |= {"clone3": (435, (0, 0)), "too new": (467, (0, 0)), "x32": (0x40000000 + 39, ())}
    answers = json.loads(said(sandbox, code, json.dumps(calls)))
    assert {name for name, answer in answers.items() if answer == 1} == set(SYSTEM_CALLS)
    assert {name for name, answer in answers.items() if answer == 38} == {"clone3", "too new", "x32"}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="machine code of x86_64")
def test_calls_of_the_older_architecture_kill(sandbox: Sandbox) -> None:
    """The interrupt 0x80 reaches the 32-bit table, whose numbers mean other calls: getpid there is 20."""
    code = r"""
        import ctypes, mmap
        page = mmap.mmap(-1, 4096, prot=7)
        page.write(b'\xb8\x14\x00\x00\x00\xcd\x80\xc3')
        ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
        """
    assert run(sandbox, code).signal == signal.SIGSYS


def test_privileges(sandbox: Sandbox) -> None:
    """No capability, no way to gain one: a set-uid program stays what its caller is."""
    code = """
        import os
        status = dict(line.rstrip('\\n').split(':\\t', 1) for line in open('/proc/self/status') if ':\\t' in line)
        print(*(status[name].strip('0') for name in ('CapEff', 'CapPrm', 'CapInh', 'NoNewPrivs', 'Seccomp')))
        print(0 in os.getresuid() + os.getresgid(), os.getgroups())
        try:
            os.setuid(0)
        except OSError:
            print('refused')
        print(all(os.statvfs(path).f_flag & os.ST_NOSUID for path in ('/', '/usr', '/box', '/bin/sh')))
        """
    first, second, third, fourth = said(sandbox, code).splitlines()
    assert first.split() == ["1", "2"]
    assert second.startswith("False")
    assert "0" not in second.split("[")[1].strip("]").split(", ")
    assert third == "refused"
    assert fourth == "True", "set-uid programs stay what their caller is"


def test_there_is_no_terminal_to_type_on(sandbox: Sandbox) -> None:
    code = """
        import os
        try:
            os.open('/dev/tty', os.O_RDWR)
        except OSError:
            print('none', os.getsid(0) in (0, 1), os.isatty(0))
        """
    assert said(sandbox, code) == "none True False"


# Limits ------------------------------------------------------------------------------------------------------------


def test_a_fork_bomb_is_limited(sandbox: Sandbox) -> None:
    code = """
        import os, time
        number = 0
        try:
            while number < 500:
                if not os.fork():
                    time.sleep(60)
                number += 1
        except OSError:
            print(number)
        """
    assert 10 <= int(said(sandbox, code, limits=Limits(num_processes=20))) <= 20
    bomb = run(
        sandbox,
        "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass",
        limits=Limits(wall_seconds=1.0, num_processes=20),
    )
    assert bomb.ended_by in (Ending.WALL, Ending.CPU)
    assert bomb.wall_seconds < 50


def test_a_memory_bomb_of_one_process(sandbox: Sandbox) -> None:
    code = "x = bytearray(300 * 2**20)\nprint('got it')"
    outcome = run(sandbox, code, limits=Limits(memory_bytes=256 * MIB))
    assert b"got it" not in outcome.stdout
    assert b"MemoryError" in outcome.stderr
    assert said(sandbox, code, limits=Limits(memory_bytes=512 * MIB)) == "got it"


def test_a_memory_bomb_of_six_processes(sandbox: Sandbox) -> None:
    """Each stays below its own limit: only the group's limit, where there is one, ends them."""
    if not sandbox.report().is_active("memory of the group"):
        pytest.skip("no control groups here: the report says so, and only each process is limited")
    code = """
        import os, time
        for _ in range(5):
            if not os.fork():
                break
        x = bytearray(80 * 2**20)
        time.sleep(3)
        """
    limits = Limits(memory_bytes=128 * MIB, disk_bytes=MIB, wall_seconds=20.0)
    outcome = run(sandbox, code, limits=limits)
    assert outcome.peak_memory_bytes is not None
    assert outcome.peak_memory_bytes <= 129 * MIB
    alone = run(sandbox, "x = bytearray(80 * 2**20)", limits=limits)
    assert alone.is_success
    assert alone.peak_memory_bytes is not None
    assert 80 * MIB <= alone.peak_memory_bytes <= 129 * MIB


def test_the_end_by_memory_is_said(sandbox: Sandbox) -> None:
    if not sandbox.report().is_active("memory of the group"):
        pytest.skip("no control groups here")
    code = "import os, time\nos.fork()\nx = bytes(100 * 2**20).replace(b'0', b'1')\nx = b'x' * len(x)\ntime.sleep(5)"
    outcome = run(sandbox, code, limits=Limits(memory_bytes=128 * MIB, disk_bytes=MIB))
    assert outcome.ended_by in (Ending.MEMORY, Ending.EXITED), "the kernel chooses which of the two it kills"


def test_an_endless_loop_ends(sandbox: Sandbox) -> None:
    outcome = run(sandbox, "while True: pass", limits=Limits(cpu_seconds=1.0, wall_seconds=30.0))
    assert outcome.ended_by is Ending.CPU
    assert outcome.exit_code is None
    assert outcome.cpu_seconds is not None
    assert 0.9 <= outcome.cpu_seconds <= 2.0


def test_many_that_loop_use_no_more_than_one_may(sandbox: Sandbox) -> None:
    if not sandbox.report().is_active("cpu time of the group"):
        pytest.skip("no control groups here")
    code = "import os\nfor _ in range(3): os.fork()\nwhile True: pass"
    outcome = run(sandbox, code, limits=Limits(cpu_seconds=1.0, wall_seconds=30.0))
    assert outcome.ended_by is Ending.CPU
    assert outcome.cpu_seconds is not None
    assert outcome.cpu_seconds <= 1.6


@pytest.mark.parametrize(
    "code",
    [
        "import time; time.sleep(60)",
        "import signal, time\nfor n in {*range(1, 32)} - {9, 19}: signal.signal(n, signal.SIG_IGN)\ntime.sleep(60)",
        "import sys; sys.stdin.read(1); import time; time.sleep(60)",
        "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
        "import os\nos.close(0); os.close(1); os.close(2)\nimport time; time.sleep(60)",
        "import os, time\nos.setsid() if not os.fork() else None\ntime.sleep(60)",
    ],
    ids=["sleeps", "ignores signals", "reads stdin", "stops itself", "closes its descriptors", "new session"],
)
def test_what_does_not_end_is_ended(sandbox: Sandbox, code: str) -> None:
    outcome = run(sandbox, code, limits=Limits(wall_seconds=0.5))
    assert outcome.ended_by is Ending.WALL
    assert (outcome.exit_code, outcome.signal) == (None, signal.SIGKILL)
    assert 0.5 <= outcome.wall_seconds < 50


def test_a_daemon_does_not_outlive_its_parent(sandbox: Sandbox) -> None:
    """It left the session and holds the pipes open; the run ends all the same, and it with it."""
    code = """
        import os, time
        if os.fork():
            os._exit(3)
        os.setsid()
        if os.fork():
            os._exit(0)
        while True:
            time.sleep(0.01)
        """
    assert run(sandbox, code).exit_code == 3  # and its end is not the one of who takes too long
    assert traces() == []


def test_a_flood_of_output_is_cut(sandbox: Sandbox) -> None:
    for number in (1, 2):
        code = f"import os\nwhile True: os.write({number}, b'x' * 65536)"
        before = psutil.Process().memory_info().rss
        outcome = run(sandbox, code, limits=Limits(output_bytes=100_000))
        assert (outcome.ended_by, outcome.is_output_cut) == (Ending.OUTPUT, True)
        assert len(outcome.stdout if number == 1 else outcome.stderr) == 100_000
        assert psutil.Process().memory_info().rss - before < 20 * MIB
    exact = run(sandbox, "print('x' * 9_999)", limits=Limits(output_bytes=10_000))
    assert (exact.is_success, exact.is_output_cut, len(exact.stdout)) == (True, False, 10_000)
    more = run(sandbox, "print('x' * 10_000)", limits=Limits(output_bytes=10_000))
    assert (more.ended_by, more.is_output_cut, len(more.stdout)) == (Ending.OUTPUT, True, 10_000)


def test_the_disk_cannot_be_filled(sandbox: Sandbox) -> None:
    code = """
        import os
        written = 0
        try:
            for number in range(1000):
                with open(f'{("", "/tmp/", "/dev/shm/")[number % 3]}f{number}', 'wb', buffering=0) as file:
                    written += file.write(bytes(2**20))
        except OSError as error:
            print(written, error.errno)
        """
    written, number = map(int, said(sandbox, code, limits=Limits(disk_bytes=8 * MIB)).split())
    assert 6 * MIB <= written <= 8 * MIB
    assert number == 28


def test_one_file_and_a_hole_are_limited_too(sandbox: Sandbox) -> None:
    code = """
        import os
        try:
            os.truncate(os.open('hole', os.O_CREAT | os.O_RDWR), 2**40)
        except OSError as error:
            print(error.errno)
        """
    assert said(sandbox, code) == "27"


def test_a_flood_of_empty_files_ends(sandbox: Sandbox) -> None:
    code = "number = 0\nwhile True:\n  open(f'f{number}', 'w').close(); number += 1"
    outcome = run(sandbox, code, limits=Limits(wall_seconds=2.0, cpu_seconds=1.0), returns=["*"])
    assert not outcome.is_success
    assert len(outcome.files) <= 10_000
    assert "10,000" in outcome.left_out.get("*", "10,000")


# Files that come back ----------------------------------------------------------------------------------------------


def test_only_honest_files_come_back(sandbox: Sandbox, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    code = """
        import os, sys
        os.symlink(sys.argv[1], 'link')
        os.symlink('/etc/passwd', 'passwd')
        os.symlink(os.path.dirname(sys.argv[1]), 'folder')
        os.symlink('/proc/self/environ', 'environ')
        os.mkfifo('fifo')
        open('one', 'w').write('1')
        os.link('one', 'two')
        os.makedirs('deep/er')
        open('deep/er/fine', 'w').write('fine')
        os.mkdir('named')
        import socket
        socket.socket(socket.AF_UNIX).bind('socket')
        """
    names = [
        "link",
        "passwd",
        "folder/secret",
        "environ",
        "fifo",
        "one",
        "deep/er/fine",
        "named",
        "socket",
        "absent",
        "absent/too",
    ]
    for returns in (names, ["*"]):
        outcome = run(sandbox, code, str(secret), returns=returns)
        assert outcome.files == {"deep/er/fine": b"fine"}
        assert "symbolic link" in outcome.left_out["link"]
        assert "symbolic link" in outcome.left_out["passwd"]
        assert "not a regular file" in outcome.left_out["fifo"]
        assert "hard link" in outcome.left_out["one"]
        assert not {"absent", "absent/too"} & outcome.left_out.keys()


def test_huge_files_do_not_come_back(sandbox: Sandbox) -> None:
    code = """
        import os
        for number in range(3):
            os.truncate(os.open(f'hole{number}', os.O_CREAT | os.O_RDWR), 3 * 2**20)
        open('small', 'w').write('x')
        """
    outcome = run(sandbox, code, returns=["hole0", "hole1", "hole2", "small"], limits=Limits(disk_bytes=4 * MIB))
    assert {name: len(content) for name, content in outcome.files.items()} == {"hole0": 3 * MIB, "small": 1}
    assert outcome.left_out["hole1"] == "it has 3,145,728 bytes, and 1,048,576 are left of 4,194,304"


# Our own end -------------------------------------------------------------------------------------------------------

_HOST = """
    import os, sys, threading
    from learnloop.sandbox import Command, Limits, Sandbox
    sandbox = Sandbox(Limits(wall_seconds=600.0))
    sandbox.report()
    code = "import os, time\\nos.fork()\\nos.setsid()\\ntime.sleep(601.25)"
    threading.Thread(target=sandbox.run, args=[Command(argv=["python", "-c", code])]).start()
    sandbox.run(Command(argv=["python", "-c", code]))
    """


def _sleepers() -> list[int]:
    lines = [(each.pid, " ".join(each.info["cmdline"] or [])) for each in psutil.process_iter(["cmdline"])]
    return [number for number, line in lines if "time.sleep(601.25)" in line and "import Command" not in line]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_our_own_end_leaves_nothing(how: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(_HOST)], stderr=subprocess.DEVNULL, start_new_session=True
    ) as host:
        assert eventually(lambda: len(_sleepers()) >= 6), "two sandboxes of two processes, with a shell each"
        if how is signal.SIGINT:
            os.kill(host.pid, how)
            time.sleep(0.3)  # the other thread still runs: the program waits for it until it is killed
        host.kill()
        host.wait(PATIENCE_SECONDS)
    assert eventually(lambda: not _sleepers())
    assert eventually(lambda: not groups(host.pid))


def test_an_interruption_ends_the_run(sandbox: Sandbox) -> None:
    previous = signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        with pytest.raises(KeyboardInterrupt):
            sandbox.run(Command(argv=["sleep", "30"]))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert traces() == []


def test_a_pair_shares_nothing_but_its_pipes(sandbox: Sandbox) -> None:
    code = """
        import os, sys
        open('/tmp/left', 'w').close()
        os.write(4, b'x')
        os.read(3, 1)
        processes = [name for name in os.listdir('/proc') if name.isdigit()]
        print(sorted(map(int, os.listdir('/proc/self/fd')))[:5], os.path.exists('theirs'), len(processes))
        """
    first, second = sandbox.run_pair(python(code, files={"mine": b""}), python(code, files={"theirs": b""}))
    assert first.stdout == b"[0, 1, 2, 3, 4] False 2\n"
    assert second.ended_by in (Ending.EXITED, Ending.PARTNER)
