"""The broker's end of the launcher: starts it, starts it again when it dies, and hears its reports.

A launcher's supervisors report over the socket they were born with, also when the launcher is long dead, so an old
socket is read until its last supervisor is gone. A launcher that cannot live is started again ever more
slowly.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import launcher

_SLOWEST_SECONDS = 10.0
_LIVED_SECONDS = 5.0


class Channel:
    """Start messages out, reports in."""

    def __init__(self, log: Path, on_report: Callable[[list[Any]], None], on_new: Callable[[], None]) -> None:
        self._log, self._on_report, self._on_new = log, on_report, on_new
        self._loop = asyncio.get_running_loop()
        self._sockets: set[socket.socket] = set()
        self._current: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._pidfd: int | None = None
        self._born = 0.0
        self._delay = 0.0
        self._restart: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The launcher's pid, where one runs."""
        return self._process.pid if self._process else None

    def open(self) -> None:
        """Start a launcher."""
        self._restart = None
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError:
            self._again()
            return
        ours.setblocking(False)  # noqa: FBT003 - it takes no keyword
        try:
            with open(self._log, "ab", opener=_only_ours) as log:
                self._process = subprocess.Popen(
                    launcher.command(theirs.fileno()), pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
                    stdout=log, stderr=log, env=_needed(), start_new_session=True,
                )  # fmt: skip
            self._pidfd = os.pidfd_open(self._process.pid)
        except OSError:
            ours.close()
            theirs.close()
            if self._process:  # it leaves now that its socket is closed
                self._process.kill()
                self._process.wait()
                self._process = None
            self._again()
            return
        theirs.close()
        self._born = self._loop.time()
        self._loop.add_reader(self._pidfd, self._has_died)
        self._loop.add_reader(ours, self._hear, ours)
        self._sockets.add(ours)
        self._current = ours
        self._on_new()

    def start(self, folder: str) -> bool:
        """Ask for a supervisor; False where nobody can take the message now (it is asked again)."""
        if self._current is None:
            return False
        with contextlib.suppress(OSError):
            self._current.send(os.fsencode(folder))
            return True
        return False

    def close(self) -> None:
        """Let the launcher go; what it has started stays."""
        self._closed = True
        if self._restart:
            self._restart.cancel()
        for each in list(self._sockets):
            self._drop(each)
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None
        if self._process:
            # It ends by itself now that its socket has; it is quick, and a zombie must not stay.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=2)

    def _has_died(self) -> None:
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None
        if self._process:
            self._process.wait()
        self._process = self._current = None
        self._again()

    def _again(self) -> None:
        if self._closed:
            return
        lived = self._loop.time() - self._born > _LIVED_SECONDS
        self._delay = 0.0 if lived else min(max(0.1, self._delay * 2), _SLOWEST_SECONDS)
        self._restart = self._loop.call_later(self._delay, self.open)

    def _hear(self, ours: socket.socket) -> None:
        while True:
            try:
                raw = ours.recv(launcher.MESSAGE_BYTES)
            except BlockingIOError:
                return
            except OSError:
                raw = b""
            if not raw:  # the last that held the other end is gone
                self._drop(ours)
                return
            with contextlib.suppress(ValueError):
                self._on_report(json.loads(raw))

    def _drop(self, ours: socket.socket) -> None:
        self._loop.remove_reader(ours)
        self._sockets.discard(ours)
        ours.close()
        if ours is self._current:
            self._current = None


def _needed() -> dict[str, str]:
    """Of our environment only what our own interpreter may need to start; nobody's tokens."""
    return {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}


def _only_ours(path: str, flags: int) -> int:
    """Open a file that nobody else reads, also where an earlier broker has made it: tracebacks tell of folders."""
    file = os.open(path, flags, 0o600)
    os.fchmod(file, 0o600)
    return file
