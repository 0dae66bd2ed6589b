"""A work bench for tests of the local engine: real processes, awaited by what they do, never by the clock."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from jupyter_gpu.broker.engines import files, procs
from jupyter_gpu.broker.engines.base import Attempt, Order, Sighting, Stage
from jupyter_gpu.broker.engines.local import LocalEngine
from jupyter_gpu.model import Device, JobSpec, Outcome, pack_bytes

#: Long enough for a busy machine; nothing waits for it unless something is wrong.
PATIENCE = 45.0
#: A Python that starts in a few milliseconds.
PYTHON = (sys.executable, "-I", "-S", "-u")


def scenario(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Let an async function be a test."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    run.__signature__ = inspect.signature(test)
    return run


async def until(true: Callable[[], Any], what: str = "it never came") -> Any:
    """Poll until something is true and give it back."""
    by = time.monotonic() + PATIENCE
    while not (found := true()):
        assert time.monotonic() < by, what
        await asyncio.sleep(0.005)
    return found


def device(index: int) -> Device:
    """Make a device with a UUID of its own."""
    return Device(uuid=f"GPU-{index:08d}", index=index, name="Test", device_class="test")


def attempt(*argv: str | bytes, workload: int = 1, attempt: int = 1, **more: Any) -> Attempt:
    """What is handed over for a command; keywords go to the attempt or to its spec."""
    names = ("devices", "account", "deadline_at", "withheld", "member")
    given = {name: more.pop(name) for name in names if name in more}
    words = tuple(pack_bytes(os.fsencode(word)) for word in argv)
    spec = JobSpec(argv=words, **({"folder": "/", "environment": {"PATH": os.environ["PATH"]}} | more))
    return Attempt(
        workload=workload, attempt=attempt, name="test", owner="anna", spec=spec,
        **({"account": "", "devices": ()} | given),
    )  # fmt: skip


class Bench:
    """One engine, what it has reported, and short words for what tests do with it."""

    def __init__(self, root: Path, isolation: str = "auto") -> None:
        self.root = root
        self.isolation = isolation
        self.work = root / "work"
        self.work.mkdir(exist_ok=True)
        self.seen: list[Sighting] = []
        self.engine = LocalEngine(root / "attempts", isolation)

    async def begin(self) -> None:
        """Start the engine."""
        self.engine = LocalEngine(self.root / "attempts", self.isolation)
        await self.engine.start(self.seen.append)

    async def anew(self) -> None:
        """Let the broker go and come back; what it saw before is forgotten."""
        await self.engine.close()
        self.seen.clear()
        await self.begin()

    async def hand_over(self, *argv: str | bytes, workload: int = 1, **more: Any) -> None:
        """Hand over a command; keywords go to the attempt or to its spec."""
        await self.engine.hand_over(attempt(*argv, workload=workload, **({"folder": str(self.work)} | more)))

    async def run(self, *argv: str | bytes, **more: Any) -> Outcome:
        """Hand over and wait for the end of the tree."""
        await self.hand_over(*argv, **more)
        return await self.end(more.get("workload", 1), more.get("attempt", 1))

    async def end(self, workload: int = 1, attempt: int = 1) -> Outcome:
        """Wait for the end of the tree."""
        outcome = (await self.sighting(Stage.GONE, workload, attempt)).outcome
        assert outcome is not None
        return outcome

    async def sighting(self, stage: Stage, workload: int = 1, attempt: int = 1) -> Sighting:
        """Wait for a report."""
        return await until(
            lambda: next(
                (one for one in self.seen if (one.workload, one.attempt, one.stage) == (workload, attempt, stage)),
                None,
            ),
            f"no {stage} of {workload}.{attempt} among {self.seen}",
        )

    async def order(
        self, grace: float, kill_after: int = 30, reason: str = "preempted", workload: int = 1, attempt: int = 1
    ) -> Order:
        """Order it to yield."""
        now = time.time()
        order = Order(
            workload=workload, attempt=attempt, reason=reason, ordered_at=now, yield_by=now + grace,
            kill_after_seconds=kill_after,
        )  # fmt: skip
        await self.engine.order(order)
        return order

    def file(self, name: str, workload: int = 1, attempt: int = 1) -> dict[str, Any] | None:
        """Read one of the attempt's small files."""
        return files.read(str(self.engine.folder_of(workload, attempt) / name))

    def log(self, workload: int = 1, attempt: int = 1) -> bytes:
        """The raw log."""
        path = self.engine.log_path(workload, attempt)
        return path.read_bytes() if path.exists() else b""

    async def says(self, text: bytes, workload: int = 1, attempt: int = 1) -> bytes:
        """Wait for the job to print something."""
        await until(lambda: text in self.log(workload, attempt), f"it never said {text!r}")
        return self.log(workload, attempt)

    async def pids(self, count: int, workload: int = 1) -> list[int]:
        """Wait until the job has printed so many lines `pid N`."""
        found = await until(
            lambda: (
                lines := [line for line in self.log(workload).splitlines() if line.startswith(b"pid ")]
            ) and len(lines) >= count and lines
        )  # fmt: skip
        return [int(line.split()[1]) for line in found]


@contextlib.asynccontextmanager
async def bench(root: Path, isolation: str = "auto") -> AsyncIterator[Bench]:
    """A bench that is left tidy: whatever still runs is ended."""
    made = Bench(root, isolation)
    await made.begin()
    try:
        yield made
    finally:
        for sighting in list(made.engine.inventory().values()):
            if sighting.stage is not Stage.GONE:
                await made.order(0, 0, workload=sighting.workload, attempt=sighting.attempt)
        with contextlib.suppress(AssertionError):
            await until(lambda: all(one.stage is Stage.GONE for one in made.engine.inventory().values()))
        await made.engine.close()


def lives(pid: int) -> bool:
    """Whether a process runs: one that only waits to be reaped does not."""
    proc = procs.find(pid)
    return proc is not None and not proc.zombie


def kill(pid: int) -> None:
    """The hard way."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
