"""What is wrong with a device, by its readings, its card's, and what the driver reported: the gravest, and why.

Pure: the clock and the policy are arguments. What a reading shows holds as long as it shows it, heat and slowing only
once they have lasted, and until they have been gone for as long. What was reported once (an Xid, an error counter that
rose, work that died of the hardware again and again) holds until the card was reset, or until an operator says that it
is well: then that same evidence is not held against it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..core.conditions import OPERATORS_WORD
from ..core.events import DeviceMarked
from ..model import CardEvent, Condition, Device, Policy, Reading, Vitals, Wrong
from .strikes import Strike, Strikes
from .telemetry.clear import condition_of
from .xids import XidKind, describe, kind_of

#: What the driver reports of one error comes within so long: an error that was contained is told as such beside it.
TOGETHER_SECONDS = 30.0
#: After "fallen off the bus" a clean reading counts only when it is this much later.
LOST_SECONDS = 10.0
#: Load that nobody can have made; a display that wakes up stays below it.
SUSPECT_PERCENT = 95

#: What the driver asks for, by what that means: without it no work goes on, or it goes on and the card gets no more.
_ASKED_FOR = {
    "reset": (Condition.FAULTY, "the driver asks for a reset of it"),
    "reboot": (Condition.FAULTY, "the driver asks for a restart of the machine"),
    "drain-p2p": (Condition.RESET_NEEDED, "the driver asks that no work use it together with other GPUs"),
    "drain-and-reset": (Condition.RESET_NEEDED, "the driver asks for a reset of it once its work has ended"),
}
_SLOWED_BY = {
    "hw-thermal": "heat (its hardware slows it)",
    "sw-thermal": "heat (its driver slows it)",
    "power-brake": "the power brake of its supply",
    "hw-slowdown": "its hardware",
}
_REMEDY = "Reset it with `nvidia-smi --gpu-reset` while nothing runs on it, or restart the machine"
_OF_XID = {
    XidKind.LOST: Condition.LOST,
    XidKind.FAILED: Condition.FAULTY,
    XidKind.MEMORY: Condition.FAULTY,
    XidKind.RESET: Condition.RESET_NEEDED,
    XidKind.REPAIR: Condition.RESET_NEEDED,
}


class Finding(NamedTuple):
    """One thing that is wrong; `key` tells the same evidence from new one."""

    condition: Condition
    detail: str
    key: str


class Sight(NamedTuple):
    """What one sample shows of a device."""

    reading: Reading
    #: Of the card that it is a part of.
    card: Reading | None = None
    #: Nobody leases it, its processes are listed and there is none, and its memory is at rest.
    is_idle: bool = False

    @property
    def vitals(self) -> Vitals:
        """Those of a MIG device are its card's."""
        return self.reading.vitals or (None if self.card is None else self.card.vitals) or Vitals()

    @property
    def celsius(self) -> int | None:
        """Likewise."""
        own = self.reading.temperature_celsius
        return self.card.temperature_celsius if own is None and self.card is not None else own

    @property
    def fault(self) -> Finding | None:
        """Why it cannot be read. Its card's fault says nothing of a MIG device that can be, unless the card is lost."""
        for one in (self.reading, self.card):
            condition = None if one is None else condition_of(one)
            if one is not None and condition is not None and (one is self.reading or condition is Condition.LOST):
                return Finding(condition, one.fault or "", "fault")
        return None


class Seen(NamedTuple):
    """The gravest that is wrong with a device now, None for nothing, and whether its card was reset meanwhile."""

    condition: Condition | None
    detail: str = ""
    was_reset: bool = False
    #: All that is wrong, not only the gravest.
    wrong: tuple[Wrong, ...] = ()


class Lasting:
    """Something that counts once it has lasted, and ends once it has been gone for as long."""

    def __init__(self) -> None:
        self.holds = False
        self._other_since: float | None = None

    def see(self, is_so: bool, now: float, *, begins_after: float, ends_after: float) -> bool:  # noqa: FBT001
        """Take what is seen now; whether it counts."""
        if is_so is self.holds:
            self._other_since = None
            return self.holds
        if self._other_since is None:
            self._other_since = now
        if now - self._other_since >= (ends_after if self.holds else begins_after):
            self.holds, self._other_since = is_so, None
        return self.holds


class _Card:
    """What is remembered of one device."""

    def __init__(self) -> None:
        #: What was reported once and holds until a reset.
        self.reported: dict[str, Finding] = {}
        #: Evidence that an operator has overruled, as long as it stays the same.
        self.overruled: set[str] = set()
        self.hot, self.suspect = Lasting(), Lasting()
        self.contained_at = float("-inf")
        self.lost_at = float("-inf")
        #: When its last hardware error was reported, for who wants to know whether a log can be believed.
        self.hardware_at: float | None = None
        self.vitals = Vitals()
        #: How it stands, what was said of it at the last look, and on what evidence that can be overruled.
        self.stood: Condition | None = None
        self.said: Condition | None = None
        self.keys: frozenset[str] = frozenset()
        #: A reset was seen, and nothing new since.
        self.was_reset = False

    def report(self, condition: Condition, detail: str, key: str) -> None:
        """Remember what was reported once."""
        self.reported[key] = Finding(condition, detail, key)
        self.was_reset = False


