"""One broker per machine, and one per store: files kept locked for as long as the process lives.

The kernel drops a lock with its process, however it ends, so nothing stale is ever left to clear away. Who may read a
file may lock it, so the locks of one broker are its user's alone. The machine's is shared by all users and may lie
in a folder where everybody writes: it is opened without following links, who holds it is the kernel's word and never
the file's, and root does not wait for somebody who holds it and is no broker.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import pwd
import stat
from pathlib import Path
from typing import NamedTuple

from ..errors import Conflict

log = logging.getLogger(__name__)

_MODULE = b"jupyter_gpu.broker"


class Holder(NamedTuple):
    """The process that holds a lock, as the kernel knows it."""

    pid: int
    uid: int
    is_broker: bool

    def __str__(self) -> str:
        return f"{_name_of(self.uid)} (process {self.pid})"


class Lock:
    """A file locked until `release`. Raises Conflict where another process holds it, and says who.

    A `private` one can be opened by its user alone. With `is_first` (the machine's own broker) somebody else's process
    that is no broker is not waited for: its file loses its name, and whoever comes later meets ours.
    """

    def __init__(self, path: Path, *, what: str, hint: str, private: bool = False, is_first: bool = False) -> None:
        self.path = path
        self._fd = _open(path, 0o600 if private else 0o644)
        if not _try(self._fd):
            holder = _holder(self._fd)
            os.close(self._fd)
            if not is_first or holder is None or holder.is_broker or holder.uid == os.geteuid():
                raise Conflict(f"{what} is served already{f' by {holder}' if holder else ''}", hint=hint)
            log.warning("%s was locked by %s, which is no broker: made anew", path, holder)
            path.unlink(missing_ok=True)
            Lock.__init__(self, path, what=what, hint=hint, private=private)
            return
        with contextlib.suppress(OSError):  # not ours to write where another user made the file: the lock counts
            if private:
                os.fchmod(self._fd, 0o600)
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{_name_of(os.geteuid())} (process {os.getpid()})\n".encode(), 0)

    def release(self) -> None:
        """Let the next broker have it. The file stays: who removed it would split the lock in two."""
        os.close(self._fd)


def _try(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _holder(fd: int) -> Holder | None:
    """Who holds a lock by /proc/locks; None where that is nobody whom we see, as somebody of another container."""
    found = os.fstat(fd)
    file = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            words = line.split()
            if len(words) > 5 and words[1] == "FLOCK" and words[5] == file:  # noqa: PLR2004 - those who wait have "->"
                pid = int(words[4])
                place = Path(f"/proc/{pid}")
                is_broker = any(word.startswith(_MODULE) for word in (place / "cmdline").read_bytes().split(b"\0"))
                return Holder(pid, place.stat().st_uid, is_broker)
    return None


def _open(path: Path, permissions: int) -> int:
    """Open without creating first: in a sticky folder the kernel refuses O_CREAT on another user's file."""
    flags = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    for mode in (os.O_RDWR, os.O_RDONLY, os.O_RDWR | os.O_CREAT):
        try:
            fd = os.open(path, flags | mode, permissions)
        except OSError as error:
            trouble = error
            continue
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
        os.close(fd)
        trouble = OSError(f"{path} is no plain file")
    raise Conflict(
        f"the lock {path} cannot be opened: {trouble}",
        hint="Remove what stands there, or name another file in GpuBroker.lock_file.",
    )


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
