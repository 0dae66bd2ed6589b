"""The one thread of a kernel that feeds its widgets, from the one stream that the broker offers.

It begins with the first widget that is shown and ends with the last. It only sets traits, which travel as comm messages
of their own, so nothing that it does lands in the output of a cell (jupyter-widgets/ipywidgets#2358). It never prints,
not even where the notebook logs everything to its cells: what our libraries log on this thread is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Coroutine, Iterable
from typing import Any, Protocol

from ..cli.logtext import LogText
from ..cli.picture import numbers
from ..cli.watch import LONGEST_PAUSE_SECONDS
from ..client import AsyncClient
from ..client.following import fold
from ..errors import BrokerUnavailable, GpuError
from ..model import CardView, Change, DeviceView, Status, WorkloadView
from . import drawings
from .drawings import MOST_POINTS, Trace
from .here import find_held, kernel_id

log = logging.getLogger(__name__)

_TALKATIVE = ("httpx", "httpcore.connection", "httpcore.http11", "asyncio", __name__)
_FIRST_PAUSE_SECONDS = 0.5
_TAIL_BYTES = 1 << 14
TAIL_LINES = 8


class Fed(Protocol):
    """What a widget gives the feed to fill."""

    #: The jobs that it shows.
    jobs: tuple[int, ...]

    def draw(self, feed: Feed) -> None:
        """Show what the feed knows now."""


class Feed:
    """What the widgets of one kernel show, and the thread that keeps it fresh."""

    def __init__(self) -> None:
        self.status: Status | None = None
        #: Why there is nothing newer; empty while the broker answers.
        self.note = ""
        self.jobs: dict[int, WorkloadView | None] = {}
        self.logs: dict[int, str] = {}
        self.notes: dict[int, str] = {}
        self._readings: dict[str, tuple[deque[float | None], deque[float | None]]] = {}
        self._members: weakref.WeakSet[Any] = weakref.WeakSet()
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._work: asyncio.Task[None] | None = None
        self._first = threading.Event()
        self._client: AsyncClient | None = None

    # -- who is fed

    def join(self, widget: Fed) -> None:
        """Feed a widget from now on."""
        with self._lock:
            self._members.add(widget)
            if self._thread is None:
                self._first = threading.Event()
                self._thread = threading.Thread(target=self._run, name="jupyter-gpu-widgets", daemon=True)
                self._thread.start()

    def leave(self, widget: Fed) -> None:
        """Feed it no more; the last one lets the thread end."""
        with self._lock:
            self._members.discard(widget)
            if self._members or self._thread is None:
                return
            self._thread = None
            if self._loop is not None and self._work is not None:
                with contextlib.suppress(RuntimeError):  # it has just ended
                    self._loop.call_soon_threadsafe(self._work.cancel)

    def wait_for_first(self, seconds: float, jobs: Iterable[int] = ()) -> None:
        """Wait for the first word of the broker, of these jobs too, so that a saved picture shows something."""
        self._first.wait(seconds)
        for number in jobs:
            loop, client = self._loop, self._client
            if number not in self.jobs and client is not None and loop is not None and loop.is_running():
                asked = asyncio.run_coroutine_threadsafe(self._look_at(number, client, moved=True), loop)
                # It is drawn when it is known; a broker that hangs must not keep the cell.
                with contextlib.suppress(TimeoutError, asyncio.CancelledError):
                    asked.result(seconds)

    def members(self) -> list[Any]:
        """Who is fed now."""
        with self._lock:
            return list(self._members)

    def mine(self) -> WorkloadView | None:
        """What this kernel holds."""
        return None if self.status is None else find_held(self.status.workloads, kernel_id())

    def traces(self) -> dict[str, Trace]:
        """The readings of late."""
        return {uuid: Trace(tuple(memory), tuple(load)) for uuid, (memory, load) in self._readings.items()}

    def numbers(self) -> dict[str, str]:
        """The numbers of the devices, by UUID."""
        return {} if self.status is None else numbers(self.status.devices)

    def cancel(self, job: int) -> None:
        """Cancel a job, for a page that cannot reach its server. Answers in the job's picture."""
        self._soon(self._cancel(job))

    def _soon(self, work: Coroutine[Any, Any, None]) -> None:
        if self._loop is None or not self._loop.is_running():
            work.close()
            return
        asyncio.run_coroutine_threadsafe(work, self._loop)

    # -- the thread

    def _run(self) -> None:
        me = threading.current_thread()

        def is_not_ours(record: logging.LogRecord) -> bool:
            return record.thread != me.ident

        loggers = [logging.getLogger(name) for name in _TALKATIVE]
        for logger in loggers:
            logger.addFilter(is_not_ours)
        try:
            asyncio.run(self._main(me))
        except BaseException:
            log.debug("the feed of the widgets has ended", exc_info=True)
        finally:
            for logger in loggers:
                logger.removeFilter(is_not_ours)

    async def _main(self, me: threading.Thread) -> None:
        with self._lock:
            if self._thread is not me:
                return
            self._loop, self._work = asyncio.get_running_loop(), asyncio.current_task()
        for memory, load in self._readings.values():  # nothing was read since the last widget was closed
            memory.append(None)
            load.append(None)
        pause, is_first = _FIRST_PAUSE_SECONDS, True
        while True:
            # Who looks on starts a broker once, as the other faces do, and not again when somebody has stopped it.
            async with AsyncClient(start=is_first) as client:
                is_first = False
                try:
                    client.find()  # on this thread, which has nothing else to do
                    async for change in client.stream(self.status):
                        self._client = client
                        self.note, pause = "", _FIRST_PAUSE_SECONDS
                        await self._take(change, client)
                        self._show()
                except GpuError as error:
                    self.note = (
                        f"no answer, trying again: {error}" if self.status is None else "no answer, trying again"
                    )
                    log.debug("the broker is away: %s", error)
                self._client = None
            self._show()
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    async def _take(self, change: Change, client: AsyncClient) -> None:
        self.status = fold(self.status, change)
        if change.samples or change.cards or change.status is not None:
            self._note_readings(self.status)
        told = {it.id for it in change.changes}
        for number in {job for it in self.members() for job in it.jobs}:
            await self._look_at(number, client, moved=change.status is not None or number in told)

    def _note_readings(self, status: Status) -> None:
        rows: list[DeviceView | CardView] = [*status.devices, *status.cards]
        for it in rows:
            memory, load = self._readings.setdefault(it.uuid, (deque(maxlen=MOST_POINTS), deque(maxlen=MOST_POINTS)))
            memory.append(drawings.percent_of_memory(it))
            load.append(it.utilisation_percent)

    async def _look_at(self, number: int, client: AsyncClient, *, moved: bool) -> None:
        """Bring a job up to date: itself when something moved, its log while it runs."""
        before = self.jobs.get(number)
        if before is not None and before.end is not None:
            return
        with contextlib.suppress(BrokerUnavailable):
            try:
                if before is None or moved:
                    self.jobs[number] = await client.workload(number)
                now = self.jobs[number]
                if now is not None and now.attempt:
                    self.logs[number] = await _tail(client, number)
                self.notes.pop(number, None)
            except GpuError as error:
                if isinstance(error, BrokerUnavailable):
                    raise
                self.notes[number] = str(error)

    async def _cancel(self, job: int) -> None:
        try:
            if self._client is None:
                raise BrokerUnavailable("No broker answers now.")
            self.jobs[job] = await self._client.cancel(job)
            self.notes.pop(job, None)
        except GpuError as error:
            self.notes[job] = str(error)
        self._show()

    def _show(self) -> None:
        for widget in self.members():
            try:
                widget.draw(self)
            except Exception:
                log.debug("a widget cannot be drawn", exc_info=True)
        self._first.set()


async def _tail(client: AsyncClient, number: int) -> str:
    part = await client.log_part(number, None, -_TAIL_BYTES, _TAIL_BYTES)
    text = LogText(colours=False)
    shown = text.feed(part.data) + text.unfinished
    return "\n".join(shown.rstrip("\n").split("\n")[-TAIL_LINES:])


_feeds: list[Feed] = []


def feed() -> Feed:
    """The feed of this process."""
    if not _feeds:
        _feeds.append(Feed())
    return _feeds[0]


#: A forked child has no such thread, and its widgets are its parent's.
os.register_at_fork(after_in_child=_feeds.clear)
