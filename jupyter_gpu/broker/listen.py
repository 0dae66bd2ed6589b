"""Where the broker is found: one Unix socket, and TCP where an admin asks for it.

A socket's path may vanish under a running broker: the runtime folder of a user goes with their last login, and temp
folders are swept. The jobs go on then, but no face would find the broker, so the doors are looked at and set anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Callable
from pathlib import Path

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets, bind_unix_socket
from tornado.web import Application

from ..errors import Conflict
from .visits import Book

log = logging.getLogger(__name__)

MOST_BODY_BYTES = 32 << 20
#: Between two requests of one connection.
IDLE_SECONDS = 120.0
BODY_SECONDS = 300.0
#: How many connections are accepted before others of the loop have their turn.
AT_ONCE = 64
PAUSE_SECONDS = 1.0
_NO_MORE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Doors:
    """The listening sockets of one application. `make_folder` makes the folder of the Unix socket, or checks it."""

    def __init__(
        self,
        application: Application,
        *,
        socket_path: Path,
        for_everybody: bool,
        tcp: str = "",
        make_folder: Callable[[], object],
        book: Book | None = None,
    ) -> None:
        self._server = HTTPServer(
            application,
            max_body_size=MOST_BODY_BYTES,
            idle_connection_timeout=IDLE_SECONDS,
            body_timeout=BODY_SECONDS,
        )
        self._book = Book() if book is None else book
        self._path, self._tcp, self._make_folder = socket_path, tcp, make_folder
        self._mode = 0o666 if for_everybody else 0o600
        self._sockets: list[socket.socket] = []
        self._pauses: set[asyncio.TimerHandle] = set()
        self._is_short = False

    def open(self) -> None:
        """Begin to listen. Raises Conflict where that cannot be."""
        try:
            self._make_folder()
            self._listen(bind_unix_socket(str(self._path), mode=self._mode))
            if self._tcp:
                host, _, port = self._tcp.rpartition(":")
                for sock in bind_sockets(_port(port), host or "127.0.0.1"):
                    self._listen(sock)
        except (OSError, ValueError) as error:
            self.close()
            raise Conflict(
                f"the broker cannot listen at {self._tcp or self._path}: {error}",
                hint="Name another place in GpuBroker.listen or GpuBroker.runtime_dir.",
            ) from None

    def look(self) -> bool:
        """Set the doors anew where the socket's path is gone; whether that was needed."""
        if self._path.is_socket():
            return False
        self._stop()  # who is being served stays served
        self.open()
        return True

    def close(self) -> None:
        """Listen no more, and take the path away."""
        self._stop()
        with contextlib.suppress(OSError):
            self._path.unlink()

    def _listen(self, sock: socket.socket) -> None:
        self._sockets.append(sock)
        asyncio.get_running_loop().add_reader(sock, self._accept, sock)

    def _stop(self) -> None:
        for pause in self._pauses:
            pause.cancel()
        self._pauses.clear()
        for sock in self._sockets:
            asyncio.get_running_loop().remove_reader(sock)
            sock.close()
        self._sockets.clear()

    def _accept(self, sock: socket.socket) -> None:
        for _ in range(AT_ONCE):
            try:
                connection, address = sock.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NO_MORE:
                    raise
                self._pause(sock, error)
                return
            self._is_short = False
            with contextlib.suppress(OSError):  # gone already
                visit = self._book.enter(connection)
                if visit is not None:
                    self._server.handle_stream(visit, address)

    def _pause(self, sock: socket.socket, error: OSError) -> None:
        """Those who wait stay in the kernel's line: to ask for them at once would find the same trouble."""
        if not self._is_short:
            log.error("no connection can be accepted for now: %s", error)
        self._is_short = True
        running = asyncio.get_running_loop()
        running.remove_reader(sock)
        pause: asyncio.TimerHandle

        def again() -> None:
            self._pauses.discard(pause)
            running.add_reader(sock, self._accept, sock)

        pause = running.call_later(PAUSE_SECONDS, again)
        self._pauses.add(pause)


def _port(text: str) -> int:
    """Read a port; one that is too large would be taken modulo 65,536 by the resolver."""
    port = int(text)
    if not 0 < port < 1 << 16:
        raise ValueError(f"there is no port {port}")
    return port
