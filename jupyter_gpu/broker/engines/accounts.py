"""OS accounts: who a job runs as, asked of the name service once and kept for a while.

Only the broker asks; the supervisors get numbers. A name service may hang on its network, so it is asked on a thread.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import time
from typing import NamedTuple

_KEPT_SECONDS = 300.0


class Account(NamedTuple):
    """What a supervisor needs to become a user; uid None: it is that user already."""

    uid: int | None
    gid: int | None
    groups: tuple[int, ...]
    environment: dict[str, str]

    @property
    def user(self) -> int:
        """The number of the user, whether or not we have to become it."""
        return os.geteuid() if self.uid is None else self.uid


class Accounts:
    """The accounts seen of late."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[float, Account]] = {}

    async def find(self, name: str) -> Account:
        """Find an account; LookupError says why it cannot be used."""
        kept = self._kept.get(name)
        if kept is None or time.monotonic() > kept[0]:
            kept = (time.monotonic() + _KEPT_SECONDS, await asyncio.to_thread(_look_up, name))
            self._kept[name] = kept
        return kept[1]


def _look_up(name: str) -> Account:
    try:
        entry = pwd.getpwnam(name) if name else pwd.getpwuid(os.geteuid())
    except KeyError:
        # Containers run as numbers without a name. Root always has one: no word of a caller's may stand for it.
        if not name or (name == str(os.geteuid()) and os.geteuid() != 0):
            return Account(None, None, (), {})
        raise LookupError(f"there is no account {name} on this machine") from None
    told = {"HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name, "SHELL": entry.pw_shell}
    if entry.pw_uid == os.geteuid():
        return Account(None, None, (), told)
    if os.geteuid() != 0:
        raise LookupError(f"this broker runs as user {os.geteuid()} and cannot start work as {name}")
    return Account(entry.pw_uid, entry.pw_gid, tuple(os.getgrouplist(name, entry.pw_gid)), told)
