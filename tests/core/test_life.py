"""The life of a workload: one command in, exact events out. The rules of "three verbs" with a test each."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from jupyter_gpu.core import decide as decide_module
from jupyter_gpu.core.decide import decide
from jupyter_gpu.core.events import Evicted, Granted, Released, Submitted
from jupyter_gpu.core.lifecycle import evolve
from jupyter_gpu.core.observed import evict_all
from jupyter_gpu.core.status import notice_of
from jupyter_gpu.errors import Conflict, NotFound
from jupyter_gpu.model import (
    Cancel,
    Condition,
    Cordon,
    Drain,
    EndReason,
    EvictionReason,
    Extend,
    Holder,
    LetGo,
    LoadPolicy,
    Move,
    Outcome,
    Pause,
    Policy,
    QueuePolicy,
    Release,
    Reprioritise,
    SeeCondition,
    SeeDevices,
    SeeExited,
    SeeHolderGone,
    SeeProbe,
    SeeStarted,
    State,
    Tick,
    Uncordon,
    WaitingReason,
)
from jupyter_gpu.model.queues import DEFERRED, INTERACTIVE
from tests.world import (
    BEGIN,
    CRASHED,
    DAY,
    DONE,
    HOUR,
    KERNEL,
    SAVED,
    Play,
    a_device,
    a_job,
    a_mig_device,
    a_reservation,
    a_spec,
    differences,
)

PREEMPTABLE = 700  # past the ten minutes in which a training is protected


# -- the three stories


def test_the_second_story_prints_exactly_its_events():
    """A job yields to a reservation, resumes when that ends, and finishes: DESIGN 10.2, event by event."""
    play = Play(1)
    job = play.running()
    play.later(PREEMPTABLE)

    reservation = play.reservation()
    assert play.waiting(reservation) is WaitingReason.CLEARING
    assert play.exit(job, SAVED) == [f"released {job}", f"requeued {job}", f"granted {reservation}"]
    play.do(Release(workload=reservation, by="bob"))
    assert play.clear(reservation) == [f"ended (released) {reservation}", f"granted {job}"]
    play.start(job)
    play.exit(job)

    assert play.story(job) == [
        "submitted", "granted", "started (1)", "evicted (preempted)", "released", "requeued", "granted", "started (2)",
        "released", "ended (succeeded)",
    ]  # fmt: skip


def test_the_first_story_reserves_and_gives_back():
    """Submitted and granted in one step; released, and ended only when the device was read clear."""
    play = Play(1)

    assert play.do(a_reservation()) == ["submitted 1", "granted 1"]
    assert play[1].lease.ends_at == BEGIN + 2 * HOUR
    assert play.do(Release(workload=1, by="bob")) == ["released 1"]
    assert play.state(1) is State.YIELDING
    assert play[1].outcome.end is EndReason.RELEASED
    assert play.clear(1) == ["ended (released) 1"]


# -- released, evicted, and which of them counts


def test_released_in_active_fixes_the_outcome():
    """A job that has ended by itself stays succeeded, even if somebody cancels while its devices are being checked."""
    play = Play(1)
    job = play.running()
    play.exit(job, DONE, clear=False)

    assert play.do(Cancel(workload=job, by="ada")) == []
    assert play.clear(job) == [f"ended (succeeded) {job}"]


def test_a_cancel_while_clearing_stops_a_retry():
    """What would come back after its end does not come back when its owner cancels before the devices are clear."""
    play = Play(1)
    job = play.running()
    play.exit(job, Outcome(end=EndReason.FAILED, exit_code=1, progressed=True), clear=False)

    assert play.do(Cancel(workload=job, by="ada")) == [f"evicted (cancelled) {job}"]
    assert play.clear(job) == [f"ended (cancelled) {job}"]


@pytest.mark.parametrize(("first", "second"), list(itertools.product(EvictionReason, EvictionReason)), ids=str)
def test_among_evictions_the_stronger_wins(first, second):
    """In the order of the enum; an equal or weaker reason says nothing new."""
    play = Play(1)
    job = play.running()
    play.events += [Evicted(at=play.now, workload=job, reason=first, yield_by=play.now + 120)]
    evolve(play.world, play.events[-1])

    found = evict_all(play.world, play.world.holders_of("gpu-0"), second, play.now)

    order = list(EvictionReason)
    assert bool(found) is (order.index(second) < order.index(first))


def test_a_cancel_during_the_grace_never_comes_back():
    """A preempted job that is cancelled while it saves ends as cancelled, whatever its exit code."""
    play = Play(1)
    job = play.running()
    play.later(PREEMPTABLE)
    play.reservation()

    assert play.do(Cancel(workload=job, by="ada")) == [f"evicted (cancelled) {job}"]
    assert play.do(Cancel(workload=job, by="ada")) == []
    assert play.exit(job, SAVED)[:2] == [f"released {job}", f"ended (cancelled) {job}"]


@pytest.mark.parametrize("exit_code", [0, 1, 75, 137])
def test_after_a_notice_any_exit_code_requeues(exit_code):
    """Many scripts save on SIGTERM and exit 0: reading that as success would lose half a training."""
    play = Play(1)
    job = play.running()
    play.later(PREEMPTABLE)
    play.reservation()

    end = EndReason.SUCCEEDED if exit_code == 0 else EndReason.FAILED
    play.exit(job, Outcome(end=end, exit_code=exit_code, noticed=True))

    assert play.state(job) is State.QUEUED
    assert len(play[job].preempted_at) == 1


@pytest.mark.parametrize(
    ("outcome", "end"),
    [
        (Outcome(end=EndReason.SUCCEEDED, exit_code=0, noticed=False), EndReason.SUCCEEDED),
        (Outcome(end=EndReason.SUCCEEDED, exit_code=0, noticed=True, finished=True), EndReason.SUCCEEDED),
        (Outcome(end=EndReason.FAILED, exit_code=143, noticed=True, finished=True), EndReason.SUCCEEDED),
        (Outcome(end=EndReason.FAILED, exit_code=93, noticed=True), EndReason.FAILED),
        (Outcome(end=EndReason.FAILED, exit_code=1, noticed=False), EndReason.FAILED),
    ],
)
def test_a_preemption_counts_only_if_its_notice_was_delivered(outcome, end):
    """Who left before the notice, said finished() or asked with 93 not to be repeated ends as its outcome says."""
    play = Play(1)
    job = play.running()
    play.later(PREEMPTABLE)
    play.reservation()

    play.exit(job, outcome)

    assert play[job].end is end


def test_a_job_that_was_preempted_before_it_started_comes_back_for_free():
    """No mark was made, so the number does not rise and nothing is counted against it."""
    play = Play(1)
    job = play.job()
    play.later(PREEMPTABLE)
    play.reservation()
    never = Outcome(end=EndReason.RELEASED, detail="it had not started yet", noticed=True)

    play.do(SeeExited(workload=job, attempt=1, outcome=never, clear=True, started=False))

    assert play.state(job) is State.QUEUED
    assert (play[job].attempt, play[job].losses, play[job].failures) == (0, 0, 0)


def test_the_number_rises_even_when_the_notice_came_before_the_start_was_seen():
    """The mark of attempt 1 is on the disk: the next attempt must be 2, or it would be taken for the first."""
    play = Play(1)
    job = play.job()
    play.later(PREEMPTABLE)
    reservation = play.reservation()
    play.do(SeeExited(workload=job, attempt=1, outcome=SAVED, clear=True))
    play.do(Release(workload=reservation, by="bob"))
    play.clear(reservation)

    assert play[job].attempt == 1
    assert play.start(job) == [f"started (2) {job}"]


def test_overdue_leads_to_a_kill_and_not_to_a_free_device():
    """When the grace is over the device stays leased until the holder is gone and the device is clear."""
    play = Play(1)
    job = play.running()
    play.later(PREEMPTABLE)
    reservation = play.reservation()

    assert play.later(119) == []
    assert play.later(2) == [f"overdue {job}"]
    assert play.later(600) == []
    assert play.holding() == {job: ("gpu-0",)}
    assert play.waiting(reservation) is WaitingReason.CLEARING
    assert f"granted {reservation}" in play.exit(job, SAVED)


# -- attempts


def test_the_number_of_an_attempt_rises_at_the_start_and_not_at_the_grant():
    """A grant that never starts leaves no number behind."""
    play = Play(1)
    job = play.job()

    assert play[job].attempt == 0
    play.start(job)
    assert play[job].attempt == 1


def test_a_start_that_is_told_twice_or_late_changes_nothing():
    """Every word carries the attempt; only that of the present one is news."""
    play = Play(1)
    job = play.running()
    holder = Holder(kind="attempt", name="x")

    for attempt in (0, 1, 2, 7):
        assert play.do(SeeStarted(workload=job, attempt=attempt, holder=holder)) == []
    assert play.do(SeeStarted(workload=99, attempt=1, holder=holder)) == []


def test_a_job_that_was_over_before_its_start_was_told_started_all_the_same():
    """Short jobs end before anybody looks: started, released and ended come in one step."""
    play = Play(1)
    job = play.job()

    assert play.exit(job) == [f"started (1) {job}", f"released {job}", f"ended (succeeded) {job}"]


@pytest.mark.parametrize("attempt", [0, 1, 3])
def test_a_late_word_of_an_earlier_attempt_changes_nothing(attempt):
    """Attempt 1 is over and 2 is granted: what is said about 1 again must not end 2."""
    play = Play(1)
    job = play.running()
    play.exit(job, Outcome(end=EndReason.FAILED, exit_code=75, progressed=True))
    assert play.state(job) is State.ACTIVE

    assert play.do(SeeExited(workload=job, attempt=attempt, outcome=CRASHED, clear=True)) == []
    assert play.state(job) is State.ACTIVE


def test_a_second_end_of_one_attempt_changes_nothing():
    """The outcome is fixed once."""
    play = Play(1)
    job = play.running()
    play.exit(job, DONE, clear=False)

    assert play.exit(job, CRASHED, clear=False) == []
    assert play[job].outcome == DONE


def test_late_observations_never_revive():
    """Nothing that is seen of an ended workload brings it back."""
    play = Play(1)
    job = play.running()
    play.exit(job)

    for command in (
        SeeExited(workload=job, attempt=1, outcome=SAVED, clear=True),
        SeeStarted(workload=job, attempt=2, holder=KERNEL),
        SeeProbe(workload=job),
        SeeHolderGone(workload=job, holder_number=1),
    ):
        assert play.do(command) == []


# -- clearing and quarantine


def test_what_is_not_clear_in_bounded_time_is_quarantined_and_closed():
    """The answer does not wait for ever for a device; the device does, and is not leased before it is clear again."""
    play = Play(1)
    job = play.running()
    play.exit(job, DONE, clear=False)

    assert play.do(SeeProbe(workload=job, unclear=("gpu-0",), unclear_seconds=59)) == []
    closed = play.do(SeeProbe(workload=job, unclear=("gpu-0",), unclear_seconds=60, detail="python (77)"))
    assert closed == ["device-marked", f"ended (succeeded) {job}"]
    assert play.world.devices["gpu-0"].condition is Condition.NOT_CLEAR
    assert play.world.devices["gpu-0"].condition_detail == "python (77)"

    later = play.job("bob")
    assert play.waiting(later) is WaitingReason.DEVICES
    assert play.do(SeeCondition(device="gpu-0", condition=None)) == ["device-marked", f"granted {later}"]


def test_a_lost_device_need_not_be_clear():
    """There is nothing to wait for on a device that is gone."""
    play = Play(2)
    job = play.running()
    play.do(SeeCondition(device="gpu-0", condition=Condition.LOST))
    play.exit(job, Outcome(end=EndReason.DEVICE_LOST, noticed=True), clear=False)

    play.do(SeeProbe(workload=job, unclear=("gpu-0",), unclear_seconds=0))

    assert play.devices_of(job) == ("gpu-1",)


def test_a_device_that_cannot_be_read_is_still_waited_for():
    """While it cannot be read the clock stands still, and nothing is called clear."""
    play = Play(1)
    job = play.running()
    play.exit(job, DONE, clear=False)
    play.do(SeeCondition(device="gpu-0", condition=Condition.UNREADABLE))

    assert play.do(SeeProbe(workload=job, unclear=("gpu-0",), unclear_seconds=0)) == []


def test_a_probe_of_devices_that_are_not_its_own_says_nothing():
    """Only a workload's own devices keep it from being closed."""
    play = Play(2)
    job = play.running()
    play.exit(job, DONE, clear=False)

    assert play.do(SeeProbe(workload=job, unclear=("gpu-1", "gpu-9"))) == [f"ended (succeeded) {job}"]


