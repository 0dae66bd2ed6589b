"""The calendar: which devices are promised to whom at which time, and whether one more promise can be kept.

A promise is a window of a hold, or the time of a reservation for later. Devices that were named have no choice. All
others are chosen late: anew in each step, by what holds the devices then. Whoever starts something keeps off the
devices that are chosen at that moment, unless it is sure to have left by then; so the choice of that moment stays
possible, and with it every promise.

Windows are served in the order in which they begin. Where that leaves somebody short, those that were promised first
are served first, and who comes later bears what is missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations, islice
from math import inf
from operator import itemgetter
from typing import NamedTuple

from ..model import HoldPolicy, Window, Workload, World
from .devices_then import Candidate, DevicesThen, Node, instants, openings
from .promises import (
    NOW,
    Leaves,
    booked,
    excludes,
    is_entitled,
    may_share,
    promised_first,
    windows_of_holds,
)

#: So many instants at which a promise seems to have room are looked at, to find one that has.
MOST_TRIED = 4
#: How many choices are tried where the best for each in turn leaves somebody short, and of each promise how many.
MOST_CHOICES = 300
MOST_OPTIONS = 30
#: How many devices are looked at, each time anew, for what the best for each in turn did not find.
MOST_LOOKS = 5_000


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
        then: DevicesThen | None = None,
    ) -> None:
        """`fixed` are the holds of the policy with their devices, `more` is promised besides, or would be.

        `leaving` says of holders that they leave at other times than they would; `also` would hold devices as well.
        `then` is what another calendar of this moment has found out about the devices.
        """
        self._world, self._now = world, now
        self._then = then or DevicesThen(world, now, leaving or {}, also)
        policy = world.policy
        #: So early a notice goes out at the most; from then on what is free already is taken first.
        self.notice_seconds = policy.most_grace_seconds + policy.kill_after_seconds
        self._fixed = list(fixed)
        windows = sorted([*windows_of_holds(world, now), *booked(world, now), *more], key=promised_first)
        self._named = [it for it in windows if it.is_named]
        self._free = sorted((it for it in windows if not it.is_named), key=_by_time)
        self._looked = -1
        self._left_to_try, self._last_look = MOST_CHOICES, inf
        self._begin_anew()

    def beside(self, more: Iterable[Window]) -> Calendar:
        """What is promised, and this besides; with all that is known about the devices already."""
        return Calendar(self._world, self._now, self._fixed, more=more, then=self._then)

    @property
    def is_empty(self) -> bool:
        """Whether nobody is promised anything."""
        return not (self._fixed or self._named or self._free)

    @property
    def looks(self) -> int:
        """How many devices were looked at so far, each time anew: by this calendar, and by those it was made beside."""
        return self._then.taken

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

    def earliest(self, window: Window, at: float) -> Window | None:
        """The same promise at the first instant from `at` on at which it could be kept beside all that is known."""
        seconds = window.until_at - window.from_at
        for begin in islice(self._instants(window, at, seconds), MOST_TRIED):
            moved = _moved(window, begin, begin + seconds)
            uuids = self.room_for(moved)
            if uuids:
                return _moved(moved, begin, begin + seconds, devices=tuple(sorted(uuids)))
        return None

    def room_for(self, window: Window) -> frozenset[str]:
        """The devices that it could have, in time, beside all that are promised by now; none if they are too few."""
        found = self._choose(window)
        is_whole = found is not None and len(found.uuids) == window.count
        return found.uuids if found is not None and is_whole and found.at <= window.from_at else frozenset()

    def most_beside(self, window: Window) -> int:
        """How many devices of one node are there for it in time, beside all that are promised by now."""
        together = Counter(it.node for it in self._all_seen(window) if it.at <= max(window.from_at, self._now))
        return max(together.values(), default=0)

    def keep(self, window: Window) -> None:
        """Promise besides what was found for it just now."""
        self.kept.append((window, frozenset(window.devices)))
        self._block(window, window.devices)

    def _instants(self, window: Window, at: float, seconds: float) -> Iterator[float]:
        spans: list[tuple[Node, tuple[float, float]]] = []
        for it in self._then.for_(window):
            first = max(at, min(self._then.leaves_of(it.uuid, window)))
            blocks = [block for block in self._blocks.get(it.uuid, ()) if not may_share(window, block)]
            spans += [(it.node, span) for span in openings(first, seconds, blocks)]
        return instants(spans, window.count)

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
        self._last_look = inf
        if self._give_all(windows):
            return
        whole: list[Window] = []
        short: list[Window] = []
        left = sorted(windows, key=promised_first)
        while left and self._may_look_on():
            fits = self._most_that_fit(whole, left)
            whole = [*whole, *left[:fits]]
            short += left[fits : fits + 1]
            left = left[fits + 1 :]
        self._give_all(_in_turn(whole))
        for window in [*short, *left]:
            self._give(window)

    def _most_that_fit(self, whole: list[Window], left: list[Window]) -> int:
        """How many of these, first to last, can be given all beside the others: by halves, so few are tried."""
        if self._give_all(_in_turn([*whole, *left])):
            return len(left)
        fits, too_many = 0, len(left)
        while too_many - fits > 1 and self._may_look_on():
            middle = (fits + too_many) // 2
            if self._give_all(_in_turn([*whole, *left[:middle]])):
                fits = middle
            else:
                too_many = middle
        return fits

    def _may_look_on(self) -> bool:
        return self._then.taken < self._last_look

    def _give_each(self, windows: Iterable[Window]) -> None:
        self._begin_anew()
        for window in windows:
            self._give(window)

    def _give_all(self, windows: list[Window]) -> bool:
        """The best for one after the other; where that leaves one short, what else might do for those before it."""
        self._give_each(windows)
        if self.lacks and self._last_look == inf:
            self._last_look = self._then.taken + MOST_LOOKS
        if not self.lacks or self._left_to_try <= 0 or not self._may_look_on():
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
            if self._left_to_try < 0 or not self._may_look_on():
                return False
            self.kept.append((window, uuids))
            self._block(window, uuids)
            if self._search(windows[1:]):
                return True
            self.kept.pop()
            for uuid in uuids:
                self._blocks[uuid].pop()
        return False

    def _options(self, window: Window) -> Iterator[frozenset[str]]:
        """The ways to give a promise all that it wants in time, the best first."""
        begin = max(window.from_at, self._now)
        together: dict[Node, list[_Seen]] = {}
        for it in self._all_seen(window):
            if it.at <= begin:
                together.setdefault(_ANYWHERE if window.ask is None else it.node, []).append(it)
        for some in sorted(together.values(), key=lambda some: [it.key for it in some]):
            for chosen in islice(combinations(some, window.count), MOST_OPTIONS):
                yield frozenset(it.uuid for it in chosen)

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
        devices = [uuid for uuid in uuids if uuid in self._world.devices]
        at = max((min(self._then.leaves_of(uuid, window)) for uuid in devices), default=self._now)
        missing = len(window.devices) - len(devices)
        if missing or at > max(window.from_at, self._now):
            self.lacks.append(Lack(window, uuids, missing, at))

    def _choose(self, window: Window) -> _Choice | None:
        """The best devices for it beside what was promised already; of a hold as many as there are."""
        begin, seen = max(window.from_at, self._now), self._all_seen(window)
        if window.ask is None:
            chosen = seen[: window.count]
            return _Choice(
                frozenset(it.uuid for it in chosen if it.at < inf), max((it.at for it in chosen), default=begin)
            )
        together: dict[Node, list[_Seen]] = {}
        for it in seen:
            if it.at < inf:
                together.setdefault(it.node, []).append(it)
        best = min(
            ((_worth(some, window.count), node) for node, some in together.items() if len(some) >= window.count),
            default=None,
        )
        if best is None:
            return None
        chosen = together[best[1]][: window.count]
        at = max(it.at for it in chosen)
        return _Choice(frozenset(it.uuid for it in chosen), at) if at < window.until_at else None

    def _all_seen(self, window: Window) -> list[_Seen]:
        """All devices that would do, the best first."""
        begin = max(window.from_at, self._now)
        is_near = window.from_at - self._now <= self.notice_seconds
        from_at, until_at = window.from_at, window.until_at
        found: list[_Seen] = []
        for it in self._then.for_(window):
            known = self._blocks.get(it.uuid)
            blocks = (
                [block for block in known if block.from_at < until_at and from_at < block.until_at] if known else ()
            )
            if blocks and any(not may_share(window, block) for block in blocks):
                continue
            if it.holders:
                found.append(
                    self._seen_held(it, window, begin, has_blocks=(bool(blocks), bool(known)), is_near=is_near)
                )
            else:
                found.append(
                    _Seen(
                        (False, 0.0, True, not blocks, not is_near, False, not known, 0, -it.place),
                        begin,
                        it.uuid,
                        it.node,
                    )
                )
        return sorted(found, key=itemgetter(0))

    def _seen_held(
        self, it: Candidate, window: Window, begin: float, *, has_blocks: tuple[bool, bool], is_near: bool
    ) -> _Seen:
        """How well a device would do that is held now."""
        theirs = all(is_entitled(window, holder.owner, holder.team) for holder in it.holders)
        itself, made = NOW if theirs else self._then.leaves_of(it.uuid, window)
        at = itself if itself <= begin else made
        is_late = at > begin
        ends, has_to = itself <= begin, itself > begin
        # Long before, what has no end yet may be taken, and what is free is left for who comes; at last what is free.
        order = (has_to, ends) if is_near else (False, has_to)
        priority = max(holder.priority for holder in it.holders) if has_to else 0
        meanwhile, ever = has_blocks
        key = (is_late, at if is_late else 0.0, not theirs, not meanwhile, *order, not ever, priority, -it.place)
        return _Seen(key, max(at, begin), it.uuid, it.node)


class _Choice(NamedTuple):
    uuids: frozenset[str]
    at: float


class _Seen(NamedTuple):
    """A device for a promise; those that do better come first."""

    key: tuple[float, ...]
    at: float
    uuid: str
    node: Node


#: A hold takes its devices wherever they are.
_ANYWHERE: Node = ("", "", "")


def _in_turn(windows: Iterable[Window]) -> list[Window]:
    return sorted(windows, key=lambda it: (not it.is_named, *_by_time(it)))


def _worth(some: list[_Seen], count: int) -> tuple[float, ...]:
    """Of a node: how good the worst of its devices is that would be taken, and how many would be left over."""
    return (*some[count - 1].key[:-2], len(some))


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
