"""The report, by histories that can be added up by hand, and of a lab in which much goes on, whose sums must agree."""

from __future__ import annotations

import contextlib
from random import Random

import msgspec
import pytest

from jupyter_gpu.core.events import DeviceAppeared, DeviceForgotten, DeviceMarked
from jupyter_gpu.core.past import OF_A_PAST, Life
from jupyter_gpu.core.report import Reckoning
from jupyter_gpu.errors import GpuError
from jupyter_gpu.model import (
    Cancel,
    Condition,
    Cordon,
    Dependency,
    EndReason,
    Forget,
    Kind,
    LetGo,
    Outcome,
    Policy,
    Release,
    ReportBy,
    ReportOf,
    ReportView,
    SeeCondition,
    SeeIdle,
    SharingRule,
    State,
    Submit,
    Uncordon,
    Workload,
)
from tests.world import BEGIN, CRASHED, DAY, DONE, GIB, HOUR, MINUTE, SAVED, Play, a_device, a_job, a_spec


def life_of(it: Workload) -> Life:
    """As the store reads it: from the words of the workload."""
    return msgspec.json.decode(msgspec.json.encode(it), type=Life)


def reckoned(play: Play, begin: float = BEGIN - 1, end: float | None = None, **words) -> Reckoning:
    """All lives of a play, added up."""
    of_devices = [it for it in play.events if isinstance(it, DeviceAppeared | DeviceMarked | DeviceForgotten)]
    found = Reckoning(of_devices, begin, play.now if end is None else end, **words)
    for id_ in sorted(play.world.workloads):
        events = [it for it in play.events if isinstance(it, OF_A_PAST) and it.workload == id_]
        found.add(life_of(play[id_]), events)
    return found


def report(play: Play, begin: float = BEGIN - 1, end: float | None = None, **words) -> ReportView:
    """The document of all of it."""
    return reckoned(play, begin, end, **words).view(ReportOf.ALL)


def test_leased_time_is_from_the_grant_until_the_devices_are_clear_and_there_is_as_much_as_there_are_devices():
    """Two devices for two hours; one is held for an hour and the five minutes until it is clear."""
    play = Play(2)
    job = play.running()
    play.later(HOUR)
    play.exit(job, msgspec.structs.replace(DONE, ended_at=play.now), clear=False)
    play.later(5 * MINUTE)
    play.clear(job)
    play.later(55 * MINUTE)

    found = report(play)

    assert found.device_time.devices == 2
    assert found.device_time.there_seconds == 4 * HOUR
    assert found.device_time.leased_seconds == HOUR + 5 * MINUTE
    assert found.device_time.leased_share == 65 / 240
    assert found.spent.worked_device_seconds == HOUR
    assert (found.spent.jobs, found.job_ends, found.jobs_unfinished) == (1, {"succeeded": 1}, 0)


def test_a_window_has_only_what_lies_within_it_and_windows_add_up():
    """A job of three hours on two devices, seen hour by hour."""
    play = Play(2)
    job = play.running(devices=2)
    play.later(3 * HOUR)
    play.exit(job, DONE)
    play.later(HOUR)

    hours = [report(play, BEGIN + hour * HOUR, BEGIN + (hour + 1) * HOUR) for hour in range(4)]

    assert [it.device_time.leased_seconds for it in hours] == [2 * HOUR, 2 * HOUR, 2 * HOUR, 0]
    assert [it.device_time.there_seconds for it in hours] == [2 * HOUR] * 4
    assert [it.job_ends for it in hours] == [{}, {}, {"succeeded": 1}, {}]
    assert [it.jobs_unfinished for it in hours] == [1, 1, 0, 0]
    assert report(play).device_time.leased_seconds == sum(it.device_time.leased_seconds for it in hours)


def test_what_runs_still_counts_until_the_end_of_the_window():
    """Half an hour so far."""
    play = Play(1)
    play.running()
    play.later(30 * MINUTE)

    found = report(play)

    assert found.device_time.leased_seconds == found.spent.worked_device_seconds == 30 * MINUTE
    assert (found.jobs_unfinished, found.job_ends) == (1, {})


