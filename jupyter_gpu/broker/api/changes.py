"""What changed, as one caller may see it: folded into the document that they hold, it gives the document of now."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...core.contractor import narrow_waiting
from ...core.placement import in_order
from ...core.status import line_of, quota_views, view_of
from ...model import Caller, Change, State, Workload, World
from . import views

if TYPE_CHECKING:
    from ..loop import Loop


def change_for(loop: Loop, caller: Caller, revision: int, workloads: Iterable[int], devices: Iterable[str]) -> Change:
    """How these look now, and all that moves with them. `revision` is the last event that they are known for."""
    world, now, moment = loop.world, loop.now(), views.moment_of(loop)
    line = line_of(moment, caller, now)
    changed = {id_: world.workloads[id_] for id_ in (*workloads, *moment.late) if id_ in world.workloads}
    # With a workload changes when its devices are free again.
    uuids = {uuid for it in changed.values() if it.lease is not None for uuid in it.lease.devices}.union(devices)
    changed |= {it.id: it for it in world.holders() if it.owner == caller.name}
    placed = {it.id for it in line.mine}
    heard = (it for id_, it in sorted(changed.items()) if id_ not in placed and _may_hear(world, it, caller))
    return Change(
        revision=revision,
        at=now,
        changes=(*(view_of(moment, it, caller, now, explained=_is_explained(it, caller)) for it in heard), *line.mine),
        devices=tuple(views.show_device(loop, it.uuid, caller) for it in in_order(world) if it.uuid in uuids),
        quotas=quota_views(moment, caller),
        more_of_mine=line.more_of_mine,
        waiting=narrow_waiting(world, line.waiting, caller),
        warnings=loop.warnings,
        alerts=loop.alerts.views(caller),
    )


def _may_hear(world: World, it: Workload, caller: Caller) -> bool:
    if it.owner != caller.name and it.state is State.QUEUED and it.outcome is None and not it.previous_devices:
        return False  # it was in no document yet, and thousands may have been submitted at once
    # Who saw it hold devices must learn that it does no more; what only waited was never theirs to see.
    has_been_seen = caller.sees_others and it.state is State.ENDED and bool(it.previous_devices)
    return has_been_seen or views.may_see(world, it, caller)


def _is_explained(it: Workload, caller: Caller) -> bool:
    # Of what waits only the first are explained, where the line is walked.
    return it.owner == caller.name and it.state is not State.QUEUED
