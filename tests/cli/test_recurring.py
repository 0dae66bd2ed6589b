"""`jupyter gpu recurring`: what comes by a calendar, as people add it, see it and change it."""

import pytest

from jupyter_gpu import errors
from jupyter_gpu.cli import run
from jupyter_gpu.model import EndReason, Overlap, State
from tests.cli.fake import HOUR, NOW, FakeClient, recurring

DAY = 86_400


def test_the_list_tells_when_it_comes_and_what_became_of_the_last(gpu):
    """Instants by the clock on the reader's wall; the job and its end; what is to be said of it."""
    gpu.client.calendars = (
        recurring(15, last_at=NOW - DAY, last_workload=12, last_state=State.ENDED, last_end=EndReason.SUCCEEDED),
        recurring(16, name="", command="python sweep.py", paused=True, last_at=NOW - HOUR, last_detail="refused: full"),
        recurring(17, name="once", next_at=None, last_at=NOW, last_workload=14, last_state=State.ACTIVE),
        recurring(18, name="held", next_at=NOW - 60, last_detail="The disk is full"),
    )
    gpu.width = 160

    done = gpu("recurring")

    assert done.code == 0
    assert done.out.splitlines() == [
        "ID  calendar    zone              next    name             the last time",
        "15  30 2 * * *  Europe/Amsterdam  15:05   digits           job 12 succeeded, yesterday 14:05",
        "16  30 2 * * *  Europe/Amsterdam  paused  python sweep.py  none, 13:05: refused: full",
        "17  30 2 * * *  Europe/Amsterdam  never   once             job 14 active, 14:05",
        "18  30 2 * * *  Europe/Amsterdam  due     held             not yet: The disk is full",
    ]


def test_one_is_shown_with_what_it_runs(gpu):
    """Its command in a line that can be pasted, its calendar, and what it asks for."""
    out = gpu("recurring", "show", "15").out

    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[0] == "Recurring job 15 (digits)"
    assert "calendar 30 2 * * *, in the time of Europe/Amsterdam" in lines
    assert "asked for 2 GPUs" in lines
    assert "command python train.py --lr 0.1 --layers 1 2 --name=x model.dim=64" in lines
    assert gpu("recurring", "show", "99").code == errors.NotFound.exit_code
    assert '"command"' in gpu("recurring", "show", "15", "--json").out


def test_a_word_that_is_missing_leads_to_the_help_of_add(gpu):
    """As it is typed."""
    assert "`jupyter gpu recurring add --help` explains it." in " ".join(
        gpu("recurring", "add", "--", "true").err.split()
    )


def test_an_operator_sees_whose_they_are(gpu):
    """Others' as well, so the owner is said."""
    gpu.client.calendars = (recurring(15), recurring(16, owner="grace"))

    out = gpu("recurring", "list").out

    assert "owner" in out
    assert "grace" in out


def test_an_empty_list_says_how_to_begin(gpu):
    """With a whole line to copy."""
    gpu.client.calendars = ()

    assert "jupyter gpu recurring add --cron" in gpu("recurring").out


@pytest.mark.parametrize("words", [("submit",), ("recurring", "add")])
def test_a_nightly_job_is_added_with_the_options_of_submit(gpu, words):
    """Both ways are one: what stands before the command is ours, what follows is its own."""
    done = gpu(*words, "--cron", "30 2 * * *", "--zone", "Europe/Amsterdam", "--overlap", "queue", "--gpus", "2",
               "--name", "night", "--", "echo", "--cron", "x")  # fmt: skip

    assert done.code == 0
    (_, body, key, _) = next(call for call in gpu.client.calls if call[0] == "add_recurring")
    assert (body.cron, body.timezone, body.overlap) == ("30 2 * * *", "Europe/Amsterdam", Overlap.QUEUE)
    assert (body.job.ask.devices, body.job.name) == (2, "night")
    assert body.job.spec.argv == ("echo", "--cron", "x")
    assert key
    assert "Recurring job 15 (night)" in done.out


def test_without_a_calendar_nothing_is_added(gpu):
    """It would be a plain job, which `submit` is for."""
    done = gpu("recurring", "add", "--", "true")

    assert done.code == 2
    assert "--cron" in done.err
    assert gpu.client.calls == []


@pytest.mark.parametrize(
    ("what", "call", "said"),
    [
        ("pause", "pause_recurring", "Recurring job 15 (digits) is paused: it comes no more until `let-go`."),
        ("let-go", "let_go_recurring", "Recurring job 15 (digits) comes again; the next time: 15:05."),
        ("remove", "remove_recurring", "Recurring job 15 (digits) is removed; the jobs that it led to stay."),
        ("fire", "fire", "Recurring job 15 leads to job 20 (digits). No GPU is free."),
    ],
)
def test_each_verb_says_what_came_of_it(gpu, what, call, said):
    """Several at once, each once; one that fails is told and keeps no other back."""
    done = gpu("recurring", what, "15", "#99", "15")

    assert gpu.client.calls == [(call, 15), (call, 99)]
    assert done.out.splitlines() == [said]
    assert "no recurring job 99" in done.err
    assert done.code == errors.NotFound.exit_code


@pytest.mark.parametrize("words", [("pause",), ("remove", "x"), ("list", "15"), ("bury", "15")])
def test_slips_are_told(gpu, words):
    """Which one, no number, a list of one: nothing is changed by any."""
    done = gpu("recurring", *words)

    assert done.code == 2
    assert gpu.client.calls == []


@pytest.mark.parametrize("word", ["cron", "crontab", "schedule"])
def test_what_others_call_it_leads_here(gpu, word):
    """People type what their last tool had."""
    assert "Did you mean recurring?" in gpu(word).err


def test_names_from_others_move_no_terminal(gpu):
    """What an owner wrote is shown as plain text."""
    gpu.client.calendars = (recurring(15, name="\x1b[2J", last_detail="\x1b]0;x\x07", cron="\x1b[1m"),)

    assert "\x1b" not in gpu("recurring").out


def test_it_is_shown_where_no_terminal_is():
    """A magic hands in its own client."""
    assert run(["recurring", "list"], client=FakeClient()) == 0
