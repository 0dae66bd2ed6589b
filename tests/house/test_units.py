"""People write "1h30m" and "20GiB"; every face reads them alike and writes them back alike."""

import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.errors import InvalidAsk
from jupyter_gpu.units import (
    MAX_BYTES,
    MAX_SECONDS,
    format_at,
    format_bytes,
    format_seconds,
    format_when,
    parse_bytes,
    parse_seconds,
)

MINUTE, HOUR, DAY = 60, 3_600, 86_400
KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("45s", 45),
        ("90m", 90 * MINUTE),
        ("2h", 2 * HOUR),
        ("1d", DAY),
        ("1w", 7 * DAY),
        ("1h30m", 90 * MINUTE),
        ("1h 30m", 90 * MINUTE),
        ("1 hour, 30 minutes", 90 * MINUTE),
        ("1d2h3m4s", DAY + 2 * HOUR + 3 * MINUTE + 4),
        ("1.5h", 90 * MINUTE),
        ("1.1h", 66 * MINUTE),
        ("2H", 2 * HOUR),
        (" 2 h ", 2 * HOUR),
        ("٣h", 3 * HOUR),
        ("90", 90),
        ("+5m", 5 * MINUTE),
        ("1500ms", 2),
        ("3650d", MAX_SECONDS),
        (7_200, 7_200),
        (1.6, 2),
    ],
)
def test_a_length_is_read_as_it_is_meant(text, seconds):
    """Units may be short or long, joined or apart; a plain number counts seconds."""
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("20GiB", 20 * GIB),
        ("20Gi", 20 * GIB),
        ("20gib", 20 * GIB),
        ("20GB", 20 * 10**9),
        ("20G", 20 * 10**9),
        ("500MB", 500 * 10**6),
        ("1KB", 1_000),
        ("1.5 TiB", 3 * TIB // 2),
        ("81559MiB", 81_559 * MIB),
        ("2 GB", 2 * 10**9),
        ("٣GB", 3 * 10**9),
        ("1024", 1_024),
        ("64B", 64),
        ("1EiB", MAX_BYTES),
        (4_096, 4_096),
    ],
)
def test_an_amount_is_read_as_the_standard_has_it(text, size):
    """GiB counts in 1024s, GB in thousands, whatever the case of the letters; a plain number counts bytes."""
    assert parse_bytes(text) == size


NO_NUMBER = [
    "",
    " ",
    "h",
    "GiB",
    "h2",
    "GB2",
    "NaN",
    "nan",
    "two hours",
    "½h",
    "1,5h",
    "1_000",
    "0x10",
    "²",
    "1h\n2m",
]


@pytest.mark.parametrize(
    "text",
    [
        *NO_NUMBER,
        "2h30",
        "1:30",
        "01:30:00",
        "1h1h",
        "1m1h",
        "1h-30m",
        "2x",
        "1e3s",
        None,
        True,
        float("nan"),
        [],
    ],
)
def test_what_is_no_length_is_refused(text):
    """Nothing is guessed: 1:30 is seconds to one program and minutes to another, so it is not read at all."""
    with pytest.raises(InvalidAsk, match="cannot be read as a length of time") as refusal:
        parse_seconds(text)

    assert "1h30m" in refusal.value.hint


@pytest.mark.parametrize(
    "text",
    [
        *NO_NUMBER,
        "20GiBps",
        "20Gbit",
        "20 gigabytes",
        "1e3",
        "1e999",
        "inf",
        "1GB2MB",
        "5 Gİ",
        None,
        False,
        {},
    ],
)
def test_what_is_no_amount_is_refused(text):
    """A unit that is nearly one we know is refused, not rounded to it."""
    with pytest.raises(InvalidAsk, match="cannot be read as an amount of memory") as refusal:
        parse_bytes(text)

    assert "20GiB" in refusal.value.hint


