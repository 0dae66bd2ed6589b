"""How many files the broker may hold open: as many as the machine lets it, whatever its shell said.

Jobs get the limit back that was there before: programs that use select(2) fail above 1024.
"""

from __future__ import annotations

import contextlib
import resource


def raise_file_limit() -> None:
    """Raise the soft limit of open files to the hard one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # a hard limit above what the kernel takes now
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
