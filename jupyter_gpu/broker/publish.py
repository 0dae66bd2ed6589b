"""Telling those who listen: one line of what changed for each commit, one ready line for each sample.

A listener that does not keep up never slows the broker: its backlog is dropped and it is told that it fell behind, so
that it begins again with a whole status.
"""

from __future__ import annotations

import asyncio
from collections import deque

import msgspec

MOST_WAITING = 256
#: What is only looked at differently is told so often at most.
LOOK_SECONDS = 1.0


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """What one commit changed, by name; each listener is shown what its caller may see."""

    revision: int
    workloads: frozenset[int]
    devices: frozenset[str]
    #: More changed than names can say: the rules, or which devices there are. Whoever shows anything shows it anew.
    everything: bool = False
    #: Nothing was committed: devices (who is on them) or alerts look different.
    is_look: bool = False
    #: Jobs that have come further, by what they say; and whether that is all, which is for few to know.
    progress: frozenset[int] = frozenset()
    is_only_progress: bool = False


class Subscription:
    """One listener's line: iterate it; it ends when the broker stops or `close` is called."""

    def __init__(self, publisher: Publisher) -> None:
        self.fell_behind = False
        self._publisher = publisher
        self._waiting: deque[Published | bytes] = deque()
        self._arrived = asyncio.Event()
        self._closed = False

    def put(self, item: Published | bytes) -> None:
        """Add to the line, or drop it all when nobody takes from it."""
        if len(self._waiting) >= MOST_WAITING:
            self._waiting.clear()
            self.fell_behind = True
        self._waiting.append(item)
        self._arrived.set()

    def close(self) -> None:
        """Hear no more."""
        self._closed = True
        self._publisher.forget(self)
        self._arrived.set()

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Published | bytes:
        while not self._waiting:
            if self._closed:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        return self._waiting.popleft()


class Publisher:
    """All listeners of one broker."""

    def __init__(self) -> None:
        self._subscriptions: set[Subscription] = set()
        self._looks: set[str] = set()
        self._progress: set[int] = set()
        self._is_only_progress = True
        self._revision = 0
        self._looked_at = float("-inf")
        self._due: asyncio.TimerHandle | None = None

    @property
    def listeners(self) -> int:
        """How many listen now."""
        return len(self._subscriptions)

    def subscribe(self) -> Subscription:
        """A new line, empty."""
        subscription = Subscription(self)
        self._subscriptions.add(subscription)
        return subscription

    def forget(self, subscription: Subscription) -> None:
        """Take a line away."""
        self._subscriptions.discard(subscription)

    def publish(
        self, revision: int, workloads: frozenset[int], devices: frozenset[str], *, everything: bool = False
    ) -> None:
        """Tell of one commit."""
        self._put(Published(revision=revision, workloads=workloads, devices=devices, everything=everything))

    def look(
        self, revision: int, devices: frozenset[str] = frozenset(), progress: frozenset[int] = frozenset()
    ) -> None:
        """These devices, or the alerts, look different although nothing was committed: told soon, once for several.

        With `progress` it is these jobs that do, and nothing else unless devices are named too.
        """
        if not self._subscriptions:
            return
        self._looks |= devices
        self._progress |= progress
        self._is_only_progress = self._is_only_progress and bool(progress) and not devices
        self._revision = revision
        if self._due is None:
            loop = asyncio.get_running_loop()
            wait = max(0.0, self._looked_at + LOOK_SECONDS - loop.time())
            self._due = loop.call_later(wait, self._tell_of_looks)

    def _tell_of_looks(self) -> None:
        self._due, self._looked_at = None, asyncio.get_running_loop().time()
        devices, self._looks = frozenset(self._looks), set()
        progress, self._progress = frozenset(self._progress), set()
        is_only_progress, self._is_only_progress = self._is_only_progress, True
        self._put(
            Published(
                revision=self._revision,
                workloads=frozenset(),
                devices=devices,
                is_look=True,
                progress=progress,
                is_only_progress=is_only_progress,
            )
        )

    def send(self, line: bytes) -> None:
        """Pass a ready line to everybody: encoded once, whoever listens."""
        self._put(line)

    def _put(self, item: Published | bytes) -> None:
        for subscription in self._subscriptions:
            subscription.put(item)

    def close(self) -> None:
        """The broker stops: every line ends."""
        if self._due is not None:
            self._due.cancel()
        for subscription in list(self._subscriptions):
            subscription.close()
