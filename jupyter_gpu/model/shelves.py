"""What there is to lease, put in order once: shelves of devices that are alike and stand together, and their sorts.

A step of the planner asks the same of a thousand devices again and again. Of devices that are alike in all that an ask
looks at, one stands for all, so that the answer costs as much as there are sorts of devices and nodes with a free one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from weakref import WeakValueDictionary

from .devices import Condition, Device

#: The pool and the name of a node.
Node = tuple[str, str]
#: How the classes of MIG devices begin.
MIG = "mig-"


def is_mig(device: Device) -> bool:
    """Whether it is a part of a GPU, by its card or, in the store of an earlier version, by its class."""
    return device.card is not None or device.device_class.startswith(MIG)


class Sort:
    """Devices that are alike in all that an ask looks at, wherever they stand. Equal ones are one object."""

    __slots__ = ("__weakref__", "is_mig", "sample")

    def __init__(self, sample: Device) -> None:
        """Only `shelf_of` makes sorts."""
        self.sample, self.is_mig = sample, is_mig(sample)


class Shelf:
    """Where devices of one sort stand together: on one node, in one link group. Equal ones are one object."""

    __slots__ = ("__weakref__", "device_class", "link", "node", "sort")

    def __init__(self, device: Device, sort: Sort, link: str | None) -> None:
        """Only `shelf_of` makes shelves."""
        self.node: Node = (device.pool, device.node)
        #: The link group; of MIG devices their card, so that one card is filled before the next is begun.
        self.link = link
        self.sort, self.device_class = sort, device.device_class


_SORTS: WeakValueDictionary[tuple[object, ...], Sort] = WeakValueDictionary()
_SHELVES: WeakValueDictionary[tuple[object, ...], Shelf] = WeakValueDictionary()


def shelf_of(device: Device) -> Shelf:
    """Where a device stands."""
    kind = (
        device.pool, device.device_class, device.memory_bytes, device.shareable, device.exclusive,
        device.shares_host_memory, is_mig(device),
    )  # fmt: skip
    link = device.link_group if device.card is None else device.card.uuid
    key = (kind, device.node, link)
    shelf = _SHELVES.get(key)
    if shelf is None:
        sort = _SORTS.get(kind)
        if sort is None:
            sort = _SORTS[kind] = Sort(device)
        shelf = _SHELVES[key] = Shelf(device, sort, link)
    return shelf


def place_of(device: Device) -> tuple[str, str, int, str]:
    """What puts devices in order, by node and index, so that placement is the same every time."""
    return (device.pool, device.node, device.index, device.uuid)


def _by_index(device: Device) -> tuple[int, str]:
    return (device.index, device.uuid)


class Stock:
    """The well devices that nobody holds, by shelf, and the layout of all."""

    __slots__ = ("_layout", "_shelves", "free")

    def __init__(self) -> None:
        """Begin with nothing."""
        self._shelves: dict[str, Shelf] = {}
        #: Only shelves with a free device; its devices by their index.
        self.free: dict[Shelf, tuple[Device, ...]] = {}
        self._layout: Layout | None = None

    def copy(self) -> Stock:
        """One that can go its own way."""
        other = Stock()
        other._shelves, other.free, other._layout = self._shelves.copy(), self.free.copy(), self._layout
        return other

    def __eq__(self, other: object) -> bool:
        """Whether the same is free."""
        return isinstance(other, Stock) and (self.free, self._shelves) == (other.free, other._shelves)

    __hash__ = None  # type: ignore[assignment]

    def shelf(self, uuid: str) -> Shelf:
        """Where a device stands that this was told of."""
        return self._shelves[uuid]

    def layout(self, devices: Iterable[Device]) -> Layout:
        """How the devices, which must be those that this was told of, are laid out."""
        if self._layout is None:
            self._layout = Layout(devices)
        return self._layout

    def put(self, device: Device, *, is_held: bool) -> None:
        """A device came, or is another than it was."""
        self.drop(device.uuid)
        self._shelves[device.uuid] = shelf_of(device)
        if not is_held:
            self.give_back(device)

    def drop(self, uuid: str) -> None:
        """It is listed no more."""
        self._layout = None
        if uuid in self._shelves:
            self.take(uuid)
            del self._shelves[uuid]

    def take(self, uuid: str) -> None:
        """Somebody holds it."""
        shelf = self._shelves.get(uuid)
        if shelf is None:
            return
        left = tuple([it for it in self.free.pop(shelf, ()) if it.uuid != uuid])
        if left:
            self.free[shelf] = left

    def give_back(self, device: Device) -> None:
        """Nobody holds it any more."""
        shelf = self._shelves.get(device.uuid)
        if shelf is not None and device.is_well:
            there = self.free.get(shelf, ())
            self.free[shelf] = tuple(sorted((*there, device), key=_by_index)) if there else (device,)


class Layout:
    """The devices of a world as they are, whoever holds them; made anew when one of them changes."""

    def __init__(self, devices: Iterable[Device]) -> None:
        """Look at every device once."""
        there = list(devices)
        #: Of each sort the conditions that devices of it are in.
        self.sorts: dict[Sort, set[Condition | None]] = {}
        #: How many devices of a sort a node has.
        self.counts: dict[Node, Counter[Sort]] = {}
        for device in there:
            shelf = shelf_of(device)
            self.sorts.setdefault(shelf.sort, set()).add(device.condition)
            self.counts.setdefault(shelf.node, Counter())[shelf.sort] += 1
        self.classes = tuple(sorted({device.device_class for device in there}))
        self.pools = tuple(sorted({device.pool for device in there}))
        self.shareable = tuple(device for device in there if device.shareable and device.is_well)
        #: Ask -> how many devices one like it could ever get; filled by `core.placement`.
        self.most: dict[object, int] = {}
        #: What an ask looks at -> how many devices of the kind the largest node has.
        self.largest: dict[object, int] = {}
