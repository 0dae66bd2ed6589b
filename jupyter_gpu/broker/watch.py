"""What the broker sees for itself: samples of the devices, what is left on them, and whether holders live.

Samples and renewals are no events; only what they change is: a device's condition, a holder that is gone. A device is
free only when it is clear, and a process that nobody leased the device to makes it not free.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from typing import Any

import msgspec

from ..core.conditions import changes
from ..core.devices_view import card_views, known_of, read_of
from ..core.events import DeviceMarked
from ..core.told import why_not_served
from ..core.unmet import unmet_rules
from ..errors import GpuError
from ..model import (
    Card,
    CardView,
    Command,
    Condition,
    Device,
    DeviceView,
    DriverView,
    Holder,
    Kind,
    Outcome,
    Reading,
    Sample,
    SeeCondition,
    SeeDevices,
    SeeHolderGone,
    Use,
    Workload,
)
from .attribution import Attribution, Rules
from .conditions import Conditions, who_is_the_system
from .engines import holders
from .engines.accounts import Accounts
from .foreign import Foreign
from .loop import Loop
from .people import People
from .shares import Shares
from .shield import Shield
from .telemetry.clear import Unreadable
from .telemetry.sampler import STARTING, Telemetry
from .telling import tell_of_devices, tell_of_driver
from .xids import describe

log = logging.getLogger(__name__)

INVENTORY_SECONDS = 60.0
#: What looks as if a device had gone makes the inventory be read at once, but not more often than this.
LEAST_INVENTORY_SECONDS = 5.0
#: Most drivers have answered by then; nobody waits at the doors for one that has not.
AT_ONCE_SECONDS = 0.5
#: The same report of the same card is logged so often at most.
XID_SECONDS = 60.0
#: Kinds of holders that the broker may end: never somebody's login shell.
ENDED_BY_US = frozenset({"command", "kernel", "server"})


class _SampleLine(msgspec.Struct, frozen=True, kw_only=True):
    samples: tuple[DeviceView, ...]
    cards: tuple[CardView, ...]


class Watch:
    """Turns readings and processes into observations."""

    def __init__(self, loop: Loop, telemetry: Telemetry, *, pool: str = "local", attempts: str = "") -> None:
        self._loop, self._telemetry, self._pool = loop, telemetry, pool
        self._tasks: set[asyncio.Task[Any]] = set()
        self._asked_to_leave: dict[int, float] = {}
        #: Workload -> since when its kernel has been seen dead while its keeper lives.
        self._dead_since: dict[int, float] = {}
        self._ending: set[int] = set()
        self._accounts = Accounts()
        self._people = People()
        self._attribution = Attribution(self._people, loop.owners, attempts=attempts)
        self._conditions = Conditions(loop, telemetry)
        self._foreign = Foreign(loop.alerts, self._people)
        self._shares = Shares(loop.alerts)
        self._shield = Shield()
        loop.on_mark = self._hear_of_mark
        self._looked_at = 0.0
        self._must_look = False
        self._first_look: asyncio.Task[None] | None = None
        self._had_fault = False
        #: The devices of the world as of the last sample.
        self._known: frozenset[str] = frozenset()
        #: By card and Xid: when it was logged last.
        self._logged: dict[tuple[str, int], float] = {}

    async def _give_up_the_others(self) -> None:
        """Devices of another making than this broker's are not there: simulated ones, or real ones in a demo.

        Nothing will ever be read of them, so what was left on them would be waited for, and held, for ever.
        """
        others = [it for it in self._loop.world.devices.values() if it.simulated is not self._loop.simulated]
        detail = why_not_served(len(others), simulated=not self._loop.simulated)
        for device in others:
            if device.condition is not Condition.LOST:
                await self._tell(SeeCondition(device=device.uuid, condition=Condition.LOST, detail=detail))

    @property
    def fault(self) -> str | None:
        """Why no device can be read now, with its remedy; None while all is well."""
        return self._telemetry.fault

    @property
    def warnings(self) -> tuple[str, ...]:
        """What an operator should know of it: that no device can be read, or which rules are for devices not there."""
        return unmet_rules(self._loop.world) if self.fault is None else (self.fault,)

    @property
    def driver(self) -> DriverView | None:
        """What reads the devices."""
        return self._telemetry.driver

    @property
    def cards(self) -> tuple[Card, ...]:
        """The GPUs in MIG mode."""
        return self._telemetry.cards

    async def start(self) -> None:
        """Learn which devices there are, and hear of every sample.

        The first look goes on by itself where the driver takes its time (NVIDIA/nvidia-container-toolkit#1053).
        """
        self._telemetry.start(asyncio.get_running_loop(), self.on_sample)
        await self._give_up_the_others()
        self._first_look = self._spawn(self.look_for_devices())
        self._first_look.add_done_callback(lambda _: self._loop.wake())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._first_look), AT_ONCE_SECONDS)

    @property
    def has_looked(self) -> bool:
        """Whether the first look for devices is over, which takes no longer than its deadline."""
        return self._first_look is not None and self._first_look.done()

    async def knows_devices(self) -> bool:
        """Wait for the first look; whether it is known what there is. While the driver is being opened it is not."""
        if self._first_look is not None and not self._first_look.done():
            await asyncio.wait((self._first_look,))
        return bool(self._loop.world.devices) or self._telemetry.fault != STARTING

    async def close(self) -> None:
        """Stop the sampler."""
        self._telemetry.close()
        self._people.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def look_for_devices(self) -> None:
        """Read the inventory; where it cannot be read nothing is lost, only unknown."""
        self._looked_at, self._must_look = self._loop.now(), False
        found = await self._telemetry.inventory()
        if found is not None:
            answer = await self._loop.handle(SeeDevices(pool=self._pool, devices=found, cards=self._telemetry.cards))
            # A MIG device that is missed is looked for once more, soon: then it is no more.
            self._must_look = self._must_look or any(isinstance(event, DeviceMarked) for event in answer.events)

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
            left = {reading.uuid: self._conditions.on(reading) for reading in readings}
        except Unreadable:
            return None
        return lost | {uuid: what for uuid, what in left.items() if what is not None}

    def hear_of_end(self, it: Workload, attempt: int, outcome: Outcome) -> None:
        """Take how an attempt ended, `it` being the workload as it was before."""
        self._conditions.hear_of_end(it, attempt, outcome)

    def _hear_of_mark(self, event: DeviceMarked) -> None:
        """What is told agrees with what is shown at once, and after an operator's word all is news."""
        if self._conditions.hear_of_mark(event):
            card = self._loop.world.devices[event.device].card
            self._loop.alerts.forget({event.device} if card is None else {event.device, card.uuid})
        if event.by:
            self._tell_of_all()

    # -- samples

    def on_sample(self, sample: Sample) -> None:
        """Keep the newest readings, tell the listeners, and note what changed about the devices."""
        world = self._loop.world
        world.groups = self._loop.owners.groups
        if sample.fault is None and self._had_fault:
            self._spawn(self.look_for_devices())  # the driver is back: look at once what it has
        self._had_fault = sample.fault is not None
        self._forget_what_is_no_more()
        for reading in sample.readings:
            world.readings[reading.uuid] = reading
        if self._loop.publisher.listeners:
            self._loop.publisher.send(self._line(sample))
        self._log_events(sample)
        self._conditions.hear(sample)
        self._attribute(sample.readings)
        for reading in sample.readings:
            device = world.devices.get(reading.uuid)
            if device is not None:
                with self._shield.around(device.title):
                    self._look_at(device, reading)
        if sample.fault is None:
            with self._shield.around("who is there without a lease"):
                self._foreign.look(world, self._loop.now())
            for command in self._shares.look(world, self._loop.now()):
                self._spawn(self._tell(command))
            for idle in self._loop.idle.look(world, self._loop.now()):
                self._spawn(self._tell(idle))
        self._tell_of_all()

    def _forget_what_is_no_more(self) -> None:
        world = self._loop.world
        gone = self._known - world.devices.keys()
        self._known = frozenset(world.devices)
        if gone:
            self._conditions.forget(gone)
            for uuid in gone:
                world.readings.pop(uuid, None)
                world.uses.pop(uuid, None)
                world.wrong.pop(uuid, None)

    def _tell_of_all(self) -> None:
        alerts, world = self._loop.alerts, self._loop.world
        fault = self._telemetry.fault
        tell_of_driver(alerts, None if fault == STARTING else fault)
        if fault is None:
            cards = {card.uuid for card in self._telemetry.cards}
            tell_of_devices(alerts, world, cards=cards, simulated=self._loop.simulated)

    def _line(self, sample: Sample) -> bytes:
        world = self._loop.world
        views = tuple(_reading_view(world.devices[r.uuid], r) for r in sample.readings if r.uuid in world.devices)
        line = _SampleLine(samples=views, cards=card_views(world, self._telemetry.cards))
        return msgspec.json.encode(line) + b"\n"

    def _attribute(self, readings: tuple[Reading, ...]) -> None:
        """Whose what is on each device is; the listeners are told where that changed."""
        world, policy = self._loop.world, self._loop.world.policy
        rules = Rules(
            has_local_pids=self._telemetry.has_local_pids,
            ignored_names=policy.ignored_process_names,
            drawing_bytes=policy.drawing_bytes,
            is_systems=who_is_the_system(),
        )
        # Of what is not read nothing is known: what was on it a while ago must accuse nobody.
        changed = world.uses.keys() - {reading.uuid for reading in readings}
        for uuid in changed:
            del world.uses[uuid]
        for reading in readings:
            if reading.uuid not in world.devices:
                continue
            before = world.uses.pop(reading.uuid, ())
            with self._shield.around(f"who is on {world.devices[reading.uuid].title}"):
                if reading.processes is not None:
                    world.uses[reading.uuid] = self._attribution.attribute(world, reading, rules)
            if _looks(before) != _looks(world.uses.get(reading.uuid, ())):
                changed.add(reading.uuid)
        self._attribution.sweep(world.uses)
        if changed:
            self._loop.publisher.look(world.revision, frozenset(changed))

    def _log_events(self, sample: Sample) -> None:
        """An Xid is told once a minute, however often it comes."""
        world, now = self._loop.world, self._loop.now()
        self._logged = {key: at for key, at in self._logged.items() if now - at < XID_SECONDS}
        for event in sample.events:
            if (event.uuid, event.xid) not in self._logged:
                self._logged[event.uuid, event.xid] = now
                device = world.devices.get(event.uuid)
                name = event.uuid if device is None else f"{device.title} ({event.uuid})"
                log.warning("%s: the driver reported %s", name, describe(event.xid))

    def _look_at(self, device: Device, reading: Reading) -> None:
        seen = self._conditions.look(device, reading)
        if seen is None:
            return
        self._loop.world.wrong[device.uuid] = seen.wrong
        if seen.condition is Condition.LOST and device.condition is not Condition.LOST:
            self._must_look = True  # perhaps others are gone with it, or come in its place
        told = SeeCondition(device=device.uuid, condition=seen.condition, detail=seen.detail, was_reset=seen.was_reset)
        if changes(device, told):
            self._spawn(self._tell(told))

    # -- holders

    def look_around(self) -> None:
        """At every tick: give back what nobody holds, end what must leave, look for devices now and then."""
        world = self._loop.world
        self._asked_to_leave = {id_: at for id_, at in self._asked_to_leave.items() if id_ in world.live}
        # What is lost comes back soon after it is listed again; a device of another making than ours never does.
        is_soon = self._must_look or any(
            it.condition is Condition.LOST and it.simulated is self._loop.simulated for it in world.devices.values()
        )
        after = LEAST_INVENTORY_SECONDS if is_soon else INVENTORY_SECONDS
        if self._loop.now() > self._looked_at + after:
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

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _reading_view(device: Device, reading: Reading) -> DeviceView:
    """A reading without names, so that one line serves every listener."""
    return DeviceView(**known_of(device), **read_of(device, reading))


def _looks(uses: tuple[Use, ...]) -> frozenset[tuple[object, ...]]:
    """What of the uses people see change: not the bytes, which come with the samples."""
    return frozenset(msgspec.structs.astuple(msgspec.structs.replace(use, memory_bytes=None)) for use in uses)
