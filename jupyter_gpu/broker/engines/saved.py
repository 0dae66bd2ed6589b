"""What a job has saved: looked at as its user, and never for longer than a few seconds.

The folder is the user's. It may be slow without end (a file system of the user's own, a marker of countless files), and
the supervisor has a tree to end meanwhile. So whatever needs a look into it is done by a process of its own, which is
the user for good and is killed when its time is over. Mostly there is nothing to look into, and then none is made.
Standard library only: the launcher imports it.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import time

from ...checkpoints import MARKER, load, newest_name, step_in
from . import cgroup, child, procs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, NoReturn

LOOK_SECONDS = 5.0
_ANSWER_BYTES = 4096
#: Less than this is no room for anything.
_FULL_BYTES = 64 * 1024
#: File systems that answer for whom a kernel cannot: a server, or a program of some user.
_ELSEWHERE = (
    b"fuse",
    b"nfs",
    b"cifs",
    b"smb",
    b"9p",
    b"afs",
    b"ceph",
    b"lustre",
    b"gpfs",
    b"beegfs",
    b"autofs",
    b"virtiofs",
)


def look(spec: dict[str, Any], before: str | None, *, ran_seconds: float, ended_at: float) -> dict[str, Any]:
    """Whether it said that it had finished, whether it saved more than it began with, and `why` if that is unknown.

    And whether its disk is full, the steps that it began from and came to, and how long it had worked since that was
    saved: another attempt does so much again. Without a checkpoint of its own that is all of it.
    """
    from_step = None if before is None else step_in(before)
    found = {"finished": False, "progressed": False, "from_step": from_step}
    if not _may_wait_for_others() and _is_empty(spec):
        return found | {"unsaved_seconds": ran_seconds}
    said = _ask_another(spec)
    if said is None:
        return found | {"why": "its checkpoints could not be looked at in time"}
    to_step = None if said["newest"] is None else step_in(said["newest"])
    progressed = to_step is not None and (from_step is None or to_step > from_step)
    return found | {
        "finished": said["finished"],
        "is_full": said["full"],
        "progressed": progressed,
        "to_step": to_step,
        # The marker is the user's: it may name any instant, but not make more of the time than there was.
        "unsaved_seconds": min(ran_seconds, max(0.0, ended_at - said["at"])) if progressed else ran_seconds,
    }


def _may_wait_for_others() -> bool:
    """Whether a file system is mounted that may keep whoever touches it."""
    try:
        mounts = procs.slurp("/proc/self/mountinfo").splitlines()
    except OSError:
        return True
    return any(line.rpartition(b" - ")[2].startswith(_ELSEWHERE) for line in mounts)


def _is_empty(spec: dict[str, Any]) -> bool:
    """Whether nothing was saved; an empty folder that we have made is taken away."""
    with contextlib.suppress(OSError, ValueError), _as_user(spec):
        if spec["own_checkpoint_dir"]:
            return _removed(spec["checkpoint_dir"])
        try:
            with os.scandir(spec["checkpoint_dir"]) as entries:
                return next(entries, None) is None
        except (FileNotFoundError, NotADirectoryError):
            return True
    return False


def _ask_another(spec: dict[str, Any]) -> dict[str, Any] | None:
    """Have a process of its own look; None where it does not answer in time."""
    by = time.monotonic() + LOOK_SECONDS
    me = os.getpid()
    try:
        answer, answer_end = os.pipe2(os.O_CLOEXEC)
    except OSError:
        return None
    try:
        pid = os.fork()
    except OSError:
        os.close(answer)
        os.close(answer_end)
        return None
    if not pid:
        _look_and_tell(spec, me, answer_end)
    os.close(answer_end)
    said = b""
    poll = select.poll()
    poll.register(answer, select.POLLIN)
    while (left := by - time.monotonic()) > 0 and poll.poll(left * 1000):
        piece = os.read(answer, _ANSWER_BYTES)
        said += piece
        if not piece or len(said) > _ANSWER_BYTES:
            break
    os.close(answer)
    _end(pid)
    try:
        told = json.loads(said)
        return {name: told[name] for name in ("finished", "newest", "at", "full")}
    except ValueError:
        return None


def _end(pid: int) -> None:
    """It has answered or its time is over. What hangs in the kernel is reaped later, with the tree."""
    os.kill(pid, signal.SIGKILL)
    by = time.monotonic() + 1.0
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(pid, os.WNOHANG) == (0, 0) and time.monotonic() < by:
            time.sleep(0.0005)


def _look_and_tell(spec: dict[str, Any], parent: int, answer: int) -> NoReturn:
    try:
        child.signals_as_new(spec)
        cgroup.enter(spec["cgroups"])
        child.drop(spec)
        child.die_with(parent)
        home = spec["checkpoint_dir"]
        finished, newest, at, full = False, None, 0.0, False
        with contextlib.suppress(OSError, ValueError):
            if not (spec["own_checkpoint_dir"] and _removed(home)):
                finished = os.path.exists(f"{home}/finished.{spec['attempt']}")  # noqa: PTH110
                newest = newest_name(home)[0]
                disk = os.statvfs(home)
                full = disk.f_bavail * disk.f_frsize < _FULL_BYTES < disk.f_blocks * disk.f_frsize
                at = _saved_at(f"{home}/{newest}") if newest else 0.0
        os.write(answer, json.dumps({"finished": finished, "newest": newest, "at": at, "full": full}).encode())
    finally:
        os._exit(0)  # never back into the supervisor's loop


def _saved_at(checkpoint: str) -> float:
    """When its marker says that it was complete; 0 where it does not say."""
    at = load(f"{checkpoint}/{MARKER}").get("at")
    return at if type(at) in (int, float) and math.isfinite(at) else 0.0


def _removed(home: str) -> bool:
    """Take away an empty folder of checkpoints, and the one around it if it held no other; False where one is used."""
    try:
        os.rmdir(home)  # noqa: PTH106
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    with contextlib.suppress(OSError):
        os.rmdir(os.path.dirname(home))  # noqa: PTH106, PTH120
    return True


@contextlib.contextmanager
def _as_user(spec: dict[str, Any]) -> Iterator[None]:
    """Touch files with the submitting user's rights: a root that reads through a user's links reads too much."""
    if spec["uid"] is None:
        yield
        return
    mine = os.getgroups()
    os.setgroups(spec["groups"])
    os.setegid(spec["gid"])
    os.seteuid(spec["uid"])
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(mine)