class Health:
    """Remembers of each device what one reading cannot tell. `booted_at` is when the machine was started."""

    def __init__(self, *, booted_at: float = 0.0) -> None:
        self._booted_at = booted_at
        self._cards: dict[str, _Card] = {}
        self.strikes = Strikes()

    # -- what is told from outside

    def hear(self, devices: Iterable[Device], events: Iterable[CardEvent]) -> None:
        """Take what the driver reported: of a card it concerns all that are parts of it."""
        told = tuple(events)
        for device in devices if told else ():
            names = {device.uuid} | ({device.card.uuid} if device.card is not None else set())
            mine = [event for event in told if event.uuid in names]
            for event in sorted(mine, key=lambda it: kind_of(it.xid) is not XidKind.CONTAINED):
                self._hear(self._of(device.uuid), event)

    def _hear(self, card: _Card, event: CardEvent) -> None:
        kind = kind_of(event.xid)
        if kind is XidKind.CONTAINED:
            card.contained_at = event.at
        condition = None if kind is None else _OF_XID.get(kind)
        if condition is None:
            return
        card.hardware_at = event.at
        detail = f"the driver reported {describe(event.xid)}"
        if condition is Condition.LOST:
            card.lost_at = event.at
        if kind is XidKind.MEMORY and event.at - card.contained_at <= TOGETHER_SECONDS:
            condition, detail = Condition.RESET_NEEDED, f"{detail}, which ended one program only"
        remedy = "" if condition is Condition.LOST else f". {_REMEDY}"
        card.report(condition, detail + remedy, f"xid {event.xid} {event.at}")

    def strike(self, policy: Policy, uuid: str, strike: Strike, *, since: float, alone: bool, counts: bool) -> None:
        """Work died of this device's hardware, by what its own log says.

        `since` is when that attempt got the device, `alone` that it was on no other, `counts` that the device has a
        counter of errors. Anybody can print such words, and would take a card out of use by it. So they count for
        nothing where the card would have said so itself: it counts errors, and neither did the counter rise nor the
        driver report anything during that attempt. Where it has no such counter (most consumer cards) they are all
        there is: then it takes several workloads in a row that were on this device alone.
        """
        at = self._of(uuid).hardware_at
        is_borne_out = at is not None and at >= since
        if not is_borne_out and (counts or not alone):
            return
        found = self.strikes.add(policy, uuid, strike._replace(is_borne_out=is_borne_out))
        if found:
            names = ", ".join(str(it) for it in found)
            text = f"{len(found)} jobs in a row died of its hardware ({names}). {_REMEDY}, or say that it is well"
            self._of(uuid).report(Condition.FAULTY, text, f"strikes {found}")

    def succeed(self, uuid: str) -> None:
        """Work on it ended well, so what died before it died of something else."""
        self.strikes.forget(uuid)

    def hear_of_mark(self, event: DeviceMarked) -> bool:
        """Take a mark that was made; whether it was an operator's word that a fault is over.

        Then the evidence is forgotten with the word itself: work that gets the device in the same moment may die on it
        before the next look, which must not find the device struck out by what was before.
        """
        card = self._of(event.device)
        stood, card.stood = card.stood, event.condition
        if not event.by or event.cordoned or stood not in OPERATORS_WORD:
            return False
        card.overruled |= card.keys  # but not what was reported since
        card.reported = {key: it for key, it in card.reported.items() if key not in card.keys}
        self.strikes.forget(event.device)
        return True

    # -- looking

    def look(self, policy: Policy, device: Device, sight: Sight, now: float) -> Seen:
        """The gravest that is wrong with a device."""
        reading, fault = sight.reading, sight.fault
        since = device.condition_since
        if device.condition is Condition.LOST and since is not None and reading.at <= since:
            return Seen(Condition.LOST, device.condition_detail)  # it was read before it was lost
        card = self._of(device.uuid)
        if fault is None:
            self._see_reset(card, device, sight.vitals, reading.at)
        found = [*self._findings(policy, card, sight, now)]
        found += [] if fault is None else [fault]
        card.overruled &= {finding.key for finding in found}
        card.keys = frozenset(finding.key for finding in found if finding.condition in OPERATORS_WORD)
        found = [finding for finding in found if finding.key not in card.overruled]
        wrong = tuple(Wrong(condition=it.condition, detail=it.detail) for it in found)
        gravest = min(found, key=lambda it: list(Condition).index(it.condition), default=None)
        card.said, card.stood = None if gravest is None else gravest.condition, device.condition
        was_reset, card.was_reset = card.was_reset, device.condition is not None and card.was_reset
        if gravest is None:
            return Seen(None, was_reset=was_reset)
        return Seen(gravest.condition, gravest.detail, was_reset, wrong)

    def forget(self, uuids: Iterable[str]) -> None:
        """These devices are no more."""
        for uuid in uuids:
            self._cards.pop(uuid, None)
            self.strikes.forget(uuid)

    def _of(self, uuid: str) -> _Card:
        return self._cards.setdefault(uuid, _Card())

    def _see_reset(self, card: _Card, device: Device, vitals: Vitals, at: float) -> None:
        """What only a reset, a reload of the driver or a restart of the machine does to a card."""
        before, since = card.vitals, device.condition_since
        is_back = device.condition is Condition.LOST and at > card.lost_at + LOST_SECONDS
        if (
            is_back
            or _fell(before.ecc_uncorrected, vitals.ecc_uncorrected)
            or (before.repair_pending is True and vitals.repair_pending is False)
            or (_asks_for_reset(before) and vitals.recovery_action == "none")
            or (device.condition is not None and since is not None and since < self._booted_at and not card.said)
        ):
            card.reported.clear()
            card.was_reset = True
        if before.ecc_uncorrected is not None and (vitals.ecc_uncorrected or 0) > before.ecc_uncorrected:
            self._see_errors(card, before.ecc_uncorrected, vitals.ecc_uncorrected or 0, at)
        card.vitals = _newer(before, vitals)

    def _see_errors(self, card: _Card, before: int, errors: int, at: float) -> None:
        card.hardware_at = at
        contained = at - card.contained_at <= TOGETHER_SECONDS
        condition = Condition.RESET_NEEDED if contained else Condition.FAULTY
        more = ", which ended one program only" if contained else ""
        detail = f"it counts {errors} uncorrectable memory errors, after {before}{more}. {_REMEDY}"
        card.report(condition, detail, f"ecc {errors}")

    def _findings(self, policy: Policy, card: _Card, sight: Sight, now: float) -> Iterator[Finding]:
        yield from card.reported.values()
        yield from _of_vitals(sight.vitals)
        heat = _heat(policy, sight)
        lasts = policy.hot_seconds
        if card.hot.see(heat is not None, now, begins_after=lasts, ends_after=lasts):
            yield Finding(Condition.HOT, heat or f"it was too hot; it has to be well for {lasts} s", "hot")
        load = sight.reading.utilisation_percent
        is_loaded = sight.is_idle and load is not None and load >= SUSPECT_PERCENT
        if card.suspect.see(is_loaded, now, begins_after=policy.suspect_seconds, ends_after=0.0):
            yield Finding(
                Condition.SUSPECT,
                f"it shows {load} % load with no process and no memory in use: load without owner. {_REMEDY}",
                "suspect",
            )


