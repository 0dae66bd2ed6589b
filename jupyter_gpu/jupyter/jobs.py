"""From a file of the file browser to a job: a script by its interpreter, a notebook by papermill.

The job runs in the file's own folder, and what is submitted is copied, so that an edit does not change a queued job. A
notebook's results go into a new notebook beside it, saved after each cell; no file is ever written over.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
from jupyter_core.utils import ensure_async
from jupyter_server.services.contents.fileio import FileManagerMixin
from tornado.web import HTTPError

from ..cli.beside import with_record
from ..cli.script import Command, make_command
from ..client import AsyncClient
from ..errors import InvalidAsk, NotFound
from ..model import Kind, SubmitBody
from ..notebooks import SUFFIX, look_at, make_notebook_command
from .documents import FileJob, FileJobView, NotebookView

LONGEST_TITLE = 200


async def submit_file(job: FileJob, contents: Any, client: AsyncClient, *, key: str | None = None) -> FileJobView:
    """Send a file to the queue, as the contents manager names it; the answer says what of it may not be as meant."""
    place = await _find(job.path, contents)
    command = await asyncio.to_thread(_command, place, job, key)
    spec, record = await asyncio.to_thread(with_record, command.spec, os.environ)
    body = SubmitBody(
        kind=Kind.JOB,
        ask=job.to_ask(),
        queue=job.queue,
        team=job.team,
        name=job.name or _title(place.name),
        spec=spec,
        script=command.script,
        record=record,
    )
    view = await client.submit(body, key or uuid4().hex, keep=command.given)
    return FileJobView(**msgspec.structs.asdict(view), notes=command.notes)


async def look_at_notebook(path: str, contents: Any) -> NotebookView:
    """Give the parameters of a notebook, as the contents manager names it, for a form to be filled in."""
    place = await _find(path, contents)
    if place.suffix != SUFFIX:
        raise InvalidAsk(f"{place.name!r} is no notebook.", hint="Only notebooks (.ipynb) have a cell of parameters.")
    notebook, parameters = await asyncio.to_thread(look_at, os.fspath(place))
    return NotebookView(
        path=path,
        kernel=notebook.kernel,
        has_parameters_cell=bool(notebook.tagged),
        parameters=parameters,
        notes=tuple(notebook.notes(())),
    )


async def _find(path: str, contents: Any) -> Path:
    """Where the file really lies. What the file browser would not show is not found here either."""
    files: Any = contents if isinstance(contents, FileManagerMixin) else None
    if files is None:
        raise InvalidAsk(
            "The files of this server lie in no folder of this machine, so a job could not read them.",
            hint="Save the file in a folder that the broker's machine sees, and submit it from a terminal there.",
        )
    unknown = NotFound(f"There is no file {path[:200]!r} here.", hint="Save it, or refresh the file browser.")
    try:
        place = Path(files._get_os_path(path))  # noqa: SLF001 - the one way that knows what lies outside
        is_there = await ensure_async(files.file_exists(path))
    except (HTTPError, ValueError):  # outside of the root, or no path at all
        raise unknown from None
    if not is_there or (not files.allow_hidden and await ensure_async(files.is_hidden(path))):
        raise unknown
    return place


def _command(place: Path, job: FileJob, key: str | None) -> Command:
    """What runs. Reads the file. The same key makes the same command, so that it may be sent twice."""
    if place.suffix == SUFFIX:
        if job.arguments:
            raise InvalidAsk("A notebook takes no arguments.", hint="Give it parameters; only scripts take arguments.")
        return make_notebook_command(os.fspath(place), parameters=job.parameters, environ=os.environ, key=key)
    runner = {".py": sys.executable, ".sh": "bash"}.get(place.suffix)
    if runner is None:
        raise InvalidAsk(
            f"{place.name!r} is neither a notebook (.ipynb) nor a script (.py, .sh).",
            hint="Submit its command from a terminal: `jupyter gpu submit -- COMMAND`.",
        )
    argv = [runner, _word(place.name), *job.arguments]
    return make_command(argv, folder=os.fspath(place.parent), environ=os.environ, parameters=job.parameters)


def _word(name: str) -> str:
    """A file name as a word that no program takes for an option."""
    return f"./{name}" if name.startswith("-") else name


def _title(name: str) -> str:
    """A file's name as lists show it: no sign that a terminal obeys, and no end."""
    shown = "".join(char if char.isprintable() else "?" for char in name)
    return shown if len(shown) <= LONGEST_TITLE else shown[: LONGEST_TITLE - 1] + "…"
