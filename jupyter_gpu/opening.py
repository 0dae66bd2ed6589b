"""Whether a device node can be opened: tried by the very process that asks, and closed at once.

One answer for each node, and a refusal is only what the kernel refused: that is what is called kept, of jobs and of
servers. Nobody tries what is leased to them: to open it powers a card up. Standard library only, and nothing of ours:
the engine hands this file on as an open one, to where our folders cannot be read.
"""

from __future__ import annotations

import errno
import os

OPENED = "opened"
REFUSED = "refused"
MISSING = "missing"

_ANSWERS = {errno.EPERM: REFUSED, errno.EACCES: REFUSED, errno.ENOENT: MISSING, errno.ENOTDIR: MISSING}


def try_to_open(node: str) -> str:
    """Which of the three it is. A driver that answers "no such device" was reached, so that is no refusal."""
    try:
        file = os.open(node, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return _ANSWERS.get(error.errno or 0, OPENED)
    os.close(file)
    return OPENED
