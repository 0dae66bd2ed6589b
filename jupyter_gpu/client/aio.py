"""AsyncClient: as Client, for code that runs on an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import uuid4

import httpx

from ..errors import BrokerUnavailable
from ..model import (
    BrokerView,
    Change,
    DevicePage,
    DeviceView,
    EventView,
    Holder,
    Kind,
    MarkedView,
    OfferPage,
    QuotaPage,
    Renewal,
    ServerBody,
    ServerView,
    State,
    Status,
    SubmitBody,
    WorkloadView,
)  # fmt: skip
from . import calls, servers
from .calls import Answer, Call, LogPart, Submitted
from .find import Place
from .following import fold
from .of_jobs_async import AsksOfJobsAsync
from .sender import BREAK_SECONDS, CONNECT_SECONDS, MOST_BREAKS, Finder, request_of

T = TypeVar("T")


class AsyncClient(AsksOfJobsAsync, Finder):
    """Asks without blocking the event loop it is used on."""

    _http: httpx.AsyncClient | None = None
    _opened_for: Place | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let the connections go."""
        http, self._http = self._http, None  # who asks meanwhile opens a new one
        if http is not None:
            await http.aclose()

    async def _open(self) -> tuple[Place, httpx.AsyncClient]:
        place = self.place
        if place is None:  # on a thread: to start a broker takes seconds
            place = await asyncio.to_thread(self.find)
        http, old = self._http, None
        if http is None or place is not self._opened_for:
            http, old = httpx.AsyncClient(**self.settings(place, httpx.AsyncHTTPTransport)), http
            self._http, self._opened_for = http, place
        if old is not None:
            await old.aclose()
        return place, http

    async def _send(self, call: Call[T]) -> T:
        answer = await self._ask(call)
        return calls.read(call, answer.status_code, answer.headers, answer.content)

    async def _ask(self, call: Call[Any]) -> httpx.Response:
        for is_last in (False, True):
            place, http = await self._open()
            try:
                return await http.request(**request_of(call, place, waits=False))
            except httpx.HTTPError as error:
                trouble = self.trouble(error, place, is_safe=call.may_repeat, is_last=is_last)
                if trouble is not None:
                    raise trouble from error
        raise AssertionError  # the last one answers or raises

    async def forward(self, call: Call[None]) -> Answer:
        """Ask what somebody else has put together, and hand back the answer as it is, a refusal too."""
        answer = await self._ask(call)
        return Answer(answer.status_code, answer.headers, answer.content)

    async def _listen(
        self, call: Call[None], *, silence_seconds: float | None
    ) -> AsyncGenerator[tuple[Mapping[str, str], bytes], None]:
        """The headers, and each part of an answer that goes on for long."""
        place, http = await self._open()
        timeout = httpx.Timeout(calls.ANSWER_SECONDS, connect=CONNECT_SECONDS, read=silence_seconds)
        try:
            async with http.stream(**(request_of(call, place, waits=False) | {"timeout": timeout})) as answer:
                if answer.status_code != httpx.codes.OK:
                    await answer.aread()
                    calls.refuse(answer.status_code, answer.headers, answer.content)
                yield answer.headers, b""
                async for part in answer.aiter_raw():
                    yield answer.headers, part
        except httpx.HTTPError as error:
            trouble = self.trouble(error, place, is_safe=True, is_last=False)
            raise trouble or BrokerUnavailable(f"The broker at {place} has gone away: {error}.") from error

    # -- see

    async def status(self) -> Status:
        """Everything at once: devices, your workloads, your quota, the lines."""
        return await self._send(calls.status())

    async def workloads(
        self,
        *,
        state: State | str | None = None,
        kind: Kind | str | None = None,
        mine: bool = False,
        owner: str | None = None,
        queue: str | None = None,
        ended: bool = False,
    ) -> AsyncIterator[WorkloadView]:
        """Workloads, newest first, page by page; `ended` has those that are over too."""
        after: int | None = 0
        while after is not None:
            call = calls.workloads(state, kind, mine=mine, owner=owner, queue=queue, ended=ended, after=after)
            page = await self._send(call)
            for it in page.items:
                yield it
            after = page.next

    async def workload(self, workload_id: int) -> WorkloadView:
        """One workload, however long ago it ended."""
        return await self._send(calls.workload(workload_id))

    async def events(self, workload_id: int) -> AsyncIterator[EventView]:
        """The life of a workload, oldest event first."""
        after: int | None = 0
        while after is not None:
            page = await self._send(calls.events(workload_id, after))
            for it in page.items:
                yield it
            after = page.next

    async def log_part(
        self, workload_id: int, attempt: int | None = None, offset: int = 0, limit: int | None = None
    ) -> LogPart:
        """A part of a log, where to go on, and whether more can come."""
        return await self._send(calls.log(workload_id, attempt, offset, limit))

    async def log(self, workload_id: int, attempt: int | None = None, offset: int = 0) -> bytes:
        """The log as it is now, byte for byte; of the newest attempt unless another is named."""
        part = await self.log_part(workload_id, attempt, offset)
        parts = [part.data]
        while part.data and not part.is_complete:
            part = await self.log_part(workload_id, part.attempt, part.next_offset)
            parts.append(part.data)
        return b"".join(parts)

    async def follow_log(self, workload_id: int, attempt: int | None = None, offset: int = 0) -> AsyncIterator[bytes]:
        """The log as it grows, until its attempt has ended; taken up again where the connection broke."""
        if offset < 0:
            part = await self.log_part(workload_id, attempt, offset)
            attempt, offset = part.attempt, part.next_offset
            yield part.data
        breaks = 0
        while True:
            try:
                async for said, data in self._listen(
                    calls.follow_log(workload_id, attempt, offset), silence_seconds=None
                ):
                    attempt = int(said["X-Attempt"])
                    if data:
                        breaks, offset = 0, offset + len(data)
                        yield data
            except BrokerUnavailable:
                breaks += 1
                if breaks > MOST_BREAKS:
                    raise
                await asyncio.sleep(BREAK_SECONDS)
            else:
                return

    async def stream(self, held: Status | None = None) -> AsyncGenerator[Change, None]:
        """What changes, to be folded into the document you hold; without one, or too old a one, first a whole status.

        BrokerUnavailable when the broker has gone away.
        """
        rest = b""
        listening = self._listen(calls.stream(held), silence_seconds=calls.SILENCE_SECONDS)
        async with contextlib.aclosing(listening) as parts:  # who stops listening lets the connection go at once
            async for _, data in parts:
                *lines, rest = (rest + data).split(b"\n")
                for line in filter(None, lines):
                    yield calls.change(line)

    async def follow_status(self, held: Status | None = None) -> AsyncGenerator[Status, None]:
        """The whole document as it changes, first as it is now; taken up again where the connection broke.

        BrokerUnavailable when the broker has stopped.
        """
        breaks, has_stopped = 0, False
        while True:
            try:
                async with contextlib.aclosing(self.stream(held)) as changes:
                    async for change in changes:
                        before, held = held, fold(held, change)
                        breaks, has_stopped = 0, False
                        if held is not before:
                            yield held
            except BrokerUnavailable:
                breaks += 1
                # Whoever stops a broker does not want it started again by those who look on.
                if has_stopped or breaks > MOST_BREAKS:
                    raise
            else:
                has_stopped = True
            await asyncio.sleep(BREAK_SECONDS)

    async def devices(self) -> DevicePage:
        """All devices with their newest readings."""
        return await self._send(calls.devices())

    async def quota(self) -> QuotaPage:
        """Every bound that concerns you, and what is left."""
        return await self._send(calls.quota())

    async def offers(self, team: str | None = None, *, profile: str | None = None, trial: bool = True) -> OfferPage:
        """Your profiles, or the one of a name, and what asking by each would come to now; or only what is yours."""
        return await self._send(calls.offers(team, profile=profile, trial=trial))

    async def broker(self) -> BrokerView:
        """Which broker answers."""
        return await self._send(calls.broker())

    # -- ask

    async def submit(
        self, body: SubmitBody, idempotency_key: str | None = None, *, keep: Iterable[str] = ()
    ) -> WorkloadView:
        """Ask for devices. `keep` names variables that pass although they look like secrets (`environment.select`)."""
        return await self._send(calls.submit(body, idempotency_key, keep))

    async def submit_many(
        self, bodies: Sequence[SubmitBody], idempotency_key: str | None = None, *, keep: Iterable[str] = ()
    ) -> list[Submitted]:
        """Ask for many at once: for each, in their order, the workload or the error that it is refused with.

        One that is refused keeps no other back. The same key again submits nothing twice.
        """
        key = idempotency_key or uuid4().hex
        return [it for call in calls.submit_many(bodies, key, tuple(keep)) for it in await self._send(call)]

    async def wait(
        self,
        workload_id: int,
        until: str = "ended",
        timeout_seconds: float | None = None,
        *,
        raise_on_timeout: bool = True,
    ) -> WorkloadView:
        """Wait until it is `active` (or over) or `ended`. WaitTimeout says its place and why, when the time is over."""
        deadline = time.monotonic() + (float("inf") if timeout_seconds is None else timeout_seconds)
        while True:
            left = deadline - time.monotonic()
            it = await self._send(calls.wait(workload_id, until, left))
            if calls.is_reached(it, until):
                return it
            if left <= calls.WAIT_STEP_SECONDS:
                if raise_on_timeout:
                    raise calls.timed_out(it, until)
                return it

    async def cancel(self, workload_id: int, reason: str = "") -> WorkloadView:
        """End it, wherever it stands. An operator tells its owner the reason."""
        return await self._send(calls.cancel(workload_id, reason))

    async def release(self, workload_id: int, holder_number: int | None = None) -> WorkloadView:
        """Give a reservation back."""
        return await self._send(calls.release(workload_id, holder_number))

    async def extend(self, workload_id: int, seconds: int) -> WorkloadView:
        """Buy more time; the answer states the new end."""
        return await self._send(calls.extend(workload_id, seconds))

    async def pause(self, workload_id: int) -> WorkloadView:
        """A queued workload must not start yet."""
        return await self._send(calls.pause(workload_id))

    async def let_go(self, workload_id: int) -> WorkloadView:
        """A paused workload may start."""
        return await self._send(calls.let_go(workload_id))

    async def move(self, workload_id: int, holder: Holder) -> WorkloadView:
        """Pass the lease to another holder; the answer has its number."""
        return await self._send(calls.move(workload_id, holder))

    async def tell_server(self, body: ServerBody) -> ServerView:
        """Say where a server of the user runs: for a hub's spawner alone."""
        return await self._send(servers.tell_server(body))

    async def keep(self, workload_id: int) -> WorkloadView:
        """An idle reservation is wanted: the time after which it is given back begins anew."""
        return await self._send(calls.keep(workload_id))

    async def renew(
        self, workload_id: int, holder_number: int, *, busy: bool | None = None, idle_since: float | None = None
    ) -> Renewal:
        """The holder lives, and says whether it computes where it can; the answer carries any notice."""
        return await self._send(calls.renew(workload_id, holder_number, busy=busy, idle_since=idle_since))

    # -- operate

    async def reprioritise(self, workload_id: int, priority: int) -> WorkloadView:
        """Move a queued workload to another priority."""
        return await self._send(calls.reprioritise(workload_id, priority))

    async def cordon(self, device: str, reason: str = "") -> MarkedView:
        """No new leases on a device, named by UUID or number; of a GPU in MIG mode on all its MIG devices."""
        return await self._send(calls.on_device(device, "cordon", reason))

    async def uncordon(self, device: str) -> MarkedView:
        """Leases again, unless something else keeps it from work, which the answer shows."""
        return await self._send(calls.on_device(device, "uncordon"))

    async def drain(self, device: str, reason: str = "") -> MarkedView:
        """Cordon, then ask what runs there to yield; its owners are told the reason."""
        return await self._send(calls.on_device(device, "drain", reason))

    async def forget(self, device: str) -> DeviceView:
        """A lost device does not come back: list it no more. The answer is how it last stood."""
        return await self._send(calls.forget(device))

    async def stop_broker(self) -> BrokerView:
        """Stop the broker; what runs goes on."""
        return await self._send(calls.stop_broker())
