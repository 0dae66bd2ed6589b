"""What people are told of promises: that their GPUs wait for them, that nobody came, what is in the way."""

from __future__ import annotations

from collections.abc import Iterable

from ..core.in_the_way import warnings_of
from ..model import EndReason, Kind, State, Workload, World
from ..units import format_when
from .alerts import Alert, Alerts

#: So long before its time somebody is reminded of a reservation for later; so long a no-show is told.
REMINDED_SECONDS = 900.0
TOLD_SECONDS = 3600.0
#: Of those that ended last so many are looked at.
LOOKED_AT = 200


def tell_of_promises(alerts: Alerts, world: World, now: float) -> None:
    """Let just those alerts be open that are called for now; offers and reminders are their owner's alone."""
    alerts.settle("offer", {f"offer:{it.id}": _own(it, _offered(world, it, now)) for it in _offers(world)})
    alerts.settle("no-show", {f"no-show:{it.id}": _own(it, _no_show(it)) for it in _no_shows(world, now)})
    alerts.settle("soon", {f"soon:{it.id}": _own(it, _soon(it, now)) for it in _soon_to_begin(world, now)})
    alerts.settle("promise", {f"promise:{id_}": _of_lack(world, id_, text) for id_, text in _lacks(world, now)})


def _own(it: Workload, text: str) -> Alert:
    return Alert(text=text, workload=it.id, users=frozenset({it.owner}), for_operators=False)


def _offers(world: World) -> Iterable[Workload]:
    """Reservations that hold their devices for somebody who has not taken them yet."""
    for it in world.holders():
        waits = it.lease is not None and it.lease.attach_by is not None and it.holder is None
        if it.kind is Kind.RESERVATION and it.state is State.ACTIVE and waits and it.outcome is None:
            yield it


def _offered(world: World, it: Workload, now: float) -> str:
    uuids = it.lease.devices if it.lease is not None else ()
    what = ", ".join(world.devices[uuid].title for uuid in uuids)
    by = format_when(None if it.lease is None else it.lease.attach_by, now)
    return (
        f"{it.title[0].upper()}{it.title[1:]} has {what} for you until {by}, then others get it. "
        f"Take it: `jupyter gpu wait {it.id}` in a shell, `%gpu wait {it.id}` in a notebook."
    )


def _no_shows(world: World, now: float) -> Iterable[Workload]:
    """Those that were passed on lately because nobody came."""
    for id_ in list(world.ended)[-LOOKED_AT:]:
        it = world.workloads[id_]
        is_late = it.kind is Kind.RESERVATION and it.end is EndReason.ABANDONED and it.holder is None
        if is_late and (it.ended_at or 0.0) > now - TOLD_SECONDS:
            yield it


def _no_show(it: Workload) -> str:
    return f"Nobody came for {it.title} in time, so its GPUs went to others. Reserve anew if you need them."


def _soon_to_begin(world: World, now: float) -> Iterable[Workload]:
    for id_ in sorted(world.booked):
        it = world.workloads[id_]
        if now < (it.not_before or 0.0) <= now + REMINDED_SECONDS:
            yield it


def _soon(it: Workload, now: float) -> str:
    begin = format_when(it.not_before, now)
    return (
        f"{it.title[0].upper()}{it.title[1:]} begins at {begin}. If you do not need it: `jupyter gpu cancel {it.id}`."
    )


def _lacks(world: World, now: float) -> Iterable[tuple[int, str]]:
    return sorted(warnings_of(world, now).items())


def _of_lack(world: World, id_: int, text: str) -> Alert:
    """For operators; and for whom a reservation is promised that may not be kept."""
    it = world.workloads.get(id_)
    if it is None:
        return Alert(text=f"{world.holds[id_].title[0].upper()}{world.holds[id_].title[1:]}: {text}")
    return Alert(text=f"{it.title[0].upper()}{it.title[1:]}: {text}", workload=it.id, users=frozenset({it.owner}))
