"""What becomes of a workload once its devices are clear: back in line, or over. Read from the outcome, never guessed.

Preemptions are free. Failures, timeouts, launch failures and losses each have a budget of their own. A failed attempt
is repeated only where that can help: it brought a newer checkpoint, or its owner asked for retries; and never again
when it crashed the same way twice without progress. What dies of the hardware is nobody's failure: after a pause it
goes elsewhere, and costs none of its owner's retries (MFlowCode/MFC#1748).
"""

from __future__ import annotations

import re

import msgspec

from ..model import Condition, EndReason, EvictionReason, Kind, Outcome, Workload, World
from ..units import format_seconds
from .events import Ended, Requeued
from .grace import learnt
from .victims import grace_seconds

EXIT_REQUEUE = 75
EXIT_DO_NOT_RETRY = 93
#: Requeues in a row, asked for by the job itself, that brought no newer checkpoint.
MOST_STALLS = 5

LONGEST_BACK_OFF_SECONDS = 3600

#: Conditions that explain why work on a device died, whatever it says itself.
_KILLS_WORK = frozenset({Condition.LOST, Condition.FAULTY})

_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")

#: Evictions after which a job goes back to its place in line.
COMES_BACK = frozenset(
    {EvictionReason.PREEMPTED, EvictionReason.DRAINED, EvictionReason.DEVICE_LOST, EvictionReason.IDLE}
)
#: How a workload ends that was evicted for good.
END_OF = {
    EvictionReason.CANCELLED: EndReason.CANCELLED,
    EvictionReason.TIMED_OUT: EndReason.TIMED_OUT,
    EvictionReason.EXPIRED: EndReason.EXPIRED,
    EvictionReason.DEVICE_LOST: EndReason.DEVICE_LOST,
    EvictionReason.HUNG: EndReason.HUNG,
    EvictionReason.DRAINED: EndReason.RELEASED,
    EvictionReason.ABOVE_SHARE: EndReason.ABOVE_SHARE,
    EvictionReason.NO_SHOW: EndReason.ABANDONED,
    EvictionReason.IDLE: EndReason.RELEASED,
    EvictionReason.PREEMPTED: EndReason.RELEASED,
}


def verdict(world: World, it: Workload, now: float) -> Requeued | Ended:
    """The event that closes a YIELDING workload whose devices are clear."""
    if it.kind is Kind.RESERVATION:
        return _of_reservation(it, now)
    outcome = it.outcome or Outcome(end=EndReason.LOST, detail="it left no outcome")
    if it.eviction is not None:
        return _of_evicted(world, it, outcome, now)
    return _of_attempt(world, it, outcome, now)


def _of_reservation(it: Workload, now: float) -> Ended:
    end = EndReason.RELEASED if it.eviction is None else END_OF[it.eviction]
    if it.eviction is None and it.outcome is not None:
        end = it.outcome.end
    return Ended(at=now, workload=it.id, end=end, detail=it.detail)


def _of_evicted(world: World, it: Workload, outcome: Outcome, now: float) -> Requeued | Ended:
    """Any exit code goes back in line if the notice came before the exit: many scripts save on SIGTERM and exit 0."""
    eviction = it.eviction or EvictionReason.CANCELLED
    if outcome.finished:
        return _of_attempt(world, it, outcome, now)
    if eviction is EvictionReason.CANCELLED:
        return Ended(at=now, workload=it.id, end=EndReason.CANCELLED, detail=it.detail)
    is_sick = eviction is EvictionReason.DRAINED and _died_of_the_hardware(world, it, outcome)
    is_excused = outcome.engine_fault or eviction is EvictionReason.DEVICE_LOST or is_sick
    is_of_itself = not (outcome.noticed or is_excused)
    if is_of_itself or (outcome.exit_code == EXIT_DO_NOT_RETRY and eviction in COMES_BACK):
        return _of_attempt(world, it, outcome, now)
    if eviction is EvictionReason.TIMED_OUT and outcome.progressed and it.timeouts < world.policy.timeouts:
        return Requeued(at=now, workload=it.id, cause="timed-out", detail="time limit reached; goes on from there")
    if eviction is EvictionReason.HUNG and it.failures < world.policy.failures:
        return Requeued(at=now, workload=it.id, cause="failed", detail=it.detail or "it hung")
    if eviction in COMES_BACK and not (eviction is EvictionReason.DEVICE_LOST and it.losses >= world.policy.losses):
        left = "ended by force: " + ", ".join(outcome.forced) if outcome.forced else _how_it_left(it, outcome)
        left += _next_time(world, it)
        # Away from hardware that failed; once it is well again it is as good as any.
        away = now if _is_on_bad_hardware(world, it) else None
        return Requeued(at=now, workload=it.id, cause=str(eviction), detail=left, avoid_until=away)
    return Ended(at=now, workload=it.id, end=END_OF[eviction], detail=it.detail)


