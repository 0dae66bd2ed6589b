"""The hours of weekly holds as instants: above all in the two nights of the year in which clocks are changed."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from jupyter_gpu.broker.holds import Hours, Weekly, windows_of
from jupyter_gpu.core.decide import decide
from jupyter_gpu.core.lifecycle import fold
from jupyter_gpu.errors import InvalidAsk
from jupyter_gpu.model import KNOWN_SECONDS, TOLD_SECONDS, AddHold, World
from tests.world import a_world

DAY = 86_400
AMSTERDAM = "Europe/Amsterdam"


def at(text: str, name: str = AMSTERDAM, *, fold: int = 0) -> float:
    """An instant by the clock on the wall there; fold=1 is the second time it shows that."""
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(name), fold=fold).timestamp()


def spans(every: str, begin: str, end: str, name: str = AMSTERDAM) -> list[str]:
    """The windows by the clock on the wall, with its offset, and how many hours of real time they are."""
    zone = ZoneInfo(name)
    found = Weekly(every, name).spans(at(begin, name), at(end, name))
    return [
        f"{datetime.fromtimestamp(it.from_at, zone):%m-%d %H:%M %z} to "
        f"{datetime.fromtimestamp(it.until_at, zone):%H:%M %z}, {(it.until_at - it.from_at) / 3600:g}h"
        for it in found
    ]


def test_the_same_hours_on_the_wall_in_each_week_whatever_the_offset():
    """A course at ten is at ten before and after the change."""
    assert spans("tue 10:00-12:00", "2026-10-19T00:00", "2026-11-04T00:00") == [
        "10-20 10:00 +0200 to 12:00 +0200, 2h",
        "10-27 10:00 +0100 to 12:00 +0100, 2h",
        "11-03 10:00 +0100 to 12:00 +0100, 2h",
    ]


def test_in_the_night_that_has_an_hour_twice_a_window_has_all_of_it():
    """25 October 2026: what begins in that hour begins the first time, what ends in it ends the second time."""
    night = ("2026-10-25T00:00", "2026-10-25T23:00")

    assert spans("sun 01:00-04:00", *night) == ["10-25 01:00 +0200 to 04:00 +0100, 4h"]
    assert spans("sun 02:30-04:00", *night) == ["10-25 02:30 +0200 to 04:00 +0100, 2.5h"]
    assert spans("sun 01:00-02:30", *night) == ["10-25 01:00 +0200 to 02:30 +0100, 2.5h"]
    assert spans("sun 02:10-02:50", *night) == ["10-25 02:10 +0200 to 02:50 +0100, 1.66667h"]
    assert spans("sat 22:00-06:00", "2026-10-24T00:00", "2026-10-25T00:00") == ["10-24 22:00 +0200 to 06:00 +0100, 9h"]


def test_in_the_night_that_lacks_an_hour_a_window_has_what_is_left():
    """28 March 2027: what begins or ends in that hour does so at the change; of which nothing is left does not come."""
    night = ("2027-03-28T00:00", "2027-03-28T23:00")

    assert spans("sun 01:00-04:00", *night) == ["03-28 01:00 +0100 to 04:00 +0200, 2h"]
    assert spans("sun 02:30-04:00", *night) == ["03-28 03:00 +0200 to 04:00 +0200, 1h"]
    assert spans("sun 01:00-02:30", *night) == ["03-28 01:00 +0100 to 03:00 +0200, 1h"]
    assert spans("sun 02:10-02:50", *night) == []


def test_windows_of_one_hold_never_overlap():
    """All day, each day: one ends where the next begins, also where an hour comes twice."""
    found = list(Weekly("daily 02:30-02:30", AMSTERDAM).spans(at("2026-10-23T00:00"), at("2026-10-28T00:00")))

    assert all(one.until_at <= other.from_at for one, other in pairwise(found))
    assert len(found) == 6


def test_the_window_that_is_under_way_is_among_them():
    """It began before; also where it began the day before."""
    assert spans("mon 22:00-06:00", "2026-11-03T01:00", "2026-11-04T00:00") == ["11-02 22:00 +0100 to 06:00 +0100, 8h"]
    assert spans("mon 22:00-06:00", "2026-11-03T06:00", "2026-11-04T00:00") == []


@pytest.mark.parametrize(
    ("every", "text"),
    [
        ("Tue 10:00-12:00", "tue 10:00-12:00"),
        ("tuesday 9:00 - 17:30", "tuesday 09:00-17:30"),
        ("mon-fri 09:00-17:00", "mon-fri 09:00-17:00"),
        ("mon,wed 22:00-06:00", "mon,wed 22:00-06:00"),
        ("daily 00:00-24:00", "daily 00:00-24:00"),
        ("sat-mon 10:00-11:00", "sat-mon 10:00-11:00"),
    ],
)
def test_what_can_be_meant(every, text):
    """Days by name, in lists and ranges, also over the end of the week; hours, also over midnight."""
    weekly = Weekly(every, "UTC")

    assert weekly.text == text
    assert Weekly(weekly.text, "UTC").days == weekly.days
    assert len(list(weekly.spans(0.0, 14 * DAY))) >= 2


@pytest.mark.parametrize(
    "every",
    ["", "tue", "10:00-12:00", "tue 10-12", "tue 25:00-26:00", "xyz 10:00-12:00", "tue- 10:00-12:00",
     "tue 10:00-12:00 x", "tue 10:60-12:00", "t\0e 10:00-12:00", "tue " + "1" * 10_000],
)  # fmt: skip
def test_what_cannot_be_meant(every):
    """It is refused with what to write."""
    with pytest.raises(InvalidAsk) as refusal:
        Weekly(every, "UTC")
    assert "mon-fri" in (refusal.value.hint or "")


def test_a_zone_that_does_not_exist():
    """As with recurring jobs."""
    with pytest.raises(InvalidAsk, match="no time zone"):
        Weekly("tue 10:00-12:00", "Europe/Atlantis")


def test_no_window_begins_at_its_last_day_or_later():
    """And then none is awaited any more."""
    now = at("2026-12-01T00:00")
    windows, known_until = windows_of(Weekly("tue 10:00-12:00", AMSTERDAM), now + 15 * DAY, now, None, since=now)

    assert len(windows) == 3
    assert known_until is None


# -- the core is told in time


def with_weekly_hold(now: float, **words) -> World:
    """A world with the hold of a course, as the API puts it."""
    world = a_world(2)
    weekly = Weekly("tue 10:00-12:00", AMSTERDAM)
    windows, known_until = windows_of(weekly, None, now, None, since=now)
    usual = {"name": "ml101", "by": "op", "count": 1, "teams": ("ml101",), "every": weekly.text, "timezone": AMSTERDAM}
    command = AddHold(**{**usual, "windows": windows, "known_until": known_until, **words})
    return fold(world.copy(), decide(world, command, now))


def test_windows_are_told_before_they_come_into_sight_and_each_once():
    """Six weeks ahead, and again when less than five are known."""
    now = at("2026-12-01T00:00")
    world, hours = with_weekly_hold(now), Hours()
    assert len(world.holds[1].windows) == 6

    assert hours.due(world, now + TOLD_SECONDS - KNOWN_SECONDS, anew=True) == []
    (word,) = hours.due(world, now + TOLD_SECONDS - KNOWN_SECONDS + 1, anew=False)
    later = now + TOLD_SECONDS - KNOWN_SECONDS + 1
    after = fold(world.copy(), decide(world, word, later))
    assert len(after.holds[1].windows) >= 5
    assert hours.due(after, later, anew=True) == []


def test_a_broker_that_was_away_for_a_year_tells_the_windows_of_now():
    """What passed meanwhile is over."""
    now = at("2026-12-01T00:00")
    world = with_weekly_hold(now)
    (word,) = Hours().due(world, now + 365 * DAY, anew=True)

    assert word.windows[0].until_at > now + 365 * DAY


def test_a_zone_that_is_not_known_any_more_is_told_and_keeps_what_is_known():
    """Operators read it; other holds are told all the same."""
    now = at("2026-12-01T00:00")
    world = with_weekly_hold(now, timezone="Europe/Atlantis")
    hours = Hours()

    assert hours.due(world, now + 30 * DAY, anew=True) == []
    assert "hold 1 (ml101)" in hours.warnings[0]
    world.drop_hold(1)
    hours.due(world, now, anew=False)
    assert hours.warnings == ()
