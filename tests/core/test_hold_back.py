"""Parts 5 to 7: hold back for the first in line, holds, extension, overtime, and one reason for all who wait."""

from __future__ import annotations

import pytest

from jupyter_gpu.errors import Conflict, InvalidAsk, LimitExceeded
from jupyter_gpu.model import (
    Cordon,
    Extend,
    HoldPolicy,
    LoadPolicy,
    Policy,
    QueuePolicy,
    QuotaRule,
    Release,
    SharingRule,
    State,
    WaitingReason,
)
from jupyter_gpu.model.queues import INTERACTIVE, TRAINING
from tests.world import BEGIN, DAY, GIB, HOUR, MINUTE, SAVED, Play, a_device

# -- hold back: later work runs only where it does not delay the first


#: First come, first served: who is later is not earlier for being shorter.
IN_TURN = Policy(order_multiple=0)


def head_waits(devices: int = 2, seconds: int | None = HOUR) -> tuple[Play, int]:
    """One device is taken for so long, the others are free, and the first in line wants them all."""
    play = Play(devices, IN_TURN)
    play.running("ada", seconds=seconds)
    return play, play.job("bob", devices=devices, seconds=HOUR)


def test_later_short_work_passes():
    """What is over before the first can start takes nothing from it."""
    play, head = head_waits()

    assert play.state(play.job("cleo", seconds=HOUR)) is State.ACTIVE
    assert play.state(head) is State.QUEUED


def test_later_long_work_does_not_delay_the_first():
    """What would still run then waits, though a device is free."""
    play, _ = head_waits()

    assert play.waiting(play.job("cleo", seconds=HOUR + 1)) is WaitingReason.DEVICES


def test_work_of_unknown_length_is_expected_to_take_what_its_queue_takes():
    """Four hours for a training: too long to pass here, short enough there."""
    play, _ = head_waits(seconds=HOUR)
    other, _ = head_waits(seconds=5 * HOUR)

    assert play.waiting(play.job("cleo")) is WaitingReason.DEVICES
    assert other.state(other.job("cleo")) is State.ACTIVE


def test_the_end_of_work_without_a_limit_is_expected_too():
    """The first gets a start from it, and from there on later work is measured."""
    play, _ = head_waits(seconds=None)

    assert play.waiting(play.job("cleo", seconds=5 * HOUR)) is WaitingReason.DEVICES
    assert play.state(play.job("cleo", seconds=3 * HOUR)) is State.ACTIVE


def test_what_the_first_does_not_need_is_free_for_all():
    """On the other node a device may be taken for as long as anybody likes."""
    play = Play([a_device(index, node=f"n{index // 2}") for index in range(4)], IN_TURN)
    play.running("ada", seconds=HOUR)
    play.running("ada", seconds=5 * HOUR, device_class=None)
    play.running("ada", seconds=2 * HOUR)
    play.job("bob", devices=2, seconds=HOUR)
    other = {"gpu-2", "gpu-3"} - {uuid for uuids in play.holding().values() for uuid in uuids}

    assert len(other) == 1
    assert set(play.devices_of(play.job("cleo", seconds=DAY))) <= other


def test_the_first_starts_when_it_was_expected_to():
    """Nobody who passed stands in its way."""
    play, head = head_waits()
    passed = play.job("cleo", seconds=HOUR)
    play.now += HOUR
    play.exit(1)
    play.exit(passed)

    assert play.state(head) is State.ACTIVE


def test_each_kind_of_device_has_a_first():
    """The first for a100 holds back nothing of l4."""
    play = Play([a_device(0), a_device(1), a_device(2, device_class="l4")])
    play.running("ada", device_class="a100", seconds=HOUR)
    play.job("bob", devices=2, device_class="a100", seconds=HOUR)

    assert play.state(play.job("cleo", device_class="l4", seconds=DAY)) is State.ACTIVE
    assert play.waiting(play.job("cleo", device_class="a100", seconds=DAY)) is WaitingReason.DEVICES


def test_preemptible_work_may_fill_until_the_first_of_a_higher_queue_can_start():
    """A reservation gets its device back by preemption, if the filler can have yielded in time."""
    play = Play(2)
    play.reservation("zoe", seconds=HOUR)
    head = play.reservation("bob", devices=2)
    filler = play.job("cleo", seconds=DAY)

    assert play.state(filler) is State.ACTIVE
    play.now += HOUR
    play.do(Release(workload=1, by="zoe"))
    play.clear(1)
    assert play.waiting(head) is WaitingReason.CLEARING
    assert play.state(filler) is State.YIELDING


def test_past_its_limit_of_waiting_nothing_starts_where_the_first_waits():
    """Expected ends are only expected; after the limit the first is not passed at all."""
    play, head = head_waits(seconds=30 * DAY)
    play.later(4 * DAY + 1)
    assert play[head].lifted

    assert play.waiting(play.job("cleo", seconds=1)) is WaitingReason.DEVICES


