"""Which rule keeps an ask from its devices: now, with what is held and used of it, or for ever."""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import LimitExceeded
from ..model import Ask, Kind, QuotaRule, WaitingReason, Workload, World
from ..units import bytes_apart, format_hours, format_seconds, hours_apart
from .bounds import HOUR_MS, Binding, bind
from .quota import Ledger

#: Owner, team and queue.
Whose = tuple[str, str, str]


def refuse_what_no_quota_allows(world: World, whose: Whose, kind: Kind, ask: Ask) -> None:
    """Raise LimitExceeded where an ask would wait for ever: it does not fit into its rules while they are unused."""
    beyond = beyond_for_ever(world, whose, kind, ask)
    if beyond is not None:
        raise LimitExceeded(
            beyond, hint="`jupyter gpu quota` shows the bounds. Ask for less, or ask an admin for another quota."
        )


def beyond_for_ever(world: World, whose: Whose, kind: Kind, ask: Ask) -> str | None:
    """Like "5 GPUs are more than 4 GPUs at once, the quota of each user"; None where it fits one day."""
    if not ask.devices:
        return None
    for _, rule, _ in _binding(world, whose, None):
        said = _beyond(rule, kind, ask)
        if said is not None:
            return said
    found = None
    for name in _classes(world, ask):
        found = next((it for _, rule, _ in _binding(world, whose, name) if (it := _beyond(rule, kind, ask))), None)
        if found is None:
            return None  # of this class it may have them
    return found


def _classes(world: World, ask: Ask) -> tuple[str, ...]:
    """The device classes that may serve an ask."""
    if ask.device_class is not None:
        return (ask.device_class,)
    return tuple(dict.fromkeys(world.devices[it].device_class for it in ask.on)) or world.layout.classes


def _binding(world: World, whose: Whose, device_class: str | None) -> Iterator[tuple[int, QuotaRule, Binding]]:
    for number, rule in enumerate(world.policy.bounds):
        binding = bind(number, rule, *whose, device_class)
        if binding is not None:
            yield number, rule, binding


def _beyond(rule: QuotaRule, kind: Kind, ask: Ask) -> str | None:
    """Why an ask is beyond a rule of which nothing is held or used."""
    count = _gpus(ask.devices)
    are = "is" if ask.devices == 1 else "are"
    if rule.devices is not None and ask.devices > rule.devices:
        return f"{count} {are} more than {_gpus(rule.devices)} at once, the quota of {rule.title}"
    wanted = ask.devices * (ask.memory_bytes or 0)
    if rule.memory_bytes is not None and wanted > rule.memory_bytes:
        text, most = bytes_apart(wanted, rule.memory_bytes)
        return f"{text} of shared GPUs' memory are more than {most} at once, the quota of {rule.title}"
    if rule.gpu_hours is None:
        return None
    window = f"in {format_seconds(rule.window_seconds)}"
    if rule.gpu_hours == 0:
        return f"there are no GPU-hours {window} in the quota of {rule.title}"
    length = ask.duration_seconds if kind is Kind.RESERVATION else None
    if length is None or ask.devices * length * 1000 <= rule.gpu_hours * HOUR_MS:
        return None
    cost, most = hours_apart(ask.devices * length * 1000, rule.gpu_hours * HOUR_MS)
    return (
        f"{count} for {format_seconds(length)} come to {cost} GPU-hours, more than {most} {window}, "
        f"the quota of {rule.title}"
    )


def _gpus(count: int) -> str:
    return f"{count} GPU{'' if count == 1 else 's'}"


def what_keeps(world: World, it: Workload, now: float) -> str | None:
    """Like "Each user: 4 of 4 GPUs at once are held": of several rules the one that leaves least; None where none."""
    whose, ledger = (it.owner, it.team, it.queue), Ledger(world, now)
    names = (None,) if it.ask.device_class is None else (it.ask.device_class,)
    found = [one for name in names for one in _kept_by(it, ledger, _binding(world, whose, name))]
    if not found:  # any class would do, and a rule of each is in the way
        classes = _classes(world, it.ask)
        found = [one for name in classes for one in _kept_by(it, ledger, _binding(world, whose, name))]
    return min(found)[1] if found else None


def _kept_by(
    it: Workload, ledger: Ledger, rules: Iterator[tuple[int, QuotaRule, Binding]]
) -> Iterator[tuple[int, str]]:
    """What each rule that is in the way leaves, in devices, and the sentence of it."""
    for number, rule, binding in rules:
        whose = f"{rule.title[:1].upper()}{rule.title[1:]}"
        if it.waiting is WaitingReason.BUDGET:
            yield from _hours_used(it, rule, whose, ledger.spent_ms(number, binding))
            continue
        held, part = ledger.held(binding), it.ask.memory_bytes
        if rule.devices is not None and it.ask.devices > rule.devices - held:
            wants = f", and it wants {it.ask.devices}" if it.ask.devices > 1 else ""
            yield rule.devices - held, f"{whose}: {held} of {_gpus(rule.devices)} at once are held{wants}"
        held_bytes = ledger.held_bytes(binding) if part else 0
        if rule.memory_bytes is not None and part and it.ask.devices > (rule.memory_bytes - held_bytes) // part:
            most, has, wanted = bytes_apart(rule.memory_bytes, held_bytes, it.ask.devices * part)
            said = f"{whose}: {has} of {most} of shared GPUs' memory at once are held, and it wants {wanted}"
            yield (rule.memory_bytes - held_bytes) // part, said


def _hours_used(it: Workload, rule: QuotaRule, whose: str, spent_ms: int) -> Iterator[tuple[int, str]]:
    if rule.gpu_hours is None:
        return
    left_ms = rule.gpu_hours * HOUR_MS - spent_ms
    price_ms = (it.ask.duration_seconds or 0) * it.ask.devices * 1000 if it.kind is Kind.RESERVATION else 0
    if left_ms > 0 and price_ms <= left_ms:
        return
    wants = f", and it wants {format_hours(price_ms)}" if price_ms else ""
    window = format_seconds(rule.window_seconds)
    yield left_ms, f"{whose}: {format_hours(spent_ms)} of {rule.gpu_hours} GPU-hours in {window} are used{wants}"
