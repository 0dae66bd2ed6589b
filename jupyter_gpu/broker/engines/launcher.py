"""The launcher: a small process that finds a supervisor for each attempt, an idle one or a fork of its own.

The broker starts it by exec, so it holds none of the broker's memory, threads, store or secrets, and a new one can take
its place whenever it dies; supervisors that it has started do not notice. It is single-threaded and imports
only the standard library's light parts, once, so that a start is a fork and an exec. It speaks over a SOCK_SEQPACKET
socket: a start is the path of an attempt's folder, and its supervisors report over the same socket. When
the broker is gone it goes too; the supervisors stay until their attempts are over.

A supervisor that is done with an attempt says so through a pipe that all share, and waits for the next folder on
a pipe of its own. Only the launcher decides who gets a folder and, by closing that pipe, who leaves; so no
folder goes to one that is just leaving. One that is killed meanwhile takes its folder with it: the broker asks again.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import os
import select
import signal
import sys
import time

from . import procs
from .child import changed_signals
from .supervisor import Identity, supervise

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

#: The longest message: a path, or a report.
MESSAGE_BYTES = 16 * 1024
#: So many supervisors wait for work, for so long; beyond so many at work they leave when they are done.
_IDLE_MOST = 8
_IDLE_SECONDS = 10.0
_LINES_MOST = 64
#: A supervisor leaves after so many attempts: whatever Python may have gathered goes with it.
_ATTEMPTS_MOST = 64
_SERIAL_BYTES = 8


def command(socket_fd: int) -> list[str]:
    """How the broker starts a launcher: isolated, and without site, whose .pth files would cost more than we do."""
    root = os.path.realpath(f"{__file__}/../../../..")
    code = "import sys; sys.path.append(sys.argv[1]); from jupyter_gpu.broker.engines.launcher import main; main()"
    # The last is for the jobs: the broker itself may open more files than it was born to.
    return [sys.executable, "-I", "-S", "-X", "utf8", "-c", code, root, str(socket_fd), str(procs.first_file_limit())]


def main(argv: Sequence[str] = ()) -> NoReturn:
    """Find a supervisor per message until the broker is gone."""
    channel, file_limit = (int(word) for word in (argv or sys.argv)[-2:])
    procs.set_file_limit(file_limit)
    os.set_inheritable(channel, False)  # noqa: FBT003 - it takes no keyword
    os.set_blocking(channel, False)
    os.chdir("/")  # no mount shall be busy because of us
    # The first three go to whole groups, but our end is the broker's end; the last must not end a supervisor that
    # has not yet got its handler.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps; the broker watches supervisors by pidfd
    changed_signals()
    launcher = _Launcher(channel)
    gc.collect()
    gc.freeze()  # what is shared with the supervisors stays shared
    gc.disable()
    launcher.run()
    os._exit(0)


class _Launcher:
    """Who is idle, and how each supervisor is reached."""

    def __init__(self, channel: int) -> None:
        self._channel = channel
        self._done, self._done_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._serial = 0
        #: The writing end of each supervisor's own pipe, by serial number, which unlike pids and fds never come again.
        self._lines: dict[int, int] = {}
        self._serials: dict[int, int] = {}
        #: Since when each idle one is idle (monotonic), the longest first.
        self._idle: dict[int, float] = {}
        self._poll = select.poll()
        self._poll.register(self._done, select.POLLIN)
        self._poll.register(channel, select.POLLIN)

    def run(self) -> None:
        """Until the broker is gone."""
        while True:
            wait = None
            if self._idle:
                wait = max(0.0, next(iter(self._idle.values())) + _IDLE_SECONDS - time.monotonic()) * 1000 + 1
            for fd, _ in self._poll.poll(wait):
                if fd == self._done:
                    self._hear_done()
                elif fd in self._serials:
                    self._drop(self._serials[fd])  # nobody holds the other end any more
                elif fd == self._channel:
                    folder = _read(fd)
                    if folder == b"":
                        return
                    if folder:
                        self._start(folder)
            self._let_go()

    def _hear_done(self) -> None:
        said = _read(self._done) or b""
        for at in range(0, len(said), _SERIAL_BYTES):
            serial = int.from_bytes(said[at : at + _SERIAL_BYTES], "little")
            if serial in self._lines:
                self._idle[serial] = time.monotonic()

    def _start(self, folder: bytes) -> None:
        while self._idle:
            serial, _ = self._idle.popitem()  # the one that has just been at work: its memory is still in the caches
            try:
                os.write(self._lines[serial], folder)
            except OSError:
                self._drop(serial)
            else:
                return
        try:
            self._fork(os.fsdecode(folder))
        except OSError as error:  # too many processes, no memory: the engine's fault, not the job's
            what = f"fork: {os.strerror(error.errno or errno.EAGAIN)}"
            report(self._channel, "fault", os.fsdecode(folder), error.errno, what)

    def _fork(self, folder: str) -> None:
        line, line_end = os.pipe2(os.O_CLOEXEC)
        self._serial += 1
        try:
            pid = os.fork()
        except OSError:
            os.close(line)
            os.close(line_end)
            raise
        if pid:
            os.close(line)
            if len(self._lines) < _LINES_MOST:
                self._lines[self._serial], self._serials[line_end] = line_end, self._serial
                self._poll.register(line_end, 0)  # to hear of its end only
            else:
                os.close(line_end)
            return
        for fd in (*self._lines.values(), line_end, self._done):  # with a copy of ours nobody would see our end
            os.close(fd)
        _serve(folder, line, self._channel, self._done_end, self._serial)

    def _drop(self, serial: int) -> None:
        self._idle.pop(serial, None)
        line = self._lines.pop(serial)
        del self._serials[line]
        self._poll.unregister(line)
        os.close(line)

    def _let_go(self) -> None:
        late = time.monotonic() - _IDLE_SECONDS
        while self._idle and (len(self._idle) > _IDLE_MOST or next(iter(self._idle.values())) <= late):
            self._drop(next(iter(self._idle)))


def _serve(folder: str, line: int, channel: int, done: int, serial: int) -> NoReturn:
    """Be a supervisor: of this attempt, and of others after it as long as nothing whatever went wrong."""
    try:
        me = Identity()
        for left in reversed(range(_ATTEMPTS_MOST)):
            if not _attempt(me, folder, channel) or not left:
                break
            folder = _next(line, done, serial)
            if not folder:
                break
    except BaseException as error:  # noqa: BLE001 - whatever it is, the broker must hear of it
        number = error.errno if isinstance(error, OSError) else None
        report(channel, "fault", folder, number, f"{type(error).__name__}: {error}")
        with contextlib.suppress(OSError):  # the log may be on the full disk that it tells of
            sys.excepthook(*sys.exc_info())
    finally:
        os._exit(0)  # never back into the launcher's loop


def _attempt(me: Identity, folder: str, channel: int) -> bool:
    return supervise(me, folder, lambda what, *more: report(channel, what, folder, *more))


def _next(line: int, done: int, serial: int) -> str:
    """Wait for the next folder; empty where we are to leave, or the launcher is gone."""
    with contextlib.suppress(OSError):
        os.write(done, serial.to_bytes(_SERIAL_BYTES, "little"))
        return os.fsdecode(os.read(line, MESSAGE_BYTES))
    return ""


def _read(fd: int) -> bytes | None:
    try:
        return os.read(fd, MESSAGE_BYTES)
    except BlockingIOError:
        return None
    except ConnectionResetError:  # the broker died with reports unread: the same as its end
        return b""


def report(channel: int, what: str, folder: str, *more: object) -> bool:
    """Tell the broker, if it listens. A word that is lost is no harm: pidfd and folder tell the same."""
    try:
        os.write(channel, json.dumps([what, folder, *more]).encode())
    except OSError:
        return False
    return True
