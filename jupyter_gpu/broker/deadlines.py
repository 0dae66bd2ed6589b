"""When time alone brings something next, so that the loop sleeps until then and no longer."""

from __future__ import annotations

from collections.abc import Iterable

from ..model import World

#: Time alone brings something at most this late.
TICK_SECONDS = 1.0
#: A deadline that is near is met this closely.
LEAST_TICK_SECONDS = 0.02


def until_next_deadline(world: World, now: float) -> float:
    """How many seconds from now; never more than a tick."""
    nearest = min((at for at in _deadlines(world) if at > now), default=now + TICK_SECONDS)
    return min(TICK_SECONDS, max(LEAST_TICK_SECONDS, nearest - now))


def _deadlines(world: World) -> Iterable[float]:
    for it in world.holders():
        lease_ends = () if it.lease is None else (it.lease.ends_at, it.lease.attach_by)
        yield from (at for at in (it.yield_by, *lease_ends) if at is not None)
    for it in world.queued():
        yield from (at for at in (it.not_before, it.back_off_until) if at is not None)
