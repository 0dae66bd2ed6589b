"""Simulated devices: their memory follows what runs on them. For demos and tests, and only when asked for.

A process is on a simulated device when its environment holds the device's UUID in CUDA_VISIBLE_DEVICES, whoever it is:
supervisor, wrapper or training. Only processes that we may look into count, so those of our own user or, for root, all.

One scan of /proc serves all devices and everybody who waits. Nothing is remembered from scan to scan about who is
on no device: an environment changes at exec, so a "no" of a moment ago proves nothing. The scan is made cheap
instead, at some 8 microseconds a process: under 1 ms for 100 processes and 4 ms for 500.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import struct
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...errors import InvalidAsk
from ...model import Card, CardEvent, Device, DriverView, Reading
from ...units import parse_bytes

#: A process with this in its environment holds so much, whatever its resident size is.
BYTES_VARIABLE = "JUPYTER_GPU_SIMULATED_BYTES"
#: What a device shows with nothing on it.
BASELINE_BYTES = 16 << 20
DEFAULT_MEMORY_BYTES = 16 << 30

_PIN = b"CUDA_VISIBLE_DEVICES="
_AMOUNT = BYTES_VARIABLE.encode() + b"="
#: Processor time is counted in ticks of 10 ms: a shorter stretch says nothing about utilisation.
_LEAST_STRETCH_SECONDS = 0.5
_SCANS = 3
_BUFFER_BYTES = 64 * 1024
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
_OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC

# These calls keep Python's lock, unlike those of `os`. A scan makes three calls per process, each a few microseconds
# long; with `os`, each would hand the lock to a busy loop and wait up to 5 ms to get it back: 300 ms for a scan that
# takes 1. Reading /proc waits for no device.
_libc = ctypes.PyDLL(None, use_errno=True)
_openat, _read, _close, _lseek = _libc.openat, _libc.read, _libc.close, _libc.lseek
_getdents = getattr(_libc, "getdents64", None)  # glibc has it from 2.30 on
_openat.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int)
_read.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
_read.restype = ctypes.c_ssize_t
_close.argtypes = (ctypes.c_int,)
_lseek.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int)
_lseek.restype = ctypes.c_int64
if _getdents is not None:
    _getdents.argtypes, _getdents.restype = _read.argtypes, _read.restype


class _User(NamedTuple):
    """A process on simulated devices."""

    pid: int
    start_ticks: int
    cpu_ticks: int
    memory_bytes: int
    uuids: tuple[str, ...]


class SimulatedSource:
    """`count` devices of one size. `place` (a broker's state folder) keeps the devices of two brokers apart."""

    fault: str | None = None
    busy_with: str | None = None
    has_local_pids = True
    driver: DriverView | None = None
    notes: tuple[str, ...] = ()

    def __init__(
        self, count: int, *, memory_bytes: int = DEFAULT_MEMORY_BYTES, place: str = "", node: str = ""
    ) -> None:
        self.uuids = tuple(simulated_uuid(index, place) for index in range(count))
        self._memory_bytes = memory_bytes
        self._node = node
        self._processes = _Processes()
        self._marker = simulated_uuid(0, place)[:-12].encode()
        self._cpu: tuple[float, dict[tuple[int, int], int]] | None = None
        self._utilisation: dict[str, int] = {}

    def devices(self) -> tuple[Device, ...]:
        """The inventory, always the same."""
        return tuple(
            Device(
                uuid=uuid,
                index=index,
                name="Simulated GPU",
                device_class=f"simulated-{max(1, round(self._memory_bytes / 2**30))}gb",
                memory_bytes=self._memory_bytes,
                node=self._node,
                simulated=True,
            )
            for index, uuid in enumerate(self.uuids)
        )

    def cards(self) -> tuple[Card, ...]:
        """None: simulated devices are whole."""
        return ()

    def events(self) -> tuple[CardEvent, ...]:
        """Nobody simulates what breaks."""
        return ()

    def read(self, uuids: Sequence[str]) -> tuple[Reading, ...]:
        """One scan of /proc for all of them. What nobody simulates (temperature, power) is None."""
        users = self._users()
        self._follow_cpu(users)
        at = time.time()
        return tuple(self._reading(uuid, users, at) for uuid in uuids)

    def _reading(self, uuid: str, users: list[_User], at: float) -> Reading:
        if uuid not in self.uuids:
            return Reading(uuid=uuid, at=at, fault="There is no such simulated device.")
        on_it = tuple((user.pid, user.memory_bytes) for user in users if uuid in user.uuids)
        used = min(BASELINE_BYTES + sum(size for _, size in on_it), self._memory_bytes)
        return Reading(
            uuid=uuid,
            at=at,
            memory_used_bytes=used,
            memory_total_bytes=self._memory_bytes,
            utilisation_percent=self._utilisation.get(uuid),
            processes=on_it,
        )

    def _users(self) -> list[_User]:
        """Scan until nobody vanished under our eyes: a child that it left behind may have escaped the list."""
        users: list[_User] = []
        for _ in range(_SCANS):
            found, settled = self._processes.scan(self._marker)
            users = []
            for pid, environ in found:
                words = environ.split(b"\0")
                uuids = self._pinned(words)
                if not uuids or pid == os.getpid():  # a broker started in a pinned shell does not use the device
                    continue
                user = self._user(pid, uuids, words)
                if user is None:
                    settled = False
                else:
                    users.append(user)
            if settled:
                break
        return users

    def _pinned(self, words: list[bytes]) -> tuple[str, ...]:
        pins = next((word[len(_PIN) :] for word in words if word.startswith(_PIN)), b"")
        pinned = {pin.strip() for pin in pins.split(b",")}
        return tuple(uuid for uuid in self.uuids if uuid.encode() in pinned)

    def _user(self, pid: int, uuids: tuple[str, ...], words: list[bytes]) -> _User | None:
        """What the process uses; None where it has just ended."""
        stat = self._processes.slurp(f"{pid}/stat").rpartition(b")")[2].split()
        pages = self._processes.slurp(f"{pid}/statm").split()
        if len(stat) < 20 or len(pages) < 2 or stat[0] in b"ZX":  # noqa: PLR2004 - the fields of proc(5)
            return None
        stated = next((word[len(_AMOUNT) :] for word in words if word.startswith(_AMOUNT)), None)
        resident = int(pages[1]) * _PAGE_BYTES
        memory_bytes = resident if stated is None else _amount(stated, resident)
        return _User(pid, int(stat[19]), int(stat[11]) + int(stat[12]), memory_bytes, uuids)

    def _follow_cpu(self, users: list[_User]) -> None:
        """Utilisation is the processor time of what is on a device since the last look, a whole core being 100 %."""
        now = time.monotonic()
        if self._cpu is not None and now - self._cpu[0] < _LEAST_STRETCH_SECONDS:
            return
        ticks = {(user.pid, user.start_ticks): user.cpu_ticks for user in users}
        if self._cpu is not None:
            then, before = self._cpu
            used = dict.fromkeys(self.uuids, 0)
            for user in users:
                for uuid in user.uuids:
                    used[uuid] += max(0, user.cpu_ticks - before.get((user.pid, user.start_ticks), 0))
            whole = (now - then) * _TICKS
            self._utilisation = {uuid: min(100, round(100 * spent / whole)) for uuid, spent in used.items()}
        self._cpu = (now, ticks)


def simulated_uuid(index: int, place: str = "") -> str:
    """The UUID of a simulated device: the same after each start, and told from a real one at a glance."""
    where = hashlib.sha256(place.encode()).hexdigest() if place else "0" * 16
    return f"GPU-5111{where[:4]}-{where[4:8]}-4{where[8:11]}-8{where[11:14]}-{index:012d}"


class _Processes:
    """/proc, read without letting go of Python's lock."""

    def __init__(self) -> None:
        self._proc_fd = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._buffer = bytearray(_BUFFER_BYTES)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._buffer))
        self._without: set[int] = set()

    def __del__(self) -> None:
        os.close(self._proc_fd)

    def scan(self, marker: bytes) -> tuple[list[tuple[int, bytes]], bool]:
        """The environments that hold `marker`, and whether every process that was listed was still there to be read.

        There is none for kernel threads, for what has ended and waits to be reaped, and in the middle of an exec;
        the last holds no device memory on a real card either. A process that had none in the scan before is no news;
        any other ended since it was listed.
        """
        found: list[tuple[int, bytes]] = []
        without: set[int] = set()
        buffer, address, proc_fd = self._buffer, self._address, self._proc_fd
        for pid in self._pids():
            fd = _openat(proc_fd, b"%d/environ" % pid, _OPEN_FLAGS)
            if fd < 0:
                if ctypes.get_errno() in (errno.ENOENT, errno.ESRCH):
                    without.add(pid)
                continue
            size = _read(fd, address, _BUFFER_BYTES)
            if size == _BUFFER_BYTES:
                environ = bytes(buffer) + self._rest(fd)
                if marker in environ:
                    found.append((pid, environ))
            elif size <= 0:
                without.add(pid)
            elif buffer.find(marker, 0, size) >= 0:
                found.append((pid, bytes(memoryview(buffer)[:size])))
            _close(fd)
        settled = without <= self._without
        self._without = without
        return found, settled

    def slurp(self, path: str) -> bytes:
        """A file of /proc as it is now; empty where it cannot be read."""
        fd = _openat(self._proc_fd, path.encode(), _OPEN_FLAGS)
        if fd < 0:
            return b""
        content = self._rest(fd)
        _close(fd)
        return content

    def _rest(self, fd: int) -> bytes:
        parts = []
        while (size := _read(fd, self._address, _BUFFER_BYTES)) > 0:
            parts.append(bytes(memoryview(self._buffer)[:size]))
        return b"".join(parts)

    def _pids(self) -> list[int]:
        if _getdents is None:
            return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - names, not paths
        _lseek(self._proc_fd, 0, os.SEEK_SET)
        pids: list[int] = []
        while (size := _getdents(self._proc_fd, self._address, _BUFFER_BYTES)) > 0:
            pids += (int(name) for name in _names(self._buffer, size) if name.isdigit())
        return pids


def _names(buffer: bytearray, size: int) -> Iterator[bytes]:
    """The names in what getdents64 wrote: records of inode, offset, length, type and name."""
    place = 0
    while place < size:
        (length,) = struct.unpack_from("=H", buffer, place + 16)
        yield bytes(buffer[place + 19 : place + length]).partition(b"\0")[0]
        place += length


def _amount(stated: bytes, otherwise: int) -> int:
    try:
        return parse_bytes(stated.decode("utf-8", "replace"), allow_zero=True)
    except InvalidAsk:
        return otherwise
