"""A short program of a user's that the broker wants the answer of: kept from all GPUs, bounded, and ended whole.

It is the user's own as much as a job is: what podman runs is named in its user's files, and who is told is a command of
theirs. But it runs beside the broker, outside of every attempt. So where attempts get a cgroup it gets one too, with
the rules that withhold every device node, a bound on processes and memory, and a kill for all that is in it at its end;
where Landlock is the layer, it gives the nodes up by that, unless it must mount. Without root there is nothing of that:
then it is a program of who runs the broker. Standard library only: the supervisors use it.

Only root can enter a cgroup and then become the user, and an environment of the user's must not meet an interpreter of
root's: so between us and the program stands this module's `main`, which gets the environment in a file.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import threading
import time

from ... import hearing
from . import cgroup, isolation, procs

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping, Sequence
    from typing import Any, NoReturn

#: What the program itself would not say: it could not be begun.
NOT_BEGUN = 125
_MOST_PROCESSES = 256
_MOST_MEMORY_BYTES = 1 << 30
#: In the names of the cgroups, after the broker's own and before a number.
MARK = "-errand."

_living: set[int] = set()
_lock = threading.Lock()
_serial = 0


def _number() -> str:
    """What no other errand on this machine is called."""
    global _serial  # noqa: PLW0603 - a counter
    with _lock:
        _serial += 1
        return f"{os.getpid()}-{_serial}"


def run(
    argv: Sequence[str],
    environ: Mapping[str, str],
    seconds: float,
    *,
    user: tuple[int, int, Sequence[int]] | None = None,
    text: str = "",
    fence: Mapping[str, Any] | None = None,
    is_heard: bool = True,
) -> tuple[int | None, str, str]:
    """Run it as this user; its exit code, output and errors. None as code: it did not end in time. Raises nothing.

    `fence`: how its cgroups begin and what of isolation it is to have, as in the spec of an attempt.
    """
    own = _number()
    cgroups = cgroup.make([f"{begin}{own}" for begin in (fence or {}).get("cgroups", ())])
    task: dict[str, Any] = {
        "argv": list(argv), "environment": dict(environ), "user": user, "cgroups": cgroups,
        "isolation": dict((fence or {}).get("isolation") or {}) or None,
    }  # fmt: skip
    try:
        return _run(task, seconds, text, is_heard=is_heard)
    except (OSError, ValueError, KeyError) as error:
        return NOT_BEGUN, "", str(error)
    finally:
        cgroup.kill(cgroups)
        cgroup.remove(cgroups, patience_seconds=2.0)


def end_all() -> None:
    """End whatever this process still waits for: it is about to leave."""
    with _lock:
        for pid in _living:
            _kill(pid)


def _run(task: dict[str, Any], seconds: float, text: str, *, is_heard: bool) -> tuple[int | None, str, str]:
    deadline = time.monotonic() + seconds
    with _lock:  # so that none begins unseen while all are ended
        process = _begin(task, is_heard=is_heard)
        _living.add(process.pid)
    code: int | None = None
    with process:
        try:
            pipes = (process.stdin, process.stdout, process.stderr)
            output, errors, why = hearing.hear_out(pipes, text.encode(), deadline)
            has_ended = not why and _has_ended(process.pid, deadline)
        finally:
            with _lock:
                _living.discard(process.pid)
            # Also where it has ended, as long as its number is nobody else's: what it left behind is not to stay.
            _kill(process.pid)
            cgroup.kill(task["cgroups"])
        if has_ended:
            code = process.wait()
    if why and time.monotonic() < deadline:
        code, errors = -signal.SIGKILL, errors + f"\nit {why} and was ended".encode()
    return code, output.decode("utf-8", "replace"), errors.decode("utf-8", "replace")


def _has_ended(pid: int, deadline: float) -> bool:
    """Wait for the end of a child without taking its number from it."""
    end = os.pidfd_open(pid)
    try:
        return bool(select.select([end], [], [], max(0.0, deadline - time.monotonic()))[0])
    finally:
        os.close(end)


def _begin(task: dict[str, Any], *, is_heard: bool) -> subprocess.Popen[bytes]:
    import subprocess  # noqa: PLC0415 - two megabytes, for which few supervisors have a use

    given: dict[str, Any] = {
        "stdin": subprocess.PIPE, "stdout": subprocess.PIPE if is_heard else subprocess.DEVNULL,
        "stderr": subprocess.PIPE, "start_new_session": True, "cwd": "/",
    }  # fmt: skip
    if not task["cgroups"] and not task["isolation"]:
        if task["user"] is not None:
            uid, gid, groups = task["user"]
            given |= {"user": uid, "group": gid, "extra_groups": list(groups)}
        return subprocess.Popen(task["argv"], env=task["environment"], **given)
    file = os.memfd_create("jupyter-gpu", os.MFD_CLOEXEC)
    try:
        os.write(file, json.dumps(task).encode())
        os.lseek(file, 0, os.SEEK_SET)
        root = os.path.realpath(f"{__file__}/../../../..")
        code = "import sys; sys.path.append(sys.argv[1]); from jupyter_gpu.broker.engines.errand import main; main()"
        words = [sys.executable, "-I", "-S", "-X", "utf8", "-c", code, root, str(file)]
        return subprocess.Popen(words, env={"PATH": os.defpath}, pass_fds=(file,), **given)
    finally:
        os.close(file)


def _kill(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)


# -- between us and the program


def main() -> NoReturn:
    """Enter the cgroups, give up the nodes and all rights, and be the program."""
    file = int(sys.argv[-1])
    task = json.loads(procs.slurp(f"/proc/self/fd/{file}"))
    os.close(file)
    try:
        _shut_in(task)
        if task["user"] is not None:
            uid, gid, groups = task["user"]
            os.setgroups(groups)
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
    except OSError as error:
        _give_up(f"it could not be kept from the GPUs, so it was not begun: {error.strerror or error}")
    for name in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(name, signal.SIG_DFL)
    try:
        os.execvpe(task["argv"][0], task["argv"], task["environment"])
    except (OSError, ValueError) as error:
        _give_up(f"{task['argv'][0]}: {getattr(error, 'strerror', None) or error}")


def _shut_in(task: dict[str, Any]) -> None:
    for folder in task["cgroups"]:
        cgroup.bound(folder, _MOST_PROCESSES, _MOST_MEMORY_BYTES)
    isolation.prepare(task)
    cgroup.enter(task["cgroups"])
    isolation.give_up(task)
    fence = task["isolation"]
    if not fence:
        return
    if "why" in fence:
        raise OSError(fence["why"])
    if fence["by"] != isolation.LANDLOCK and os.getpid() not in cgroup.members(task["cgroups"]):
        raise OSError("its cgroup could not be entered")


def _give_up(why: str) -> NoReturn:
    sys.stderr.write(why + "\n")
    sys.stderr.flush()
    os._exit(NOT_BEGUN)
