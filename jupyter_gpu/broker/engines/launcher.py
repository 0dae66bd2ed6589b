"""The launcher: a small process that forks one supervisor per attempt.

The broker starts it by exec, so it holds none of the broker's memory, threads, store or secrets, and a new one can take
its place whenever it dies; supervisors that it has started do not notice. It is single-threaded and imports
only the standard library's light parts, once, so that a start is a fork and an exec. It speaks over a SOCK_SEQPACKET
socket: a start is the path of an attempt's folder, and its supervisors report over the same socket. When
the broker is gone it goes too; the supervisors stay.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from .supervisor import supervise

#: The longest message: a path, or a report.
MESSAGE_BYTES = 16 * 1024


def command(socket_fd: int) -> list[str]:
    """How the broker starts a launcher: isolated, and without site, whose .pth files would cost more than we do."""
    root = str(Path(__file__).resolve().parents[3])
    code = "import sys; sys.path.append(sys.argv[1]); from jupyter_gpu.broker.engines.launcher import main; main()"
    return [sys.executable, "-I", "-S", "-X", "utf8", "-c", code, root, str(socket_fd)]


def main(argv: Sequence[str] = ()) -> NoReturn:
    """Fork a supervisor per message until the broker is gone."""
    channel = socket.socket(fileno=int((argv or sys.argv)[-1]))
    channel.set_inheritable(False)
    os.chdir("/")  # no mount shall be busy because of us
    # The first three go to whole groups, but our end is the broker's end; the last must not end a supervisor that
    # has not yet got its handler.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps; the broker watches supervisors by pidfd
    gc.collect()
    gc.freeze()  # what is shared with the supervisors stays shared
    gc.disable()
    while folder := _next(channel):
        _fork(channel, folder)
    os._exit(0)


def _next(channel: socket.socket) -> str:
    try:
        return os.fsdecode(channel.recv(MESSAGE_BYTES))
    except ConnectionResetError:  # the broker died with reports unread: the same as its end
        return ""


def _fork(channel: socket.socket, folder: str) -> None:
    try:
        pid = os.fork()
    except OSError as error:  # too many processes, no memory: the engine's fault, not the job's
        report(channel, "fault", folder, error.errno, f"fork: {os.strerror(error.errno or errno.EAGAIN)}")
        return
    if pid:
        return
    try:
        supervise(folder, lambda what, *more: report(channel, what, folder, *more))
    except BaseException as error:  # noqa: BLE001 - whatever it is, the broker must hear of it
        number = error.errno if isinstance(error, OSError) else None
        report(channel, "fault", folder, number, f"{type(error).__name__}: {error}")
        with contextlib.suppress(OSError):  # the log may be on the full disk that it tells of
            traceback.print_exc()
    finally:
        os._exit(0)  # never back into the launcher's loop


def report(channel: socket.socket, what: str, folder: str, *more: object) -> None:
    """Tell the broker, if it listens. A word that is lost is no harm: pidfd and folder tell the same."""
    with contextlib.suppress(OSError):
        channel.send(json.dumps([what, folder, *more]).encode(), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