@pytest.mark.parametrize("condition", sorted(set(Condition) - {Condition.FAULTY}))
def test_a_clean_reading_ends_all_but_a_hardware_fault(condition):
    """A device that is well again is free again by itself."""
    play = Play(1)

    assert play.do(SeeCondition(device="gpu-0", condition=condition)) == ["device-marked"]
    assert play.do(SeeCondition(device="gpu-0", condition=condition)) == []
    assert play.do(SeeCondition(device="gpu-0", condition=None)) == ["device-marked"]
    assert play.world.devices["gpu-0"].condition is None


# -- devices


def test_a_device_that_vanishes_is_lost_with_what_runs_on_it():
    """The job goes elsewhere at once, without a grace, and not back to the same device."""
    play = Play(2)
    job = play.running()

    assert play.do(SeeDevices(pool="local", devices=(a_device(1),))) == [
        "device-marked",
        f"evicted (device-lost) {job}",
    ]
    assert play[job].yield_by == play.now
    play.exit(job, Outcome(end=EndReason.FAILED, exit_code=1))
    assert play.devices_of(job) == ("gpu-1",)
    assert play[job].losses == 1


def test_a_reservation_on_a_lost_device_gets_its_grace():
    """A person may still save what is in the kernel's memory."""
    play = Play(1)
    reservation = play.reservation()

    play.do(SeeDevices(pool="local", devices=()))

    assert play[reservation].yield_by == play.now + 60


