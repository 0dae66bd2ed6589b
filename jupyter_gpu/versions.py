"""Which client may talk to which broker: the same major version, and at most one minor version apart.

Both say their version in a header. The broker refuses before it acts, the client before it believes an answer.
"""

from __future__ import annotations

import re

from . import __version__

HEADER = "X-Jupyter-GPU-Version"

_NUMBERS = re.compile(r"(\d{1,6})\.(\d{1,6})")


def misfit(theirs: str | None, ours: str = __version__) -> bool:
    """Whether the two cannot be trusted to understand each other; who names no version is no client of ours."""
    if theirs is None:
        return False
    there, here = _NUMBERS.match(theirs), _NUMBERS.match(ours)
    if there is None or here is None:
        return True
    return there[1] != here[1] or abs(int(there[2]) - int(here[2])) > 1
