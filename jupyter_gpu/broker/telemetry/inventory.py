"""Which devices there are: whole GPUs, and the MIG devices of those that are split.

A GPU in MIG mode is no device itself but the card of its MIG devices. A lost card is not in the inventory; one that
only fails to answer just now is, as it was known: facts do not change while the driver runs. Of several devices with
one UUID only the first is, since nobody could say which of them is meant.
"""

from __future__ import annotations

import contextlib
import math
import re
from typing import Any, NamedTuple

from msgspec.structs import replace

from ...model import Card, Device
from .calls import NOT_FOUND, UNKNOWN, Calls, CardGoneError, card_fault, code_of
from .classes import device_class
from .memory import memory_of, says_not_supported
from .names import MOST_CARDS, MOST_PARTS, UnfitError, clean_name, fit_uuid
from .nodes import Nodes

_MIG_STRIDE = 100
#: Compute modes in which CUDA lets one process in: of a thread (no longer made), of a process.
_EXCLUSIVE = frozenset({1, 3})
_ADDRESSED_BY_THE_HOST = 2  # NVML_DEVICE_ADDRESSING_MODE_ATS
#: How drivers say that a slot is empty: not found, and (of one beyond the last) invalid argument.
_HOLES = frozenset({2, NOT_FOUND})
#: Chips that share the machine's memory.
_INTEGRATED = re.compile(r"\b(GB10|Thor|Orin|Xavier|Tegra)\b", re.IGNORECASE)
#: NVIDIA names MIG profiles by eighths of the card's memory.
_EIGHTHS = 8


class Part(NamedTuple):
    """Where a MIG device is: its card, and the numbers of its GPU instance and compute instance there."""

    card: str
    instance: int | None
    compute: int | None


class _Found(NamedTuple):
    """What is at one NVML index."""

    devices: tuple[Device, ...] = ()
    card: Card | None = None
    parts: tuple[tuple[str, Part], ...] = ()
    notes: tuple[str, ...] = ()


_NOTHING = _Found()