def test_an_inventory_keeps_marks_and_minds_its_own_pool():
    """Known devices keep their cordon; another pool's devices are none of its business."""
    play = Play([a_device(0), a_device(1, pool="rented")])
    play.do(Cordon(device="gpu-0", by="op"))

    assert play.do(SeeDevices(pool="local", devices=(a_device(0),))) == []
    assert play.do(SeeDevices(pool="local", devices=(a_device(0, name="B200"),))) == ["device-appeared"]
    assert play.world.devices["gpu-0"].cordoned
    assert play.world.devices["gpu-1"].condition is None


def test_cordon_means_no_new_leases_and_leaves_the_present_one():
    """Cordon and uncordon, by index or UUID, each said once."""
    play = Play(1)
    job = play.running()

    assert play.do(Cordon(device="0", by="op")) == ["device-marked"]
    assert play.do(Cordon(device="gpu-0", by="op")) == []
    assert play.state(job) is State.ACTIVE
    play.exit(job)
    later = play.job()
    assert play.waiting(later) is WaitingReason.DEVICES
    assert play.do(Uncordon(device="0", by="op")) == ["device-marked", f"granted {later}"]
    assert play.do(Uncordon(device="0", by="op")) == []
    with pytest.raises(NotFound, match="no GPU '7'"):
        play.do(Cordon(device="7", by="op"))


