"""What the broker sees for itself: samples of the devices, what is left on them, and whether holders live.

Samples and renewals are no events; only what they change is: a device's condition, a holder that is gone. A device is
free only when it is clear, and a process that nobody leased the device to makes it not free.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Coroutine
from typing import Any

import msgspec

from ..errors import GpuError
from ..model import (
    Command,
    Condition,
    Device,
    DeviceView,
    Holder,
    Kind,
    Reading,
    Sample,
    SeeCondition,
    SeeDevices,
    SeeHolderGone,
    Workload,
)
from .engines import holders
from .engines.accounts import Accounts
from .loop import Loop
from .telemetry.clear import Unreadable, baseline_of, condition_of, is_of_the_system, why_not_clear
from .telemetry.sampler import Telemetry

log = logging.getLogger(__name__)

INVENTORY_SECONDS = 60.0
#: Kinds of holders that the broker may end: never somebody's login shell.
ENDED_BY_US = frozenset({"command", "kernel", "server"})


class _SampleLine(msgspec.Struct, frozen=True, kw_only=True):
    samples: tuple[DeviceView, ...]


class Watch:
    """Turns readings and processes into observations."""

    def __init__(self, loop: Loop, telemetry: Telemetry, *, pool: str = "local") -> None:
        self._loop, self._telemetry, self._pool = loop, telemetry, pool
        self._tasks: set[asyncio.Task[Any]] = set()
        #: Device -> readings in a row that showed something on it although nobody leases it.
        self._strange: dict[str, int] = {}
        self._asked_to_leave: dict[int, float] = {}
        #: Workload -> since when its kernel has been seen dead while its keeper lives.
        self._dead_since: dict[int, float] = {}
        self._ending: set[int] = set()
        self._accounts = Accounts()
        #: Device -> the least memory that it ever showed while it was empty.
        self._baseline: dict[str, int | None] = {}
        self._looked_at = 0.0
        self._had_fault = False

    async def _give_up_the_others(self) -> None:
        """Devices of another making than this broker's are not there: simulated ones, or real ones in a demo.

        Nothing will ever be read of them, so what was left on them would be waited for, and held, for ever.
        """
        for device in list(self._loop.world.devices.values()):
            if device.simulated is not self._loop.simulated and device.condition is not Condition.LOST:
                kind = "simulated" if device.simulated else "real"
                detail = f"this broker does not serve {kind} GPUs"
                await self._tell(SeeCondition(device=device.uuid, condition=Condition.LOST, detail=detail))

    @property
    def fault(self) -> str | None:
        """Why no device can be read now, with its remedy; None while all is well."""
        return self._telemetry.fault

    async def start(self) -> None:
        """Learn which devices there are, and hear of every sample."""
        self._telemetry.start(asyncio.get_running_loop(), self.on_sample)
        await self._give_up_the_others()
        await self.look_for_devices()

    async def close(self) -> None:
        """Stop the sampler."""
        self._telemetry.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def look_for_devices(self) -> None:
        """Read the inventory; where it cannot be read nothing is lost, only unknown."""
        self._looked_at = self._loop.now()
        found = await self._telemetry.inventory()
        if found is not None:
            await self._loop.handle(SeeDevices(pool=self._pool, devices=found))

    # -- what is left after the end of a lease

    async def what_is_left(self, it: Workload) -> dict[str, str] | None:
        """What a fresh reading shows on a workload's devices, by device; None where they cannot be read now.

        A shared device is clear for one holder when its own tree is gone, which is why this is asked only then.
        """
        lease = it.lease
        if lease is None or lease.memory_bytes is not None:
            return {}
        devices = [self._loop.world.devices[uuid] for uuid in lease.devices]
        lost = {d.uuid: d.condition_detail for d in devices if d.condition is Condition.LOST}
        wanted = [d for d in devices if d.uuid not in lost]
        try:
            readings = await self._telemetry.probe(tuple(d.uuid for d in wanted)) if wanted else ()
            left = {reading.uuid: self._on(reading) for reading in readings}
        except Unreadable:
            return None
        return lost | {uuid: what for uuid, what in left.items() if what is not None}

    def _on(self, reading: Reading) -> str | None:
        """What is on a device that should be empty. Raises Unreadable where the reading cannot tell."""
        return why_not_clear(reading, own_baseline_bytes=self._baseline.get(reading.uuid), **self._terms())

    def _terms(self) -> dict[str, Any]:
        policy = self._loop.world.policy
        return {
            "baseline_bytes": policy.baseline_bytes,
            "ignored_names": policy.ignored_process_names,
            "name_of": self._telemetry.name_of,
            # A broker of one user serves that user, whose display it is.
            "is_systems": is_of_the_system if os.geteuid() == 0 else lambda _: True,
        }

    # -- samples

    def on_sample(self, sample: Sample) -> None:
        """Keep the newest readings, tell the listeners, and note what changed about the devices."""
        world = self._loop.world
        if sample.fault is None and self._had_fault:
            self._spawn(self.look_for_devices())  # the driver is back: look at once what it has
        self._had_fault = sample.fault is not None
        for reading in sample.readings:
            world.readings[reading.uuid] = reading
        if self._loop.publisher.listeners:
            self._loop.publisher.send(self._line(sample))
        for reading in sample.readings:
            device = world.devices.get(reading.uuid)
            if device is not None:
                self._look_at(device, reading)

    def _line(self, sample: Sample) -> bytes:
        world = self._loop.world
        views = tuple(_reading_view(world.devices[r.uuid], r) for r in sample.readings if r.uuid in world.devices)
        return msgspec.json.encode(_SampleLine(samples=views)) + b"\n"

    def _look_at(self, device: Device, reading: Reading) -> None:
        wrong = condition_of(reading)
        if wrong is not None:
            self._note(device, wrong, reading.fault or "")
            return
        if device.uuid in self._loop.world.leases:
            self._strange.pop(device.uuid, None)
            if device.condition is Condition.UNREADABLE:
                self._note(device, None, "")
            return
        try:
            what = self._on(reading)
        except Unreadable:
            return
        if what is not None:
            self._look_at_stranger(device, what)
            return
        self._strange.pop(device.uuid, None)
        own = self._baseline.get(device.uuid)
        self._baseline[device.uuid] = baseline_of(reading, own_baseline_bytes=own, **self._terms())
        self._note(device, None, "")

    def _look_at_stranger(self, device: Device, what: str) -> None:
        """One reading may be older than the end of the last lease; two in a row are not."""
        self._strange[device.uuid] = self._strange.get(device.uuid, 0) + 1
        if self._strange[device.uuid] > 1 and device.condition is not Condition.NOT_CLEAR:
            self._note(device, Condition.FOREIGN, what)

    def _note(self, device: Device, condition: Condition | None, detail: str) -> None:
        if device.condition is not condition:
            self._spawn(self._tell(SeeCondition(device=device.uuid, condition=condition, detail=detail)))

    # -- holders

    def look_around(self) -> None:
        """At every tick: give back what nobody holds, end what must leave, look for devices now and then."""
        world = self._loop.world
        self._asked_to_leave = {id_: at for id_, at in self._asked_to_leave.items() if id_ in world.live}
        if self._loop.now() > self._looked_at + INVENTORY_SECONDS:
            self._spawn(self.look_for_devices())
        held = [*world.holders(), *world.queued()]
        self._dead_since = {it.id: self._dead_since[it.id] for it in held if it.id in self._dead_since}
        for it in held:
            if it.kind is Kind.RESERVATION and it.holder is not None:
                self._look_at_holder(it, it.holder)

    def _look_at_holder(self, it: Workload, holder: Holder) -> None:
        alive = holders.is_alive(holder)
        if alive is not False:
            self._dead_since.pop(it.id, None)
        is_done = it.outcome is not None
        if alive and holder.kind in ENDED_BY_US and self._must_leave(it, holder):
            if it.id not in self._ending:
                self._ending.add(it.id)
                self._spawn(self._end(it, holder))
            return
        if is_done or alive:
            return
        if alive is None and holder.pid is not None:
            return  # it cannot be looked at now: that ends no lease
        if self._is_gone(it, holder):
            detail = f"its {holder.kind} {holder.name} has ended" if alive is False else f"{holder.name} did not renew"
            self._spawn(self._tell(SeeHolderGone(workload=it.id, holder_number=holder.number, detail=detail)))

    def _must_leave(self, it: Workload, holder: Holder) -> bool:
        """Whether a live holder is to be ended. A kernel may live on without its GPU: only where it is not clear."""
        if it.overdue:
            return True
        if it.outcome is None:
            return False
        kept = self._loop.world.policy.kill_after_seconds if holder.kind == "kernel" else 0
        return self._loop.now() >= (it.released_at or 0.0) + kept

    def _is_gone(self, it: Workload, holder: Holder) -> bool:
        """Whether nobody is behind a lease any more; a kernel whose keeper lives may be about to start anew."""
        if holders.has_live_keeper(holder) is False:
            return True
        if holder.pid is None:
            return self._loop.has_lapsed(it)
        if holder.keeper_pid is None:
            return True
        since = self._dead_since.setdefault(it.id, self._loop.now())
        return self._loop.now() >= since + self._loop.world.policy.lapse_seconds

    async def _end(self, it: Workload, holder: Holder) -> None:
        """SIGTERM once, SIGKILL when its time is over; only while the process is still its account's."""
        try:
            user = (await self._accounts.find(it.account)).user
        except LookupError:
            user = None
        finally:
            self._ending.discard(it.id)
        now = self._loop.now()
        asked_at = self._asked_to_leave.setdefault(it.id, now)
        if asked_at == now or now >= asked_at + self._loop.world.policy.kill_after_seconds:
            holders.end(holder, by_force=asked_at != now, uid=user)

    # -- small

    async def _tell(self, command: Command) -> None:
        try:
            await self._loop.handle(command)
        except GpuError as error:  # seen again with the next sample
            log.warning("cannot record what was seen: %s", error)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _reading_view(device: Device, reading: Reading) -> DeviceView:
    """A reading without names, so that one line serves every listener."""
    return DeviceView(
        uuid=device.uuid,
        index=device.index,
        number=device.number,
        name=device.name,
        card=None if device.card is None else device.card.uuid,
        device_class=device.device_class,
        pool=device.pool,
        simulated=device.simulated,
        cordoned=device.cordoned,
        condition=device.condition,
        memory_total_bytes=reading.memory_total_bytes or device.memory_bytes,
        memory_used_bytes=reading.memory_used_bytes,
        utilisation_percent=reading.utilisation_percent,
        temperature_celsius=reading.temperature_celsius,
        power_watts=reading.power_watts,
        sampled_at=reading.at,
    )
