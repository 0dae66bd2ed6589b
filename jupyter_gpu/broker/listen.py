"""Where the broker is found: one Unix socket, TCP where an admin asks for it, and where a hub wants its service.

A socket's path may vanish under a running broker: the runtime folder of a user goes with their last login, and temp
folders are swept. The jobs go on then, but no face would find the broker, so the doors are looked at and set anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import psutil
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
        service: tuple[str, int] | None = None,
        tls: ssl.SSLContext | None = None,
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
        self._service, self._tls = service, tls
        self._mode = 0o666 if for_everybody else 0o600
        self._sockets: list[socket.socket] = []
        self._pauses: set[asyncio.TimerHandle] = set()
        self._is_short = False

    def open(self) -> None:
        """Begin to listen. Raises Conflict where that cannot be."""
        place, hint = str(self._path), "Name another place in GpuBroker.runtime_dir."
        try:
            self._make_folder()
            self._listen(bind_unix_socket(str(self._path), mode=self._mode))
            if self._tcp:
                place, hint = self._tcp, "Name another place in GpuBroker.listen."
                host, _, port = self._tcp.rpartition(":")
                self._listen_at(host or "127.0.0.1", _port(port), None)
            if self._service is not None:
                place, hint = "{}:{}".format(*self._service), "Name another port: setup_hub(..., port=...)."
                self._listen_at(*self._service, self._tls)
        except (OSError, ValueError) as error:
            self.close()
            raise Conflict(f"the broker cannot listen at {place}: {_why(error, place)}", hint=hint) from None

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

    def _listen_at(self, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        for sock in bind_sockets(port, host):
            self._listen(sock, tls)

    def _listen(self, sock: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        self._sockets.append(sock)
        asyncio.get_running_loop().add_reader(sock, self._accept, sock, tls)

    def _stop(self) -> None:
        for pause in self._pauses:
            pause.cancel()
        self._pauses.clear()
        for sock in self._sockets:
            asyncio.get_running_loop().remove_reader(sock)
            sock.close()
        self._sockets.clear()

    def _accept(self, sock: socket.socket, tls: ssl.SSLContext | None) -> None:
        for _ in range(AT_ONCE):
            try:
                connection, address = sock.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NO_MORE:
                    raise
                self._pause(sock, tls, error)
                return
            self._is_short = False
            with contextlib.suppress(OSError):  # gone already
                visit = self._book.enter(connection, tls)
                if visit is not None:
                    self._server.handle_stream(visit, address)

    def _pause(self, sock: socket.socket, tls: ssl.SSLContext | None, error: OSError) -> None:
        """Those who wait stay in the kernel's line: to ask for them at once would find the same trouble."""
        if not self._is_short:
            log.error("no connection can be accepted for now: %s", error)
        self._is_short = True
        running = asyncio.get_running_loop()
        running.remove_reader(sock)
        pause: asyncio.TimerHandle

        def again() -> None:
            self._pauses.discard(pause)
            running.add_reader(sock, self._accept, sock, tls)

        pause = running.call_later(PAUSE_SECONDS, again)
        self._pauses.add(pause)


def _port(text: str) -> int:
    """Read a port; one that is too large would be taken modulo 65,536 by the resolver."""
    port = int(text)
    if not 0 < port < 1 << 16:
        raise ValueError(f"there is no port {port}")
    return port


def _why(error: Exception, place: str) -> str:
    """What is in the way; where somebody else listens there, who that is as far as we may know."""
    if not isinstance(error, OSError) or error.errno != errno.EADDRINUSE:
        return str(error)
    with contextlib.suppress(psutil.Error, OSError, ValueError):
        port = int(place.rpartition(":")[2])
        for it in psutil.net_connections("tcp"):
            if it.status == psutil.CONN_LISTEN and it.laddr and it.laddr.port == port and it.pid:
                process = psutil.Process(it.pid)
                words = " ".join(process.cmdline())[:200] or process.name()
                return f"the process {it.pid} of {process.username()} does already ({words})"
    return "somebody else does already"
