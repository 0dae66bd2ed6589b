"""The clock of the wall is set, by hours, under notebooks and arrays: nobody is ended by it, and nothing runs twice."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import nbformat
import pytest

from jupyter_gpu.model import EndReason, JobSpec, Kind, State, SubmitBody
from tests.notebooks.ground import write_notebook

from .moved_clock import MovedClock
from .preempt_and_resume import POLICY
from .scene import Broker, a_broker, until

pytestmark = [pytest.mark.story, pytest.mark.timeout(180)]

HOUR = 3600
CELL = """
import os, time
with open("ran", "a") as file: print("cell {number}", os.environ["JUPYTER_GPU_ATTEMPT"], file=file)
while not os.path.exists("go{number}"): time.sleep(0.02)
"""
MEMBER = 'echo "$0 $JUPYTER_GPU_ATTEMPT" >> ran; while [ ! -e "go$0" ]; do sleep 0.02; done'
NOTEBOOK = (sys.executable, "-m", "jupyter_gpu.notebook_job", "--kernel", "python3", "in.ipynb", "out.ipynb")


def submit(broker: Broker, folder: Path, *argv: str, **more: object) -> int:
    """A job in a folder of its own."""
    folder.mkdir(exist_ok=True)
    spec = JobSpec(argv=argv, folder=str(folder), environment={"PATH": os.environ["PATH"]})
    return broker.client.submit(SubmitBody(kind=Kind.JOB, spec=spec, **more)).id  # type: ignore[arg-type]


def lines(folder: Path) -> list[str]:
    """What the jobs of a folder have written, each when it began."""
    path = folder / "ran"
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize("hours", [6, -6])
def test_a_clock_that_is_set_under_a_notebook_and_an_array_disturbs_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    """Between two cells, and between two members: each has run once, in one attempt, and no more at once than may."""
    clock = MovedClock(tmp_path, monkeypatch)
    with a_broker(tmp_path / "lab", devices=3, policy=POLICY) as broker:
        book, array, other = (tmp_path / name for name in ("book", "array", "other"))
        book.mkdir()
        write_notebook(book / "in.ipynb", CELL.format(number=1), CELL.format(number=2))
        notebook = submit(broker, book, *NOTEBOOK)
        members = [{"n": str(number)} for number in (1, 2, 3)]
        first = submit(broker, array, "sh", "-c", MEMBER, "{n}", array=members, at_most=1)
        until(lambda: lines(book) == ["cell 1 1"] and lines(array) == ["1 1"], "both have begun")
        assert broker.client.workload(first + 1).state is State.QUEUED

        clock.show(time.time() + hours * HOUR)
        asked = submit(broker, other, "true")
        assert broker.client.wait(asked, timeout_seconds=60).end is EndReason.SUCCEEDED, "others go on as ever"
        assert abs(broker.client.status().at - time.time() - hours * HOUR) < HOUR, "it lives in another hour"
        for number in (1, 2, 3):
            (array / f"go{number}").touch()
            (book / f"go{number}").touch()

        ended = [broker.client.wait(id_, timeout_seconds=60) for id_ in (notebook, first, first + 1, first + 2)]
        assert [(it.end, it.attempt) for it in ended] == [(EndReason.SUCCEEDED, 1)] * 4
        assert (lines(book), lines(array)) == (["cell 1 1", "cell 2 1"], ["1 1", "2 1", "3 1"])
        assert [cell.execution_count for cell in nbformat.read(book / "out.ipynb", as_version=4).cells] == [1, 2]
        assert broker.client.status().alerts == ()