def test_a_part_of_a_shared_device_counts_as_that_part():
    """A quarter of its memory for an hour, and a half beside it."""
    shared = [a_device(0, shareable=True)]
    play = Play(shared, Policy(sharing=(SharingRule(device_class="a100"),)))
    play.running(memory_bytes=20 * GIB)
    play.running(memory_bytes=40 * GIB)
    play.later(HOUR)

    assert report(play).device_time.leased_seconds == 45 * MINUTE
    assert report(play).device_time.there_seconds == HOUR


def test_a_lost_device_is_not_there_and_a_cordoned_one_cannot_be_used():
    """An hour cordoned, an hour well, then lost, and forgotten; the other is there all the time."""
    play = Play(2)
    play.do(Cordon(device="gpu-0", by="oper"))
    play.later(HOUR)
    play.do(Uncordon(device="gpu-0", by="oper"))
    play.later(HOUR)
    play.do(SeeCondition(device="gpu-0", condition=Condition.LOST, detail="it fell off the bus"))
    play.later(HOUR)
    play.do(Forget(device="gpu-0", by="oper"))
    play.later(HOUR)

    found = report(play).device_time

    assert (found.devices, found.there_seconds, found.unusable_seconds) == (1, 6 * HOUR, HOUR)
    assert report(play, play.now - 90 * MINUTE).device_time.there_seconds == 90 * MINUTE


def test_the_share_of_no_devices_is_not_known():
    """Nothing is divided by nothing, and never is it zero."""
    play = Play(0)
    play.later(HOUR)

    found = report(play)

    assert found.device_time.leased_share is None
    assert found.spent.repeated_share is None
    assert found.spent.failures_per_device_hour is None


def preempted(play: Play, job: int, unsaved: float) -> None:
    """An urgent reservation of ten minutes comes; the job saved so long before, and goes on after it."""
    urgent = play.reservation(devices=2)
    play.exit(job, msgspec.structs.replace(SAVED, ended_at=play.now, unsaved_seconds=unsaved))
    play.later(10 * MINUTE)
    play.do(Release(workload=urgent, by="bob"))
    play.clear(urgent)
    play.start(job)


def test_repeated_work_is_what_the_job_says_and_times_its_devices_and_its_share_is_of_all_work():
    """An hour of which five minutes were lost, then an hour of which half a minute was, then a half."""
    play = Play(2)
    job = play.running(devices=2)
    play.later(HOUR)
    preempted(play, job, 300.0)
    play.later(HOUR)
    preempted(play, job, 30.0)
    play.later(30 * MINUTE)
    play.exit(job, DONE)

    found = report(play)

    assert found.spent.repeated_seconds == play[job].repeated_seconds == 330.0
    assert found.spent.repeated_device_seconds == 660.0
    assert found.spent.worked_device_seconds == 2 * 150 * MINUTE
    assert found.spent.repeated_share == 660 / (2 * 150 * MINUTE)
    assert found.spent.preemptions == 2
    loss = found.longest_loss
    assert loss is not None
    assert (loss.seconds, loss.workload, loss.owner, loss.at) == (300.0, job, "ada", BEGIN + HOUR)


def test_what_nobody_repeats_is_not_repeated_work():
    """It was cancelled: what it had not saved is gone, and no attempt does it again."""
    play = Play(1)
    job = play.running()
    play.later(HOUR)
    play.do(Cancel(workload=job, by="ada"))
    play.exit(job, Outcome(end=EndReason.CANCELLED, noticed=True, unsaved_seconds=600.0))

    found = report(play)

    assert (found.spent.repeated_seconds, found.longest_loss) == (0.0, None)
    assert found.job_ends == {"cancelled": 1}
    assert found.failures == {}, "who calls it off has not failed"


def test_an_attempt_that_was_only_heard_of_at_its_end_has_worked_at_least_what_it_lost():
    """Its start was never told; what it had not saved was work all the same."""
    play = Play(1)
    job = play.job()
    play.later(HOUR)
    play.exit(job, Outcome(end=EndReason.FAILED, exit_code=75, ended_at=play.now, unsaved_seconds=120.0))

    found = report(play)

    assert found.spent.worked_device_seconds == found.spent.repeated_device_seconds == 120.0
    assert found.spent.repeated_seconds == play[job].repeated_seconds


