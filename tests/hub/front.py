"""What stands before a hub in the real world: a proxy that hands each answer on as it comes.

The hub's own one of these tests, in Python, holds an answer back until it is whole, which a stream never is. So what is
the service's goes straight to the service here, as the proxies of node and traefik have it, and all else to the hub's.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections.abc import Iterator

from .hub import Hub

_HOP = re.compile(rb"\r\nConnection:[^\r]*", re.IGNORECASE)


class Front:
    """One address for a hub with its service, on a thread of its own."""

    def __init__(self, hub: Hub) -> None:
        self._hub, self._service = hub.port, hub.service_port
        self._prefix = f"{hub.base}services/jupyter-gpu".encode()
        self._base = hub.base
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop
        ).result(10)

    @property
    def url(self) -> str:
        """What people type, with a slash at its end."""
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}{self._base}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError), contextlib.closing(writer):
            head = await reader.readuntil(b"\r\n\r\n")
            port = self._service if head.split(b" ", 2)[1].startswith(self._prefix) else self._hub
            there, back = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.closing(back):
                # One request for each connection, so that each goes where it belongs; sockets stay what they are.
                if b"\r\nupgrade:" not in head.lower():
                    head = _HOP.sub(b"", head)[:-2] + b"Connection: close\r\n\r\n"
                back.write(head)
                await _first_of(_pass_on(reader, back), _pass_on(there, writer))

    def close(self) -> None:
        """Let nobody through any more."""

        async def end() -> None:
            self._server.close()
            mine = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in mine:
                task.cancel()
            await asyncio.gather(*mine, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while part := await reader.read(65536):
        writer.write(part)
        await writer.drain()


async def _first_of(asked: object, answered: object) -> None:
    """Until the answer is whole, or who asked has gone."""
    tasks = {asyncio.ensure_future(asked), asyncio.ensure_future(answered)}  # type: ignore[call-overload]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.contextmanager
def a_front(hub: Hub) -> Iterator[Front]:
    """Stand before a hub."""
    front = Front(hub)
    try:
        yield front
    finally:
        front.close()
