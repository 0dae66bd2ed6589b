"""The rules that concern one use: what is allowed, what it is counted under, and what that leaves of it.

A rule binds a use when every selector matches; "*" binds each user (team, queue, class) by itself. All rules that match
apply. Beside the quotas a queue's own bound counts as a rule (`Policy.bounds`).
"""

from __future__ import annotations

import msgspec

from ..model import EACH, QuotaRule, WaitingReason

#: (rule number, user, team, queue, class): what one bound of one rule counts for.
Binding = tuple[int, str | None, str | None, str | None, str | None]
#: Whose use: owner, team, queue, and the class where it is known.
Key = tuple[str, str, str, str | None]

HOUR_MS = 3_600_000
NO_LIMIT = 1 << 60
NO_CLASSES: frozenset[str] = frozenset()


def _matches(selector: str | None, value: str) -> bool:
    return selector is None or selector in (EACH, value)


def bind(  # noqa: PLR0917 - whose use it is, in the order of every key
    number: int, rule: QuotaRule, owner: str, team: str, queue: str, device_class: str | None
) -> Binding | None:
    """What the rule counts this use under, or None when it does not concern it. A class rule needs a class."""
    if not (_matches(rule.user, owner) and _matches(rule.team, team) and _matches(rule.queue, queue)):
        return None
    if rule.device_class is not None and (device_class is None or not _matches(rule.device_class, device_class)):
        return None
    return (
        number,
        owner if rule.user else None,
        team if rule.team else None,
        queue if rule.queue else None,
        device_class if rule.device_class else None,
    )


class Bounds(msgspec.Struct, frozen=True):
    """The rules that concern one use: what is allowed, and what it is counted under."""

    devices: tuple[tuple[int, Binding], ...]
    #: Bytes of parts of shared devices.
    memory: tuple[tuple[int, Binding], ...]
    #: Device-ms, the window, and the binding.
    hours: tuple[tuple[int, int, Binding], ...]
    #: What a share is counted under too, which bounds nothing.
    all: tuple[Binding, ...]
    #: For a use of no class yet: the bounds that name a class, by the classes that have any.
    by_class: tuple[tuple[str, Bounds], ...] = ()
    #: All that is counted for these bounds.
    depends_on: frozenset[Binding] = frozenset()


def bounds_of(quotas: tuple[QuotaRule, ...], key: Key, classes: tuple[str, ...]) -> Bounds:
    """Find the rules that concern one use; `classes` are those of all devices."""
    bound = [(rule, bind(number, rule, *key)) for number, rule in enumerate(quotas)]
    here = [(rule, to) for rule, to in bound if to is not None]
    by_class = []
    for name in classes if key[3] is None else ():
        of_class = [
            (rule, bind(number, rule, *key[:3], name)) for number, rule in enumerate(quotas) if rule.device_class
        ]
        found = _bounds([(rule, to) for rule, to in of_class if to is not None])
        if found.devices or found.memory or found.hours:
            by_class.append((name, found))
    return _bounds(here, tuple(by_class))


def _bounds(here: list[tuple[QuotaRule, Binding]], by_class: tuple[tuple[str, Bounds], ...] = ()) -> Bounds:
    all_of_them = tuple(to for _, to in here)
    return Bounds(
        tuple((rule.devices, to) for rule, to in here if rule.devices is not None),
        tuple((rule.memory_bytes, to) for rule, to in here if rule.memory_bytes is not None),
        tuple((rule.gpu_hours * HOUR_MS, rule.window_seconds, to) for rule, to in here if rule.gpu_hours is not None),
        all_of_them,
        by_class,
        frozenset(all_of_them).union(*(bounds.depends_on for _, bounds in by_class)),
    )


class Allowance(msgspec.Struct, frozen=True):
    """How many devices one more ask of somebody may come to, as far as their bounds go."""

    #: At once, and by the GPU-hours that are left.
    devices: int
    affordable: int = NO_LIMIT
    #: For an ask that names no class: how many devices of a class its rules allow, and the least and most of these.
    by_class: dict[str, int] = {}
    in_any_class: int = NO_LIMIT
    in_some_class: int = NO_LIMIT
    #: It is as said until one of these changes.
    depends_on: frozenset[Binding] = frozenset()

    def refusal(self, devices: int) -> WaitingReason | None:
        """Why an ask for so many must wait whatever is free: quota, budget or nothing."""
        if devices == 0:
            return None
        if devices > self.devices:
            return WaitingReason.QUOTA
        if devices > self.affordable:
            return WaitingReason.BUDGET
        return WaitingReason.QUOTA if devices > self.in_some_class else None

    def barred_classes(self, devices: int) -> frozenset[str]:
        """The device classes that a rule forbids to an ask for so many which names none."""
        if devices <= self.in_any_class:
            return NO_CLASSES
        return frozenset(device_class for device_class, count in self.by_class.items() if count < devices)
