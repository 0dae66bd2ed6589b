"""1,000 panels of 200 callers, each with a document of their own, while work comes and goes; some never read a word.

The listeners are a process of their own, which notes when each of them heard of which revision. An event is as old as
the broker says that it is; who was told less than a second ago is told when that second is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jupyter_gpu.client import AsyncClient
from jupyter_gpu.model import Ask, Holder, Kind, SubmitBody

from .ground import median, row
from .hub_ground import NAMES, OPERATOR, USERS, Lab
from .listeners import LISTENERS, write_seconds

EACH = LISTENERS // USERS
#: Beside them: so many that ask and never read.
DEAF = 20
SECONDS = 6.0
SETTLE_SECONDS = 1.0
GRANTS_A_SECOND = 2

READERS = r"""
import json, re, selectors, socket, sys, time
port, prefix, each, deaf, out = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
tokens = json.loads(sys.stdin.readline())
revision = re.compile(rb'\{"revision":(\d+)')
chosen, heard, silent = selectors.DefaultSelector(), [], []
def listen(token):
    s = socket.create_connection(("127.0.0.1", port))
    s.sendall(f"GET {prefix}/api/v1/stream HTTP/1.1\r\nHost: x\r\nAuthorization: token {token}\r\n\r\n".encode())
    first = s.recv(65536)
    assert b" 200 " in first[:20], first
    return s
for number in range(each):
    for place, token in enumerate(tokens):
        chosen.register(listen(token), selectors.EVENT_READ, place * each + number)
for token in tokens[:deaf]:
    silent.append(listen(token))
print("listening", flush=True)
chosen.register(sys.stdin, selectors.EVENT_READ, None)
parts, over = 0, False
while not over:
    for key, _ in chosen.select():
        if key.data is None:
            over = sys.stdin.readline() != "more\n"
            print(parts, flush=True)
            continue
        data = key.fileobj.recv(1 << 18)
        now = time.time()
        assert data, "a listener was sent away"
        parts += len(data)
        for found in revision.finditer(data):
            heard.append((key.data, now, int(found[1])))
with open(out, "w") as file:
    json.dump(heard, file)
print("done", flush=True)
"""


class Crowd:
    """The listeners' process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._bytes = 0

    async def hear(self) -> str:
        """Its next line."""
        assert self._process.stdout is not None
        return (await self._process.stdout.readline()).decode().strip()

    async def say(self, line: str) -> None:
        """Tell it something."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        await self._process.stdin.drain()

    async def more_bytes(self, word: str = "more") -> int:
        """What all of them have got since they were asked last."""
        await self.say(word)
        before, self._bytes = self._bytes, int(await self.hear())
        return self._bytes - before


async def listening(lab: Lab) -> list[dict[str, Any]]:
    """First with samples alone, then with work that comes and goes."""
    before, events = lab.resident(), list[tuple[int, float]]()
    with tempfile.TemporaryDirectory(prefix="jg-bench-") as folder:
        out = Path(folder) / "heard"
        async with _a_crowd(lab, out) as crowd:
            memory = (lab.resident() - before) * 1024 / (LISTENERS + DEAF)
            calm, calm_bytes = await _share(lab, crowd, asyncio.sleep(SECONDS))
            busy, busy_bytes = await _share(lab, crowd, _come_and_go(lab, events))
            await asyncio.sleep(SETTLE_SECONDS)
            await crowd.more_bytes("enough")
            assert await crowd.hear() == "done"
        late = sorted(_latencies(json.loads(out.read_text()), events))
    what = f"{LISTENERS} listeners, {USERS} callers"
    return [
        row(f"{what}, one sample a second", calm * 100, "% of a core", reach="under 10", beside=_bare(calm_bytes)),
        row(
            f"{what}, {GRANTS_A_SECOND} grants and as many ends a second beside", busy * 100, "% of a core",
            reach="under 30", beside=_bare(busy_bytes),
        ),
        row(
            "from an event to a listener, told once a second at most", median(late) * 1000, "ms",
            reach="under 1500 (99 %)", beside=f"99 % {late[int(len(late) * 0.99)] * 1000:.0f} ms; beside {DEAF} that "
            "never read",
        ),
        row("memory of the service for a listener", memory, "KiB"),
    ]  # fmt: skip


async def _share(lab: Lab, crowd: Crowd, work: Awaitable[None]) -> tuple[float, float]:
    """The part of a core that the service takes meanwhile, and the bytes a second that each listener gets."""
    await asyncio.sleep(SETTLE_SECONDS)
    await crowd.more_bytes()
    cpu, begun = lab.cpu_seconds(), time.perf_counter()
    await work
    seconds = time.perf_counter() - begun
    share = (lab.cpu_seconds() - cpu) / seconds
    return share, await crowd.more_bytes() / seconds / LISTENERS


def _bare(each: float) -> str:
    seconds = write_seconds(bytes(round(each)))
    return f"bare socket writes of the same {each / 1024:.1f} KiB a second for each: {seconds * 100:.1f}"


@contextlib.asynccontextmanager
async def _a_crowd(lab: Lab, out: Path) -> AsyncIterator[Crowd]:
    """All listen; what they have heard is written at the end."""
    url = urlsplit(lab.url)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-c", READERS, str(url.port), url.path, str(EACH), str(DEAF), str(out),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    crowd = Crowd(process)
    try:
        await crowd.say(json.dumps([lab.tokens[name] for name in NAMES]))
        assert await crowd.hear() == "listening", "not all could listen"
        yield crowd
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _come_and_go(lab: Lab, events: list[tuple[int, float]]) -> None:
    """Reserve a part and give it back, again and again; note the number of each grant, and when it was."""
    ask, seen = Ask(devices=1, memory_bytes=1 << 30, duration_seconds=600), []
    async with lab.client(OPERATOR) as client:
        end = time.monotonic() + SECONDS
        while (begun := time.monotonic()) < end:
            holder = Holder(kind="server", name=f"{OPERATOR}/bench")
            it = await client.submit(SubmitBody(kind=Kind.RESERVATION, ask=ask, holder=holder))
            seen.append(it.id)
            await asyncio.sleep(max(0.0, begun + 0.5 / GRANTS_A_SECOND - time.monotonic()))
            await client.release(it.id)
            await asyncio.sleep(max(0.0, begun + 1.0 / GRANTS_A_SECOND - time.monotonic()))
        for id_ in seen:
            events += [(it.number, it.at) async for it in _events(client, id_) if it.event == "granted"]


async def _events(client: AsyncClient, id_: int) -> AsyncIterator[Any]:
    async for it in client.events(id_):
        yield it


def _latencies(heard: list[tuple[int, float, int]], events: list[tuple[int, float]]) -> list[float]:
    """For each listener and event: how long until it heard of that revision or a later one."""
    by_listener: dict[int, list[tuple[float, int]]] = {}
    for listener, at, revision in heard:
        by_listener.setdefault(listener, []).append((at, revision))
    assert len(by_listener) == LISTENERS, f"only {len(by_listener)} have heard anything"
    late = []
    for lines in by_listener.values():
        place = 0
        for number, at in events:
            while lines[place][1] < number:
                place += 1  # whoever never heard of it ends this with an error
            late.append(lines[place][0] - at)
    return late
