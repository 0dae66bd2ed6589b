"""The processes behind reservations: whether one lives, and how it is brought to an end.

A kernel, a command or a shell was not started by the broker, so it is known only by pid, start time and boot id; no
signal is ever sent to a process that does not match all three.
"""

from __future__ import annotations

import signal

from ...model import Holder
from . import procs


def is_alive(holder: Holder) -> bool | None:
    """Whether the holder's process lives; None where no process is known, or it cannot be looked at now."""
    if holder.pid is None:
        return None
    try:
        return _find(holder) is not None
    except OSError:
        return None


def end(holder: Holder, *, by_force: bool) -> bool:
    """Ask the holder's process to leave, or end it; False where it is gone or not ours to signal."""
    try:
        proc = _find(holder)
    except OSError:
        return False
    return proc is not None and procs.send(proc, signal.SIGKILL if by_force else signal.SIGTERM)


def _find(holder: Holder) -> procs.Proc | None:
    if holder.pid is None or holder.boot_id not in (None, procs.boot_id()):
        return None
    proc = procs.find(holder.pid)
    if proc is None or proc.zombie or holder.start_ticks not in (None, proc.start_ticks):
        return None
    return proc
