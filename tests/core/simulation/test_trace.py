"""Traces are read as they are meant, or refused with the line that is wrong."""

from __future__ import annotations

import pytest

from jupyter_gpu.core.simulation.trace import read_csv, read_swf, read_trace
from jupyter_gpu.errors import InvalidAsk

HEADER = "job_id,user,team_or_vc,submit_s,gpus,duration_s,limit_s,queue\n"
SWF = "1 0 5 100 4 -1 -1 8 3600 -1 1 7 3 -1 2 -1 -1 -1\n"


def refused(text: str, read=read_trace) -> str:
    """What a text is refused with."""
    with pytest.raises(InvalidAsk) as found:
        read(text.splitlines(keepends=True), name="t.csv")
    assert found.value.hint
    return found.value.message


def test_columns_are_known_by_their_names_in_any_order():
    """What means nothing here is passed over."""
    trace = read_csv(["gpus,colour,duration_s,submit_s,job_id,user,team\n", "2,red,60,5,a,ada,vision\n"])

    (job,) = trace.jobs
    assert (job.job_id, job.user, job.team, job.submit_s, job.gpus, job.duration_s) == (
        *("a", "ada", "vision", 5),
        *(2, 60),
    )
    assert (job.limit_s, job.queue) == (None, None)


def test_where_no_user_is_named_the_team_stands_in():
    """And the trace says that it names none."""
    trace = read_csv([HEADER, "1,,vision,0,1,60,,\n"])

    assert (trace.jobs[0].user, trace.jobs[0].team) == ("vision", "vision")
    assert not trace.has_users
    assert read_csv([HEADER, "1,ada,,0,1,60,,\n"]).jobs[0].team == "ada"


def test_a_limit_and_a_queue_are_kept():
    """A limit of zero is none."""
    trace = read_csv([HEADER, "1,ada,v,0,1,60,3600,deferred\n", "2,ada,v,0,1,60,0,\n"])

    assert [(job.limit_s, job.queue) for job in trace.jobs] == [(3600, "deferred"), (None, None)]


def test_a_mark_of_byte_order_blank_lines_and_other_ends_of_lines_are_no_fault():
    """Spreadsheets write such files."""
    text = "\ufeffjob_id,user,submit_s,gpus,duration_s\r\n1,ada,0,1,60\r\n\r\n2,bob,1,1,60\r\n"

    assert [job.user for job in read_trace(text.splitlines(keepends=True)).jobs] == ["ada", "bob"]


def test_rows_may_come_in_any_order_and_those_of_one_second_keep_theirs():
    """A replay goes by submission."""
    rows = ["9,a,v,5,1,1,,\n", "8,a,v,0,1,1,,\n", "7,a,v,5,1,1,,\n"]

    assert [job.job_id for job in read_csv([HEADER, *rows]).jobs] == ["8", "9", "7"]


def test_seconds_with_a_point_are_rounded():
    """Whole seconds are what a replay counts in."""
    (job,) = read_csv([HEADER, "1,a,v,1.4,2.0,59.6,,\n"]).jobs

    assert (job.submit_s, job.gpus, job.duration_s) == (1, 2, 60)