def test_a_mig_device_is_named_as_people_read_it():
    """By its card and its place there; the number that NVML has for it is nobody's."""
    play = Play([a_device(0), a_mig_device(1, card=2)])

    assert play.do(Cordon(device="2:1", by="op")) == ["device-marked"]
    for name in ("301", "3", "2:0"):
        with pytest.raises(NotFound, match=f"there is no GPU '{name}'"):
            play.do(Cordon(device=name, by="op"))


def test_drain_cordons_and_evicts_with_grace_whatever_is_there():
    """Reservations and protected jobs too; jobs come back elsewhere, reservations end."""
    play = Play(2)
    job, reservation = play.running(), play.reservation()

    assert play.do(Drain(device="gpu-0", by="op")) == ["device-marked", f"evicted (drained) {job}"]
    assert play[job].yield_by == play.now + 120
    play.do(Drain(device="gpu-1", by="op"))
    play.do(Release(workload=reservation, by="bob"))
    assert play.clear(reservation) == [f"ended (released) {reservation}"]
    play.exit(job, SAVED)
    assert play.state(job) is State.QUEUED
    assert play[job].preempted_at == ()


def test_a_reason_stays_with_the_device_until_it_is_cordoned_no_more():
    """Whatever is seen of it meanwhile; another reason replaces it, and none said anew leaves it."""
    play = Play(1)

    def stands() -> tuple[bool, str, str]:
        device = play.world.devices["gpu-0"]
        return device.cordoned, device.cordoned_by, device.cordon_reason

    play.do(Cordon(device="0", by="op", reason="a new fan"))
    assert stands() == (True, "op", "a new fan")
    play.do(SeeCondition(device="gpu-0", condition=Condition.HOT))
    play.do(SeeDevices(pool="local", devices=(a_device(0, name="B200"),)))
    assert play.do(Cordon(device="0", by="other")) == []
    assert stands() == (True, "op", "a new fan")
    assert play.do(Drain(device="0", by="other", reason="a new card")) == ["device-marked"]
    assert stands() == (True, "other", "a new card")
    play.do(SeeCondition(device="gpu-0", condition=None))
    play.do(Uncordon(device="0", by="op"))
    assert stands() == (False, "", "")


