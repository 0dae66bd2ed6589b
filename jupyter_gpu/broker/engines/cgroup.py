"""One cgroup per attempt, where the machine lets us make one.

It finds and ends a tree whose supervisor is dead, however it hid, and it alone proves that the kernel killed
something for want of host memory. Version 2 (`cgroup.kill`, `memory.events`) wherever its mount is, also beside
version 1; of version 1 the memory controller, for `memory.oom_control`, and where version 2 cannot withhold devices the
devices controller. Everything here may fail (no root, no delegation, no mount), and then the attempt simply has no
cgroup. Standard library only: the launcher imports it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time

from ...exits import own_cgroups
from . import procs


def parents() -> list[str]:
    """The cgroups below which we may make one per attempt: our own, or the one that systemd gave into our hands.

    Version 2 counts memory per child only below a cgroup that has no processes of its own. So in a delegated one
    (a unit with Delegate=yes, with or without DelegateSubgroup=) we step aside into a child, and never else.
    """
    found = []
    for version, folder in own_cgroups():
        if version == "devices":
            continue
        if version == "2" and _is_delegated(folder):
            enter(make([f"{folder}/broker"]) or [f"{folder}/broker"])
            _count_memory(folder)
        elif version == "2" and _is_delegated(above := os.path.dirname(folder)):  # noqa: PTH120
            _count_memory(above)
            folder = above  # noqa: PLW2901
        if os.access(folder, os.W_OK):
            found.append(folder)
    return found


def parent_for_devices() -> str | None:
    """The cgroup of version 1 below which we may make others that withhold devices."""
    return next((folder for kind, folder in own_cgroups() if kind == "devices" and os.access(folder, os.W_OK)), None)


def _is_delegated(folder: str) -> bool:
    """Whether systemd has marked it as handed over to its user."""
    for mark in ("user.delegate", "trusted.delegate"):
        with contextlib.suppress(OSError):
            if os.getxattr(folder, mark) == b"1":
                return os.access(folder, os.W_OK)
    return False


def _count_memory(folder: str) -> None:
    # EBUSY where others still are inside, ENOENT where the controller is not ours: then nothing is counted.
    _write(f"{folder}/cgroup.subtree_control", b"+memory")
    _write(f"{folder}/cgroup.subtree_control", b"+pids")  # apart: where one is not ours the other may be


def bound(folder: str, processes: int, memory_bytes: int) -> None:
    """Bound what is in it, as far as the controllers are here."""
    _write(f"{folder}/pids.max", b"%d" % processes)
    _write(f"{folder}/memory.max", b"%d" % memory_bytes)
    _write(f"{folder}/memory.swap.max", b"0")
    _write(f"{folder}/memory.limit_in_bytes", b"%d" % memory_bytes)


def make(folders: list[str]) -> list[str]:
    """Make them; those that could be made."""
    made = []
    for folder in folders:
        with contextlib.suppress(OSError):
            os.mkdir(folder, 0o755)  # noqa: PTH102
            made.append(folder)
    return made


def enter(folders: list[str]) -> None:
    """Move this process, and so all that it will ever start, into them."""
    for folder in folders:
        _write(f"{folder}/cgroup.procs", b"0")


def members(folders: list[str]) -> set[int]:
    """The pids inside, those of nested cgroups included. OSError where that cannot be known."""
    found: set[int] = set()
    for folder in folders:
        for root, _, _ in os.walk(folder, onerror=_raise_unless_gone):
            try:
                found.update(int(word) for word in procs.slurp(f"{root}/cgroup.procs").split())
            except OSError as error:
                _raise_unless_gone(error)
    return found


def _raise_unless_gone(error: OSError) -> None:
    if error.errno not in (errno.ENOENT, errno.ENODEV):
        raise error


def kill(folders: list[str]) -> None:
    """SIGKILL everything inside, at once where the kernel can."""
    for folder in folders:
        _write(f"{folder}/cgroup.kill", b"1")
    with contextlib.suppress(OSError):  # whoever calls this looks again for what lives
        for pid in members(folders):
            proc = procs.find(pid)
            if proc:
                procs.send(proc, signal.SIGKILL)


def remove(folders: list[str], patience_seconds: float = 0.2) -> None:
    """Remove them once they are empty; the kernel may need a moment after the last process."""
    by = time.monotonic() + patience_seconds
    for folder in folders:
        with contextlib.suppress(OSError):
            os.rmdir(folder)  # noqa: PTH106 - so it mostly is
            continue
        for root, _, _ in os.walk(folder, topdown=False):
            while True:
                try:
                    os.rmdir(root)  # noqa: PTH106
                except FileNotFoundError:
                    break
                except OSError:
                    if time.monotonic() > by:
                        break
                    time.sleep(0.005)
                else:
                    break


def _write(path: str, words: bytes) -> None:
    with contextlib.suppress(OSError):
        file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(file, words)
        finally:
            os.close(file)
