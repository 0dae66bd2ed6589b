"""One stream from the broker for each identity, however many pages listen.

A page gets a whole status first, then what changes. Each frame is encoded once and written to all. A page that does not
keep up loses samples at first, then everything, and gets a whole status when it can take one again; it holds nobody
up. While the broker is away the pages are told so, once, and when it is back they begin anew.

A broker is started for a page that comes, and for one that listened when the connection broke. A broker that ended in
good order was stopped by somebody, and is left so until a page comes or asks for something.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import msgspec

from ..client import fold
from ..errors import BrokerUnavailable, GpuError, LimitExceeded
from ..model import Change, Status, WorkloadView
from .documents import BrokerFrame, ChangeFrame, Frame, KernelsFrame, KernelView, RestartFrame, ServerFrame, StatusFrame
from .identity import Clients, Identity, own_identity
from .own_isolation import OwnIsolation

#: Between two attempts to reach the broker: the first, then doubled, with chance in it, up to the longest.
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 15.0
#: A stream goes on for so long after its last page: most pages come back at once, being reloaded.
KEEP_SECONDS = 30.0
#: So much may be on its way to one page.
MOST_BEHIND_BYTES = 1 << 20
#: So many pages of one identity; a person has a few, and each costs the server a write for every frame.
MOST_PAGES = 200

_encode = msgspec.json.Encoder().encode
_chance = random.SystemRandom()


class Page(Protocol):
    """A websocket of a page."""

    def write_message(self, message: bytes) -> asyncio.Future[None]:
        """Send; done when it has left."""


class Watches(Protocol):
    """What looks after the kernels."""

    on_change: list[Callable[[], None]]
    on_restart: list[Callable[[str, str], None]]

    def views(self) -> tuple[KernelView, ...]:
        """All kernels of this server."""

    def see(self, view: WorkloadView, *, is_own: bool) -> None:
        """Hear of a workload of somebody's; `is_own`: of the one in whose name this server's kernels ask."""


class Upstreams:
    """All streams of this server."""

    def __init__(self, clients: Clients, log: logging.Logger) -> None:
        self.clients, self.log = clients, log
        #: So many pages of one identity are told.
        self.most_pages = MOST_PAGES
        #: What this server finds of itself, by the documents of who it runs for.
        self.isolation = OwnIsolation(self._isolation_changed)
        self._kernels: Watches | None = None
        self._streams: dict[str, Upstream] = {}
        self._is_due = False

    def follow(self, kernels: Watches) -> None:
        """Tell the pages of these kernels, and tell what looks after them of their work."""
        kernels.on_change.append(self._kernels_changed)
        kernels.on_restart.append(self._ask_to_restart)
        self._kernels = kernels

    def join(self, page: Page, identity: Identity) -> Upstream:
        """From now on the page hears what concerns this identity; LimitExceeded where too many do already."""
        stream = self._streams.get(identity.key)
        if stream is not None and stream.pages >= self.most_pages:
            raise LimitExceeded(f"{self.most_pages} pages listen already.", hint="Close some, then reload this one.")
        if stream is None:
            stream = self._streams[identity.key] = Upstream(self, identity)
        stream.join(page)
        return stream

    def forget(self, stream: Upstream) -> None:
        """Nobody listens to it any more."""
        self._streams.pop(stream.identity.key, None)

    async def close(self) -> None:
        """End all streams."""
        streams = list(self._streams.values())
        self._streams.clear()
        self.isolation.close()
        await asyncio.gather(*(stream.close() for stream in streams))

    def see(self, views: Iterable[WorkloadView], identity: Identity) -> None:
        """Tell what looks after the kernels of the caller's own work."""
        if self._kernels is None:
            return
        is_own = identity.name == own_identity().name
        for view in views:
            if view.is_mine:
                self._kernels.see(view, is_own=is_own)

    def kernels_frame(self) -> bytes:
        """The kernels as they are now."""
        return _encode(KernelsFrame(kernels=() if self._kernels is None else self._kernels.views()))

    def look(self, status: Status, identity: Identity) -> None:
        """How things stand now to an identity: whether there is something else to be kept from."""
        if self.isolation.is_wanted and identity.name == own_identity().name:
            self.isolation.look(status, (it.kernel_id for it in self._kernels.views()) if self._kernels else ())

    def own_frames(self, identity: Identity) -> list[bytes]:
        """What the server says of itself to this identity; nothing where there is nothing to say."""
        is_own = identity.name == own_identity().name
        return [self._own_frame()] if is_own and self.isolation.view is not None else []

    def _own_frame(self) -> bytes:
        return _frame(ServerFrame(isolation=self.isolation.view))

    def _isolation_changed(self) -> None:
        for stream in self._streams.values():
            if stream.identity.name == own_identity().name:
                stream.send(self._own_frame())

    def _kernels_changed(self) -> None:
        """Tell all pages, once for all that changes in this turn of the loop."""
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._tell_kernels)

    def _ask_to_restart(self, kernel_id: str, reason: str) -> None:
        frame = _frame(RestartFrame(kernel_id=kernel_id, reason=reason))
        for stream in self._streams.values():
            stream.send(frame)

    def _tell_kernels(self) -> None:
        self._is_due = False
        frame = self.kernels_frame()
        for stream in self._streams.values():
            stream.send(frame)


