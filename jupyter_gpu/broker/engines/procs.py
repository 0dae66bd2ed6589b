"""Processes as /proc shows them, told apart for good by pid, start time and boot id.

A pid alone names nobody: numbers are used again, quickly so in containers (jhuckaby/Cronicle#789). So a signal
goes only through a pidfd whose start time was compared after it was opened. Gone is only what the kernel says is
gone: where it cannot be asked (no more files, no memory), OSError is raised and nothing follows. Trees are found by
the parent's pid, the way the kernel keeps them; what has lost its supervisor, by the variables its attempt was started
with. Standard library only: the launcher imports it.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import resource
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


_PIECE = 16 * 1024
_MOST_BYTES = 64 * 2**20
_GONE = (errno.ENOENT, errno.ESRCH)
#: We are short of something, so the answer is not known; anything else is an answer about that one process.
_SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class Proc:
    """One process at one instant. `start_ticks` is in clock ticks from boot; a zombie only waits to be reaped.

    No zombie is one whose main thread has ended and whose others go on, though the kernel shows it as one: it computes,
    keeps its memory and its GPUs, and can be signalled like any other.
    """

    __slots__ = ("name", "parent", "pid", "start_ticks", "zombie")

    def __init__(self, pid: int, parent: int, start_ticks: int, name: str, zombie: bool) -> None:  # noqa: FBT001
        self.pid, self.parent, self.start_ticks, self.name, self.zombie = pid, parent, start_ticks, name, zombie


@functools.cache
def boot_id() -> str:
    """The kernel's name for this boot of the machine."""
    return slurp("/proc/sys/kernel/random/boot_id").decode().strip()


def find(pid: int) -> Proc | None:
    """Look at one process; None where there is none. OSError where that cannot be known."""
    try:
        raw = slurp(f"/proc/{pid}/stat")
    except OSError as error:
        if error.errno in _GONE:
            return None
        raise
    name, _, rest = raw.rpartition(b")")
    fields = rest.split()
    return Proc(
        pid,
        int(fields[1]),
        int(fields[19]),
        name.partition(b"(")[2].decode("utf-8", "replace"),
        fields[0] in b"ZX" and (fields[17] in (b"0", b"1") or not _living_thread(pid)),  # the number of its threads
    )


def _living_thread(pid: int) -> str:
    """A thread of this process that lives; empty where none does. OSError where that cannot be known."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208
    except OSError as error:
        if error.errno in _GONE:
            return ""
        raise
    for thread in threads:
        with _unless_short(), contextlib.suppress(IndexError):
            if slurp(f"/proc/{pid}/task/{thread}/stat").rpartition(b")")[2].split()[0] not in b"ZX":
                return thread
    return ""


def everyone() -> dict[int, Proc]:
    """All processes that live now, and that we may see. OSError where that cannot be known."""
    found = {}
    for pid in _pids():
        with _unless_short():
            proc = find(pid)
            if proc and not proc.zombie:
                found[pid] = proc
    return found


def descendants(root: int, among: dict[int, Proc] | None = None) -> dict[int, Proc]:
    """All live processes below `root`, parents before their children.

    Unless told `among` whom to look, the kernel's own lists of children are read first: they take no time, so
    a process that lives for a moment is seen, but they may skip one while a sibling ends. The look at everyone
    adds what they skipped.
    """
    procs = (_listed(root) | everyone()) if among is None else among
    children: dict[int, list[Proc]] = {}
    for proc in procs.values():
        children.setdefault(proc.parent, []).append(proc)
    found: dict[int, Proc] = {}
    line = [root]
    for pid in line:
        for child in children.get(pid, []):
            if child.pid not in found:
                found[child.pid] = child
                line.append(child.pid)
    return found


def _listed(root: int) -> dict[int, Proc]:
    """Those below `root` by the kernel's lists of children, which not every kernel has."""
    found: dict[int, Proc] = {}
    line = [root]
    for pid in line:
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
                for word in slurp(f"/proc/{pid}/task/{task}/children").split():
                    proc = find(int(word))
                    if proc and not proc.zombie and proc.pid not in found:
                        found[proc.pid] = proc
                        line.append(proc.pid)
    return found


def argv(pid: int) -> list[str]:
    """The command line of a process; empty where it cannot be read."""
    try:
        raw = _of_its_memory(pid, "cmdline")
    except OSError:
        return []
    return [os.fsdecode(part) for part in raw.rstrip(b"\0").split(b"\0")] if raw else []


