"""What a caller may see of the world: found or not found, page by page, with others' words left out.

What you may not see answers 404, the same as what does not exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import msgspec

from ...core.contractor import narrow_device, narrow_devices, narrow_status
from ...core.events import (
    Amended,
    Ended,
    Event,
    Evicted,
    Granted,
    Moved,
    Overdue,
    Requeued,
    Started,
    Submitted,
)
from ...core.moment import Moment
from ...core.outlook import Expected
from ...core.sentences import MOST_NAMED
from ...core.status import device_view, device_views, may_see_names, quota_views, status, view
from ...errors import Conflict, LeaseLost, NotFound
from ...model import (
    Caller,
    Dependency,
    Device,
    DevicePage,
    DeviceView,
    EventPage,
    EventView,
    Kind,
    MarkedView,
    QuotaPage,
    Recurring,
    Renewal,
    RenewBody,
    State,
    Status,
    Workload,
    WorkloadPage,
    WorkloadView,
    World,
)  # fmt: skip
from ...units import format_when

if TYPE_CHECKING:
    from ..loop import Loop
    from ..store.store import Record, Store

#: SQLite's largest id.
LARGEST_ID = 2**63 - 1
#: How many rows one page may look through before it is handed out short, with the place to go on from.
MOST_LOOKED_AT = 5_000
#: What moves with time alone, like how much of a budget is left, may be so old.
MOMENT_SECONDS = 0.5
_ROWS = 500


def may_see(world: World, it: Workload, caller: Caller) -> bool:
    """Whether a caller may know of a workload: their own, all where names are public, else what holds devices."""
    if it.owner == caller.name or caller.is_operator:
        return True
    return caller.sees_others and (it.is_live or may_see_names(world, it, caller))


def may_see_recurring(it: Recurring, caller: Caller) -> bool:
    """Whether a caller may know of a recurring job: their own alone."""
    return it.owner == caller.name or caller.is_operator


async def find(loop: Loop, text: str, caller: Caller) -> Workload:
    """A workload by what stands in the path, however long ago it ended."""
    is_number = text.isascii() and text.isdecimal()
    id_ = int(text) if is_number and len(text) < len(str(LARGEST_ID)) else 0
    it = loop.world.workloads.get(id_)
    if it is None and 0 < id_ <= loop.world.last_id:
        it = await loop.read(lambda store: store.workload(id_))
    if it is None or not may_see(loop.world, it, caller):
        calendar = loop.world.recurring.get(id_)
        if calendar is not None and may_see_recurring(calendar, caller):
            acts = f"`jupyter gpu recurring show {id_}`; pause, let-go, fire and remove stand in the place of show"
            raise NotFound(f"{id_} is a recurring job, and no job by itself", hint=f"{acts}.")
        shown = text[:40] if is_number else ascii(text[:40])
        raise NotFound(f"there is no workload {shown}", hint="`jupyter gpu queue --all` lists what you may see.")
    return it


def show(loop: Loop, it: Workload, caller: Caller, expected: Expected | None = None) -> WorkloadView:
    """One workload by itself. `expected` where it was just looked for when it starts."""
    now = loop.now()
    if expected is None and it.state is State.QUEUED:
        known = loop.foreseeing.known(loop)
        expected = None if known is None else known.of(it.id, now)
    found = view(loop.world, it, caller, now, alone=True, expected=expected)
    untold = loop.untold.get(it.id, "") if it.owner == caller.name or caller.is_operator else ""
    return msgspec.structs.replace(found, untold=untold) if untold else found


async def show_with_foresight(loop: Loop, it: Workload, caller: Caller) -> WorkloadView:
    """The same, looked ahead for by itself, with what would let it start sooner if it is the caller's to change."""
    expected, ways = await loop.foreseeing.of_one(loop, it)
    it = loop.world.workloads.get(it.id, it)
    found = show(loop, it, caller, expected)
    may_act = it.owner == caller.name or caller.is_operator
    return msgspec.structs.replace(found, sooner=ways) if ways and may_act and it.state is State.QUEUED else found


def listed(loop: Loop, it: Workload, caller: Caller) -> WorkloadView:
    """One of many workloads: without what only a look at this one needs."""
    return view(loop.world, it, caller, loop.now())


