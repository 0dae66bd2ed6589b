"""From a file of the file browser to a job: a script by its interpreter, a notebook by papermill.

The job runs in the file's own folder, and what is submitted is copied, so that an edit does not change a queued job. A
notebook's results go into a new notebook beside it, saved after each cell; no file is ever written over.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import os
import sys
import threading
import time
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
from jupyter_client.kernelspec import NATIVE_KERNEL_NAME, KernelSpecManager
from jupyter_client.provisioning.factory import KernelProvisionerFactory
from jupyter_core.utils import ensure_async
from jupyter_server.services.contents.fileio import FileManagerMixin
from tornado.web import HTTPError

from ..cli.script import MOST_SCRIPT_BYTES, Command, make_command, pack, read_file
from ..client import AsyncClient
from ..errors import InvalidAsk, LimitExceeded, NotFound
from ..model import Kind, Script, SubmitBody, WorkloadView
from ..units import format_bytes
from .documents import FileJob

#: The entry point of our provisioner, and the variable that makes one the default.
PROVISIONER = "jupyter-gpu"
PROVISIONER_WORD = KernelProvisionerFactory.default_provisioner_name_env
#: What is saved meanwhile of a cell that takes long; papermill itself takes longer pauses where saving takes long.
AUTOSAVE_SECONDS = 10
#: What Linux takes for the name of a file.
LONGEST_NAME_BYTES = 255
LONGEST_TITLE = 200


class _Kernel(msgspec.Struct):
    """What matters here of the kernel that a notebook names."""

    name: str | None = None


class _Metadata(msgspec.Struct):
    """What matters here of a notebook's metadata."""

    kernelspec: _Kernel | None = None


class _Notebook(msgspec.Struct):
    """What tells a notebook from any other JSON, and which kernel it wants."""

    cells: list[msgspec.Raw]
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


async def submit_file(job: FileJob, contents: Any, client: AsyncClient, *, key: str | None = None) -> WorkloadView:
    """Send a file to the queue, as the contents manager names it."""
    place = await _find(job.path, contents)
    command = await asyncio.to_thread(_command, place, job, key)
    body = SubmitBody(
        kind=Kind.JOB,
        ask=job.to_ask(),
        queue=job.queue,
        team=job.team,
        name=job.name or _title(place.name),
        spec=command.spec,
        script=command.script,
    )
    return await client.submit(body, key or uuid4().hex, keep=command.given)


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
    name, folder = _word(place.name), os.fspath(place.parent)
    if place.suffix == ".ipynb":
        return _notebook(place, job, key)
    runner = {".py": sys.executable, ".sh": "bash"}.get(place.suffix)
    if runner is None:
        raise InvalidAsk(
            f"{place.name!r} is neither a notebook (.ipynb) nor a script (.py, .sh).",
            hint="Submit its command from a terminal: `jupyter gpu submit -- COMMAND`.",
        )
    return make_command([runner, name, *job.arguments], folder=folder, environ=os.environ)


def _word(name: str) -> str:
    """A file name as a word that no program takes for an option."""
    return f"./{name}" if name.startswith("-") else name


def _notebook(place: Path, job: FileJob, key: str | None) -> Command:
    if job.arguments:
        raise InvalidAsk("A notebook takes no arguments.", hint="Leave them out; only scripts take some.")
    if importlib.util.find_spec("papermill") is None:
        raise InvalidAsk("papermill, which runs notebooks, is not installed here.", hint="`pip install papermill`.")
    folder = os.fspath(place.parent)
    if not os.access(folder, os.W_OK):
        raise InvalidAsk(
            f"The folder {folder!r} cannot be written to, and a notebook's results go into one beside it.",
            hint="Copy the notebook to a folder of yours.",
        )
    content = _read(place)
    output = NAMES.beside(place) if key is None else _named_by(key, place)
    options = ["--log-output", f"--autosave-cell-every={AUTOSAVE_SECONDS}", *_kernel_option(place, content)]
    argv = [sys.executable, "-m", "papermill", *options, _path(place.name), _path(output)]
    # The kernel keeps the GPUs of its attempt in any case; with our provisioner it says so to who looks.
    wanted = [] if find_provisioner(PROVISIONER) is None else [f"{PROVISIONER_WORD}={PROVISIONER}"]
    command = make_command(argv, folder=folder, environ=os.environ, wanted=wanted)
    spec = msgspec.structs.replace(command.spec, recorded=command.spec.recorded | {"output_notebook": pack(output)})
    spec = msgspec.structs.replace(spec, script_index=len(argv) - 2)
    return command._replace(spec=spec, script=Script(name=pack(place.name), content=content))


