"""Holds that operators put by a word: their windows, who is placed against them, no-shows, what cannot be kept."""

from __future__ import annotations

import pytest

from jupyter_gpu.core.in_the_way import warnings_of
from jupyter_gpu.errors import Conflict, GpuError, InvalidAsk, LimitExceeded, NotFound
from jupyter_gpu.model import (
    AddHold,
    Cordon,
    HoldPolicy,
    KnowWindows,
    Policy,
    Release,
    RemoveHold,
    Span,
    State,
    Tick,
    WaitingReason,
)
from tests.world import BEGIN, DAY, HOUR, MINUTE, Play, a_device, differences, refolded

WEEK = 7 * DAY
COURSE = Policy(teams={"ml101": ("eve", "finn"), "ml202": ("gus",)})


def a_span(begin: float, hours: float = 2) -> Span:
    """So many hours after the beginning."""
    return Span(from_at=BEGIN + begin * HOUR, until_at=BEGIN + (begin + hours) * HOUR)


def a_hold(*spans: Span, **words) -> AddHold:
    """For the course, unless it says otherwise."""
    usual = {"name": "ml101", "by": "op", "teams": ("ml101",), "count": 1, "windows": spans or (a_span(1),)}
    return AddHold(**{**usual, **words})


def weekly(begin: float = 1, **words) -> AddHold:
    """The same hours in five weeks."""
    spans = tuple(a_span(begin + 24 * 7 * week) for week in range(5))
    return a_hold(*spans, every="tue 10:00-12:00", timezone="UTC", known_until=BEGIN + 5 * WEEK, **words)


def held(gpus: int = 1, **words) -> Play:
    """A world with a hold."""
    play = Play(gpus, COURSE)
    play.do(a_hold(**words))
    return play


# -- what it keeps


def test_nothing_starts_that_would_reach_into_a_window_and_the_entitled_do():
    """Before it, within it; in each of its windows, and not between them."""
    play = Play(1, COURSE)
    play.do(weekly())

    long = play.reservation("bob", seconds=2 * HOUR)
    assert play.waiting(long) is WaitingReason.HOLD
    assert f"granted {long}" in play.later(3 * HOUR)
    play.later(2 * HOUR)
    play.do(Release(workload=long, by="bob"))
    play.clear(long)
    play.now = BEGIN + WEEK
    assert play.waiting(play.reservation("bob", seconds=2 * HOUR)) is WaitingReason.HOLD
    assert play.state(play.reservation("eve", seconds=2 * HOUR)) is State.ACTIVE


def test_others_short_work_runs_before_it_and_jobs_yield_in_time():
    """Notices go out a grace early, so that the device is clear when the course begins."""
    play = held()
    job = play.running("bob")

    assert play.later(HOUR - 151) == []
    assert play.later(1) == [f"evicted (preempted) {job}"]


def test_what_the_entitled_hold_is_counted_for_it():
    """One of two devices is withheld; the course sits on one, so the other is anybody's."""
    play = held(2)
    play.later(HOUR)

    assert play.state(play.reservation("eve", seconds=2 * HOUR)) is State.ACTIVE
    assert play.state(play.reservation("bob", seconds=2 * HOUR)) is State.ACTIVE


def test_two_holds_of_one_time_share_no_device():
    """Each course gets what is its own."""
    play = held(2)
    play.do(a_hold(name="ml202", teams=("ml202",)))
    play.later(HOUR)

    assert play.state(play.reservation("eve")) is State.ACTIVE
    assert play.waiting(play.reservation("finn")) is WaitingReason.HOLD
    assert play.state(play.reservation("gus")) is State.ACTIVE


def test_it_keeps_off_the_devices_of_the_policys_holds():
    """Those stay where they are."""
    hold = HoldPolicy(name="other", from_at=BEGIN, until_at=BEGIN + DAY, count=1, users=("zoe",))
    play = Play(2, Policy(holds=(hold,), teams=COURSE.teams))
    play.do(a_hold())
    play.later(HOUR)

    assert play.devices_of(play.reservation("eve")) == ("gpu-0",)
    assert play.devices_of(play.reservation("zoe")) == ("gpu-1",)


def test_named_devices_and_maintenance():
    """Nobody is placed against maintenance."""
    play = held(2, devices=("0",), count=0, teams=())
    play.later(HOUR)

    assert play.devices_of(play.reservation("eve")) == ("gpu-1",)
    assert play.waiting(play.reservation("bob")) is WaitingReason.HOLD


def test_a_counted_hold_passes_over_what_is_out_of_use():
    """A well device serves in its place."""
    play = Play(2, COURSE)
    play.do(a_hold())
    play.do(Cordon(device="1", by="op"))
    play.later(HOUR)

    assert play.waiting(play.reservation("bob")) is WaitingReason.HOLD
    assert play.state(play.reservation("eve")) is State.ACTIVE


def test_when_it_is_removed_its_devices_go_to_the_line():
    """In the same step; the number then means nothing."""
    play = held()
    waits = play.reservation("bob", seconds=5 * HOUR)
    hold = next(iter(play.world.holds))

    assert play.do(RemoveHold(hold=hold, by="op")) == ["hold-removed", f"granted {waits}"]
    with pytest.raises(NotFound):
        play.do(RemoveHold(hold=hold, by="op"))


# -- its windows


