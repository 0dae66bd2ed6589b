"""One stream for everybody: a whole status or what was missed, then what changed, and the samples as they come.

There is one subscription to the loop, whoever listens. A sample is encoded once and written to all. Changes are
personal, so they are redacted and encoded once per caller, at most once a second for each. A listener that does not
keep up loses samples, never the broker's time, and gets a whole status when it can take one again.

Each change names the revision that it leads to, and whoever has that revision knows all before it: so a listener can
come back with it. A line that would tell them nothing new is not sent to them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated

import msgspec

from ...core.contractor import narrow_samples
from ...errors import StoreUnavailable
from ...model import Caller, Change, World
from . import views
from .base import Base, endpoint
from .changes import change_for

if TYPE_CHECKING:
    from ..loop import Loop
    from ..publish import Published, Subscription

COALESCE_SECONDS = 1.0
HEARTBEAT_SECONDS = 15.0
#: A listener that takes nothing for so long is gone, whatever its socket says.
STUCK_SECONDS = 60.0
#: Who missed more events than this, or as many workloads, begins anew: the whole is shorter then.
MOST_MISSED = 1_000

HEARTBEAT = b"{}\n"
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Change).decode


class Listener:
    """One open stream. It is either keeping up, or it has a write under way and misses what comes meanwhile."""

    def __init__(self, handler: Base) -> None:
        self.caller = handler.caller
        self.key = key_of(handler.caller)
        self.needs_status = False
        #: The listener knows all up to here.
        self.revision = 0
        self.busy_since: float | None = None
        self._handler = handler
        self._write: asyncio.Future[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether the last line has not left yet."""
        return self._write is not None and not self._write.done()

    def send(self, line: bytes, revision: int | None = None) -> bool:
        """Write a line, and to which revision it leads, if the last one has left; False where it has not."""
        if self.is_busy:
            if self.busy_since is None:
                self.busy_since = asyncio.get_running_loop().time()
            return False
        self.busy_since = None
        self._handler.write(line)
        self._write = self._handler.flush()
        if revision is not None:
            self.revision = revision
        return True

    def close(self) -> None:
        """Let the handler end."""
        self._handler.on_connection_close()


