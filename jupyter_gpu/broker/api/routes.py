"""The doors of the broker: one route table of handlers that only ask the loop. See docs/api.md."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from tornado.web import RequestHandler

from ...errors import InvalidAsk
from ...model import (
    BrokerView,
    Cancel,
    CancelBody,
    Cordon,
    DevicePage,
    DeviceView,
    Drain,
    DryRunView,
    EventPage,
    MarkBody,
    MarkedView,
    Move,
    MoveBody,
    QuotaPage,
    Release,
    ReleaseBody,
    Renewal,
    RenewBody,
    Scope,
    ServerBody,
    ServerView,
    State,
    Status,
    SubmitBody,
    Uncordon,
    Workload,
    WorkloadPage,
    WorkloadView,
)  # fmt: skip
from ..auth import Gate
from ..loop import Loop
from . import views
from .amend import ChainHandler, ExtendHandler, LetGoHandler, PauseHandler, ReprioritiseHandler
from .application import Api
from .base import PREFIX, Base, endpoint
from .bounds import as_reason
from .histories import Attempts, ProgressCurve
from .holds import HoldHandler, Holds
from .log import Log
from .offers import Offers
from .openapi import document
from .past import PastJobs
from .policies import PolicyCheck, PolicyHandler
from .records import Record
from .recurring import RecurringFire, RecurringJob, RecurringJobs, RecurringLetGo, RecurringPause
from .reports import Report
from .servers import hear_server
from .stream import Fanout, Stream
from .submissions import SUBMIT_BYTES, Accepting, AskQuery, Submissions
from .submit import known_holder
from .whole import ONE_OR_ARRAY, STATUSES, ArrayQuery, OfArrays

LONGEST_WAIT_SECONDS = 300


class PageQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which part of a list; `after` is the `next` of the page before."""

    after: views.After = 0
    limit: views.Limit = 100


class WaitQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Until `active`: it holds its devices or is over; `ended`: it is over. Answered at the latest after `timeout`."""

    until: State = State.ACTIVE
    timeout: Annotated[float, msgspec.Meta(ge=0, le=LONGEST_WAIT_SECONDS)] = 30


class StatusHandler(Base):
    """/status."""

    @endpoint(Status, in_turn=True)
    async def get(self) -> Status:
        """Everything that a face shows at once."""
        return views.whole_status(self.loop, self.caller)


#: Of an array it is the first of its workloads.
_SUBMITTED = {202: WorkloadView, 201: WorkloadView, 200: DryRunView}


class Workloads(Accepting):
    """/workloads."""

    @endpoint(WorkloadPage, query=views.WorkloadsQuery, in_turn=True)
    async def get(self, query: views.WorkloadsQuery) -> WorkloadPage:
        """A page of workloads, those that ended too."""
        return await views.page(self.loop, query, self.caller)

    @endpoint(
        _SUBMITTED, scope=None, query=AskQuery, body=SubmitBody, body_bytes=SUBMIT_BYTES, statuses=(202, 201, 200)
    )
    async def post(self, query: AskQuery, body: SubmitBody) -> WorkloadView | DryRunView:
        """Ask for devices: 201 if they are granted at once, 202 if the workload waits; 200 if it is only tried."""
        if query.cron is not None and not query.dry_run:
            raise InvalidAsk("One ask has no calendar.", hint=f"Try it with dry_run=true, or POST {PREFIX}/recurring.")
        if query.dry_run:
            self.set_status(200)
            return await self.would_be(body, query)
        it = await self.accept(await self.check(body, self.request.headers.get("Idempotency-Key"), query.keep))
        self.set_status(201 if it.state is State.ACTIVE else 202)
        self.set_header("Location", self.application.link(self.request, f"{PREFIX}/workloads/{it.id}"))
        return self.show(it)


class One(Base):
    """/workloads/ID."""

    @endpoint(WorkloadView, in_turn=True)
    async def get(self, id_: str) -> WorkloadView:
        """One workload, however long ago it ended; of one that waits also when it may start, and what is sooner."""
        return await views.show_with_foresight(self.loop, await self.find(id_), self.caller)


class Events(Base):
    """/workloads/ID/events."""

    @endpoint(EventPage, query=PageQuery, in_turn=True)
    async def get(self, id_: str, query: PageQuery) -> EventPage:
        """The life of one workload, oldest event first."""
        it = await self.find(id_)
        return await views.events(self.loop, it, self.caller, after=query.after, limit=query.limit)


class Wait(Base):
    """/workloads/ID/wait."""

    @endpoint(WorkloadView, query=WaitQuery)
    async def get(self, id_: str, query: WaitQuery) -> WorkloadView:
        """Answer when the workload is so far, or when the time is over: look at its state."""
        it = await self.find(id_)
        if it.state is State.ENDED:
            return self.show(it)
        return self.show(await self.unless_gone(self.loop.wait_until(it.id, reached(query.until), query.timeout)))


class CancelHandler(OfArrays):
    """/workloads/ID/cancel."""

    @endpoint(ONE_OR_ARRAY, scope=None, query=ArrayQuery, body=CancelBody, statuses=STATUSES)
    async def post(self, id_: str, query: ArrayQuery, body: CancelBody) -> WorkloadView | WorkloadPage:
        """End it, wherever it stands; its owner is told who did it, and the reason. With `array` all of its array."""
        reason = as_reason(body.reason)
        return await self.act_on(
            id_, query, lambda it, by: Cancel(workload=it, by=by, reason=reason), only_waiting=False
        )


class ReleaseHandler(Base):
    """/workloads/ID/release."""

    @endpoint(WorkloadView, scope=None, body=ReleaseBody)
    async def post(self, id_: str, body: ReleaseBody) -> WorkloadView:
        """Give a reservation back. A stale holder number changes nothing."""
        return await self.act(id_, lambda it, by: Release(workload=it, by=by, holder_number=body.holder_number))


class MoveHandler(Base):
    """/workloads/ID/move."""

    @endpoint(WorkloadView, scope=None, body=MoveBody)
    async def post(self, id_: str, body: MoveBody) -> WorkloadView:
        """The lease passes to another holder: one that attaches, or a changed kernel. The answer has its number."""
        holder = await known_holder(body.holder, self.caller)
        return await self.act(id_, lambda it, by: Move(workload=it, by=by, holder=holder))


class RenewHandler(Base):
    """/workloads/ID/renew."""

    only_keeps = True

    @endpoint(Renewal, scope=None, body=RenewBody)
    async def post(self, id_: str, body: RenewBody) -> Renewal:
        """The holder lives. The answer carries any notice; 410 says that the lease is over."""
        it = await self.find(id_)
        self.must_own(it)
        return views.renew(self.loop, it, body)


class KeepHandler(Base):
    """/workloads/ID/keep."""

    @endpoint(WorkloadView, scope=None)
    async def post(self, id_: str) -> WorkloadView:
        """A reservation is wanted although it is idle: the time after which it is given back begins anew."""
        it = await self.find(id_)
        self.must_own(it)
        return views.keep(self.loop, it, self.caller)


class Servers(Base):
    """/servers."""

    @endpoint(ServerView, scope=None, body=ServerBody)
    async def post(self, body: ServerBody) -> ServerView:
        """A hub's spawner says where a server of a user runs, so that what is in it is known to be theirs."""
        self.application.gate.must_be_the_spawner(self.request)
        return await hear_server(self.loop.owners, self.caller, body)


class Devices(Base):
    """/devices."""

    @endpoint(DevicePage, in_turn=True)
    async def get(self) -> DevicePage:
        """All devices with their newest readings."""
        return views.devices(self.loop, self.caller)


class DeviceHandler(Base):
    """/devices/UUID."""

    @endpoint(DeviceView, scope=Scope.OPERATE)
    async def delete(self, name: str) -> DeviceView:
        """A lost device does not come back: it is listed no more. The answer is how it last stood."""
        return await self.forget(name)


class CordonHandler(Base):
    """/devices/UUID/cordon."""

    @endpoint(MarkedView, scope=Scope.OPERATE, body=MarkBody)
    async def post(self, name: str, body: MarkBody) -> MarkedView:
        """No new leases on a device, or on all MIG devices of a GPU."""
        reason = as_reason(body.reason)
        return await self.mark(name, lambda device, by: Cordon(device=device, by=by, reason=reason))


class UncordonHandler(Base):
    """/devices/UUID/uncordon."""

    @endpoint(MarkedView, scope=Scope.OPERATE)
    async def post(self, name: str) -> MarkedView:
        """Leases again, as far as nothing else keeps the device from work; the answer says what does."""
        return await self.mark(name, lambda device, by: Uncordon(device=device, by=by))


