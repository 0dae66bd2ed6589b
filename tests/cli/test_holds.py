"""`jupyter gpu hold`, `reserve --at` and what is coming, as people write and read them."""

import msgspec
import pytest

from jupyter_gpu import errors
from jupyter_gpu.cli.when import parse_instant
from jupyter_gpu.model import Ask, Kind, State, WaitingReason
from tests.cli.fake import HOUR, NOON_TOMORROW, NOW, a_hold, workload

DAY = 86_400
#: The fake's clock stands at 14:05 of a Monday.
MONDAY = NOW - (14 * HOUR + 5 * 60)


def lines(text: str) -> list[str]:
    """The lines with one blank between their words."""
    return [" ".join(line.split()) for line in text.splitlines()]


def test_the_list_tells_what_is_withheld_when_and_for_whom(gpu):
    """The next window of each by the clock on the wall; those of the policy have no number."""
    gpu.client.held = (
        a_hold(15, is_mine=True),
        a_hold(16, name="works", teams=(), maintenance=True, every="", named=True, devices=("GPU-0", "GPU-1"), count=0,
               from_at=NOW - HOUR, until_at=NOW + HOUR),
        a_hold(None, name="thesis", teams=(), users=None, every="", count=1, device_class="l4"),
        a_hold(17, name="empty", given_back=True, warnings=("for Tue 3 of 4 GPUs are there",)),
    )  # fmt: skip
    gpu.width = 140

    assert lines(gpu("hold").out) == [
        "ID what next every whose",
        "15 4 GPUs tomorrow 10:00 to 12:00 tue 10:00-12:00 (UTC) ml101, for you",
        "16 2 GPUs until 15:05 works, maintenance",
        "policy 1 GPU of class l4 tomorrow 10:00 to 12:00 thesis, for others",
        "17 4 GPUs given back tue 10:00-12:00 (UTC) empty, for ml101",
        "Hold 17: For Tue 3 of 4 GPUs are there.",
    ]
    gpu.client.held = ()
    assert "Nothing is withheld" in gpu("hold", "list").out


def test_a_weekly_hold_is_added_as_it_is_said(gpu):
    """Days and hours are two words of one option, before or after others."""
    words = ["ml101", "--for-team", "ml101", "--devices", "4", "--every", "tue", "10:00-12:00", "--no-show", "15m"]
    gpu.client.warned = ("for Tue 3 of 4 GPUs are there",)
    out = gpu("hold", "add", *words, "--until", "2027-02-01", "--zone", "Europe/Amsterdam").out

    body = gpu.client.calls[-1][1]
    assert (body.name, body.teams, body.count, body.every) == ("ml101", ("ml101",), 4, "tue 10:00-12:00")
    assert (body.timezone, body.no_show_seconds, body.from_at) == ("Europe/Amsterdam", 900, None)
    assert body.until == MONDAY + 336 * DAY
    assert lines(out) == [
        "Hold 15 (ml101, for ml101) withholds 4 GPUs; next: tomorrow 10:00 to 12:00, tue 10:00-12:00 in UTC.",
        "For Tue 3 of 4 GPUs are there.",
    ]
    gpu("hold", "add", "x", "--every", "mon-fri 9:00-17:00", "--for-user", "ada", "--devices", "1")
    assert gpu.client.calls[-1][1].every == "mon-fri 9:00-17:00"


def test_a_single_hold_begins_now_if_nothing_is_said(gpu):
    """Maintenance of certain GPUs until an instant."""
    gpu("hold", "add", "works", "--maintenance", "--on", "0", "--on", "1", "--to", "tomorrow 9:00")

    body = gpu.client.calls[-1][1]
    assert (body.maintenance, body.devices, body.count) == (True, ("0", "1"), 0)
    assert (body.from_at, body.until_at) == (NOW, NOON_TOMORROW - 3 * HOUR)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["x", "--devices", "1", "--to", "+1h"], "For whom?"),
        (["x", "--maintenance", "--for-team", "a", "--devices", "1", "--to", "+1h"], "For whom?"),
        (["x", "--maintenance", "--to", "+1h"], "What?"),
        (["x", "--maintenance", "--devices", "1", "--on", "0", "--to", "+1h"], "What?"),
        (["x", "--maintenance", "--devices", "1"], "When?"),
        (["x", "--maintenance", "--devices", "1", "--every", "tue", "9:00-10:00", "--to", "+1h"], "When?"),
        (["x", "--maintenance", "--devices", "1", "--every", "tue", "9:00-10:00", "--from", "+1h"], "leave --from"),
        (["x", "--maintenance", "--devices", "1", "--to", "+1h", "--until", "+2h"], "--every week"),
        (["x", "--maintenance", "--devices", "1", "--to", "+1h", "--zone", "UTC"], "--zone"),
    ],
)
def test_words_that_do_not_go_together(gpu, words, said):
    """The answer says which word is missing or too much, and nothing is asked."""
    done = gpu("hold", "add", *words)

    assert done.code == 2
    assert said in " ".join(done.err.split())
    assert not [call for call in gpu.client.calls if call[0] == "add_hold"]


