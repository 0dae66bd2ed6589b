"""What an ask would come to now: it is decided on a copy of the world, which is then thrown away.

So what is said is what the broker would do, quota, line and preemption with it. A refusal is the refusal itself.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from ..model import Caller, DryRunView, State, Submit, Workload, World
from .decide import decide
from .events import Evicted, Submitted
from .lifecycle import fold
from .moment import Moment
from .status import quota_views_of, view

#: Of an array so many are tried: the rest would be told the same as the last of these.
TRIED = 500


class WouldBe(NamedTuple):
    """A world in which it was asked for: what came of it, in the order of its ids, and whom it would make yield."""

    world: World
    its: tuple[Workload, ...]
    evicts: tuple[int, ...]


def would_be(world: World, command: Submit, now: float) -> WouldBe:
    """Ask in a copy of the world. Its idempotency key is not looked at: it is what would come of a first ask."""
    events = decide(world, msgspec.structs.replace(command, idempotency_key=None, tried=TRIED), now)
    after = fold(world.copy(), events)
    its = tuple(after.workloads[event.it.id] for event in events if isinstance(event, Submitted))
    ids = {it.id for it in its}
    evicts = tuple(event.workload for event in events if isinstance(event, Evicted) and event.evicted_for in ids)
    return WouldBe(after, its, evicts)


def dry_run(world: World, command: Submit, caller: Caller, now: float) -> DryRunView:
    """What would become of an ask, for its asker. Of others' work they are told which, where they may see any."""
    found = would_be(world, command, now)
    first = found.its[0]
    shown = view(found.world, first, caller, now, alone=True)
    if first.state is State.QUEUED:
        # Without what can be done about it, which names a number that nothing has.
        said = "It would be paused, and wait until it is let go." if first.paused else shown.why
        shown = msgspec.structs.replace(shown, reason=said, why=said)
    later = next((it for it in found.its[1:] if it.state is State.QUEUED), None)
    others = view(found.world, later, caller, now, alone=True).why if later and first.state is State.ACTIVE else ""
    mine = {it.id for it in world.holders() if it.owner == caller.name}
    return DryRunView(
        workload=shown,
        jobs=max(1, len(command.array)),
        starts_now=_starting(found.its, command),
        others_wait=others,
        evicts=tuple(id_ for id_ in found.evicts if caller.sees_others or id_ in mine),
        quotas=quota_views_of(Moment(found.world, now), first),
    )


def _starting(tried: tuple[Workload, ...], command: Submit) -> int:
    """How many would start at once: those without a GPU all, where all that were tried would."""
    starting = sum(1 for it in tried if it.state is State.ACTIVE)
    return len(command.array) if starting == TRIED and not tried[0].ask.devices else starting
