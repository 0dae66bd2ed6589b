"""What time alone brings: the loop sleeps until the next of it and no longer, then ticks, and submits what recurs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..model import Rerank, Tick, World

if TYPE_CHECKING:
    from .loop import Loop

log = logging.getLogger(__name__)

#: Time alone brings something at most this late.
TICK_SECONDS = 1.0
#: The ranks of all who wait are made anew this often.
RERANK_SECONDS = 3600
#: A deadline that is near is met this closely.
LEAST_TICK_SECONDS = 0.02
#: After a gap like this between two ticks all renewals are counted anew.
STALL_SECONDS = 15.0
#: So many of what recurs are decided together; whoever else asks is served in between.
TOGETHER = 50


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
    for recurring in world.recurring.values():
        if recurring.next_at is not None and not recurring.paused:
            yield recurring.next_at


async def tick_for_ever(loop: Loop) -> None:
    """Tell the loop that time has passed. What goes wrong at that is told where it arose; time goes on in any case."""
    ticked_at = loop.now()
    while True:
        await asyncio.sleep(until_next_deadline(loop.world, loop.now()))
        before, ticked_at = ticked_at, loop.now()
        if ticked_at > before + STALL_SECONDS:
            loop.count_renewals_anew()
        with contextlib.suppress(Exception):
            if ticked_at // RERANK_SECONDS != before // RERANK_SECONDS:
                await loop.handle(Rerank())
            await loop.handle(Tick())


async def recur_for_ever(loop: Loop) -> None:
    """Submit what comes by a calendar. No tick waits for that: however long a calendar is read, time goes on."""
    looked_at, is_new, told = loop.now(), True, ""
    while True:
        await asyncio.sleep(until_next_deadline(loop.world, loop.now()))
        before, looked_at = looked_at, loop.now()
        # Who awaits what may have changed only while nobody looked, or with the clock.
        is_new = is_new or looked_at < before
        try:
            is_new = not await _let_recur(loop, looked_at, anew=is_new)
            told = ""
        except Exception as error:
            if repr(error) != told:  # once, not each second
                log.exception("cannot look what is due by a calendar")
            told = repr(error)


async def _let_recur(loop: Loop, now: float, *, anew: bool) -> bool:
    """Submit what is due, once for all that was missed; whether all was decided.

    What was not, because the disk is full, is due again at the next tick.
    """
    loop.clockwork.forget(loop.world)
    if not anew and not any(it.next_at is not None and it.next_at <= now for it in loop.world.recurring.values()):
        return True
    # On a thread: after weeks without this machine there is much to count. A world is replaced, never written to.
    commands = await asyncio.to_thread(loop.clockwork.look, loop.world, now, anew=anew)
    commands = [it for it in commands if loop.clockwork.may_come(loop.world, it)]
    answers: list[object] = []
    for begin in range(0, len(commands), TOGETHER):
        some = map(loop.handle, commands[begin : begin + TOGETHER])
        answers += await asyncio.gather(*some, return_exceptions=True)
    return not any(isinstance(answer, Exception) for answer in answers)