def _how_it_left(it: Workload, outcome: Outcome) -> str:
    """How much of its grace it needed: what its owner goes by who wonders whether it is enough."""
    if outcome.yield_seconds is None or it.yield_by is None or it.evicted_at is None:
        return ""
    left, had = format_seconds(outcome.yield_seconds), format_seconds(it.yield_by - it.evicted_at)
    return f"it left {left} after the notice, of the {had} that it had"


def _next_time(world: World, it: Workload) -> str:
    """What it gets by that the next time, where that is another grace than it had."""
    policy, queue = world.policy, world.policy.queue(it.queue)
    now = grace_seconds(policy, queue, it)
    then = grace_seconds(policy, queue, msgspec.structs.replace(it, learnt_grace=learnt(it)))
    return "" if then == now else f"; the next time it gets {format_seconds(then)}"


def _of_attempt(world: World, it: Workload, outcome: Outcome, now: float) -> Requeued | Ended:
    """It left by itself."""
    if outcome.end is EndReason.SUCCEEDED or outcome.finished:
        return Ended(at=now, workload=it.id, end=EndReason.SUCCEEDED, detail=outcome.detail)
    if outcome.exit_code == EXIT_DO_NOT_RETRY:
        return Ended(at=now, workload=it.id, end=EndReason.FAILED, detail="exit code 93 asks not to be repeated")
    if outcome.exit_code == EXIT_REQUEUE and (outcome.progressed or it.stalls < MOST_STALLS):
        return Requeued(at=now, workload=it.id, cause="asked", detail="exit code 75 asks to be requeued")
    if outcome.engine_fault:
        return _of_engine_fault(world, it, outcome, now)
    if _died_of_the_hardware(world, it, outcome) and it.losses < world.policy.losses:
        until = now + world.policy.strike_seconds
        # By the words of its log, mostly: a program that says so by mistake must not go through all cards in a second.
        return Requeued(
            at=now,
            workload=it.id,
            cause=str(EndReason.DEVICE_LOST),
            detail=outcome.detail,
            avoid_until=until,
            back_off_until=now + _pause_seconds(world, it.losses),
        )
    if outcome.end is EndReason.LOST and it.losses < world.policy.losses:
        return Requeued(at=now, workload=it.id, cause=str(outcome.end), detail=outcome.detail)
    if outcome.end is EndReason.FAILED and _is_worth_repeating(world, it, outcome):
        return Requeued(at=now, workload=it.id, cause="failed", detail=outcome.detail)
    detail = outcome.detail
    if outcome.end is EndReason.FAILED and _is_same_crash(it.last_failure, outcome):
        detail += "; the same twice without a newer checkpoint, so it is not repeated again"
    return Ended(at=now, workload=it.id, end=outcome.end, detail=detail)


def _is_on_bad_hardware(world: World, it: Workload) -> bool:
    uuids = it.lease.devices if it.lease is not None else ()
    return any(world.devices[uuid].condition in _KILLS_WORK for uuid in uuids)


def _died_of_the_hardware(world: World, it: Workload, outcome: Outcome) -> bool:
    """By what it says itself, or because it failed on a device that is known to have failed."""
    if outcome.end is EndReason.DEVICE_LOST:
        return True
    return outcome.end is EndReason.FAILED and _is_on_bad_hardware(world, it)


def _of_engine_fault(world: World, it: Workload, outcome: Outcome, now: float) -> Requeued:
    """Not the user's fault and not the user's retries: growing pauses, at last paused and told; never lost."""
    is_last = it.launch_failures + 1 >= world.policy.launch_failures
    detail = outcome.detail + (". It is paused; let it go when the cause is mended" if is_last else "")
    return Requeued(
        at=now,
        workload=it.id,
        cause="launch-failed",
        back_off_until=now + _pause_seconds(world, it.launch_failures),
        paused=is_last,
        detail=detail,
    )


def _pause_seconds(world: World, times_before: int) -> float:
    """How long the next try waits: twice as long each time."""
    return float(min(LONGEST_BACK_OFF_SECONDS, world.policy.back_off_seconds * 2 ** min(times_before, 20)))


def _is_worth_repeating(world: World, it: Workload, outcome: Outcome) -> bool:
    asked = it.spec.retries if it.spec is not None else None
    budget = world.policy.failures if asked is None else asked
    if it.failures >= budget:
        return False
    if outcome.progressed:
        return True
    return asked is not None and not _is_same_crash(it.last_failure, outcome)


def _is_same_crash(before: Outcome | None, outcome: Outcome) -> bool:
    return before is not None and _mark_of(before) == _mark_of(outcome)


def _mark_of(outcome: Outcome) -> Outcome:
    """What tells one crash from another: not the numbers in its words, which are sizes, steps, pids and clocks."""
    words = _NUMBERS.sub("0", outcome.detail)
    return Outcome(end=outcome.end, exit_code=outcome.exit_code, signal=outcome.signal, detail=words)
