"""What a line of cron in a time zone means as instants, above all where clocks are changed."""

from __future__ import annotations

import difflib
import zoneinfo
from collections import Counter
from datetime import UTC, datetime
from itertools import islice, pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from jupyter_gpu.broker import recurring
from jupyter_gpu.broker.recurring import Calendar, own_timezone, plain_cron, zone
from jupyter_gpu.errors import InvalidAsk
from jupyter_gpu.model import MOST_MISSED


def at(text: str, name: str = "Europe/Amsterdam", *, fold: int = 0) -> float:
    """An instant by the clock on the wall there; fold=1 is the second time it shows that."""
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(name), fold=fold).timestamp()


def runs(cron: str, name: str, begin: str, count: int) -> list[str]:
    """The next runs by the clock on the wall, with its offset."""
    found = islice(Calendar(cron, name).after(at(begin, name)), count)
    return [datetime.fromtimestamp(it, ZoneInfo(name)).strftime("%m-%d %H:%M %z") for it in found]


# -- one run per local day: taichino/croniter#48, gawel/aiocron#28, healthchecks/healthchecks#196


def test_a_daily_job_runs_once_on_the_day_that_has_its_hour_twice():
    """Europe/Amsterdam, 25 October 2026, 02:30 comes at +0200 and at +0100: the first is taken."""
    assert runs("30 2 * * *", "Europe/Amsterdam", "2026-10-24T00:00", 4) == [
        "10-24 02:30 +0200", "10-25 02:30 +0200", "10-26 02:30 +0100", "10-27 02:30 +0100",
    ]  # fmt: skip


def test_a_daily_job_runs_once_on_the_day_that_lacks_its_hour():
    """Europe/Amsterdam, 29 March 2026 has no 02:30: it runs when the clock has been changed, at 03:00."""
    assert runs("30 2 * * *", "Europe/Amsterdam", "2026-03-28T00:00", 4) == [
        "03-28 02:30 +0100", "03-29 03:00 +0200", "03-30 02:30 +0200", "03-31 02:30 +0200",
    ]  # fmt: skip


@pytest.mark.parametrize("hour", ["02:10", "02:30", "02:50"])
def test_whoever_looks_during_the_hour_that_comes_again_sees_tomorrow(hour):
    """A broker that is started anew between the two 02:30, or after both, does not run it a second time."""
    calendar = Calendar("30 2 * * *", "Europe/Amsterdam")

    assert calendar.next_after(at(f"2026-10-25T{hour}", fold=1)) == at("2026-10-26T02:30")


def test_the_refused_expression_is_taken_before_a_change():
    """`0 2 * * *` in Denmark some days before the change was refused as no proper expression."""
    assert runs("0 2 * * *", "Europe/Copenhagen", "2018-10-22T12:00", 6)[-2:] == [
        "10-27 02:00 +0200", "10-28 02:00 +0200",
    ]  # fmt: skip


CHANGES_HOUR = ["Europe/Amsterdam", "America/New_York", "America/Santiago", "Africa/Cairo", "Asia/Beirut"]
CHANGES_HALF_AN_HOUR = ["Australia/Lord_Howe"]
CHANGES_NEVER = ["Asia/Kolkata", "America/Phoenix", "UTC"]


@pytest.mark.parametrize("name", [*CHANGES_HOUR, *CHANGES_HALF_AN_HOUR, *CHANGES_NEVER])
@pytest.mark.parametrize("minute", ["0", "15", "30", "59"])
def test_every_local_day_of_a_year_has_one_run_whatever_the_hour(name, minute):
    """Changes at two in the night, at midnight and by half an hour, and none at all; looked at anew after each run."""
    for hour in range(5):
        calendar, now, days = Calendar(f"{minute} {hour} * * *", name), at("2026-06-01T12:00", name), Counter()
        while now < at("2027-06-01T12:00", name) and (then := calendar.next_after(now)) is not None:
            now = then
            days[datetime.fromtimestamp(now, ZoneInfo(name)).date()] += 1
        assert set(days.values()) == {1}
        assert len(days) == (max(days) - min(days)).days + 1


def test_a_day_that_ends_an_hour_early_has_its_run_at_its_end():
    """Greenland's clocks go from Saturday 23:00 to Sunday 00:00: Saturday's 23:30 is at that instant."""
    assert runs("30 23 * * *", "America/Nuuk", "2026-03-27T12:00", 3) == [
        "03-27 23:30 -0200", "03-29 00:00 -0100", "03-29 23:30 -0100",
    ]  # fmt: skip


