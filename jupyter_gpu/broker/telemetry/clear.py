"""What a reading says: whether the device is clear, what is on it, and what is wrong with it.

Pure but for `process_name`, which asks /proc. A device is clear when no process is on it but those that the policy
ignores (a display, a monitor) and its memory is at rest. Utilisation does not count: a card may show 100 % for days
after a hard kill with nothing on it (Datura-ai/lium-io#1140).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from ...model import Condition, Reading
from ...units import format_bytes
from ..engines import procs

#: How much more than when it was last empty a device may show and still be at rest: less than any CUDA context takes.
SLACK_BYTES = 128 << 20

#: How the fault of a device begins that has gone, in contrast to one that only cannot be read.
LOST = "The GPU is lost"

#: The kernel cuts the name of a process to so many bytes.
_NAME_BYTES = 15

#: From here on Linux distributions number people (UID_MIN of login.defs).
_FIRST_ORDINARY_UID = 1000

NameOf = Callable[[int], str | None]
IsSystems = Callable[[int], bool]


class Unreadable(Exception):  # noqa: N818 - a word for a state, not for a slip
    """The reading cannot tell: neither clear nor not, so whoever counts the time to clear lets it stand still."""


def why_not_clear(
    reading: Reading,
    *,
    baseline_bytes: int,
    own_baseline_bytes: int | None = None,
    ignored_names: Collection[str] = (),
    name_of: NameOf = lambda _: None,
    is_systems: IsSystems = lambda _: True,
) -> str | None:
    """Say what is on an exclusive device; None when it is clear.

    At rest it shows at most `baseline_bytes` (the policy's), or what it showed when it was last empty plus a slack,
    whichever is lower; memory of ignored processes does not count. A process is ignored by its name, but only where
    it is the system's own: anybody may call a program Xorg. Where only one of processes and memory can be read, that
    one decides; where neither can, or the reading has a fault, `Unreadable` is raised.
    """
    is_ignored = _ignoring(ignored_names, name_of, is_systems)
    processes = _strangers(reading, is_ignored)
    if processes:
        return _on_it(processes, name_of)
    used = _unexplained_bytes(reading, is_ignored)
    limit = baseline_bytes
    if own_baseline_bytes is not None:
        limit = min(limit, own_baseline_bytes + SLACK_BYTES)
    if used is not None and used > limit:
        return (
            f"{format_bytes(used)} of its memory is in use by no process that can be seen; at rest it shows "
            f"at most {format_bytes(limit)}"
        )
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
    name_of: NameOf = lambda _: None,
    is_systems: IsSystems = lambda _: True,
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
            name_of=name_of,
            is_systems=is_systems,
        ):
            return own_baseline_bytes
    except Unreadable:
        return own_baseline_bytes
    seen = [_unexplained_bytes(reading, _ignoring(ignored_names, name_of, is_systems)), own_baseline_bytes]
    return min((it for it in seen if it is not None), default=None)


def condition_of(reading: Reading) -> Condition | None:
    """What a reading shows to be wrong with its device: lost, unreadable, or nothing."""
    if reading.fault is None:
        return None
    return Condition.LOST if reading.fault.startswith(LOST) else Condition.UNREADABLE


def process_name(pid: int) -> str | None:
    """The kernel's name for a process, of at most 15 bytes; None where there is none."""
    try:
        return Path(f"/proc/{pid}/comm").read_bytes().rstrip(b"\n").decode("utf-8", "replace")
    except OSError:
        return None


def is_of_the_system(pid: int) -> bool:
    """Whether a process belongs to the system's own users, root and those of its services, and to nobody else."""
    try:
        return all(uid < _FIRST_ORDINARY_UID for uid in procs.users_of(pid))
    except OSError:
        return False


def _require(reading: Reading, *, needs_processes: bool = False) -> None:
    if reading.fault is not None:
        raise Unreadable(reading.fault)
    if reading.processes is None and (needs_processes or reading.memory_used_bytes is None):
        raise Unreadable("its processes cannot be listed" + ("" if needs_processes else " nor its memory read"))


def _ignoring(ignored_names: Collection[str], name_of: NameOf, is_systems: IsSystems) -> Callable[[int], bool]:
    def is_ignored(pid: int) -> bool:
        name = name_of(pid)
        if name is None:
            return False
        # The kernel has cut it off, perhaps.
        is_named = any(name == it or (len(name) >= _NAME_BYTES and it.startswith(name)) for it in ignored_names)
        return is_named and is_systems(pid)

    return is_ignored


def _strangers(reading: Reading, is_ignored: Callable[[int], bool]) -> list[tuple[int, int | None]]:
    _require(reading)
    return [it for it in reading.processes or () if not is_ignored(it[0])]


def _unexplained_bytes(reading: Reading, is_ignored: Callable[[int], bool]) -> int | None:
    if reading.memory_used_bytes is None:
        return None
    ignored = sum(used or 0 for pid, used in reading.processes or () if is_ignored(pid))
    return max(0, reading.memory_used_bytes - ignored)


def _on_it(processes: list[tuple[int, int | None]], name_of: NameOf) -> str:
    """Name the process that holds most; the others are counted."""
    pid, used = max(processes, key=lambda it: it[1] or 0)
    name = name_of(pid)
    who = f"process {pid} ({name})" if name else f"process {pid}"
    what = f"{who} holds {format_bytes(used)}" if used is not None else f"{who} is on it"
    more = len(processes) - 1
    return what + (f", and {more} more process{'es' if more > 1 else ''} with it" if more else "")
