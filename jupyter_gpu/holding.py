"""Processes as holders: pid, start time and boot, so that no later process is taken for one that has ended (Linux)."""

from __future__ import annotations

import os
from pathlib import Path

from .model import Holder


def process_holder(kind: str, name: str, pid: int | None = None) -> Holder:
    """A process of this machine as a holder, our own if none is given. ProcessLookupError where it has ended."""
    pid = os.getpid() if pid is None else pid
    return Holder(kind=kind, name=name, pid=pid, start_ticks=start_ticks(pid), boot_id=boot_id())


def kernel_holder(kernel_id: str, pid: int | None, keeper_pid: int | None = None) -> Holder:
    """A kernel, whose process may not be there yet or any more, and who looks after it: this process."""
    keeper_pid = os.getpid() if keeper_pid is None else keeper_pid
    try:
        ticks = None if pid is None else start_ticks(pid)
    except ProcessLookupError:
        pid = ticks = None
    return Holder(
        kind="kernel",
        name=kernel_id,
        pid=pid,
        start_ticks=ticks,
        boot_id=boot_id(),
        keeper_pid=keeper_pid,
        keeper_start_ticks=start_ticks(keeper_pid),
    )


def start_ticks(pid: int) -> int:
    """When a process began, in clock ticks since boot. ProcessLookupError where it has ended."""
    try:
        raw = Path(f"/proc/{pid}/stat").read_bytes()
    except FileNotFoundError:
        raise ProcessLookupError(f"there is no process {pid}") from None
    return int(raw.rpartition(b")")[2].split()[19])  # the name before may hold spaces and brackets


def boot_id() -> str:
    """The kernel's name for this boot of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
