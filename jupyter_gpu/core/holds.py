"""Holds: which devices they keep, from whom, and when they are given back. A hold is never a lease."""

from __future__ import annotations

from ..model import BUCKET_SECONDS, Condition, HoldPolicy, Workload, World
from .placement import in_order


def is_entitled(hold: HoldPolicy, owner: str, team: str) -> bool:
    """Whether the hold is for this owner or team; nobody is entitled to maintenance."""
    return owner in hold.users or team in hold.teams


def holds_with_devices(world: World, now: float) -> list[tuple[HoldPolicy, frozenset[str]]]:
    """The holds that are not over and not given back, each with its devices; those of one instant share none.

    Named devices first, then counts take the highest indices that are left. The choice looks at all holds of the
    policy, past ones too, so it does not move when one of them ends.
    """
    taken: list[tuple[HoldPolicy, frozenset[str]]] = []
    for hold in sorted(world.policy.holds, key=lambda hold: not hold.devices):
        if hold.devices:
            uuids = frozenset(hold.devices).intersection(world.devices)
        else:
            others = {uuid for other, theirs in taken if _overlap(hold, other) for uuid in theirs}
            kin = [
                device.uuid
                for device in in_order(world)
                if hold.device_class in (None, device.device_class)
                and device.condition is not Condition.LOST
                and device.uuid not in others
            ]
            uuids = frozenset(kin[len(kin) - min(hold.count, len(kin)) :])
        taken.append((hold, uuids))
    return [(hold, uuids) for hold, uuids in taken if hold.until_at > now and not _is_given_back(world, hold, now)]


def _overlap(one: HoldPolicy, other: HoldPolicy) -> bool:
    return one.from_at < other.until_at and other.from_at < one.until_at


def _is_given_back(world: World, hold: HoldPolicy, now: float) -> bool:
    """A no-show: the time to come is over, nobody entitled is here, and none has used anything since it began."""
    if hold.no_show_seconds is None or now < hold.from_at + hold.no_show_seconds:
        return False
    if any(is_entitled(hold, it.owner, it.team) for it in world.holders()):
        return False
    begin = int(hold.from_at) // BUCKET_SECONDS
    return not any(
        used > 0
        for (owner, team, _, _), buckets in world.usage.items()
        if is_entitled(hold, owner, team)
        for bucket, used in buckets.items()
        if bucket >= begin
    )


def next_hold_at(world: World, it: Workload, now: float) -> float | None:
    """When the first hold that keeps a device of this workload from it begins; None where none does."""
    uuids = it.lease.devices if it.lease is not None else ()
    begins = [
        hold.from_at
        for hold, held in (holds_with_devices(world, now) if world.policy.holds else ())
        if not is_entitled(hold, it.owner, it.team) and held.intersection(uuids)
    ]
    return min(begins, default=None)
