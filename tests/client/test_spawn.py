"""Short commands end, whatever they do."""

import os
import signal
import time

import pytest

from jupyter_gpu.hearing import KEPT_BYTES
from jupyter_gpu.spawn import NOT_FOUND, User, run


def test_a_command_is_run_to_its_end():
    """Its exit code, output and errors; bytes that are no text do not matter; input is given."""
    assert run(["sh", "-c", "cat; echo err >&2; exit 3"], 10, text="in") == (3, "in", "err\n")
    assert run(["printf", "\\377"], 10).output == "\ufffd"


def test_a_command_that_is_not_there_is_an_answer_too():
    """As a shell would say it; nothing is raised."""
    assert run(["no-such-command-xyz"], 10).exit_code == NOT_FOUND
    assert run(["x\0y"], 10).exit_code == NOT_FOUND
    assert run(["/tmp"], 10).exit_code == NOT_FOUND


def test_the_deadline_holds_for_all_that_it_started():
    """A child that keeps the pipes open, even from a session of its own, does not keep us."""
    begun = time.monotonic()
    done = run(["sh", "-c", "echo begun; setsid sleep 5 & sleep 60"], 0.3)
    assert done.exit_code is None
    assert "begun" in done.output
    assert time.monotonic() - begun < 4


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: only root may start a command as somebody else")
def test_a_command_runs_as_whom_it_is_for():
    """With their groups and none of ours."""
    done = run(["sh", "-c", "id -u; id -g; id -G"], 10, cwd="/", user=User(65534, 65533, (65532,)))
    assert done.output.split() == ["65534", "65533", "65533", "65532"]


def test_of_what_it_writes_no_more_is_kept_than_fits():
    """The beginning and the end of it; a program of somebody else's must not fill our memory."""
    done = run(["sh", "-c", f"echo begun; head -c {8 * KEPT_BYTES} /dev/zero; echo over"], 30)

    assert done.exit_code == 0
    assert len(done.output) < KEPT_BYTES + 100
    assert done.output.startswith("begun\n")
    assert done.output.endswith("over\n")
    assert f"{7 * KEPT_BYTES + 11} bytes left out" in done.output


def test_who_writes_without_end_is_ended():
    """Long before its deadline, and that is said."""
    done = run(["sh", "-c", "echo complaint >&2; cat /dev/zero"], 600)

    assert done.exit_code == -signal.SIGKILL
    assert done.errors == "complaint\n\nit wrote more than 64 MiB and was ended"


def test_a_command_that_reads_none_of_its_input_is_run_to_its_end():
    """Whether the input fits in the pipe or not."""
    assert run(["true"], 10, text="x" * (4 << 20)) == (0, "", "")
