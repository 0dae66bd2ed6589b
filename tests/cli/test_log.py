"""`log`: everything a job printed, and nothing that it should not do."""

import msgspec
import pytest

from jupyter_gpu import errors
from jupyter_gpu.cli.log import LogDocument
from jupyter_gpu.model import EndReason, State
from tests.cli.conftest import Terminal
from tests.cli.fake import STORY, ended, workload

BAD = b"hi\n\x80end\n\x00 \xe2\x96"


def test_a_bad_byte_hides_nothing(gpu):
    """What is no UTF-8 is marked and the rest is shown (hail-is/hail#12614, Nukesor/pueue#41)."""
    gpu.client.log_chunks = [BAD]

    assert gpu("log", "12").out == "hi\n\ufffdend\n\u2400 \ufffd\n"


def test_raw_is_byte_for_byte(gpu):
    """--raw gives what the job wrote, to the byte (hail-is/hail#12614)."""
    everything = bytes(range(256)) * 100
    gpu.client.log_chunks = [everything]
    gpu.client.part_bytes = 999

    assert gpu("log", "12", "--raw").raw == everything
    assert gpu("log", "12", "--raw", "--follow").raw == everything


def test_a_large_log_is_read_in_parts(gpu):
    """Parts may end anywhere; the text does not show where."""
    gpu.client.log_chunks = ["blöcke █\n".encode() * 50]
    gpu.client.part_bytes = 7

    assert gpu("log", "12").out == "blöcke █\n" * 50


def test_all_parts_are_of_one_attempt(gpu):
    """A new attempt that starts while we read does not get into the text of the old one."""
    gpu.client.log_chunks = [b"one\ntwo\n"]
    gpu.client.part_bytes = 4

    gpu("log", "12")

    assert [call[2] for call in gpu.client.calls] == [None, 2, 2]


def test_an_attempt_can_be_named(gpu):
    """--attempt shows an earlier one."""
    gpu("log", "12", "--attempt", "1")

    assert gpu.client.calls[0] == ("log_part", 12, 1, 0, None)


def test_nothing_yet_is_said_aside(gpu):
    """An empty log is empty on stdout, and a word about it on stderr."""
    gpu.client.answers["workload 12"] = workload(12, state=State.ACTIVE, attempt=2)

    result = gpu("log", "12")

    assert (result.code, result.out) == (0, "")
    assert result.err == ("Job 12 has printed nothing yet. The one before: `jupyter gpu log 12 --attempt 1`.\n")


@pytest.mark.parametrize(
    ("it", "said"),
    [
        (ended(12), "Attempt 1 of job 12 printed nothing.\n"),
        (workload(12, attempt=1), "Attempt 1 of job 12 printed nothing.\n"),
        (workload(12), "Job 12 has not started.\n"),
        (
            workload(12, state=State.ENDED, end=EndReason.CANCELLED, detail="cancelled by ada"),
            "Job 12 has not started; it ended: cancelled by ada.\n",
        ),
    ],
)
def test_nothing_is_not_nothing_yet(gpu, it, said):
    """Where no more will come, nobody is told to wait for it."""
    gpu.client.answers["workload 12"] = it

    assert gpu("log", "12", "--attempt", "1").err == said


def test_an_earlier_attempt_is_named_at_a_terminal():
    """Who looks at a job that was resumed learns that there is more."""
    terminal = Terminal(tty=True)
    terminal.client.log_chunks = [b"resumed\n"]

    assert "This is attempt 2. The one before: `jupyter gpu log 12 --attempt 1`." in terminal("log", "12").err


