"""Which account of the machine a hub user's work runs as, and whose work an account's is.

Names of the hub are compared as they are typed and never become part of a path; only the name service turns one into
an account. Root's and the system's accounts are nobody's by their mere name: on many hubs people choose their own
names, and one would choose `postgres`. An admin who means it says so, name by name.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ...errors import InvalidAsk
from ..auth import account_name
from ..people import is_of_a_person

SAME, SERVICE, EACH = "same", "service", "*"
#: Numbers of people's accounts begin here, and `nobody` is none of them.
LEAST_UID = 1000
NOBODY_UID = 65534

_KEPT_SECONDS = 60.0
_MOST_KEPT = 10_000


class RunsAs(NamedTuple):
    """The account that somebody's work runs as, empty where there is none; and whether others' does too."""

    account: str
    is_shared: bool = False


class Accounts:
    """Read from the trait `account_of_user`: "same", "service", a dict of names, or nothing for what is usual.

    Usual is "same" for a broker that is root, which can run work as anybody, and "service" for all others. In a dict
    "*" stands for all names that are not in it.
    """

    def __init__(self, rule: Any = "", *, uid: int | None = None) -> None:
        self._uid = os.geteuid() if uid is None else uid
        self._named, self._others = _read(rule)
        if not self._others:
            self._others = SERVICE if self._uid else SAME
        #: Account -> the users for whom it is named.
        self._users: dict[str, list[str]] = {}
        for user, account in self._named.items():
            self._users.setdefault(account, []).append(user)
        self._kept: dict[str, tuple[float, RunsAs]] = {}

    async def of(self, user: str) -> RunsAs:
        """Asked on a thread and kept for a while: a name service may hang on its network."""
        kept = self._kept.get(user)
        if kept is None or time.monotonic() > kept[0]:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            kept = self._kept[user] = (time.monotonic() + _KEPT_SECONDS, await asyncio.to_thread(self._find, user))
        return kept[1]

    def owner_of(self, account: str) -> str | None:
        """The hub's user whose work runs as an account, for who comes over the Unix socket; None where none surely is.

        So that a person has one name wherever they ask, and two persons never share one.
        """
        return self._owner(account, lambda: _is_a_person(account))

    def owner_of_process(self, account: str, uid: int) -> str | None:
        """The same for a process, of whose user the number and the name are known: nobody has to be asked for it."""
        return self._owner(account, lambda: is_of_a_person(uid))

    def may_run_as(self, user: str, account: str) -> bool:
        """Whether a user's work would run as an account, if there is such an account."""
        named = self._named.get(user)
        if named is not None:
            return named == account
        return account == {SAME: user, SERVICE: account_name(self._uid)}.get(self._others, self._others)

    def _owner(self, account: str, is_a_person: Callable[[], bool]) -> str | None:
        users = self._users.get(account)
        if users:
            return users[0] if len(users) == 1 and self._others not in (account, *self._own()) else None
        return account if self._others == SAME and account not in self._named and is_a_person() else None

    def _find(self, user: str) -> RunsAs:
        named = self._named.get(user)
        if named is not None:
            return RunsAs(named, is_shared=len(self._users[named]) > 1 or named in (self._others, *self._own()))
        if self._others == SAME:
            # An account that was named for somebody is nobody else's, whatever name they chose at the hub.
            return RunsAs(user if user not in self._users and _is_a_person(user) else "")
        if self._others == SERVICE:
            return RunsAs(account_name(self._uid) if self._uid else "", is_shared=True)
        return RunsAs(self._others, is_shared=True)

    def _own(self) -> tuple[str, ...]:
        return (account_name(self._uid),) if self._others == SERVICE else ()


def _read(rule: Any) -> tuple[dict[str, str], str]:
    if isinstance(rule, Mapping) and all(isinstance(it, str) for pair in rule.items() for it in pair):
        named = dict(rule)
        return named, named.pop(EACH, "")
    if rule in ("", SAME, SERVICE):
        return {}, rule
    raise InvalidAsk(
        f"account_of_user: {str(rule)[:200]!r} cannot be meant.",
        hint='Give "same", "service", or a dict like {"ana@uni.example": "ana", "*": "same"}.',
    )


def _is_a_person(name: str) -> bool:
    """Whether there is an account of just this name, and it is neither root's nor the system's."""
    try:
        entry = pwd.getpwnam(name)
    except (KeyError, ValueError):  # ValueError: a zero byte
        return False
    # A name service that ignores case, or that knows two spellings, would give two users one account.
    return entry.pw_name == name and entry.pw_uid >= LEAST_UID and entry.pw_uid != NOBODY_UID
