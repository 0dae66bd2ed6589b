"""Every call that our telemetry makes, times every answer that NVML knows: what must hold of each pair.

The calls are those that were counted while a board was read, so a new one is in the matrix by itself.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pynvml
from msgspec.structs import asdict, replace

from jupyter_gpu.broker.telemetry.clear import LOST
from jupyter_gpu.broker.telemetry.nvml import NvmlSource
from jupyter_gpu.model import Device, Reading

from .board import GIB, MIB, P2P_OK, Answers, Board, consumer_card, data_centre_card, mig_device

#: Every number that the bindings have a name for.
CODES = sorted(
    value for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_") and isinstance(value, int)
)
#: Not initialised, driver not loaded, library not found, driver and library do not match: about NVML as a whole.
NVML_GONE = (1, 9, 12, 18)
INVALID_ARGUMENT, NOT_SUPPORTED, NO_FUNCTION, CARD_LOST = 2, 3, 13, 15
#: What may also mean that the card, or the MIG device, is there no more.
MAY_MEAN_GONE = (6, 15, 16, 28, 999)
#: Words for "this card has no such thing".
NOT_OFFERED = (2, 3, 4, 6, 13, 21, 25, 26)
BY_INDEX, BY_UUID = "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByUUID"
MIG_BY_SLOT, P2P = "nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetP2PStatus"
#: A card that had no MIG mode, and a slot that is none, say so by these.
MEANS_NOT_SPLIT = {("nvmlDeviceGetMigMode", NOT_SUPPORTED), (MIG_BY_SLOT, INVALID_ARGUMENT)}
#: The only field that must be "n/a" where a card does not offer the call.
CONCERNS = {
    "nvmlDeviceGetUtilizationRates": "utilisation_percent",
    "nvmlDeviceGetTemperature": "temperature_celsius",
    "nvmlDeviceGetPowerUsage": "power_watts",
}


def board_of_all_kinds(folder: Path) -> Board:
    """Two cards that are joined, one in MIG mode, and one that offers little; somebody is on each."""
    cards = [
        data_centre_card(0, "NVIDIA A100-SXM4-40GB", 40 * GIB),
        data_centre_card(1, "NVIDIA A100-SXM4-40GB", 40 * GIB),
        data_centre_card(2, "NVIDIA A100-SXM4-40GB", 40 * GIB),
        consumer_card(3, "NVIDIA GeForce RTX 3090", 24 * GIB),
    ]
    for one, other in ((cards[0], cards[2]), (cards[2], cards[0])):
        one[f"p2p.2.{other.number}"] = P2P_OK
    for slot in (0, 3):
        mig_device(cards[1], slot, "1g.5gb", memory_bytes=4864 * MIB, gpu_instance=7 + slot).hold(810 + slot, GIB)
    for card in (cards[0], cards[2], cards[3]):
        card.hold(800 + card.number, 2 * GIB)
        card["utilisation"] = 60 + card.number
    cards[3].hold(1201, 150 * MIB, kind="g", name="gnome-shell")
    return Board(folder, *cards)


class Seen(NamedTuple):
    """What a source says at one moment, instants left out."""

    devices: dict[str, Device] | None
    readings: dict[str, Reading]
    fault: str | None


class Clock:
    """Moves on by itself at each look, so that what is asked or tried anew only now and then is."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Tell the time."""
        return self.now


@dataclass
class Watcher:
    """A source, and what it said while all was well."""

    board: Board
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.source = NvmlSource(clock=self.clock)

    def look(self, uuids: tuple[str, ...]) -> Seen:
        """Read first, as the broker does for every sample, and list then, as it does now and then."""
        self.clock.now += 1000
        readings = {it.uuid: replace(it, at=0) for it in self.source.read(uuids)}
        fault = self.source.fault
        self.source.events()
        self.clock.now += 1000
        devices = self.source.devices()
        return Seen(None if devices is None else {it.uuid: it for it in devices}, readings, fault or self.source.fault)

    def look_again(self, uuids: tuple[str, ...], was: Seen) -> Seen:
        """Look until all is as before, twice at most: the first look may be what finds out that all is well."""
        seen = self.look(uuids)
        return seen if seen == was else self.look(uuids)

    def learn_calls(self) -> tuple[str, ...]:
        """Have all calls counted once, and no more: it costs time. Gives what `everything` does."""
        uuids = self.everything()
        self.look(uuids)
        Watcher(self.board).look(uuids)
        os.environ.pop("NVML_STANDIN_CALLS", None)
        return uuids

    def everything(self) -> tuple[str, ...]:
        """The UUIDs of all devices and of the cards that are split."""
        return tuple(it.uuid for it in (*(self.source.devices() or ()), *self.source.cards()))


@dataclass(frozen=True)
class Case:
    """One call of one card, of one MIG device or of everybody, and how it answers."""

    call: str
    #: (-1, -1) is everybody; slot -1 the card.
    card: int
    slot: int
    code: int

    def __str__(self) -> str:
        where = "everywhere" if self.card < 0 else f"of GPU {self.card}" + (f":{self.slot}" if self.slot >= 0 else "")
        return f"{self.call} {where} answers {self.code}"

    @contextlib.contextmanager
    def holding(self, board: Board) -> Iterator[None]:
        """Let the call answer so for as long as the block lasts."""
        rules = self._place(board).fails
        rules[self.call] = self.code
        board.write()
        yield
        del rules[self.call]
        board.write()

    def was_made(self, board: Board) -> bool:
        """Whether the call was counted, about this or while it was looked up."""
        return not board.made().keys().isdisjoint({(self.call, self.card, self.slot), (self.call, -1, -1)})

    def _place(self, board: Board) -> Answers:
        if self.card < 0:
            return board
        card = board.cards[self.card]
        return card if self.slot < 0 else card.slots[self.slot]

    def concerned(self, board: Board) -> set[str]:
        """The UUIDs that it is about."""
        cards = board.cards if self.card < 0 else [board.cards[self.card]]
        if self.slot >= 0:
            return {cards[0].slots[self.slot].uuid}
        return {it.uuid for card in cards for it in (card, *card.slots.values())}


