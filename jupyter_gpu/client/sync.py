"""Client: asks the broker and waits for the answer."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from .of_jobs import AsksOfJobs
from .sender import BREAK_SECONDS, CONNECT_SECONDS, MOST_BREAKS, Finder, request_of

T = TypeVar("T")


class Client(AsksOfJobs, Finder):
    """Asks and waits. May be used by several threads."""

    _http: httpx.Client | None = None
    _opened_for: Place | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let the connections go."""
        if self._http is not None:
            self._http.close()
            self._http = None

    def _open(self) -> tuple[Place, httpx.Client]:
        place = self.find()
        with self._looking:
            http, old = self._http, None
            if http is None or place is not self._opened_for:
                http, old = httpx.Client(**self.settings(place, httpx.HTTPTransport)), http
                self._http, self._opened_for = http, place
        if old is not None:
            old.close()
        return place, http

    def _send(self, call: Call[T]) -> T:
        answer = self._ask(call)
        return calls.read(call, answer.status_code, answer.headers, answer.content)

    def _ask(self, call: Call[Any]) -> httpx.Response:
        for is_last in (False, True):
            place, http = self._open()
            try:
                return http.request(**request_of(call, place))
            except httpx.HTTPError as error:
                trouble = self.trouble(error, place, is_safe=call.may_repeat, is_last=is_last)
                if trouble is not None:
                    raise trouble from error
        raise AssertionError  # the last one answers or raises

    def forward(self, call: Call[None]) -> Answer:
        """Ask what somebody else has put together, and hand back the answer as it is, a refusal too."""
        answer = self._ask(call)
        return Answer(answer.status_code, answer.headers, answer.content)

    def _listen(self, call: Call[None], *, silence_seconds: float | None) -> Iterator[tuple[Mapping[str, str], bytes]]:
        """The headers, and each part of an answer that goes on for long."""
        place, http = self._open()
        timeout = httpx.Timeout(calls.ANSWER_SECONDS, connect=CONNECT_SECONDS, read=silence_seconds)
        try:
            with http.stream(**(request_of(call, place) | {"timeout": timeout})) as answer:
                if answer.status_code != httpx.codes.OK:
                    answer.read()
                    calls.refuse(answer.status_code, answer.headers, answer.content)
                yield answer.headers, b""
                for part in answer.iter_raw():
                    yield answer.headers, part
        except httpx.HTTPError as error:
            trouble = self.trouble(error, place, is_safe=True, is_last=False)
            raise trouble or BrokerUnavailable(f"The broker at {place} has gone away: {error}.") from error

    # -- see

    def status(self) -> Status:
        """Everything at once: devices, your workloads, your quota, the lines."""
        return self._send(calls.status())

    def workloads(
        self,
        *,
        state: State | str | None = None,
        kind: Kind | str | None = None,
        mine: bool = False,
        owner: str | None = None,
        queue: str | None = None,
        ended: bool = False,
    ) -> Iterator[WorkloadView]:
        """Workloads, newest first, page by page; `ended` has those that are over too."""
        after: int | None = 0
        while after is not None:
            call = calls.workloads(state, kind, mine=mine, owner=owner, queue=queue, ended=ended, after=after)
            page = self._send(call)
            yield from page.items
            after = page.next

    def workload(self, workload_id: int) -> WorkloadView:
        """One workload, however long ago it ended."""
        return self._send(calls.workload(workload_id))

    def events(self, workload_id: int) -> Iterator[EventView]:
        """The life of a workload, oldest event first."""
        after: int | None = 0
        while after is not None:
            page = self._send(calls.events(workload_id, after))
            yield from page.items
            after = page.next

    def log_part(
        self, workload_id: int, attempt: int | None = None, offset: int = 0, limit: int | None = None
    ) -> LogPart:
        """A part of a log, where to go on, and whether more can come."""
        return self._send(calls.log(workload_id, attempt, offset, limit))

    def log(self, workload_id: int, attempt: int | None = None, offset: int = 0) -> bytes:
        """The log as it is now, byte for byte; of the newest attempt unless another is named."""
        part = self.log_part(workload_id, attempt, offset)
        parts = [part.data]
        while part.data and not part.is_complete:
            part = self.log_part(workload_id, part.attempt, part.next_offset)
            parts.append(part.data)
        return b"".join(parts)

    def follow_log(self, workload_id: int, attempt: int | None = None, offset: int = 0) -> Iterator[bytes]:
        """The log as it grows, until its attempt has ended; taken up again where the connection broke."""
        if offset < 0:
            part = self.log_part(workload_id, attempt, offset)
            attempt, offset = part.attempt, part.next_offset
            yield part.data
        breaks = 0
        while True:
            try:
                for said, data in self._listen(calls.follow_log(workload_id, attempt, offset), silence_seconds=None):
                    attempt = int(said["X-Attempt"])
                    if data:
                        breaks, offset = 0, offset + len(data)
                        yield data
            except BrokerUnavailable:
                breaks += 1
                if breaks > MOST_BREAKS:
                    raise
                time.sleep(BREAK_SECONDS)
            else:
                return

    def stream(self, held: Status | None = None) -> Iterator[Change]:
        """What changes, to be folded into the document you hold; without one, or too old a one, first a whole status.

        BrokerUnavailable when the broker has gone away.
        """
        rest = b""
        for _, data in self._listen(calls.stream(held), silence_seconds=calls.SILENCE_SECONDS):
            *lines, rest = (rest + data).split(b"\n")
            yield from map(calls.change, filter(None, lines))

    def follow_status(self, held: Status | None = None) -> Iterator[Status]:
        """The whole document as it changes, first as it is now; taken up again where the connection broke.

        BrokerUnavailable when the broker has stopped.
        """
        breaks, has_stopped = 0, False
        while True:
            try:
                for change in self.stream(held):
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
            time.sleep(BREAK_SECONDS)

    def devices(self) -> DevicePage:
        """All devices with their newest readings."""
        return self._send(calls.devices())

    def quota(self) -> QuotaPage:
        """Every bound that concerns you, and what is left."""
        return self._send(calls.quota())

    def offers(self, team: str | None = None, *, profile: str | None = None, trial: bool = True) -> OfferPage:
        """Your profiles, or the one of a name, and what asking by each would come to now; or only what is yours."""
        return self._send(calls.offers(team, profile=profile, trial=trial))

    def broker(self) -> BrokerView:
        """Which broker answers."""
        return self._send(calls.broker())

    # -- ask

    def submit(self, body: SubmitBody, idempotency_key: str | None = None, *, keep: Iterable[str] = ()) -> WorkloadView:
        """Ask for devices. `keep` names variables that pass although they look like secrets (`environment.select`)."""
        return self._send(calls.submit(body, idempotency_key, keep))

    def submit_many(
        self, bodies: Sequence[SubmitBody], idempotency_key: str | None = None, *, keep: Iterable[str] = ()
    ) -> list[Submitted]:
        """Ask for many at once: for each, in their order, the workload or the error that it is refused with.

        One that is refused keeps no other back. The same key again submits nothing twice.
        """
        key = idempotency_key or uuid4().hex
        return [it for call in calls.submit_many(bodies, key, tuple(keep)) for it in self._send(call)]

    def wait(
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
            it = self._send(calls.wait(workload_id, until, left))
            if calls.is_reached(it, until):
                return it
            if left <= calls.WAIT_STEP_SECONDS:
                if raise_on_timeout:
                    raise calls.timed_out(it, until)
                return it

    def cancel(self, workload_id: int, reason: str = "") -> WorkloadView:
        """End it, wherever it stands. An operator tells its owner the reason."""
        return self._send(calls.cancel(workload_id, reason))

    def release(self, workload_id: int, holder_number: int | None = None) -> WorkloadView:
        """Give a reservation back."""
        return self._send(calls.release(workload_id, holder_number))

    def extend(self, workload_id: int, seconds: int) -> WorkloadView:
        """Buy more time; the answer states the new end."""
        return self._send(calls.extend(workload_id, seconds))

    def pause(self, workload_id: int) -> WorkloadView:
        """A queued workload must not start yet."""
        return self._send(calls.pause(workload_id))

    def let_go(self, workload_id: int) -> WorkloadView:
        """A paused workload may start."""
        return self._send(calls.let_go(workload_id))

    def move(self, workload_id: int, holder: Holder) -> WorkloadView:
        """Pass the lease to another holder; the answer has its number."""
        return self._send(calls.move(workload_id, holder))

    def tell_server(self, body: ServerBody) -> ServerView:
        """Say where a server of the user runs: for a hub's spawner alone."""
        return self._send(servers.tell_server(body))

    def keep(self, workload_id: int) -> WorkloadView:
        """An idle reservation is wanted: the time after which it is given back begins anew."""
        return self._send(calls.keep(workload_id))

    def renew(
        self, workload_id: int, holder_number: int, *, busy: bool | None = None, idle_since: float | None = None
    ) -> Renewal:
        """The holder lives, and says whether it computes where it can; the answer carries any notice."""
        return self._send(calls.renew(workload_id, holder_number, busy=busy, idle_since=idle_since))

    # -- operate

    def reprioritise(self, workload_id: int, priority: int) -> WorkloadView:
        """Move a queued workload to another priority."""
        return self._send(calls.reprioritise(workload_id, priority))

    def cordon(self, device: str, reason: str = "") -> MarkedView:
        """No new leases on a device, named by UUID or number; of a GPU in MIG mode on all its MIG devices."""
        return self._send(calls.on_device(device, "cordon", reason))

    def uncordon(self, device: str) -> MarkedView:
        """Leases again, unless something else keeps it from work, which the answer shows."""
        return self._send(calls.on_device(device, "uncordon"))

    def drain(self, device: str, reason: str = "") -> MarkedView:
        """Cordon, then ask what runs there to yield; its owners are told the reason."""
        return self._send(calls.on_device(device, "drain", reason))

    def forget(self, device: str) -> DeviceView:
        """A lost device does not come back: list it no more. The answer is how it last stood."""
        return self._send(calls.forget(device))

    def stop_broker(self) -> BrokerView:
        """Stop the broker; what runs goes on."""
        return self._send(calls.stop_broker())