def test_holds_are_removed_by_their_numbers(gpu):
    """Each is told; one that is not there ends with its code."""
    assert gpu("hold", "remove", "15").out == "Hold 15 (ml101) is removed; what it withheld goes to the line.\n"
    assert gpu("hold", "remove", "99").code == errors.NotFound.exit_code
    assert gpu("hold", "remove").code == 2
    assert gpu("hold", "list", "15").code == 2


# -- reserve --at


def promised(body):
    """As the broker answers."""
    return workload(
        15, kind=Kind.RESERVATION, ask=body.ask, state=State.QUEUED, waiting=WaitingReason.NOT_BEFORE,
        not_before=body.not_before,
    )  # fmt: skip


def test_a_reservation_for_later_is_held_by_nobody_and_says_how_it_is_taken(gpu):
    """It ends with success: what was asked for was promised."""
    gpu.client.answers["submit"] = promised
    done = gpu("reserve", "2", "--at", "tomorrow 9:00", "--for", "2h")

    body = gpu.client.calls[-1][1]
    assert (body.not_before, body.holder, body.ask) == (
        NOON_TOMORROW - 3 * HOUR,
        None,
        Ask(devices=2, duration_seconds=7200),
    )
    assert done.code == 0
    assert lines(done.out) == [
        "Reservation 15 is promised: 2 GPUs, 2h, tomorrow 09:00 to 11:00.",
        "Take it then, within 5m of its beginning: `jupyter gpu wait 15`; else it is given back.",
        "If you do not need it: `jupyter gpu cancel 15`.",
    ]
    assert msgspec.json.decode(gpu("reserve", "--at", "+1h", "--json").out)["id"] == 15


@pytest.mark.parametrize("more", [["--export"], ["--timeout", "1m"], ["--no-wait"], ["--", "true"]])
def test_what_begins_later_has_nothing_of_now(gpu, more):
    """No command, no line for eval, no waiting."""
    assert gpu("reserve", "--at", "+1h", *more).code == 2


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("tomorrow 9:00", MONDAY + DAY + 9 * HOUR),
        ("Tomorrow 09:00", MONDAY + DAY + 9 * HOUR),
        ("today 18:00", MONDAY + 18 * HOUR),
        ("tue 10:00", MONDAY + DAY + 10 * HOUR),
        ("sunday 10:00", MONDAY + 6 * DAY + 10 * HOUR),
        ("mon 15:00", MONDAY + 15 * HOUR),
        ("mon 14:00", MONDAY + 7 * DAY + 14 * HOUR),
    ],
)
def test_days_as_people_name_them(gpu, text, when):
    """The next of that name, by the clock on the wall."""
    assert parse_instant(text, NOW) == when


@pytest.mark.parametrize("text", ["yesterday 9:00", "tu 9:00", "today 9:00", "noday 9:00", "tomorrow", "tue 25:00"])
def test_days_that_cannot_be_meant(gpu, text):
    """No such day, no such hour, or it is past."""
    with pytest.raises(errors.InvalidAsk):
        parse_instant(text, NOW)


# -- what is coming


def test_the_status_shows_what_is_coming_in_the_order_of_time(gpu):
    """Others' reservations for later and holds, each with whose it is; what was given back is not coming."""
    later = workload(
        20, kind=Kind.RESERVATION, owner="grace", is_mine=False, ask=Ask(devices=2, duration_seconds=HOUR),
        waiting=WaitingReason.NOT_BEFORE, not_before=NOW + HOUR,
    )  # fmt: skip
    gpu.client.lab = msgspec.structs.replace(
        gpu.client.lab, holds=(a_hold(15), a_hold(16, name="gone", given_back=True)), coming=(later,)
    )
    said = lines(gpu("status").out)
    begin = said.index("Coming")

    assert said[begin + 1 : begin + 4] == [
        "when what whose",
        "15:05 to 16:05 2 GPUs, 1h reservation 20, grace",
        "tomorrow 10:00 to 12:00 4 GPUs ml101, for ml101",
    ]
