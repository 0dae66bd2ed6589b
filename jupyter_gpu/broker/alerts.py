"""What somebody should know, from one place: shown to whom it concerns, logged, and handed to the admin's command.

An alert is open as long as what it is about lasts. It is memory only: after a restart it is opened by what is seen
then. What comes and goes is told once and stays quiet for a while: it is shown each time, and nobody is woken twice.
What has the same key and is about something else all the same (another account, another report) is told for itself.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from .. import spawn
from ..model import AlertView, Caller

log = logging.getLogger(__name__)

#: So long the admin's command may take.
COMMAND_SECONDS = 10.0
#: What ended less than this ago and begins again is the same, and is not told anew.
QUIET_SECONDS = 600.0
#: So many commands at once, whatever breaks together.
MOST_AT_ONCE = 4


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """Something that somebody should know."""

    #: What happened, why, and what to do now: for operators.
    text: str
    #: The same for those whom it concerns, where they may not know all of it.
    plain: str = ""
    device: str | None = None
    workload: int | None = None
    #: Whom it concerns besides the operators, by name.
    users: frozenset[str] = frozenset()
    #: Accounts of theirs that are nobody else's, for who comes by an account's name.
    accounts: frozenset[str] = frozenset()
    #: By name: what is said to one of them of their own, in the place of `plain`.
    own: dict[str, str] = {}
    #: Not for operators where it concerns its owner alone.
    for_operators: bool = True
    #: What of it would be news to who knows of the key: whose process it is, what was reported.
    about: frozenset[str] = frozenset()


class _Open(msgspec.Struct, kw_only=True):
    alert: Alert
    since: float
    #: What was told of it so far.
    told: frozenset[str]


class Alerts:
    """All that are open. `changed` is called when what somebody sees of them has changed."""

    def __init__(self, now: Callable[[], float], *, command: Sequence[str] = ()) -> None:
        self._now, self._command = now, tuple(command)
        self._open: dict[str, _Open] = {}
        #: Key -> until when it was open last, and how it stood then.
        self._closed: dict[str, tuple[float, _Open]] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        #: Keys of which there was news while the command ran about them.
        self._due: set[str] = set()
        self._is_closed = False
        self._turn = asyncio.Semaphore(MOST_AT_ONCE)
        self.changed: Callable[[], None] = lambda: None

    @property
    def warnings(self) -> tuple[str, ...]:
        """That the admin's command cannot be run, as far as that shows beforehand: nobody would hear of an alert."""
        if not self._command or shutil.which(self._command[0]) is not None:
            return ()
        what = f"The alert command {self._command[0]!r} is no program that this broker can run, so it tells nobody"
        return (f"{what}: mend `c.GpuBroker.alert_command`, or make the file executable.",)

    def open(self, key: str, alert: Alert) -> None:
        """Tell of something, once; what is open already only gets its newest words, unless there is news in it."""
        known = self._open.get(key)
        if known is None:
            known = self._begin(key, alert)
        elif known.alert == alert:
            return
        known.alert = alert
        self.changed()
        if not alert.about <= known.told:
            known.told |= alert.about
            self._tell(key)

    def _begin(self, key: str, alert: Alert) -> _Open:
        """Open it, or open it again as what it was."""
        now = self._now()
        until, before = self._closed.pop(key, (float("-inf"), None))
        if before is not None and now - until < QUIET_SECONDS:
            self._open[key] = before
            return before
        self._open[key] = begun = _Open(alert=alert, since=now, told=alert.about)
        self._tell(key)
        return begun

    def close(self, key: str) -> None:
        """It is over."""
        known = self._open.pop(key, None)
        if known is not None:
            now = self._now()
            self._closed = {it: at for it, at in self._closed.items() if now - at[0] < QUIET_SECONDS}
            self._closed[key] = (now, known)
            log.info("over: %s", known.alert.text)
            self.changed()

    def forget(self, devices: Collection[str]) -> None:
        """An operator has dealt with what was wrong with these: what is wrong with them from now on is news."""
        for key in [key for key, it in self._open.items() if it.alert.device in devices]:
            self.close(key)
        self._closed = {key: it for key, it in self._closed.items() if it[1].alert.device not in devices}

    def settle(self, group: str, wanted: Mapping[str, Alert]) -> None:
        """Let just these be open of all whose key begins with "GROUP:"; the keys of `wanted` do."""
        for key in [it for it in self._open if it.startswith(f"{group}:") and it not in wanted]:
            self.close(key)
        for key, alert in wanted.items():
            self.open(key, alert)

    def views(self, caller: Caller) -> tuple[AlertView, ...]:
        """Those that a caller may see, the oldest first."""
        found = ((key, it) for key, it in self._open.items() if _concerns(it.alert, caller))
        return tuple(
            _view(key, it, _words(it.alert, caller)) for key, it in sorted(found, key=lambda pair: pair[1].since)
        )

    async def close_down(self) -> None:
        """Wait for no command."""
        self._is_closed = True
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    def _tell(self, key: str) -> None:
        log.warning("%s", self._open[key].alert.text)
        if key in self._running:
            self._due.add(key)
        elif self._command:
            self._call(key)

    def _call(self, key: str) -> None:
        """Run the admin's command, one at a time for each key."""
        view = _view(key, self._open[key], self._open[key].alert.text)
        task = asyncio.ensure_future(self._run(view))
        self._running[key] = task
        task.add_done_callback(lambda _: self._ran(key))

    def _ran(self, key: str) -> None:
        """What was news meanwhile is told now, if it is still so."""
        self._running.pop(key, None)
        is_due = key in self._due
        self._due.discard(key)
        if is_due and key in self._open and not self._is_closed:
            self._call(key)

    async def _run(self, view: AlertView) -> None:
        text = msgspec.json.encode(view).decode() + "\n"
        async with self._turn:
            done = await asyncio.to_thread(spawn.run, self._command, COMMAND_SECONDS, text=text)
        if done.exit_code != 0:
            how = f"did not end within {COMMAND_SECONDS:.0f} s" if done.exit_code is None else f"failed: {done.errors}"
            log.error("the alert command %s %s", self._command[0], how.strip())


def _concerns(alert: Alert, caller: Caller) -> bool:
    if caller.is_operator and alert.for_operators:
        return True
    return caller.name in alert.users or (caller.account in alert.accounts and not caller.shares_account)


def _words(alert: Alert, caller: Caller) -> str:
    """All of it for operators, what is theirs for who it is about, and of others' no more than they may know."""
    return alert.text if caller.is_operator else alert.own.get(caller.name) or alert.plain or alert.text


def _view(key: str, it: _Open, text: str) -> AlertView:
    return AlertView(key=key, since=it.since, text=text, device=it.alert.device, workload=it.alert.workload)
