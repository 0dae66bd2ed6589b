"""The calendar: which devices are promised to whom at which time, and whether one more promise can be kept.

A promise is a window of a hold, or the time of a reservation for later. Devices that were named have no choice. All
others are chosen late: anew in each step, by what holds the devices then. Whoever starts something keeps off the
devices that are chosen at that moment, unless it is sure to have left by then; so the choice of that moment stays
possible, and with it every promise.

Windows are served in the order in which they begin. Where that leaves somebody short, those that were promised first
are served first, and who comes later bears what is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, islice
from math import inf
from typing import NamedTuple

from ..model import Device, HoldPolicy, Window, Workload, World
from .placement import in_order, is_well
from .promises import (
    NOW,
    Leaves,
    booked,
    excludes,
    is_entitled,
    is_of_the_kind,
    leaves,
    overlap,
    promised_first,
    windows_of_holds,
)

#: So many instants are tried to find one at which a promise could be kept.
MOST_TRIED = 200
#: How many choices are tried where the best for each in turn leaves somebody short, and of each promise how many.
MOST_CHOICES = 300
MOST_OPTIONS = 30

Node = tuple[str, str, str]


class Lack(NamedTuple):
    """What a promise lacks: so many devices, or the time until the last of them is there."""

    window: HoldPolicy
    uuids: frozenset[str]
    missing: int
    at: float


def worse(before: Calendar, after: Calendar) -> list[Lack]:
    """The promises that lack more than they did, or get it later."""
    known = {_key(lack.window): lack for lack in before.lacks}
    found = []
    for lack in after.lacks:
        was = known.get(_key(lack.window))
        if was is None or lack.missing > was.missing or lack.at > was.at:
            found.append(lack)
    return found


def _by_time(window: Window) -> tuple[float, tuple[int, float]]:
    return (window.from_at, promised_first(window))


class Calendar:
    """The promises of a world with their devices, as far ahead as one looks."""

    def __init__(
        self,
        world: World,
        now: float,
        fixed: Iterable[tuple[HoldPolicy, frozenset[str]]],
        *,
        more: Iterable[Window] = (),
        leaving: Mapping[int, Leaves] | None = None,
        also: Workload | None = None,
    ) -> None:
        """`fixed` are the holds of the policy with their devices, `more` is promised besides, or would be.

        `leaving` says of holders that they leave at other times than they would; `also` would hold devices as well.
        """
        self._world, self._now = world, now
        self._also = also
        self._leaving = leaving or {}
        policy = world.policy
        #: So early a notice goes out at the most; from then on what is free already is taken first.
        self.notice_seconds = policy.most_grace_seconds + policy.kill_after_seconds
        self._fixed = list(fixed)
        windows = sorted([*windows_of_holds(world, now), *booked(world, now), *more], key=promised_first)
        self._named = [it for it in windows if it.is_named]
        self._free = sorted((it for it in windows if not it.is_named), key=_by_time)
        self._devices: list[Device] | None = None
        self._known: dict[str, Leaves] = {}
        self._looked = -1
        self._left_to_try = MOST_CHOICES
        self._begin_anew()

    @property
    def is_empty(self) -> bool:
        """Whether nobody is promised anything."""
        return not (self._fixed or self._named or self._free)

    def look(self, until: float = inf) -> list[tuple[HoldPolicy, frozenset[str]]]:
        """Every promise that begins before an instant with its devices; the first of all in any case."""
        count = next((n for n, it in enumerate(self._free) if it.from_at >= until and n), len(self._free))
        # With all that are at one time with these: a choice that looks no further may leave them none.
        end = max((it.until_at for it in self._free[:count]), default=until)
        while count < len(self._free) and self._free[count].from_at < end:
            end = max(end, self._free[count].until_at)
            count += 1
        if count > self._looked:
            self._assign([*self._named, *self._free[:count]])
            self._looked = count
        return self.kept

    def uuids_of(self, window: HoldPolicy) -> frozenset[str]:
        """The devices that a promise gets now, once it was looked at."""
        return next((uuids for other, uuids in self.kept if _key(other) == _key(window)), frozenset())

    def earliest(self, window: Window, at: float) -> Window | None:
        """The same promise at the first instant from `at` on at which it could be kept beside all that is known."""
        seconds = window.until_at - window.from_at
        ends = {leave for device in self._all() for leave in self._leaves_of(device, window)}
        ends |= {block.until_at for blocks in self._blocks.values() for block in blocks}
        for begin in [at, *sorted(end for end in ends if at < end < inf)][:MOST_TRIED]:
            moved = _moved(window, begin, begin + seconds)
            found = self._choose(moved)
            if found is not None and len(found.uuids) == window.count and found.at <= begin:
                return _moved(moved, begin, begin + seconds, devices=tuple(sorted(found.uuids)))
        return None

    # -- who gets what

    def _begin_anew(self) -> None:
        self.kept: list[tuple[HoldPolicy, frozenset[str]]] = list(self._fixed)
        self.lacks: list[Lack] = []
        self._blocks: dict[str, list[HoldPolicy]] = {}
        for window, uuids in self._fixed:
            self._block(window, uuids)

    def _block(self, window: HoldPolicy, uuids: Iterable[str]) -> None:
        for uuid in uuids:
            self._blocks.setdefault(uuid, []).append(window)

    def _assign(self, windows: list[Window]) -> None:
        """Named ones, then in the order in which they begin; where somebody is short, those who were promised first."""
        if self._give_all(windows):
            return
        whole: list[Window] = []
        short: list[Window] = []
        for window in sorted(windows, key=promised_first):
            among = sorted([*whole, window], key=lambda it: (not it.is_named, *_by_time(it)))
            if self._give_all(among):
                whole = among
            else:
                short.append(window)
        self._give_all(whole)
        for window in short:
            self._give(window)

    def _give_all(self, windows: list[Window]) -> bool:
        """The best for one after the other; where that leaves one short, what else might do for those before it."""
        self._begin_anew()
        for window in windows:
            self._give(window)
        if not self.lacks or self._left_to_try <= 0:
            return not self.lacks
        best = self.kept, self.lacks, self._blocks
        self._begin_anew()
        for window in windows:
            if window.is_named:
                self._give(window)
        if not self.lacks and self._search([it for it in windows if not it.is_named]):
            return True
        self.kept, self.lacks, self._blocks = best
        return False

    def _search(self, windows: list[Window]) -> bool:
        """Whether some choice gives all of them all that they want in time; it is made then."""
        if not windows:
            return True
        window = windows[0]
        for uuids in self._options(window):
            self._left_to_try -= 1
            if self._left_to_try < 0:
                return False
            self.kept.append((window, uuids))
            self._block(window, uuids)
            if self._search(windows[1:]):
                return True
            self.kept.pop()
            for uuid in uuids:
                self._blocks[uuid].remove(window)
        return False

    def _options(self, window: Window) -> Iterator[frozenset[str]]:
        """The ways to give a promise all that it wants in time, the best first."""
        begin = max(window.from_at, self._now)
        together: dict[Node, list[_Seen]] = {}
        for it in self._all_seen(window):
            if it.at <= begin:
                node = ("", "", "") if window.ask is None else _node(it.device, window)
                together.setdefault(node, []).append(it)
        for some in sorted(together.values(), key=lambda some: [it.key for it in some]):
            for chosen in islice(combinations(some, window.count), MOST_OPTIONS):
                yield frozenset(it.device.uuid for it in chosen)

    def _give(self, window: Window) -> None:
        if window.is_named and window.ask is None:
            taken = [uuids for other, uuids in self.kept if excludes(window, other)]
            uuids = frozenset(window.devices).difference(*taken)
            self._note(window, uuids)
            self.kept.append((window, uuids))
            self._block(window, uuids)
            return
        found = self._choose(window)
        uuids, at = (frozenset[str](), window.from_at) if found is None else found
        is_late = at > max(window.from_at, self._now)
        if len(uuids) < window.count or is_late:
            self.lacks.append(Lack(window, uuids, window.count - len(uuids), at))
        # All of a reservation's devices are there together or not at all: until then nobody is made to leave.
        self.kept.append((_moved(window, at, window.until_at) if is_late and window.ask else window, uuids))
        self._block(window, uuids)

    def _note(self, window: Window, uuids: frozenset[str]) -> None:
        """Whether a hold of certain devices gets all of them, in time."""
        devices = [self._world.devices[uuid] for uuid in uuids if uuid in self._world.devices]
        at = max((min(self._leaves_of(device, window)) for device in devices), default=self._now)
        missing = len(window.devices) - len(devices)
        if missing or at > max(window.from_at, self._now):
            self.lacks.append(Lack(window, uuids, missing, at))

    def _choose(self, window: Window) -> _Choice | None:
        """The best devices for it beside what was promised already; of a hold as many as there are."""
        begin, seen = max(window.from_at, self._now), self._all_seen(window)
        if window.ask is None:
            chosen = seen[: window.count]
            return _Choice(
                frozenset(it.device.uuid for it in chosen if it.at < inf), max((it.at for it in chosen), default=begin)
            )
        together: dict[Node, list[_Seen]] = {}
        for it in seen:
            if it.at < inf:
                together.setdefault(_node(it.device, window), []).append(it)
        best = min(
            ((_worth(some, window.count), node) for node, some in together.items() if len(some) >= window.count),
            default=None,
        )
        if best is None:
            return None
        chosen = together[best[1]][: window.count]
        at = max(it.at for it in chosen)
        return _Choice(frozenset(it.device.uuid for it in chosen), at) if at < window.until_at else None

    def _all_seen(self, window: Window) -> list[_Seen]:
        """All devices that would do, the best first."""
        begin = max(window.from_at, self._now)
        is_near = window.from_at - self._now <= self.notice_seconds
        found = (self._seen(device, window, begin, is_near=is_near) for device in self._all())
        return sorted((it for it in found if it is not None), key=lambda it: it.key)

    def _seen(self, device: Device, window: Window, begin: float, *, is_near: bool) -> _Seen | None:
        """How well a device would do, the best first; None where it does not."""
        if not is_well(device) or not is_of_the_kind(device, window):
            return None
        blocks = [it for it in self._blocks.get(device.uuid, ()) if overlap(it, window)]
        if any(excludes(window, it) for it in blocks):
            return None
        holders = self._holders_of(device)
        theirs = bool(holders) and all(is_entitled(window, it.owner, it.team) for it in holders)
        itself, made = NOW if theirs else self._leaves_of(device, window)
        at = itself if itself <= begin else made
        is_late = at > begin
        ends, has_to = bool(holders) and itself <= begin, bool(holders) and itself > begin
        # Long before, what has no end yet may be taken, and what is free is left for who comes; at last what is free.
        order = (has_to, ends) if is_near else (not (ends or has_to), has_to)
        priority = max((it.priority for it in holders), default=0) if has_to else 0
        key = (
            is_late, at if is_late else 0.0, not theirs, not blocks, *order, not self._blocks.get(device.uuid),
            priority, -self._place(device),
        )  # fmt: skip
        return _Seen(key, max(at, begin), device)

    def _holders_of(self, device: Device) -> Sequence[Workload]:
        holders, also = self._world.holders_of(device.uuid), self._also
        held = also is not None and also.lease is not None and device.uuid in also.lease.devices
        return [*holders, also] if held and also is not None else holders

    def _leaves_of(self, device: Device, window: HoldPolicy) -> Leaves:
        """When all are gone from a device who are not entitled to what is promised there."""
        known = self._known.get(device.uuid)
        if known is None or window.users or window.teams:
            others = [it for it in self._holders_of(device) if not is_entitled(window, it.owner, it.team)]
            gone = [self._leaving.get(it.id) or leaves(self._world, it, self._now) for it in others]
            known = Leaves(max((it.itself for it in gone), default=0.0), max((it.made for it in gone), default=0.0))
            if not (window.users or window.teams):
                self._known[device.uuid] = known
        return known

    def _all(self) -> list[Device]:
        if self._devices is None:
            self._devices = in_order(self._world)
            self._places = {device.uuid: place for place, device in enumerate(self._devices)}
        return self._devices

    def _place(self, device: Device) -> int:
        return self._places[device.uuid]


class _Choice(NamedTuple):
    uuids: frozenset[str]
    at: float


class _Seen(NamedTuple):
    key: tuple[float, ...]
    at: float
    device: Device


def _worth(some: list[_Seen], count: int) -> tuple[float, ...]:
    """Of a node: how good the worst of its devices is that would be taken, and how many would be left over."""
    return (*some[count - 1].key[:-2], len(some))


def _node(device: Device, window: Window) -> Node:
    link = device.link_group or device.uuid if window.ask is not None and window.ask.same_link_group else ""
    return (device.pool, device.node, link)


def _key(window: HoldPolicy) -> tuple[object, ...]:
    """By what a promise is known: of a hold also by its beginning, which of a reservation may move."""
    if not isinstance(window, Window):
        return (window.name, window.from_at)
    return (window.hold, window.workload, window.from_at if window.workload is None else None)


def _moved(window: Window, begin: float, end: float, *, devices: tuple[str, ...] | None = None) -> Window:
    return Window(
        name=window.name,
        from_at=begin,
        until_at=end,
        devices=window.devices if devices is None else devices,
        count=window.count,
        device_class=window.device_class,
        users=window.users,
        teams=window.teams,
        hold=window.hold,
        workload=window.workload,
        ask=window.ask,
        owner=window.owner,
        team=window.team,
    )
