"""`status --watch`: drawn as the stream tells, marked while nobody answers, quiet in a pipe."""

import msgspec
import pytest

from jupyter_gpu.cli import watch
from jupyter_gpu.cli.watch import apply
from jupyter_gpu.errors import BrokerUnavailable
from jupyter_gpu.model import Change
from tests.cli.conftest import Terminal
from tests.cli.fake import GIB, NOW, FakeClient, device, lab, workload


@pytest.fixture(autouse=True)
def naps(monkeypatch):
    """Do not sleep, and remember how long it would have been."""
    seen = []
    monkeypatch.setattr(watch.time, "sleep", seen.append)
    return seen


def refuse():
    """Ask for nothing."""
    raise AssertionError("a reading asks for nothing")


def test_a_reading_is_put_in():
    """A sample changes the readings and nothing else: who holds the device does not stand in it."""
    sample = device(0, memory_used_bytes=GIB, workloads=(), holders=())

    now = apply(lab(), Change(samples=(sample,)), refuse, NOW + 1)

    assert now.devices[0].memory_used_bytes == GIB
    assert now.devices[0].workloads == (12,)
    assert now.devices[1:] == lab().devices[1:]
    assert now.at == NOW + 1


def test_what_moves_places_is_asked_anew():
    """A changed workload moves places and quota of others, so the whole document is taken."""
    newer = msgspec.structs.replace(lab(), revision=8)

    assert apply(lab(), Change(revision=8, changes=(workload(1),)), lambda: newer, NOW) is newer
    assert apply(lab(), Change(revision=8, devices=(device(0),)), lambda: newer, NOW) is newer
    assert apply(lab(), Change(status=newer), refuse, NOW) is newer


def test_it_draws_until_ctrl_c(naps):
    """Each change is drawn; Ctrl-C is 130 and says that the work goes on."""
    terminal = Terminal(tty=True)
    terminal.client.changes = [[Change(samples=(device(0, utilisation_percent=51),))]]

    result = terminal("status", "--watch")

    assert result.code == 130
    assert "51%" in result.out
    assert "the work goes on" in result.err


def test_a_broker_that_is_gone_leaves_the_picture_marked(naps):
    """The last picture stays with a mark; pauses grow up to a bound, and shrink again after an answer."""
    terminal = Terminal(tty=True)
    gone = BrokerUnavailable("gone")
    terminal.client.changes = [*[gone] * 7, [Change(samples=(device(0),))], gone]

    result = terminal("status", "--watch")

    assert "no answer, trying again" in result.out
    assert naps == [0.5, 1, 2, 4, 8, 10, 10, 0.5, 1]


def test_a_pipe_gets_the_picture_once(gpu):
    """Where nobody sits at a terminal, --watch is plain text, once."""
    assert gpu("status", "--watch").out == Terminal(client=FakeClient())("status").out
    assert ("stream",) not in gpu.client.calls
