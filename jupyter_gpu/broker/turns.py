"""Whose news is told next: one message at a time for each owner, in turns, and a target that fails is left for a while.

So a hook that hangs keeps its own user's news, and nobody else's. Pure but for the clock that is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

#: Whom a target belongs to, as which account, and the target: "" is the admin's command, which has a place of its own.
Key = tuple[str, str, str]

#: So many owners are told at once; of those beyond it who has waited longest is next.
MOST_AT_ONCE = 16
#: So much waits for one target, and for so many targets of one owner; who takes none must not fill the memory.
MOST_PENDING = 1000
MOST_TARGETS = 50
#: A target that failed is left so long, and twice as long each time that it fails again.
AGAIN_SECONDS = 15.0
LONGEST_PAUSE_SECONDS = 900.0


class Turns(Generic[T]):
    """What waits for whom. A target's news stays until it is said to be `done`."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        #: Both in the order in which they have waited.
        self._pending: dict[str, dict[Key, list[T]]] = {}
        self._busy: set[str] = set()
        #: How often a target has failed one time after the other, and until when it is left.
        self._failing: dict[Key, tuple[int, float]] = {}

    def put(self, key: Key, it: T) -> bool:
        """Let something wait for a target; False where too much does."""
        targets = self._pending.setdefault(key[0], {})
        if key not in targets and len(targets) >= MOST_TARGETS:
            return False
        waiting = targets.setdefault(key, [])
        if len(waiting) >= MOST_PENDING:
            return False
        waiting.append(it)
        return True

    def take(self) -> tuple[Key, list[T]] | None:
        """Who is next, and all that waits for it now; its owner gets no other turn until it is done."""
        now = self._now()
        for owner, targets in self._pending.items():
            if owner in self._busy or (owner and len(self._busy - {""}) >= MOST_AT_ONCE):
                continue
            for key, waiting in targets.items():
                if self._failing.get(key, (0, now))[1] <= now:
                    self._busy.add(owner)
                    return key, waiting.copy()
        return None

    def done(self, key: Key, count: int, *, failed: bool) -> None:
        """So many of the oldest were told, or given up; target and owner are the last in turn now."""
        owner = key[0]
        self._busy.discard(owner)
        targets = self._pending.pop(owner)
        if rest := targets.pop(key)[count:]:
            targets[key] = rest
        if targets:
            self._pending[owner] = targets
        now = self._now()
        times = self._failing.pop(key, (0, now))[0] + 1
        if failed:
            pause_seconds = min(LONGEST_PAUSE_SECONDS, AGAIN_SECONDS * 2 ** min(times - 1, 10))
            self._failing[key] = times, now + pause_seconds
        # One that nobody has named for long is as good as new.
        forgotten = [it for it, (_, until) in self._failing.items() if until < now - LONGEST_PAUSE_SECONDS]
        for it in forgotten:
            del self._failing[it]

    def all(self) -> Iterator[T]:
        """All that is not done."""
        return (it for targets in self._pending.values() for waiting in targets.values() for it in waiting)