# -- what begins with a star goes by real time


@pytest.mark.parametrize(("begin", "hours"), [("2026-10-25T00:30", 25), ("2026-03-29T00:30", 23)])
def test_an_hourly_job_runs_each_hour_of_real_time(begin, hours):
    """No hour is left out and none doubled, though the clock on the wall shows one twice or not at all."""
    found = list(islice(Calendar("0 * * * *", "Europe/Amsterdam").after(at(begin)), hours))

    assert {later - earlier for earlier, later in pairwise(found)} == {3600.0}
    assert datetime.fromtimestamp(found[-2], ZoneInfo("Europe/Amsterdam")).hour == 23


def test_where_a_change_takes_half_an_hour_an_hourly_job_keeps_to_the_full_hour_of_the_wall():
    """Lord Howe: 02:00 is 01:30 once more, so from 01:00 to 02:00 it is an hour and a half."""
    assert runs("0 * * * *", "Australia/Lord_Howe", "2026-04-05T00:30", 3) == [
        "04-05 01:00 +1100", "04-05 02:00 +1030", "04-05 03:00 +1030",
    ]  # fmt: skip


# -- other days


def test_the_29th_of_february_comes_every_fourth_year():
    """And nothing is made up for the years between."""
    assert [
        datetime.fromtimestamp(it, ZoneInfo("UTC")).date().isoformat()
        for it in islice(Calendar("0 0 29 2 *", "UTC").after(at("2026-12-01", "UTC")), 3)
    ] == ["2028-02-29", "2032-02-29", "2036-02-29"]


def test_a_calendar_that_has_no_instant_says_so():
    """Only the 1st and 31st, and only the fifth Monday of a February: it can be read, and never comes."""
    assert Calendar("0 0 */30 2 MON#5", "UTC").next_after(at("2026-12-01", "UTC")) is None


def test_working_days_by_their_names():
    """Names of days and months, in any case."""
    assert runs("0 9 * dec fri-sat", "UTC", "2026-12-01", 3) == [
        "12-04 09:00 +0000", "12-05 09:00 +0000", "12-11 09:00 +0000",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("short", "long"), [("@daily", "0 0 * * *"), ("@Hourly", "0 * * * *"), ("  30  2 * *\t* ", "30 2 * * *")]
)
def test_short_forms_are_written_out(short, long):
    """What is kept and shown is always five fields."""
    assert plain_cron(short) == Calendar(short, "UTC").cron == long


@pytest.mark.parametrize(
    ("cron", "said"),
    [
        ("", "0 fields"),
        ("30 2 * *", "4 fields"),
        ("0 30 2 * * *", "6 fields"),
        ("@reboot", "@reboot"),
        ("60 2 * * *", "minute"),
        ("30 24 * * *", "hour"),
        ("30 2 32 * *", "day of the month"),
        ("30 2 30 2 *", "day of the month"),
        ("30 2 * 13 *", "month"),
        ("30 2 * * FRI-MON", "day of the week"),
        ("30 2 * * \u0661", "day of the week"),
        ("*/0 2 * * *", "minute"),
        (f"{'1,' * 200}1 2 * * *", "characters"),
    ],
)
def test_what_is_no_calendar_is_refused_with_the_field_that_is_wrong(cron, said):
    """Which part of it, why, and how one is written."""
    with pytest.raises(InvalidAsk) as refused:
        Calendar(cron, "UTC")
    assert said in refused.value.message
    assert refused.value.hint


# -- zones


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Europe/amsterdam", "Did you mean Europe/Amsterdam?"),
        ("Amsterdam", "Did you mean Europe/Amsterdam?"),
        ("new york", "Did you mean America/New_York?"),
        ("Europe", None),
        ("../../etc/passwd", None),
        ("/etc/localtime", None),
        ("right/Europe/Amsterdam", None),
        ("a\0b", None),
        ("", None),
        ("CEST-1", None),
    ],
)
def test_what_is_no_zone_is_refused(name, hint):
    """A slip gets the name that was meant, and no name is a path."""
    with pytest.raises(InvalidAsk, match="no time zone") as refused:
        zone(name)
    assert refused.value.hint
    assert hint in (None, refused.value.hint)


