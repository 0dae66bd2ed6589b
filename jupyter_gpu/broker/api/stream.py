"""One stream for everybody: a whole status first, then what changed, and the samples as they come.

There is one subscription to the loop, whoever listens. A sample is encoded once and written to all. Changes are
personal, so they are redacted and encoded once per caller, at most once a second for each. A listener that does not
keep up loses samples, never the broker's time, and gets a whole status when it can take one again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from ...core.status import view
from ...model import Caller, Change, State, Workload, World
from . import views
from .base import Base, endpoint

if TYPE_CHECKING:
    from ..loop import Loop

COALESCE_SECONDS = 1.0
HEARTBEAT_SECONDS = 15.0
#: A listener that takes nothing for so long is gone, whatever its socket says.
STUCK_SECONDS = 60.0
#: The caller's own queued work whose place is told anew when anything moves; more than anybody reads.
MOST_PLACES = 20

HEARTBEAT = b"{}\n"
_encode = msgspec.json.Encoder().encode


class Listener:
    """One open stream. It is either keeping up, or it has a write under way and misses what comes meanwhile."""

    def __init__(self, handler: Base) -> None:
        self.caller = handler.caller
        self.needs_status = False
        self.busy_since: float | None = None
        self._handler = handler
        self._write: asyncio.Future[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether the last line has not left yet."""
        return self._write is not None and not self._write.done()

    def send(self, line: bytes) -> bool:
        """Write a line if the last one has left; False where it has not."""
        if self.is_busy:
            if self.busy_since is None:
                self.busy_since = asyncio.get_running_loop().time()
            return False
        self.busy_since = None
        self._handler.write(line)
        self._write = self._handler.flush()
        return True

    def close(self) -> None:
        """Let the handler end."""
        self._handler.on_connection_close()


class Group:
    """The listeners of one caller: they see the same, so it is made once."""

    def __init__(self) -> None:
        self.listeners: set[Listener] = set()
        self.workloads: set[int] = set()
        self.devices: set[str] = set()
        self.due: asyncio.TimerHandle | None = None
        self.told_at = float("-inf")


class Fanout:
    """All listeners of one broker. Begins to listen with the first of them and ends with the last."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._groups: dict[Caller, Group] = {}
        self._tasks: tuple[asyncio.Task[None], ...] = ()

    def join(self, listener: Listener) -> None:
        """From now on the listener hears everything; first of all, how things stand."""
        group = self._groups.setdefault(listener.caller, Group())
        group.listeners.add(listener)
        if not self._tasks:
            self._tasks = (asyncio.create_task(self._hear()), asyncio.create_task(self._beat()))
        self._send_status(listener)

    def leave(self, listener: Listener) -> None:
        """The listener is gone."""
        group = self._groups[listener.caller]
        group.listeners.discard(listener)
        if not group.listeners:
            if group.due is not None:
                group.due.cancel()
            del self._groups[listener.caller]
        if not self._groups:
            for task in self._tasks:
                task.cancel()
            self._tasks = ()

    def _listeners(self) -> Iterable[Listener]:
        return [listener for group in self._groups.values() for listener in group.listeners]

    async def _hear(self) -> None:
        subscription = self._loop.subscribe()
        try:
            async for item in subscription:
                if subscription.fell_behind:
                    subscription.fell_behind = False
                    for listener in self._listeners():
                        listener.needs_status = True
                if isinstance(item, bytes):
                    self._tell_all(item)
                else:
                    self._note(item.workloads, item.devices)
        finally:
            subscription.close()
        # The broker stops: so do the streams.
        for listener in self._listeners():
            listener.close()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            now = asyncio.get_running_loop().time()
            for listener in self._listeners():
                if listener.busy_since is not None and now > listener.busy_since + STUCK_SECONDS:
                    listener.close()
            self._tell_all(HEARTBEAT)

    def _tell_all(self, line: bytes) -> None:
        for group in self._groups.values():
            for listener in group.listeners:
                if listener.needs_status and not listener.is_busy:
                    self._send_status(listener)
                else:
                    listener.send(line)

    def _note(self, workloads: Iterable[int], devices: Iterable[str]) -> None:
        """Something changed: every caller is told now, or a second after they were last told."""
        now = asyncio.get_running_loop().time()
        for caller, group in self._groups.items():
            group.workloads.update(workloads)
            group.devices.update(devices)
            if group.due is None:
                # Even "now" is a turn of the loop later, so that all of a burst goes into one line.
                wait = max(0.0, group.told_at + COALESCE_SECONDS - now)
                group.due = asyncio.get_running_loop().call_later(wait, self._tell, caller, group)

    def _tell(self, caller: Caller, group: Group) -> None:
        group.due = None
        group.told_at = asyncio.get_running_loop().time()
        line = _encode(change_for(self._loop, caller, group.workloads, group.devices)) + b"\n"
        group.workloads, group.devices = set(), set()
        for listener in group.listeners:
            if listener.needs_status or not listener.send(line):
                self._send_status(listener)

    def _send_status(self, listener: Listener) -> None:
        status = views.whole_status(self._loop, listener.caller)
        line = _encode(Change(revision=status.revision, status=status)) + b"\n"
        listener.needs_status = not listener.send(line)


def change_for(loop: Loop, caller: Caller, workloads: Iterable[int], devices: Iterable[str]) -> Change:
    """What changed, as a caller may see it, with the places of their own queued work."""
    world, now = loop.world, loop.now()
    changed = [world.workloads[id_] for id_ in sorted(workloads) if id_ in world.workloads]
    uuids = {uuid for it in changed for uuid in _devices_of(it)}.union(devices)
    # What ended was seen while it held devices; who saw it must learn that it does no more.
    shown = {it.id: it for it in changed if it.state is State.ENDED or views.may_see(world, it, caller)}
    places = _first_places(world, caller)
    # To know a place is to walk the line, so it is known of the first ones only.
    shown |= {id_: world.workloads[id_] for id_ in places}
    changes = (
        view(world, it, caller, now, ahead=places.get(it.id), explained=_is_close(it, caller, places))
        for it in shown.values()
    )
    return Change(
        revision=world.revision,
        changes=tuple(changes),
        devices=tuple(views.show_device(loop, uuid, caller) for uuid in sorted(uuids) if uuid in world.devices),
    )


def _devices_of(it: Workload) -> tuple[str, ...]:
    return (*(it.lease.devices if it.lease is not None else ()), *it.previous_devices)


def _is_close(it: Workload, caller: Caller, places: dict[int, int]) -> bool:
    return it.owner == caller.name and (it.state is not State.QUEUED or it.id in places)


def _first_places(world: World, caller: Caller) -> dict[int, int]:
    """The caller's first waiting workloads, and how many stand before each in its queue."""
    places: dict[int, int] = {}
    before: Counter[str] = Counter()
    for it in world.queued():
        if it.owner == caller.name:
            places[it.id] = before[it.queue]
            if len(places) == MOST_PLACES:
                break
        before[it.queue] += 1
    return places


class Stream(Base):
    """/stream."""

    @endpoint("application/x-ndjson")
    async def get(self) -> None:
        """One JSON document `Change` a line: a whole status first, then changes and samples, until one side ends it."""
        self.set_header("Content-Type", "application/x-ndjson")
        listener = Listener(self)
        self.application.stream.join(listener)
        try:
            await self.closed()
        finally:
            self.application.stream.leave(listener)