@pytest.mark.parametrize(("count", "shown"), [(0, ""), (1, "49"), (3, "47\n48\n49"), (99, None)])
def test_the_last_lines(gpu, count, shown):
    """--tail gives the last lines, whether or not the last one is complete; --json and --raw as well."""
    lines = "\n".join(map(str, range(50)))
    for end in ("", "\n"):
        gpu.client.log_chunks = [(lines + end).encode()]
        wanted = lines if shown is None else shown

        assert gpu("log", "12", "--tail", str(count)).out == (f"{wanted}\n" if wanted else "")
        raw = gpu("log", "12", "--tail", str(count), "--raw").out
        assert raw == (wanted + end if wanted else "")
        document = msgspec.json.decode(gpu("log", "12", "--json", "--tail", str(count)).out, type=LogDocument)
        assert document.text == raw


def test_the_last_lines_of_a_large_log_are_found_from_its_end(gpu):
    """A large log is not read whole."""
    gpu.client.log_chunks = [b"x" * 100_000 + b"\n"] * 10

    assert gpu("log", "12", "--tail", "2").out == ("x" * 100_000 + "\n") * 2
    assert [call[3] for call in gpu.client.calls[:2]] == [-(1 << 16), -(1 << 18)]


def test_following_goes_on_through_the_attempts(gpu):
    """A job that yields goes on later, and so does who follows it; a named attempt ends the following."""
    first, between = workload(12, state=State.ACTIVE, attempt=1), workload(12, attempt=1, reason="No GPU is free.")
    gpu.client.answers["workload 12"] = [first, between, ended(12, EndReason.FAILED, detail="exit code 3")]
    gpu.client.log_chunks = [b"step\n"]

    result = gpu("log", "12", "--follow")

    assert (result.code, result.out) == (0, "step\nstep\n")
    assert [call[2] for call in gpu.client.calls if call[0] == "follow_log"] == [1, 2]
    assert "Attempt 1 is over; the next one follows. No GPU is free." in result.err
    assert "Job 12 (digits) ended 14:05: failed (exit code 3)." in result.err
    gpu.client.answers["workload 12"] = between
    assert gpu("log", "12", "--follow", "--attempt", "1").out == "step\n"


@pytest.mark.parametrize("words", [(), ("--tail", "1"), ("--follow",)])
def test_a_bar_of_megabytes_is_its_last_state(gpu, words):
    """A bar that was drawn 200,000 times is one line of 5 MB to who reads it as a file (nteract/papermill#765)."""
    drawn = "".join(f"\r{step}/200000 it ████" for step in range(1, 200_001)).encode()
    gpu.client.log_chunks = [drawn[at : at + 100_000] for at in range(0, len(drawn), 100_000)]

    assert gpu("log", "12", *words).out == "200000/200000 it ████\n"


def test_json_has_the_text(gpu):
    """The document says of which attempt it is, and how many bytes there are."""
    gpu.client.log_chunks = [BAD]

    found = msgspec.json.decode(gpu("log", "12", "--json").out, type=LogDocument)

    assert found == LogDocument(workload=12, attempt=2, size_bytes=len(BAD), text=BAD.decode("utf-8", "replace"))


def test_following_shows_whole_lines_in_a_pipe(gpu):
    """A pipe gets lines when they are whole, and the last one at the end."""
    gpu.client.log_chunks = [b"a\nb", b"c\n10%\r", b"20%\r", b"30%"]

    assert gpu("log", "12", "--follow").out == "a\nbc\n30%\n"


def test_following_shows_a_moving_line_on_a_terminal():
    """On a terminal the unfinished line is drawn over in place, and never wider than the terminal."""
    terminal = Terminal(tty=True, width=10)
    terminal.client.log_chunks = [b"10%\r", b"20%", b"\rdone\n", b"x" * 50]

    out = terminal("log", "12", "-f").out

    assert "\r\x1b[K10%\r\x1b[K20%" in out
    assert "\r\x1b[Kdone\n" in out
    assert "\r\x1b[K" + "x" * 9 + "\r" in out
    assert out.endswith("x" * 50 + "\n")


def test_a_log_does_not_steer_the_terminal():
    """Titles and cursors are taken away, colours stay, and end with their line."""
    terminal = Terminal(tty=True, colours=True)
    terminal.client.log_chunks = [b"\x1b]0;evil\x07\x1b[2J\x1b[31mred\n"]

    assert terminal("log", "12").out == "\x1b[31mred\x1b[0m\n"