def find_provisioner(name: str) -> EntryPoint | None:
    """A provisioner as it is registered: to name one that is missing would hide every kernel."""
    return next(iter(entry_points(group=KernelProvisionerFactory.GROUP_NAME, name=name)), None)


def _path(name: str) -> str:
    """A file name as papermill takes it: it fills in what stands in braces, and a dash begins an option."""
    return "./" + name.replace("{", "{{").replace("}", "}}")


def _read(place: Path) -> bytes:
    try:
        content = read_file(os.fspath(place), MOST_SCRIPT_BYTES)
    except OSError as error:
        raise InvalidAsk(
            f"{place.name!r} cannot be read: {error.strerror}.", hint="The job could not read it either."
        ) from None
    if len(content) > MOST_SCRIPT_BYTES:
        raise LimitExceeded(
            f"{place.name!r} is larger than {format_bytes(MOST_SCRIPT_BYTES)}, the most that is copied of a notebook.",
            hint="Clear its outputs and save it.",
        )
    return content


def _kernel_option(place: Path, content: bytes) -> Sequence[str]:
    """Name a kernel where the notebook names none; refuse one that would not be found at night."""
    try:
        kernel = msgspec.json.decode(content, type=_Notebook).metadata.kernelspec
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidAsk(
            f"{place.name!r} is no notebook of today's format: {error}.", hint="Open it in JupyterLab and save it."
        ) from None
    if kernel is None or not kernel.name:
        return ["--kernel", NATIVE_KERNEL_NAME]
    if kernel.name.lower() not in KernelSpecManager().find_kernel_specs():
        raise InvalidAsk(
            f"{place.name!r} wants the kernel {kernel.name[:99]!r}, which is not installed where papermill looks.",
            hint="Choose another kernel for it and save it; `jupyter kernelspec list` names them.",
        )
    return []


class Names:
    """Gives names that nothing has and that nobody was given before: a job that waits has no file yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._given: set[str] = set()
        self._stamp = ""

    def beside(self, place: Path, now: float | None = None) -> str:
        """A name beside the file, with the time of submission, and a number where that is not enough."""
        stamp = time.strftime("%Y-%m-%d-%H-%M-%S", time.localtime(now))
        with self._lock:
            if stamp != self._stamp:
                self._stamp, self._given = stamp, set()
            for number in count(1):
                end = f"-{stamp}{'' if number == 1 else f'-{number}'}{place.suffix}"
                name = _fitting(place.stem, end)
                path = os.fspath(place.with_name(name))
                if path not in self._given and not os.path.lexists(path):
                    self._given.add(path)
                    return name
        raise AssertionError  # one of them is free


NAMES = Names()


def _named_by(key: str, place: Path) -> str:
    """A name beside the file that is the same whenever the key is."""
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
    return _fitting(place.stem, f"-{digest[:8]}{place.suffix}")


def _fitting(stem: str, end: str) -> str:
    """A file's name that the file system takes."""
    return os.fsencode(stem)[: LONGEST_NAME_BYTES - len(end)].decode("utf-8", "ignore") + end


def _title(name: str) -> str:
    """A file's name as lists show it: no sign that a terminal obeys, and no end."""
    shown = "".join(char if char.isprintable() else "?" for char in name)
    return shown if len(shown) <= LONGEST_TITLE else shown[: LONGEST_TITLE - 1] + "…"
