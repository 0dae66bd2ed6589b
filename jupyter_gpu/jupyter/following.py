"""The life of one kernel's reservation, as its Jupyter server follows it: the wait, the grant, the notice, the end.

One task for each reservation. It renews, so that a container's kernel, which the broker cannot see, keeps its lease; it
names the kernel's process anew where the broker was away at a restart; and it takes the devices away before the broker
has to. Whatever of this is late or lost, the broker sees the processes and has the last word.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from ..errors import LeaseLost, NotFound
from ..model import EndReason, EvictionReason, Policy, State, WorkloadView
from ..out_of_reach import HINT, why_in_vain
from .keeper import Keeper, Kept
from .standing import word_of

#: How often is renewed where the broker gives the time that ships.
RENEW_SECONDS = float(Policy().renew_seconds)
#: Of the time to the next lapse so much is let pass: several renewals may be lost.
RENEW_PART = 0.22
#: So long before the broker would end the kernel its restart begins, or a part of a short grace: a page is asked first.
AHEAD_SECONDS, AHEAD_PART = 10.0, 0.3
#: How soon a pin that waits for a busy kernel is tried again.
AGAIN_SECONDS = 1.0
#: What is told is over soon after somebody has mended it, or said to keep what is idle.
TOLD_SECONDS = 3.0
#: A kernel that does not answer is asked so often, as long as it may be a cell that keeps it.
ASKED_TIMES = 5

ENDED = {
    EvictionReason.EXPIRED: "its time was over",
    EvictionReason.DRAINED: "its GPU is taken out of service",
    EvictionReason.DEVICE_LOST: "its GPU was lost",
    EvictionReason.IDLE: "its GPU was idle",
    EvictionReason.PREEMPTED: "others needed its GPU",
}


class Hands(Protocol):
    """What can be done to a running kernel; the server's part."""

    async def pin_live(self, kept: Kept) -> bool:
        """Pin it without a restart, where that is possible now."""

    async def unpin(self, kept: Kept, why: str) -> None:
        """Let it see nothing, by a restart where it must be."""

    async def let_go(self, kept: Kept) -> bool | None:
        """Whether it sees nothing now, without a restart; None where it is too busy to say."""

    def is_idle(self, kept: Kept) -> bool:
        """Whether it computes nothing."""

    def changed(self) -> None:
        """Tell the listeners."""