class Listener:
    """One page: it keeps up, or it waits for a whole status."""

    def __init__(self, page: Page, greeting: Callable[[], list[bytes]]) -> None:
        self._page, self._greeting = page, greeting
        self._on_its_way = 0
        self._needs_greeting = True

    def begin_anew(self) -> None:
        """Send how everything stands, as soon as the page can take it."""
        self._needs_greeting = True
        if not self._on_its_way:
            frames = self._greeting()
            self._needs_greeting = not frames
            for frame in frames:
                self._write(frame)

    def send(self, frame: bytes, *, is_sample: bool = False) -> None:
        """Send, unless too much is on its way; the next sample makes up for this one, all else is made up for later."""
        if self._needs_greeting:
            self.begin_anew()
        elif self._on_its_way and self._on_its_way + len(frame) > MOST_BEHIND_BYTES:
            self._needs_greeting = not is_sample
        else:
            self._write(frame)

    def _write(self, frame: bytes) -> None:
        try:
            written = self._page.write_message(frame)
        except Exception:  # noqa: BLE001 - a page that is gone says so in several ways, and leaves by itself
            return
        self._on_its_way += len(frame)
        written.add_done_callback(lambda done: self._left(len(frame), done))

    def _left(self, size: int, done: asyncio.Future[None]) -> None:
        self._on_its_way -= size
        if done.cancelled() or done.exception() is not None:
            return
        if self._needs_greeting and not self._on_its_way:
            self.begin_anew()


