"""`status --watch`: drawn as the stream tells, marked while nobody answers, quiet in a pipe."""

import pytest

from jupyter_gpu.cli import watch
from jupyter_gpu.errors import BrokerUnavailable
from jupyter_gpu.model import Change
from tests.cli.conftest import Terminal
from tests.cli.fake import NOW, FakeClient, device


@pytest.fixture(autouse=True)
def naps(monkeypatch):
    """Do not sleep, and remember how long it would have been."""
    seen = []
    monkeypatch.setattr(watch.time, "sleep", seen.append)
    return seen


def test_it_draws_until_ctrl_c(naps):
    """Each change is drawn; Ctrl-C is 130 and says that the work goes on."""
    terminal = Terminal(tty=True)
    terminal.client.changes = [[Change(samples=(device(0, utilisation_percent=51),))]]

    result = terminal("status", "--watch")

    assert result.code == 130
    assert "51%" in result.out
    assert "the work goes on" in result.err
    assert terminal.client.calls.count(("status",)) == 1


def test_a_broker_that_is_gone_leaves_the_picture_marked(naps):
    """The last picture stays with a mark; pauses grow up to a bound, and shrink again after an answer."""
    terminal = Terminal(tty=True)
    gone = BrokerUnavailable("gone")
    terminal.client.changes = [*[gone] * 7, [Change(revision=8, at=NOW)], gone]

    result = terminal("status", "--watch")

    assert "no answer, trying again" in result.out
    assert naps == [0.5, 1, 2, 4, 8, 10, 10, 0.5, 1]
    held = [call[1].revision for call in terminal.client.calls if call[0] == "stream"]
    assert held == [7] * 8 + [8] * 2  # it goes on from the picture that it has


def test_a_pipe_gets_the_picture_once(gpu):
    """Where nobody sits at a terminal, --watch is plain text, once."""
    assert gpu("status", "--watch").out == Terminal(client=FakeClient())("status").out
    assert not any(call[0] == "stream" for call in gpu.client.calls)
