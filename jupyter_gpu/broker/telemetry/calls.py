"""The one seam to NVML: opened once, its errors told apart, and what this driver does not know asked only once.

It stays open; only after it was lost is it opened anew, at most every few seconds (opening and closing per poll
leaks descriptors: lablup/all-smi#118).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from .clear import LOST

# Numbers of nvmlReturn_t, so that it does not matter which release of the bindings names them.
NOT_SUPPORTED, NOT_FOUND, INSUFFICIENT_SIZE, TIMEOUT, NO_FUNCTION, UNKNOWN = 3, 6, 7, 10, 13, 999
#: This card cannot say it: no error, only "n/a".
_NOT_OFFERED = frozenset({2, NOT_SUPPORTED, 4, NOT_FOUND, NO_FUNCTION, 21, 25, 26})
#: This card has gone: reset required, lost, not found.
_CARD_GONE = frozenset({15, 16, 28})
#: The whole of NVML has gone: not initialised, driver not loaded, library or driver replaced.
_NVML_GONE = frozenset({1, 9, 12, 18})

_REMEDIES = {
    4: "This account may not use the NVIDIA driver. Check the permissions of /dev/nvidiactl and /dev/nvidia*.",
    9: "The NVIDIA driver is not loaded. Load it with `modprobe nvidia` or reboot; the GPUs then appear by themselves.",
    12: (
        "NVML, the library of the NVIDIA driver, was not found. Install the driver; in a container, start it with "
        "GPU support and the driver capability `utility`."
    ),
    18: (
        "The NVIDIA driver was updated, but its old kernel module still runs. Reboot, or reload the module and "
        "restart the broker; what runs now goes on meanwhile."
    ),
}


class CardGoneError(Exception):
    """The card has gone, says NVML."""


class NvmlGoneError(Exception):
    """NVML itself has gone; the number says why."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Calls:
    """NVML, or what a test puts in its place, with the handles that it gave."""

    def __init__(self, nvml: Any, *, retry_seconds: float, clock: Callable[[], float]) -> None:
        self.nvml = nvml
        self.fault: str | None = None
        self.busy_with: str | None = None
        self.handles: dict[str, Any] = {}
        #: Rises with each opening: what NVML gave before is of no use after.
        self.session = 0
        self._retry_seconds = retry_seconds
        self._clock = clock
        #: The process that has it open: after a fork the child has only the flag (dask/distributed#4873).
        self._open_in: int | None = None
        self._next_try = float("-inf")
        self._missing: set[str] = set()

    # --- NVML as a whole ------------------------------------------------------------------------

    def open(self) -> bool:
        """Open NVML unless it is open, and not more often than every few seconds: it may take long."""
        pid = os.getpid()
        if self._open_in == pid:
            return True
        if self._open_in is None and self._clock() < self._next_try:
            return False
        self._forget()
        try:
            self.nvml.nvmlInit()
        except Exception as error:  # noqa: BLE001 - bindings of any age, libraries of any state
            self.fault = sentence(error)
        else:
            self._open_in, self.fault = pid, None
            self.session += 1
        self._next_try = self._clock() + self._retry_seconds
        return self._open_in is not None

    def lose(self, code: int) -> None:
        """NVML has gone under us: say why, and open it anew later."""
        self.fault = _REMEDIES.get(code) or _unusable(f"NVML error {code}")
        self._forget()
        self._next_try = self._clock() + self._retry_seconds
        try:
            self.nvml.nvmlShutdown()
        except Exception:  # noqa: BLE001 - it has gone already
            return

    def _forget(self) -> None:
        self._open_in = None
        self.handles.clear()
        self._missing.clear()

    # --- one call -------------------------------------------------------------------------------

    def call(self, name: str, *args: Any) -> Any:
        """One call, with the errors that are about more than this call told apart."""
        try:
            return getattr(self.nvml, name)(*args)
        except self.nvml.NVMLError as error:
            code = code_of(error)
            if code in _NVML_GONE:
                raise NvmlGoneError(code) from error
            if code in _CARD_GONE:
                raise CardGoneError(str(error)) from error
            raise

    def field(self, name: str, *args: Any, default: Any = None, known_as: str | None = None) -> Any:
        """One reading, or the default where it is not offered; any other error is the caller's to weigh.

        What bindings or driver do not know at all is not asked again before NVML was opened anew: they are as old as
        they are (gpuopenanalytics/pynvml#43). `known_as` is for a call that is another one by its arguments.
        """
        symbol = known_as or name
        if symbol in self._missing:
            return default
        if getattr(self.nvml, name, None) is None:
            self._missing.add(symbol)
            return default
        try:
            return self.call(name, *args)
        except self.nvml.NVMLError as error:
            code = code_of(error)
            if code == NO_FUNCTION:
                self._missing.add(symbol)
            if code in _NOT_OFFERED:
                return default
            raise
        except self.nvml.NVMLLibraryMismatchError:  # no NVMLError: newer bindings say so of an older driver
            self._missing.add(symbol)
            return default
        except (AttributeError, TypeError):  # some bindings do sums with memory that is "not available"
            return default

    def ask(self, name: str, *args: Any) -> Any:
        """One reading that nothing is decided by: whatever goes wrong with it alone is "n/a"."""
        try:
            return self.field(name, *args)
        except self.nvml.NVMLError:
            return None

    def first(self, names: tuple[str, ...], *args: Any) -> Any:
        """The same as `ask`, by the first of several names that is offered."""
        return next((it for it in (self.ask(name, *args) for name in names) if it is not None), None)

    def lacks(self, *symbols: str) -> bool:
        """Whether none of these is known to bindings and driver, as far as they were asked."""
        return self._missing.issuperset(symbols)

    # --- handles --------------------------------------------------------------------------------

    def handle(self, uuid: str) -> Any:
        """The handle of a device. That of a MIG device dies with it and is used again, so it is asked who it is."""
        handle = self.handles.get(uuid)
        if handle is not None and uuid.startswith("MIG-"):
            current = self.field("nvmlDeviceGetUUID", handle)
            if current is None or text(current) != uuid:
                handle = None
        if handle is None:
            handle = self.handles[uuid] = self._look_up(uuid)
        return handle

    def _look_up(self, uuid: str) -> Any:
        try:
            return self.call("nvmlDeviceGetHandleByUUID", uuid)
        except self.nvml.NVMLError as error:
            if code_of(error) == NOT_FOUND:
                raise CardGoneError("no device has its UUID any more") from error
            if code_of(error) == UNKNOWN:
                raise CardGoneError(str(error)) from error
            raise