def test_nothing_is_kept_idle_for_what_would_not_fit_on_an_empty_machine():
    """A first that waits for a cordoned device holds back nothing."""
    play = Play(2)
    play.do(Cordon(device="0", by="op"))
    play.job("bob", devices=2)

    assert play.state(play.job("cleo", seconds=DAY)) is State.ACTIVE


# -- holds


def with_hold(devices: int = 1, begin: float = HOUR, **words) -> Play:
    """A hold of one device that begins in an hour and lasts two, for the course."""
    usual = {"name": "course", "from_at": BEGIN + begin, "until_at": BEGIN + begin + 2 * HOUR, "count": 1}
    hold = HoldPolicy(**{**usual, "teams": ("course",), **words})
    return Play(devices, Policy(holds=(hold,), teams={"course": ("eve",)}))


def test_nothing_starts_on_a_held_device_that_would_still_be_there():
    """A reservation of two hours does not fit before a hold in one; one of an hour does."""
    play = with_hold()

    long = play.reservation(seconds=2 * HOUR)
    assert play.waiting(long) is WaitingReason.HOLD
    assert play.state(play.reservation("cleo", seconds=HOUR)) is State.ACTIVE


def test_work_that_can_have_yielded_may_start_before_a_hold():
    """Protected time, grace and the kill after it: 750 seconds for a training."""
    early, late = with_hold(begin=750), with_hold(begin=749)

    assert early.state(early.job(seconds=DAY)) is State.ACTIVE
    assert late.waiting(late.job(seconds=DAY)) is WaitingReason.HOLD


def test_notices_go_out_a_grace_early():
    """At the beginning of the hold the device is clear."""
    play = with_hold()
    job = play.running(seconds=DAY)

    assert play.later(HOUR - 151) == []
    assert play.later(1) == [f"evicted (preempted) {job}"]
    assert play[job].yield_by == play.now + 120
    play.exit(job, SAVED)
    assert play.waiting(job) is WaitingReason.HOLD


def test_the_entitled_are_placed_against_a_hold():
    """By owner or team; maintenance has nobody."""
    play, maintenance = with_hold(begin=0), with_hold(begin=0, teams=())

    assert play.state(play.reservation("eve")) is State.ACTIVE
    assert maintenance.waiting(maintenance.reservation("eve")) is WaitingReason.HOLD
    assert with_hold(begin=0, users=("bob",)).reservation("bob") == 1


def test_a_hold_takes_the_highest_index_and_leaves_the_rest():
    """And only of its class."""
    play = with_hold(2, begin=0)

    assert play.devices_of(play.reservation()) == ("gpu-0",)
    assert play.devices_of(play.reservation("eve")) == ("gpu-1",)
    other = with_hold(1, begin=0, device_class="l4")
    assert other.state(other.reservation()) is State.ACTIVE


def test_two_holds_at_one_time_share_no_device():
    """Each team gets what was withheld for it."""
    holds = tuple(
        HoldPolicy(name=team, from_at=BEGIN, until_at=BEGIN + DAY, count=1, teams=(team,)) for team in ("x", "y")
    )
    play = Play(2, Policy(holds=holds, teams={"x": ("ada",), "y": ("bob",)}))

    assert play.state(play.reservation("ada")) is State.ACTIVE
    assert play.state(play.reservation("bob")) is State.ACTIVE


def test_an_end_of_a_hold_gives_its_devices_to_the_line():
    """At `until_at`, by the next tick."""
    play = with_hold(begin=0)
    waits = play.job()

    assert play.later(2 * HOUR - 1) == []
    assert play.later(1) == [f"granted {waits}"]


def test_a_no_show_gives_the_hold_back():
    """None of the entitled came in time: the devices go to the line. Who came keeps it, also after leaving."""
    play, other = with_hold(begin=0, no_show_seconds=600), with_hold(begin=0, no_show_seconds=600)
    waits = play.job()
    course = other.reservation("eve")
    other.now += 60
    other.do(Release(workload=course, by="eve"))
    other.clear(course)
    still = other.job()

    assert play.later(600) == [f"granted {waits}"]
    other.later(600)
    assert other.waiting(still) is WaitingReason.HOLD


def test_a_reservation_in_overtime_leaves_before_a_hold_and_one_within_its_time_stays():
    """What was bought is kept, what was not is not."""
    play = with_hold()
    reservation = play.reservation(seconds=30 * MINUTE)
    assert play.later(HOUR - 91) == []
    assert play.later(1) == [f"evicted (expired) {reservation}"]

    other = Play(1)
    bought = other.reservation(seconds=2 * HOUR)
    hold = HoldPolicy(name="m", from_at=BEGIN + HOUR, until_at=BEGIN + DAY, count=1)
    other.do(LoadPolicy(policy=Policy(holds=(hold,))))
    assert other.later(HOUR) == []
    assert other.state(bought) is State.ACTIVE


