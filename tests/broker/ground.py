"""What the broker's tests share: a loop on a real store, an engine and a telemetry that do as they are told."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_gpu.broker.engines.base import Attempt, Order, Sighting, Stage
from jupyter_gpu.broker.loop import Loop
from jupyter_gpu.broker.store.store import Store
from jupyter_gpu.model import (
    Ask,
    BrokerView,
    Card,
    Device,
    DriverView,
    EndReason,
    Holder,
    JobSpec,
    Kind,
    Outcome,
    Policy,
    Reading,
    SeeDevices,
    Submit,
)

GIB = 1 << 30


def devices(count: int) -> tuple[Device, ...]:
    """Alike devices of one node."""
    return tuple(
        Device(uuid=f"GPU-{n}", index=n, name="Test GPU", device_class="test-16gb", memory_bytes=16 * GIB)
        for n in range(count)
    )


def a_job(owner: str = "ada", **ask: object) -> Submit:
    """A job of one device that is never really started."""
    return Submit(kind=Kind.JOB, owner=owner, ask=Ask(**ask), spec=JobSpec(argv=("train",), folder="/"))  # type: ignore[arg-type]


def a_reservation(owner: str = "grace", holder: Holder | None = None, **ask: object) -> Submit:
    """A reservation of one device."""
    return Submit(kind=Kind.RESERVATION, owner=owner, ask=Ask(**ask), holder=holder)  # type: ignore[arg-type]


def succeeded() -> Outcome:
    """It ran and ended well."""
    return Outcome(end=EndReason.SUCCEEDED, exit_code=0)


@dataclass
class FakeEngine:
    """Keeps what it was asked, and shows what the test puts into its inventory."""

    seen: dict[int, Sighting] = field(default_factory=dict)
    handed_over: list[Attempt] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)
    taken_back: list[tuple[int, int]] = field(default_factory=list)
    kept_apart: frozenset[str] = frozenset()

    async def start(self, on_sighting: Callable[[Sighting], None]) -> None:
        self.on_sighting = on_sighting

    async def close(self) -> None:
        pass

    def inventory(self) -> Mapping[int, Sighting]:
        return self.seen

    def keep_apart(self, nodes: Iterable[str]) -> None:
        self.kept_apart = frozenset(nodes)

    async def hand_over(self, attempt: Attempt) -> None:
        self.handed_over.append(attempt)
        self.see(attempt.workload, attempt.attempt, Stage.HANDED_OVER)

    async def order(self, order: Order) -> None:
        self.orders.append(order)

    async def take_back(self, workload: int, attempt: int) -> None:
        self.taken_back.append((workload, attempt))
        self.seen.pop(workload, None)

    def log_path(self, workload: int, attempt: int) -> Path:
        return Path(f"/nowhere/{workload}.{attempt}")

    def see(self, workload: int, attempt: int, stage: Stage, outcome: Outcome | None = None) -> None:
        """Show an attempt at a stage from now on."""
        begun = stage is not Stage.HANDED_OVER
        holder = Holder(kind="attempt", name=f"{workload}.{attempt}", number=attempt, pid=1) if begun else None
        self.seen[workload] = Sighting(workload=workload, attempt=attempt, stage=stage, holder=holder, outcome=outcome)


@dataclass
class FakeTelemetry:
    """Reads what the test put there; `unreadable` stands for a driver that does not answer."""

    used: dict[str, tuple[tuple[int, int | None], ...]] = field(default_factory=dict)
    unreadable: bool = False
    inventory_is: tuple[Device, ...] | None = ()
    fault: str | None = None
    probes: int = 0
    #: Pids of tests are made up, mostly.
    has_local_pids: bool = False
    cards: tuple[Card, ...] = ()
    driver: DriverView | None = None
    ended: set[int] = field(default_factory=set)
    #: What a reading shows besides.
    shows: dict[str, Any] = field(default_factory=dict)

    def start(self, loop: object, on_sample: object) -> None:
        pass

    def close(self) -> None:
        pass

    def name_of(self, pid: int) -> str | None:
        return f"process{pid}"

    def has_ended(self, pid: int) -> bool:
        return pid in self.ended

    async def inventory(self) -> tuple[Device, ...] | None:
        return self.inventory_is

    async def probe(self, uuids: Iterable[str]) -> tuple[Reading, ...]:
        self.probes += 1
        return tuple(self.reading(uuid) for uuid in uuids)

    def reading(self, uuid: str) -> Reading:
        """One reading as things stand."""
        if self.unreadable:
            return Reading(uuid=uuid, at=time.time(), fault="the driver does not answer")
        processes = self.used.get(uuid, ())
        used = sum(memory or 0 for _, memory in processes)
        shown: dict[str, Any] = {"memory_used_bytes": used, "memory_total_bytes": 16 * GIB, "processes": processes}
        return Reading(uuid=uuid, at=time.time(), **shown | self.shows)


IDENTITY = BrokerView(
    version="0", api_version=1, pid=1, user="ada", node="here", store_id="", state_dir="", policy_digest="", devices=0,
    simulated=False, started_at=0.0, stops_at=None, warnings=(),
)  # fmt: skip


class Clock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@contextlib.asynccontextmanager
async def a_loop(
    folder: Path,
    *,
    count: int = 1,
    policy: Policy | None = None,
    clock: Callable[[], float] = time.time,
    idle_seconds: int | None = None,
) -> AsyncIterator[tuple[Loop, FakeEngine]]:
    """A loop that decides and commits for real, with `count` devices."""
    engine = FakeEngine()
    store = Store.open(folder, machine_id="here", now=clock())
    loop = Loop(
        store=store,
        engines={"local": engine},
        policy=policy or Policy(),
        identity=IDENTITY,
        clock=clock,
        idle_seconds=idle_seconds,
    )
    await loop.start()
    try:
        if count and not loop.world.devices:
            await loop.handle(SeeDevices(pool="local", devices=devices(count)))
        yield loop, engine
        assert loop.world.check() == []
    finally:
        await loop.close()