def code_of(error: object) -> int:
    """The number of an error of NVML; that of "unknown" for any other."""
    value = getattr(error, "value", None)
    return value if isinstance(value, int) else UNKNOWN


def sentence(error: Exception) -> str:
    """Say why NVML as a whole cannot be used, and what helps."""
    return _REMEDIES.get(code_of(error)) or _unusable(error)


def card_fault(error: Exception) -> str:
    """Say why one card cannot be read."""
    if isinstance(error, CardGoneError):
        # NVML's own words for it say nothing more.
        why = "" if f"The {error}".casefold() == LOST.casefold() else f": {error}"
        return f"{LOST}{why}. Look for Xid errors in `dmesg`; a reset of the GPU or a reboot may bring it back."
    return f"The GPU could not be read: {str(error) or type(error).__name__}."


def text(raw: Any) -> str:
    """Names are bytes or text, by the release of the bindings (rossumai/nvgpu#29)."""
    return raw.decode("utf-8", "replace") if isinstance(raw, bytes) else str(raw)


def within(least: int, number: int | None, most: int) -> int | None:
    """The number if it can be true, else None: a reading that lies is worse than none."""
    return number if number is not None and least <= number <= most else None


def _unusable(why: object) -> str:
    return f"NVML cannot be used: {why}. `nvidia-smi` may say more; a reboot often helps."
