"""What it costs a Jupyter server to tell 1,000 open pages one sample a second, beside plain socket writes of the same.

The pages are a process of their own and the broker is a stand-in without cost, so only the server's CPU time is
counted: one stream is read, decoded, encoded once and written to a thousand websockets.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec

from jupyter_gpu.client import AsyncClient
from jupyter_gpu.model import Change, DeviceView, Status
from tests.jupyter.server_ground import TOKEN, Server, a_server

from .ground import row
from .listeners import DEVICES, SAMPLES, WARM_UP, line, more_files, write_seconds

PAGES = 1_000

READERS = """
import base64, selectors, socket, sys
port, count, token = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
chosen = selectors.DefaultSelector()
for _ in range(count):
    s = socket.create_connection(("127.0.0.1", port))
    s.sendall((f"GET /jupyter-gpu/stream?token={token} HTTP/1.1\\r\\nHost: 127.0.0.1:{port}\\r\\n"
        "Upgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Version: 13\\r\\nSec-WebSocket-Key: "
        + base64.b64encode(b"0123456789abcdef").decode() + "\\r\\n\\r\\n").encode())
    chosen.register(s, selectors.EVENT_READ)
while chosen.get_map():
    for key, _ in chosen.select():
        if not key.fileobj.recv(65536):
            chosen.unregister(key.fileobj); key.fileobj.close()
"""


def run() -> list[dict[str, Any]]:
    """Percent of a core for the pages and for the bare writes."""
    with (
        more_files(4 * PAGES + 200),
        tempfile.TemporaryDirectory(prefix="jg-") as folder,
        mock.patch.dict(os.environ, JUPYTER_GPU_RUNTIME_DIR=folder),
    ):
        each = asyncio.run(page_seconds(Path(folder)))
    bound = write_seconds(line())
    return [
        row(
            f"{PAGES} open pages at one sample a second (Jupyter server)",
            each * 100,
            "% of a core",
            reach="under 10",
            beside=f"bare socket writes of the same bytes: {bound * 100:.1f}",
        )
    ]


async def page_seconds(folder: Path) -> float:
    """The server's CPU seconds for one sample to all pages."""
    lines: asyncio.Queue[bytes] = asyncio.Queue()

    async def stream(_client: AsyncClient, _held: Status | None = None) -> AsyncIterator[Change]:
        yield Change(revision=1, status=_status())
        while True:
            yield msgspec.json.decode(await lines.get(), type=Change)

    async def broker(_client: AsyncClient) -> None:
        pass

    with mock.patch.multiple(AsyncClient, stream=stream, broker=broker):
        async with a_server(folder, log_level="ERROR") as server:
            server.extension.upstreams.most_pages = PAGES
            return await _seconds(server, lines)


async def _seconds(server: Server, lines: asyncio.Queue[bytes]) -> float:
    command = [sys.executable, "-I", "-c", READERS, str(server.port), str(PAGES), TOKEN]
    readers = await asyncio.create_subprocess_exec(*command)
    try:
        streams = server.extension.upstreams._streams
        while not streams or len(next(iter(streams.values()))._listeners) < PAGES:
            await asyncio.sleep(0.05)
        spent = 0.0
        for number in range(WARM_UP + SAMPLES):
            begun = time.process_time()
            lines.put_nowait(line())
            await asyncio.sleep(0.3)
            spent += (time.process_time() - begun) if number >= WARM_UP else 0.0
            # A page that missed one would make the figure look better than it is.
            listeners = next(iter(streams.values()))._listeners.values()
            assert not any(listener._on_its_way or listener._needs_greeting for listener in listeners)
    finally:
        readers.terminate()
        await readers.wait()
    return spent / SAMPLES


def _status() -> Status:
    sample = msgspec.json.decode(line(), type=Change).samples[0]
    devices: tuple[DeviceView, ...] = tuple(
        msgspec.structs.replace(sample, uuid=f"GPU-{n}", index=n) for n in range(DEVICES)
    )
    return Status(
        revision=1, store_id="bench", at=0.0, caller="bench", simulated=True, devices=devices, workloads=(), quotas=(),
        waiting={},
    )  # fmt: skip


if __name__ == "__main__":
    print(*run(), os.linesep)
