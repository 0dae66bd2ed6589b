"""The best fit: which of the devices that serve an ask it gets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from math import inf
from typing import Any

from ..model import Ask, Device, World
from ..model.shelves import Node, Shelf, place_of

#: Devices that serve, by where they stand.
Serving = dict[Shelf, tuple[Device, ...]]


def best(serving: Serving, ask: Ask, size: Callable[[], int], spared: Collection[str] = ()) -> tuple[str, ...] | None:
    """Linked devices before others; of the node that has the fewest, of its link group that has the fewest."""
    count, nodes = ask.devices, dict[Node, int]()
    linked = []
    for shelf, devices in serving.items():
        nodes[shelf.node] = nodes.get(shelf.node, 0) + len(devices)
        # A device by itself is linked as well as can be; of several without a link group nothing is known.
        if (count == 1 or shelf.link is not None) and len(devices) >= count:
            linked.append((shelf, devices))
    if linked:
        _, node, least = min([(nodes[shelf.node], shelf.node, len(devices)) for shelf, devices in linked])
        alike = [devices for shelf, devices in linked if shelf.node == node and len(devices) == least]
        chosen = alike[0] if len(alike) == 1 else min(alike, key=first)
        return tuple([device.uuid for device in _in_order(chosen, spared)[:count]])
    if ask.same_link_group:
        return None
    enough = [(there, node) for node, there in nodes.items() if there >= count]
    if enough:
        return _of_nodes(serving, [(min(enough)[1], count)], spared)
    parts = across(nodes, size(), count) if ask.across_nodes else None
    return None if parts is None else _of_nodes(serving, parts, spared)


def first(devices: Iterable[Device]) -> tuple[str, str, int, str]:
    """What puts groups of devices in order."""
    return min(map(place_of, devices))


def _in_order(devices: Iterable[Device], spared: Collection[str]) -> list[Device]:
    return sorted(devices, key=lambda it: (it.uuid in spared, place_of(it)))


def _of_nodes(serving: Serving, parts: list[tuple[Node, int]], spared: Collection[str]) -> tuple[str, ...]:
    """So many devices of each of these nodes, the lowest first."""
    chosen: list[str] = []
    for node, count in parts:
        there = _in_order((it for shelf, devices in serving.items() if shelf.node == node for it in devices), spared)
        chosen += [device.uuid for device in there[:count]]
    return tuple(chosen)


def across(groups: Mapping[Any, int], size: int, count: int) -> list[tuple[Node, int]] | None:
    """The nodes for what no single one can hold: whole free ones, the first of them, and the freest for the rest.

    None where there are too few, and where one node would do, since who fits on one waits for one.
    """
    if size == 0 or count <= size:
        return None
    whole = sorted(node for node, there in groups.items() if there >= size)
    full, rest = divmod(count, size)
    if len(whole) < full:
        return None
    parts = [(node, size) for node in whole[:full]]
    if rest:
        taken = set(whole[:full])
        freest = min(((-there, node) for node, there in groups.items() if node not in taken), default=(0, ("", "")))
        if -freest[0] < rest:
            return None
        parts.append((freest[1], rest))
    return parts


def drives_display(world: World, device: Device) -> bool:
    """Whether a monitor hangs on it, by its newest reading; where it does not tell, whether something draws there."""
    reading = world.readings.get(device.uuid)
    if reading is None:
        return False
    drives = None if reading.vitals is None else reading.vitals.drives_display
    return bool(drives or (drives is None and reading.drawing_pids))


def choices(world: World, serving: Serving) -> Iterator[Serving]:
    """What to choose from, the best first: without a display, and of one class, the largest; all of them at last."""
    lit = {device.uuid for devices in serving.values() for device in devices if drives_display(world, device)} if (
        world.readings
    ) else set()  # fmt: skip
    dark = _only(serving, lambda device: device.uuid not in lit) if lit else serving
    for some in (dark, serving) if lit else (serving,):
        classes: dict[str, Serving] = {}
        for shelf, devices in some.items():
            classes.setdefault(shelf.device_class, {})[shelf] = devices
        if len(classes) > 1:
            yield from sorted(
                classes.values(), key=lambda alike: (-max(map(_size, alike)), next(iter(alike)).device_class)
            )
        yield some


def _only(serving: Serving, is_wanted: Callable[[Device], bool]) -> Serving:
    found = {shelf: tuple(filter(is_wanted, devices)) for shelf, devices in serving.items()}
    return {shelf: devices for shelf, devices in found.items() if devices}


def preferred(serving: Serving, ask: Ask) -> Serving:
    """Of what serves an ask for one device of no class, those of the size that it should have."""
    if ask.devices != 1 or ask.device_class is not None:
        return serving
    if ask.min_free_bytes is not None:
        least = min(map(_size, serving))
        return {shelf: devices for shelf, devices in serving.items() if _size(shelf) == least}
    whole = {shelf: devices for shelf, devices in serving.items() if not shelf.sort.is_mig}
    if whole:
        return whole
    most = max(map(_size, serving))
    return {shelf: devices for shelf, devices in serving.items() if _size(shelf) == most}


def _size(shelf: Shelf) -> float:
    """What is not known is taken for the largest."""
    memory_bytes = shelf.sort.sample.memory_bytes
    return inf if memory_bytes is None else memory_bytes
