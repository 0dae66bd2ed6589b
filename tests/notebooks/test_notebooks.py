"""From a notebook to a job: its command, and what is told before it is queued."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from jupyter_gpu.errors import Conflict, InvalidAsk
from jupyter_gpu.model import unpack_bytes
from jupyter_gpu.notebooks import Notebook, is_notebook, look_at, make_notebook_command
from tests.notebooks.ground import a_cell, write_notebook

TAG = "parameters"


def made(place: Path, **words):
    """The command of a notebook."""
    return make_notebook_command(str(place), environ=os.environ, **words)


def words_of(command) -> list[str]:
    """Its words."""
    return [unpack_bytes(word).decode() for word in command.spec.argv]


def notes(folder: Path, *cells, **parameters) -> str:
    """What is told of a notebook of these cells and these parameters."""
    return "\n".join(made(write_notebook(folder / "in.ipynb", *cells), parameters=parameters).notes)


def test_parameters_go_with_the_job(tmp_path):
    """As JSON values, whatever they hold; a notebook with a cell for them that uses each has no notes."""
    cells = [a_cell("alpha = 1\nbeta: int = 2", TAG), "print(alpha, beta)"]
    values = {"alpha": 0.1, "beta": {"é": [None]}}

    command = made(write_notebook(tmp_path / "in.ipynb", *cells), parameters=values)

    assert command.spec.parameters == values
    assert command.notes == ()


def test_no_cell_of_parameters_is_told_before_it_is_queued(tmp_path):
    """nteract/papermill#245: they are put on top, and lost where the notebook sets them itself."""
    told = notes(tmp_path, "import os", "alpha = 0.5\nprint(alpha)", alpha=0.1)

    assert "no cell of in.ipynb is tagged `parameters`, so the values are put on top of all cells" in told
    assert "in.ipynb sets alpha again below the value that is given, so that is lost: alpha = 0.5" in told
    assert notes(tmp_path, "print(1)") == ""


def test_two_cells_of_parameters_are_told(tmp_path):
    """The first is used, and this is said."""
    told = notes(tmp_path, a_cell("alpha = 1", TAG), a_cell("alpha = 2", TAG), alpha=0.1)

    assert "2 cells of in.ipynb are tagged `parameters`, and the first of them counts" in told
    assert "so that is lost: alpha = 2" in told


def test_a_name_that_nothing_uses_is_told(tmp_path):
    """nteract/papermill#637: a slip of the pen is seen now, and not in the results."""
    cells = [a_cell("alpha = 1", TAG), "print(alpha, self.alhpa, alphabet)", nbformat.v4.new_markdown_cell("alpah")]

    assert notes(tmp_path, *cells, alhpa=1, alpah=2, alpha=3).splitlines() == [
        "no cell of in.ipynb uses alhpa",
        "no cell of in.ipynb uses alpah",
    ]


@pytest.mark.parametrize(
    "line", ["alpha = float(alpha)", "alpha == 3", "f(alpha=3)", "if x:\n    alpha = 3", "alphabet = 3", "# alpha = 3"]
)
def test_what_is_no_loss_is_not_told(tmp_path, line):
    """A value that is made of the given one, a comparison, an argument, what may not come to pass."""
    assert notes(tmp_path, a_cell("alpha = 1", TAG), line, alpha=2) == ""


def test_what_an_earlier_run_has_put_in_counts_for_nothing(tmp_path):
    """The results of a run can be submitted again."""
    cells = [a_cell("alpha = 1", TAG), a_cell("# Parameters\nalpha = 7\nold = 2", "injected-parameters"), "alpha"]

    assert notes(tmp_path, *cells, alpha=2, old=3) == "no cell of in.ipynb uses old"


@pytest.mark.parametrize(
    "cells",
    [
        '{"cells": [{"cell_type": "code", "source": ["print(", "alpha)"]}]}',
        '{"cells": [{"cell_type": "code", "metadata": {"tags": null}, "source": "alpha"}]}',
        '{"cells": [{"cell_type": "code", "metadata": {"tags": "parameters"}, "source": "alpha"}, {}]}',
    ],
)
def test_cells_may_lack_everything(tmp_path, cells):
    """nteract/papermill#84: real notebooks lack keys, and have odd ones."""
    (tmp_path / "in.ipynb").write_text(cells)

    assert len(made(tmp_path / "in.ipynb", parameters={"alpha": 1}).notes) == 1


@pytest.mark.parametrize("name", ["a b", "1a", "import", "a;b", "a\nb", "", "a-b"])
def test_what_is_no_name_is_refused(tmp_path, name):
    """It is written into a cell, where it would be an error at night, or other code."""
    place = write_notebook(tmp_path / "in.ipynb", "1")
    for words in ({"parameters": {name: 1}}, {"array": [name]}):
        with pytest.raises(InvalidAsk, match="parameter"):
            made(place, **words)


