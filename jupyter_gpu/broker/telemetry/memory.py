"""How much memory of a card is used: by the newest call that it knows; of a card without its own, by the host."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from .calls import NOT_SUPPORTED, Calls, code_of, within

#: Larger numbers are the C library's ways to say "not available".
MOST_BYTES = 1 << 60

_CALL = "nvmlDeviceGetMemoryInfo"
#: The call with a version is another symbol of the library.
NEWER_CALL = "nvmlDeviceGetMemoryInfo_v2"


class Memory(NamedTuple):
    """Bytes; used, free and reserved make up the total."""

    used: int | None = None
    total: int | None = None
    reserved: int | None = None


def memory_of(calls: Calls, handle: Any) -> Memory:
    """The older call counts what the driver keeps for itself as used, so it comes second (wookayin/gpustat#141)."""
    version = getattr(calls.nvml, "nvmlMemory_v2", None)
    info = calls.field(_CALL, handle, version, known_as=NEWER_CALL) if version else None
    if info is None:
        info = calls.field(_CALL, handle)
    if info is None or not 0 < int(info.total) < MOST_BYTES:
        return Memory()
    total = int(info.total)
    used = within(0, int(info.used), total)
    return Memory(used, total, within(0, getattr(info, "reserved", None), total - (used or 0)))


def says_not_supported(calls: Calls, handle: Any) -> bool:
    """Whether the card itself says that it has no memory figures, and not only cannot give them just now."""
    try:
        calls.call(_CALL, handle)
    except calls.nvml.NVMLError as error:
        return code_of(error) == NOT_SUPPORTED
    return False


def host_memory(processes: Iterable[tuple[int, int | None]] | None, meminfo: Path) -> Memory:
    """Of a card whose memory is the machine's: what its processes use; what all others use there is `reserved`."""
    total, available = _host(meminfo)
    if processes is None:
        return Memory(None, total)
    sizes = [used for _, used in processes]
    known = [used for used in sizes if used is not None]
    if sizes and not known:
        return Memory(None, total)
    used = sum(known)
    if total is None or available is None:
        return Memory(used, total)
    return Memory(used, total, max(0, total - available - used))


def _host(meminfo: Path) -> tuple[int | None, int | None]:
    """Total and available, of /proc/meminfo."""
    found = {}
    try:
        for line in meminfo.read_text(encoding="ascii", errors="replace").splitlines():
            words = line.split()
            if len(words) > 1 and words[1].isdigit():
                found[words[0]] = int(words[1]) << 10
    except OSError:
        return None, None
    return found.get("MemTotal:"), found.get("MemAvailable:")
