"""Worlds for tests: builders that state only what a test is about, and a driver with a clock of its own.

`Play` sends commands through `decide`, evolves its world by what comes out, keeps every event, and checks after each
step what must always hold: the invariants, and that folding the log gives the same world.
"""

from __future__ import annotations

from collections.abc import Iterable

from jupyter_gpu.core.decide import decide
from jupyter_gpu.core.events import Ended, Event, Evicted, Explained, OfWorkload, Started, Submitted
from jupyter_gpu.core.lifecycle import evolve, fold
from jupyter_gpu.model import (
    Ask,
    Card,
    Command,
    Device,
    EndReason,
    Holder,
    JobSpec,
    Kind,
    LoadPolicy,
    Outcome,
    Policy,
    SeeDevices,
    SeeExited,
    SeeProbe,
    SeeStarted,
    State,
    Submit,
    Tick,
    WaitingReason,
    Workload,
    World,
)

#: A Monday at noon, at a full hour so that buckets of use begin with it.
BEGIN = 1_790_078_400.0
MINUTE = 60
HOUR = 3600
DAY = 86_400
GIB = 1 << 30

DONE = Outcome(end=EndReason.SUCCEEDED, exit_code=0)
#: It saved on SIGTERM and left: what a preempted training does.
SAVED = Outcome(end=EndReason.SUCCEEDED, exit_code=0, noticed=True, progressed=True)
CRASHED = Outcome(end=EndReason.FAILED, exit_code=1)
KERNEL = Holder(kind="kernel", name="kernel")


def a_device(index: int, **words) -> Device:
    """One GPU of the usual kind; its UUID is "gpu-INDEX"."""
    usual = {"uuid": f"gpu-{index}", "index": index, "name": "A100", "device_class": "a100", "memory_bytes": 80 * GIB}
    return Device(**{**usual, **words})


def a_mig_device(slot: int, card: int = 0, **words) -> Device:
    """One MIG device of half a card; its UUID is "mig-CARD:SLOT"."""
    usual = {
        "uuid": f"mig-{card}:{slot}",
        "index": 100 * (card + 1) + slot,
        "name": "A100 MIG 3g.40gb",
        "device_class": "mig-3g.40gb",
        "memory_bytes": 40 * GIB,
        "card": Card(uuid=f"card-{card}", index=card, name="A100", memory_bytes=80 * GIB),
        "slot": slot,
    }
    return Device(**{**usual, **words})


def a_world(devices: int | Iterable[Device] = 2, policy: Policy | None = None) -> World:
    """Idle devices under a policy."""
    world = World(policy)
    for device in map(a_device, range(devices)) if isinstance(devices, int) else devices:
        world.put_device(device)
    return world


def a_spec(**words) -> JobSpec:
    """Something to run."""
    return JobSpec(**{"argv": ("python", "train.py"), "folder": "/home/ada", **words})


_OF_ASK = frozenset(Ask.__struct_fields__) - {"devices", "duration_seconds"}


def _submit(kind: Kind, owner: str, devices: int, seconds: int | None, words: dict) -> Submit:
    asked = {name: words.pop(name) for name in list(words) if name in _OF_ASK}
    return Submit(kind=kind, owner=owner, ask=Ask(devices=devices, duration_seconds=seconds, **asked), **words)


def a_job(owner: str = "ada", devices: int = 1, seconds: int | None = None, **words) -> Submit:
    """A job's submission. Words of an ask (device_class, memory_bytes...) and of a submission may follow."""
    return _submit(Kind.JOB, owner, devices, seconds, {"spec": a_spec(), **words})


def a_reservation(owner: str = "bob", devices: int = 1, seconds: int | None = None, **words) -> Submit:
    """A reservation of a kernel, which attaches at once."""
    return _submit(Kind.RESERVATION, owner, devices, seconds, {"holder": KERNEL, **words})


