"""What keeps devices from a promise, in words: who has them, who was promised them, what is wrong with them."""

from __future__ import annotations

from math import inf

from ..model import Device, HoldPolicy, Window, Workload, World
from ..units import format_when
from .calendar import Calendar, Lack
from .holds import calendar_of, is_for
from .placement import in_order, is_well
from .promises import excludes, is_of_the_kind, leaves

#: Others named in one sentence; the rest is counted.
MOST_NAMED = 3


def in_the_way(world: World, calendar: Calendar, window: Window, now: float) -> str:
    """Like "GPU 0 is held by reservation 7 until 11:30, GPU 1 is promised to hold 9 (ml101) from 10:00 to 12:00"."""
    promised: dict[str, HoldPolicy] = {}
    for other, uuids in calendar.kept:
        if excludes(window, other) and not _is_same(other, window):
            for uuid in uuids:
                promised.setdefault(uuid, other)
    found = []
    for device in in_order(world):
        if is_of_the_kind(device, window):
            holder = _still_there(world, device, window, now)
            if holder or device.uuid in promised or not is_well(device):
                found.append((device, holder, promised.get(device.uuid)))
    parts = [_why_not(world, *one, now) for one in found[:MOST_NAMED]]
    more = len(found) - MOST_NAMED
    return ", ".join(parts) + (f" and {more} more" if more > 0 else "")


def _still_there(world: World, device: Device, window: Window, now: float) -> Workload | None:
    at = max(window.from_at, now)
    stay = (it for it in world.holders_of(device.uuid) if not is_for(window, it) and min(leaves(world, it, now)) > at)
    return next(stay, None)


def _why_not(world: World, device: Device, holder: Workload | None, other: HoldPolicy | None, now: float) -> str:
    if holder is not None and is_well(device):
        gone = min(leaves(world, holder, now))
        until = f"until {format_when(gone, now)}" if gone < inf else "without a stated end"
        return f"{device.title} is held by {holder.kind} {holder.id} {until}"
    if other is None or not is_well(device):
        return f"{device.title} is out of use"
    begin, end = format_when(other.from_at, now), format_when(other.until_at, now)
    return f"{device.title} is promised to {named(other)} from {begin} to {end}"


def _is_same(one: HoldPolicy, other: Window) -> bool:
    return isinstance(one, Window) and (one.hold, one.workload) == (other.hold, other.workload)


def named(window: HoldPolicy) -> str:
    """Whose a promise is: "reservation 7", "hold 9 (ml101)", or by the name in the policy."""
    if isinstance(window, Window) and window.workload is not None:
        return f"reservation {window.workload}"
    if isinstance(window, Window) and window.hold is not None:
        return f"hold {window.hold} ({window.name})"
    return f"the hold {window.name} of the policy"


def warnings_of(world: World, now: float) -> dict[int, str]:
    """Of holds and reservations for later, by their ids: what the first time lacks that cannot be kept, and why."""
    if not (world.holds or world.booked):
        return {}
    calendar = calendar_of(world, now)
    calendar.look()
    said: dict[int, str] = {}
    for lack in sorted(calendar.lacks, key=lambda lack: lack.window.from_at):
        if isinstance(lack.window, Window):
            said.setdefault(lack.window.hold or lack.window.workload or 0, _sentence(world, calendar, lack, now))
    return said


def _sentence(world: World, calendar: Calendar, lack: Lack, now: float) -> str:
    window = lack.window
    if not isinstance(window, Window):
        return ""
    wanted = max(window.count, len(window.devices))
    why = in_the_way(world, calendar, window, now)
    begin = format_when(max(window.from_at, now), now)
    there = f"{wanted - lack.missing} of {wanted} GPUs are there" if lack.missing else ""
    late = f"the last of them is there at {format_when(lack.at, now)}" if window.from_at < lack.at < inf else ""
    what = ", and ".join(filter(None, (there, late))) or "its GPUs are not there"
    return f"For {begin} {what}{f': {why}' if why else ''}."
