"""Expected duration, the rank that follows from it, and who is ahead. A later issue makes the expected start."""

from __future__ import annotations

from ..model import Kind, State, Workload, World

#: Work that has outlived its expectation is expected to take this much longer, again and again.
OVERRUN_SECONDS = 300


def expected_seconds(world: World, it: Workload) -> int:
    """How long it will hold its devices: its own limit, else what its queue expects."""
    if it.ask.duration_seconds is not None:
        return it.ask.duration_seconds
    queue = world.policy.queue(it.queue)
    return 3600 if queue is None else queue.expected_seconds


def rank_ms(it: Workload, world: World, use_permille: int) -> int:
    """Submission time plus a bounded multiple of the expected GPU time, weighed by the owner's decayed use.

    Short work passes; the bound is why long work cannot be passed for ever: whoever submits later than the bound
    stands behind it.
    """
    policy = world.policy
    expected = expected_seconds(world, it) * max(1, it.ask.devices) * policy.order_multiple
    weighed = expected * (1000 + use_permille) // 1000
    return round(it.submitted_at * 1000) + min(weighed, policy.order_most_seconds) * 1000


def expected_end_at(world: World, it: Workload, now: float) -> float:
    """When the devices of a live workload are expected back."""
    if it.state is State.YIELDING:
        return max(now, it.yield_by or now) + world.policy.kill_after_seconds
    if it.lease is None:
        return now
    if it.kind is Kind.RESERVATION and it.lease.ends_at is not None:
        return max(now, it.lease.ends_at) + world.policy.reservation_grace_seconds
    end = it.lease.granted_at + expected_seconds(world, it)
    return end if end > now else now + OVERRUN_SECONDS


def known_end_at(world: World, it: Workload, now: float) -> float | None:
    """The same for people; None where it rests on nothing but what its queue expects of work without a time limit.

    That is enough to put work in order, but read as a fact it would be none.
    """
    has_end = it.ask.duration_seconds is not None or (it.lease is not None and it.lease.ends_at is not None)
    return expected_end_at(world, it, now) if has_end or it.state is State.YIELDING else None


def ahead_of(world: World, it: Workload) -> int:
    """How many queued workloads stand before it in its queue; 0 is first."""
    count = 0
    for other in world.queued():
        if other.id == it.id:
            return count
        count += other.queue == it.queue
    return count