class Upstream:
    """The stream of one identity. It begins with the first page and ends a while after the last."""

    def __init__(self, all_: Upstreams, identity: Identity) -> None:
        self.identity = identity
        self._all = all_
        self._listeners: dict[Page, Listener] = {}
        #: The document as it is now; while the broker is away, as it was, to go on from.
        self._held: Status | None = None
        #: The same as a frame, until it changes.
        self._whole: bytes | None = None
        self._away: BrokerFrame | None = None
        self._may_start = True
        self._came = asyncio.Event()
        self._closing: asyncio.TimerHandle | None = None
        self._task = asyncio.create_task(self._run())

    @property
    def pages(self) -> int:
        """How many listen."""
        return len(self._listeners)

    def join(self, page: Page) -> None:
        """A page comes: if the broker is away, it is looked for at once."""
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None
        listener = self._listeners[page] = Listener(page, self._greeting)
        listener.begin_anew()
        self._may_start = True
        self._came.set()

    def leave(self, page: Page) -> None:
        """A page goes."""
        self._listeners.pop(page, None)
        if not self._listeners and self._closing is None:
            self._closing = asyncio.get_running_loop().call_later(KEEP_SECONDS, self._end)

    def send(self, frame: bytes, *, is_sample: bool = False) -> None:
        """Write a frame to all pages."""
        for listener in list(self._listeners.values()):
            listener.send(frame, is_sample=is_sample)

    async def close(self) -> None:
        """Hear no more."""
        if self._closing is not None:
            self._closing.cancel()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def _end(self) -> None:
        self._all.forget(self)
        self._task.cancel()

    def _greeting(self) -> list[bytes]:
        """How things stand, for a page that knows nothing; nothing yet while that is not known."""
        if self._away is not None:
            return [_frame(self._away), self._all.kernels_frame(), *self._all.own_frames(self.identity)]
        if self._held is None:
            return []
        if self._whole is None:
            self._whole = _frame(StatusFrame(status=self._held))
        return [self._whole, self._all.kernels_frame(), *self._all.own_frames(self.identity)]

    async def _run(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while True:
            may_start, self._may_start = self._may_start, False
            trouble = await self._hear(start=may_start)
            if self._away is None:
                pause = FIRST_PAUSE_SECONDS
            # What a mere look finds is known already, and less than why it was stopped or cannot be started.
            if may_start or self._away is None or not isinstance(trouble, BrokerUnavailable):
                self._go_away(trouble)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._came.wait(), pause * _chance.uniform(0.5, 1.0))
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def _hear(self, *, start: bool) -> GpuError:
        """Listen until it ends, and say why it did. One that cannot be started is not tried every few seconds."""
        self._came.clear()
        client = self._all.clients.of(self.identity, start=start)
        is_heard = False
        try:
            await client.broker()  # finds it where it is now, or starts it
            async with contextlib.aclosing(client.stream(self._held)) as changes:
                async for change in changes:
                    self._take(change, is_first=not is_heard)
                    is_heard = True
        except GpuError as error:
            # A broker that was there and broke off is wanted back.
            self._may_start |= is_heard
            return error
        except Exception as error:  # noqa: BLE001 - whatever it is, the pages are told and it is tried again
            self._all.log.warning("jupyter_gpu: the stream broke off: %s: %s", type(error).__name__, error)
            self._held = None
            return BrokerUnavailable("The stream of the broker broke off.", hint="The server's log says why.")
        return BrokerUnavailable(
            "The broker was stopped.", hint="It is started again when you reserve or submit, or reload this page."
        )

    def _take(self, change: Change, *, is_first: bool) -> None:
        if change == Change():
            return  # a sign of life
        self._held, self._whole = fold(self._held, change), None
        was_away, self._away = self._away is not None, None
        if is_first and was_away:
            self._all.log.info("jupyter_gpu: the broker is there")
            self.send(_frame(BrokerFrame(state="back")))
        self._all.see(change.changes if change.status is None else change.status.workloads, self.identity)
        if change.status is None:
            # After a break this is all that was missed, what ended meanwhile too.
            self.send(_frame(ChangeFrame(change=change)), is_sample=change.revision is None)
        if is_first or change.status is not None:
            for listener in list(self._listeners.values()):
                listener.begin_anew()
        if change.status is not None or change.revision is not None:
            self._all.look(self._held, self.identity)

    def _go_away(self, trouble: GpuError) -> None:
        away = BrokerFrame(state="away", message=trouble.message, hint=trouble.hint)
        if away == self._away:
            return
        self._all.log.info("jupyter_gpu: %s", trouble.message)
        self._away = away
        self.send(_frame(away))


def _frame(frame: Frame) -> bytes:
    return _encode(frame)


def read_frame(data: str | bytes) -> Any:
    """What a frame says, for those who listen in Python."""
    return _FRAMES.decode(data)


_FRAMES = msgspec.json.Decoder(Frame)
