"""Which devices a name means, as people type it: a UUID, a number like "0" or "0:1", or a GPU in MIG mode as whole."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import Conflict, NotFound
from ..model import Card, Condition, Device, World
from .placement import in_order

_MOST_SHOWN = 80


def device_named(world: World, name: str, *, lost: bool = False) -> Device:
    """One device: of several with one number the one that is `lost`, or is not."""
    named = [device for device in world.devices.values() if name in (device.uuid, device.number)]
    meant = [device for device in named if (device.condition is Condition.LOST) is lost]
    found = meant if len(meant) == 1 else named
    if not found:
        raise NotFound(
            f"there is no GPU {name[:_MOST_SHOWN]!a}", hint="`jupyter gpu devices` lists them with their UUIDs."
        )
    if len(found) > 1:
        uuids = ", ".join(device.uuid for device in found)
        raise NotFound(f"there are {len(found)} GPUs {name[:_MOST_SHOWN]}", hint=f"Name one by its UUID: {uuids}.")
    return found[0]


def devices_named(world: World, name: str, *, cards: Iterable[Card] = ()) -> list[Device]:
    """The device, or of a GPU in MIG mode, which is none itself, all its MIG devices that are there.

    A GPU that was split has the UUID and the number that it had before, under which it may still be listed as lost.
    `cards` are those of the inventory, also those that have no MIG devices.
    """
    there = [device for device in in_order(world) if device.condition is not Condition.LOST]
    parts = [device for device in there if device.card is not None and _is_named(device.card, name)]
    if parts and not any(name in (device.uuid, device.number) for device in there):
        return parts
    for card in cards:
        if _is_named(card, name) and not any(name in (device.uuid, device.number) for device in there):
            raise Conflict(
                f"GPU {card.index} is in MIG mode and has no MIG devices, so there is nothing of it to be leased",
                hint="`nvidia-smi mig -cgi ... -C` makes some; `nvidia-smi --multi-instance-gpu=0` ends MIG mode.",
            )
    return [device_named(world, name)]


def _is_named(card: Card, name: str) -> bool:
    return name in (card.uuid, str(card.index))
