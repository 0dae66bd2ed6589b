"""What is written down of a job at its submission, so that years later somebody can say what it was that ran.

Nothing here decides anything: what cannot be found out is left out, and a submission never fails for it.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from . import recording_git, recording_python
from .model import Script, pack_bytes

#: The names under which the broker keeps and gives back what is too long for a word.
DIFF, PACKAGES = "diff", "packages"
_MOST_WORD_BYTES = 2 << 10


class Recorded(NamedTuple):
    """What was found: short words for `JobSpec.recorded`, and for `SubmitBody.record` what is too long for a word."""

    words: dict[str, str]
    record: tuple[Script, ...]


def record(
    folder: str, argv: Sequence[str], environ: Mapping[str, str], *, own: Mapping[str, str] | None = None
) -> Recorded:
    """Find out what a command depends on that is about to be queued in this folder with these variables.

    `folder` and `argv` are as the operating system gives them (surrogates for bytes that are no UTF-8), `environ` is
    where the program will be looked for; git is run with `own` where these are not the variables of whoever asks.
    Asked once for many jobs of one folder and command: it runs git and reads the list of packages.
    """
    words, record = _platform(), []
    git = recording_git.look(folder, environ if own is None else own)
    words |= git.words
    if git.diff:
        record.append(Script(name=DIFF, content=git.diff))
    interpreter = recording_python.find(folder, argv, environ)
    if interpreter is not None:
        words["python"] = interpreter.path
        if interpreter.version is not None:
            words["python_version"] = interpreter.version
        packages = recording_python.packages(interpreter)
        if packages:
            words["packages"] = str(len(packages))
            text = "\n".join([f"# of {interpreter.path}", *packages, ""])
            record.append(Script(name=PACKAGES, content=os.fsencode(text)))
    return Recorded({name: _bounded(value) for name, value in words.items()}, tuple(record))


def _bounded(word: str) -> str:
    return pack_bytes(os.fsencode(word)[:_MOST_WORD_BYTES])


def _platform() -> dict[str, str]:
    system = os.uname()
    parts = [f"{system.sysname} {system.release} {system.machine}"]
    try:
        parts.append(platform.freedesktop_os_release().get("PRETTY_NAME", ""))
        parts.append((os.confstr("CS_GNU_LIBC_VERSION") or "").strip())
    except (OSError, ValueError):  # neither is everywhere
        pass
    return {"platform": ", ".join(part for part in parts if part)}
