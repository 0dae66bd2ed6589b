"""What a short command writes is caught, byte for byte and never too much of it."""

import time

from jupyter_gpu.spawn import NOT_FOUND, Caught, catch


def test_what_a_command_writes_is_caught_byte_for_byte():
    """With its exit code and the beginning of its complaints, however much of these there are."""
    loud = "printf '\\377x'; head -c 300000 /dev/zero | tr '\\0' e >&2; exit 3"
    done = catch(["sh", "-c", loud], 10, most_bytes=100)
    assert (done.exit_code, done.output, done.is_cut) == (3, b"\xffx", False)
    assert done.errors.startswith("eee")
    assert len(done.errors) < 3000
    assert catch(["no-such-command-xyz"], 10, most_bytes=1).exit_code == NOT_FOUND


def test_a_command_that_writes_too_much_is_ended():
    """An endless one as well; what is kept is told to be a part."""
    done = catch(["yes"], 30, most_bytes=10)
    assert done == Caught(None, b"y\ny\ny\ny\ny\n", is_cut=True, errors="")
    assert catch(["printf", "0123456789"], 30, most_bytes=10) == Caught(0, b"0123456789", is_cut=False, errors="")


def test_the_deadline_holds_while_output_is_caught():
    """What was said until then is there; a child that keeps the pipe open does not keep us."""
    begun = time.monotonic()
    done = catch(["sh", "-c", "echo begun; setsid sleep 5 & sleep 60"], 0.3, most_bytes=100)
    assert (done.exit_code, done.output, done.is_cut) == (None, b"begun\n", False)
    assert time.monotonic() - begun < 4
