"""Notebooks to run, and the runner as an attempt starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat


def a_cell(source: str, *tags: str) -> nbformat.NotebookNode:
    """A cell of code; without tags its metadata are empty, as many real ones'."""
    return nbformat.v4.new_code_cell(source, metadata={"tags": list(tags)} if tags else {})


def write_notebook(place: Path, *cells: str | nbformat.NotebookNode, kernel: str = "python3") -> Path:
    """A notebook that names a kernel and no language, as many tools write them."""
    made = [it if isinstance(it, nbformat.NotebookNode) else a_cell(it) for it in cells]
    metadata = {"kernelspec": {"name": kernel, "display_name": kernel}}
    nbformat.write(nbformat.v4.new_notebook(cells=made, metadata=metadata), place)
    return place


#: What is ended with its test, however that ends.
STARTED: list[subprocess.Popen[bytes]] = []


class Attempt:
    """One run of a notebook in a folder, with what the broker says in the environment."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        parameters: dict[str, Any] | None = None,
        program: Sequence[str] = ("-m", "jupyter_gpu.notebook_job"),
        **more: str,
    ) -> None:
        self.folder = folder
        self.notice = folder / "notice.json"
        environment = os.environ | {
            "JUPYTER_GPU_JOB": "12",
            "JUPYTER_GPU_ATTEMPT": "1",
            "JUPYTER_GPU_CHECKPOINT_DIR": str(folder / "checkpoints"),
            "JUPYTER_GPU_NOTICE_FILE": str(self.notice),
            "JUPYTER_GPU_PARAMETERS": json.dumps(parameters or {}),
        }
        self.log_file = folder / "log"
        with self.log_file.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", *program, *(arguments or ("in.ipynb", "out.ipynb"))],
                cwd=folder,
                env=environment | more,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        STARTED.append(self.process)

    @property
    def log(self) -> str:
        """What it has printed."""
        return self.log_file.read_bytes().decode()

    def wait(self, seconds: float = 60) -> int:
        """Its exit code."""
        return self.process.wait(seconds)

    @property
    def output(self) -> nbformat.NotebookNode:
        """The notebook with the results, as it is now."""
        return nbformat.read(self.folder / "out.ipynb", as_version=4)

    @property
    def cells(self) -> list[nbformat.NotebookNode]:
        """Its cells of code."""
        return [it for it in self.output.cells if it.cell_type == "code"]

    def printed(self) -> list[str]:
        """What each cell of code has printed."""
        cells = self.cells
        return ["".join(out.text for out in it.outputs if out.output_type == "stream") for it in cells]


def a_run(folder: Path, *cells: str | nbformat.NotebookNode, **words: Any) -> Attempt:
    """Run a notebook of these cells to its end."""
    write_notebook(folder / "in.ipynb", *cells)
    attempt = Attempt(folder, **words)
    attempt.wait()
    return attempt
