"""Accounts by number and numbers by account, for who looks at processes at every sample and must never wait.

The name service may hang on its network, so it is asked on threads of our own, which nobody else waits for; until it
has answered, nothing is certain. That it knows of no such account may be its own trouble, so that is never taken for
an answer: it is not known, and asked again soon.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import NamedTuple, TypeGuard

_KEPT_SECONDS = 300.0
#: So long it is not asked again for what it did not know.
_ASKED_AGAIN_SECONDS = 5.0
#: What was known once is not forgotten for so long, however often the name service fails meanwhile.
_REMEMBERED_SECONDS = 3600.0
#: So many questions may wait for an answer; what is asked beyond them is asked again later, and not known until then.
MOST_PENDING = 32
#: So many answers are kept.
_MOST_KEPT = 4096
_SUB_USERS = Path("/etc/subuid")
_MOST_SUB_USERS_BYTES = 1 << 20

#: Where Linux numbers people, and what of that is none: users made for one service, and the one that stands for all
#: whose number is not known here.
_FIRST_PERSON = 1000
_OF_SERVICES = range(61184, 65520)
_NOBODY = 65534

Answer = str | int | None


def is_of_a_person(uid: int | None) -> TypeGuard[int]:
    """Whether a number is one of people's, and neither the machine's own nor a service's."""
    return uid is not None and uid >= _FIRST_PERSON and uid not in _OF_SERVICES and uid != _NOBODY


class _Kept(NamedTuple):
    """An answer, until when it is not asked for again, and when it was given."""

    answer: Answer
    until: float
    told_at: float


class _Desk:
    """One thread that answers one question after another. It is not waited for at the end: it may hang."""

    def __init__(self, name: str, answer: Callable[[str | int], Answer]) -> None:
        self._name, self._answer = name, answer
        self._line: queue.SimpleQueue[tuple[str | int, Future[Answer]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self.pending = 0

    def ask(self, key: str | int) -> asyncio.Future[Answer] | None:
        """The answer, once it is there; None where too many wait for theirs."""
        if self.pending >= MOST_PENDING:
            return None
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        found: Future[Answer] = Future()
        self.pending += 1
        self._line.put((key, found))
        told = asyncio.wrap_future(found)
        told.add_done_callback(self._is_told)
        return told

    def close(self) -> None:
        """End once what is being asked is answered."""
        self._line.put(None)

    def _is_told(self, _: asyncio.Future[Answer]) -> None:
        self.pending -= 1

    def _work(self) -> None:
        while (asked := self._line.get()) is not None:
            key, found = asked
            if found.set_running_or_notify_cancel():
                try:
                    found.set_result(self._answer(key))
                except Exception as error:  # noqa: BLE001 - whatever the name service has: it is not known
                    found.set_exception(error)


class People:
    """What the name service has said of late."""

    def __init__(self) -> None:
        #: An account's name or a user's number -> the other of the two.
        self._kept: dict[str | int, _Kept] = {}
        self._asking: dict[str | int, asyncio.Future[Answer]] = {}
        # Numbers are asked for by whoever has processes; they must not keep anybody from knowing whose a lease is.
        self._names = _Desk("accounts-by-name", lambda name: _uid_of(str(name)))
        self._numbers = _Desk("accounts-by-number", lambda uid: _name_of(int(uid)))

    def uid_of(self, account: str) -> int | None:
        """The number of an account; work without one is our own. None where it is not known."""
        if not account:
            return os.geteuid()
        found = self._find(account)
        return found if isinstance(found, int) else None

    def name_of(self, uid: int) -> str | None:
        """The account of a number; None where it is not known."""
        found = self._find(uid)
        return found if isinstance(found, str) else None

    def lender_of(self, uid: int) -> str:
        """Who may give this number to processes of theirs, by /etc/subuid; empty where no one account may."""
        owners = {owner for owner, first, count in _sub_users() if first <= uid < first + count}
        if len(owners) != 1:
            return ""
        owner = owners.pop()
        return (self.name_of(int(owner)) or "") if owner.isdecimal() else owner

    async def settled(self) -> None:
        """Wait until all that was asked is answered."""
        while self._asking:
            await asyncio.gather(*self._asking.values(), return_exceptions=True)
            await asyncio.sleep(0)

    def close(self) -> None:
        """Ask no more."""
        for told in list(self._asking.values()):
            told.cancel()
        self._names.close()
        self._numbers.close()

    def _find(self, key: str | int) -> Answer:
        kept, now = self._kept.get(key), time.monotonic()
        if (kept is None or now > kept.until) and key not in self._asking:
            told = (self._numbers if isinstance(key, int) else self._names).ask(key)
            if told is not None:
                self._asking[key] = told
                told.add_done_callback(lambda it: self._take(key, it))
        return None if kept is None else kept.answer

    def _take(self, key: str | int, told: asyncio.Future[Answer]) -> None:
        self._asking.pop(key, None)
        if told.cancelled():
            return
        answer, before, now = None if told.exception() else told.result(), self._kept.get(key), time.monotonic()
        if len(self._kept) >= _MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        if answer is not None:
            self._kept[key] = _Kept(answer, now + _KEPT_SECONDS, now)
        elif before is not None and before.answer is not None and now < before.told_at + _REMEMBERED_SECONDS:
            self._kept[key] = before._replace(until=now + _ASKED_AGAIN_SECONDS)
        else:
            self._kept[key] = _Kept(None, now + _ASKED_AGAIN_SECONDS, now)


def _uid_of(account: str) -> int | None:
    with contextlib.suppress(KeyError):
        return pwd.getpwnam(account).pw_uid
    # A container's user may be a mere number; root always has a name, and no word of a caller's may stand for it.
    return int(account) if account == str(os.geteuid()) and os.geteuid() != 0 else None


def _name_of(uid: int) -> str | None:
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return str(uid) if uid == os.geteuid() and uid != 0 else None


#: The ranges of numbers that accounts may give away, as of a state of the file.
_sub_users_kept: tuple[tuple[int, int], list[tuple[str, int, int]]] = ((0, 0), [])


def _sub_users() -> list[tuple[str, int, int]]:
    global _sub_users_kept  # noqa: PLW0603 - one file of one machine
    try:
        stat = _SUB_USERS.stat()
        state = (stat.st_mtime_ns, stat.st_size)
        if state != _sub_users_kept[0]:
            text = _SUB_USERS.read_text("utf-8", "replace") if stat.st_size <= _MOST_SUB_USERS_BYTES else ""
            _sub_users_kept = (state, [*filter(None, map(_range, text.splitlines()))])
    except OSError:
        return []
    return _sub_users_kept[1]


def _range(line: str) -> tuple[str, int, int] | None:
    owner, _, rest = line.strip().partition(":")
    first, _, count = rest.partition(":")
    try:
        return (owner, int(first), int(count)) if owner else None
    except ValueError:
        return None