def test_failures_are_attempts_that_failed_also_of_jobs_that_succeeded_and_are_told_by_the_hour():
    """A crash that is repeated, a success, and another job's out-of-memory: two failures in two hours."""
    play = Play(1)
    job = play.running(spec=a_spec(retries=1))
    play.later(30 * MINUTE)
    play.exit(job, CRASHED)
    play.start(job)
    play.later(HOUR)
    play.exit(job, DONE)
    other = play.running("grace")
    play.later(30 * MINUTE)
    play.exit(other, Outcome(end=EndReason.GPU_OOM, exit_code=1))

    found = report(play, by=ReportBy.USER)

    assert found.losses_not_known == 1, "the crash did not say what it had not saved"
    assert found.job_ends == {"gpu-oom": 1, "succeeded": 1}
    assert found.failures == {"failed": 1, "gpu-oom": 1}
    assert found.spent.failures_per_device_hour == 1.0
    assert [(row.name, row.failures, row.leased_device_seconds) for row in found.rows] == [
        ("ada", 1, 90 * MINUTE),
        ("grace", 1, 30 * MINUTE),
    ]


def test_waits_are_from_the_submission_to_the_first_grant_by_queue():
    """One device: waits of 0, 1, 2 and 3 hours for four jobs of an hour, and a reservation that preempts nobody."""
    play = Play(1)
    jobs = [play.job() for _ in range(4)]
    for job in jobs:
        play.start(job)
        play.later(HOUR)
        play.exit(job, DONE)
    play.reservation()

    waits = {it.queue: it for it in report(play).waits}

    training = waits["training"]
    assert (training.granted, training.median_seconds) == (4, 1.5 * HOUR)
    assert (training.p90_seconds, training.longest_seconds) == (3 * HOUR, 3 * HOUR)
    assert (training.waiting, training.waiting_longest_seconds) == (0, None)
    assert (waits["interactive"].granted, waits["interactive"].longest_seconds) == (1, 0.0)


def test_nine_of_ten_waits_are_not_longer_than_p90():
    """Ten waits of 0 to 9 hours: the ninth."""
    play = Play(1)
    for job in [play.job() for _ in range(10)]:
        play.start(job)
        play.later(HOUR)
        play.exit(job, DONE)

    (training,) = report(play).waits

    assert (training.p90_seconds, training.longest_seconds) == (8 * HOUR, 9 * HOUR)


def test_a_wait_begins_when_nothing_of_its_own_keeps_it():
    """Not before an hour from now; let go after two; after another that ends after three. Each then starts at once."""
    play = Play(4)
    later = play.job(not_before=BEGIN + HOUR)
    paused = play.job(paused=True)
    parent = play.running()
    child = play.job(after=(Dependency(workload=parent),))
    play.later(HOUR)
    play.later(HOUR)
    play.do(LetGo(workload=paused, by="ada"))
    play.later(HOUR)
    play.exit(parent, DONE)

    found = report(play)

    assert all(play[id_].lease is not None for id_ in (later, paused, child))
    (training,) = found.waits
    assert (training.granted, training.longest_seconds) == (4, 0.0)


def test_who_waits_still_is_told_beside_those_who_got_theirs_and_who_is_kept_by_their_own_wish_is_not():
    """A line is never made to look short by those in it who have not been served."""
    play = Play(1)
    play.running()
    play.job()
    play.job(paused=True)
    play.job(not_before=BEGIN + DAY)
    play.later(2 * HOUR)

    (training,) = report(play).waits

    assert (training.granted, training.longest_seconds) == (1, 0.0)
    assert (training.waiting, training.waiting_longest_seconds) == (1, 2 * HOUR)


def test_members_of_an_array_that_keep_one_another_are_in_no_wait():
    """At most one at a time: the second waited for the first, because its owner said so."""
    play = Play(2)
    play.submit(_an_array(at_most=1))
    play.start(1)
    play.later(HOUR)
    play.exit(1, DONE)
    assert play[2].lease is not None

    (training,) = report(play).waits

    assert (training.granted, training.left_out) == (0, 2)


