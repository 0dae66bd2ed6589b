"""To look at files as somebody else looks at them, without becoming them.

The shared broker is root: whether a folder exists must not be answered with root's eyes, which see into private homes,
and on a home that the server squashes root sees less than its owner. Linux keeps the identity for files apart from all
others, and per thread: setfsuid(2). So a short thread takes on the account's groups and file identity, looks, and ends;
nothing else in the process changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import platform
import pwd
import threading
from collections.abc import Callable, Coroutine, Hashable, Mapping
from typing import Any, NamedTuple, TypeVar, cast

from ...errors import InvalidAsk, NotAllowed

T = TypeVar("T")

ANSWERS_WITHIN_SECONDS = 5.0
#: Of programs, which are asked one after the other for an account.
ASKED_WITHIN_SECONDS = 10.0
# The raw call changes one thread's groups; the C library's own would change those of the whole process.
_SETGROUPS = {"x86_64": 116, "aarch64": 159, "ppc64le": 81, "riscv64": 159}.get(platform.machine())


class Account(NamedTuple):
    """Who a job runs as, in numbers."""

    name: str
    uid: int
    gid: int

    @property
    def is_us(self) -> bool:
        """Whether the broker is that user already."""
        return self.uid == os.geteuid()


def account_of(name: str) -> Account:
    """Look an account up, or say why no work can be started as it."""
    if not name:
        raise NotAllowed(
            "You have no account on this machine that your jobs could run as; reservations need none.",
            hint="An admin names one: for users of a hub in GpuBroker.account_of_user (by itself a hub's user is the "
            "account of the same name, if that is a person's), and for others beside their token in GpuBroker.tokens.",
        )
    try:
        entry = pwd.getpwnam(name)
        account = Account(name, entry.pw_uid, entry.pw_gid)
    except KeyError:
        if name != str(os.geteuid()):  # containers run as numbers without a name
            raise NotAllowed(
                f"There is no account {name!r} on this machine, so nothing can run as it.",
                hint="An admin makes it, or names another one in GpuBroker.account_of_user or GpuBroker.tokens.",
            ) from None
        account = Account(name, os.geteuid(), os.getegid())
    if not account.is_us and os.geteuid() != 0:
        raise NotAllowed(
            f"This broker runs as user {os.geteuid()} and cannot start work as {name}.",
            hint="An admin installs a shared one: docs/admin.md.",
        )
    return account


def uid_of(name: str) -> int | None:
    """The number of an account; None where there is none of that name."""
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return os.geteuid() if name == str(os.geteuid()) else None


class Looks:
    """Looks at files as accounts do, each on a thread of its own: one at a time for an account.

    A file system that hangs, or that its user made slow, keeps that user waiting and nobody else: neither the loop nor
    the threads that all share. A look that was given up goes on until the kernel lets it; its account waits for that.
    """

    def __init__(self, for_errands: Callable[[], Mapping[str, Any]] = dict) -> None:
        #: In what programs are asked that are the account's own: see `errand`.
        self.for_errands = for_errands
        self._running: dict[Hashable, asyncio.Future[None]] = {}
        self._same: dict[Hashable, asyncio.Task[Any]] = {}

    async def account(self, name: str) -> Account:
        """As `account_of`; the directory service of a lab may take its time."""
        return await self._once(name, lambda: asyncio.to_thread(account_of, name))

    async def look(self, account: Account, what: Hashable, look: Callable[[], T]) -> T | None:
        """Do something with files as an account; None where this machine does not allow it.

        `what` says at what: who asks for the same while it is looked at gets the same answer.
        """
        try:
            return await self._once(
                (account, what),
                lambda: self._look(account.uid, lambda: _as_account(account, look), ANSWERS_WITHIN_SECONDS),
            )
        except TimeoutError:
            raise InvalidAsk(
                f"The file system did not answer within {ANSWERS_WITHIN_SECONDS:.0f} s, so the folder cannot be used "
                "now.",
                hint="Try again when it answers, or submit from another folder with a shorter PATH.",
            ) from None

    async def ask(self, account: Account, what: Hashable, ask: Callable[[], T]) -> T:
        """Ask a program that runs as an account by itself, in the same way; TimeoutError where it hangs.

        Who asks waits for what is asked for the same account, and nobody else does.
        """
        key = ("ask", account.uid)
        return await self._once((key, what), lambda: self._look(key, ask, ASKED_WITHIN_SECONDS))

    async def _once(self, key: Hashable, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
        task: asyncio.Task[T] | None = self._same.get(key)
        if task is None:
            task = self._same[key] = asyncio.get_running_loop().create_task(begin())
            task.add_done_callback(lambda _: self._same.pop(key))
        return await asyncio.shield(task)  # who goes away takes nothing from the others

    async def _look(self, key: Hashable, look: Callable[[], T], seconds: float) -> T:
        running = asyncio.get_running_loop()
        deadline = running.time() + seconds
        while (before := self._running.get(key)) is not None:
            await self._in_time(before, deadline)
        ended = self._running[key] = running.create_future()
        answer: asyncio.Future[T] = running.create_future()

        def end(found: T | None, error: BaseException | None) -> None:
            del self._running[key]
            ended.set_result(None)
            if not answer.cancelled():
                answer.set_exception(error) if error is not None else answer.set_result(cast("T", found))
                answer.exception()  # somebody has looked: who gave up asks no more

        def run() -> None:
            found: T | None = None
            error: BaseException | None = None
            try:
                found = look()
            except BaseException as failed:  # noqa: BLE001 - it is raised again where it belongs
                error = failed
            with contextlib.suppress(RuntimeError):  # the broker has stopped meanwhile
                running.call_soon_threadsafe(end, found, error)

        try:
            threading.Thread(target=run, name=f"look {key}", daemon=True).start()
        except RuntimeError as error:  # the machine has no thread to give
            end(None, error)
        await self._in_time(answer, deadline)
        return answer.result()

    async def _in_time(self, future: asyncio.Future[Any], deadline: float) -> None:
        await asyncio.wait({future}, timeout=max(0.0, deadline - asyncio.get_running_loop().time()))
        if not future.done():
            raise TimeoutError


def _as_account(account: Account, look: Callable[[], T]) -> T | None:
    """Look as an account; None where this machine does not allow it.

    The calling thread is that account's from now on, so it must be one that ends after this.
    """
    return look() if account.is_us or _take_on(account) else None


def _take_on(account: Account) -> bool:
    """Give this thread the account's eyes; root's powers over files go with it. False where that cannot be had."""
    if _SETGROUPS is None:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    groups = os.getgrouplist(account.name, account.gid)
    array = (ctypes.c_uint32 * len(groups))(*groups)
    if libc.syscall(ctypes.c_long(_SETGROUPS), ctypes.c_long(len(groups)), array) != 0:
        return False
    nobody = ctypes.c_uint32(-1)  # changes nothing, and says what holds
    libc.setfsgid(ctypes.c_uint32(account.gid))
    libc.setfsuid(ctypes.c_uint32(account.uid))
    return bool(libc.setfsgid(nobody) == account.gid and libc.setfsuid(nobody) == account.uid)
