"""Holds for people: the window that is under way or comes next, who is in its way, and whose they may know of."""

from __future__ import annotations

from ..model import Caller, Hold, HoldPolicy, HoldView, Window, World
from .moment import Moment
from .promises import is_entitled


def hold_views(moment: Moment, caller: Caller) -> tuple[HoldView, ...]:
    """All holds, first those that were put by a word, then those of the policy that are not over."""
    world, now = moment.world, moment.now
    put = [hold_view(moment, it, caller) for _, it in sorted(world.holds.items())]
    standing = [_of_policy(moment, it, caller) for it in world.policy.holds if it.until_at > now]
    return tuple(sorted([*put, *standing], key=lambda it: (it.from_at is None, it.from_at or 0.0)))


def hold_view(moment: Moment, it: Hold, caller: Caller) -> HoldView:
    """One that was put by a word."""
    span = next((span for span in it.windows if span.until_at > moment.now), None)
    begin = None if span is None else span.from_at
    warning = moment.in_the_way.get(it.id)
    return HoldView(
        id=it.id,
        name=it.name,
        from_at=begin,
        until_at=None if span is None else span.until_at,
        every=it.every,
        timezone=it.timezone,
        until=it.until,
        count=it.count,
        device_class=it.device_class,
        named=bool(it.devices),
        devices=it.devices or _devices(moment, it.id, begin),
        teams=it.teams,
        users=_users(moment.world, it.users, caller),
        maintenance=it.is_maintenance,
        no_show_seconds=it.no_show_seconds,
        given_back=begin is not None and begin == it.given_back,
        is_mine=_is_for(moment.world, it.users, it.teams, caller),
        by=it.by if caller.is_operator else "",
        warnings=(warning,) if warning is not None and caller.is_operator else (),
    )


def _of_policy(moment: Moment, it: HoldPolicy, caller: Caller) -> HoldView:
    uuids = next((uuids for hold, uuids in moment.promises if hold == it), None)
    return HoldView(
        id=None,
        name=it.name,
        from_at=it.from_at,
        until_at=it.until_at,
        count=it.count,
        device_class=it.device_class,
        named=bool(it.devices),
        devices=it.devices or tuple(sorted(uuids or ())),
        teams=it.teams,
        users=_users(moment.world, it.users, caller),
        maintenance=not (it.users or it.teams),
        no_show_seconds=it.no_show_seconds,
        given_back=uuids is None,
        is_mine=_is_for(moment.world, it.users, it.teams, caller),
    )


def _devices(moment: Moment, id_: int, begin: float | None) -> tuple[str, ...]:
    for window, uuids in moment.promises:
        if isinstance(window, Window) and window.hold == id_ and window.from_at == begin:
            return tuple(sorted(uuids))
    return ()


def _users(world: World, users: tuple[str, ...], caller: Caller) -> tuple[str, ...] | None:
    if not users or caller.is_operator or (world.policy.names_are_public and caller.sees_others):
        return users
    return (caller.name,) if caller.name in users else None


def _is_for(world: World, users: tuple[str, ...], teams: tuple[str, ...], caller: Caller) -> bool:
    mine = world.policy.teams_of(caller.name, caller.groups)
    hold = HoldPolicy(name="", from_at=0.0, until_at=0.0, users=users, teams=teams)
    return any(is_entitled(hold, caller.name, team) for team in mine)