class DrainHandler(Base):
    """/devices/UUID/drain."""

    @endpoint(MarkedView, scope=Scope.OPERATE, body=MarkBody)
    async def post(self, name: str, body: MarkBody) -> MarkedView:
        """No new leases, and what runs there yields with grace; its owners are told the reason."""
        reason = as_reason(body.reason)
        return await self.mark(name, lambda device, by: Drain(device=device, by=by, reason=reason))


class Quota(Base):
    """/quota."""

    @endpoint(QuotaPage, in_turn=True)
    async def get(self) -> QuotaPage:
        """Every bound that concerns the caller, and what is left of it."""
        return views.quotas(self.loop, self.caller)


class Broker(Base):
    """/broker."""

    @endpoint(BrokerView)
    async def get(self) -> BrokerView:
        """Which broker answers."""
        return self.loop.broker_view()


class Stop(Base):
    """/broker/stop."""

    @endpoint(BrokerView, scope=Scope.ADMIN, statuses=(202,))
    async def post(self) -> BrokerView:
        """Stop the broker. What runs goes on, and the next broker takes it up."""
        self.loop.on_stop()
        return self.loop.broker_view()


class OpenApi(Base):
    """/openapi.json."""

    @endpoint("application/json", scope=None)
    async def get(self) -> None:
        """This description."""
        self.finish(_description())


ROUTES: list[tuple[str, type[Base]]] = [
    ("/status", StatusHandler),
    ("/workloads", Workloads),
    ("/submissions", Submissions),
    ("/workloads/([^/]+)", One),
    ("/workloads/([^/]+)/events", Events),
    ("/workloads/([^/]+)/attempts", Attempts),
    ("/workloads/([^/]+)/progress", ProgressCurve),
    ("/workloads/([^/]+)/log", Log),
    ("/workloads/([^/]+)/record/([^/]+)", Record),
    ("/workloads/([^/]+)/wait", Wait),
    ("/workloads/([^/]+)/cancel", CancelHandler),
    ("/workloads/([^/]+)/release", ReleaseHandler),
    ("/workloads/([^/]+)/extend", ExtendHandler),
    ("/workloads/([^/]+)/pause", PauseHandler),
    ("/workloads/([^/]+)/let-go", LetGoHandler),
    ("/workloads/([^/]+)/chain", ChainHandler),
    ("/workloads/([^/]+)/move", MoveHandler),
    ("/workloads/([^/]+)/renew", RenewHandler),
    ("/workloads/([^/]+)/keep", KeepHandler),
    ("/workloads/([^/]+)/reprioritise", ReprioritiseHandler),
    ("/recurring", RecurringJobs),
    ("/recurring/([^/]+)", RecurringJob),
    ("/recurring/([^/]+)/pause", RecurringPause),
    ("/recurring/([^/]+)/let-go", RecurringLetGo),
    ("/recurring/([^/]+)/fire", RecurringFire),
    ("/holds", Holds),
    ("/holds/([^/]+)", HoldHandler),
    ("/servers", Servers),
    ("/devices", Devices),
    ("/devices/([^/]+)", DeviceHandler),
    ("/devices/([^/]+)/cordon", CordonHandler),
    ("/devices/([^/]+)/uncordon", UncordonHandler),
    ("/devices/([^/]+)/drain", DrainHandler),
    ("/quota", Quota),
    ("/policy", PolicyHandler),
    ("/policy/check", PolicyCheck),
    ("/report", Report),
    ("/history", PastJobs),
    ("/offers", Offers),
    ("/broker", Broker),
    ("/broker/stop", Stop),
    ("/stream", Stream),
    ("/openapi.json", OpenApi),
]
"""The one route table; below `/api/v1`."""


@functools.cache
def _description() -> str:
    """Made once: it takes as long as twenty other answers, and is always the same."""
    return document(ROUTES)


_ORDER = (State.QUEUED, State.ACTIVE, State.YIELDING, State.ENDED)


def reached(until: State) -> Callable[[Workload], bool]:
    """Whether a workload has come so far. A job that was preempted has not: it is queued again."""
    return lambda it: _ORDER.index(it.state) >= _ORDER.index(until)


def make_application(loop: Loop, gate: Gate, **words: Any) -> Api:
    """The API over a loop that runs, for whom the gate admits; `words` are those of Api: its prefix and its pages."""
    routes: list[tuple[str, type[RequestHandler]]] = [*ROUTES]
    return Api(routes, loop, gate, Fanout(loop), **words)