def test_a_no_show_gives_back_this_window_alone():
    """Nobody came within 15 minutes; in a week it is theirs again."""
    play = Play(1, COURSE)
    play.do(weekly(no_show_seconds=15 * MINUTE))
    waits = play.reservation("bob", seconds=4 * HOUR)

    assert play.later(HOUR + 15 * MINUTE - 1) == [f"amended {waits}"]  # it waits for long
    assert play.later(1) == ["hold-changed", f"granted {waits}"]
    assert play.later(1) == []
    play.do(Release(workload=waits, by="bob"))
    play.clear(waits)
    play.now = BEGIN + WEEK
    assert play.waiting(play.reservation("bob", seconds=4 * HOUR)) is WaitingReason.HOLD


def test_who_came_keeps_it_also_after_leaving():
    """Also where they came and left between two looks."""
    play = Play(1, COURSE)
    play.do(weekly(no_show_seconds=15 * MINUTE))
    play.later(HOUR + MINUTE)
    course = play.reservation("eve", seconds=30 * MINUTE)
    play.later(1)
    play.do(Release(workload=course, by="eve"))
    play.clear(course)
    waits = play.reservation("bob", seconds=HOUR)

    play.later(30 * MINUTE)
    assert play.waiting(waits) is WaitingReason.HOLD
    assert [event.what for event in play.events if hasattr(event, "what")] == ["attended"]


def test_a_single_one_is_gone_when_it_is_over():
    """It is listed no more."""
    play = held()

    assert play.later(3 * HOUR) == ["hold-removed"]
    assert play.world.holds == {}


def test_more_windows_become_known_and_the_one_under_way_stays():
    """Even where its calendar begins it otherwise now."""
    play = Play(1, COURSE)
    play.do(weekly())
    hold = next(iter(play.world.holds))
    play.now = BEGIN + 1.5 * HOUR
    more = (a_span(1, 3), *(a_span(1 + 24 * 7 * week) for week in range(1, 7)))
    word = KnowWindows(hold=hold, windows=more, known_until=BEGIN + 7 * WEEK)

    assert play.do(word)[0] == "hold-changed"
    assert play.world.holds[hold].windows == (a_span(1), *more[1:])
    assert play.do(word) == []
    assert play.do(KnowWindows(hold=99, windows=(), known_until=None)) == []


def test_folding_the_log_gives_the_same_holds():
    """Put, attended, given back, removed."""
    play = Play(2, COURSE)
    play.do(weekly(no_show_seconds=15 * MINUTE))
    play.do(a_hold(a_span(5), name="single"))
    play.later(2 * HOUR)
    play.later(8 * HOUR)

    assert differences(refolded(play), play.world) == []
    assert [type(event).__name__ for event in play.events].count("HoldChanged") == 1


# -- what cannot be kept


def test_what_can_never_be_is_refused():
    """More than there is, also beside other holds."""
    play = held(2)

    with pytest.raises(LimitExceeded, match="there are 2"):
        play.do(a_hold(count=3))
    with pytest.raises(Conflict, match=r"hold 1 \(ml101\) withholds what this would"):
        play.do(a_hold(a_span(2), name="other", count=2))
    with pytest.raises(Conflict, match="hold 1"):
        play.do(a_hold(a_span(0, 5), name="other", devices=("0", "1"), count=0))
    assert play.do(a_hold(a_span(3), name="after", count=2)) == ["hold-put"]


def test_what_is_in_the_way_for_now_is_told_until_when():
    """A reservation that was there before reaches into it, and keeps its time."""
    play = Play([a_device(0), a_device(1)], COURSE)
    play.reservation("bob", seconds=2 * HOUR)
    play.do(a_hold(count=2))
    said = warnings_of(play.world, play.now)

    assert list(said) == [2]
    assert "held by reservation 1 until" in said[2]
    play.later(2 * HOUR)
    play.do(Release(workload=1, by="bob"))
    play.clear(1)
    assert warnings_of(play.world, play.now) == {}


def test_a_reservation_for_later_that_was_promised_first_stays():
    """Maintenance is put over it: who booked keeps the time, and the operator is told."""
    play = Play(1, COURSE)
    it = play.reservation("bob", seconds=HOUR, not_before=BEGIN + 2 * HOUR, holder=None)
    play.do(a_hold(a_span(1, 4), teams=()))

    assert f"promised to reservation {it}" in warnings_of(play.world, play.now)[2]
    play.later(2 * HOUR)
    assert play.state(it) is State.ACTIVE


@pytest.mark.parametrize(
    "words",
    [
        {"name": " "},
        {"name": "x" * 101},
        {"name": "a\nb"},
        {"count": 0},
        {"count": -1},
        {"devices": ("0",)},
        {"windows": ()},
        {"windows": (Span(from_at=BEGIN + 2, until_at=BEGIN + 1),)},
        {"windows": (Span(from_at=BEGIN - 2, until_at=BEGIN - 1),)},
        {"no_show_seconds": 0},
        {"no_show_seconds": 60, "teams": ()},
        {"device_class": "none"},
    ],
)
def test_what_cannot_be_meant(words):
    """No name, nothing withheld, no time."""
    play = Play(1, COURSE)

    with pytest.raises(InvalidAsk):
        play.do(a_hold(**words))
    assert play.world.holds == {}


def test_the_same_key_is_the_same_hold():
    """A repeated ask adds nothing; another ask with the key is a slip."""
    play = Play(4, COURSE)
    play.do(a_hold(idempotency_key="k"))

    assert play.do(a_hold(idempotency_key="k")) == []
    with pytest.raises(GpuError, match="belongs to hold 1"):
        play.do(a_hold(idempotency_key="k", count=2))
    assert play.do(Tick()) == []