def test_protected_work_stays_into_a_hold_that_was_declared_too_late():
    """Its protected time goes before; then it gets its notice."""
    play = Play(1)
    job = play.running()
    hold = HoldPolicy(name="m", from_at=BEGIN + 60, until_at=BEGIN + DAY, count=1)

    assert play.do(LoadPolicy(policy=Policy(holds=(hold,)))) == ["policy-loaded"]
    assert play.later(599) == []
    assert play.later(1) == [f"evicted (preempted) {job}"]


# -- extension and overtime


def test_an_extension_goes_up_to_the_next_hold_and_the_limit_of_its_queue():
    """The answer is the new end; when nothing can be added it is refused."""
    play = with_hold(begin=3 * HOUR)
    reservation = play.reservation(seconds=HOUR)

    assert play.do(Extend(workload=reservation, by="bob", seconds=DAY)) == [f"amended {reservation}"]
    assert play[reservation].lease.ends_at == BEGIN + 3 * HOUR
    with pytest.raises(LimitExceeded):
        play.do(Extend(workload=reservation, by="bob", seconds=60))
    free = Play(1)
    long = free.reservation(seconds=11 * HOUR)
    free.do(Extend(workload=long, by="bob", seconds=5 * HOUR))
    assert free[long].lease.ends_at == BEGIN + 12 * HOUR


def test_in_overtime_an_extension_begins_now():
    """An hour more is an hour from now, and it is no longer the first to yield."""
    play = Play(1)
    reservation = play.reservation(seconds=HOUR)
    play.later(3 * HOUR)
    play.do(Extend(workload=reservation, by="bob", seconds=HOUR))

    assert play[reservation].lease.ends_at == play.now + HOUR
    assert play.waiting(play.job()) is WaitingReason.DEVICES


def test_a_job_may_buy_more_of_its_time_limit():
    """An ask like any other."""
    play = Play(1)
    job = play.running(seconds=HOUR)
    play.do(Extend(workload=job, by="ada", seconds=HOUR))

    assert play.later(HOUR) == []
    assert play.later(HOUR) == [f"evicted (timed-out) {job}"]


@pytest.mark.parametrize("seconds", [0, -1, 10**30])
def test_an_extension_that_cannot_be_meant(seconds):
    """Zero, negative, absurd."""
    play = Play(1)
    play.reservation()

    with pytest.raises(InvalidAsk):
        play.do(Extend(workload=1, by="bob", seconds=seconds))


def test_only_what_holds_something_with_an_end_is_extended():
    """A queued one, one that yields, a job without a limit."""
    play = Play(1)
    play.running()
    play.reservation()

    with pytest.raises(Conflict, match="no end"):
        play.do(Extend(workload=1, by="ada", seconds=60))
    with pytest.raises(Conflict, match="nothing to extend"):
        play.do(Extend(workload=2, by="bob", seconds=60))


def test_a_promised_start_moves_with_an_extension():
    """The first in line is computed anew in the same step: what may pass it may now be longer."""
    play = Play(2)
    play.reservation("zoe", seconds=HOUR)
    play.job("bob", devices=2, seconds=HOUR)
    firm = Policy(queues=(INTERACTIVE, TRAINING, QueuePolicy(name="firm", priority=1)))
    play.do(LoadPolicy(policy=firm))
    later = play.job("cleo", seconds=3 * HOUR, queue="firm")
    assert play.waiting(later) is WaitingReason.DEVICES

    assert play.do(Extend(workload=1, by="zoe", seconds=5 * HOUR)) == ["amended 1", f"granted {later}"]


# -- one reason each


def test_everybody_who_waits_has_one_reason():
    """All of a changed line is told in one event, and nothing is told twice."""
    hold = HoldPolicy(name="m", from_at=BEGIN, until_at=BEGIN + DAY, devices=("gpu-1",))
    play = Play(3, Policy(holds=(hold,), sharing=(SharingRule(device="gpu-2"),)))
    play.running("ada")
    play.running("ada")
    reasons = {
        play.job("bob", paused=True): WaitingReason.PAUSED,
        play.job("bob", not_before=BEGIN + HOUR): WaitingReason.NOT_BEFORE,
        play.job("bob"): WaitingReason.HOLD,
        play.job("bob", devices=2): WaitingReason.DEVICES,
        play.job("bob", memory_bytes=GIB): WaitingReason.DEVICES,
    }

    assert {id_: play.waiting(id_) for id_ in reasons} == reasons
    assert play.later(1) == []


def test_alike_workloads_get_one_answer():
    """A thousand of a sweep change their reason in one event."""
    play = Play(1)
    play.running("ada")
    jobs = [play.job("bob") for _ in range(50)]
    said = play.do(LoadPolicy(policy=Policy(quotas=(QuotaRule(user="bob", devices=0),))))

    assert said == ["policy-loaded", "explained " + " ".join(f"{job}:quota" for job in jobs)]
