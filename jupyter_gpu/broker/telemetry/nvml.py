"""Real cards, read through NVML. Everything here runs in the sampler thread, and nothing raises at it.

Each noun has its own file: `calls` is the seam, `inventory` what there is, `readings` what is on it, `vitals` how it
feels, `events` what it reports. A card that is lost is a reading with a fault, and the others are read as ever
(rossumai/nvgpu#6).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pynvml

from ...model import Card, CardEvent, Device, DriverView, Reading
from .calls import Calls, NvmlGoneError, card_fault, sentence
from .driver import bindings_of, driver_of
from .events import Events
from .inventory import Inventory
from .memory import NEWER_CALL
from .nodes import Nodes
from .readings import PROCESS_CALLS, Readings
from .vitals import VITALS_SECONDS, AllVitals

#: The first pid namespace of a machine; in any other, NVML's pids are not those that /proc shows.
_FIRST_PID_NAMESPACE = "pid:[4026531836]"

NO_PROCESSES = (
    "This driver does not offer the list of processes, so who is on a GPU is not known; its memory alone says whether "
    "it is free. A newer driver lists them."
)
OLD_MEMORY = "This driver does not tell apart what it keeps of a GPU's memory for itself: that counts as used."
NO_EVENTS = "This driver reports no Xid events: a GPU that fails is noticed by its readings alone."


class NvmlSource:
    """The cards of this machine. `nvml` is pynvml or what a test puts in its place, and so are the two folders."""

    def __init__(
        self,
        nvml: Any = pynvml,
        *,
        node: str = "",
        retry_seconds: float = 10.0,
        vitals_seconds: float = VITALS_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        dev: Path = Path("/dev"),
        proc: Path = Path("/proc"),
    ) -> None:
        self.has_local_pids = _sees_all_pids()
        self.driver: DriverView | None = None
        self._bindings: str | None = None
        #: Since NVML was opened: who is a part of what may be other than before.
        self._has_looked = False
        self._calls = Calls(nvml, retry_seconds=retry_seconds, clock=clock)
        self._inventory = Inventory(self._calls, Nodes(dev=dev, proc=proc), node=node)
        self._vitals = AllVitals(self._calls, every_seconds=vitals_seconds, clock=clock)
        self._readings = Readings(self._calls, self._inventory, self._vitals, meminfo=proc / "meminfo")
        self._events = Events(self._calls, clock=clock)

    @property
    def fault(self) -> str | None:
        """Why no card can be read now, with the remedy."""
        return self._calls.fault

    @property
    def busy_with(self) -> str | None:
        """The UUID that a running call is about."""
        return self._calls.busy_with

    @property
    def notes(self) -> tuple[str, ...]:
        """What is no fault and worth a sentence."""
        lacks = self._calls.lacks
        holds = {
            NO_PROCESSES: lacks(*PROCESS_CALLS),
            OLD_MEMORY: lacks(NEWER_CALL),
            NO_EVENTS: self._events.is_silent,
        }
        return (*self._inventory.notes, *(note for note, is_so in holds.items() if is_so))

    def devices(self) -> tuple[Device, ...] | None:
        """The inventory; None where NVML cannot be used, with `fault` saying why. A lost card is not in it."""
        if not self._open():
            return None
        self._has_looked = True
        try:
            found = self._inventory.look()
        except NvmlGoneError as gone:
            self._calls.lose(gone.code)
            return None
        except Exception as error:  # noqa: BLE001 - what it does not know it says; it never raises
            self._calls.fault = sentence(error)
            return None
        finally:
            self._calls.busy_with = None
        self._calls.fault = None
        return found

    def cards(self) -> tuple[Card, ...]:
        """The GPUs in MIG mode that the last inventory found."""
        return self._inventory.cards

    def events(self) -> tuple[CardEvent, ...]:
        """What the driver has reported since the last call."""
        if not self._open():
            return ()
        try:
            return self._events.new(self._inventory.boards, self._inventory.parts)
        except NvmlGoneError as gone:
            self._calls.lose(gone.code)
        return ()

    def read(self, uuids: Sequence[str]) -> tuple[Reading, ...]:
        """Fresh readings of these; a card that cannot be read has a fault and keeps no other from being read."""
        if self._open() and not self._has_looked:
            self.devices()
        return tuple(self._reading(uuid) for uuid in uuids)

    def _reading(self, uuid: str) -> Reading:
        at = time.time()
        if not self._open():
            return Reading(uuid=uuid, at=at, fault=self.fault)
        self._calls.busy_with = uuid
        try:
            return self._readings.of(uuid, at)
        except NvmlGoneError as gone:
            self._calls.lose(gone.code)
            return Reading(uuid=uuid, at=at, fault=self.fault)
        except Exception as error:  # noqa: BLE001 - whatever one card does, the others are read
            self._calls.handles.pop(uuid, None)
            self._vitals.forget(uuid)
            return Reading(uuid=uuid, at=at, fault=card_fault(error))
        finally:
            self._calls.busy_with = None

    def _open(self) -> bool:
        """Open NVML unless it is open; what reads the cards may be another then than before."""
        session = self._calls.session
        is_open = self._calls.open()
        if self._bindings is None:
            self._bindings = bindings_of(self._calls.nvml)
            self.driver = DriverView(bindings=self._bindings)
        if session != self._calls.session:
            self._has_looked = False
            try:
                self.driver = driver_of(self._calls, self._bindings)
            except NvmlGoneError as gone:
                self._calls.lose(gone.code)
                return False
        return is_open


def _sees_all_pids() -> bool:
    """Whether /proc shows the pids that NVML names. In a container they are others: nobody is known by number there."""
    try:
        return str(Path("/proc/self/ns/pid").readlink()) == _FIRST_PID_NAMESPACE
    except OSError:
        return False
