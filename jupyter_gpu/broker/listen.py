"""Where the broker is found: one Unix socket, and TCP where an admin asks for it.

A socket's path may vanish under a running broker: the runtime folder of a user goes with their last login, and temp
folders are swept. The jobs go on then, but no face would find the broker, so the doors are looked at and set anew.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets, bind_unix_socket
from tornado.web import Application

from ..errors import Conflict

MOST_BODY_BYTES = 32 << 20


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
    ) -> None:
        self._application = application
        #: A new one for each opening: a tornado server that was stopped once never stops again.
        self._server = HTTPServer(application)
        self._path, self._tcp, self._make_folder = socket_path, tcp, make_folder
        self._mode = 0o666 if for_everybody else 0o600

    def open(self) -> None:
        """Begin to listen. Raises Conflict where that cannot be."""
        self._server = HTTPServer(self._application, max_body_size=MOST_BODY_BYTES)
        try:
            self._make_folder()
            self._server.add_socket(bind_unix_socket(str(self._path), mode=self._mode))
            if self._tcp:
                host, _, port = self._tcp.rpartition(":")
                self._server.add_sockets(bind_sockets(_port(port), host or "127.0.0.1"))
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
        self._server.stop()  # who is being served stays served
        self.open()
        return True

    def close(self) -> None:
        """Listen no more, and take the path away."""
        self._server.stop()
        with contextlib.suppress(OSError):
            self._path.unlink()


def _port(text: str) -> int:
    """Read a port; one that is too large would be taken modulo 65,536 by the resolver."""
    port = int(text)
    if not 0 < port < 1 << 16:
        raise ValueError(f"there is no port {port}")
    return port
