"""Devices as promises see them: which would do for one, who holds them, and when they have left. Found once each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import NamedTuple

from ..model import HoldPolicy, Window, Workload, World
from .placement import in_order, is_well
from .promises import Leaves, is_entitled, is_of_the_kind, leaves

Node = tuple[str, str, str]


class Candidate(NamedTuple):
    """A device that would do for some kind of promise, with those who hold it now."""

    uuid: str
    place: int
    node: Node
    holders: Sequence[Workload]


class DevicesThen:
    """The devices of a world in one moment: what several calendars of that moment may share."""

    def __init__(self, world: World, now: float, leaving: Mapping[int, Leaves], also: Workload | None) -> None:
        """`leaving` says of holders that they leave at other times than they would; `also` would hold devices as well.

        `taken` counts the devices that were looked at, each time anew.
        """
        self._world, self._now = world, now
        self._leaving, self._also = leaving, also
        self._kinds: dict[tuple[object, ...], list[Candidate]] = {}
        self._gone: dict[str, Leaves] = {}
        self._all: list[Candidate] | None = None
        self._by_uuid: dict[str, Candidate] = {}
        self.taken = 0

    def for_(self, window: Window) -> list[Candidate]:
        """Those that are well and of the kind, the last of the node first; each of them counts as looked at."""
        ask = window.ask
        kind: tuple[object, ...] = (window.devices, window.device_class)
        if ask is not None:
            kind = (
                window.devices, ask.on, ask.pool, ask.device_class, ask.devices > 1, ask.memory_bytes,
                ask.min_free_bytes, ask.same_link_group,
            )  # fmt: skip
        known = self._kinds.get(kind)
        if known is None:
            known = self._kinds[kind] = self._find(window)
        self.taken += len(known)
        return known

    def _find(self, window: Window) -> list[Candidate]:
        devices = self._world.devices
        among = (
            it for it in self._in_order() if is_of_the_kind(devices[it.uuid], window) and is_well(devices[it.uuid])
        )
        if window.ask is None or not window.ask.same_link_group:
            return list(among)
        linked = ((it, devices[it.uuid].link_group or it.uuid) for it in among)
        return [it._replace(node=(it.node[0], it.node[1], link)) for it, link in linked]

    def _in_order(self) -> list[Candidate]:
        if self._all is None:
            found = (
                Candidate(it.uuid, place, (it.pool, it.node, ""), self._holders_of(it.uuid))
                for place, it in enumerate(in_order(self._world))
            )
            self._all = sorted(found, key=lambda it: -it.place)
            self._by_uuid = {it.uuid: it for it in self._all}
        return self._all

    def _holders_of(self, uuid: str) -> Sequence[Workload]:
        holders, also = self._world.holders_of(uuid), self._also
        held = also is not None and also.lease is not None and uuid in also.lease.devices
        return [*holders, also] if held and also is not None else holders

    def leaves_of(self, uuid: str, window: HoldPolicy) -> Leaves:
        """When all are gone from a device who are not entitled to what is promised there."""
        known = self._gone.get(uuid)
        if known is None or window.users or window.teams:
            self._in_order()
            others = [it for it in self._by_uuid[uuid].holders if not is_entitled(window, it.owner, it.team)]
            gone = [self._leaving.get(it.id) or leaves(self._world, it, self._now) for it in others]
            known = Leaves(max((it.itself for it in gone), default=0.0), max((it.made for it in gone), default=0.0))
            if not (window.users or window.teams):
                self._gone[uuid] = known
        return known


def openings(first: float, seconds: float, blocks: Iterable[HoldPolicy]) -> Iterator[tuple[float, float]]:
    """From when to when something may begin on a device so that it lies between what is promised there."""
    for block in sorted(blocks, key=lambda it: it.from_at):
        if block.until_at <= first:
            continue
        if first <= block.from_at - seconds:
            yield first, block.from_at - seconds
        first = max(first, block.until_at)
    if first < inf:
        yield first, inf


def instants(spans: Sequence[tuple[Node, tuple[float, float]]], count: int) -> Iterator[float]:
    """When so many devices of one node are open at once: each instant at which that begins to be so, in order."""
    steps = [(begin, 0, node) for node, (begin, _) in spans]
    steps += [(last, 1, node) for node, (_, last) in spans if last < inf]
    steps.sort()
    open_: dict[Node, int] = {}
    told = -inf
    for instant, closes, node in steps:
        open_[node] = open_.get(node, 0) + (-1 if closes else 1)
        if not closes and open_[node] >= count and instant > told:
            told = instant
            yield instant
