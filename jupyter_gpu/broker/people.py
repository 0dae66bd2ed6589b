"""Accounts by number and numbers by account, for who looks at processes at every sample and must never wait.

The name service may hang on its network, so it is asked on a thread; until it has answered, nothing is certain.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import time

_KEPT_SECONDS = 300.0


class People:
    """What the name service has said of late."""

    def __init__(self) -> None:
        #: An account's name or a user's number -> until when it is kept, and the other of the two.
        self._kept: dict[str | int, tuple[float, str | int | None]] = {}
        self._asking: set[str | int] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def uid_of(self, account: str) -> int | None:
        """The number of an account; work without one is our own. None where there is none, or it is not known yet."""
        if not account:
            return os.geteuid()
        found = self._find(account)
        return found if isinstance(found, int) else None

    def name_of(self, uid: int) -> str | None:
        """The account of a number; None where there is none, or it is not known yet."""
        found = self._find(uid)
        return found if isinstance(found, str) else None

    async def settled(self) -> None:
        """Wait until all that was asked is answered."""
        while self._tasks:
            await asyncio.gather(*self._tasks)

    def close(self) -> None:
        """Ask no more."""
        for task in self._tasks:
            task.cancel()

    def _find(self, key: str | int) -> str | int | None:
        kept = self._kept.get(key)
        if (kept is None or time.monotonic() > kept[0]) and key not in self._asking:
            self._asking.add(key)
            task = asyncio.ensure_future(self._ask(key))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return None if kept is None else kept[1]

    async def _ask(self, key: str | int) -> None:
        try:
            found = await asyncio.to_thread(_look_up, key)
        finally:
            self._asking.discard(key)
        self._kept[key] = (time.monotonic() + _KEPT_SECONDS, found)


def _look_up(key: str | int) -> str | int | None:
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(key).pw_name if isinstance(key, int) else pwd.getpwnam(key).pw_uid
    # A container's user may be a mere number; root always has a name, and no word of a caller's may stand for it.
    if str(key) == str(os.geteuid()) and os.geteuid() != 0:
        return str(key) if isinstance(key, int) else int(key)
    return None
