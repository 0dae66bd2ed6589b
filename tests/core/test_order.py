"""Part 1, the order: priority, lifted, rank, id. Short work passes, long work cannot be passed for ever."""

from __future__ import annotations

import pytest

from jupyter_gpu.core.forecast import ahead_of
from jupyter_gpu.model import Policy, Reprioritise
from tests.world import BEGIN, DAY, HOUR, Play


def line(play: Play) -> list[int]:
    """The line, first to last."""
    return [it.id for it in play.world.queued()]


def full(devices: int = 1, **words) -> Play:
    """A machine that is taken by a reservation for twelve hours."""
    play = Play(devices, Policy(**words))
    play.reservation("zoe", devices=devices, seconds=12 * HOUR)
    return play


def test_a_queue_of_higher_priority_goes_first():
    """Interactive before training before deferred, whoever came first."""
    play = full()
    deferred, training, interactive = play.job(queue="deferred"), play.job(), play.reservation()

    assert line(play) == [interactive, training, deferred]


def test_short_work_passes_long_work():
    """Submission time plus the expected time: an hour now is before a day of a minute ago."""
    play = full()
    long = play.job(seconds=DAY)
    play.now += 60
    short = play.job(seconds=HOUR)

    assert line(play) == [short, long]


def test_size_counts_by_its_root():
    """Four devices for an hour count like one for two hours: wide work pays for its width, but not all of it."""
    play = full(8)
    wide = play.job(devices=4, seconds=HOUR)
    long, short = play.job(seconds=2 * HOUR + 60), play.job(seconds=2 * HOUR - 60)

    assert line(play) == [short, wide, long]


def test_long_work_cannot_be_passed_for_ever():
    """Its penalty never reaches its bound: who comes so much later stands behind it, however short."""
    play = full()
    long = play.job(devices=1, seconds=3000 * DAY)
    play.now += Policy().order_most_seconds
    short = play.job(seconds=1)

    assert line(play) == [long, short]


def test_who_used_much_waits_longer():
    """The owner's and the team's decayed use weigh the length."""
    play = Play(1)
    job = play.running("ada")
    play.now += 10 * HOUR
    play.exit(job)
    play.reservation("zoe", seconds=12 * HOUR)
    heavy, light = play.job("ada", seconds=HOUR), play.job("bob", seconds=HOUR)

    assert line(play) == [light, heavy]


def test_equal_work_is_served_in_the_order_of_its_ids():
    """The comparison ends in an id, so no two are equal."""
    play = full()
    ids = [play.job() for _ in range(5)]

    assert line(play) == ids
    assert [ahead_of(play.world, play[id_]) for id_ in ids] == [0, 1, 2, 3, 4]


def test_ahead_counts_ones_own_queue():
    """A place in line is a place in a queue."""
    play = full()
    job, other = play.job(), play.job(queue="deferred")

    assert [ahead_of(play.world, play[id_]) for id_ in (job, other)] == [0, 0]


def test_lifted_goes_before_all_of_its_queue_and_no_further():
    """Past the limit of waiting it is first in its queue; higher queues stay before it."""
    play = full()
    long = play.job("ada", seconds=20 * DAY)
    play.now += HOUR
    short = play.job("bob", seconds=60)
    assert line(play) == [short, long]
    play.later(4 * DAY)
    interactive = play.reservation()

    assert play[long].lifted
    assert line(play) == [interactive, long, short]


def test_an_operator_moves_one_workload():
    """To another priority, for good or ill."""
    play = full()
    first, second = play.job(), play.job()
    play.do(Reprioritise(workload=second, by="op", priority=51))

    assert line(play) == [second, first]


@pytest.mark.parametrize("multiple", [0, 1, 4])
def test_the_multiple_says_what_a_second_of_work_is_worth(multiple):
    """Zero is first come, first served; what is long beside the bound counts ever less."""
    bound = 100 * HOUR
    play = Play(1, Policy(order_multiple=multiple, order_most_seconds=bound))
    play.running("zoe")
    job = play.job(seconds=HOUR)

    cost = multiple * HOUR
    assert play[job].rank_ms == BEGIN * 1000 + bound * cost * 1000 // (bound + cost)


def test_the_order_does_not_change_with_time_alone():
    """Ranks are made anew only by the word that comes once an hour, so the line is kept and not sorted."""
    play = full()
    ids = [play.job(seconds=seconds) for seconds in (7 * HOUR, 60, HOUR)]
    before = line(play)
    play.later(HOUR)

    assert line(play) == before
    assert set(before) == set(ids)
