"""What a reading says: whether the device is clear, what is on it, and what is wrong with it.

Pure but for the last functions, which ask the kernel about one process. A device is clear when no process is on it
but those that the policy ignores (a display, a monitor, what only draws) and its memory is at rest. Utilisation does
not count: a card may show 100 % for days after a hard kill with nothing on it (Datura-ai/lium-io#1140).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from pathlib import Path

from ...core.told import SAYS_LOST
from ...model import Condition, Reading
from ...units import bytes_apart, format_bytes
from ..engines import procs

#: How much more than when it was last empty a device may show and still be at rest: less than any CUDA context takes.
SLACK_BYTES = 128 << 20

#: How the fault of a device begins that has gone, in contrast to one that only cannot be read.
LOST = SAYS_LOST

#: The compute mode in which CUDA lets one process in at a time.
EXCLUSIVE = "exclusive-process"

#: The kernel cuts the name of a process to so many bytes.
_NAME_BYTES = 15
#: A card has room for less than so many contexts; who lists more has made them up, or shares it by MPS.
_MOST_LOOKED_AT = 64
#: No name is shown at greater length.
_MOST_SHOWN = 64

#: From here on Linux distributions number people (UID_MIN of login.defs).
_FIRST_ORDINARY_UID = 1000

NameOf = Callable[[int], str | None]
IsSystems = Callable[[int], bool]
HasEnded = Callable[[int], bool]
_Processes = list[tuple[int, int | None]]


class Unreadable(Exception):  # noqa: N818 - a word for a state, not for a slip
    """The reading cannot tell: neither clear nor not, so whoever counts the time to clear lets it stand still."""


def why_not_clear(
    reading: Reading,
    *,
    baseline_bytes: int,
    own_baseline_bytes: int | None = None,
    ignored_names: Collection[str] = (),
    drawing_bytes: int = 0,
    name_of: NameOf = lambda _: None,
    is_systems: IsSystems = lambda _: True,
    has_ended: HasEnded = lambda _: False,
) -> str | None:
    """Say what is on an exclusive device; None when it is clear.

    At rest it shows at most `baseline_bytes` (the policy's), or what it showed when it was last empty plus a slack,
    whichever is lower; memory of ignored processes does not count. A process is ignored by its name, but only where
    it is the system's own: anybody may call a program Xorg. Where only one of processes and memory can be read, that
    one decides; where neither can, or the reading has a fault, `Unreadable` is raised.
    """
    is_ignored = _ignoring(reading, ignored_names, drawing_bytes, name_of, is_systems)
    processes = _strangers(reading, is_ignored)
    if processes:
        alive = [it for n, it in enumerate(processes) if n >= _MOST_LOOKED_AT or not has_ended(it[0])]
        return _on_it(alive, name_of) + _alone(reading) if alive else _of_the_dead(processes)
    used = _unexplained_bytes(reading, is_ignored)
    limit = baseline_bytes
    if own_baseline_bytes is not None:
        limit = min(limit, own_baseline_bytes + SLACK_BYTES)
    if used is not None and used > limit:
        is_used, rests = bytes_apart(used, limit)
        return f"{is_used} of its memory is in use by no process that can be seen; at rest it shows at most {rests}"
    return None


def who_is_left(reading: Reading, pids: Collection[int], *, name_of: NameOf = lambda _: None) -> str | None:
    """Say which of these processes are still on a shared device; None when they are gone."""
    _require(reading, needs_processes=True)
    left = [(pid, used) for pid, used in reading.processes or () if pid in pids]
    return _on_it(left, name_of) if left else None


def baseline_of(
    reading: Reading,
    *,
    baseline_bytes: int,
    own_baseline_bytes: int | None = None,
    ignored_names: Collection[str] = (),
    drawing_bytes: int = 0,
    name_of: NameOf = lambda _: None,
    is_systems: IsSystems = lambda _: True,
    has_ended: HasEnded = lambda _: False,
) -> int | None:
    """The device's own baseline after this reading: the lowest that was ever seen while it was clear.

    The lowest and not the last: memory that leaks, or whose process cannot be seen, must not become what is normal.
    """
    try:
        if why_not_clear(
            reading,
            baseline_bytes=baseline_bytes,
            own_baseline_bytes=own_baseline_bytes,
            ignored_names=ignored_names,
            drawing_bytes=drawing_bytes,
            name_of=name_of,
            is_systems=is_systems,
            has_ended=has_ended,
        ):
            return own_baseline_bytes
    except Unreadable:
        return own_baseline_bytes
    is_ignored = _ignoring(reading, ignored_names, drawing_bytes, name_of, is_systems)
    seen = [_unexplained_bytes(reading, is_ignored), own_baseline_bytes]
    return min((it for it in seen if it is not None), default=None)


def condition_of(reading: Reading) -> Condition | None:
    """What a reading shows to be wrong with its device: lost, unreadable, or nothing."""
    if reading.fault is None:
        return None
    return Condition.LOST if reading.fault.startswith(LOST) else Condition.UNREADABLE


def printable(words: str) -> str:
    """What a process calls itself, for a log, a terminal or a mail: of one line, without a code that does anything."""
    return "".join(it if it.isprintable() else "?" for it in words[:_MOST_SHOWN])


def process_name(pid: int) -> str | None:
    """The kernel's name for a process, of at most 15 bytes; None where there is none."""
    try:
        return printable(Path(f"/proc/{pid}/comm").read_bytes().rstrip(b"\n").decode("utf-8", "replace"))
    except OSError:
        return None


def is_of_the_system(pid: int) -> bool:
    """Whether a process belongs to the system's own users, root and those of its services, and to nobody else."""
    try:
        return all(uid < _FIRST_ORDINARY_UID for uid in procs.users_of(pid))
    except OSError:
        return False


def process_has_ended(pid: int) -> bool:
    """Whether there is no such process, or nobody has taken note of its end yet.

    /proc may hide those of others; the kernel answers all the same.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # it is another's
        pass
    try:
        found = procs.find(pid)
    except OSError:
        return False
    return found is not None and found.zombie


def _require(reading: Reading, *, needs_processes: bool = False) -> None:
    if reading.fault is not None:
        raise Unreadable(reading.fault)
    if reading.processes is None and (needs_processes or reading.memory_used_bytes is None):
        raise Unreadable("its processes cannot be listed" + ("" if needs_processes else " nor its memory read"))


def _ignoring(
    reading: Reading, ignored_names: Collection[str], drawing_bytes: int, name_of: NameOf, is_systems: IsSystems
) -> Callable[[int, int | None], bool]:
    def is_ignored(pid: int, used: int | None) -> bool:
        if pid in reading.drawing_pids and (used or 0) <= drawing_bytes:
            return True
        name = name_of(pid)
        if name is None:
            return False
        # The kernel has cut it off, perhaps.
        is_named = any(name == it or (len(name) >= _NAME_BYTES and it.startswith(name)) for it in ignored_names)
        return is_named and is_systems(pid)

    return is_ignored


def _strangers(reading: Reading, is_ignored: Callable[[int, int | None], bool]) -> _Processes:
    """Those that are not ignored. Once there is one, no more than the largest are looked at, of however many."""
    _require(reading)
    found: _Processes = []
    largest = list(reading.processes or ())
    if len(largest) > _MOST_LOOKED_AT:
        largest.sort(key=lambda it: (-(it[1] or 0), it[0]))
    for number, it in enumerate(largest):
        if found and number >= _MOST_LOOKED_AT:
            return found + largest[number:]
        if not is_ignored(*it):
            found.append(it)
    return found


def _unexplained_bytes(reading: Reading, is_ignored: Callable[[int, int | None], bool]) -> int | None:
    if reading.memory_used_bytes is None:
        return None
    ignored = sum(used or 0 for pid, used in reading.processes or () if is_ignored(pid, used))
    return max(0, reading.memory_used_bytes - ignored)


def _on_it(processes: _Processes, name_of: NameOf) -> str:
    """Name the process that holds most; the others are counted."""
    pid, used = max(processes, key=lambda it: it[1] or 0)
    name = name_of(pid)
    who = f"process {pid} ({name})" if name else f"process {pid}"
    what = f"{who} holds {format_bytes(used)}" if used is not None else f"{who} is on it"
    more = len(processes) - 1
    return what + (f", and {more} more process{'es' if more > 1 else ''} with it" if more else "")


def _alone(reading: Reading) -> str:
    """Why nobody else gets in, where that is so: memory alone looks as if there were room (pytorch/pytorch#3871)."""
    if reading.vitals is None or reading.vitals.compute_mode != EXCLUSIVE:
        return ""
    return f"; the GPU's compute mode is {EXCLUSIVE}, so CUDA lets nobody else in"


def _of_the_dead(processes: _Processes) -> str:
    """Their memory comes back by nothing that anybody could end."""
    pids = ", ".join(str(pid) for pid, _ in processes)
    held = [used for _, used in processes if used is not None]
    what = format_bytes(sum(held)) if held else "memory"
    who = f"process {pids}, which has ended" if len(processes) == 1 else f"processes {pids}, which have ended"
    return (
        f"the driver still counts {what} for {who}. If it stays so, reset the GPU (`nvidia-smi --gpu-reset`) while "
        "nothing runs on it, or reboot"
    )