def test_a_machine_without_time_zones_is_told_from_a_slip(monkeypatch):
    """What is missing is named with what installs it; UTC works all the same."""
    monkeypatch.setattr(zoneinfo, "ZoneInfo", _none)
    monkeypatch.setattr(zoneinfo, "available_timezones", set)

    with pytest.raises(InvalidAsk, match="no database") as refused:
        zone("Europe/Amsterdam")
    assert "tzdata" in str(refused.value.hint)
    assert Calendar("30 2 * * *", "UTC").next_after(0) == 9000.0


def _none(name):
    raise zoneinfo.ZoneInfoNotFoundError(name)


def test_the_zone_of_the_machine_by_its_name(tmp_path: Path, monkeypatch):
    """TZ first, then where /etc/localtime leads, then /etc/timezone; nothing at all is UTC, as for the C library."""
    local, named = tmp_path / "localtime", tmp_path / "timezone"
    monkeypatch.setattr(recurring, "_LOCALTIME", local)
    monkeypatch.setattr(recurring, "_TIMEZONE", named)

    assert own_timezone({}) == "UTC"
    named.write_text("Asia/Kolkata\n")
    assert own_timezone({}) == "Asia/Kolkata"
    local.symlink_to("/usr/share/zoneinfo/Europe/Amsterdam")
    assert own_timezone({}) == "Europe/Amsterdam"
    assert own_timezone({"TZ": ":/usr/share/zoneinfo/America/New_York"}) == "America/New_York"


def test_a_machine_that_does_not_name_its_zone_asks_for_one(tmp_path: Path, monkeypatch):
    """A copied /etc/localtime has no name, and a guess would be an hour wrong for half of the year."""
    (tmp_path / "localtime").write_bytes(b"TZif2")
    monkeypatch.setattr(recurring, "_LOCALTIME", tmp_path / "localtime")
    monkeypatch.setattr(recurring, "_TIMEZONE", tmp_path / "timezone")

    with pytest.raises(InvalidAsk, match="what its time zone is called"):
        own_timezone({})


# -- what was missed


def test_missed_instants_are_counted():
    """A week without a machine: the one that was due, and six after it."""
    calendar, due_at = Calendar("30 2 * * *", "Europe/Amsterdam"), at("2026-10-20T02:30")

    assert calendar.missed(due_at, due_at + 60) == 0
    assert calendar.missed(due_at, at("2026-10-27T02:29")) == 6


def test_what_was_missed_in_years_is_not_counted_to_the_end():
    """Whoever asks for each minute does not make the broker count millions."""
    assert Calendar("* * * * *", "UTC").missed(0.0, 1e9) == MOST_MISSED


def test_no_more_instants_are_looked_for_than_have_come(monkeypatch):
    """Of a calendar that comes once a year a thousand instants would be a thousand years."""
    calendar, seen = Calendar("0 0 1 1 *", "UTC"), []
    monkeypatch.setattr(Calendar, "after", _counting(Calendar.after, seen))

    assert calendar.missed(0.0, at("1973-01-02T00:00", "UTC")) == 3
    assert len(seen) == 4


def _counting(real, seen: list[float]):
    def after(calendar: Calendar, at: float):
        for then in real(calendar, at):
            seen.append(then)
            yield then

    return after


def test_a_calendar_has_no_instant_after_the_last_year_there_is():
    """The 29th of February on a Sunday: a thousand of them lie beyond the year 9999."""
    calendar, last = Calendar("0 0 29 2 */7", "UTC"), datetime(9999, 1, 1, tzinfo=UTC).timestamp()

    assert list(calendar.after(last)) == []
    assert calendar.next_after(last) is None
    assert calendar.missed(calendar.next_after(0.0), last) > 0


@pytest.mark.parametrize("name", ["UTC", "Europe/Amsterdam"])
def test_days_that_never_meet_have_no_instant(name):
    """A day of the month and a weekday that both begin with `*` must meet, and the second Monday is never the 30th."""
    assert Calendar("* * */29 * MON#2", name).next_after(0.0) is None


def test_a_zone_of_megabytes_is_refused_unread(monkeypatch):
    """It is compared with no name: that takes seconds."""
    monkeypatch.setattr(difflib, "get_close_matches", None)
    with pytest.raises(InvalidAsk, match="no time zone of 2900000 characters"):
        zone("Europe/Am" * 322222 + "xx")
