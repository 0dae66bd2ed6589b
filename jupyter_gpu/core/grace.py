"""How much grace a job needs that states none of its own: it is learnt from how its attempts have left.

A save that is cut off is lost, and with it all the work since the one before; so who needed all of its grace, or
nearly, gets more the next time. What it needed is known where it left by itself; where it was ended by force nobody
knows, and it gets twice as much until it is known. That never shrinks, for a save takes longer at one time than at
another, and who needs far less keeps the usual: everybody is promised that. Where not even the longest was enough it is
the usual again: more would not help, and others would wait for nothing.
"""

from __future__ import annotations

import math

from ..model import EvictionReason, LearntGrace, Outcome, Workload

#: So much more than it needed, as a part of that.
_MARGIN = 0.25
#: Two readings of a clock do not agree to the last digit.
_SLACK_SECONDS = 0.05
#: It was asked to leave, and could. Who hung, or lost its device, was not about to save.
_TEACHES = frozenset({EvictionReason.PREEMPTED, EvictionReason.DRAINED, EvictionReason.TIMED_OUT, EvictionReason.IDLE})


def learnt(it: Workload) -> LearntGrace | None:
    """What is known of the grace it needs, when it has left and its lease is not forgotten yet."""
    before, outcome = it.learnt_grace, it.outcome
    if it.spec is None or it.spec.grace_seconds is not None or it.eviction not in _TEACHES:
        return before
    if outcome is None or outcome.yield_seconds is None or it.yield_by is None or it.evicted_at is None:
        return before
    had, needed = round(it.yield_by - it.evicted_at), _needed_seconds(outcome.yield_seconds, outcome.unsaved_seconds)
    if had <= 0:  # who is given none is not meant to save
        return before
    enough = math.ceil(needed * (1 + _MARGIN))
    # The notice comes a moment after the eviction, so what it had is a little less; and the clock of the wall may jump.
    if enough >= had and needed == outcome.yield_seconds and _was_there_at(it.yield_by, outcome):
        return _more(it, had)
    if enough <= _known_to_be_enough(before, had):
        return before
    return LearntGrace(seconds=enough, attempt=it.attempt, needed_seconds=needed)


def _needed_seconds(yield_seconds: float, unsaved_seconds: float | None) -> float:
    """From the notice to the exit; or to the end of its last save, after which it only stayed."""
    if unsaved_seconds is None or unsaved_seconds >= yield_seconds:
        return yield_seconds
    return yield_seconds - unsaved_seconds


def _was_there_at(end: float, outcome: Outcome) -> bool:
    return outcome.ended_at is None or outcome.ended_at >= end - _SLACK_SECONDS


def _more(it: Workload, had: int) -> LearntGrace:
    """Twice what was not enough; the usual where it could have no more."""
    before = it.learnt_grace
    if before is None or (had >= before.seconds and not before.is_in_vain):
        return LearntGrace(seconds=2 * had, attempt=it.attempt)
    return before if before.is_in_vain else LearntGrace(seconds=0, attempt=it.attempt)


def _known_to_be_enough(before: LearntGrace | None, had: int) -> int:
    """What it would have had anyway, or was not enough once, or was needed before: only more than that is news."""
    if before is None or before.is_in_vain:
        return had
    return before.seconds if before.needed_seconds is not None else before.seconds // 2
