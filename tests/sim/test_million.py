"""Hundreds of thousands of events of a real trace, each looked at: no GPU is given twice, and the log gives the world.

A million take five minutes and more, so only as many are played as the tests have time for.
`JUPYTER_GPU_SIM_EVENTS=1000000` plays them all: most of them as it ships, a tenth where teams share too little.
"""

from __future__ import annotations

import os

import msgspec
import pytest

from jupyter_gpu.core.events import Ended, Event, Evicted, Granted, Requeued, Submitted
from jupyter_gpu.core.lifecycle import fold
from jupyter_gpu.core.simulation.replay import ours
from jupyter_gpu.model import Policy, QuotaRule, World
from jupyter_gpu.model.queues import DEFERRED, INTERACTIVE, TRAINING
from tests.sim import philly
from tests.world import differences

EVENTS = int(os.environ.get("JUPYTER_GPU_SIM_EVENTS", "200000"))

pytestmark = [pytest.mark.sim, pytest.mark.slow, pytest.mark.timeout(120 + EVENTS // 100)]

#: A job is submitted, granted, started, released and ended, if nothing else happens to it.
EVENTS_OF_A_JOB = 5
#: The whole world is looked at so often; what events touch, at each.
WHOLE_EVERY = 5_000


def policies() -> dict[str, Policy]:
    """What ships; and trainings that take turns, teams with shares of their own, users with bounds."""
    teams = sorted({job.team for job in philly.pool_jobs()})
    quotas = [QuotaRule(team=team, share_devices=24) for team in teams[:6]]
    turns = msgspec.structs.replace(TRAINING, slice_factor=3)
    return {
        "as it ships": Policy(),
        "turns and shares": Policy(
            queues=(INTERACTIVE, turns, DEFERRED), quotas=(*quotas, QuotaRule(team="*", devices=300))
        ),
    }


class Witness:
    """Keeps books of its own of who holds what, by nothing but the events."""

    def __init__(self, events: int) -> None:
        """Nobody has come, and nothing is held; the log is folded from a tenth of the events on."""
        self._snapshot_after = events // 10
        self.count = self.evicted = self._looked_at = 0
        self._last = 0.0
        self._waiting: set[int] = set()
        self._held: dict[int, tuple[str, ...]] = {}
        self._by: dict[str, int] = {}
        self._ended: set[int] = set()
        self.snapshot: World | None = None
        self.since: list[Event] = []

    def __call__(self, world: World, now: float, events: list[Event]) -> None:
        """See what one step has led to."""
        assert now >= self._last
        self._last = now
        for event in events:
            assert event.at == now
            self._note(world, event)
        if self.snapshot is not None:
            self.since += events
        self.count += len(events)
        if self.count - self._looked_at >= WHOLE_EVERY:
            self._looked_at = self.count
            self.look_at_all(world)
        if self.snapshot is None and self.count >= self._snapshot_after:
            self.snapshot = world.copy()

    def _note(self, world: World, event: Event) -> None:
        if isinstance(event, Submitted):
            assert event.it.id not in self._waiting
            assert event.it.id not in self._held
            self._waiting.add(event.it.id)
        elif isinstance(event, Granted):
            self._grant(world, event)
        elif isinstance(event, Evicted):
            assert event.workload in self._held
            self.evicted += 1
        elif isinstance(event, Requeued | Ended):
            self._give_back(event.workload)
            if isinstance(event, Requeued):
                self._waiting.add(event.workload)
            else:
                assert event.workload not in self._ended
                self._ended.add(event.workload)

    def _grant(self, world: World, event: Granted) -> None:
        uuids = event.lease.devices
        self._waiting.remove(event.workload)
        taken = {uuid: self._by[uuid] for uuid in uuids if uuid in self._by}
        assert not taken, f"{event.workload} was granted {taken}"
        assert len(set(uuids)) == len(uuids) > 0
        nodes = {world.devices[uuid].node for uuid in uuids}
        assert len(nodes) == -(-len(uuids) // philly.NODES[0])
        self._held[event.workload] = uuids
        self._by |= dict.fromkeys(uuids, event.workload)

    def _give_back(self, id_: int) -> None:
        self._waiting.discard(id_)
        for uuid in self._held.pop(id_, ()):
            del self._by[uuid]

    def look_at_all(self, world: World) -> None:
        """The invariants; and the world says of who holds what, and who waits, what the events say."""
        assert world.check() == []
        assert {uuid: (id_,) for uuid, id_ in self._by.items()} == world.leases
        assert {key[3] for key in world.line} == self._waiting


@pytest.mark.parametrize(("name", "nodes", "part"), [("as it ships", 72, 0.9), ("turns and shares", 30, 0.1)])
def test_of_all_the_events_of_a_trace_none_gives_a_device_twice(name, nodes, part):
    """Nor ends a job twice, nor goes back in time; and from a snapshot the log gives the world of the end."""
    jobs = philly.hundred_thousand() if EVENTS > 300_000 else philly.pool_jobs()
    events = round(EVENTS * part)
    jobs, witness = jobs[: events // EVENTS_OF_A_JOB], Witness(events)
    worlds: list[World] = []

    def seen(world: World, now: float, events: list[Event]) -> None:
        worlds[:] = [world]
        witness(world, now, events)

    runs = ours(jobs, philly.NODES[:nodes], policies()[name], seen=seen)

    assert witness.count >= EVENTS_OF_A_JOB * (len(jobs) - len(runs.refused)) > 0.9 * events
    assert (witness.evicted > 0) is (nodes < len(philly.NODES))
    witness.look_at_all(worlds[0])
    assert differences(fold(witness.snapshot, witness.since), worlds[0]) == []
