"""What a grant gives: which devices, from when, until when, and what is expected of it."""

from __future__ import annotations

from ..model import Kind, Lease, Workload, World
from .forecast import expected_left_seconds


def lease_of(world: World, it: Workload, uuids: tuple[str, ...], now: float) -> Lease:
    """The lease of these devices; a reservation that nothing holds yet must be attached to in time."""
    seconds = it.ask.duration_seconds
    comes_by_itself = it.kind is Kind.JOB or it.holder is not None
    return Lease(
        devices=uuids,
        pool=world.devices[uuids[0]].pool if uuids else it.ask.pool or "local",
        granted_at=now,
        memory_bytes=it.ask.memory_bytes,
        ends_at=None if seconds is None else now + seconds,
        expected_end_at=None if it.kind is Kind.RESERVATION else now + expected_left_seconds(world, it),
        attach_by=None if comes_by_itself else now + world.policy.attach_seconds,
    )