def show_device(loop: Loop, uuid: str, caller: Caller) -> DeviceView:
    """One device with its newest reading."""
    view = device_view(loop.world, loop.world.devices[uuid], caller, loop.now())
    return narrow_device(loop.world, view, caller)


def show_devices(loop: Loop, devices: list[Device], caller: Caller) -> MarkedView:
    """Those that a mark was put on: the first, and beside it the others."""
    first, *others = (show_device(loop, device.uuid, caller) for device in devices)
    return MarkedView(**msgspec.structs.asdict(first), others=tuple(others))


def moment_of(loop: Loop) -> Moment:
    """What documents of now have in common: the same for all who ask or are told until something is decided."""
    kept, now = loop.moment, loop.now()
    if kept is None or kept.world is not loop.world or not kept.now <= now < kept.now + MOMENT_SECONDS:
        kept = loop.moment = Moment(loop.world, now, loop.foreseeing.known(loop))
    return kept


def whole_status(loop: Loop, caller: Caller) -> Status:
    """The one document that every face shows."""
    whole = status(
        loop.world,
        caller,
        loop.now(),
        store_id=loop.store_id,
        simulated=loop.simulated,
        warnings=loop.warnings,
        cards=loop.sights.cards(),
        alerts=loop.alerts.views(caller),
        isolation=loop.sights.isolation(),
        moment=moment_of(loop),
    )
    return narrow_status(loop.world, whole, caller)


def quotas(loop: Loop, caller: Caller) -> QuotaPage:
    """What is left."""
    return QuotaPage(items=quota_views(moment_of(loop), caller))


def devices(loop: Loop, caller: Caller) -> DevicePage:
    """All devices with their newest readings."""
    found = device_views(loop.world, caller, loop.now())
    return DevicePage(items=narrow_devices(loop.world, found, caller))


def renew(loop: Loop, it: Workload, body: RenewBody) -> Renewal:
    """The holder lives; LeaseLost also where the end is so long ago that only the store knows it."""
    if it.id not in loop.world.workloads:
        raise LeaseLost(f"{it.title} is over: {it.end}. {it.detail}".strip())
    return loop.renew(it.id, body.holder_number, busy=body.busy, idle_since=body.idle_since)


def keep(loop: Loop, it: Workload, caller: Caller) -> WorkloadView:
    """Idle time begins anew. What holds nothing, or goes already, cannot be kept."""
    if it.kind is not Kind.RESERVATION:
        raise Conflict(f"{it.title} is a job, which is never given back for idleness.")
    if it.state is State.QUEUED:
        raise Conflict(f"{it.title} waits in line and holds nothing yet.")
    if it.state is not State.ACTIVE or it.outcome is not None:
        raise Conflict(f"{it.title} is over, or must leave already.", hint="Reserve anew.")
    loop.idle.keep(it.id, loop.now())
    return show(loop, it, caller)


Limit = Annotated[int, msgspec.Meta(ge=1, le=500)]
After = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_ID)]


class WorkloadsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which workloads, newest first; `after` is the `next` of the page before."""

    state: State | None = None
    kind: Kind | None = None
    mine: bool = False
    #: Whose, by name; of those that the caller may see.
    owner: str | None = None
    queue: str | None = None
    #: Without those that are over.
    ended: bool = True
    after: After = 0
    limit: Limit = 100


async def page(loop: Loop, wanted: WorkloadsQuery, caller: Caller) -> WorkloadPage:
    """A page of workloads, newest first."""
    if wanted.ended:
        found, last = await loop.read(lambda store: _look(store, loop.world, wanted, caller))
    else:
        found, last = _living(loop.world, wanted, caller)
    now = loop.now()
    return WorkloadPage(items=tuple(view(loop.world, it, caller, now) for it in found), next=last)


def _fits(world: World, it: Workload, wanted: WorkloadsQuery, caller: Caller) -> bool:
    return (
        (wanted.queue is None or it.queue == wanted.queue)
        and (wanted.state is None or it.state is wanted.state)
        and (wanted.kind is None or it.kind is wanted.kind)
        and (not wanted.mine or it.owner == caller.name)
        and (wanted.owner is None or (it.owner == wanted.owner and may_see_names(world, it, caller)))
        and may_see(world, it, caller)
    )


def _living(world: World, wanted: WorkloadsQuery, caller: Caller) -> tuple[list[Workload], int | None]:
    """Those that are not over; the world has all of them."""
    ids = sorted((id_ for id_ in (*world.live, *(key[3] for key in world.line))), reverse=True)
    later = (world.workloads[id_] for id_ in ids if not wanted.after or id_ < wanted.after)
    found = list(islice((it for it in later if _fits(world, it, wanted, caller)), wanted.limit + 1))
    return found[: wanted.limit], found[wanted.limit - 1].id if len(found) > wanted.limit else None


def _look(store: Store, world: World, wanted: WorkloadsQuery, caller: Caller) -> tuple[list[Workload], int | None]:
    """Those that live as well as those that ended, from the store, on its thread."""
    found: list[Workload] = []
    after, left = wanted.after, MOST_LOOKED_AT
    owner = caller.name if wanted.mine or not caller.sees_others else wanted.owner
    while left > 0:
        rows = store.workloads(owner=owner, state=wanted.state, kind=wanted.kind, after=after, limit=_ROWS)
        for it in rows:
            after = it.id
            if _fits(world, it, wanted, caller):
                found.append(it)
            if len(found) == wanted.limit:
                return found, after
        if len(rows) < _ROWS:
            return found, None
        left -= len(rows)
    return found, after


async def events(loop: Loop, it: Workload, caller: Caller, *, after: int, limit: int) -> EventPage:
    """A page of the life of a workload."""
    records = await loop.read(lambda store: store.events_of(it.id, after, limit + 1))
    shown = records[:limit]
    knows_all = it.owner == caller.name or caller.is_operator
    return EventPage(
        items=tuple(event_view(record, knows_all=knows_all) for record in shown),
        next=shown[-1].number if len(records) > limit else None,
    )


def event_view(record: Record, *, knows_all: bool) -> EventView:
    """One event for people; of others' lives only what happened, not the words about it."""
    event = record.event
    return EventView(
        number=record.number,
        at=event.at,
        event=str(event.__struct_config__.tag),
        note=_note(event),
        detail=_detail(event) if knows_all else "",
        by=getattr(event, "by", "") if knows_all else "",
        devices=event.lease.devices if isinstance(event, Granted) else (),
    )


def _note(event: Event) -> str:
    match event:
        case Started():
            return str(event.attempt)
        case Evicted():
            return str(event.reason)
        case Ended():
            return str(event.end)
        case Amended():
            return _change(event)
        case _:
            return ""


def _change(event: Amended) -> str:
    """What was amended, in the words of the verbs that do it."""
    changes = (
        "" if event.paused is None else "paused" if event.paused else "let go",
        "" if event.ends_at is None else f"until {format_when(event.ends_at, event.at)}",
        "" if event.priority is None else f"priority {event.priority}",
        "waited past its limit" if event.lifted else "",
        "" if event.after is None else _chain(event.after),
        "" if event.after is not None or event.unmet is None else _still(event.unmet),
    )
    return ", ".join(filter(None, changes))


def _chain(after: Sequence[Dependency]) -> str:
    """Like "after 12, 13 (success)"."""
    said = ", ".join(f"{it.workload} (success)" if it.ok else str(it.workload) for it in after[:MOST_NAMED])
    more = f" and {len(after) - MOST_NAMED} more" if len(after) > MOST_NAMED else ""
    return f"after {said}{more}" if after else "after nothing"


def _still(unmet: Sequence[int]) -> str:
    more = f" and {len(unmet) - MOST_NAMED} more" if len(unmet) > MOST_NAMED else ""
    still = ", ".join(map(str, unmet[:MOST_NAMED]))
    return f"still after {still}{more}" if unmet else "after nothing more"


def _detail(event: Event) -> str:
    match event:
        case Requeued():
            is_more = event.detail and event.detail != event.cause
            return f"{event.cause}: {event.detail}" if is_more else event.cause
        case Overdue():
            return "the grace is over; ended by force"
        case Moved():
            return f"to the {event.holder.kind} {event.holder.name}"
        case Submitted():  # of what recurs: how late it is
            return event.it.detail
    outcome = getattr(event, "outcome", None)
    return str(getattr(event, "detail", "") or getattr(outcome, "detail", ""))
