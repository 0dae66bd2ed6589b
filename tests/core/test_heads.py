"""Hold back against brute force: no later start delays who is first of a kind, and nothing idles without need."""

from __future__ import annotations

import random

import msgspec
import pytest

from jupyter_gpu.core import held_back, holds
from jupyter_gpu.core.events import Granted
from jupyter_gpu.model import Command, Cordon, Device, Policy, Tick, Uncordon
from jupyter_gpu.model.queues import TRAINING
from tests.core import oracle_heads as oracle
from tests.world import HOUR, MINUTE, Play, a_device, a_job

#: Nobody moves anybody, and two hours are long to wait.
PATIENT = msgspec.structs.replace(TRAINING, preemptible=False, wait_limit_seconds=2 * HOUR)
#: First come, first served; and as it ships, short work before long work.
POLICIES = (Policy(queues=(PATIENT,), order_multiple=0), Policy(queues=(PATIENT,)))
MIXED = (
    a_device(0, link_group="a"), a_device(1, link_group="a"), a_device(2),
    a_device(3, node="far"), a_device(4, node="far", device_class="l4"), a_device(5, node="far", device_class="l4"),
)  # fmt: skip
ALIKE = tuple(a_device(index, node=f"node-{index // 3}") for index in range(6))
#: What may be asked for, beside so many of any.
OF_A_KIND = (
    {"device_class": "a100"}, {"device_class": "l4"}, {"on": ("gpu-1",)}, {"across_nodes": True},
)  # fmt: skip


class Line(Play):
    """A line of jobs that run as long as they say, each of an owner of its own, of whom nothing is learnt."""

    def __init__(self, seed: int, devices: tuple[Device, ...]) -> None:
        self.draw, self.owners = random.Random(seed), 0
        self.is_mixed = devices is MIXED
        #: How often somebody waited behind whom others started, and how often somebody waited beside a free device.
        self.passed = self.kept = 0
        super().__init__(devices, POLICIES[seed % 2])

    def do(self, command: Command) -> list[str]:
        """Decide, and look whom the step gave something, and whom not."""
        before = len(self.events)
        said = super().do(command)
        granted = [event.workload for event in self.events[before:] if isinstance(event, Granted)]
        self.look(granted)
        for id_ in granted:
            self.start(id_)
        return said

    def look(self, granted: list[int]) -> None:
        """By brute force."""
        world = self.world
        ends = {id_: max(world.ends.due(id_), self.now) for id_ in world.live}
        assert oracle.delays(world, granted, ends, self.now) == []
        waiting = oracle.in_line(world)
        lengths = {it.id: it.ask.duration_seconds for it in waiting}
        # Where kinds differ, so do the places at which one instant would do, and which is kept is a matter of quality.
        assert self.is_mixed or oracle.idles(world, ends, lengths, self.now) == []
        self.passed += any(oracle.stands_behind(world.workloads[id_], it) for id_ in granted for it in waiting)
        self.kept += any(uuid not in world.leases for uuid in world.devices) and bool(waiting)

    def live(self) -> None:
        """Somebody comes, somebody is done, a device is not well, or time passes."""
        what = self.draw.randrange(20)
        if what < 9:
            self._come()
        elif what < 17 and self.world.live:
            ends = {id_: self[id_].lease.ends_at for id_ in self.world.live}
            first = min(ends, key=lambda id_: (ends[id_], id_))
            self.now = ends[first] - 1
            self.exit(first)
        elif what < 18:
            device = self.draw.choice(list(self.world.devices.values()))
            self.do((Uncordon if device.cordoned else Cordon)(device=device.uuid, by="op"))
        else:
            ends = [self[id_].lease.ends_at for id_ in self.world.live]
            self.now = min([self.now + 10 * MINUTE, *(end - 1 for end in ends)])
            self.do(Tick())

    def _come(self) -> None:
        self.owners += 1
        asked = self.draw.choice(({}, *OF_A_KIND)) if self.is_mixed else {}
        devices = 4 if "across_nodes" in asked else 1 if "on" in asked else self.draw.choice((1, 1, 2, 3))
        devices = min(devices, 2) if asked == {"device_class": "l4"} else devices
        seconds = self.draw.randrange(1, 180) * MINUTE + self.draw.randrange(60)
        self.do(a_job(f"user-{self.owners}", devices, seconds, **asked))


def test_no_start_delays_who_is_first_and_nothing_idles_without_need():
    """The ends are as expected; with them as the truth, every step of random lives is looked at."""
    for devices in (MIXED, ALIKE):
        passed = kept = 0
        for seed in range(16):
            line = Line(seed, devices)
            for _ in range(40):
                line.live()
            passed, kept = passed + line.passed, kept + line.kept

        assert passed > 10
        assert kept > 30


def hold_back_nothing(patch):
    """Whoever fits starts, whoever waits."""
    patch.setattr(held_back.HeldBack, "consider", lambda *_: False)


def believe_in_sooner_ends(patch):
    """What starts is thought to be over in no time."""
    patch.setattr(holds, "expected_seconds", lambda *_: 0)


def pass_nobody(patch):
    """Once a start was promised on a device, it stays empty until then."""
    before = holds.Kept.hold_back
    patch.setattr(holds.Kept, "hold_back", lambda self, uuids, _start, of: before(self, uuids, self._now, of))


def keep_more_than_is_promised(patch):
    """All devices are held back for the first."""
    before = holds.Kept.hold_back
    patch.setattr(holds.Kept, "hold_back", lambda self, _, start, of: before(self, self._world.devices, start, of))


@pytest.mark.parametrize(
    "plant", [hold_back_nothing, believe_in_sooner_ends, pass_nobody, keep_more_than_is_promised],
    ids=lambda plant: plant.__name__,
)  # fmt: skip
def test_a_fault_in_holding_back_is_found(plant, monkeypatch):
    """The same eyes on the same lives."""
    plant(monkeypatch)

    with pytest.raises(AssertionError, match="delay"):
        test_no_start_delays_who_is_first_and_nothing_idles_without_need()
