"""The broker may be killed at any commit of a notebook: each cell runs once, and its results are there whole."""

from __future__ import annotations

import sys

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from jupyter_gpu.model import EndReason
from tests.faults.house import House, job

RUNNER = (sys.executable, "-m", "jupyter_gpu.notebook_job", "--kernel", "python3")
APPEND = "with open('out', 'a') as out:\n    print({}, file=out)"

COMMITS_OF_THE_STORY = 5
PLACES = [
    *((place, n) for n in range(1, COMMITS_OF_THE_STORY + 1) for place in ("before-commit", "after-commit")),
    ("after-start", 1),
    ("after-mark", 1),
    ("after-exit", 1),
]


def write_notebook(house: House) -> None:
    """One cell of parameters and two that leave a trace."""
    begin = new_code_cell("lr = 1", metadata={"tags": ["parameters"]})
    cells = [begin, *(new_code_cell(APPEND.format(f"'cell {n}', lr")) for n in (1, 2))]
    nbformat.write(new_notebook(cells=cells), house.work / "in.ipynb")


@pytest.mark.parametrize(("place", "n"), PLACES)
def test_a_notebook_survives_a_kill(house: House, place: str, n: int) -> None:
    """The kernel and the runner outlive the broker; the next one takes the end from where they left it."""
    write_notebook(house)
    house.start(f"{place}:{n}")
    (number,) = house.submit(job(house, (*RUNNER, "in.ipynb", "out.ipynb"), key="notebook", spec={
        "parameters": {"lr": 0.1},
    }))  # fmt: skip
    (it,) = house.wait("ended", number)

    assert (it.end, it.attempt) == (EndReason.SUCCEEDED, 1)
    assert house.lines() == ["cell 1 0.1", "cell 2 0.1"]
    results = nbformat.read(house.work / "out.ipynb", as_version=4)
    assert [cell.execution_count for cell in results.cells] == [1, 2, 3, 4]  # the parameters are a cell of their own
    assert house.world()["leases"] == {}
    # Commits that happen to come together are one: of the last ones there may be none.
    assert house.starts > 1 or n > COMMITS_OF_THE_STORY - 3, "nobody was killed"