def _an_array(**words) -> Submit:
    return a_job(array=({"lr": "1"}, {"lr": "2"}), **words)


def test_a_reservation_that_stood_idle_says_what_others_got_of_it():
    """Two devices for two hours, taken back after half an hour."""
    play = Play(2)
    it = play.reservation(devices=2, seconds=2 * HOUR)
    play.later(30 * MINUTE)
    play.do(SeeIdle(workload=it))
    play.do(Release(workload=it, by="bob"))
    play.clear(it)
    end = BEGIN + 3 * HOUR
    play.later(end - play.now)

    found = report(play)

    assert found.reservation_ends == {"released": 1}
    assert (found.idle_given_back, found.idle_given_back_device_seconds) == (1, 2 * 90 * MINUTE)
    assert found.device_time.leased_seconds == 2 * 30 * MINUTE


def test_whose_work_a_reader_may_not_know_is_one_row_without_a_name():
    """Their own has theirs; the longest loss of somebody else has no name either."""
    play = Play(2)
    job = play.running("grace", devices=2)
    play.later(HOUR)
    preempted(play, job, 60.0)
    play.exit(job, DONE)
    play.exit(play.running("ada"), DONE)

    found = report(play, by=ReportBy.USER, named=lambda life: life.owner == "ada")

    assert {row.name: (row.jobs, row.reservations) for row in found.rows} == {"ada": (1, 0), "": (1, 1)}
    assert found.longest_loss is not None
    assert (found.longest_loss.seconds, found.longest_loss.workload, found.longest_loss.owner) == (60.0, None, None)


@pytest.mark.parametrize("by", list(ReportBy))
def test_rows_add_up_to_the_whole(by: ReportBy):
    """Whatever they are rows of."""
    play = Play(2, Policy(teams={"vision": ("ada",)}))
    job = play.running("ada", devices=2)
    play.later(HOUR)
    preempted(play, job, 60.0)
    play.exit(job, CRASHED)
    play.running("grace")
    play.later(MINUTE)

    found = report(play, by=by)

    for name in ("jobs", "reservations", "leased_device_seconds", "worked_device_seconds", "repeated_seconds",
                 "repeated_device_seconds", "preemptions", "failures"):  # fmt: skip
        assert sum(getattr(row, name) for row in found.rows) == getattr(found.spent, name), name
    assert found.jobs_unfinished + sum(found.job_ends.values()) == found.spent.jobs == 2


def test_rows_by_end_say_what_went_into_work_that_failed():
    """An hour into nothing, and what is not over."""
    play = Play(2)
    job = play.running()
    play.later(HOUR)
    play.exit(job, CRASHED)
    play.running()
    play.later(MINUTE)

    found = report(play, by=ReportBy.END)

    assert [(row.name, row.leased_device_seconds) for row in found.rows] == [("failed", HOUR), ("unfinished", MINUTE)]


