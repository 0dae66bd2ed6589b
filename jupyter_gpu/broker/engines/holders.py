"""The processes behind reservations: whether one lives, and how it is brought to an end.

A kernel, a command or a shell was not started by the broker, so it is known only by pid, start time and boot id; no
signal is ever sent to a process that does not match all three.
"""

from __future__ import annotations

import os
import signal

from ...model import Holder
from . import procs


def is_alive(holder: Holder) -> bool | None:
    """Whether the holder's process lives; None where no process is known, or it cannot be looked at now."""
    return _lives(holder, holder.pid, holder.start_ticks)


def has_live_keeper(holder: Holder) -> bool | None:
    """Whether who would start it anew lives; None where nobody is known, or it cannot be looked at now."""
    return _lives(holder, holder.keeper_pid, holder.keeper_start_ticks)


def end(holder: Holder, *, by_force: bool, uid: int | None) -> bool:
    """Ask the holder's process to leave, or end it; False where it is gone or not ours to signal.

    As root the process must be `uid`'s through and through: by running a set-uid program it stays the same process but
    becomes somebody else's, whom its first user could not signal and we must not signal for them.
    """
    try:
        proc = _find(holder, holder.pid, holder.start_ticks)
        if proc is None or (os.geteuid() == 0 and procs.users_of(proc.pid) != {uid}):
            return False
    except OSError:
        return False
    return procs.send(proc, signal.SIGKILL if by_force else signal.SIGTERM)


def _lives(holder: Holder, pid: int | None, start_ticks: int | None) -> bool | None:
    if pid is None:
        return None
    try:
        return _find(holder, pid, start_ticks) is not None
    except OSError:
        return None


def _find(holder: Holder, pid: int | None, start_ticks: int | None) -> procs.Proc | None:
    if pid is None or holder.boot_id not in (None, procs.boot_id()):
        return None
    proc = procs.find(pid)
    if proc is None or proc.zombie or start_ticks not in (None, proc.start_ticks):
        return None
    return proc