def test_ctrl_c_while_following(gpu):
    """The job goes on, and the command to see more is named."""
    gpu.client.log_chunks = [b"a\n", KeyboardInterrupt()]

    result = gpu("log", "12", "--follow")

    assert (result.code, result.out) == (130, "a\n")
    assert "`jupyter gpu log 12 --follow`" in result.err


def test_a_broker_that_goes_away_is_told(gpu):
    """What came is kept; the error is told with its code."""
    gpu.client.log_chunks = [b"a\n", errors.BrokerUnavailable("gone")]

    result = gpu("log", "12", "--follow")

    assert (result.code, result.out) == (8, "a\n")


@pytest.mark.parametrize("raw", [False, True])
def test_a_log_in_a_notebook_is_text(gpu, raw):
    """A console without bytes below still gets what can be read."""
    import io

    from rich.console import Console

    from jupyter_gpu.cli import run

    gpu.client.log_chunks = [b"hi\x80\n"]
    out = io.StringIO()

    assert run(["log", "12", *(["--raw"] if raw else [])], client=gpu.client, console=Console(file=out)) == 0
    assert out.getvalue() == "hi\ufffd\n"


HEAD = "device 0 in this job = GPU 0 (NVIDIA A100-SXM4-80GB, GPU-0aaaaaaa-0000-4000-8000-000000000000)\n"


@pytest.mark.parametrize("words", [[], ["--follow"]])
def test_whose_device_zero_is_said_above_the_log(words):
    """A job counts its GPUs from 0, whichever they are: justanhduc/task-spooler#73, jax-ml/jax#12721."""
    terminal = Terminal(tty=True, width=200)
    terminal.client.log_chunks = [b"cuda:0\n", b"loss 1\n"]

    result = terminal("log", "12", *words)

    assert result.err.startswith(HEAD)
    assert result.err.count("device 0") == 1
    assert "device 0" not in result.out


@pytest.mark.parametrize(("attempt", "number"), [(1, 2), (2, 0)])
def test_each_attempt_is_shown_with_the_gpus_that_it_had(attempt, number):
    """Also when it holds them no more: on which it was slow, say."""
    terminal = Terminal(tty=True, width=200)
    terminal.client.log_chunks = [b"loss 1\n"]

    assert f"device 0 in this job = GPU {number} (" in terminal("log", "12", "--attempt", str(attempt)).err


def test_a_log_may_come_before_the_broker_has_seen_the_start(monkeypatch):
    """What was granted last is what it runs on."""
    monkeypatch.setattr("tests.cli.fake.STORY", STORY[:2])
    terminal = Terminal(tty=True, width=200)
    terminal.client.log_chunks = [b"loss 1\n"]

    assert "device 0 in this job = GPU 2 (" in terminal("log", "12", "--attempt", "1").err
    assert "device 0" not in terminal("log", "12", "--attempt", "2").err


@pytest.mark.parametrize(
    ("tty", "words"),
    [
        (False, []),  # a script reads the log, and nobody the rest
        (True, ["--raw"]),
        (True, ["--attempt", "4"]),  # which is not there yet
    ],
)
def test_where_it_would_disturb_or_be_wrong_it_is_not_said(tty, words):
    """Only where it is known, and only to who sits at a terminal."""
    terminal = Terminal(tty=tty, width=200)
    terminal.client.log_chunks = [b"loss 1\n"]

    assert "device 0" not in terminal("log", "12", *words).err


def test_a_gpu_without_a_number_is_named_by_its_uuid():
    """Where the devices cannot be asked for, the UUID says it."""
    terminal = Terminal(tty=True, width=200)
    terminal.client.log_chunks = [b"loss 1\n"]
    terminal.client.errors["devices"] = errors.BrokerUnavailable("away")

    assert "device 0 in this job = GPU-0aaaaaaa-" in terminal("log", "12").err