@pytest.mark.parametrize(
    ("parse", "text", "why"),
    [
        (parse_seconds, "-1h", "'-1h' is negative"),
        (parse_seconds, -3, "-3 is negative"),
        (parse_seconds, "0", "'0' is zero"),
        (parse_seconds, "0h", "'0h' is zero"),
        (parse_seconds, "0.2s", "'0.2s' is less than one second"),
        (parse_seconds, "99999999999d", "'99999999999d' is more than 10 years"),
        (parse_seconds, "11 years", "'11 years' is more than 10 years"),
        (parse_seconds, "1e999", "'1e999' is more than 10 years"),
        (parse_seconds, "inf", "'inf' is more than 10 years"),
        (parse_seconds, float("inf"), "inf is more than 10 years"),
        (parse_seconds, 10**400, "is more than 10 years"),
        (parse_bytes, "-1GB", "'-1GB' is negative"),
        (parse_bytes, "0", "'0' is zero"),
        (parse_bytes, "0GiB", "'0GiB' is zero"),
        (parse_bytes, "0.1", "'0.1' is less than one byte"),
        (parse_bytes, "99999999999TiB", "'99999999999TiB' is more than 1 EiB"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_reason(parse, text, why):
    """Negative, empty and absurd quantities are slips, and the refusal names what was read."""
    with pytest.raises(InvalidAsk) as refusal:
        parse(text)

    assert why in refusal.value.message
    assert refusal.value.hint.startswith("Write a")


def test_zero_is_taken_where_it_means_something():
    """A grace of zero is a choice; the caller says so."""
    assert parse_seconds("0", allow_zero=True) == 0
    assert parse_bytes("0GiB", allow_zero=True) == 0
    with pytest.raises(InvalidAsk, match="less than one second"):
        parse_seconds("0.2s", allow_zero=True)


def test_the_refusal_names_the_field():
    """With several quantities in one ask, the sentence says which is wrong."""
    with pytest.raises(InvalidAsk, match=r"^The grace '-1h' is negative\."):
        parse_seconds("-1h", what="grace")


@pytest.mark.parametrize("parse", [parse_seconds, parse_bytes])
def test_a_flood_is_refused_in_one_line(parse):
    """Somebody pastes a file into the field: the refusal stays readable, and comes at once."""
    with pytest.raises(InvalidAsk) as refusal:
        parse("9" * 100_000 + "h")

    assert len(refusal.value.message) < 120


@given(st.text(max_size=30) | st.text("0123456789.+-:eEhmsdwkMGTiB ", max_size=12) | st.integers() | st.floats())
def test_reading_gives_a_whole_number_or_a_refusal(text):
    """Whatever is typed, the answer is a whole number in bounds or an InvalidAsk, never another error."""
    for parse, most in ((parse_seconds, MAX_SECONDS), (parse_bytes, MAX_BYTES)):
        try:
            amount = parse(text)
        except InvalidAsk:
            continue
        assert type(amount) is int
        assert 0 < amount <= most


@given(st.integers(0, MAX_SECONDS))
def test_a_length_survives_the_round_trip(seconds):
    """What format_seconds writes, parse_seconds reads back exactly."""
    assert parse_seconds(format_seconds(seconds), allow_zero=True) == seconds


@given(st.integers(1, MAX_SECONDS), st.integers(1, 4))
def test_a_shortened_length_never_promises_more(seconds, parts):
    """A table shows the largest units only; it rounds down, so nobody is promised time they do not have."""
    shown = format_seconds(seconds, parts=parts)

    assert 0 < parse_seconds(shown) <= seconds


@given(st.integers(0, MAX_BYTES))
def test_an_amount_survives_the_round_trip_to_its_last_digit(size):
    """What format_bytes writes is within half a tenth of the unit that it shows."""
    shown = format_bytes(size)
    unit = parse_bytes("1" + shown.lstrip("0123456789."))

    assert abs(parse_bytes(shown, allow_zero=True) - size) * 20 <= unit + 20


@given(st.integers(1, 1023), st.sampled_from(["B", "KiB", "MiB", "GiB", "TiB", "PiB"]))
def test_a_whole_amount_is_shown_as_it_was_asked(count, unit):
    """Who asks for 20GiB sees 20GiB everywhere."""
    assert format_bytes(parse_bytes(f"{count}{unit}")) == f"{count}{unit}"


@pytest.mark.parametrize(
    ("seconds", "whole", "short"),
    [
        (0, "0s", "0s"),
        (0.4, "0s", "0s"),
        (59, "59s", "59s"),
        (5_400, "1h30m", "1h30m"),
        (7_199, "1h59m59s", "1h59m"),
        (DAY + HOUR + 61, "1d1h1m1s", "1d1h"),
        (DAY + 5 * MINUTE, "1d5m", "1d"),
        (-65, "-1m5s", "-1m5s"),
        (None, "n/a", "n/a"),
        (float("inf"), "n/a", "n/a"),
    ],
)
def test_a_length_is_written_shortly(seconds, whole, short):
    """A length is written as people type it; one that nobody knows reads n/a, never 0."""
    assert format_seconds(seconds) == whole
    assert format_seconds(seconds, parts=2) == short


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0B"),
        (1_023, "1023B"),
        (KIB, "1KiB"),
        (GIB - 1, "1GiB"),
        (81_559 * MIB, "79.6GiB"),
        (500_000_000, "476.8MiB"),
        (-3 * GIB, "-3GiB"),
        (None, "n/a"),
        (float("nan"), "n/a"),
    ],
)
def test_an_amount_is_written_in_its_largest_unit(size, shown):
    """No amount reads 1024.0MiB; one that NVML does not give reads n/a, never 0."""
    assert format_bytes(size) == shown


NOON = datetime(2026, 12, 2, 12, 0, tzinfo=UTC)  # a Wednesday


@pytest.mark.parametrize(
    ("when", "said"),
    [
        (NOON + timedelta(hours=2, minutes=5), "14:05"),
        (NOON - timedelta(hours=3), "09:00"),
        (NOON + timedelta(hours=13), "tomorrow 01:00"),
        (NOON - timedelta(hours=13), "yesterday 23:00"),
        (NOON + timedelta(days=2), "Fri 12:00"),
        (NOON + timedelta(days=6), "Tue 12:00"),
        (NOON + timedelta(days=7), "2026-12-09 12:00"),
        (NOON - timedelta(days=2), "2026-11-30 12:00"),
    ],
)
def test_an_instant_is_said_as_people_say_it(when, said):
    """Near instants need no date, and a bare weekday can only be the coming one."""
    assert format_when(when.timestamp(), NOON.timestamp(), tz=UTC) == said


@pytest.mark.parametrize(
    ("when", "said"),
    [
        (NOON + timedelta(minutes=5), "at 12:05"),
        (NOON + timedelta(days=1), "tomorrow at 12:00"),
        (NOON - timedelta(days=1), "yesterday at 12:00"),
        (NOON + timedelta(days=3), "on Sat at 12:00"),
        (NOON + timedelta(days=7), "on 2026-12-09 at 12:00"),
    ],
)
def test_an_instant_stands_in_a_sentence(when, said):
    """Nobody says "at tomorrow"."""
    assert format_at(when.timestamp(), NOON.timestamp(), tz=UTC) == said
    about = format_at(when.timestamp(), NOON.timestamp(), tz=UTC, about=True)
    assert about == re.sub(r"\bat ", "at about ", said)


def test_an_instant_is_told_by_the_clock_on_the_wall():
    """The zone decides which day it is: late in London is tomorrow in Tokyo."""
    late = NOON.replace(hour=20).timestamp()

    assert format_when(late, NOON.timestamp(), tz=timezone(timedelta(hours=9))) == "tomorrow 05:00"
    assert format_when(None, NOON.timestamp()) == "n/a"
