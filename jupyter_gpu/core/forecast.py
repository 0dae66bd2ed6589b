"""How long work is expected to run, the rank that follows from it, and when devices are expected back.

Nobody knows how long a job will run, and people who say so are often wrong. So its owner's last jobs are asked: those
of its name and size, else of its size, else all of theirs, then their team's and everybody's. Each ring of lengths
counts by how many it has, against what the wider ones say, so that one odd run does not decide. Where its owner has
run nothing yet, its time limit is taken, if it has one; and no job is expected to run beyond its limit.
"""

from __future__ import annotations

from math import exp, isqrt, log

from ..model import Kind, State, Workload, World
from ..model.ends import OVERRUN_SECONDS, due_after

#: What the wider kinds of work say counts as much as so many lengths of the narrower.
_AS_MANY = 2


def expected_seconds(world: World, it: Workload) -> int:
    """How long it will hold its devices, in all, from its first start on; of a reservation what was bought."""
    limit = it.ask.duration_seconds
    if it.kind is Kind.RESERVATION and limit is not None:
        return limit
    known, kind = world.habits.expected, (it.owner, it.team, it.name, it.ask.devices, it.queue, limit)
    seconds = known.get(kind)
    if seconds is None:
        seconds = known[kind] = _expected_seconds(world, it, limit)
    return seconds


def _expected_seconds(world: World, it: Workload, limit: int | None) -> int:
    if limit is not None and not world.habits.knows(it.owner):
        return limit
    expected = log(max(1, _usual_seconds(world, it)))
    for ring in world.habits.rings_of(it):
        expected = (ring.count * ring.log_of_mean + _AS_MANY * expected) / (ring.count + _AS_MANY)
    seconds = max(1, round(exp(expected)))
    return seconds if limit is None else min(limit, seconds)


def _usual_seconds(world: World, it: Workload) -> int:
    queue = world.policy.queue(it.queue)
    return 3600 if queue is None else queue.expected_seconds


def rank_ms(
    it: Workload,
    world: World,
    use_permille: int,
    *,
    left_seconds: float | None = None,
    done_seconds: float | None = None,
) -> int:
    """Submission time plus a bounded penalty for what it will still take, weighed by its owner's decayed use.

    Short work passes long work, and who has used little passes who has used much. The penalty grows with the expected
    time and the root of the size, ever more slowly, and never reaches its bound. So nobody starves: whoever submits
    later than the bound stands behind, whatever they ask for, and `wait_limit_seconds` of the queue lifts to the front
    whom only the want of a fit keeps waiting. Where jobs take turns, what one has had already counts as not waited.
    """
    policy = world.policy
    used = policy.order_use_seconds * use_permille // 1000
    root_milli = isqrt(max(1, it.ask.devices) * 1_000_000)
    weight_permille = 1000 + policy.order_use_weight * use_permille
    left = expected_left_seconds(world, it) if left_seconds is None else left_seconds
    cost = policy.order_multiple * round(left) * root_milli * weight_permille // 1_000_000 + used
    bound = policy.order_most_seconds
    penalty_ms = bound * cost * 1000 // (bound + cost) if bound + cost else 0
    queue = policy.queue(it.queue)
    had = 0.0
    if queue is not None and queue.slice_factor is not None:
        had = it.worked_seconds if done_seconds is None else done_seconds
    return round((it.submitted_at + had) * 1000) + penalty_ms


def expected_end_at(world: World, it: Workload, now: float) -> float:
    """When the devices of a live workload are expected back."""
    if it.state is State.YIELDING:
        return max(now, it.yield_by or now) + world.policy.kill_after_seconds
    if it.lease is None:
        return now
    if it.kind is Kind.RESERVATION and it.lease.ends_at is not None:
        return max(now, it.lease.ends_at) + world.policy.reservation_grace_seconds
    return max(now, due_after(it, now))


def expected_left_seconds(world: World, it: Workload) -> float:
    """How long a job will run from now on, of which earlier attempts have done a part."""
    expected, done = expected_seconds(world, it), it.worked_seconds - it.repeated_seconds
    left = expected - done if expected > done else max(OVERRUN_SECONDS, done / 2)
    limit = it.ask.duration_seconds
    return left if limit is None else min(left, limit)


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