class Following:
    """One reservation of one kernel."""

    def __init__(self, keeper: Keeper, hands: Hands, kept: Kept, *, attach_seconds: float) -> None:
        self._keeper, self._hands, self._kept = keeper, hands, kept
        self._attach_seconds = attach_seconds
        self._granted_at: float | None = None
        self._renew_in = RENEW_SECONDS
        #: When the devices are taken away, once a notice has come.
        self._due_at: float | None = None
        self._trouble = ""
        #: Whether the last renewal told something.
        self._was_told = False

    async def run(self) -> None:
        """Follow it to its end."""
        while (it := self._kept.lease) is not None and not self._keeper.closing:
            try:
                if is_over(it):
                    await self._is_over(it)
                    continue
                await self._step_or_look_again(it)
                self._trouble = ""
            except Exception as error:  # noqa: BLE001 - whatever it is, the reservation is followed on
                self._say(error)
                await self._pause(self._renew_in)

    def _say(self, error: Exception) -> None:
        """Say what went wrong, once: a broker that is away is so for long."""
        trouble = str(error) or type(error).__name__
        if trouble != self._trouble:
            self._keeper.log.warning("Kernel %s: %s", self._kept.kernel_id, trouble)
            self._keeper.log.debug("Kernel %s", self._kept.kernel_id, exc_info=error)
        self._trouble = trouble

    async def _step_or_look_again(self, it: WorkloadView) -> None:
        try:
            await self._step(it)
        except (LeaseLost, NotFound):
            await self._look_again(it)

    async def _step(self, it: WorkloadView) -> None:
        await self._keeper.move(self._kept)
        await self._renew(it)
        if it.state is State.QUEUED:
            await self._wait_in_line(it)
        elif await self._is_given_up(it):
            return
        elif self._is_due(it):
            await self._give_back(it, self._why())
        else:
            await self._pause(self._seconds())

    # -- in line

    async def _wait_in_line(self, it: WorkloadView) -> None:
        async with self._keeper.asking(self._kept) as client:
            seen = await client.wait(it.id, "active", self._renew_in, raise_on_timeout=False)
        if self._kept.lease is not None and self._kept.lease.id == seen.id:
            self._kept.lease = seen
        self._hands.changed()

    # -- held

    async def _is_given_up(self, it: WorkloadView) -> bool:
        """Pin what was granted. What cannot be opened here, or nobody takes in time, goes back: nobody could use it."""
        kept = self._kept
        if self._granted_at is None:
            self._granted_at = time.monotonic()
            async with self._keeper.asking(kept) as client:
                in_vain = await why_in_vain(client, it)
            if in_vain:
                await self._give_back(it, f"{in_vain[0].lower()}{in_vain[1:]} {HINT}".rstrip("."))
                return True
            self._hands.changed()
        if kept.is_pinned or it.state is not State.ACTIVE:
            return False
        if await self._hands.pin_live(kept):
            self._hands.changed()
            return False
        if time.monotonic() < self._granted_at + self._attach_seconds:
            return False
        await self._give_back(it, "nobody restarted the kernel to use it")
        return True

    async def _renew(self, it: WorkloadView) -> None:
        kept = self._kept
        number = 1 if kept.lease is None or kept.lease.holder is None else kept.lease.holder.number
        async with self._keeper.asking(kept) as client:
            renewal = await client.renew(it.id, number, **word_of(kept, kept.manager))
        self._renew_in = min(RENEW_SECONDS, max(0.2, (renewal.renew_by - time.time()) * RENEW_PART))
        if renewal.notice is not None and kept.notice is None:
            async with self._keeper.asking(kept) as client:
                kept.lease = await client.workload(it.id)
        # What holds but for a moment is nothing to tell, as with alerts.
        told = renewal.told if self._was_told else ""
        self._was_told = bool(renewal.told)
        if (renewal.notice, told) != (kept.notice, kept.told):
            if told and not kept.told:  # figures in it may change from one renewal to the next
                self._keeper.log.warning("Kernel %s: %s", kept.kernel_id, told)
            kept.notice, kept.told = renewal.notice, told
            self._hands.changed()

    def _why(self) -> str:
        notice = self._kept.notice
        reason = EvictionReason.EXPIRED if notice is None else notice.reason
        why = ENDED.get(reason, f"it had to end ({reason})")
        if notice is not None and reason is EvictionReason.DRAINED and notice.detail:
            return f"{why} ({notice.detail})"  # who drained it, and what they said why
        return why

    def _is_due(self, it: WorkloadView) -> bool:
        """Whether the devices go back now: shortly before the end of the grace, or when the kernel has left them."""
        notice = self._kept.notice
        if notice is None:
            self._due_at = None
            return False
        left = notice.yield_by - time.time()
        if self._due_at is None or notice.yield_by < self._due_at:
            self._due_at = notice.yield_by - min(AHEAD_SECONDS, max(0.0, AHEAD_PART * left))
        return time.time() >= self._due_at or self._kept.pinned_by != it.id

    def _seconds(self) -> float:
        """How long nothing is to be done."""
        kept, due = self._kept, min(self._renew_in, TOLD_SECONDS) if self._was_told else self._renew_in
        if self._due_at is not None:
            due = min(due, max(0.05, self._due_at - time.time()))
        if not kept.is_pinned and self._granted_at is not None:
            due = min(due, max(0.05, self._granted_at + self._attach_seconds - time.monotonic()))
            if kept.restart_needed is None:
                due = min(due, AGAIN_SECONDS)
        return due

    # -- the end

    async def _give_back(self, it: WorkloadView, why: str) -> None:
        """Let the kernel go on without its devices, then give them back."""
        await self._hands.unpin(self._kept, f"Its reservation is given back: {why}.")
        async with self._keeper.asking(self._kept) as client:
            await client.release(it.id)
        self._over(it, f"reservation {it.id} was given back: {why}")

    async def _is_over(self, it: WorkloadView) -> None:
        is_given_back = _end(it) in (EndReason.RELEASED, None)
        why = f"reservation {it.id} is over: {it.detail or ('it was given back' if is_given_back else _end(it))}"
        if is_given_back and await self._has_let_go(it):
            self._over(it, why)
        elif self._is_about(it):
            await self._taken(it, why)
        self._granted_at = self._due_at = None  # there may be the next one already

    async def _has_let_go(self, it: WorkloadView) -> bool:
        """Its owner gave it back: the kernel itself, it may be, which then sees nothing when its cell has ended."""
        asked = 0
        while self._is_about(it) and not self._keeper.closing and asked < ASKED_TIMES:
            said = await self._hands.let_go(self._kept)
            if said is not None:
                return said
            asked += self._hands.is_idle(self._kept)
            await self._pause(AGAIN_SECONDS)
        return False

    async def _taken(self, it: WorkloadView, why: str) -> None:
        """It is over already: what the process still sees is nobody's."""
        await self._hands.unpin(self._kept, f"{why[0].upper()}{why[1:]}.")
        self._over(it, why)

    def _is_about(self, it: WorkloadView) -> bool:
        """Whether it is the one that is followed still."""
        return self._kept.lease is not None and self._kept.lease.id == it.id

    def _over(self, it: WorkloadView, why: str) -> None:
        kept = self._kept
        kept.leaving = False
        if kept.lease is None or kept.lease.id == it.id:  # else a next one is held, which this says nothing of
            kept.lease = kept.notice = kept.restart_needed = None
            kept.reason, kept.told = why, ""
        self._hands.changed()

    async def _look_again(self, it: WorkloadView) -> None:
        """The broker says that it is another's, over, or unknown: see how it stands."""
        kept = self._kept
        try:
            async with self._keeper.asking(kept) as client:
                seen = await client.workload(it.id)
        except NotFound:
            await self._taken(it, f"the broker does not know reservation {it.id} any more")
            return
        if not self._is_about(it):
            return
        kept.lease = seen
        if seen.end is None and seen.holder is not None and seen.holder.name != kept.kernel_id:
            await self._taken(it, f"reservation {it.id} has moved to another kernel")

    async def _pause(self, seconds: float) -> None:
        self._kept.heard.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._kept.heard.wait(), seconds)


def is_over(it: WorkloadView) -> bool:
    """Whether nothing may be used of it any more, although its devices may have to be cleared yet."""
    return it.end is not None or (it.state is State.YIELDING and it.outcome is not None)


def _end(it: WorkloadView) -> EndReason | None:
    return it.end if it.outcome is None else it.outcome.end


def in_background(tasks: set[asyncio.Task[Any]], work: Awaitable[Any], failed: Callable[[BaseException], None]) -> None:
    """Let work go on by itself; what fails of it is told."""

    async def run() -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - one kernel's trouble is nobody else's
            failed(error)

    task = asyncio.get_running_loop().create_task(run())
    tasks.add(task)
    task.add_done_callback(tasks.discard)
