"""Part 4, preemption: only where it helps, the right victims in the right order, and nobody who is protected."""

from __future__ import annotations

import pytest

from jupyter_gpu.model import Policy, QuotaRule, Release, Reprioritise, State, WaitingReason
from tests.world import DAY, HOUR, SAVED, Play, a_device, a_spec


def yielding(play: Play) -> list[int]:
    """Who must go."""
    return [it.id for it in play.world.holders() if it.state is State.YIELDING]


def test_no_useless_preemption():
    """Where it would not fit even then, nobody is moved."""
    play = Play(2)
    play.reservation("zoe", seconds=12 * HOUR)
    play.running()
    play.later(HOUR)

    assert play.waiting(play.reservation(devices=2)) is WaitingReason.DEVICES
    assert yielding(play) == []


def test_a_reservation_within_its_time_is_never_moved():
    """Not for another reservation, not for an operator's priority."""
    play = Play(1)
    play.reservation("zoe")
    waits = play.reservation("bob")
    play.do(Reprioritise(workload=waits, by="op", priority=10_000))

    assert yielding(play) == []


def test_nothing_is_moved_inside_its_protected_time():
    """Ten minutes for a training, two for deferred work; counted anew in each attempt."""
    play = Play(2)
    training, deferred = play.running(), play.running(queue="deferred")
    play.reservation(devices=2)

    assert play.later(119) == []
    assert play.later(1) == []
    play.later(480)
    assert yielding(play) == [training, deferred]


def test_an_equal_priority_moves_nobody():
    """Without shares or spent budgets, trainings wait for each other."""
    play = Play(1)
    play.running()
    play.later(DAY)

    assert play.waiting(play.job("bob")) is WaitingReason.DEVICES


def test_training_moves_deferred():
    """The lower queue is the first to yield."""
    play = Play(1)
    deferred = play.running(queue="deferred")
    play.later(HOUR)

    assert play.waiting(play.job("bob")) is WaitingReason.CLEARING
    assert yielding(play) == [deferred]


def test_none_is_moved_more_often_than_the_cap():
    """Once a day here; when the day is over, again."""
    play = Play(1, Policy(preemptions_per_day=1))
    job = play.running()
    play.later(HOUR)
    first = play.reservation(seconds=HOUR)
    play.exit(job, SAVED)
    play.do(Release(workload=first, by="bob"))
    play.clear(first)
    play.start(job)
    play.later(HOUR)

    second = play.reservation(seconds=HOUR)
    assert play.waiting(second) is WaitingReason.DEVICES
    play.later(DAY)
    assert yielding(play) == [job]


def test_the_order_of_the_victims():
    """Overtime, spent budget, deferred, borrowed, one at a time; and never what another team holds of its own."""
    rules = (
        QuotaRule(user="eve", gpu_hours=1),
        QuotaRule(team="guests", share_devices=8),
        QuotaRule(team="vision", share_devices=3),
        QuotaRule(team="speech", share_devices=1),
    )
    teams = {"guests": ("dan", "eve", "fay", "kim"), "vision": ("ada", "bob"), "speech": ("cleo",)}
    play = Play(8, Policy(quotas=rules, teams=teams))
    overtime = play.reservation("dan", seconds=HOUR)
    own = play.running("ada")
    spent = play.running("eve")
    deferred = play.running("fay", queue="deferred")
    play.now += 60
    borrowed = [play.running("cleo") for _ in range(2)]
    play.now += 60
    own_young = [play.running("bob") for _ in range(2)]
    play.later(2 * HOUR)

    order = []
    for _ in range(5):
        before = set(yielding(play))
        play.reservation("kim")
        order += sorted(set(yielding(play)) - before)

    assert order == [overtime, spent, deferred, borrowed[1]]
    assert set(yielding(play)).isdisjoint({own, *own_young})


def test_least_work_times_devices_yields_first_and_then_the_youngest():
    """Among equals as little as possible is lost."""
    play = Play(4)
    wide = play.running("ada", devices=2)
    play.now += 600
    old = play.running("bob")
    young = play.running("cleo")
    play.later(HOUR)

    play.reservation()
    assert yielding(play) == [young]
    play.reservation()
    assert yielding(play) == [old, young]
    play.reservation()
    assert yielding(play) == [wide, old, young]


def test_removed_until_it_fits_and_put_back_what_was_not_needed():
    """Small ones were chosen first, then a big one made room by itself: the small ones stay."""
    play = Play([*(a_device(i, node="a") for i in range(2)), *(a_device(i + 2, node="b") for i in range(2))])
    big = play.running("ada", devices=2)
    play.now += HOUR
    small = play.running("bob")
    play.reservation("zoe", seconds=12 * HOUR)
    play.later(HOUR)

    play.reservation(devices=2)

    assert yielding(play) == [big]
    assert play.state(small) is State.ACTIVE


def test_the_best_are_put_back_first():
    """Of two that would each do, the one later in the order of victims stays."""
    play = Play(3)
    old = play.running("ada")
    play.now += 60
    young = play.running("bob")
    play.now += 60
    youngest = play.running("cleo")
    play.later(HOUR)

    play.reservation(devices=2)

    assert yielding(play) == [young, youngest]
    assert play.state(old) is State.ACTIVE


def test_what_is_coming_free_anyway_is_waited_for():
    """A job that is over and being cleared is not a reason to move another."""
    play = Play(2)
    over, other = play.running(), play.running()
    play.later(HOUR)
    play.exit(over, clear=False)

    reservation = play.reservation()

    assert play.waiting(reservation) is WaitingReason.CLEARING
    assert yielding(play) == [over]
    assert play.clear(over)[-1] == f"granted {reservation}"
    assert play.state(other) is State.ACTIVE


def test_what_was_made_free_for_one_is_not_taken_by_the_next():
    """A promise holds until the device is clear, also against shorter work."""
    play = Play(1)
    job = play.running()
    play.later(HOUR)
    reservation = play.reservation()
    small = play.job("cleo", seconds=1)
    play.later(1)

    assert play.waiting(small) is WaitingReason.DEVICES
    assert play.exit(job, SAVED)[-1].startswith(f"granted {reservation}")


def test_one_step_moves_for_several():
    """Each who has the right finds a victim of their own."""
    play = Play(2)
    jobs = [play.running(), play.running()]
    play.later(HOUR)
    play.reservation("bob")
    play.reservation("cleo")

    assert yielding(play) == jobs


def test_an_eviction_says_for_whom():
    """The notice can name the better claim."""
    play = Play(1)
    job = play.running(spec=a_spec(grace_seconds=30))
    play.later(HOUR)
    reservation = play.reservation()

    assert play[job].evicted_for == reservation
    assert play[job].yield_by == play.now + 30
    assert f"reservation {reservation}" in play[job].detail


@pytest.mark.parametrize("devices", [1, 2, 3])
def test_as_many_as_are_needed(devices):
    """No more are moved than the ask is short of."""
    play = Play(4)
    for _ in range(4):
        play.running()
    play.later(HOUR)

    play.reservation(devices=devices)

    assert len(yielding(play)) == devices
