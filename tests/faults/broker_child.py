"""A real broker in a process of its own, which can be told to kill itself at a chosen instant.

Run as a program it is a zygote: it imports the broker once and forks one child for each order on its input, so that a
test can afford many brokers. The child is the app itself, wired as in production; what a test needs beyond it is put
around the parts from outside: a kill at the N-th call of something, and a second socket with a line of JSON for each
question.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from jupyter_gpu.broker import deadlines, wiring
from jupyter_gpu.broker.app import GpuBroker
from jupyter_gpu.broker.engines.base import Stage
from jupyter_gpu.broker.engines.local import LocalEngine
from jupyter_gpu.broker.loop import Loop
from jupyter_gpu.broker.store.store import Store
from jupyter_gpu.errors import GpuError, StoreUnavailable
from jupyter_gpu.model import (
    AddRecurring,
    Cancel,
    Extend,
    LetGo,
    Move,
    Pause,
    PauseRecurring,
    Release,
    SeeHung,
    State,
    Submit,
    Tick,
    Uncordon,
    Workload,
)

AnyCommand = (
    Submit | Cancel | Release | Extend | Pause | LetGo | Move | Uncordon | Tick | AddRecurring | PauseRecurring
    | SeeHung
)  # fmt: skip

REACHED: dict[str, Callable[[Workload], bool]] = {
    "queued": lambda it: it.state is State.QUEUED,
    "active": lambda it: it.state is State.ACTIVE,
    "started": lambda it: it.started_at is not None,
    "yielding": lambda it: it.state is State.YIELDING,
    "released": lambda it: it.outcome is not None,
    "paused": lambda it: it.paused,
    "ended": lambda it: it.state is State.ENDED,
    "second": lambda it: it.attempt >= 2 and it.started_at is not None,
}


class Order(msgspec.Struct):
    """What the zygote is told."""

    #: The command line of the broker.
    argv: list[str]
    log: str
    ready: str
    control: str
    #: `where:N`; see `light`.
    kill: str | None = None
    #: A kind of command and a file; see `hold_back`.
    hold: tuple[str, str] | None = None
    new_group: bool = True
    #: How often it looks at the clock where nothing is due.
    tick_seconds: float | None = None


# -- the kill

_ERRORS = {"fault": ValueError("a fault of ours"), "disk": StoreUnavailable("the disk did not say that it wrote")}


def light(fuse: str) -> None:
    """Let the process kill itself at the N-th passage of a place (`place:N`), or raise there (`place:N:error`)."""
    where, number, *error = fuse.split(":")
    left = int(number)

    def passed() -> None:
        nonlocal left
        left -= 1
        if left == 0 and error:
            raise _ERRORS[error[0]]
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    _PLACES[where](passed)


def _around_commit(passed: Callable[[], None], *, before: bool) -> None:
    commit = Store.commit

    def wrapped(self: Store, *args: Any) -> None:
        if before:
            passed()
        commit(self, *args)
        if not before:
            passed()

    Store.commit = wrapped


def _after_start(passed: Callable[[], None]) -> None:
    hand_over = LocalEngine.hand_over

    async def wrapped(self: LocalEngine, attempt: Any) -> None:
        await hand_over(self, attempt)
        passed()

    LocalEngine.hand_over = wrapped


def _after_order(passed: Callable[[], None]) -> None:
    order = LocalEngine.order

    async def wrapped(self: LocalEngine, what: Any) -> None:
        await order(self, what)
        passed()

    LocalEngine.order = wrapped


def hold_back(command: str, until: str) -> None:
    """Let one kind of observation reach the loop late: when a file is there."""
    handle = Loop.handle

    async def wrapped(self: Loop, what: Any) -> Any:
        while type(what).__name__ == command and not Path(until).exists():
            await asyncio.sleep(0.01)
        return await handle(self, what)

    Loop.handle = wrapped


def _after_sighting(passed: Callable[[], None], stages: frozenset[Stage]) -> None:
    start = LocalEngine.start

    async def wrapped(self: LocalEngine, on_sighting: Callable[[Any], None]) -> None:
        def seen(sighting: Any) -> None:
            if sighting.stage in stages:
                passed()
            on_sighting(sighting)

        await start(self, seen)

    LocalEngine.start = wrapped


_PLACES: dict[str, Callable[[Callable[[], None]], None]] = {
    "before-commit": lambda passed: _around_commit(passed, before=True),
    "after-commit": lambda passed: _around_commit(passed, before=False),
    "after-start": _after_start,
    "after-order": _after_order,
    "after-mark": lambda passed: _after_sighting(passed, frozenset({Stage.STARTED})),
    "after-exit": lambda passed: _after_sighting(passed, frozenset({Stage.EXITED, Stage.GONE})),
}


# -- the questions


class Control:
    """Answers a line of JSON with a line of JSON."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                request = json.loads(line)
                try:
                    answer = await getattr(self, "do_" + request.pop("do"))(**request)
                except GpuError as error:
                    answer = {"error": type(error).code, "message": str(error)}
                writer.write(msgspec.json.encode(answer) + b"\n")
                await writer.drain()
        writer.close()

    async def do_commands(self, commands: list[Any]) -> Any:
        wanted = [msgspec.convert(command, AnyCommand) for command in commands]
        answers = await asyncio.gather(*(self.loop.handle(each) for each in wanted), return_exceptions=True)
        return [
            {"error": getattr(type(it), "code", repr(it)), "message": str(it)}
            if isinstance(it, BaseException)
            else {"workload": it.workload}
            for it in answers
        ]

    async def do_wait(self, workloads: list[int], until: str, seconds: float) -> Any:
        waits = (self.loop.wait_until(id_, REACHED[until], seconds) for id_ in workloads)
        return [msgspec.to_builtins(it) for it in await asyncio.gather(*waits)]

    async def do_world(self) -> Any:
        world = self.loop.world
        return {
            "workloads": [msgspec.to_builtins(it) for it in world.workloads.values()],
            "devices": [msgspec.to_builtins(it) for it in world.devices.values()],
            "leases": world.leases,
            "recurring": [msgspec.to_builtins(it) for it in world.recurring.values()],
            "check": world.check(),
            "revision": world.revision,
            "last_id": world.last_id,
            "warnings": self.loop.warnings,
            "digest": self.loop.broker_view().policy_digest,
            "policy_digest": world.policy.digest(),
        }

    async def do_engine(self) -> Any:
        engine = self.loop.engines["local"]
        known = {str(id_): msgspec.to_builtins(it) for id_, it in engine.inventory().items()}
        return {"launcher": engine.launcher_pid, "inventory": known}


