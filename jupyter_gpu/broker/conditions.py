"""The one condition of each device that is told to the core: its health, and whether what is on it may be there.

A device is free only when it is clear, and a process that nobody leased the device to makes it not free. Health is
judged in `health`; here it meets what is known of leases.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from typing import Any

from ..core.events import DeviceMarked
from ..model import Condition, Device, EndReason, Outcome, Reading, Sample, UseKind, Workload, Wrong
from .health import Health, Seen, Sight
from .loop import Loop
from .strikes import Strike
from .telemetry.clear import Unreadable, baseline_of, is_of_the_system, why_not_clear
from .telemetry.sampler import Telemetry

#: What is seen of a device without a lease; while that cannot be read, it stands as it was.
_OF_OCCUPANCY = (None, Condition.FOREIGN, Condition.NOT_CLEAR)


class Conditions:
    """Judges devices by their readings. It tells nobody: who asks does."""

    def __init__(self, loop: Loop, telemetry: Telemetry) -> None:
        self._loop, self._telemetry = loop, telemetry
        self.health = Health(booted_at=time.time() - time.clock_gettime(time.CLOCK_BOOTTIME))
        #: Device -> readings in a row that showed something on it although nobody leases it.
        self._strange: dict[str, int] = {}
        #: Device -> the least memory that it ever showed while it was empty.
        self._baseline: dict[str, int | None] = {}
        #: Job -> the last attempt whose end was heard of.
        self._heard: dict[int, int] = {}

    def hear(self, sample: Sample) -> None:
        """Take what the driver reported."""
        self.health.hear(self._loop.world.devices.values(), sample.events)

    def hear_of_end(self, it: Workload, attempt: int, outcome: Outcome) -> None:
        """Take how an attempt ended, `it` being the workload as it was before: whether its devices were to blame."""
        if self._heard.get(it.id, 0) >= attempt or it.lease is None:
            return
        self._heard = {id_: last for id_, last in self._heard.items() if id_ in self._loop.world.live} | {
            it.id: attempt
        }
        for uuid in it.lease.devices:
            if outcome.end is EndReason.SUCCEEDED:
                self.health.succeed(uuid)
            elif outcome.end is EndReason.DEVICE_LOST and it.eviction is None:
                self._strike(it, uuid, alone=len(it.lease.devices) == 1)

    def hear_of_mark(self, event: DeviceMarked) -> bool:
        """Take a mark that was made; whether it was an operator's word that a fault is over."""
        return self.health.hear_of_mark(event)

    def forget(self, uuids: Collection[str]) -> None:
        """These devices are no more: nothing that is remembered of them counts against one that comes later."""
        self.health.forget(uuids)
        for uuid in uuids:
            self._strange.pop(uuid, None)
            self._baseline.pop(uuid, None)

    def _strike(self, it: Workload, uuid: str, *, alone: bool) -> None:
        now = self._loop.now()
        since = now if it.active_at is None else it.active_at
        sight = Sight(reading=self._loop.world.readings.get(uuid) or Reading(uuid=uuid, at=0.0), card=self._card(uuid))
        counts = sight.vitals.ecc_uncorrected is not None
        strike = Strike(it.id, it.owner, now)
        self.health.strike(self._loop.world.policy, uuid, strike, since=since, alone=alone, counts=counts)

    def _card(self, uuid: str) -> Reading | None:
        device = self._loop.world.devices.get(uuid)
        return None if device is None or device.card is None else self._loop.world.readings.get(device.card.uuid)

    def look(self, device: Device, reading: Reading) -> Seen | None:
        """The gravest that is wrong with a device; None where the reading says nothing new of it."""
        is_leased = device.uuid in self._loop.world.leases
        is_known, occupied = True, None
        if is_leased or reading.fault is not None:
            self._strange.pop(device.uuid, None)
        else:
            try:
                occupied = self._occupied(device, reading)
            except Unreadable:
                is_known = False
        is_idle = not is_leased and is_known and reading.processes == () and device.uuid not in self._strange
        sight = Sight(reading=reading, card=self._card(device.uuid), is_idle=is_idle)
        seen = self.health.look(self._loop.world.policy, device, sight, self._loop.now())
        if occupied is not None and occupied.condition is not None:
            seen = seen._replace(wrong=(*seen.wrong, Wrong(condition=occupied.condition, detail=occupied.detail)))
            is_gravest = occupied.condition.is_graver_than(seen.condition)
            return occupied._replace(wrong=seen.wrong) if is_gravest else seen
        if seen.condition is None and not is_known and device.condition in _OF_OCCUPANCY:
            return None
        return seen

    def _occupied(self, device: Device, reading: Reading) -> Seen | None:
        """What is on a device that nobody leases. One reading may be older than the last lease, two are not."""
        what = self.on(reading)
        if what is None:
            self._strange.pop(device.uuid, None)
            own = self._baseline.get(device.uuid)
            self._baseline[device.uuid] = baseline_of(reading, own_baseline_bytes=own, **self._terms())
            return None
        self._strange[device.uuid] = self._strange.get(device.uuid, 0) + 1
        if device.condition is Condition.NOT_CLEAR:
            return Seen(Condition.NOT_CLEAR, what)
        if self._strange[device.uuid] < 2:  # noqa: PLR2004 - two in a row
            return None
        return Seen(Condition.NOT_CLEAR if self._is_held_by_the_dead(device) else Condition.FOREIGN, what)

    def _is_held_by_the_dead(self, device: Device) -> bool:
        """Whether all that is on it has ended: nobody is there who could be asked, or ended."""
        uses = [use for use in self._loop.world.uses.get(device.uuid, ()) if use.is_foreign]
        return bool(uses) and all(use.kind is UseKind.DEAD for use in uses)

    def on(self, reading: Reading) -> str | None:
        """What is on a device that should be empty. Raises Unreadable where the reading cannot tell."""
        return why_not_clear(reading, own_baseline_bytes=self._baseline.get(reading.uuid), **self._terms())

    def _terms(self) -> dict[str, Any]:
        policy = self._loop.world.policy
        return {
            "baseline_bytes": policy.baseline_bytes,
            "ignored_names": policy.ignored_process_names,
            "drawing_bytes": policy.drawing_bytes,
            "name_of": self._telemetry.name_of,
            "has_ended": self._telemetry.has_ended,
            "is_systems": who_is_the_system(),
        }


def who_is_the_system() -> Any:
    """Whether a process is the machine's own. A broker of one user serves that user, whose display it is."""
    return is_of_the_system if os.geteuid() == 0 else lambda _: True