def test_who_must_leave_reads_who_asked_for_it_and_why():
    """In the notice while it lasts, and in how it ended."""
    play = Play(2)
    job, reservation, waits = play.running(), play.reservation(), play.reservation(owner="cho")

    play.do(Drain(device="gpu-1", by="grace", reason="node maintenance"))
    notice = notice_of(play[reservation])
    assert notice is not None
    assert (notice.reason, notice.detail) == ("drained", "drained by grace: node maintenance")
    play.do(Cancel(workload=job, by="grace", reason="it fills the disk"))
    assert play[job].detail == "cancelled by grace: it fills the disk"
    play.do(Cancel(workload=waits, by="grace", reason="it fills the disk"))
    assert (play[waits].end, play[waits].detail) == ("cancelled", "cancelled by grace: it fills the disk")
    play.exit(job, SAVED)
    assert (play[job].end, play[job].detail) == ("cancelled", "cancelled by grace: it fills the disk")
    other = play.reservation(owner="cho")
    play.do(Cancel(workload=other, by="grace", reason="asked for by phone"))
    assert play[other].outcome.detail == "given back by grace: asked for by phone"


# -- time


def test_nobody_attached():
    """A reservation without a holder is given up when nobody attached in time; its device is read before it is free."""
    play = Play(1)
    reservation = play.reservation(holder=None)
    assert play[reservation].lease.attach_by == BEGIN + 300

    assert play.later(299) == []
    assert play.later(1) == [f"evicted (no-show) {reservation}", f"released {reservation}"]
    assert play.clear(reservation) == [f"ended (abandoned) {reservation}"]


