"""The world: all that the core knows at one instant, with the indices that make a step cheap.

Only `core.lifecycle.evolve` writes to it, through `put_workload`, `put_device` and `charge`; everybody else reads.
The nouns inside are frozen, so `copy()` is a shallow copy of a few containers and serves as the overlay on which a
command is decided. `policy` and `readings` stand beside the log: they are observations, not facts, and are shared.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator

from .nouns import Device, Kind, Reading, State, Workload
from .policy import Policy

#: Ended workloads that stay in memory; older ones are read from the store's history.
KEPT_ENDED = 10_000
#: Use is summed in buckets of this length and kept for this long.
BUCKET_SECONDS = 3600
USAGE_SECONDS = 35 * 86_400

LineKey = tuple[int, bool, int, int]
UsageKey = tuple[str, str, str, str]


def line_key(workload: Workload) -> LineKey:
    """The one comparison of the line: priority, lifted first, rank, and at last the id, so no two are equal."""
    return (-workload.priority, not workload.lifted, workload.rank_ms, workload.id)


class World:
    """Workloads, devices and use, with derived indices that always agree with them."""

    __slots__ = (
        "devices", "ended", "keys", "last_id", "leases", "line", "live", "policy", "readings", "revision", "usage",
        "workloads",
    )  # fmt: skip

    def __init__(self, policy: Policy | None = None) -> None:
        """Start empty: no device, no workload, revision 0."""
        self.policy = policy or Policy()
        self.revision = 0
        self.last_id = 0
        self.workloads: dict[int, Workload] = {}
        self.devices: dict[str, Device] = {}
        #: (owner, team, queue, device class) -> {bucket: device-ms}; a refund is a negative charge.
        self.usage: dict[UsageKey, dict[int, int]] = {}
        self.readings: dict[str, Reading] = {}
        self.line: list[LineKey] = []
        self.live: dict[int, None] = {}
        self.ended: dict[int, None] = {}
        #: device UUID -> the workloads that hold it, oldest first.
        self.leases: dict[str, tuple[int, ...]] = {}
        #: (owner, idempotency key) -> workload.
        self.keys: dict[tuple[str, str], int] = {}

    def copy(self) -> World:
        """An overlay to decide on: changes to it never reach this world."""
        other = World.__new__(World)
        other.policy, other.readings = self.policy, self.readings
        other.revision, other.last_id = self.revision, self.last_id
        other.workloads, other.devices = self.workloads.copy(), self.devices.copy()
        other.usage = self.usage.copy()
        other.line, other.live, other.ended = self.line.copy(), self.live.copy(), self.ended.copy()
        other.leases, other.keys = self.leases.copy(), self.keys.copy()
        return other

    def put_workload(self, workload: Workload) -> None:
        """Replace or add a workload and keep every index in step."""
        before = self.workloads.get(workload.id)
        if before is not None:
            self._unindex(before)
        self.workloads[workload.id] = workload
        self.last_id = max(self.last_id, workload.id)
        if workload.state is State.QUEUED:
            insort(self.line, line_key(workload))
        elif workload.state is State.ENDED:
            self.ended[workload.id] = None
        else:
            self.live[workload.id] = None
            if workload.lease is not None:
                for uuid in workload.lease.devices:
                    self.leases[uuid] = (*self.leases.get(uuid, ()), workload.id)
        if workload.idempotency_key is not None:
            self.keys[workload.owner, workload.idempotency_key] = workload.id
        if len(self.ended) > KEPT_ENDED:
            self._forget(next(iter(self.ended)))

    def _unindex(self, workload: Workload) -> None:
        if workload.state is State.QUEUED:
            del self.line[bisect_left(self.line, line_key(workload))]
            return
        self.ended.pop(workload.id, None)
        self.live.pop(workload.id, None)
        for uuid in workload.lease.devices if workload.is_live and workload.lease is not None else ():
            left = tuple(id_ for id_ in self.leases.get(uuid, ()) if id_ != workload.id)
            if left:
                self.leases[uuid] = left
            else:
                self.leases.pop(uuid, None)

    def _forget(self, workload_id: int) -> None:
        gone = self.workloads.pop(workload_id)
        del self.ended[workload_id]
        if gone.idempotency_key is not None:
            self.keys.pop((gone.owner, gone.idempotency_key), None)

    def put_device(self, device: Device) -> None:
        """Replace or add a device."""
        self.devices[device.uuid] = device

    def charge(self, workload: Workload, *, device_class: str, at: float, device_ms: int) -> None:
        """Add use to the bucket of `at` and forget the buckets that no window reaches."""
        key = (workload.owner, workload.team, workload.queue, device_class)
        oldest = int(at - USAGE_SECONDS) // BUCKET_SECONDS
        buckets = {bucket: used for bucket, used in self.usage.get(key, {}).items() if bucket >= oldest}
        bucket = int(at) // BUCKET_SECONDS
        buckets[bucket] = buckets.get(bucket, 0) + device_ms
        self.usage[key] = buckets

    def queued(self) -> Iterator[Workload]:
        """The line, first to last."""
        workloads = self.workloads
        return (workloads[key[3]] for key in self.line)

    def holders(self) -> Iterator[Workload]:
        """The live workloads, by id."""
        workloads = self.workloads
        return (workloads[id_] for id_ in sorted(self.live))

    def holders_of(self, uuid: str) -> tuple[Workload, ...]:
        """Who holds a device now, oldest first."""
        return tuple(self.workloads[id_] for id_ in self.leases.get(uuid, ()))

    def check(self, only: Iterable[int] | None = None) -> list[str]:
        """The invariants that do not hold, one sentence each. `only` looks at these workloads and what they touch."""
        chosen = (
            self.workloads.values()
            if only is None
            else [self.workloads[i] for i in only if i in self.workloads]
        )
        uuids: Iterable[str] = self.leases if only is None else {
            uuid for w in chosen if w.lease is not None for uuid in w.lease.devices
        }  # fmt: skip
        broken = [problem for workload in chosen for problem in _workload_problems(workload)]
        broken += [problem for uuid in sorted(uuids) for problem in self._device_problems(uuid)]
        if only is None:
            broken += self._index_problems()
        return broken

    def _device_problems(self, uuid: str) -> list[str]:
        leases = [w.lease for w in self.holders_of(uuid) if w.lease is not None]
        device = self.devices.get(uuid)
        if device is None:
            return [f"device {uuid} is leased and unknown"] if leases else []
        if len(leases) > 1 and any(lease.memory_bytes is None for lease in leases):
            return [
                f"device {uuid} is in {len(leases)} leases of which one is exclusive: {self.leases[uuid]}"
            ]
        shared = sum(lease.memory_bytes or 0 for lease in leases)
        if device.memory_bytes is not None and shared > device.memory_bytes:
            return [f"device {uuid} has {device.memory_bytes} bytes and leases of {shared}"]
        return []

    def _index_problems(self) -> list[str]:
        fresh = World(self.policy)
        for id_ in sorted(self.workloads):
            fresh.put_workload(self.workloads[id_])
        broken = []
        if fresh.line != self.line:
            broken.append("the line does not agree with the queued workloads")
        if set(fresh.live) != set(self.live) or set(fresh.ended) != set(self.ended):
            broken.append("the live or ended index does not agree with the states")
        if {u: set(ids) for u, ids in fresh.leases.items()} != {
            u: set(ids) for u, ids in self.leases.items()
        }:
            broken.append("the lease index does not agree with the leases")
        return broken


def _workload_problems(workload: Workload) -> list[str]:
    broken = []
    if workload.is_live and workload.lease is None:
        broken.append(f"{workload.title} is {workload.state} without a lease")
    if not workload.is_live and workload.lease is not None:
        broken.append(f"{workload.title} is {workload.state} with a lease")
    if workload.state is State.QUEUED and workload.waiting is None:
        broken.append(f"{workload.title} is queued without a reason")
    if workload.state is not State.QUEUED and workload.waiting is not None:
        broken.append(f"{workload.title} is {workload.state} and waits for {workload.waiting}")
    if workload.state is State.YIELDING and workload.eviction is None and workload.outcome is None:
        broken.append(f"{workload.title} yields and was neither evicted nor released")
    if (workload.state is State.ENDED) != (workload.end is not None):
        broken.append(f"{workload.title} is {workload.state} with the end {workload.end}")
    if workload.kind is Kind.JOB and workload.spec is None:
        broken.append(f"{workload.title} has nothing to run")
    if workload.lease is not None and len(set(workload.lease.devices)) != len(workload.lease.devices):
        broken.append(f"{workload.title} holds one device twice")
    return broken
