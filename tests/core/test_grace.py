"""The grace of a job that states none: learnt from how its attempts left, and planned with."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_gpu.core.outlook import expected_start_at
from jupyter_gpu.core.status import view
from jupyter_gpu.core.victims import grace_seconds
from jupyter_gpu.model import (
    Caller,
    Drain,
    EndReason,
    HoldPolicy,
    LearntGrace,
    LoadPolicy,
    Outcome,
    Policy,
    Release,
    SeeDevices,
    SeeHung,
    State,
    WaitingReason,
    Workload,
)
from jupyter_gpu.model.lanes import lane_of
from jupyter_gpu.model.queues import INTERACTIVE, TRAINING
from tests.world import BEGIN, DAY, HOUR, SAVED, Play, a_spec


def left_by_itself(after: float) -> Outcome:
    """It saved, and was gone so many seconds after the notice."""
    return msgspec.structs.replace(SAVED, yield_seconds=after)


def cut_off(after: float, at: float, **words) -> Outcome:
    """It was still there at the end of its grace, and was killed."""
    forced = {"end": EndReason.FAILED, "signal": 9, "noticed": True, "forced": ("python (7)",)}
    return Outcome(**{**forced, "yield_seconds": after, "ended_at": at, **words})


def preempt(play: Play, job: int) -> int:
    """A reservation comes for its device."""
    play.later(HOUR)
    urgent = play.reservation()
    assert play.state(job) is State.YIELDING
    return urgent


def yields(play: Play, job: int, outcome: Outcome) -> Workload:
    """It is preempted, leaves like that, and runs again."""
    urgent = preempt(play, job)
    play.later(outcome.yield_seconds)
    play.exit(job, msgspec.structs.replace(outcome, ended_at=outcome.ended_at or play.now))
    play.do(Release(workload=urgent, by="bob"))
    play.clear(urgent)
    play.start(job)
    return play[job]


def is_killed(play: Play, job: int) -> Workload:
    """It is preempted, and was not done when its grace was over."""
    urgent = preempt(play, job)
    had = grace_of(play, job)
    play.later(had)
    play.exit(job, cut_off(had - 0.2, play.now + 0.1))
    play.do(Release(workload=urgent, by="bob"))
    play.clear(urgent)
    play.start(job)
    return play[job]


def grace_of(play: Play, job: int) -> int:
    """What it gets from its next notice on."""
    return grace_seconds(play.world.policy, play.world.policy.queue(play[job].queue), play[job])


def playing(**words) -> tuple[Play, int]:
    """One device and a training on it; 120 seconds are usual and 900 the longest."""
    play = Play(1, Policy(preemptions_per_day=100, **words))
    return play, play.running()


def test_who_needed_nearly_all_of_its_grace_gets_more_the_next_time():
    """As much as it needed and a quarter more."""
    play, job = playing()

    yields(play, job, left_by_itself(110.0))

    assert play[job].learnt_grace == LearntGrace(seconds=138, attempt=1, needed_seconds=110.0)
    requeued = next(event.detail for event in play.events if type(event).__name__ == "Requeued")
    assert requeued == "it left 1m50s after the notice, of the 2m that it had; the next time it gets 2m18s"
    preempt(play, job)
    assert play[job].yield_by == play.now + 138


def test_who_needs_far_less_keeps_the_usual():
    """It is the upper bound that everybody may count on, and a save takes longer at one time than at another."""
    play, job = playing()

    assert yields(play, job, left_by_itself(2.0)).learnt_grace is None
    assert yields(play, job, left_by_itself(96.0)).learnt_grace is None
    assert grace_of(play, job) == 120


def test_who_was_ended_by_force_gets_twice_as_much_until_it_is_known():
    """Nobody knows how much it needed; then it is known, and what was not enough is never given again."""
    play, job = playing()

    assert is_killed(play, job).learnt_grace == LearntGrace(seconds=240, attempt=1)
    assert is_killed(play, job).learnt_grace == LearntGrace(seconds=480, attempt=2)
    assert yields(play, job, left_by_itself(3.0)).learnt_grace == LearntGrace(seconds=480, attempt=2)
    known = LearntGrace(seconds=375, attempt=4, needed_seconds=300.0)
    assert yields(play, job, left_by_itself(300.0)).learnt_grace == known
    assert yields(play, job, left_by_itself(200.0)).learnt_grace == known, "it never shrinks"
    assert is_killed(play, job).learnt_grace == LearntGrace(seconds=750, attempt=6)


def test_what_is_learnt_is_within_the_longest_grace_that_there_is():
    """Also where the policy of now gives less than that of then."""
    play, job = playing(most_grace_seconds=200)

    is_killed(play, job)
    assert grace_of(play, job) == 200
    play.do(LoadPolicy(policy=Policy(most_grace_seconds=150)))
    assert grace_of(play, job) == 150


def test_where_not_even_the_longest_was_enough_it_is_the_usual_again():
    """One that is deaf to the notice would keep others waiting for a quarter of an hour each time, for nothing."""
    play, job = playing(most_grace_seconds=300)

    given = [is_killed(play, job) and grace_of(play, job) for _ in range(5)]

    assert given == [240, 300, 120, 120, 120]
    assert play[job].learnt_grace == LearntGrace(seconds=0, attempt=3)
    yields(play, job, left_by_itself(115.0))
    assert grace_of(play, job) == 144, "it can save within it after all"


def test_a_grace_that_is_stated_stays_as_it_is():
    """Its owner knows better, or will look."""
    play = Play(1)
    job = play.running(spec=a_spec(grace_seconds=30))

    assert is_killed(play, job).learnt_grace is None
    assert grace_of(play, job) == 30


@pytest.mark.parametrize("unsaved", [80.0, 100.0])
def test_who_had_saved_and_stayed_all_the_same_needs_no_more(unsaved):
    """What counts is when its last save was whole: nothing was lost with the rest."""
    play, job = playing()
    urgent = preempt(play, job)
    play.later(120)

    play.exit(job, cut_off(119.9, play.now, unsaved_seconds=unsaved, progressed=True))

    assert play.state(urgent) is State.ACTIVE
    assert play[job].learnt_grace is None


def test_a_save_of_before_the_notice_counts_for_nothing():
    """All the work since then was lost."""
    play, job = playing()
    preempt(play, job)
    play.later(120)

    play.exit(job, cut_off(119.9, play.now, unsaved_seconds=600.0, progressed=True))

    assert play[job].learnt_grace == LearntGrace(seconds=240, attempt=1)


@pytest.mark.parametrize(("hours", "seconds"), [(5, 240), (-5, 150)])
def test_a_clock_that_jumps_makes_no_more_of_it_than_a_kill(hours, seconds):
    """The wait is measured by a clock that never does; of who stayed nearly to the end only the way of it is unsure."""
    play, job = playing()
    preempt(play, job)
    jumped = play.now + hours * HOUR

    play.exit(job, msgspec.structs.replace(left_by_itself(3.0), ended_at=jumped))
    assert play[job].learnt_grace is None
    other, job = playing()
    preempt(other, job)
    other.exit(job, cut_off(119.8, other.now + hours * HOUR))

    assert grace_of(other, job) == seconds


def test_who_hung_or_lost_its_device_teaches_nothing():
    """It was not about to save: it is ended by force each time, and its grace would grow with each."""
    play, job = playing(failures=5)
    play.do(SeeHung(workload=job, attempt=1, detail="still since noon"))
    play.later(120)
    play.exit(job, cut_off(119.9, play.now))
    assert (play.state(job), play[job].learnt_grace) == (State.ACTIVE, None)

    play.start(job)
    play.do(SeeDevices(pool="local", devices=()))
    play.exit(job, cut_off(0.1, play.now + 1))
    assert (play.state(job), play[job].learnt_grace) == (State.QUEUED, None)


def test_a_queue_that_gives_no_grace_learns_none():
    """Who must leave at once is not meant to save."""
    at_once = msgspec.structs.replace(TRAINING, grace_seconds=0)
    play, job = playing(queues=(INTERACTIVE, at_once))

    assert yields(play, job, cut_off(0.1, BEGIN + DAY)).learnt_grace is None
    assert grace_of(play, job) == 0


def test_what_was_learnt_outlives_grants_failures_and_drains():
    """Until more is known."""
    play, job = playing()
    is_killed(play, job)
    known = play[job].learnt_grace

    play.do(Drain(device="gpu-0", by="op"))
    assert play[job].yield_by == play.now + 240
    play.exit(job, left_by_itself(1.0))
    assert (play.state(job), play[job].learnt_grace) == (State.QUEUED, known)


def test_a_hold_reckons_with_what_was_learnt():
    """Nothing is there any more when it begins: the notice goes out so much earlier."""
    hold = HoldPolicy(name="course", from_at=BEGIN + DAY, until_at=BEGIN + DAY + HOUR, count=1, teams=("course",))
    play, job = playing(holds=(hold,))
    is_killed(play, job)

    assert play.later(BEGIN + DAY - play.now - 240 - 31) == []
    assert play.later(1) == [f"evicted (preempted) {job}"]
    assert play[job].yield_by == BEGIN + DAY - 30


def test_a_job_starts_before_a_hold_only_where_it_can_have_left():
    """Of two that are alike but for that, one starts and one waits; so they are told apart in the line too."""
    play, job = playing()
    is_killed(play, job)
    preempt(play, job)
    play.exit(job, left_by_itself(1.0))
    fresh = play.job("ada")
    assert lane_of(play[job]) is not lane_of(play[fresh])
    begins = play.now + 600 + 120 + 30
    hold = HoldPolicy(name="course", from_at=begins, until_at=begins + HOUR, count=1, teams=("course",))
    play.do(LoadPolicy(policy=msgspec.structs.replace(play.world.policy, holds=(hold,))))

    play.do(Release(workload=next(it.id for it in play.world.holders()), by="bob"))
    for it in list(play.world.holders()):
        play.clear(it.id)

    assert play.waiting(job) is WaitingReason.HOLD
    assert play.state(fresh) is State.ACTIVE


def test_who_waits_for_it_is_told_a_start_that_counts_it():
    """By what it would leave at the latest."""
    play, job = playing()
    is_killed(play, job)
    asker = play.reservation()
    assert play.waiting(asker) is WaitingReason.DEVICES, "it is protected yet"

    expected = expected_start_at(play.world, play[asker], play.now, ahead=0)

    assert expected == play[job].active_at + 600 + 240 + play.world.policy.kill_after_seconds


def test_its_owner_sees_what_was_learnt_and_others_do_not():
    """How long a job needs to save is its owner's."""
    play, job = playing()
    is_killed(play, job)

    seen = {
        name: view(play.world, play[job], Caller(name=name, account=name), play.now, alone=True)
        for name in ("ada", "eve")
    }

    assert (seen["ada"].grace_seconds, seen["ada"].learnt_grace) == (240, LearntGrace(seconds=240, attempt=1))
    assert (seen["eve"].grace_seconds, seen["eve"].learnt_grace) == (None, None)
    assert view(play.world, play[job], Caller(name="ada", account="ada"), play.now).grace_seconds is None


def test_a_workload_of_an_older_store_has_learnt_nothing():
    """It was written before there was anything to learn."""
    play, job = playing()
    written = msgspec.json.encode(play[job])

    assert b"learnt_grace" not in written
    assert msgspec.json.decode(written, type=Workload) == play[job]