def test_who_attaches_in_time_keeps_it():
    """*Moved* gives the first holder its number and ends the waiting for it."""
    play = Play(1)
    reservation = play.reservation(holder=None)

    assert play.do(Move(workload=reservation, by="bob", holder=KERNEL)) == [f"moved {reservation}"]
    assert play.later(HOUR) == []
    assert play[reservation].holder.number == 1


def test_a_time_limit_ends_with_a_grace():
    """What is over its limit gets a notice; with progress it goes on in another attempt, without it is over."""
    play = Play(1)
    job = play.running(seconds=HOUR)

    assert play.later(HOUR) == [f"evicted (timed-out) {job}"]
    assert play[job].detail == "its time limit of 1h is over"
    play.exit(job, SAVED)
    assert play.state(job) is State.ACTIVE
    assert play[job].timeouts == 1
    play.later(HOUR)
    play.exit(job, Outcome(end=EndReason.FAILED, exit_code=143, noticed=True))
    assert play[job].end is EndReason.TIMED_OUT


def test_a_job_that_ended_by_itself_just_before_the_notice_of_its_limit_has_not_timed_out():
    """Outcomes are read, not guessed."""
    play = Play(1)
    job = play.running(seconds=HOUR)
    play.later(HOUR)

    play.exit(job, DONE)

    assert play[job].end is EndReason.SUCCEEDED


def test_after_its_end_a_reservation_runs_into_overtime_while_nobody_waits():
    """It keeps the card and pays for it; the first who waits gets it after a grace."""
    play = Play(1)
    reservation = play.reservation(seconds=HOUR)

    assert play.later(2 * HOUR) == []
    job = play.job()
    assert play[reservation].eviction is EvictionReason.EXPIRED
    assert play[reservation].yield_by == play.now + 60
    play.do(Release(workload=reservation, by="bob"))
    assert play.clear(reservation) == [f"ended (expired) {reservation}", f"granted {job}"]
    assert play.used_ms("bob") == 2 * HOUR * 1000


def test_a_login_shell_is_never_ended_but_its_lease_is():
    """Whatever still sits on the card keeps it from being clear."""
    play = Play(1)
    shell = Holder(kind="shell", name="bash")
    reservation = play.reservation(seconds=HOUR, holder=shell)
    play.later(HOUR)
    play.job()

    assert play.later(61) == [f"overdue {reservation}", f"released {reservation}"]
    assert play.clear(reservation)[0] == f"ended (expired) {reservation}"


def test_waiting_past_the_limit_lifts_to_the_front_of_its_queue():
    """Once, with an event; not while it is paused, and not counted before it might start."""
    play = Play(1)
    play.running()
    waits, paused = play.job("bob"), play.job("cleo", paused=True)
    later = play.job("dan", not_before=BEGIN + DAY)

    assert play.later(DAY) == [f"explained {later}:devices"]
    assert play.later(3 * DAY) == []
    assert play.later(1) == [f"amended {waits}"]
    assert play.later(1) == []
    assert play[waits].lifted
    assert not play[paused].lifted


# -- what people ask


def test_cancel_in_each_state():
    """A queued one ends, a running job gets its grace, a reservation is released, an ended one is a conflict."""
    play = Play(1)
    job, queued = play.running(), play.job("bob")

    assert play.do(Cancel(workload=queued, by="bob")) == [f"ended (cancelled) {queued}"]
    assert play.do(Cancel(workload=job, by="ada")) == [f"evicted (cancelled) {job}"]
    assert play[job].yield_by == play.now + 120
    play.exit(job, DONE)
    reservation = play.reservation()
    assert play.do(Cancel(workload=reservation, by="bob")) == [f"released {reservation}"]
    with pytest.raises(Conflict, match="has ended"):
        play.do(Cancel(workload=job, by="ada"))
    with pytest.raises(NotFound, match="no workload 99"):
        play.do(Cancel(workload=99, by="ada"))


