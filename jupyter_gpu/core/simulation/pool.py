"""A pool of nodes as a baseline sees it: how many GPUs each has free, and where a job would sit.

A job that a node can hold sits on one node: the fullest that has room, the first of those. A bigger one takes whole
free nodes, and for the rest the node with most free. Nodes are kept as bits by how many they have free, so that each
look costs a handful of operations, however many nodes there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

#: (node, how many of its GPUs), for each node that a job sits on.
Places = tuple[tuple[int, int], ...]


class Pool:
    """How many GPUs are free where."""

    __slots__ = ("free", "largest", "nodes_with", "of_size", "sizes", "total")

    def __init__(self, sizes: Sequence[int]) -> None:
        """All nodes free; `sizes` says how many GPUs each has."""
        self.free = list(sizes)
        self.total = sum(sizes)
        self.largest = max(sizes, default=0)
        # Public for `copy` alone. How many are free -> the nodes with so many free, as bits.
        self.nodes_with = [0] * (self.largest + 1)
        self.of_size: dict[int, int] = {}
        for node, size in enumerate(sizes):
            self.nodes_with[size] |= 1 << node
            self.of_size[size] = self.of_size.get(size, 0) | 1 << node
        self.sizes = sorted((size for size in self.of_size if size), reverse=True)

    def copy(self) -> Pool:
        """One to imagine things on."""
        other = Pool.__new__(Pool)
        other.free, other.total, other.largest = self.free.copy(), self.total, self.largest
        other.nodes_with = self.nodes_with.copy()
        other.of_size, other.sizes = self.of_size, self.sizes
        return other

    def fits(self, gpus: int) -> bool:
        """Whether there is a place for so many."""
        if gpus <= self.largest:
            return any(self.nodes_with[gpus:])
        return self.find(gpus) is not None

    def find(self, gpus: int) -> Places | None:
        """Where so many would sit; None where they do not fit now."""
        if gpus > self.largest:
            return self._find_wide(gpus)
        for nodes in self.nodes_with[gpus:]:
            if nodes:
                return (((nodes & -nodes).bit_length() - 1, gpus),)
        return None

    def _find_wide(self, gpus: int) -> Places | None:
        if gpus > self.total:
            return None
        found: list[tuple[int, int]] = []
        rest, taken = gpus, 0
        for size in self.sizes:
            whole = self.nodes_with[size] & self.of_size[size]
            while rest >= size and whole:
                lowest = whole & -whole
                found.append((lowest.bit_length() - 1, size))
                whole ^= lowest
                taken |= lowest
                rest -= size
        if not rest:
            return tuple(found)
        for count in range(self.largest, rest - 1, -1):
            nodes = self.nodes_with[count] & ~taken
            if nodes:
                return (*found, ((nodes & -nodes).bit_length() - 1, rest))
        return None

    def take(self, places: Places) -> None:
        """A job sits there now."""
        for node, count in places:
            self._change(node, -count)

    def give(self, places: Iterable[tuple[int, int]]) -> None:
        """It is gone."""
        for node, count in places:
            self._change(node, count)

    def _change(self, node: int, count: int) -> None:
        bit, before = 1 << node, self.free[node]
        self.nodes_with[before] ^= bit
        self.nodes_with[before + count] |= bit
        self.free[node] = before + count
        self.total += count
