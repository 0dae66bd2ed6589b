"""The attempts of a job, read from the events of its life."""

from __future__ import annotations

import msgspec

from jupyter_gpu.core.attempts import attempts_of
from jupyter_gpu.core.events import OfWorkload
from jupyter_gpu.model import AttemptView, Cancel, EndReason, EvictionReason, Outcome, Release, SeeExited
from tests.world import CRASHED, DONE, HOUR, SAVED, Play, a_spec


def attempts(play: Play, job: int) -> tuple[AttemptView, ...]:
    """Of one job, from the log of all."""
    return attempts_of(event for event in play.events if isinstance(event, OfWorkload) and event.workload == job)


def test_each_attempt_says_when_it_ran_on_what_why_it_left_and_what_it_did_again():
    """Preempted, crashed after a newer checkpoint, done: three attempts of one job."""
    play = Play(1)
    job, begun = play.running(spec=a_spec(retries=1)), play.now
    play.later(HOUR)
    urgent = play.reservation()
    saved = msgspec.structs.replace(SAVED, ended_at=play.now + 1, unsaved_seconds=30.0, to_step=100)
    play.exit(job, saved)
    play.do(Release(workload=urgent, by="bob"))
    play.clear(urgent)
    play.start(job)
    play.exit(job, CRASHED)
    play.start(job)

    first, second, third = attempts(play, job)

    assert first == AttemptView(
        attempt=1, started_at=begun, ended_at=begun + HOUR + 1, devices=("gpu-0",),
        eviction=EvictionReason.PREEMPTED, evicted_for=urgent, outcome=saved,
    )  # fmt: skip
    assert (second.attempt, second.outcome, second.eviction) == (2, CRASHED, None)
    assert second.repeated_seconds == 30.0
    assert (third.attempt, third.ended_at, third.outcome) == (3, None, None)
    assert third.repeated_seconds is None, "what the crash had not saved is not known"


def test_a_job_that_never_began_has_no_attempts():
    """A lease alone is none: it was called off before anything was started."""
    play = Play(1)
    job = play.job()
    play.do(Cancel(workload=job, by="ada"))
    never = Outcome(end=EndReason.CANCELLED, noticed=True)
    play.do(SeeExited(workload=job, attempt=1, outcome=never, started=False, clear=True))

    assert play[job].end is EndReason.CANCELLED
    assert attempts(play, job) == ()


def test_an_attempt_whose_end_is_the_first_that_is_heard_of_it_counts():
    """It was over, or evicted, before its start was told; the mark on the disk says that it ran."""
    play = Play(1)
    short = play.job()
    play.exit(short, DONE)
    assert [(it.attempt, it.outcome) for it in attempts(play, short)] == [(1, DONE)]

    job = play.job()
    play.do(Cancel(workload=job, by="ada"))
    play.exit(job, SAVED)
    (only,) = attempts(play, job)
    assert (only.attempt, only.eviction, only.outcome) == (1, EvictionReason.CANCELLED, SAVED)


def test_the_strongest_eviction_of_an_attempt_counts():
    """A cancel during the grace of a preemption."""
    play = Play(1)
    job = play.running()
    play.later(HOUR)
    play.reservation()
    play.do(Cancel(workload=job, by="ada"))

    (only,) = attempts(play, job)

    assert (only.eviction, only.ended_at) == (EvictionReason.CANCELLED, None)