def test_a_release_by_a_stale_holder_changes_nothing():
    """Holders are numbered: the kernel of before cannot give away the lease of the present one."""
    play = Play(1)
    reservation = play.reservation()
    play.do(Move(workload=reservation, by="bob", holder=Holder(kind="kernel", name="other")))

    assert play.do(Release(workload=reservation, by="bob", holder_number=1)) == []
    assert play.do(SeeHolderGone(workload=reservation, holder_number=1)) == []
    assert play.do(Release(workload=reservation, by="bob", holder_number=2)) == [f"released {reservation}"]
    assert play.do(Release(workload=reservation, by="bob", holder_number=2)) == []


def test_a_stale_holder_cannot_give_up_a_queued_ask_either():
    """The same rule while it waits."""
    play = Play(1)
    play.running()
    queued = play.reservation()

    assert play.do(Release(workload=queued, by="bob", holder_number=7)) == []
    assert play.do(Release(workload=queued, by="bob", holder_number=1)) == [f"ended (cancelled) {queued}"]


def test_a_holder_that_is_gone_gives_back_what_it_held_or_asked_for():
    """A kernel that died: its reservation is released, its queued ask is abandoned."""
    play = Play(1)
    holds, waits = play.reservation(), play.reservation("cleo")

    assert play.do(SeeHolderGone(workload=waits, holder_number=1)) == [f"ended (abandoned) {waits}"]
    assert play.do(SeeHolderGone(workload=holds, holder_number=1, detail="gone")) == [f"released {holds}"]


def test_a_job_is_neither_released_nor_moved():
    """Its lease belongs to its attempts."""
    play = Play(1)
    job = play.running()

    with pytest.raises(Conflict, match="cancelled, not released"):
        play.do(Release(workload=job, by="ada"))
    with pytest.raises(Conflict, match="belongs to its attempts"):
        play.do(Move(workload=job, by="ada", holder=KERNEL))


def test_a_waiting_ask_moves_as_well_and_one_that_is_over_does_not():
    """A kernel that is started anew, or changed for another, while it waits keeps its place in line."""
    play = Play(1)
    first = play.running()
    waiting, behind = play.reservation("bob"), play.reservation("cleo")

    assert play.do(Move(workload=waiting, by="bob", holder=Holder(kind="kernel", name="other"))) == [f"moved {waiting}"]

    assert (play[waiting].state, play[waiting].lease) == (State.QUEUED, None)
    assert (play[waiting].holder.name, play[waiting].holder.number) == ("other", 2)
    play.do(SeeHolderGone(workload=waiting, holder_number=1))  # a late word of the kernel before
    play.exit(first)
    assert (play.state(waiting), play.state(behind)) == (State.ACTIVE, State.QUEUED)
    play.do(Release(workload=waiting, by="bob"))
    with pytest.raises(Conflict, match="no lease to move"):
        play.do(Move(workload=waiting, by="bob", holder=KERNEL))


def test_pause_and_let_go():
    """A paused job keeps its place and waits for its owner; said twice is said once."""
    play = Play(1)
    running, job = play.running(), play.job("bob")

    assert play.do(Pause(workload=job, by="bob")) == [f"amended {job}", f"explained {job}:paused"]
    assert play.do(Pause(workload=job, by="bob")) == []
    play.exit(running)
    assert play.holding() == {}
    assert play.do(LetGo(workload=job, by="bob")) == [f"amended {job}", f"granted {job}"]
    with pytest.raises(Conflict, match="only what is queued"):
        play.do(Pause(workload=job, by="bob"))


def test_reprioritise_moves_in_the_line():
    """An operator puts one before others; the same priority again says nothing."""
    play = Play(1)
    running, first, second = play.running(), play.job("bob"), play.job("cleo")

    assert play.do(Reprioritise(workload=second, by="op", priority=60)) == [f"amended {second}"]
    assert play.do(Reprioritise(workload=second, by="op", priority=60)) == []
    assert play.exit(running)[-1] == f"granted {second}"
    assert play.state(first) is State.QUEUED


