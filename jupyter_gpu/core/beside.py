"""Room beside the promises: on devices that are meant for somebody who can as well have others.

The calendar chooses devices for each promise anew in each step, and who starts something keeps off those. Where nothing
else is left, what decides is not which devices were chosen, but whether every promise can be kept beside the start. Of
what begins within the longest notice the choice stands, since those who hold devices would be told too late.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from msgspec.structs import replace

from ..model import Lease, State, Window, Workload, World
from .calendar import Calendar, worse
from .holds import Kept, calendar_of, is_for
from .placement import Room

#: So many choices of devices are tried for one who waits, and for all in one step: each of them is a calendar.
MOST_CHOICES = 8
MOST_IN_A_STEP = 64


class Beside:
    """What one step tries beside the promises."""

    def __init__(self, world: World, kept: Kept, now: float) -> None:
        """Nothing was tried yet."""
        self._world, self._kept, self._now = world, kept, now
        self._left = MOST_IN_A_STEP

    def place(self, it: Workload, open_room: Callable[[Collection[str]], Room]) -> tuple[str, ...] | None:
        """Devices on which it may start, with every promise kept by others; `open_room` heeds no promises but these."""
        gone_by = self._now + self._kept.sure_to_be_gone_after(it)
        calendar = self._kept.calendar()
        calendar.look(gone_by)
        if calendar.lacks:
            return None
        soon = self._now + calendar.notice_seconds
        others = [(hold, uuids) for hold, uuids in calendar.kept if hold.from_at < gone_by and not is_for(hold, it)]
        chosen = {uuid for _, uuids in others for uuid in uuids}
        barred = {
            uuid
            for hold, uuids in others
            for uuid in uuids.union(hold.devices)
            if not isinstance(hold, Window) or hold.is_named or self._now < hold.from_at <= soon
        }
        for _ in range(MOST_CHOICES if chosen - barred else 0):
            uuids = open_room(barred).place(it.previous_devices)
            if not uuids or self._left == 0:
                return None
            self._left -= 1
            if self._can_all_be_kept(calendar, it, uuids, gone_by):
                return uuids
            barred |= chosen.intersection(uuids)
        return None

    def _can_all_be_kept(self, before: Calendar, it: Workload, uuids: tuple[str, ...], until: float) -> bool:
        """Whether nobody gets less or later once it holds these."""
        seconds = it.ask.duration_seconds
        lease = Lease(
            devices=uuids,
            pool=self._world.devices[uuids[0]].pool,
            granted_at=self._now,
            ends_at=None if seconds is None else self._now + seconds,
        )
        held = replace(it, state=State.ACTIVE, lease=lease, active_at=self._now, outcome=None, waiting=None)
        after = calendar_of(self._world, self._now, also=held)
        after.look(until)
        return not worse(before, after)
