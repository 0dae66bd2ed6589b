"""The calendar: which devices are promised to whom at which time, and whether one more promise can be kept.

A promise is a window of a hold, or the time of a reservation for later. Devices that were named have no choice. All
others are chosen late: anew in each step, by what holds the devices then. Whoever starts something keeps off the
devices that are chosen at that moment, unless it is sure to have left by then; so the choice of that moment stays
possible, and with it every promise.

Windows are served in the order in which they begin. Where that leaves somebody short, those that were promised first
are served first, and who comes later bears what is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import NamedTuple

from ..model import Condition, Device, HoldPolicy, Kind, State, Window, Workload, World
from .placement import in_order, is_well, suits
from .victims import grace_seconds, has_reached_the_cap, is_in_overtime

#: For how many of those that wait in line a place is kept, and how many instants are tried to find one.
MOST_WAITING = 50
MOST_TRIED = 200

Node = tuple[str, str, str]


class Leaves(NamedTuple):
    """When a device is empty: if its holders end as they said, and if they are made to leave as soon as they may be."""

    itself: float
    made: float


NOW = Leaves(0.0, 0.0)
NEVER = Leaves(inf, inf)


class Lack(NamedTuple):
    """What a promise lacks: so many devices, or the time until the last of them is there."""

    window: HoldPolicy
    uuids: frozenset[str]
    missing: int
    at: float


def is_entitled(hold: HoldPolicy, owner: str, team: str) -> bool:
    """Whether the hold is for this owner or team; nobody is entitled to maintenance."""
    return owner in hold.users or team in hold.teams


def overlap(one: HoldPolicy, other: HoldPolicy) -> bool:
    """Whether two are at one time."""
    return one.from_at < other.until_at and other.from_at < one.until_at


def leaves(world: World, it: Workload, now: float) -> Leaves:
    """When a holder is gone, by what it stated and by what it may be made to do. What states no end has none."""
    if it.outcome is not None or it.lease is None:
        return Leaves(now, now)
    policy, queue = world.policy, world.policy.queue(it.queue)
    after = grace_seconds(policy, queue, it) + policy.kill_after_seconds
    if it.state is State.YIELDING:
        by = max(now, it.yield_by or now) + policy.kill_after_seconds
        return Leaves(by, by)
    if is_in_overtime(it, now):
        return Leaves(inf, now + after)
    return leaves_at(world, it, inf if it.lease.ends_at is None else it.lease.ends_at, now)


def leaves_at(world: World, it: Workload, ends_at: float, now: float) -> Leaves:
    """The same if its lease were to end then."""
    if it.kind is Kind.RESERVATION:
        return Leaves(ends_at, ends_at)
    policy, queue = world.policy, world.policy.queue(it.queue)
    after = grace_seconds(policy, queue, it) + policy.kill_after_seconds
    itself = ends_at + after
    if queue is None or not queue.preemptible or has_reached_the_cap(world, it, now):
        return Leaves(itself, itself)
    settled = now if it.active_at is None else it.active_at + queue.protected_seconds
    return Leaves(itself, min(itself, max(now, settled) + after))


def window_of(it: Workload) -> Window:
    """The time of a reservation for later."""
    begin = it.not_before or 0.0
    return Window(
        name=it.title,
        from_at=begin,
        until_at=begin + (it.ask.duration_seconds or 0),
        devices=it.ask.on if len(set(it.ask.on)) == it.ask.devices else (),
        count=it.ask.devices,
        device_class=it.ask.device_class,
        workload=it.id,
        ask=it.ask,
        owner=it.owner,
        team=it.team,
    )


def windows_of_holds(world: World, now: float) -> Iterator[Window]:
    """The windows of the holds that were put by a word, without those that are over or were given back."""
    for _, it in sorted(world.holds.items()):
        for span in it.windows:
            if span.until_at > now and span.from_at != it.given_back:
                yield Window(
                    name=it.name,
                    from_at=span.from_at,
                    until_at=span.until_at,
                    devices=it.devices,
                    count=it.count,
                    device_class=it.device_class,
                    users=it.users,
                    teams=it.teams,
                    hold=it.id,
                )


def booked(world: World, now: float) -> Iterator[Window]:
    """The reservations for later whose time is not over."""
    for id_ in sorted(world.booked):
        window = window_of(world.workloads[id_])
        if window.until_at > now:
            yield window


def promised_first(window: HoldPolicy) -> tuple[int, float]:
    """By what was promised first; what stands in the policy goes before all."""
    number = (window.hold or window.workload or 0) if isinstance(window, Window) else 0
    return (number, window.from_at)


def worse(before: Calendar, after: Calendar) -> list[Lack]:
    """The promises that lack more than they did, or get it later."""
    known = {_key(lack.window): lack for lack in before.lacks}
    found = []
    for lack in after.lacks:
        was = known.get(_key(lack.window))
        if was is None or lack.missing > was.missing or lack.at > was.at:
            found.append(lack)
    return found


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
    ) -> None:
        """`fixed` are the holds of the policy with their devices, `more` is promised besides, or would be.

        `leaving` says of holders that they leave at other times than they would.
        """
        self._world, self._now = world, now
        self._leaving = leaving or {}
        policy = world.policy
        #: So early a notice goes out at the most; from then on what is free already is taken first.
        self.notice_seconds = policy.most_grace_seconds + policy.kill_after_seconds
        self._fixed = list(fixed)
        windows = sorted([*windows_of_holds(world, now), *booked(world, now), *more], key=promised_first)
        for window in windows:
            if window.is_named:
                taken = [uuids for other, uuids in self._fixed if excludes(window, other)]
                self._fixed.append((window, frozenset(window.devices).difference(*taken)))
        self._free = sorted((it for it in windows if not it.is_named), key=lambda it: (it.from_at, promised_first(it)))
        self._devices: list[Device] | None = None
        self._known: dict[str, Leaves] = {}
        self._looked = 0
        self._begin_anew()

    @property
    def is_empty(self) -> bool:
        """Whether nobody is promised anything."""
        return not (self._fixed or self._free)

    def look(self, until: float = inf) -> list[tuple[HoldPolicy, frozenset[str]]]:
        """Every promise that begins before an instant with its devices; the first of all in any case."""
        count = next((n for n, it in enumerate(self._free) if it.from_at >= until and n), len(self._free))
        if count > self._looked:
            self._assign(self._free[:count])
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
            self._note(window, uuids)
            for uuid in uuids:
                self._blocks.setdefault(uuid, []).append(window)

    def _assign(self, windows: list[Window]) -> None:
        """In the order in which they begin; where somebody is short then, those before who were promised first."""
        if self._give_all(windows):
            return
        whole: list[Window] = []
        short: list[Window] = []
        for window in sorted(windows, key=promised_first):
            among = sorted([*whole, window], key=lambda it: (it.from_at, promised_first(it)))
            if self._give_all(among):
                whole = among
            else:
                short.append(window)
        self._give_all(whole)
        for window in short:
            self._give(window)

    def _give_all(self, windows: list[Window]) -> bool:
        self._begin_anew()
        short = len(self.lacks)
        for window in windows:
            self._give(window)
        return len(self.lacks) == short

    def _give(self, window: Window) -> None:
        found = self._choose(window)
        uuids, at = (frozenset[str](), window.from_at) if found is None else found
        is_late = at > max(window.from_at, self._now)
        if len(uuids) < window.count or is_late:
            self.lacks.append(Lack(window, uuids, window.count - len(uuids), at))
        # All of a reservation's devices are there together or not at all: until then nobody is made to leave.
        self.kept.append((_moved(window, at, window.until_at) if is_late and window.ask else window, uuids))
        for uuid in uuids:
            self._blocks.setdefault(uuid, []).append(window)

    def _note(self, window: HoldPolicy, uuids: frozenset[str]) -> None:
        """Whether one with devices of its own gets all of them, in time."""
        if not isinstance(window, Window):
            return
        devices = [self._world.devices[uuid] for uuid in uuids if uuid in self._world.devices]
        if window.hold is None:
            devices = [device for device in devices if is_well(device)]
        at = max((min(self._leaves_of(device, window)) for device in devices), default=self._now)
        missing = max(window.count, len(window.devices)) - len(devices)
        if missing or at > max(window.from_at, self._now):
            self.lacks.append(Lack(window, uuids, missing, at))

    def _choose(self, window: Window) -> _Choice | None:
        """The best devices for it beside what was promised already; of a hold as many as there are."""
        begin = max(window.from_at, self._now)
        is_near = window.from_at - self._now <= self.notice_seconds
        found = [self._seen(device, window, begin, is_near=is_near) for device in self._all()]
        seen = sorted((it for it in found if it is not None), key=lambda it: it.key)
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

    def _seen(self, device: Device, window: Window, begin: float, *, is_near: bool) -> _Seen | None:
        """How well a device would do, the best first; None where it does not."""
        if not is_well(device) or not is_of_the_kind(device, window):
            return None
        blocks = [it for it in self._blocks.get(device.uuid, ()) if overlap(it, window)]
        if any(excludes(window, it) for it in blocks):
            return None
        holders = self._world.holders_of(device.uuid)
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

    def _leaves_of(self, device: Device, window: HoldPolicy) -> Leaves:
        """When all are gone from a device who are not entitled to what is promised there."""
        known = self._known.get(device.uuid)
        if known is None or window.users or window.teams:
            others = [it for it in self._world.holders_of(device.uuid) if not is_entitled(window, it.owner, it.team)]
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


def is_of_the_kind(device: Device, window: Window) -> bool:
    """Whether a device could serve a promise, whatever its state."""
    if window.devices:
        return device.uuid in window.devices
    if window.ask is not None:
        return suits(device, window.ask)
    return window.device_class in (None, device.device_class) and device.condition is not Condition.LOST


def excludes(one: HoldPolicy, other: HoldPolicy) -> bool:
    """Whether two cannot have one device. A reservation for later may stand in a hold that is for its owner."""
    return overlap(one, other) and not (_stands_in(one, other) or _stands_in(other, one))


def _stands_in(one: HoldPolicy, hold: HoldPolicy) -> bool:
    return isinstance(one, Window) and one.ask is not None and is_entitled(hold, one.owner, one.team)


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
