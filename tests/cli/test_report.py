"""`report`: what some time was spent on, in a terminal."""

import msgspec
import pytest

from jupyter_gpu.model import DeviceTime, ReportBy, ReportOf
from tests.cli.fake import HOUR, NOW, report, report_row

ALL = """\
All work from 2026-02-23 14:05 to now (7d)
GPUs          4: 400 of 672 GPU-hours leased (60 %); 24 of them cordoned or unwell
jobs          412: 380 succeeded, 12 failed, 8 gpu-oom, 12 not over
reservations  40: 35 released, 4 expired, 1 not over
idle          3 reservations given back, with 4.5 GPU-hours of what they had bought
failures      21 attempts (13 failed, 8 gpu-oom), 0.06 in a GPU-hour of work
preemptions   14
done again    3h: 3.5 of 350 GPU-hours of work (1.0 %); at once at most 9m59s, of job 12 of ada (2026-02-28 14:05)

queue        got GPUs  median wait  9 of 10 within  longest  waits still
interactive        40           0s              1m      14m  0
training          400          12m              3h     1d2h  10, up to 5h; 20 of
                                                             arrays not counted
"""


def test_a_week_of_a_lab(gpu):
    """What was leased of what there was, how work ended, what was lost, and how long people waited."""
    result = gpu("report")

    assert result.out == ALL
    assert result.err == "How busy the GPUs were is not kept.\n"
    assert gpu.client.calls == [("report", 7 * 24 * HOUR, None, None, None, None)]


def test_a_line_for_each_user_and_the_others_without_a_name(gpu):
    """The one who held most first, as the broker has it."""
    again = {"repeated_seconds": 600.0, "repeated_device_seconds": 0.5 * HOUR, "repeated_share": 0.05}
    rows = (report_row("grace", 10, preemptions=2, failures=1, **again), report_row("ada", 2.25), report_row("", 0.01))
    gpu.client.answers["report"] = report(waits=(), by=ReportBy.USER, rows=rows)

    out = gpu("report", "--by", "user", "--since", "30d").out

    assert out.partition("\n\n")[2] == (
        "jobs  reservations  GPU-hours   done again  preempted  failures  user\n"
        "   3             1         10  0.5 (5.0 %)          2         1  grace\n"
        "   3             1       2.25            0          0         0  ada\n"
        "   3             1       0.01            0          0         0  others\n"
    )
    assert gpu.client.calls == [("report", 30 * 24 * HOUR, None, None, "user", None)]


def test_one_s_own_work_has_no_name_in_it(gpu):
    """Whose it is one knows."""
    gpu.client.answers["report"] = report(of=ReportOf.OWN)

    out = gpu("report", "--mine").out

    assert out.startswith("Your work from ")
    assert "at once at most 9m59s, of job 12 (2026" in out
    assert gpu.client.calls[0][-1] == "own"


def test_one_hour_is_no_many(gpu):
    """The hours of one GPU for an hour, of which nobody had anything."""
    little = DeviceTime(devices=1, there_seconds=HOUR, unusable_seconds=0.0, leased_seconds=0.0, leased_share=0.0)
    gpu.client.answers["report"] = report(device_time=little, idle_given_back_device_seconds=1.0 * HOUR)

    out = gpu("report").out

    assert "GPUs          1: 0 of 1 GPU-hour leased (0 %)\n" in out
    assert "given back, with 1 GPU-hour of what they had bought\n" in out


def test_what_nobody_knows_the_loss_of_is_said(gpu):
    """Nothing is known to have been lost, which is not the same as nothing."""
    nothing = msgspec.structs.replace(report().spent, repeated_seconds=0.0, repeated_device_seconds=0.0)
    gpu.client.answers["report"] = report(spent=nothing, longest_loss=None, losses_not_known=1)

    assert "done again    nothing; of 1 attempt it is not known\n" in gpu("report").out


@pytest.mark.parametrize("word", ["7", "never"])
def test_a_time_that_cannot_be_read_is_refused(gpu, word):
    """A number needs its unit, as everywhere."""
    result = gpu("report", "--since", word)

    assert result.code == 2
    assert word in result.err
    assert gpu.client.calls == []


def test_a_name_that_is_hostile_is_made_safe(gpu):
    """A user's name is what somebody chose."""
    gpu.client.answers["report"] = report(by=ReportBy.USER, rows=(report_row("a\x1b[31mb", 1),), end_at=NOW - 2 * HOUR)

    assert "\x1b" not in gpu("report", "--by", "user").out
