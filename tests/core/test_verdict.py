"""What becomes of an attempt that is over: exit codes, and a budget for each kind of bad end."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_gpu.broker.engines.verdict import judge
from jupyter_gpu.model import Cancel, EndReason, LetGo, Outcome, Policy, Release, SeeHung, State, WaitingReason
from tests.world import CRASHED, DAY, DONE, HOUR, KERNEL, SAVED, Play, a_spec

ASKED = Outcome(end=EndReason.FAILED, exit_code=75)
NO_START = Outcome(end=EndReason.LAUNCH_FAILED, detail="no more processes", engine_fault=True)
LOST = Outcome(end=EndReason.LOST, detail="nothing of it is left")


def crash(code: int, *, progressed: bool = False) -> Outcome:
    """A failure with its own mark."""
    return Outcome(end=EndReason.FAILED, exit_code=code, progressed=progressed)


def after(play: Play, job: int, *outcomes: Outcome) -> State:
    """Run attempts one after another, each with its outcome, as long as the job comes back."""
    for outcome in outcomes:
        if play.state(job) is State.ACTIVE:
            play.start(job)
            play.exit(job, outcome)
            if play.state(job) is State.QUEUED and outcome.end is EndReason.DEVICE_LOST:
                play.later(play[job].back_off_until - play.now)
    return play.state(job)


@pytest.mark.parametrize("end", [EndReason.GPU_OOM, EndReason.HOST_OOM, EndReason.DISK_FULL, EndReason.HUNG])
def test_what_would_happen_again_is_not_repeated_blindly(end):
    """Out of memory stays out of memory, with or without retries."""
    play = Play(1)
    job = play.running(spec=a_spec(retries=3))

    play.exit(job, Outcome(end=end, exit_code=1, progressed=True))

    assert play[job].end is end


def test_a_crash_without_progress_or_retries_is_over():
    """Nobody asked for a repetition, and nothing says that it would go better."""
    play = Play(1)
    job = play.running()

    assert play.exit(job, CRASHED) == [f"released {job}", f"ended (failed) {job}"]


def test_a_fork_after_cuda_is_the_programs_own_and_not_repeated():
    """Another run ends the same way, so nothing repeats it by itself (huggingface/accelerate#940).

    Who has asked for retries gets one, since the words alone prove nothing; the second time is the last.
    """
    said = (
        b"RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use"
        b" the 'spawn' start method\n"
    )
    end, detail = judge(1, None, said, 0)
    outcome = Outcome(end=EndReason(end), detail=detail, exit_code=1)
    play = Play(2)
    plain, stubborn = play.job(), play.job(spec=a_spec(retries=9))

    assert after(play, plain, outcome) is State.ENDED
    assert (play[plain].end, play[plain].attempt) == (EndReason.FAILED, 1)
    assert "another run ends the same way" in play[plain].detail
    assert after(play, stubborn, outcome) is State.ACTIVE
    assert after(play, stubborn, outcome, outcome) is State.ENDED
    assert play[stubborn].attempt == 2


def test_a_crash_with_a_newer_checkpoint_is_repeated_up_to_the_budget():
    """Three failures of the policy; the fourth ends it."""
    play = Play(1)
    job = play.job()

    assert after(play, job, *[crash(1, progressed=True)] * 3) is State.ACTIVE
    assert play[job].failures == 3
    assert after(play, job, crash(1, progressed=True)) is State.ENDED
    assert play[job].end is EndReason.FAILED


def test_retries_that_were_asked_for_are_the_budget():
    """Two retries are three attempts in all, as long as they do not fail alike."""
    play = Play(1)
    job = play.job(spec=a_spec(retries=2))

    assert after(play, job, crash(1), crash(2), crash(3), crash(4)) is State.ENDED
    assert (play[job].attempt, play[job].failures) == (3, 2)


def test_the_same_crash_twice_is_not_repeated_a_third_time():
    """The same exit code, signal and detail, without progress: it would be the same again."""
    play = Play(1)
    job = play.job(spec=a_spec(retries=9))

    assert after(play, job, crash(1), crash(1), crash(1)) is State.ENDED
    assert play[job].attempt == 2


def test_numbers_in_its_last_words_make_no_other_crash_of_it():
    """Sizes, pids and clocks differ each time; other words are another crash."""
    told = [
        Outcome(end=EndReason.FAILED, exit_code=1, detail=f"exit code 1; the log ends with: {words}")
        for words in ("KeyError: 'a'", "12:00:01 no batch at 0x7f01", "12:07:44 no batch at 0x7fe0", "KeyError: 'b'")
    ]
    play = Play(1)
    job = play.job(spec=a_spec(retries=9))

    assert after(play, job, *told) is State.ENDED
    assert play[job].attempt == 3


def test_no_retries_means_none():
    """Zero asked for is zero, even with progress."""
    play = Play(1)
    job = play.job(spec=a_spec(retries=0))

    assert after(play, job, crash(1, progressed=True)) is State.ENDED


def test_75_asks_to_be_requeued():
    """Without limit while it brings newer checkpoints; five times in a row without."""
    play = Play(1)
    job = play.job()

    assert after(play, job, *[crash(75, progressed=True)] * 20) is State.ACTIVE
    assert after(play, job, *[ASKED] * 5) is State.ACTIVE
    assert after(play, job, ASKED) is State.ENDED
    assert play[job].failures == 0


def test_preemptions_do_not_count_as_stalls():
    """They are free: a job that was moved often may still ask to be requeued."""
    play = Play(1)
    job = play.running()
    for _ in range(3):
        play.later(HOUR)
        reservation = play.reservation()
        play.exit(job, Outcome(end=EndReason.FAILED, exit_code=1, noticed=True))
        play.do(_release(reservation))
        play.clear(reservation)
        play.start(job)

    assert play[job].stalls == 0


def _release(reservation: int):
    return Release(workload=reservation, by="bob")


def test_93_asks_not_to_be_repeated():
    """Not even with retries and progress."""
    play = Play(1)
    job = play.job(spec=a_spec(retries=9))

    assert after(play, job, crash(93, progressed=True)) is State.ENDED
    assert play[job].end is EndReason.FAILED
    assert "93" in play[job].detail


def test_finished_is_success_whatever_the_exit_code():
    """The training said so itself."""
    play = Play(1)
    job = play.job()

    after(play, job, Outcome(end=EndReason.FAILED, exit_code=1, finished=True))

    assert play[job].end is EndReason.SUCCEEDED


def test_a_launch_failure_backs_off_and_at_last_pauses():
    """Not the user's fault: growing pauses, at the fifth it is paused and told, never lost."""
    play = Play(1)
    job = play.job()
    waits = []
    for _ in range(5):
        play.exit(job, NO_START)
        waits.append(play[job].back_off_until - play.now)
        assert play.waiting(job) in (WaitingReason.BACK_OFF, WaitingReason.PAUSED)
        play.later(waits[-1])

    assert waits == [10, 20, 40, 80, 160]
    assert play[job].paused
    assert "let it go" in play[job].detail
    play.do(LetGo(workload=job, by="ada"))
    assert play.state(job) is State.ACTIVE
    play.exit(job, NO_START)
    assert play[job].paused


def test_back_off_has_a_ceiling():
    """However often it was let go, the next try is within the hour."""
    play = Play(1, Policy(launch_failures=100))
    job = play.job()
    for _ in range(30):
        play.exit(job, NO_START)
        play.later(HOUR)

    assert play.state(job) is State.ACTIVE


def test_an_attempt_that_ran_ends_the_row_of_launch_failures():
    """The engine was well in between: the next failure to start is a first one."""
    play = Play(1)
    job = play.job()
    play.exit(job, NO_START)
    play.later(10)
    after(play, job, crash(75, progressed=True))
    play.exit(job, NO_START)

    assert play[job].launch_failures == 1


@pytest.mark.parametrize("outcome", [LOST, Outcome(end=EndReason.DEVICE_LOST, exit_code=1)])
def test_losses_have_a_budget_of_their_own(outcome):
    """A machine or a card that goes away is nobody's failure; five of them are enough."""
    play = Play(1)
    job = play.job()

    assert after(play, job, *[outcome] * 5) is State.ACTIVE
    assert (play[job].losses, play[job].failures) == (5, 0)
    assert after(play, job, outcome) is State.ENDED
    assert play[job].end is outcome.end


def test_timeouts_have_a_budget_of_their_own():
    """Three times with progress, then it is over."""
    play = Play(1)
    job = play.running(seconds=HOUR)
    for _ in range(4):
        play.later(HOUR)
        play.exit(job, SAVED)
        if play.state(job) is State.ACTIVE:
            play.start(job)

    assert play[job].end is EndReason.TIMED_OUT
    assert (play[job].timeouts, play[job].failures) == (3, 0)


def test_a_reservation_ends_as_it_was_given_up():
    """Released by its owner, expired, drained: each with its own word."""
    play = Play(1)
    reservation = play.reservation(seconds=HOUR, holder=KERNEL)
    play.later(HOUR)
    play.job()
    play.do(_release(reservation))
    play.clear(reservation)

    assert play[reservation].end is EndReason.EXPIRED


def test_the_old_place_in_line_is_kept():
    """Requeued means back to its place: who came later stays behind."""
    play = Play(1)
    job = play.running()
    play.later(HOUR)
    reservation, later = play.reservation(), play.job("cleo")
    play.exit(job, SAVED)
    play.later(DAY / 2)
    play.do(_release(reservation))

    assert play.clear(reservation)[-1] == f"granted {job}"
    assert play.state(later) is State.QUEUED
    assert play.exit(job, DONE)[-1] == f"granted {later}"


def test_the_same_crash_is_the_same_whatever_it_had_saved_and_however_long_it_ran():
    """What an attempt worked in vain differs each time, and is no other crash."""
    play = Play(1)
    job = play.job(spec=a_spec(retries=9))
    crashes = [
        Outcome(end=EndReason.FAILED, exit_code=1, from_step=step, to_step=step, unsaved_seconds=10.0 + step)
        for step in (1, 2)
    ]

    assert after(play, job, *crashes) is State.ENDED
    assert "the same twice" in play[job].detail


def test_work_that_is_done_again_is_summed_over_the_attempts_that_were_requeued():
    """What a job had not saved when it left is what the next attempt repeats; at the end nothing is repeated."""
    play = Play(1)
    job = play.running()

    for unsaved in (30.0, None, 12.5):
        play.later(HOUR)
        urgent = play.reservation()
        play.exit(job, msgspec.structs.replace(SAVED, unsaved_seconds=unsaved))
        play.do(Release(workload=urgent, by="bob"))
        play.clear(urgent)
        play.start(job)
    play.exit(job, msgspec.structs.replace(DONE, unsaved_seconds=100.0))

    assert (play.state(job), play[job].attempt, play[job].repeated_seconds) == (State.ENDED, 4, 42.5)


def test_a_preempted_job_says_how_long_it_took_to_leave_of_the_time_it_had():
    """So its owner sees whether the grace is enough for the save."""
    play = Play(1)
    job = play.running()
    play.later(HOUR)
    play.reservation()

    play.exit(job, msgspec.structs.replace(SAVED, yield_seconds=40.2))

    assert play[job].detail == "it left 40s after the notice, of the 2m that it had"


def test_a_job_that_hangs_gets_its_notice_and_starts_anew_from_its_checkpoint():
    """Within the budget of failures: what hangs each time is over as hung, with the words of who saw it."""
    play = Play(1, Policy(failures=1))
    job = play.running()

    for told in (["evicted (hung)", "released", "requeued"], ["evicted (hung)", "released", "ended (hung)"]):
        seen = SeeHung(workload=job, attempt=play[job].attempt, detail="it has been still since noon")
        said = play.do(seen)
        said += play.exit(job, Outcome(end=EndReason.FAILED, signal=15, noticed=True))
        assert [it.removesuffix(f" {job}") for it in said if not it.startswith("granted")] == told
        assert play[job].detail == "it has been still since noon"
        if play.state(job) is State.ACTIVE:
            play.start(job)
    assert play[job].end is EndReason.HUNG


def test_a_late_word_that_an_attempt_hangs_changes_nothing():
    """Of an attempt before, of one that has not started, of one that leaves already or is over."""
    play = Play(1)
    job = play.job()
    assert play.do(SeeHung(workload=job, attempt=1)) == []
    play.start(job)
    assert play.do(SeeHung(workload=job, attempt=2)) == []
    play.do(Cancel(workload=job, by="ada"))
    assert play.do(SeeHung(workload=job, attempt=1)) == []
    play.exit(job)
    assert play.do(SeeHung(workload=job, attempt=1)) == []
    assert play.do(SeeHung(workload=99, attempt=1)) == []
