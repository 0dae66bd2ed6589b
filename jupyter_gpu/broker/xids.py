"""What the numbers mean by which the driver reports errors (Xid), and what follows of each for the card.

The numbers, their meaning and what NVIDIA asks to be done at once are those of its catalogue of October 2025
(docs.nvidia.com/deploy/xid-errors, "Analyzing Xid Errors with the Xid Catalog"). What asks to restart the application
is the work's own doing or over with it: the card stays. What asks for a reset of the GPU takes it out of use. A number
that is not here is told and changes nothing: the driver knows many, and new ones come with each version.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class XidKind(StrEnum):
    """What an Xid says of the card, the gravest first."""

    #: It has left the bus.
    LOST = "lost"
    #: Its hardware or its firmware has failed: no work can be trusted to it before a reset.
    FAILED = "failed"
    #: An uncorrectable memory error: it has failed, unless the same moment says that it was contained.
    MEMORY = "memory"
    #: A link of it failed, or it lost the work of one moment: what runs may go on, new work waits for a reset.
    RESET = "reset"
    #: It noted a repair of its memory that a reset carries out.
    REPAIR = "repair"
    #: A memory error that hit one program only, which has ended; the rest goes on.
    CONTAINED = "contained"
    #: The driver now asks for something else; what it asks is read from the card.
    ACTION = "action"
    #: A sign of wear, or of a link that was mended: for an operator to know.
    WORN = "worn"
    #: Of the work's own doing, or over with it.
    WORK = "work"


class Xid(NamedTuple):
    """One number of the catalogue."""

    kind: XidKind
    #: In words, to stand behind "reported".
    meaning: str


_OF_WORK = {
    8: "that work on it stopped",
    11: "a corrupt command stream",
    13: "an exception of the graphics engine",
    25: "a corrupt command stream",
    31: "that work touched memory that is not its own",
    32: "a corrupt command stream",
    37: "an error of the firmware that passed",
    38: "an error of the firmware that passed",
    39: "an exception of a copy engine",
    40: "an exception of a copy engine",
    41: "an exception of a copy engine",
    43: "that work on it was stopped",
    44: "a fault between two contexts",
    45: "that work was cleared away after an earlier error",
    60: "an exception of the video processor",
    66: "a forbidden access by the driver",
    67: "a forbidden access by the driver",
    68: "an exception of the video decoder",
    69: "an error of the graphics engine's class",
    70: "an error of a copy engine",
    71: "an error of a copy engine",
    72: "an error of a copy engine",
    80: "that data sent to it was corrupt",
    137: "a forbidden access over NVLink",
    141: "an error of a CUDA fast path",
}
_FAILED = {
    62: "that its controller halted",
    64: "that a repair of its memory failed",
    95: "a memory error that may have reached all work on it",
    110: "a security fault",
    119: "that its system processor does not answer",
    120: "an error of its system processor",
    140: "a memory error that it could not recover from",
    143: "that it could not be initialised",
    158: "a fatal timeout",
    167: "a fatal timeout on the PCIe bus",
    169: "that its controller halted",
}
_RESET = {
    46: "that it stopped working",
    109: "that it could not switch between contexts",
    136: "that a link could not be trained",
    **dict.fromkeys((74, *range(144, 151), 155), "an NVLink error"),
}
_MEMORY = {
    48: "an uncorrectable memory error",
    171: "an uncorrectable error of its DRAM",
    172: "an uncorrectable error of its SRAM",
}
_REPAIR = {
    63: "that a part of its memory is to be replaced by a spare one",
    156: "that a part of it is to be retired",
    160: "that a memory channel is to be retired",
}
_WORN = {
    54: "that its auxiliary power is not connected",
    92: "many memory errors that it could correct",
    93: "that its own store has been written to very often",
    121: "an error on the link to the processor",
    157: "that a part of it could not be retired",
    161: "that a memory channel could not be retired",
}

XIDS: dict[int, Xid] = {
    79: Xid(XidKind.LOST, "that it has fallen off the bus"),
    94: Xid(XidKind.CONTAINED, "a memory error that ended one program only"),
    154: Xid(XidKind.ACTION, "that it needs something else done now"),
    **{number: Xid(XidKind.WORK, meaning) for number, meaning in _OF_WORK.items()},
    **{number: Xid(XidKind.FAILED, meaning) for number, meaning in _FAILED.items()},
    **{number: Xid(XidKind.MEMORY, meaning) for number, meaning in _MEMORY.items()},
    **{number: Xid(XidKind.RESET, meaning) for number, meaning in _RESET.items()},
    **{number: Xid(XidKind.REPAIR, meaning) for number, meaning in _REPAIR.items()},
    **{number: Xid(XidKind.WORN, meaning) for number, meaning in _WORN.items()},
}


def kind_of(number: int) -> XidKind | None:
    """What a number says of the card; None where the number is not known here."""
    found = XIDS.get(number)
    return None if found is None else found.kind


def describe(number: int) -> str:
    """Like "an uncorrectable memory error (Xid 48)"; a number that is not known here is named all the same."""
    found = XIDS.get(number)
    return f"something that has no name here (Xid {number})" if found is None else f"{found.meaning} (Xid {number})"
