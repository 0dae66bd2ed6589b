"""What lies in a user's folder is the user's: the broker neither waits for it, nor is led elsewhere, nor drowns in it."""

import os
import socket

import pytest

from jupyter_gpu.broker.engines.spool import _first_line
from jupyter_gpu.model import EndReason
from tests.engines.bench import attempt, bench, scenario


def first_line(path):
    """What the engine sees of a script's copy."""
    return _first_line(attempt("script", script_index=0, script_copy=str(path)))


def test_the_first_line_is_read_of_a_plain_file(tmp_path):
    """Up to the end of the line, and of a long one no more than the kernel would read."""
    copy = tmp_path / "copy"
    copy.write_bytes(b"#!/bin/sh -e\necho hi\n")
    assert first_line(copy) == "#!/bin/sh -e"
    copy.write_bytes(b"#!" + b"x" * 100_000)
    assert len(first_line(copy)) == 4096
    copy.write_bytes(b"")
    assert first_line(copy) == ""


@pytest.mark.parametrize("what", ["pipe", "link", "folder", "socket", "nothing"])
def test_anything_else_in_its_place_has_no_first_line(tmp_path, what):
    """A pipe would hold the broker for ever, a link would show root's files."""
    secret, copy = tmp_path / "secret", tmp_path / "copy"
    secret.write_text("#!secret\n")
    if what == "pipe":
        os.mkfifo(copy)
    elif what == "link":
        copy.symlink_to(secret)
    elif what == "folder":
        copy.mkdir()
    elif what == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(copy))
    assert first_line(copy) == ""


@scenario
async def test_a_job_whose_copy_became_a_pipe_ends_and_holds_nobody_up(tmp_path):
    """It cannot be started as it is; the next one can."""
    async with bench(tmp_path) as it:
        os.mkfifo(tmp_path / "copy")
        outcome = await it.run("train.sh", script_index=0, script_copy=str(tmp_path / "copy"))
        assert outcome.end is EndReason.LAUNCH_FAILED
        assert (await it.run("true", workload=2)).end is EndReason.SUCCEEDED
