"""What must be done, derived from the world against the engines' inventory. There is no other list of work.

After each commit, sighting and tick: ACTIVE and not started -> hand over; YIELDING and not ordered -> order; gone and
clear -> close; over but still known to the engine -> take back. Each step may be lost or repeated at any moment
without harm: the next look finds the same difference again, and every call to an engine is idempotent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping

import msgspec

from ..errors import GpuError
from ..model import (
    Command,
    EndReason,
    Kind,
    Outcome,
    SeeExited,
    SeeProbe,
    SeeStarted,
    State,
    Workload,
    World,
)
from .attempts import attempt_of
from .engines.base import Attempt, Engine, Order, Sighting, Stage
from .loop import Loop
from .watch import Watch

log = logging.getLogger(__name__)

#: How soon a device that was not clear is read again, at first and at last.
PROBE_AGAIN_SECONDS = 0.1
PROBE_SLOWEST_SECONDS = 0.5

#: How soon what could not be recorded is told again.
TELL_AGAIN_SECONDS = 1.0

NEVER_STARTED = Outcome(end=EndReason.RELEASED, detail="it had not started yet", noticed=True)


class Reconciler:
    """Brings engines and world together again and again."""

    def __init__(self, loop: Loop, engines: Mapping[str, Engine], watch: Watch) -> None:
        self._loop, self._engines, self._watch = loop, engines, watch
        #: One closing at a time for each workload; the task is its own guard.
        self._closing: dict[int, asyncio.Task[bool]] = {}
        self._telling: set[tuple[type[Command], int, int]] = set()

    async def step(self) -> None:
        """Look once at everything that lives."""
        world = self._loop.world
        for pool, engine in self._engines.items():
            engine.keep_apart(node for device in world.devices.values() for node in device.nodes)
            inventory = engine.inventory()
            for id_, sighting in list(inventory.items()):
                if _is_over(world, id_, sighting):
                    await _alone(id_, engine.take_back(id_, sighting.attempt))
            for it in world.holders():
                if it.lease is not None and it.lease.pool == pool and it.kind is Kind.JOB:
                    await _alone(it.id, self._of_job(world, engine, it, inventory.get(it.id)))
        for it in world.holders():
            if it.kind is Kind.RESERVATION and it.outcome is not None:
                self._close(it, it.outcome)

    async def close(self) -> None:
        """Let go of the probes under way; what they would have found is found again."""
        for task in list(self._closing.values()):
            task.cancel()
        await asyncio.gather(*self._closing.values(), return_exceptions=True)

    async def _of_job(self, world: World, engine: Engine, it: Workload, sighting: Sighting | None) -> None:
        if it.id in self._closing:
            return  # it is gone and that is being told: for this lease nothing may begin any more
        attempt = attempt_of(it)
        if sighting is None or sighting.attempt != attempt:
            await self._of_unknown(world, engine, it)
            return
        if sighting.stage is Stage.STARTED and it.started_at is None and it.state is State.ACTIVE:
            assert sighting.holder is not None  # noqa: S101 - the seam says so
            self._tell(SeeStarted(workload=it.id, attempt=attempt, holder=sighting.holder), attempt)
        if it.eviction is not None and it.outcome is None and sighting.stage is not Stage.GONE:
            order = order_of(world, it, attempt)
            if sighting.order is None or sighting.order.yield_by > order.yield_by:
                await engine.order(order)
        if sighting.stage is Stage.EXITED and it.outcome is None and sighting.outcome is not None:
            self._tell(_exited(it, sighting.outcome), attempt)
        elif sighting.stage is Stage.EXITED:
            rest = order_of_the_rest(world, it, attempt, self._loop.now())
            if rest is not None and (sighting.order is None or sighting.order.yield_by > rest.yield_by):
                await engine.order(rest)
        elif sighting.stage is Stage.GONE:
            if sighting.holder is None:  # it never started: nothing may be left that looks like an attempt
                await engine.take_back(it.id, attempt)
            self._close(it, sighting.outcome or NEVER_STARTED, started=sighting.holder is not None)

    async def _of_unknown(self, world: World, engine: Engine, it: Workload) -> None:
        """The engine knows nothing of this lease: start it, or close what never started."""
        if it.state is State.ACTIVE:
            await engine.hand_over(attempt_for(world, it))
        else:
            self._close(it, it.outcome or NEVER_STARTED, started=False)

    def _tell(self, command: SeeStarted | SeeExited, attempt: int) -> None:
        """Have an observation decided, once at a time."""
        key = (type(command), command.workload, attempt)
        if key in self._telling:
            return
        self._telling.add(key)
        task = asyncio.ensure_future(self._handle(command))
        task.add_done_callback(lambda _: self._telling.discard(key))

    async def _handle(self, command: Command) -> bool:
        before = self._loop.world.workloads.get(command.workload) if isinstance(command, SeeExited) else None
        try:
            await self._loop.handle(command)
        except GpuError as error:  # a full disk, say: the same is seen again at the next look
            log.warning("cannot record what was seen: %s", error)
        except Exception:  # noqa: BLE001, S110 - a fault of ours, which the loop has told
            pass
        else:
            if isinstance(command, SeeExited) and before is not None:
                self._watch.hear_of_end(before, command.attempt, command.outcome)
            return True
        # Meanwhile the same is not told again: two that fail in turn would else wake each other without end.
        await asyncio.sleep(TELL_AGAIN_SECONDS)
        return False

    def _close(self, it: Workload, outcome: Outcome, *, started: bool = True) -> None:
        if it.id not in self._closing:
            task = asyncio.ensure_future(self._probe_and_close(it, _exited(it, outcome, started=started)))
            self._closing[it.id] = task
            task.add_done_callback(lambda done: self._closed(it.id, done))

    def _closed(self, workload: int, done: asyncio.Task[bool]) -> None:
        self._closing.pop(workload, None)
        # It may hold devices again already. What could not be recorded waits for the next tick: no hot loop.
        if not done.cancelled() and done.exception() is None and done.result():
            self._loop.wake()

    async def _probe_and_close(self, of: Workload, seen: SeeExited) -> bool:
        """Read the devices after the end of one lease, again and again until they are clear or the broker gives up.

        Says whether what was found could be recorded.
        """
        clock = asyncio.get_running_loop().time
        unclear_seconds, pause_seconds = 0.0, PROBE_AGAIN_SECONDS
        while True:
            it = self._loop.world.workloads.get(of.id)
            if it is None or not it.is_live or it.active_at != of.active_at:
                return True
            began = clock()
            found = await self._watch.what_is_left(it)
            if found is not None:
                if not await self._handle(_observation(it, seen, found, unclear_seconds)):
                    return False
                if not found:
                    return True
            # That it is over is known, whatever becomes of the driver (lyulyul/shine-cluster#30).
            elif it.outcome is None and it.kind is Kind.JOB and not await self._handle(seen):
                return False
            await asyncio.sleep(pause_seconds)
            if found is not None:  # while nothing can be read, that clock stands still
                unclear_seconds += clock() - began
                pause_seconds = min(pause_seconds * 1.5, PROBE_SLOWEST_SECONDS)


async def _alone(workload: int, work: Awaitable[None]) -> None:
    """Bring one workload on. What fails of it is told, and holds up none of the others; the next look tries again."""
    try:
        await work
    except Exception:
        log.exception("workload %s cannot be brought on now", workload)


def _exited(it: Workload, outcome: Outcome, *, started: bool = True) -> SeeExited:
    return SeeExited(workload=it.id, attempt=attempt_of(it), outcome=outcome, started=started)


def _observation(it: Workload, seen: SeeExited, unclear: dict[str, str], unclear_seconds: float) -> Command:
    """The outcome first and at once, whatever the devices look like; then only how they look."""
    if it.outcome is None and it.kind is Kind.JOB:
        return msgspec.structs.replace(seen, clear=not unclear)
    return SeeProbe(
        workload=it.id,
        unclear=tuple(unclear),
        unclear_seconds=unclear_seconds,
        detail="; ".join(unclear.values()),
    )


def _is_over(world: World, workload_id: int, sighting: Sighting) -> bool:
    """Whether the engine still knows an attempt that the world is done with."""
    it = world.workloads.get(workload_id)
    return it is None or not it.is_live or sighting.attempt < attempt_of(it)


def attempt_for(world: World, it: Workload) -> Attempt:
    """What is handed over for the present lease."""
    assert it.lease is not None  # noqa: S101 - World.check holds: what is live has a lease
    assert it.spec is not None  # noqa: S101 - and a job has something to run
    spec = msgspec.structs.replace(it.spec, leftover_seconds=leftover_seconds(world, it))
    devices = tuple(world.devices[uuid] for uuid in it.lease.devices)
    # MIG devices of one card share its node, so whoever holds one of them must open it.
    own = {node for device in devices for node in device.nodes}
    withheld = sorted({node for device in world.devices.values() for node in device.nodes} - own)
    return Attempt(
        workload=it.id,
        attempt=attempt_of(it),
        name=it.name,
        owner=it.owner,
        account=it.account,
        spec=spec,
        devices=devices,
        memory_bytes=it.lease.memory_bytes,
        deadline_at=it.lease.ends_at,
        withheld=tuple(withheld),
        member=it.member,
    )


def order_of(world: World, it: Workload, attempt: int) -> Order:
    """What is ordered for an eviction."""
    return Order(
        workload=it.id,
        attempt=attempt,
        reason=str(it.eviction),
        ordered_at=it.evicted_at or 0.0,
        yield_by=it.yield_by or 0.0,
        kill_after_seconds=world.policy.kill_after_seconds,
    )


def leftover_seconds(world: World, it: Workload) -> int:
    """How long what outlives the main process may take to leave; not longer than the policy of now gives."""
    asked = 0 if it.spec is None else it.spec.leftover_seconds
    return min(asked, world.policy.most_leftover_seconds)


def order_of_the_rest(world: World, it: Workload, attempt: int, now: float) -> Order | None:
    """What is ordered when the main process is gone: nobody is left to give a grace to.

    An eviction ends the rest at once. Without one the supervisor does it when its time is over; where it has not
    (its limit is an older policy's), it is told to. So the rest is killed within bounded time, whatever anybody asked.
    """
    kill_after = world.policy.kill_after_seconds
    if it.eviction is not None:
        at, reason = it.evicted_at or now, str(it.eviction)
    else:
        at, reason = (it.released_at or now) + leftover_seconds(world, it) + kill_after, "left-over"
        kill_after = 0
    if now < at:
        return None
    return Order(
        workload=it.id, attempt=attempt, reason=reason, ordered_at=at, yield_by=at, kill_after_seconds=kill_after
    )