class Busy:
    """A small lab in which much goes on, by chance: work comes, runs, yields, crashes and ends; cards fall ill."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        devices = [a_device(0), a_device(1), a_device(2, device_class="l4", shareable=True)]
        self.play = Play(devices, Policy(sharing=(SharingRule(device_class="l4"),)))

    def step(self) -> None:
        """One thing happens, and time passes."""
        self.chance.choice((self.ask, self.ask, self.see, self.see, self.see, self.fall_ill))()
        self.play.later(self.chance.choice((0, 7, 0.4995, 20 * MINUTE, HOUR)))

    def ask(self) -> None:
        """A job, whole or in part, or a reservation, which takes a job's device."""
        owner = self.chance.choice(("ada", "grace", "cleo"))
        whole = {"device_class": "a100", "devices": self.chance.choice((1, 2))}
        words = self.chance.choice((whole, whole, {"device_class": "l4", "memory_bytes": 30 * GIB}))
        with contextlib.suppress(GpuError):
            if self.chance.random() < 0.4:
                self.play.reservation(owner, seconds=2 * HOUR, **words)
            else:
                self.play.job(owner, spec=a_spec(retries=self.chance.choice((None, 2))), **words)

    def see(self) -> None:
        """What holds devices goes on to where it is bound."""
        live = sorted(self.play.world.live)
        if not live:
            return
        it = self.play[self.chance.choice(live)]
        if it.kind is Kind.RESERVATION:
            self.play.do(Release(workload=it.id, by=it.owner))
            if self.play.state(it.id) is State.YIELDING:
                self.play.clear(it.id)
        elif it.started_at is None and it.state is State.ACTIVE:
            self.play.start(it.id)
        elif it.started_at is not None:
            self.leave(it)

    def leave(self, it: Workload) -> None:
        """An attempt is over, some of it not saved."""
        ran = self.play.now - (it.started_at or 0.0)
        saved = Outcome(
            end=self.chance.choice((EndReason.SUCCEEDED, EndReason.FAILED, EndReason.LOST)),
            exit_code=self.chance.choice((0, 75, 1, 93)),
            noticed=it.eviction is not None,
            progressed=self.chance.random() < 0.7,
            ended_at=self.play.now,
            unsaved_seconds=self.chance.choice((None, 0.0, ran, ran / 3)),
        )
        self.play.exit(it.id, saved)

    def fall_ill(self) -> None:
        """A card is cordoned, falls off the bus, or is well again."""
        uuid = self.chance.choice(("gpu-0", "gpu-2"))
        condition = self.chance.choice((None, None, Condition.LOST, Condition.HOT))
        self.play.do(SeeCondition(device=uuid, condition=condition, detail="as it happens"))


def busy(seed: int) -> Play:
    """All that went on in one lab."""
    lab = Busy(Random(seed))
    for _ in range(80):
        lab.step()
    return lab.play


@pytest.mark.parametrize("seed", range(12))
def test_sums_of_a_busy_lab_agree(seed: int):
    """No more is leased than there was, every end is a job's, and what was repeated is what the jobs say."""
    play = busy(seed)
    begin, end = BEGIN - 1, play.now
    middle = (begin + end) / 2
    whole, first, second = report(play, begin, end), report(play, begin, middle), report(play, middle, end)
    jobs = [it for it in play.world.workloads.values() if it.kind is Kind.JOB]
    for it in (whole, first, second):
        time, spent = it.device_time, it.spent
        assert 0 <= time.leased_seconds <= time.there_seconds
        assert 0 <= time.unusable_seconds <= time.there_seconds
        assert 0 <= spent.repeated_device_seconds <= spent.worked_device_seconds <= time.leased_seconds
        assert sum(it.job_ends.values()) + it.jobs_unfinished == spent.jobs
        assert sum(it.reservation_ends.values()) + it.reservations_unfinished == spent.reservations
        assert sum(it.failures.values()) == spent.failures
    assert whole.spent.jobs == len(jobs)
    assert whole.spent.repeated_seconds == pytest.approx(sum(it.repeated_seconds for it in jobs), abs=0.1)
    for name in ("preemptions", "failures"):
        assert getattr(whole.spent, name) == getattr(first.spent, name) + getattr(second.spent, name)
    assert _granted(whole) == _granted(first) + _granted(second)
    # What is cut is rounded in each part.
    for name in ("leased_device_seconds", "worked_device_seconds", "repeated_seconds", "repeated_device_seconds"):
        parts = getattr(first.spent, name) + getattr(second.spent, name)
        assert parts == pytest.approx(getattr(whole.spent, name), abs=0.1), name


def _granted(it: ReportView) -> int:
    return sum(waits.granted for waits in it.waits)


def test_a_busy_lab_has_something_of_everything():
    """Else agreeing sums would say little."""
    found = [report(busy(seed)) for seed in range(12)]

    assert sum(it.spent.repeated_device_seconds for it in found) > HOUR
    assert sum(it.spent.preemptions for it in found) > 5
    assert {"failed", "lost"} <= {kind for it in found for kind in it.failures}
    assert {"succeeded", "failed"} <= {end for it in found for end in it.job_ends}
    assert any(0 < it.device_time.there_seconds < 3 * (it.end_at - BEGIN) for it in found), (
        "a card was lost for a while"
    )
