"""The parts that are somebody's own: of teams, or of queues. Who holds more than their part borrows it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping


class Shares:
    """What each of one kind of parties has of its own, holds, and is about to leave, in devices."""

    __slots__ = ("_firm", "_held", "_leaving", "left", "own")

    def __init__(self, own: Mapping[str, int]) -> None:
        """Begin with nothing held."""
        self.own = dict(own)
        #: What each may still get of its own part.
        self.left = dict(own)
        self._held: defaultdict[str, int] = defaultdict(int)
        #: Held by work in queues that may not borrow: nobody can take it back by preemption.
        self._firm: defaultdict[str, int] = defaultdict(int)
        #: What is about to leave its devices counts as held, but no more as borrowed.
        self._leaving: defaultdict[str, int] = defaultdict(int)

    def __bool__(self) -> bool:
        """Whether anybody has a part of their own; where nobody has, nobody borrows."""
        return bool(self.own)

    def count(self, name: str, devices: int, *, is_firm: bool) -> None:
        """Somebody holds so many more."""
        self._held[name] += devices
        if name in self.left:
            self.left[name] -= devices
        if is_firm:
            self._firm[name] += devices

    def leaves(self, name: str, devices: int) -> None:
        """Somebody is about to give so many up."""
        self._leaving[name] += devices

    def is_within(self, name: str, devices: int) -> bool:
        """Whether somebody would stay within their part with so many more."""
        return devices <= self.left.get(name, 0)

    def is_beyond(self, name: str) -> bool:
        """Whether somebody holds more than their part, what is about to leave left out."""
        return self._held[name] - self._leaving[name] > self.own.get(name, 0)

    def firmly_left(self, name: str, devices: int) -> int:
        """How much more of all `devices` somebody may hold in queues that never yield.

        That is what is left of their part and of nobody's part. Only such work is counted: what else they hold, that
        yields to it.
        """
        beyond = (held - self.own.get(other, 0) for other, held in self._firm.items() if other != name)
        common = devices - sum(self.own.values()) - sum(count for count in beyond if count > 0)
        return self.own.get(name, 0) - self._firm[name] + max(0, common)
