"""What must always hold of a world: each broken promise is one sentence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from .nouns import Workload
from .states import Kind, State

if TYPE_CHECKING:
    from .world import World


def problems(world: World, only: Iterable[int] | None = None) -> list[str]:
    """The invariants that do not hold, one sentence each. `only` looks at these workloads and what they touch."""
    workloads = world.workloads
    chosen = workloads.values() if only is None else [workloads[i] for i in only if i in workloads]
    uuids: Iterable[str] = world.leases if only is None else {
        uuid for w in chosen if w.lease is not None for uuid in w.lease.devices
    }  # fmt: skip
    broken = [problem for workload in chosen for problem in _workload_problems(workload)]
    broken += [problem for uuid in sorted(uuids) for problem in _device_problems(world, uuid)]
    if only is None:
        broken += _index_problems(world)
    return broken


def _device_problems(world: World, uuid: str) -> list[str]:
    leases = [w.lease for w in world.holders_of(uuid) if w.lease is not None]
    device = world.devices.get(uuid)
    if device is None:
        return [f"device {uuid} is leased and unknown"] if leases else []
    if len(leases) > 1 and any(lease.memory_bytes is None for lease in leases):
        return [f"device {uuid} is in {len(leases)} leases of which one is exclusive: {world.leases[uuid]}"]
    shared = sum(lease.memory_bytes or 0 for lease in leases)
    if device.memory_bytes is not None and shared > device.memory_bytes:
        return [f"device {uuid} has {device.memory_bytes} bytes and leases of {shared}"]
    return []


def _index_problems(world: World) -> list[str]:
    fresh = type(world)(world.policy)
    fresh.usage = world.usage
    for uuid in world.devices:
        fresh.put_device(world.devices[uuid])
    for id_ in sorted(world.workloads):
        fresh.put_workload(world.workloads[id_])
    broken = []
    if fresh.line != world.line:
        broken.append("the line does not agree with the queued workloads")
    if set(fresh.live) != set(world.live) or set(fresh.ended) != set(world.ended):
        broken.append("the live or ended index does not agree with the states")
    if fresh.leases != world.leases or (fresh.held, fresh.runs) != (world.held, world.runs):
        broken.append("the index of what is held does not agree with the leases")
    if fresh.lanes != world.lanes or fresh.queued_by != world.queued_by:
        broken.append("the lanes do not agree with the queued workloads")
    if (fresh.stock, fresh.ends) != (world.stock, world.ends) or (set(fresh.yielding), fresh.live_by) != (
        set(world.yielding), world.live_by
    ):  # fmt: skip
        broken.append("what is free, or yields, does not agree with the leases and the devices")
    mine = (world.children, world.members, world.links_by)
    if (fresh.children, fresh.members, fresh.links_by) != mine:
        broken.append("what waits for others' ends, or runs of an array, does not agree with the workloads")
    if fresh.booked != world.booked:
        broken.append("the index of reservations for later does not agree with the queued workloads")
    if fresh.keys.items() > world.keys.items():
        broken.append("an idempotency key was forgotten before its workload")
    return broken


def _workload_problems(workload: Workload) -> list[str]:
    broken = []
    is_placed_elsewhere = workload.state is State.YIELDING and workload.active_at is None
    if workload.is_live and workload.lease is None and not is_placed_elsewhere:
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