def test_jobs_without_a_gpu_are_left_out_and_counted():
    """They wait for none."""
    trace = read_csv([HEADER, "1,a,v,0,0,60,,\n", "2,a,v,0,1,60,,\n"])

    assert [job.job_id for job in trace.jobs] == ["2"]
    assert trace.left_out == {"without a GPU": 1}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("1,a,v,zero,1,60,,", "submit_s is 'zero', which is no number"),
        ("1,a,v,0,1,nan,,", "duration_s is 'nan', which is no number"),
        ("1,a,v,0,1,inf,,", "duration_s is 'inf', which is no number"),
        ("1,a,v,0,1,-5,,", "duration_s is -5, and cannot be below 0"),
        ("1,a,v,-0.6,1,5,,", "submit_s is -0.6, and cannot be below 0"),
        ("1,a,v,0,1,1e300,,", "duration_s is 1e300; the most that can be meant is 315360000"),
        ("1,a,v,0," + "9" * 100 + ",60,,", "gpus is '9999999999999999999999999999999999999999', which is no number"),
        ("1,a,v,0,9999999,60,,", "gpus is 9999999; the most that can be meant is 1000000"),
        ("1,a,v,0,1.5,60,,", "gpus is 1.5; only whole GPUs can be replayed"),
        ("1,a,v,0,1_0,60,,", "gpus is '1_0', which is no number"),
        ("1,a,v,0,٣,60,,", "gpus is '٣', which is no number"),
        ("1,a,v,0,,60,,", "gpus is '', which is no number"),
        (",a,v,0,1,60,,", "the job has no job_id"),
        ("1,,,0,1,60,,", "job '1' has neither a user nor a team"),
        ("1,a,v", "has 3 cells"),
        ('1,"a,v,0,1,60,,', "unexpected end of data"),
        ("1,a,v,0,1,60,-1,", "limit_s is -1"),
    ],
)
def test_a_row_that_cannot_be_meant_is_refused_with_its_line(row, said):
    """The good row before it is line 2."""
    message = refused(HEADER + "0,a,v,0,1,60,,\n" + row + "\n")

    assert message.startswith("t.csv, line 3")
    assert said in message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "t.csv is empty"),
        ("\n \n", "t.csv is empty"),
        ("job_id,user,sumbit_s,gpus,duration_s\n1,a,0,1,2\n", "no column 'submit_s'; it has 'sumbit_s'"),
        ("job_id,submit_s,gpus,duration_s\n1,0,1,2\n", "no column 'user'"),
        ("1,a,v,0,1,60\n2,a,v,0,1,60\n", "its first line names none of the columns"),
        ("job_id,user,gpus,gpus,submit_s,duration_s\n", "two columns 'gpus'"),
        (HEADER, "has no job that ran on a GPU"),
        (HEADER + "1,a,v,0,1,6,,\n1,a,v,0,1,6,,\n", "has the job '1' more than once"),
        ("\x00\x01\x02", "no column 'job_id'"),
    ],
)
def test_what_is_no_trace_is_refused(text, said):
    """With what is missing."""
    assert said in refused(text)


def test_a_standard_workload_is_read_by_its_fields():
    """Allocated processors are GPUs, the requested time is the limit, the group is the team."""
    (job,) = read_trace(["; Version: 2\n", "; MaxProcs: 8\n", "\n", SWF]).jobs

    assert (job.job_id, job.user, job.team, job.submit_s) == ("1", "user 7", "group 3", 0)
    assert (job.gpus, job.duration_s, job.limit_s, job.queue, job.status) == (4, 100, 3600, "2", "completed")


def test_of_a_standard_workload_minus_one_is_not_known():
    """Requested processors stand in for allocated ones; a run time that nobody knows leaves the job out."""
    trace = read_trace(
        [
            "1 0 -1 50 -1 -1 -1 8 -1 -1 0 -1 -1 -1 -1 -1 -1 -1\n",
            "2 9 -1 -1 -1 -1 -1 8 -1 -1 5 -1 -1 -1 -1 -1 -1 -1\n",
        ]
    )

    (job,) = trace.jobs
    assert (job.gpus, job.user, job.team, job.limit_s, job.queue, job.status) == (
        *(8, "somebody", "somebody"),
        *(None, None, "failed"),
    )
    assert trace.left_out == {"that never ran, or of which nobody knows how long": 1}
    assert not trace.has_users


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (SWF[2:], "line 2 has 17 fields"),
        (SWF.replace("100", "1e400"), "line 2: field 4 is '1e400'"),
        (SWF.replace("100", "-2"), "line 2: field 4 is '-2'"),
        (SWF.replace("100", "nan"), "line 2: field 4 is 'nan'"),
        (SWF.replace("100", "x"), "line 2: field 4 is 'x'"),
    ],
)
def test_a_line_of_a_standard_workload_that_cannot_be_meant_is_refused(line, said):
    """As in a CSV."""
    assert said in refused("; a comment\n" + line, read_swf)
