"""Who holds what `jupyter gpu reserve` gets: the calling shell, or the command that takes our place.

A process is told apart from a later one with the same pid by its start time and the boot's id (Linux, /proc).
"""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import InvalidAsk
from ..model import Holder

_MOST_UP = 16


def shell_holder() -> Holder:
    """Name the shell that called us. `$(jupyter gpu reserve --export)` runs in a copy of it, which is gone at once."""
    pid = os.getppid()
    for _ in range(_MOST_UP):
        above = _parent(pid)
        if above is None or above <= 1 or not _is_copy(pid, above):
            break
        pid = above
    return process_holder("shell", pid)


def process_holder(kind: str, pid: int | None = None) -> Holder:
    """Name a process; our own if none is given."""
    pid = os.getpid() if pid is None else pid
    stat = _stat(pid)
    if stat is None:
        raise InvalidAsk(
            "The process that would hold the GPU is gone already.",
            hint="Run this in a shell that stays, or give a command: `jupyter gpu reserve -- COMMAND`.",
        )
    return Holder(kind=kind, name=_name(pid), pid=pid, start_ticks=int(stat[19]), boot_id=_boot_id())


def _is_copy(pid: int, above: int) -> bool:
    # A fork keeps what the kernel gave its parent at exec (AT_RANDOM's address among it); an exec makes it anew.
    mine, theirs = _slurp(pid, "auxv"), _slurp(above, "auxv")
    return bool(mine) and mine == theirs and _slurp(pid, "cmdline") == _slurp(above, "cmdline")


def _parent(pid: int) -> int | None:
    stat = _stat(pid)
    return None if stat is None else int(stat[1])


def _stat(pid: int) -> list[bytes] | None:
    """Read the fields from the state on; a name before them may hold spaces and brackets."""
    raw = _slurp(pid, "stat")
    return raw.rpartition(b")")[2].split() if raw else None


def _name(pid: int) -> str:
    return _slurp(pid, "comm").decode("utf-8", "replace").strip() or "shell"


def _boot_id() -> str | None:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None


def _slurp(pid: int, what: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes()
    except OSError:
        return b""
