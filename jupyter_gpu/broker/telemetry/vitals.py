"""What cards say of their own health, asked every few seconds and carried over in between.

Each by itself: a card that does not offer one has "n/a" there and all the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...model import Vitals
from .calls import Calls, within

VITALS_SECONDS = 10.0

_MODES = {0: "default", 1: "exclusive-process", 2: "prohibited", 3: "exclusive-process"}
#: Bits of the reasons for a slower clock that are faults. Left out: idle, a power cap, clocks that somebody set.
_HEAT_OR_POWER = {0x40: "hw-thermal", 0x20: "sw-thermal", 0x80: "power-brake"}
_HW_SLOWDOWN = 0x08  # set along with a reason of the hardware, or for one that has no name
_SLOWDOWN_THRESHOLD = 1
_UNCORRECTED, _VOLATILE = 1, 0
_MOST_CELSIUS = 200
_MOST_ERRORS = 1 << 48
#: NVML_FI_DEV_GET_GPU_RECOVERY_ACTION. Numbers of fields never change.
_RECOVERY_FIELD = 230
_RECOVERY = {
    0: "none",
    1: "reset",
    2: "reboot",
    3: "drain-p2p",
    4: "drain-and-reset",
    5: "recover-imex-domain",
    6: "reset",
    7: "reboot",
}


class AllVitals:
    """The vitals of each card, as of its last turn."""

    def __init__(self, calls: Calls, *, every_seconds: float = VITALS_SECONDS, clock: Callable[[], float]) -> None:
        self._calls, self._every_seconds, self._clock = calls, every_seconds, clock
        self._known: dict[str, tuple[float, Vitals]] = {}

    def of(self, card: str) -> Vitals:
        """The vitals of a card: a few seconds old at most. A lost card is raised, as by any call."""
        now = self._clock()
        known = self._known.get(card)
        if known is None or not known[0] <= now < known[0] + self._every_seconds:
            known = self._known[card] = (now, vitals_of(self._calls, self._calls.handle(card)))
        return known[1]

    def forget(self, card: str) -> None:
        """It could not be read: what it said before is no longer so."""
        self._known.pop(card, None)


def vitals_of(calls: Calls, handle: Any) -> Vitals:
    """Ask a card now."""
    rows = calls.ask("nvmlDeviceGetRemappedRows", handle)
    return Vitals(
        compute_mode=_MODES.get(calls.ask("nvmlDeviceGetComputeMode", handle)),
        slowed_by=_slowed_by(calls, handle),
        slowdown_celsius=within(
            1, calls.ask("nvmlDeviceGetTemperatureThreshold", handle, _SLOWDOWN_THRESHOLD), _MOST_CELSIUS
        ),
        ecc_uncorrected=within(
            0, calls.ask("nvmlDeviceGetTotalEccErrors", handle, _UNCORRECTED, _VOLATILE), _MOST_ERRORS
        ),
        repair_pending=_repair_pending(calls, handle, rows),
        repair_failed=None if rows is None else bool(rows[3]),
        recovery_action=_recovery_action(calls, handle),
        drives_display=_yes(calls.ask("nvmlDeviceGetDisplayActive", handle)),
    )


def _slowed_by(calls: Calls, handle: Any) -> tuple[str, ...]:
    reasons = calls.first(
        ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"), handle
    )
    bits = int(reasons or 0)
    named = tuple(word for bit, word in _HEAT_OR_POWER.items() if bits & bit)
    hardware = not bits & 0xC0 and bits & _HW_SLOWDOWN
    return (*named, "hw-slowdown") if hardware else named


def _repair_pending(calls: Calls, handle: Any, rows: Any) -> bool | None:
    """Since Ampere rows are remapped, before it pages were retired; a card says one of the two."""
    if rows is not None:
        return bool(rows[2])
    return _yes(calls.ask("nvmlDeviceGetRetiredPagesPendingStatus", handle))


def _recovery_action(calls: Calls, handle: Any) -> str | None:
    values = calls.ask("nvmlDeviceGetFieldValues", handle, [_RECOVERY_FIELD])
    if not values or values[0].nvmlReturn != 0:
        return None
    return _RECOVERY.get(int(values[0].value.uiVal))


def _yes(answer: Any) -> bool | None:
    return None if answer is None else bool(answer)
