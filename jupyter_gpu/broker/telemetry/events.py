"""What the driver reports by itself: Xids. Asked in the sampler thread, without waiting.

The cards are registered with one event set. It is made anew when NVML was opened anew, when there are other cards, and
when a lost card spoils it. A driver that reports nothing is no fault: then readings alone tell.
"""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections.abc import Callable, Collection
from typing import Any

from ...model import CardEvent
from .calls import TIMEOUT, Calls, CardGoneError, code_of, text
from .inventory import Part

_XID = 0x8
#: More than this at once is a storm: the rest waits for the next sample.
_MOST = 64
_NO_INSTANCE = 0xFFFFFFFF
#: After a lost card has spoiled the set it is made anew, without that card, but not at every sample.
_AGAIN_SECONDS = 10.0

_WAITS = ("nvmlEventSetWait_v2", "nvmlEventSetWait")


class Events:
    """One event set for all cards."""

    def __init__(self, calls: Calls, *, clock: Callable[[], float]) -> None:
        self._calls, self._clock = calls, clock
        self._set: Any = None
        self._session = 0
        self._wanted: frozenset[str] = frozenset()
        #: Address of a handle -> the card, for those registered.
        self._registered: dict[int, str] = {}
        self._made_at = float("-inf")
        self._is_spoiled = False

    @property
    def is_silent(self) -> bool:
        """Whether the driver reports nothing of any card, although there are some."""
        return bool(self._wanted) and not self._registered and not self._is_spoiled

    def new(self, cards: Collection[str], parts: dict[str, Part]) -> tuple[CardEvent, ...]:
        """What was reported since the last call."""
        self._keep(frozenset(cards))
        found: list[CardEvent] = []
        if self._set is None or not self._registered:
            return ()
        while len(found) < _MOST:
            data = self._next()
            if data is None:
                break
            if int(data.eventType) & _XID:
                at = time.time()
                found += (CardEvent(uuid=it, xid=int(data.eventData), at=at) for it in self._whose(data, parts))
        return tuple(found)

    def _next(self) -> Any:
        for name in _WAITS:
            try:
                data = self._calls.field(name, self._set, 0)
            except CardGoneError:
                self._is_spoiled = True
                return None
            except self._calls.nvml.NVMLError as error:
                self._is_spoiled |= code_of(error) != TIMEOUT
                return None
            if data is not None:
                return data
        return None

    def _whose(self, data: Any, parts: dict[str, Part]) -> list[str]:
        """The MIG devices that an event is about, else its card; nobody where the driver names none."""
        card = self._registered.get(_address(data.device))
        if card is None:
            raw = self._ask("nvmlDeviceGetUUID", data.device)
            if raw is None:
                return []
            card = text(raw)
        instance, compute = (getattr(data, it, _NO_INSTANCE) for it in ("gpuInstanceId", "computeInstanceId"))
        mine = [
            uuid
            for uuid, part in parts.items()
            if part.card == card and part.instance == instance and compute in (part.compute, _NO_INSTANCE)
        ]
        return mine or [card]

    def _keep(self, cards: frozenset[str]) -> None:
        """Have a set with these cards; a lost one is left out and tried again with the next set."""
        is_stale = self._session != self._calls.session
        is_tired = self._is_spoiled and self._clock() >= self._made_at + _AGAIN_SECONDS
        if not is_stale and not is_tired and cards == self._wanted:
            return
        if self._set is not None and not is_stale:
            self._ask("nvmlEventSetFree", self._set)
        self._wanted, self._session, self._made_at = cards, self._calls.session, self._clock()
        self._is_spoiled, self._registered = False, {}
        self._set = self._ask("nvmlEventSetCreate") if cards else None
        if self._set is not None:
            for uuid in sorted(cards):
                self._register(uuid)

    def _ask(self, name: str, *args: Any) -> Any:
        """A call about no card: also where the driver says "lost", it is only not offered."""
        with contextlib.suppress(CardGoneError):
            return self._calls.ask(name, *args)
        return None

    def _register(self, uuid: str) -> None:
        nvml = self._calls.nvml
        try:
            handle = self._calls.handle(uuid)
            self._calls.call("nvmlDeviceRegisterEvents", handle, _XID, self._set)
        except CardGoneError:
            self._is_spoiled = True
        except (nvml.NVMLError, nvml.NVMLLibraryMismatchError, AttributeError):
            return  # it reports nothing
        else:
            self._registered[_address(handle)] = uuid


def _address(handle: Any) -> int:
    """Handles of the bindings are pointers, each a new object; what a test puts in their place is itself."""
    try:
        return ctypes.cast(handle, ctypes.c_void_p).value or 0
    except (ctypes.ArgumentError, TypeError):
        return id(handle)