class Group:
    """The listeners of one caller: they see the same, so it is made once."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.listeners: set[Listener] = set()
        self.workloads: set[int] = set()
        self.devices: set[str] = set()
        #: Something looks different although nothing was committed, so a revision does not tell who knows it.
        self.looks = False
        self.due: asyncio.TimerHandle | None = None
        self.told_at = float("-inf")
        #: The whole document as it was made for one of them, its revision, and when.
        self.whole: tuple[bytes, int, float] | None = None


def key_of(caller: Caller) -> Caller:
    """A caller without what makes no difference in what they see: when a hub was asked about them."""
    return msgspec.structs.replace(caller, groups_at=None)


class Fanout:
    """All listeners of one broker. Begins to listen with the first of them and ends with the last."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._groups: dict[Caller, Group] = {}
        self._tasks: tuple[asyncio.Task[None], ...] = ()
        self._subscription: Subscription | None = None
        #: The last commit that was heard of; the world may be ahead of it.
        self._revision = 0
        #: Who held which devices when it was.
        self._leases: Mapping[str, tuple[int, ...]] = {}

    async def join(self, listener: Listener, *, since: int | None = None, store: str | None = None) -> None:
        """From now on the listener hears everything; first what they missed since a revision, or how things stand."""
        missed = None if since is None or store != self._loop.store_id else await self._missed(since)
        # Nothing is awaited from here on: what is told and what will be heard have neither gap nor overlap.
        if self._subscription is None:
            self._begin(self._loop.subscribe())
        self._add(listener)
        if missed is None:
            self._send_status(listener)
            return
        world = self._loop.world
        change = change_for(self._loop, listener.caller, world.revision, missed, world.devices)
        listener.send(_encode(change) + b"\n", world.revision)

    def know(self, listener: Listener, caller: Caller) -> None:
        """Who listens was looked at anew: where they may see other things now, they see them from now on."""
        before, listener.caller, listener.key = listener.key, caller, key_of(caller)
        self._add(listener)
        if listener.key != before:
            self._drop(listener, before)
            self._send_status(listener)

    def leave(self, listener: Listener) -> None:
        """The listener is gone."""
        self._drop(listener, listener.key)
        if not self._groups:
            self._end()

    def _add(self, listener: Listener) -> None:
        group = self._groups.setdefault(listener.key, Group(listener.caller))
        group.caller = listener.caller
        group.listeners.add(listener)

    def _drop(self, listener: Listener, key: Caller) -> None:
        group = self._groups[key]
        group.listeners.discard(listener)
        if not group.listeners:
            if group.due is not None:
                group.due.cancel()
            del self._groups[key]

    def _begin(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self._revision, self._leases = self._loop.world.revision, self._loop.world.leases
        self._tasks = (asyncio.create_task(self._hear(subscription)), asyncio.create_task(self._beat()))

    def _end(self) -> None:
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None
        for task in self._tasks:
            task.cancel()

    async def _missed(self, since: int) -> set[int] | None:
        """The workloads to tell of since a revision; None where that is not known, or not all."""
        loop, revision = self._loop, since
        touched: set[int] = set()
        while revision < loop.world.revision:  # while the store is asked, more may be decided
            try:
                found = await loop.read(lambda store: store.touched_since(since, MOST_MISSED))
            except StoreUnavailable:
                return None  # the whole is known without it
            if found is None or found.revision == revision:
                return None
            touched, revision = found.workloads, found.revision
        # What has left the world cannot be shown; a revision that is to come is not this store's, whatever its id.
        return touched if touched <= loop.world.workloads.keys() and since <= loop.world.revision else None

    def _listeners(self) -> Iterable[Listener]:
        return [listener for group in self._groups.values() for listener in group.listeners]

    async def _hear(self, subscription: Subscription) -> None:
        async for item in subscription:
            if subscription.fell_behind:
                subscription.fell_behind = False
                self._begin_anew()
            if isinstance(item, bytes):
                self._tell_all(item)
            else:
                self._note(item)
        # The broker stops: so do the streams.
        for listener in self._listeners():
            listener.close()

    def _begin_anew(self) -> None:
        for listener in self._listeners():
            listener.needs_status = True

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            now = asyncio.get_running_loop().time()
            for listener in self._listeners():
                if listener.busy_since is not None and now > listener.busy_since + STUCK_SECONDS:
                    listener.close()
            self._tell_all(HEARTBEAT)

    def _tell_all(self, line: bytes) -> None:
        whole: Change | None = None
        for group in self._groups.values():
            theirs = line
            if line is not HEARTBEAT and not group.caller.sees_others:
                # The readings that they may see; for nearly everybody it is the same line, encoded once.
                whole = whole or _decode(line)
                theirs = _encode(narrow_samples(self._loop.world, whole, group.caller)) + b"\n"
            for listener in group.listeners:
                if listener.needs_status and not listener.is_busy:
                    self._send_status(listener)
                else:
                    listener.send(theirs)

    def _note(self, item: Published) -> None:
        """Something changed: every caller is told now, or a second after they were last told."""
        now = asyncio.get_running_loop().time()
        moved = set[str]()
        if not item.is_only_progress:  # which not everybody hears of, and all must hear of what moved
            leases = self._loop.world.leases
            moved = {uuid for uuid, _ in leases.items() ^ self._leases.items()}
            self._leases = leases
        self._revision = max(item.revision, self._revision)
        if item.everything:
            self._begin_anew()
        for group in self._groups.values():
            further = _of_theirs(self._loop.world, item.progress, group.caller)
            if item.is_only_progress and not further:
                continue
            group.workloads.update(item.workloads, further)
            group.devices.update(item.devices, moved)
            group.looks |= item.is_look
            group.whole = None
            if group.due is None:
                # Even "now" is a turn of the loop later, so that all of a burst goes into one line.
                wait = max(0.0, group.told_at + COALESCE_SECONDS - now)
                group.due = asyncio.get_running_loop().call_later(wait, self._tell, group)

    def _tell(self, group: Group) -> None:
        group.due = None
        group.told_at = asyncio.get_running_loop().time()
        line = _encode(change_for(self._loop, group.caller, self._revision, group.workloads, group.devices)) + b"\n"
        looks, group.looks = group.looks, False
        group.workloads, group.devices = set(), set()
        for listener in group.listeners:
            # From a status or what they missed, a moment ago. Of what was not committed nobody can say.
            knows_it = listener.revision >= self._revision and not looks
            if looks and listener.revision > self._revision:
                listener.needs_status = True  # the line would lead them back
            if listener.needs_status or not (knows_it or listener.send(line, self._revision)):
                self._send_status(listener)

    def _send_status(self, listener: Listener) -> None:
        line, revision = self._whole(self._groups[listener.key])
        listener.needs_status = not listener.send(line, revision)

    def _whole(self, group: Group) -> tuple[bytes, int]:
        """The document of a caller: made once for all of their listeners who need it at a time."""
        now = asyncio.get_running_loop().time()
        line, revision, made_at = group.whole or (b"", -1, now)
        # What looks different since is told to all listeners, so an old one lacks no more than some readings.
        if revision != self._loop.world.revision or now >= made_at + COALESCE_SECONDS:
            status = views.whole_status(self._loop, group.caller)
            line, revision = _encode(Change(revision=status.revision, status=status)) + b"\n", status.revision
            group.whole = (line, revision, now)
        return line, revision


def _of_theirs(world: World, progress: Iterable[int], caller: Caller) -> set[int]:
    """Those of the jobs that came further whose progress a caller may see: their own, an operator all."""
    jobs = (world.workloads.get(id_) for id_ in progress)
    return {it.id for it in jobs if it is not None and (caller.is_operator or it.owner == caller.name)}


class StreamQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """From where to go on: `revision` and `store_id` of the document that is held. Without both, with the whole."""

    since: views.After | None = None
    store: Annotated[str, msgspec.Meta(max_length=100)] | None = None


class Stream(Base):
    """/stream."""

    @endpoint("application/x-ndjson", query=StreamQuery)
    async def get(self, query: StreamQuery) -> None:
        """One JSON document `Change` a line: the whole, or what you missed; then changes and samples, endlessly."""
        self.set_header("Content-Type", "application/x-ndjson")
        listener = Listener(self)
        await self.application.stream.join(listener, since=query.since, store=query.store)
        try:
            await self.closed(lambda: self.application.stream.know(listener, self.caller))
        finally:
            self.application.stream.leave(listener)
