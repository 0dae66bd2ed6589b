"""How an attempt is brought to its end: notice, grace, closing SIGTERM, kill_after, SIGKILL.

Driven by `order.json` alone, so it runs on when the broker is dead. The orders are read again whenever the file
changes; the notice goes out once, to each process at most once, and later orders may only shorten what is
left. What starts after the notice finds the notice file. When the main process has ended, the rest of the tree
gets SIGTERM at once, and SIGKILL `leftover_seconds` later. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

from . import cgroup, files, notice, procs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from . import outside


class Ending:
    """The orders of one attempt, and what was done about them."""

    def __init__(self, folder: str, container: outside.Container | None = None) -> None:
        self._folder, self._container = folder, container
        self._seen: tuple[int, int] | None = None
        self._close_at: float | None = None
        self._kill_at: float | None = None
        self._closed = False
        self._forced: dict[tuple[int, int], str] = {}
        self._notice_owed = False
        self._main_ended = False
        self._kill_again_seconds = 0.05
        self.order: dict[str, Any] | None = None
        #: When the notice reached the first process; None where it never did.
        self.noticed_at: float | None = None
        self.noticed: list[str] = []
        self._noticed_when = 0.0

    @property
    def forced(self) -> list[str]:
        """What had to be ended by SIGKILL, as "name (pid)"."""
        return list(self._forced.values())

    def since_notice(self) -> float | None:
        """So many seconds are gone since the notice, whatever the clock of the wall has done; None without one."""
        return None if self.noticed_at is None else round(time.monotonic() - self._noticed_when, 3)

    def look(self) -> None:
        """Take a new order, if there is one."""
        path = f"{self._folder}/{files.ORDER}"
        try:
            found = os.stat(path)  # noqa: PTH116
        except OSError:
            return
        signature = (found.st_ino, found.st_mtime_ns)
        order = files.read(path) if signature != self._seen else None
        if order:
            self._seen = signature
            self._take(order)

    def _take(self, order: dict[str, Any]) -> None:
        # The clock of the wall may jump: the grace is never longer than it was when the order was given.
        grace = min(order["yield_by"] - time.time(), order["yield_by"] - order["ordered_at"])
        self._notice_owed = self._notice_owed or (self.order is None and not self._main_ended)
        self.order = order
        self._shorten(max(0.0, grace), order["kill_after_seconds"])

    def main_has_ended(self, leftover_seconds: float) -> None:
        """From here on there is nobody to wait for."""
        self._main_ended, self._notice_owed = True, False
        self._shorten(0.0, leftover_seconds)

    def wait_seconds(self, most: float) -> float:
        """How long nothing is due, at most `most`."""
        due = self._close_at if not self._closed else self._kill_at
        return most if due is None else min(most, max(0.0, due - time.monotonic()))

    def act(self, *, launched: bool, cgroups: list[str]) -> None:
        """Do what is due now. Where processes cannot be looked at, it stays due."""
        with contextlib.suppress(OSError):
            self._act(launched=launched, cgroups=cgroups)

    def _act(self, *, launched: bool, cgroups: list[str]) -> None:
        now = time.monotonic()
        if self._notice_owed and launched:
            self._give_notice()
        if self._close_at is not None and now >= self._close_at and not self._closed:
            tree = self._tree()
            self._closed = True
            # Where each program had ended between a look and its signal, nobody has had the notice: then this is it.
            send = self._tell if self._notice_owed else _terminate
            for proc in tree.values():
                send(proc)
            self._notice_owed = False
        if self._closed and self._kill_at is not None and now >= self._kill_at:
            self._kill(cgroups)

    def _shorten(self, grace: float, kill_after: float) -> None:
        now = time.monotonic()
        close_at, kill_at = now + grace, now + grace + kill_after
        self._close_at = close_at if self._close_at is None else min(self._close_at, close_at)
        self._kill_at = kill_at if self._kill_at is None else min(self._kill_at, kill_at)
        if self.order:  # readers of the notice see the deadline that holds now
            self._write_notice(time.time() + self._close_at - now)

    def _write_notice(self, deadline: float) -> None:
        if self.order is None:
            return
        content = {"reason": self.order["reason"], "notice_at": self.order["ordered_at"], "deadline": deadline}
        with contextlib.suppress(OSError):  # on a full disk the signal alone must do
            files.write_whole(f"{self._folder}/{files.NOTICE}", content, mode=0o644)

    def _tree(self) -> dict[int, procs.Proc]:
        """All that lives of the attempt, also what a container engine has started elsewhere."""
        tree = procs.descendants(os.getpid())
        return tree if self._container is None else tree | self._container.processes(tree)

    def _give_notice(self) -> None:
        tree = self._tree()
        candidates = []
        for proc in tree.values():
            argv = tuple(procs.argv(proc.pid)) or (proc.name,)
            # Only of shells it matters whether they catch the signal.
            catches = notice.program(argv) in notice.SHELLS and procs.catches(proc.pid, signal.SIGTERM)
            candidates.append(notice.Candidate(proc.pid, proc.parent, argv, catches))
        for pid in notice.targets(os.getpid(), candidates):
            self._tell(tree[pid])
        self._notice_owed = not self.noticed

    def _tell(self, proc: procs.Proc) -> None:
        if _terminate(proc):
            self.noticed.append(f"{proc.name} ({proc.pid})")
            if self.noticed_at is None:
                self.noticed_at, self._noticed_when = time.time(), time.monotonic()

    def _kill(self, cgroups: list[str]) -> None:
        """SIGKILL all that lives; called again until nothing does."""
        tree: dict[int, procs.Proc] = {}
        for _ in range(3):  # one that forks and exits all the time may slip through a single look
            tree = tree or self._tree()
        for proc in tree.values() if len(self._forced) < files.MOST_NAMED else ():
            self._forced.setdefault((proc.pid, proc.start_ticks), f"{proc.name} ({proc.pid})")
        cgroup.kill(cgroups)
        for proc in tree.values():
            procs.send(proc, signal.SIGKILL)
        # Until then new ones may have been forked; what hangs in the kernel is asked ever more rarely.
        self._kill_at = time.monotonic() + self._kill_again_seconds
        self._kill_again_seconds = min(2 * self._kill_again_seconds, 1.0)


def _terminate(proc: procs.Proc) -> bool:
    return procs.send(proc, signal.SIGTERM)