def _with_control(path: str) -> None:
    """Open a second door beside the broker's own, for the tests' questions."""
    doors = wiring.Broker._doors

    def wrapped(self: Any, api: Any, book: Any) -> Any:
        with contextlib.suppress(FileNotFoundError):
            Path(path).unlink()
        control = socket.socket(socket.AF_UNIX)
        control.bind(path)
        control.listen(64)
        task = asyncio.ensure_future(asyncio.start_unix_server(Control(api.loop).serve, sock=control, limit=1 << 24))
        found = doors(self, api, book)
        close = found.close

        def close_both() -> None:
            task.cancel()
            control.close()
            close()

        found.close = close_both  # type: ignore[method-assign]
        return found

    wiring.Broker._doors = wrapped  # type: ignore[method-assign]


# -- the processes

_PR_SET_PDEATHSIG = 1


def be_the_broker(order: Order) -> None:
    """Never returns. Dies with the zygote, which dies with the tests."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if order.new_group:
        os.setpgid(0, 0)
    log = os.open(order.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _with_control(order.control)
    if order.tick_seconds is not None:
        deadlines.TICK_SECONDS = order.tick_seconds
    if order.kill is not None:
        light(order.kill)
    if order.hold is not None:
        hold_back(*order.hold)
    code = 1
    try:
        GpuBroker.launch_instance([*order.argv, f"--ready-fd={os.open(order.ready, os.O_WRONLY)}"])
        code = 0
    except SystemExit as error:
        print(error.code, file=sys.stderr, flush=True)  # noqa: T201 - the broker's log is a file of the test
    except BaseException:  # noqa: BLE001 - whatever it is, the test shall read of it
        traceback.print_exc()
    os._exit(code)


def main() -> None:
    """One fork for each line; the answer is its pid."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin.buffer:
        order = msgspec.json.decode(line, type=Order)
        pid = os.fork()
        if not pid:
            be_the_broker(order)
        os.write(1, b"%d\n" % pid)


if __name__ == "__main__":
    main()
