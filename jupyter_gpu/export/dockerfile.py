"""A Dockerfile, for `docker build`: the packages of the record, and the command as it was."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from ..cli.text import safe
from .work import NAME, Work, case_of, heading, is_of_this_machine, must_be_text, text

_PINNED = re.compile(r"[a-z0-9][a-z0-9.-]*==[A-Za-z0-9.!+_-]+")
_PLAIN_PATH = re.compile(r"/[\w./+@-]*")
#: Where the command is no Python's, and no image is named.
_BASE = "nvidia/cuda:12.8.1-runtime-ubuntu24.04"
_ELSEWHERE = "/work"


def dockerfile(it: Work) -> str:
    """Write the file; it is built in the folder of submission, whose files it takes."""
    must_be_text("a Dockerfile", it.folder, *it.common().values())
    folder = it.folder if _PLAIN_PATH.fullmatch(it.folder) else _ELSEWHERE
    lines = [
        *heading(it, *_notes(it)),
        f"FROM {_base(it)}",
        f"WORKDIR {folder}",
        *_packages(it),
        "COPY . .",
        *_variables(it),
    ]
    return "\n".join([*lines, f"CMD {_array(_words(it))}"]) + "\n"


def _notes(it: Work) -> Iterator[str]:
    yield "In the folder of submission, with .git and .jupyter-gpu in a .dockerignore:"
    yield f"  docker build -f Dockerfile -t {it.name} ."
    gpus = f" --gpus {it.ask.devices}" if it.ask.devices else ""
    index = f" -e JUPYTER_GPU_ARRAY_INDEX={it.jobs[0].number}" if it.is_array else ""
    secrets = "".join(f" -e {name}" for name in it.withheld if NAME.fullmatch(name))
    place = it.checkpoint_dir or f"{it.folder.rstrip('/')}/.jupyter-gpu"
    keeps = f' -v "$PWD/.jupyter-gpu:{place}"' if _PLAIN_PATH.fullmatch(place) else ""
    yield f"  docker run --rm --ipc=host --stop-timeout={it.grace_seconds}{gpus}{index}{secrets}{keeps} {it.name}"


def _recorded(it: Work, name: str) -> str:
    return safe(text(it.spec.recorded.get(name, "")))


def _base(it: Work) -> str:
    if it.spec.image is not None:
        return safe(it.spec.image)
    if not _recorded(it, "python"):
        return _BASE
    version = re.match(r"\d+\.\d+", _recorded(it, "python_version"))
    return f"python:{version[0] if version else '3'}-slim"


def _packages(it: Work) -> Iterator[str]:
    if it.spec.image is not None:
        return
    count = _recorded(it, "packages")
    if count and not it.packages:
        yield f"# Install what it imports, or all {count}: `jupyter gpu export {it.id} --to dockerfile --packages`."
    pinned = [line for line in it.packages if _PINNED.fullmatch(line)]
    for line in it.packages:
        if line not in pinned:
            yield f"# Not of an index, install it yourself: {safe(line)}"
    if pinned:
        yield " \\\n    ".join(["RUN pip install --no-cache-dir", *pinned])


def _variables(it: Work) -> Iterator[str]:
    for name, value in it.common().items():
        if _can_be_said(name, value) and not is_of_this_machine(name):
            yield f"ENV {name}={_quoted(value)}"
    if it.ask.devices:
        yield "ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility"
    if it.checkpoint_dir is not None and _PLAIN_PATH.fullmatch(it.checkpoint_dir):
        yield f"ENV JUPYTER_GPU_CHECKPOINT_DIR={it.checkpoint_dir}"


def _can_be_said(name: str, value: str) -> bool:
    """Whether all who read such files read the value alike; what they do not stands before the command."""
    return NAME.fullmatch(name) is not None and value != "" and value.isprintable() and "\\" not in value


def _quoted(value: str) -> str:
    """Write a value that the builder reads as it is, whatever signs are in it."""
    return '"' + re.sub(r'(["$])', r"\\\1", value) + '"'


def _array(words: list[str]) -> str:
    """Write words as JSON; a backslash by its number, since not all who read such files know the end of a word else."""
    return json.dumps(words).replace(r"\\", r"\u005c")


def _words(it: Work) -> list[str]:
    """The command with the variables that ENV cannot say; the interpreter of this machine is the image's there."""
    odd = {name: value for name, value in it.common().items() if not _can_be_said(name, value)}
    before = ["env", *(f"{name}={value}" for name, value in odd.items() if not is_of_this_machine(name))] if odd else []
    if it.is_array:
        return [*before, "/bin/sh", "-c", case_of(it, "JUPYTER_GPU_ARRAY_INDEX", it.jobs[0].number)]
    argv = list(it.jobs[0].argv)
    must_be_text("a Dockerfile", *argv)
    if it.spec.image is None and _recorded(it, "python") and argv[0] == text(it.spec.recorded["python"]):
        argv[0] = "python"
    return [*before, *argv]
