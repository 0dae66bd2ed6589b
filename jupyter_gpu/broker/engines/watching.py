"""The supervisors that live, each by one pidfd, however many attempts it sees to one after another."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from typing import Any

from . import aftermath

#: A supervisor's pid and start time, and the boot in which both count.
Supervisor = tuple[int, int, str]


class Watching:
    """Tells when a supervisor has ended."""

    def __init__(self, on_end: Callable[[Supervisor], None]) -> None:
        self._on_end = on_end
        self._fds: dict[Supervisor, int] = {}

    def watch(self, mark: dict[str, Any]) -> Supervisor | None:
        """Watch the supervisor that made this mark; None where it has ended. OSError where that cannot be known."""
        if not mark.get("pid"):
            return None
        one = mark["pid"], mark["start_ticks"], mark["boot_id"]
        if one not in self._fds:
            pidfd = aftermath.watch(mark)
            if pidfd is None:
                return None
            try:
                asyncio.get_running_loop().add_reader(pidfd, self._has_ended, one)
            except OSError:
                os.close(pidfd)
                raise
            self._fds[one] = pidfd
        return one

    def poke(self, one: Supervisor | None) -> None:
        """Let it look for an order."""
        if one in self._fds:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self._fds[one], signal.SIGUSR1)

    def close(self) -> None:
        """Watch no more."""
        for one in list(self._fds):
            self._drop(one)

    def _has_ended(self, one: Supervisor) -> None:
        with contextlib.suppress(OSError):  # where orphans come to us (PID 1 of a container), they are ours to reap
            os.waitid(os.P_PIDFD, self._fds[one], os.WEXITED | os.WNOHANG)
        self._drop(one)
        self._on_end(one)

    def _drop(self, one: Supervisor) -> None:
        pidfd = self._fds.pop(one)
        asyncio.get_running_loop().remove_reader(pidfd)
        os.close(pidfd)