def environment(pid: int, most_bytes: int = _MOST_BYTES) -> set[bytes]:
    """The variables that a process was started with, as `NAME=value`. OSError where they cannot be read."""
    return set(_of_its_memory(pid, "environ", most_bytes).split(b"\0"))


def _of_its_memory(pid: int, what: str, most_bytes: int = _MOST_BYTES) -> bytes:
    """What the kernel reads from a process's memory, which its main thread lets go of when it ends."""
    try:
        raw, gone = slurp(f"/proc/{pid}/{what}", most_bytes), None
    except OSError as error:
        if error.errno not in _GONE:
            raise
        raw, gone = b"", error
    if not raw and b"\nState:\tZ" in slurp(f"/proc/{pid}/status") and (thread := _living_thread(pid)):
        return slurp(f"/proc/{pid}/task/{thread}/{what}", most_bytes)
    if gone:
        raise gone
    return raw


def catches(pid: int, number: signal.Signals) -> bool:
    """Whether the process has a handler of its own for this signal."""
    try:
        for line in slurp(f"/proc/{pid}/status").splitlines():
            if line.startswith(b"SigCgt:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    except (OSError, ValueError, IndexError):
        pass
    return False


def users_of(pid: int) -> set[int]:
    """The users that a process is or may become again: real, effective and saved. OSError where there is none.

    Where its main thread has ended, also those of one that lives: it may have become another user since.
    """
    told = slurp(f"/proc/{pid}/status")
    if b"\nState:\tZ" in told and (thread := _living_thread(pid)):
        told += slurp(f"/proc/{pid}/task/{thread}/status")
    found = {int(word) for line in told.splitlines() if line.startswith(b"Uid:") for word in line.split()[1:4]}
    if not found:
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
    return found


def tags(workload: int, attempt: int) -> dict[str, str]:
    """The variables by which the processes of an attempt are found."""
    return {"JUPYTER_GPU_JOB": str(workload), "JUPYTER_GPU_ATTEMPT": str(attempt)}


def tagged(marks: Iterable[bytes]) -> dict[int, Proc]:
    """The live processes of our own user (as root: of any) whose environment holds all these `NAME=value`."""
    wanted = set(marks)
    found = {}
    for pid in _pids():
        with _unless_short():
            if wanted.issubset(environment(pid)):
                proc = find(pid)
                if proc and not proc.zombie:
                    found[pid] = proc
    return found


def open_pidfd(pid: int, start_ticks: int) -> int | None:
    """A pidfd of just this process; None where it has ended, whoever has its number now. OSError if it is not known."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError as error:
        if error.errno in (*_GONE, errno.EINVAL):  # the last: the number is a mere thread's now
            return None
        raise
    try:
        now = find(pid)  # after the opening: from here on the number cannot pass to another unnoticed
    except OSError:
        os.close(pidfd)
        raise
    if now and now.start_ticks == start_ticks and not now.zombie:
        return pidfd
    os.close(pidfd)
    return None


def send(proc: Proc, number: signal.Signals) -> bool:
    """Signal just this process; False where it is gone, cannot be looked at, or is not ours to signal."""
    try:
        pidfd = open_pidfd(proc.pid, proc.start_ticks)
    except OSError:
        return False
    if pidfd is None:
        return False
    try:
        signal.pidfd_send_signal(pidfd, number)
    except OSError:
        return False
    finally:
        os.close(pidfd)
    return True


@functools.cache
def first_file_limit() -> int:
    """How many files this process could open when that was first asked: as many as what it starts is to have."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def raise_file_limit() -> None:
    """Open as many files as we may: the usual limit is for programs that use select, and ours may have many callers."""
    first_file_limit()
    set_file_limit(resource.getrlimit(resource.RLIMIT_NOFILE)[1])


def set_file_limit(soft: int) -> None:
    """Change the soft limit, where that can be done."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


@contextlib.contextmanager
def _unless_short() -> Iterator[None]:
    """Pass over what cannot be read of one process, save for a want that makes the whole look worthless."""
    try:
        yield
    except OSError as error:
        if error.errno in _SHORT:
            raise


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208


def slurp(path: str, most_bytes: int = _MOST_BYTES) -> bytes:
    """The whole of a small file, by as few calls of the kernel as can be."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return read_all(file, most_bytes)
    finally:
        os.close(file)


def read_all(file: int, most_bytes: int = _MOST_BYTES) -> bytes:
    """Read on to the end of an open file; OSError (EFBIG) where that is further away than it may be."""
    pieces, size = [], 0
    while piece := os.read(file, _PIECE):
        pieces.append(piece)
        size += len(piece)
        if size > most_bytes:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    return b"".join(pieces)
