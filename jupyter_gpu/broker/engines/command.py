"""From what was submitted to what is executed: the argument list and the environment.

Pure. Text of the model may be packed bytes; here it becomes text with surrogate escapes, which JSON carries
and `os.fsencode` turns back byte for byte. Nothing is ever joined and given to a shell (Nukesor/pueue#182). A
submitted script is replaced by its copy such that it notices as little of it as can be.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import PurePath

from ... import pins
from ...model import JobSpec, unpack_bytes
from . import procs
from .accounts import Account
from .base import Attempt
from .notice import SHELLS

#: What only the engine may say; a job submitted from within a job must not inherit it.
OURS = (
    *pins.NAMES, pins.RESERVATION, pins.KERNEL, "JUPYTER_GPU_JOB", "JUPYTER_GPU_ATTEMPT", "JUPYTER_GPU_CHECKPOINT_DIR",
    "JUPYTER_GPU_RESUME_FROM", "JUPYTER_GPU_DEADLINE", "JUPYTER_GPU_NOTICE_FILE", "JUPYTER_GPU_PROGRESS_FILE",
    "JUPYTER_GPU_PARAMETERS", "JUPYTER_GPU_ARRAY", "JUPYTER_GPU_ARRAY_INDEX", "JUPYTER_GPU_ARRAY_COUNT",
)  # fmt: skip
_PYTHON = re.compile(r"(python|pypy)[\d.]*t?")


def text(packed: str) -> str:
    """Undo the packing of the model, keeping bytes that are no UTF-8 as surrogates, whatever the broker's locale."""
    return unpack_bytes(packed).decode("utf-8", "surrogateescape")


def argument_list(spec: JobSpec, runner: str, first_line: str) -> tuple[list[str], bool]:
    """What to execute, and whether `runner` (a copy of run_copy.py) is part of it.

    `first_line` is the copy's: a script that is itself the command is run by the interpreter it names.
    """
    words = [text(word) for word in spec.argv]
    index = spec.script_index
    if index is None or spec.script_copy is None:
        return words, False
    copy, name = text(spec.script_copy), words[index]
    before, after = words[:index], words[index + 1 :]
    if not before:
        before = _interpreter(first_line)
    program = PurePath(before[0]).name if before else ""
    if "-m" in before:  # papermill and its like read the file themselves
        return [*before, copy, *after], False
    if name.endswith(".py") or _PYTHON.fullmatch(program) or any(_PYTHON.fullmatch(word) for word in before):
        # Launchers as torchrun start Python with these words themselves, so it works below them too.
        return [*before, runner, copy, text(spec.folder), name, *after], True
    if program in SHELLS and all(word.startswith("-") for word in before[1:]):
        # Sourced, so that $0 stays the name it was given: `cd "$(dirname "$0")"` is in every second script.
        return [*before, "-c", f". {shlex.quote(copy)}", name, *after], False
    return [*before, copy, *after], False


def _interpreter(first_line: str) -> list[str]:
    """The words of a #! line; the kernel would give all that follows the program as one word, and so do we."""
    if not first_line.startswith("#!"):
        return []
    program, _, argument = first_line[2:].strip().partition(" ")
    return [program, argument.strip()] if argument.strip() else [program]


def checkpoint_dir(attempt: Attempt) -> str:
    """Where the job's checkpoints lie: as asked, else below the folder of submission."""
    folder = text(attempt.spec.folder)
    if attempt.spec.checkpoint_dir is not None:
        return str(PurePath(folder, text(attempt.spec.checkpoint_dir)))
    return f"{folder}/.jupyter-gpu/job-{attempt.workload}"


def environment(attempt: Attempt, notice_file: str, progress_file: str, account: Account) -> dict[str, str]:
    """The job's whole environment, save what only the start can know (MASTER_PORT, what to resume from).

    Who becomes another user gets that user's HOME and the like; who stays the same may have said otherwise.
    """
    given = {text(name): text(value) for name, value in attempt.spec.environment.items()}
    for name in OURS:
        given.pop(name, None)
    given.setdefault("PYTHONUNBUFFERED", "1")
    if account.uid is None:
        given = account.environment | given
    else:
        given |= account.environment
    given |= {
        **pins.variables(device.uuid for device in attempt.devices),
        "JUPYTER_GPU_NOTICE_FILE": notice_file,
        "JUPYTER_GPU_PROGRESS_FILE": progress_file,
        "JUPYTER_GPU_CHECKPOINT_DIR": checkpoint_dir(attempt),
        **procs.tags(attempt.workload, attempt.attempt),
    }
    if attempt.deadline_at is not None:
        given["JUPYTER_GPU_DEADLINE"] = f"{attempt.deadline_at:.3f}"
    return given | _of_parameters(attempt)


def _of_parameters(attempt: Attempt) -> dict[str, str]:
    """What tells this job from others of the same command, where something does."""
    given = {}
    if attempt.spec.parameters:
        given["JUPYTER_GPU_PARAMETERS"] = json.dumps(attempt.spec.parameters)
    if attempt.member is not None:
        given["JUPYTER_GPU_ARRAY"] = str(attempt.member.array)
        given["JUPYTER_GPU_ARRAY_INDEX"] = str(attempt.member.index)
        given["JUPYTER_GPU_ARRAY_COUNT"] = str(attempt.member.of)
    return given