def _newer(before: Vitals, now: Vitals) -> Vitals:
    """What is not offered in this moment is remembered, since a reset shows in what it was before."""
    return Vitals(
        ecc_uncorrected=before.ecc_uncorrected if now.ecc_uncorrected is None else now.ecc_uncorrected,
        repair_pending=before.repair_pending if now.repair_pending is None else now.repair_pending,
        repair_failed=now.repair_failed,
        recovery_action=before.recovery_action if now.recovery_action is None else now.recovery_action,
    )


def _fell(before: int | None, now: int | None) -> bool:
    return before is not None and now is not None and now < before


def _asks_for_reset(vitals: Vitals) -> bool:
    return vitals.recovery_action in _ASKED_FOR


def _of_vitals(vitals: Vitals) -> Iterator[Finding]:
    if vitals.repair_failed:
        detail = "its memory has errors and no spare row is left. It must be replaced"
        yield Finding(Condition.FAULTY, detail, "repair failed")
    if vitals.repair_pending:
        detail = f"a repair of its memory waits for a reset. {_REMEDY}"
        yield Finding(Condition.RESET_NEEDED, detail, "repair pending")
    if vitals.recovery_action in _ASKED_FOR:
        condition, detail = _ASKED_FOR[vitals.recovery_action]
        yield Finding(condition, f"{detail}. {_REMEDY}", f"asks for {vitals.recovery_action}")
    if vitals.compute_mode == "prohibited":
        yield Finding(
            Condition.PROHIBITED,
            "its compute mode forbids every CUDA process. Set it with `nvidia-smi --compute-mode=DEFAULT`",
            "prohibited",
        )


def _heat(policy: Policy, sight: Sight) -> str | None:
    """Why it is too hot or too slow now; None where it is not, or that is not known."""
    vitals, celsius = sight.vitals, sight.celsius
    limit = policy.hot_celsius or vitals.slowdown_celsius
    if celsius is not None and limit is not None and celsius >= limit:
        return f"it has {celsius} °C, and its limit is {limit} °C. Look at its fans and the air around it"
    if vitals.slowed_by:
        causes = " and ".join(_SLOWED_BY.get(it, it) for it in vitals.slowed_by)
        return f"it is slowed down by {causes}. Look at its fans, the air around it and its power supply"
    return None
