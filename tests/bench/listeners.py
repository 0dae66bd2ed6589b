"""What it costs to tell 1,000 listeners one sample a second, beside plain socket writes of the same bytes.

The listeners are a process of their own, so only the broker's CPU time is counted; the peer is the bound: what the
kernel takes for so many writes, with no HTTP and no event loop around them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_unix_socket

from jupyter_gpu.broker.api.routes import make_application
from jupyter_gpu.broker.auth import Gate
from jupyter_gpu.model import DeviceView
from tests.broker.ground import a_loop

from .ground import row

LISTENERS = 1_000
SAMPLES = 10
DEVICES = 8
#: One more than are counted: the first samples meet buffers that were never used.
WARM_UP = 2

READERS = """
import selectors, socket, sys
path, count = sys.argv[1], int(sys.argv[2])
chosen = selectors.DefaultSelector()
for _ in range(count):
    s = socket.socket(socket.AF_UNIX); s.connect(path)
    s.sendall(b"GET /api/v1/stream HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
    chosen.register(s, selectors.EVENT_READ)
while chosen.get_map():
    for key, _ in chosen.select():
        if not key.fileobj.recv(65536):
            chosen.unregister(key.fileobj); key.fileobj.close()
"""


def run() -> list[dict[str, Any]]:
    """Percent of a core for the stream and for the bare writes."""
    with more_files(2 * LISTENERS + 200), tempfile.TemporaryDirectory(prefix="jg-") as folder:
        each = asyncio.run(stream_seconds(Path(folder)))
    bound = write_seconds(line())
    return [
        row(
            f"{LISTENERS} listeners at one sample a second",
            each * 100,
            "% of a core",
            reach="under 10",
            beside=f"bare socket writes of the same bytes: {bound * 100:.1f}",
        )
    ]


def line() -> bytes:
    """A sample of eight devices as it is sent."""
    view = DeviceView(
        uuid="GPU-5111447d-7725-4a3e-8f5f-000000000000",
        index=0,
        number="0",
        name="NVIDIA A100-SXM4-80GB",
        device_class="a100-80gb",
        pool="local",
        simulated=False,
        cordoned=False,
        memory_total_bytes=80 << 30,
        memory_used_bytes=12_345_678_901,
        utilisation_percent=97,
        temperature_celsius=61,
        power_watts=311.25,
        sampled_at=1796038161.13,
    )
    return msgspec.json.encode({"samples": [view] * DEVICES}) + b"\n"


async def stream_seconds(folder: Path) -> float:
    """The broker's CPU seconds for one sample to all listeners."""
    async with a_loop(folder / "state", count=DEVICES) as (loop, _):
        application = make_application(loop, Gate(system=False))
        server = HTTPServer(application)
        path = folder / "s"
        server.add_socket(bind_unix_socket(str(path), backlog=LISTENERS))
        command = [sys.executable, "-I", "-c", READERS, str(path), str(LISTENERS)]
        readers = await asyncio.create_subprocess_exec(*command)
        try:
            while len(listeners := list(application.stream._listeners())) < LISTENERS:
                await asyncio.sleep(0.05)
            spent = 0.0
            for number in range(WARM_UP + SAMPLES):
                begun = time.process_time()
                loop.publisher.send(line())
                await asyncio.sleep(0.2)
                spent += (time.process_time() - begun) if number >= WARM_UP else 0.0
                # A listener that missed one would make the figure look better than it is.
                assert not any(listener.is_busy or listener.needs_status for listener in listeners)
        finally:
            loop.publisher.close()
            server.stop()
            await server.close_all_connections()
            readers.terminate()
            await readers.wait()
    return spent / SAMPLES


def write_seconds(data: bytes) -> float:
    """CPU seconds for the same bytes to as many sockets, drained between."""
    with more_files(2 * LISTENERS + 200):
        pairs = [socket.socketpair() for _ in range(LISTENERS)]
        spent = 0.0
        for _ in range(SAMPLES):
            begun = time.process_time()
            for ours, _ in pairs:
                ours.send(data)
            spent += time.process_time() - begun
            for _, theirs in pairs:
                theirs.recv(1 << 16)
        for pair in pairs:
            for end in pair:
                end.close()
    return spent / SAMPLES


@contextlib.contextmanager
def more_files(count: int) -> Iterator[None]:
    """So many files may be open for as long as this takes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(soft, count)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard < 0 else min(wanted, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


if __name__ == "__main__":
    print(*run(), os.linesep)