class Inventory:
    """What was found by the last look."""

    def __init__(self, calls: Calls, nodes: Nodes, *, node: str) -> None:
        self.cards: tuple[Card, ...] = ()
        self.notes: tuple[str, ...] = ()
        #: Whole GPUs and cards, by UUID: what has a temperature, vitals and events of its own.
        self.boards: tuple[str, ...] = ()
        #: MIG device -> where it is.
        self.parts: dict[str, Part] = {}
        #: Devices whose memory is the machine's.
        self.unified: frozenset[str] = frozenset()
        self._calls, self._nodes, self._node = calls, nodes, node
        self._known: dict[int, _Found] = {}
        #: The UUIDs that the present look has met, and where.
        self._met: dict[str, str] = {}

    def look(self) -> tuple[Device, ...]:
        """Find the devices; what goes wrong with NVML as a whole is raised."""
        self._met = {}
        count = min(self._calls.call("nvmlDeviceGetCount"), MOST_CARDS)
        found = {index: self._at(index) for index in range(count)}
        # What did not answer is what it was, unless it was found at another number: those change with the driver.
        anew = {one.uuid for index, it in found.items() if it is not self._known.get(index) for one in it.devices}
        for index, it in found.items():
            if it is self._known.get(index):
                found[index] = it._replace(devices=tuple(one for one in it.devices if one.uuid not in anew))
        links = self._links([device for it in found.values() for device in it.devices])
        self._known = {
            index: it._replace(devices=tuple(replace(one, link_group=links.get(one.uuid)) for one in it.devices))
            for index, it in found.items()
        }
        every = self._known.values()
        devices = tuple(device for it in every for device in it.devices)
        self.cards = tuple(it.card for it in every if it.card is not None)
        self.notes = tuple(note for it in every for note in it.notes)
        whole = (device.uuid for device in devices if device.card is None)
        self.boards = (*whole, *(card.uuid for card in self.cards))
        self.parts = {uuid: part for it in every for uuid, part in it.parts}
        self.unified = frozenset(device.uuid for device in devices if device.shares_host_memory)
        return devices

    # --- one index ------------------------------------------------------------------------------

    def _at(self, index: int) -> _Found:
        known = self._known.get(index, _NOTHING)
        self._calls.busy_with = known.card.uuid if known.card else next((it.uuid for it in known.devices), None)
        try:
            handle = self._calls.call("nvmlDeviceGetHandleByIndex", index)
        except CardGoneError as gone:
            return _without(index, gone)
        except self._calls.nvml.NVMLError as error:
            # Drivers say "unknown error" here of a card that has fallen off the bus while they still count it.
            gone_too = code_of(error) == UNKNOWN or known is _NOTHING
            return _without(index, error) if gone_too else known
        try:
            if self._is_split(handle, was_split=known.card is not None):
                return self._split(index, handle)
            return _Found((self._whole(index, handle),))
        except CardGoneError as gone:
            return _without(index, gone)
        except UnfitError as why:
            return _Found(notes=(f"GPU {index} cannot be used. {why}",))
        except self._calls.nvml.NVMLError as error:
            return _without(index, error) if known is _NOTHING else known

    def _is_split(self, handle: Any, *, was_split: bool) -> bool:
        """Whether it is in MIG mode. Most cards know no such thing; one that was split has not just forgotten it."""
        mode = self._calls.call if was_split else self._calls.field
        answer = mode("nvmlDeviceGetMigMode", handle)
        return answer is not None and bool(answer[0])

    def _whole(self, index: int, handle: Any) -> Device:
        return replace(
            self._device(handle, index),
            nodes=self._nodes.of_card(self._minor(handle)),
            exclusive=self._is_exclusive(handle),
        )

    def _split(self, index: int, handle: Any) -> _Found:
        """The MIG devices of a GPU, of which none is a state too."""
        card = Card(
            uuid=self._uuid(handle, f"GPU {index}"),
            index=index,
            name=self._name(handle) or "NVIDIA GPU",
            memory_bytes=memory_of(self._calls, handle).total,
        )
        minor, exclusive = self._minor(handle), self._is_exclusive(handle)
        devices, parts, notes = [], [], list[str]()
        for slot in range(min(self._calls.call("nvmlDeviceGetMaxMigDeviceCount", handle), MOST_PARTS)):
            try:
                one = self._in_slot(handle, slot)
                if one is None:
                    continue
                device = self._device(one, (index + 1) * _MIG_STRIDE + slot, card)
            except CardGoneError:  # this one alone
                continue
            except UnfitError as why:
                notes.append(f"GPU {index}:{slot} cannot be used. {why}")
                continue
            with contextlib.suppress(CardGoneError):
                part = Part(
                    card.uuid,
                    self._calls.ask("nvmlDeviceGetGpuInstanceId", one),
                    self._calls.ask("nvmlDeviceGetComputeInstanceId", one),
                )
                nodes = self._nodes.of_part(minor, part.instance, part.compute)
                devices.append(replace(device, card=card, slot=slot, nodes=nodes, exclusive=exclusive))
                parts.append((device.uuid, part))
        return _Found(tuple(devices), card, tuple(parts), tuple(notes) or (() if devices else (_empty(index),)))

    def _in_slot(self, card: Any, slot: int) -> Any:
        """The MIG device there. None is a hole, not the end: instances are made and destroyed in any order."""
        try:
            return self._calls.call("nvmlDeviceGetMigDeviceHandleByIndex", card, slot)
        except self._calls.nvml.NVMLError as error:
            if code_of(error) in _HOLES:
                return None
            raise

    def _device(self, handle: Any, index: int, card: Card | None = None) -> Device:
        uuid = self._uuid(handle, f"GPU {index}" if card is None else f"GPU {card.index}:{index % _MIG_STRIDE}")
        # Asked of known ones too: a lost card may still have a handle and a UUID, and must not seem to be back.
        total = memory_of(self._calls, handle).total
        for device in (it for found in self._known.values() for it in found.devices):
            is_same = device.uuid == uuid and device.index == index and device.memory_bytes is not None
            # A MIG device may be made anew in another size under the same UUID.
            if is_same and (card is None or total in (None, device.memory_bytes)):
                return device
        name = self._name(handle) or (card.name if card else "NVIDIA GPU")
        if card and not re.search(r"\bMIG \d", name):
            name = f"{name} MIG {self._profile(handle, card, total)}"
        return Device(
            uuid=uuid,
            index=index,
            name=name,
            device_class=device_class(name, total),
            memory_bytes=total,
            node=self._node,
            shares_host_memory=total is None and card is None and self._is_unified(handle, name),
        )

    def _profile(self, handle: Any, card: Card, total: int | None) -> str:
        """The profile of a MIG device whose name does not say it: it must not pass for a whole card."""
        facts = self._calls.ask("nvmlDeviceGetAttributes_v2", handle)
        size = total
        if total and card.memory_bytes:
            eighths = math.ceil(_EIGHTHS * total / card.memory_bytes)
            size = math.ceil(card.memory_bytes / 2**30) * 2**30 * eighths // _EIGHTHS
        gb = f"{round((size or 0) / 2**30)}gb"
        return gb if facts is None else f"{facts.gpuInstanceSliceCount}g.{gb}"

    def _is_unified(self, handle: Any, name: str) -> bool:
        """Whether a card without memory figures has none because its memory is the machine's (wookayin/gpustat#179).

        One that only does not give them must not be taken for such a card.
        """
        if not says_not_supported(self._calls, handle):
            return False
        mode = self._calls.ask("nvmlDeviceGetAddressingMode", handle)
        return mode == _ADDRESSED_BY_THE_HOST or _INTEGRATED.search(name) is not None

    def _is_exclusive(self, handle: Any) -> bool:
        return self._calls.ask("nvmlDeviceGetComputeMode", handle) in _EXCLUSIVE

    def _uuid(self, handle: Any, title: str) -> str:
        uuid = fit_uuid(self._calls.call("nvmlDeviceGetUUID", handle))
        other = self._met.setdefault(uuid, title)
        if other != title:
            raise UnfitError(f"It has the UUID of {other}, {uuid}: no program could be told which of them is meant.")
        self._calls.handles[uuid] = handle
        return uuid

    def _name(self, handle: Any) -> str:
        return clean_name(self._calls.field("nvmlDeviceGetName", handle, default=""))

    def _minor(self, handle: Any) -> int | None:
        minor = self._calls.ask("nvmlDeviceGetMinorNumber", handle)
        return None if minor is None else int(minor)

    # --- links ----------------------------------------------------------------------------------

    def _links(self, found: list[Device]) -> dict[str, str]:
        """Device -> its NVLink group. The driver's own verdict counts, which also sees through NVSwitches."""
        groups: list[list[Device]] = []
        for device in found:
            joined = [group for group in groups if any(self._has_link(device, other) for other in group)]
            groups = [group for group in groups if group not in joined]
            groups.append([*(it for group in joined for it in group), device])
        return {
            device.uuid: f"nvlink-{min(it.index for it in group)}"
            for group in groups
            if len(group) > 1
            for device in group
        }

    def _has_link(self, one: Device, other: Device) -> bool:
        if one.card is not None or other.card is not None:
            return False
        handles = [self._calls.handles.get(it.uuid) for it in (one, other)]
        if None in handles:
            return False
        nvml = self._calls.nvml
        try:
            answer = self._calls.field("nvmlDeviceGetP2PStatus", *handles, nvml.NVML_P2P_CAPS_INDEX_NVLINK)
        except (CardGoneError, nvml.NVMLError):
            # A pair that does not answer just now is what it was.
            return one.link_group is not None and one.link_group == other.link_group
        return bool(answer == nvml.NVML_P2P_STATUS_OK)


def _without(index: int, error: Exception) -> _Found:
    return _Found(notes=(f"The driver counts GPU {index}, but it is not there. {card_fault(error)}",))


def _empty(index: int) -> str:
    return (
        f"GPU {index} is in MIG mode and has no MIG devices, so nothing of it can be used. Create some with "
        f"`nvidia-smi mig -i {index} -cgi <profile> -C`, or end MIG mode with `nvidia-smi -i {index} -mig 0`."
    )
