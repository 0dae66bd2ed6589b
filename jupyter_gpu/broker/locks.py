"""One broker per machine, and one per store: two files kept locked for as long as the process lives.

The kernel drops a lock with its process, however it ends, so nothing stale is ever left to clear away. The machine's
lock file is shared by all users and may lie in a folder where everybody writes: it is opened without following links,
and what it says of its holder is for people only.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import re
import stat
import time
from pathlib import Path

from ..errors import Conflict

_LOOKS, _LOOK_SECONDS = 20, 0.01
_PROCESS = re.compile(r"\(process (\d+)\)")


class Lock:
    """A file locked until `release`. Raises Conflict where another process holds it, and says who."""

    def __init__(self, path: Path, *, what: str, hint: str) -> None:
        self.path = path
        self._fd = _open(path)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = _holder(self._fd)
            os.close(self._fd)
            raise Conflict(f"{what} is served already{f' by {holder}' if holder else ''}", hint=hint) from None
        with contextlib.suppress(OSError):  # not ours to write where another user made the file: the lock counts
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{_me()} (process {os.getpid()})\n".encode(), 0)

    def release(self) -> None:
        """Let the next broker have it. The file stays: who removed it would split the lock in two."""
        os.close(self._fd)


def _holder(fd: int) -> str:
    """What the holder says of itself. It writes just after it has locked: what stands there before is of another."""
    for _ in range(_LOOKS):
        said = os.pread(fd, 200, 0).decode("utf-8", "replace").strip()
        named = _PROCESS.search(said)
        if named is not None and Path(f"/proc/{named[1]}").exists():
            return said
        time.sleep(_LOOK_SECONDS)
    return said


def _open(path: Path) -> int:
    """Open without creating first: in a sticky folder the kernel refuses O_CREAT on another user's file."""
    flags = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    for mode in (os.O_RDWR, os.O_RDONLY, os.O_RDWR | os.O_CREAT):
        try:
            fd = os.open(path, flags | mode, 0o644)
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


def _me() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"uid {os.geteuid()}"
