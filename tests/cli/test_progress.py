"""`progress`: the curve of an attempt in a terminal."""

import msgspec
import pytest

from jupyter_gpu.cli.progress import picture
from jupyter_gpu.model import EndReason, Progress, ProgressPage, State
from tests.cli.conftest import Terminal
from tests.cli.fake import NOW, ended, workload


def points(*steps, attempt=2, of=50, **more):
    """Make a curve: one point a minute, the last one now."""
    return ProgressPage(
        attempt=attempt,
        items=tuple(
            Progress(
                at=NOW - 60 * (len(steps) - place - 1),
                attempt=attempt,
                step=step,
                of=of,
                numbers={name: values[place] for name, values in more.items()},
            )
            for place, step in enumerate(steps)
        ),
    )


@pytest.fixture
def running(gpu):
    """A job in its second attempt."""
    gpu.client.answers["workload 12"] = workload(12, state=State.ACTIVE, attempt=2, started_at=NOW - 1200)
    return gpu


CURVE = """\
Job 12 (digits), attempt 2: step 28/50, 56 %, about 11m left.
loss  █▅▂▁  0.25 (0.25 to 2)
acc   ▁▄▆█  0.9 (0.1 to 0.9)
"""


def test_a_curve_for_each_number(running):
    """How far it is and what is left by the rate of this attempt, then each number from its first value to its last."""
    running.client.answers["progress"] = points(22, 24, 26, 28, loss=[2.0, 1.25, 0.5, 0.25], acc=[0.1, 0.4, 0.6, 0.9])

    assert running("progress", "12").out == CURVE


def test_a_terminal_without_blocks_has_signs():
    """ASCII where the terminal's encoding has nothing else."""
    page = points(22, 24, loss=[2.0, 1.0])

    assert picture(workload(12, attempt=2), page, NOW, fancy=False).splitlines()[-1] == "loss  #_  1 (1 to 2)"


def test_a_number_that_is_missing_is_a_gap(running):
    """A value that was no finite number, or was reported now and then."""
    running.client.answers["progress"] = points(1, 2, 3, of=None, loss=[2.0, None, 1.0])

    out = running("progress", "12").out

    assert "step 3." in out
    assert "loss  █ ▁  1 (1 to 2)\n" in out


def test_an_attempt_can_be_named(running):
    """An earlier one too."""
    running("progress", "12", "--attempt", "1")

    assert ("progress", 12, 1) in running.client.calls


def test_nothing_reported_is_said_aside(running):
    """How a job reports is what one needs to know then."""
    running.client.answers["progress"] = ProgressPage(attempt=2, items=())

    result = running("progress", "12")

    assert (result.code, result.out) == (0, "")
    assert "Attempt 2 of job 12 has reported nothing." in result.err
    assert "jupyter_gpu.training" in result.err


def test_what_has_not_started_has_reported_nothing_yet(gpu):
    """There is no attempt to speak of."""
    gpu.client.answers["progress"] = ProgressPage(attempt=1, items=())

    assert gpu("progress", "14").err == "Job 14 has not started.\n"


def test_following_draws_what_is_new_until_it_has_ended(running):
    """Each look is a line where nothing can be drawn over; the end is told as `wait` tells it."""
    pages = [points(1, 2), points(1, 2), points(1, 2, 3)]
    running.client.progress = lambda *_: pages.pop(0) if len(pages) > 1 else pages[0]
    looks = [workload(12, state=State.ACTIVE, attempt=2)] * 3
    real = running.client.wait

    def wait(workload_id, until="ended", timeout_seconds=None, *, raise_on_timeout=True):
        if looks:
            return looks.pop()
        return real(workload_id, until, timeout_seconds, raise_on_timeout=raise_on_timeout)

    running.client.wait = wait
    running.client.answers["wait 12"] = ended(12, EndReason.FAILED, detail="exit code 3")

    result = running("progress", "12", "--follow")

    assert result.code == 0
    assert [line.partition(":")[2] for line in result.out.splitlines()] == [
        " step 2/50, 4 %, about 48m left.",
        " step 3/50, 6 %, about 47m left.",
    ]
    assert result.err == "Job 12 (digits) ended 14:05: failed (exit code 3).\n"


def test_following_at_a_terminal_draws_over():
    """One picture that changes, and the last one stays."""
    terminal = Terminal(tty=True)
    terminal.client.answers["workload 12"] = workload(12, state=State.ACTIVE, attempt=2)

    result = terminal("progress", "12", "--follow")

    assert result.code == 0
    assert "loss" in result.out


def test_ctrl_c_ends_only_the_looking(running):
    """130, and the work goes on."""
    running.client.errors["wait"] = KeyboardInterrupt()

    result = running("progress", "12", "--follow")

    assert result.code == 130
    assert "the work goes on" in result.err


def test_the_document_is_the_curve(running):
    """With --json as the broker has it."""
    running.client.answers["progress"] = points(1, 2, loss=[1.0, 0.5])

    found = msgspec.json.decode(running("progress", "--json", "12").out, type=ProgressPage)

    assert found == running.client.answers["progress"]
    assert running("progress", "--json", "12", "--follow").code == 2