class Play:
    """A world, a clock and the log of all that happened."""

    def __init__(self, devices: int | Iterable[Device] = 2, policy: Policy | None = None) -> None:
        self.now = BEGIN
        self.events: list[Event] = []
        self.world = World(policy)
        shown = tuple(map(a_device, range(devices))) if isinstance(devices, int) else tuple(devices)
        for pool in sorted({device.pool for device in shown}):
            self.do(SeeDevices(pool=pool, devices=tuple(device for device in shown if device.pool == pool)))

    def __getitem__(self, workload_id: int) -> Workload:
        return self.world.workloads[workload_id]

    def do(self, command: Command) -> list[str]:
        """Decide and evolve one command; gives its events in words. A refusal raises and leaves nothing behind."""
        before = self.world.revision
        events = decide(self.world, command, self.now)
        assert self.world.revision == before, "decide changed the world that it was given"
        for event in events:
            evolve(self.world, event)
        if isinstance(command, LoadPolicy):
            self.world.policy = command.policy
        self.events += events
        assert self.world.check() == []
        return [said(event) for event in events]

    def submit(self, command: Submit) -> int:
        """Submit and give the number of what came of it."""
        self.do(command)
        return self.world.last_id

    def job(self, owner: str = "ada", devices: int = 1, seconds: int | None = None, **words) -> int:
        """Submit a job and give its number."""
        return self.submit(a_job(owner, devices, seconds, **words))

    def reservation(self, owner: str = "bob", devices: int = 1, seconds: int | None = None, **words) -> int:
        """Submit a reservation and give its number."""
        return self.submit(a_reservation(owner, devices, seconds, **words))

    def running(self, owner: str = "ada", devices: int = 1, seconds: int | None = None, **words) -> int:
        """Submit a job that is granted, and see it start."""
        id_ = self.job(owner, devices, seconds, **words)
        assert self.state(id_) is State.ACTIVE, f"{id_} waits for {self.waiting(id_)}"
        self.start(id_)
        return id_

    def start(self, id_: int) -> list[str]:
        """The started mark of the next attempt is seen."""
        attempt = self[id_].attempt + 1
        holder = Holder(kind="attempt", name=f"{id_}.{attempt}", number=attempt)
        return self.do(SeeStarted(workload=id_, attempt=attempt, holder=holder))

    def exit(self, id_: int, outcome: Outcome = DONE, *, clear: bool = True) -> list[str]:
        """The present attempt is over, its devices clear."""
        attempt = self[id_].attempt + (self[id_].started_at is None)
        return self.do(SeeExited(workload=id_, attempt=attempt, outcome=outcome, clear=clear))

    def clear(self, id_: int) -> list[str]:
        """The devices of a workload that is over were read, and are clear."""
        return self.do(SeeProbe(workload=id_))

    def later(self, seconds: float) -> list[str]:
        """Time passes, and the loop ticks."""
        self.now += seconds
        return self.do(Tick())

    def state(self, id_: int) -> State:
        """Where a workload stands."""
        return self[id_].state

    def waiting(self, id_: int) -> WaitingReason | None:
        """Why it waits."""
        return self[id_].waiting

    def devices_of(self, id_: int) -> tuple[str, ...]:
        """What it holds."""
        lease = self[id_].lease
        return () if lease is None else lease.devices

    def holding(self) -> dict[int, tuple[str, ...]]:
        """Who holds what now."""
        return {it.id: self.devices_of(it.id) for it in self.world.holders()}

    def story(self, id_: int) -> list[str]:
        """One workload's life, as `jupyter gpu events` prints it."""
        return [
            said(event).rsplit(" ", 1)[0]
            for event in self.events
            if (isinstance(event, OfWorkload) and event.workload == id_)
            or (isinstance(event, Submitted) and event.it.id == id_)
        ]

    def used_ms(self, owner: str) -> int:
        """Device-ms charged to an owner so far."""
        return sum(sum(used.values()) for key, used in self.world.usage.items() if key[0] == owner)


def said(event: Event) -> str:
    """An event in a few words: its name, the note that people read in brackets, whom it is about."""
    name = type(event).__struct_config__.tag
    if isinstance(event, Explained):
        return "explained " + " ".join(f"{id_}:{reason}" for id_, reason in sorted(event.reasons.items()))
    if isinstance(event, Submitted):
        return f"submitted {event.it.id}"
    if not isinstance(event, OfWorkload):
        return str(name)
    note = {Started: "attempt", Evicted: "reason", Ended: "end"}.get(type(event))
    return f"{name}{'' if note is None else f' ({getattr(event, note)})'} {event.workload}"


def differences(one: World, other: World) -> list[str]:
    """In what two worlds differ; policy and what was observed stand beside the log, sums and days come from the use."""
    parts = [
        part
        for part in World.__slots__
        if part not in ("policy", "readings", "uses", "wrong", "progress", "sums", "by_day")
    ]
    found = [f"{part} differs" for part in parts if getattr(one, part) != getattr(other, part)]
    return found + ([] if one.days() == other.days() else ["days differ"])


def refolded(play: Play) -> World:
    """The world that the log alone gives."""
    return fold(World(play.world.policy), play.events)
