"""What an ask by a profile would come to now, as a dry run finds it: not what a page could guess of devices."""

from __future__ import annotations

from typing import NamedTuple

from ..errors import GpuError
from ..model import (
    Ask,
    Caller,
    Holder,
    Kind,
    OfferView,
    Profile,
    QuotaRule,
    State,
    Submit,
    WaitingReason,
    Workload,
    World,
)
from ..units import format_at, format_seconds, hours_apart
from .dry_run import would_be
from .forecast import ahead_of
from .outlook import expected_start_at
from .placement import has_room, is_well, suits
from .quota import HOUR_MS, Ledger, available_again_at, bind
from .sentences import why
from .status import profile_view


def offer(
    world: World, profile: Profile, caller: Caller, now: float, *, team: str | None = None, blind: bool = False
) -> OfferView:
    """What the caller would get, counted for a team of theirs; a refusal is an answer too."""
    shown = profile_view(profile)
    if profile.devices == 0:
        return OfferView(profile=shown, starts_now=True)
    command = Submit(
        kind=Kind.RESERVATION,
        owner=caller.name,
        groups=caller.groups,
        team=team,
        ask=Ask(),
        profile=profile.name,
        holder=Holder(kind="server" if profile.for_servers else "kernel", name=""),
        blind=blind,
    )
    try:
        after, (it, *_), evicts = would_be(world, command, now)
    except GpuError as error:
        body = error.to_body()
        return OfferView(profile=shown, starts_now=False, refused=body["message"] or "", hint=body.get("hint") or "")
    ahead = ahead_of(after, it) if it.state is State.QUEUED else None
    at = None if ahead is None else expected_start_at(after, it, now, ahead)
    over = _over(after, it, now) if it.waiting in (WaitingReason.QUOTA, WaitingReason.BUDGET) else None
    kin = [device for device in world.devices.values() if suits(device, it.ask)]
    return OfferView(
        profile=shown,
        starts_now=it.state is State.ACTIVE,
        waiting=it.waiting if it.state is State.QUEUED else None,
        ahead=ahead,
        expected_start_at=at,
        yielding=len(evicts),
        why=over[0] if over else "" if ahead is None else why(after, it, caller, now, says_when=at is None),
        never=over is not None and over[1],
        free=sum(1 for device in kin if is_well(device) and has_room(world, device, it.ask)),
        kin=len(kin),
    )


def _over(world: World, it: Workload, now: float) -> tuple[str, bool]:
    """Which bound an ask is beyond, in a sentence, and whether that is for good; what is for good goes first."""
    ledger = Ledger(world, now)
    bounds = [
        (rule, number, binding)
        for number, rule in enumerate(world.policy.bounds)
        if (binding := bind(number, rule, it.owner, it.team, it.queue, it.ask.device_class)) is not None
    ]
    for rule, _, _ in bounds:
        if rule.devices is not None and it.ask.devices > rule.devices:
            who = _who(rule, it)
            return (
                f"{who.name} may have {_gpus(rule.devices)} at once{who.where}, and this takes {it.ask.devices}.",
                True,
            )
    for rule, number, binding in bounds:
        said = _held(rule, it, ledger.held(binding)) or _spent(rule, it, ledger.spent_ms(number, binding))
        if said:
            at = None if it.waiting is WaitingReason.QUOTA else available_again_at(world, number, binding, now)
            return said if at is None else f"{said} Some are available again {format_at(at, now)}.", False
    return f"Your team {it.team} holds all that is its own.", False


class _Who(NamedTuple):
    """Whom a bound is of, as its asker reads it: "You hold", "Your team vision holds"."""

    name: str
    hold: str
    have: str
    #: Like " in queue interactive".
    where: str


def _who(rule: QuotaRule, it: Workload) -> _Who:
    parts = ((" in queue ", rule.queue and it.queue), (" of class ", rule.device_class and it.ask.device_class))
    where = "".join(f"{word}{name}" for word, name in parts if name)
    if rule.user is not None:
        return _Who("You", "hold", "have", where)
    if rule.team is not None:
        return _Who(f"Your team {it.team}", "holds", "has", where)
    return _Who("All users together", "hold", "have", where)


def _held(rule: QuotaRule, it: Workload, held: int) -> str:
    if it.waiting is not WaitingReason.QUOTA or rule.devices is None or held + it.ask.devices <= rule.devices:
        return ""
    who = _who(rule, it)
    allowed = f"the {_gpus(rule.devices)} allowed at once{who.where}"
    return f"{who.name} {who.hold} {held} of {allowed}, and this takes {it.ask.devices}."


def _spent(rule: QuotaRule, it: Workload, spent_ms: int) -> str:
    if it.waiting is not WaitingReason.BUDGET or rule.gpu_hours is None:
        return ""
    price_ms = it.ask.devices * (it.ask.duration_seconds or 0) * 1000
    left_ms = max(0, rule.gpu_hours * HOUR_MS - spent_ms)
    if price_ms and price_ms <= left_ms:
        return ""
    who, window = _who(rule, it), f"in {format_seconds(rule.window_seconds, parts=1)}"
    price, left = hours_apart(price_ms, left_ms)
    hours = "1 GPU-hour" if rule.gpu_hours == 1 else f"{rule.gpu_hours} GPU-hours"
    allowed = f"{hours} allowed {window}{who.where}"
    return f"{who.name} {who.have} {left} of the {allowed} left, and this takes {price}."


def _gpus(count: int) -> str:
    return f"{count} GPU{'' if count == 1 else 's'}"
