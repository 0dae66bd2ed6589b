"""What a device has from now on, by what it had and what is seen of it: how each condition begins, stays and ends."""

from __future__ import annotations

from collections.abc import Iterable

from ..model import Condition, Device, SeeCondition, Wrong

#: What an operator may know to be over: of these the evidence may be older than the present state of the card. All
#: else is what readings show now, and only they say that it is over; a lost card cannot be wished back.
OPERATORS_WORD = frozenset({Condition.FAULTY, Condition.RESET_NEEDED, Condition.SUSPECT})

#: What is left on a device after a lease looks like somebody without one; it stays what it is.
_LESS_THAN_LEFT = frozenset({Condition.NOT_CLEAR, Condition.FOREIGN})


def condition_after(device: Device, seen: SeeCondition) -> Condition | None:
    """The condition of a device once this is seen: mostly the gravest that holds now, which is what is told.

    A hardware fault stays until the card was reset, is lost, or an operator says that it is well. What is lost stays
    so while it cannot be read: only a reading tells that it is back.
    """
    had = device.condition
    if had is Condition.FAULTY and seen.condition is not Condition.LOST and not seen.was_reset:
        return had
    if had is Condition.LOST and seen.condition is Condition.UNREADABLE:
        return had
    if had is Condition.NOT_CLEAR and seen.condition in _LESS_THAN_LEFT:
        return had
    return seen.condition


def after_word(device: Device, wrong: Iterable[Wrong]) -> Wrong | None:
    """What a device has once an operator says that it is well; `wrong` is all that its newest reading shows."""
    if device.condition not in OPERATORS_WORD:
        return None if device.condition is None else Wrong(condition=device.condition, detail=device.condition_detail)
    left: Wrong | None = None
    for it in wrong:
        if it.condition not in OPERATORS_WORD and it.condition.is_graver_than(None if left is None else left.condition):
            left = it
    return left


def changes(device: Device, seen: SeeCondition) -> bool:
    """Whether this is worth telling: it changes what the device has."""
    return condition_after(device, seen) is not device.condition