def cases(board: Board, codes: list[int]) -> Iterator[Case]:
    """Each call that was counted, where it was counted, and for everybody."""
    places = set(board.made())
    names = {name for name, *_ in places}
    places |= {(name, -1, -1) for name in names}
    # These are counted as calls about nobody, and fail where what is looked up is lost.
    cards = [(card.number, -1) for card in board.cards]
    slots = [(card.number, slot) for card in board.cards for slot in card.slots]
    lookups = {BY_INDEX: cards, BY_UUID: [*cards, *slots], MIG_BY_SLOT: slots}
    places |= {(name, *place) for name in names & set(lookups) for place in lookups[name]}
    for name, card, slot in sorted(places):
        # Whether a function exists is asked of the library, not of a card.
        yield from (Case(name, card, slot, code) for code in codes if code != NO_FUNCTION or card < 0)


def complaints(case: Case, board: Board, was: Seen, now: Seen) -> Iterator[str]:
    """What does not hold while the call answers so; of a card that is lost, where it was asked meanwhile."""
    concerned = case.concerned(board)
    if case.card >= 0 and case.code not in NVML_GONE:
        yield from _others(concerned, was, now)
    # Who is lost of a pair is not said.
    says_who = case.code == CARD_LOST and case.card >= 0 and case.call not in {BY_UUID, P2P}
    names_the_lost = says_who and case.was_made(board)
    may_go = case.code in (*MAY_MEAN_GONE, *NVML_GONE, NO_FUNCTION) or (case.call, case.code) in MEANS_NOT_SPLIT
    for uuid in concerned & set(was.readings):
        yield from _one(case, was.readings[uuid], now.readings[uuid])
        if names_the_lost and not _is_lost(uuid, was, now):
            yield f"{uuid} is not seen to be lost: it is listed, and its fault is {now.readings[uuid].fault}"
        if not may_go and _is_lost(uuid, was, now):
            yield f"{uuid} is taken for lost: {now.readings[uuid].fault or 'it is not listed'}"


def difference(was: Seen, now: Seen) -> str:
    """What differs between two looks, in one line; empty where nothing does."""
    found = [f"fault {now.fault!r}"] if now.fault != was.fault else []
    for before, after in ((was.devices or {}, now.devices or {}), (was.readings, now.readings)):
        found += [_difference(before.get(it), after.get(it)) for it in before | after]
    return "; ".join(filter(None, found))


def _difference(was: Device | Reading | None, now: Device | Reading | None) -> str:
    if was == now:
        return ""
    if was is None or now is None:
        return f"{getattr(was or now, 'uuid', '')} was {was and 'there'}, is {now and 'there'}"
    before, after = asdict(was), asdict(now)
    return f"{was.uuid} " + ", ".join(f"{it} {before[it]} -> {after[it]}" for it in after if before[it] != after[it])


def _others(concerned: set[str], was: Seen, now: Seen) -> Iterator[str]:
    if now.devices is None:
        yield f"no inventory: {now.fault}"
        return
    for uuid, device in (was.devices or {}).items():
        # A card that is not there has no links, and neither have those that it alone was joined with.
        seen = now.devices.get(uuid)
        if uuid not in concerned and (seen is None or replace(seen, link_group=device.link_group) != device):
            yield f"another device is affected: {_difference(device, seen)}"
    for uuid, reading in was.readings.items():
        if uuid not in concerned and now.readings[uuid] != reading:
            yield f"another reading is affected: {_difference(reading, now.readings[uuid])}"


def _one(case: Case, was: Reading, now: Reading) -> Iterator[str]:
    if now.fault is not None:
        yield from () if now.fault.endswith((".", "meanwhile.")) else (f"the fault is no sentence: {now.fault}",)
        return
    before, after = asdict(was), asdict(now)
    changed = {name for name, value in after.items() if value != before[name]}
    for name in changed - {"vitals", "drawing_pids"}:
        is_older_memory = name == "memory_used_bytes" and case.call == "nvmlDeviceGetMemoryInfo_v2"
        if after[name] is not None and not is_older_memory and name != "processes":
            yield f"{name} reads {after[name]} instead of n/a or {before[name]}"
    if was.vitals is not None and now.vitals is not None:
        old, new = asdict(was.vitals), asdict(now.vitals)
        yield from (f"{name} reads {new[name]}" for name in new if new[name] != old[name] and new[name])
    wanted = CONCERNS.get(case.call)
    if wanted and case.code in NOT_OFFERED and changed != ({wanted} if before[wanted] is not None else set()):
        yield f"{case.call} is not offered, and what changes is {changed}"


def _is_lost(uuid: str, was: Seen, now: Seen) -> bool:
    """Not listed any more, or its reading says so, or that of its card; of a card: or all its parts are."""
    devices = was.devices or {}
    if now.devices is not None and uuid in devices and uuid not in now.devices:
        return True
    device = devices.get(uuid)
    uuids = (uuid, device.card.uuid) if device is not None and device.card is not None else (uuid,)
    if any((now.readings[it].fault or "").startswith(LOST) for it in uuids):
        return True
    parts = {it.uuid for it in devices.values() if it.card is not None and it.card.uuid == uuid}
    return bool(parts) and now.devices is not None and not parts & set(now.devices)