def test_a_kernel_may_be_named(tmp_path):
    """It wins over the notebook's own, and must be there."""
    place = write_notebook(tmp_path / "in.ipynb", "1", kernel="ir-of-mars")

    words = words_of(made(place, kernel="python3"))

    assert words[words.index("--kernel") + 1] == "python3"
    for wanted in (None, "julia-of-mars"):
        with pytest.raises(InvalidAsk, match="of-mars"):
            made(place, kernel=wanted)


def test_in_a_container_its_own_python_and_kernels_count(tmp_path):
    """What is installed here says nothing of them."""
    command = made(write_notebook(tmp_path / "in.ipynb", "1", kernel="ir-of-mars"), in_image=True)

    assert words_of(command)[:4] == ["python3", "-P", "-m", "jupyter_gpu.notebook_job"]
    assert "--kernel" not in words_of(command)


def test_the_results_of_an_array_are_told_apart(tmp_path, monkeypatch):
    """By the place in it, which stands where the broker fills it in."""
    monkeypatch.chdir(tmp_path)
    place = write_notebook(tmp_path / "in.ipynb", "lr")

    for command in (made(place, array=("lr",)), made(place, array=("lr",), key="k")):
        assert words_of(command)[-1].endswith("-{index}.ipynb")
    assert words_of(made(place, array=("lr",), output="to.ipynb"))[-1] == "to-{index}.ipynb"
    assert words_of(made(place, array=("lr",), output="{index}-to.ipynb"))[-1] == "{index}-to.ipynb"


def test_it_runs_in_its_own_folder(tmp_path, monkeypatch):
    """As in JupyterLab, from wherever it is submitted; with a folder that was named, there."""
    (tmp_path / "sub").mkdir()
    write_notebook(tmp_path / "sub" / "in.ipynb", "1")
    monkeypatch.chdir(tmp_path)

    usual = make_notebook_command("sub/in.ipynb", output="to.ipynb", environ=os.environ)
    named = make_notebook_command("sub/in.ipynb", output="to.ipynb", folder=".", environ=os.environ)
    beside = make_notebook_command("sub/in.ipynb", environ=os.environ)

    assert usual.spec.folder == beside.spec.folder == str(tmp_path / "sub")
    assert words_of(usual)[-2:] == ["in.ipynb", str(tmp_path / "to.ipynb")]
    assert named.spec.folder == str(tmp_path)
    assert words_of(named)[-1] == "to.ipynb"
    assert "/" not in words_of(beside)[-1]


def test_no_file_is_written_over(tmp_path):
    """Neither another notebook nor the one that is submitted."""
    place = write_notebook(tmp_path / "in.ipynb", "1")

    with pytest.raises(Conflict, match="already"):
        made(place, output=str(place))
    with pytest.raises(InvalidAsk, match=r"none\.ipynb"):
        made(tmp_path / "none.ipynb")


def test_what_a_notebook_is_among_commands():
    """Only where nothing else is run by it."""
    assert is_notebook(["a.ipynb"])
    assert is_notebook(["a.ipynb", "b.ipynb"])
    assert not any(map(is_notebook, ([], ["a.py"], ["papermill", "a.ipynb"], ["a.ipynb", "--x"], ["a.ipynb"] * 3)))


def test_a_form_is_told_the_names_and_their_defaults(tmp_path):
    """Of the first cell that is tagged, as it writes them, with what stands behind them."""
    text = "%matplotlib inline\nlr = 1e-3  # how fast\nmany: list[int] = [\n  1,\n  2,\n]\nname, x = 1, 2\nimport os\n“"
    write_notebook(tmp_path / "in.ipynb", a_cell(text[:-2], TAG), a_cell("z = 1", TAG))

    notebook, found = look_at(str(tmp_path / "in.ipynb"))

    assert [(it.name, it.default, it.type, it.help) for it in found] == [
        ("lr", "1e-3", "", "how fast"),
        ("many", "[1, 2]", "list[int]", ""),
    ]
    assert len(notebook.tagged) == 2
    for cells in ([a_cell(text, TAG)], ["lr = 1"], [a_cell("x <- 3", TAG)]):
        assert look_at(str(write_notebook(tmp_path / "in.ipynb", *cells)))[1] == ()


def test_a_command_that_names_no_notebook_loads_no_jupyter():
    """The command line asks this module of each command."""
    code = "import sys, jupyter_gpu.notebooks; print({'tornado', 'zmq', 'papermill', 'nbformat'} & set(sys.modules))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.strip() == "set()"


def test_text_of_lists_and_lines_is_one_text():
    """A notebook may write its text in both ways."""
    it = Notebook("a", b'{"cells": [{"cell_type": "code", "source": ["a = 1\\n", "b = 2"]}]}')

    assert it.code == [(0, "a = 1\nb = 2")]