def test_not_before_waits_with_its_reason_and_then_goes():
    """A later start is a reason of its own, and no holder's time is wasted on it."""
    play = Play(1)
    job = play.job(not_before=BEGIN + HOUR)

    assert play.waiting(job) is WaitingReason.NOT_BEFORE
    assert play.later(HOUR - 1) == []
    assert play.later(1) == [f"granted {job}"]


def test_the_same_key_is_the_same_workload():
    """A repeated submission adds nothing; another owner's key is another key; an ended one still counts."""
    play = Play(2)

    assert play.do(a_job(idempotency_key="k")) == ["submitted 1", "granted 1"]
    assert play.do(a_job(idempotency_key="k")) == []
    assert play.do(a_job("bob", idempotency_key="k")) == ["submitted 2", "granted 2"]
    play.exit(1)
    assert play.do(a_job(idempotency_key="k")) == []
    assert play.world.keys["ada", "k"] == 1


def test_decide_leaves_its_world_alone():
    """Whoever commits the events evolves the world with them; a refusal leaves nothing behind."""
    play = Play(1)
    before = play.world.copy()
    decide(play.world, a_job(), play.now)
    with pytest.raises(NotFound):
        decide(play.world, Extend(workload=5, by="ada", seconds=1), play.now)

    assert differences(play.world, before) == []


def test_what_would_break_an_invariant_is_refused_alone(monkeypatch):
    """A fault of ours costs one command, and what was broken before is not held against the next."""
    play = Play(1)
    job = play.running()

    def twice(world, command, now):
        lease = world.workloads[job].lease
        it = Submitted(at=now, it=_queued(play))
        return [it, Granted(at=now, workload=it.it.id, lease=lease)]

    monkeypatch.setitem(decide_module._RULES, Tick, twice)
    with pytest.raises(Conflict, match="must always hold"):
        play.do(Tick())
    assert play.exit(job) == [f"released {job}", f"ended (succeeded) {job}"]


def _queued(play: Play):
    it = play[1]
    return msgspec.structs.replace(
        it, id=50, state=State.QUEUED, lease=None, waiting=WaitingReason.DEVICES, active_at=None, started_at=None
    )


def test_grace_is_the_jobs_own_or_its_queues():
    """What a job asked for goes before what its queue gives."""
    play = Play(2)
    own, usual = play.running(spec=a_spec(grace_seconds=5)), play.running()
    for job in (own, usual):
        play.do(Cancel(workload=job, by="ada"))

    assert play[own].yield_by == play.now + 5
    assert play[usual].yield_by == play.now + 120


def test_no_job_has_a_longer_grace_than_the_policy_of_now_gives():
    """Whoever was let in under an older policy keeps others waiting no longer than anybody else."""
    play = Play(2, Policy(most_grace_seconds=10 * 366 * DAY))
    old, usual = play.running(spec=a_spec(grace_seconds=5 * 366 * DAY)), play.running()
    play.do(LoadPolicy(policy=Policy(most_grace_seconds=60)))
    play.do(Cancel(workload=old, by="root"))
    play.do(Cancel(workload=usual, by="root"))

    assert play[old].yield_by == play.now + 60
    assert play[usual].yield_by == play.now + 60


def test_a_queue_that_never_yields_is_never_preempted():
    """Only a queue that says so yields."""
    policy = Policy(queues=(INTERACTIVE, QueuePolicy(name="firm", priority=1), DEFERRED))
    play = Play(1, policy)
    play.running(queue="firm")
    play.later(DAY)

    assert play.waiting(play.reservation()) is WaitingReason.DEVICES


def test_released_says_who_gave_it_back():
    """The event carries the name."""
    play = Play(1)
    play.do(a_reservation())
    play.do(Release(workload=1, by="op"))

    assert [event.by for event in play.events if isinstance(event, Released)] == ["op"]
