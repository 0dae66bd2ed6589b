"""What is left when a supervisor is dead: is it really, what lives of its tree, and how that is ended.

The started mark names the supervisor by pid, start time and boot id. Where one of the three differs, it is gone,
and whoever has its number now is a stranger whom no signal reaches. Its tree is found by the attempt's cgroup
and by the variables it was started with, wherever a container engine has started it.
"""

from __future__ import annotations

import signal
import time
from typing import Any

from . import cgroup, files, outside, procs

#: What has not died of SIGKILL by then hangs in the kernel; the caller asks again later.
_PATIENCE_SECONDS = 5.0


def watch(mark: dict[str, Any]) -> int | None:
    """A pidfd of the supervisor that made this mark; None where it has ended. OSError where that cannot be known."""
    if mark.get("boot_id") != procs.boot_id() or not mark.get("pid"):
        return None
    return procs.open_pidfd(mark["pid"], mark["start_ticks"])


def clear(folder: str, spec: dict[str, Any], mark: dict[str, Any]) -> tuple[bool, list[str]]:
    """End what lives of an attempt without supervisor: whether nothing is left, and what had to be ended.

    After a restart of the machine nothing lives, and what an engine still keeps of its container is removed. OSError
    where it cannot be known whether anything lives.
    """
    if mark.get("boot_id") != procs.boot_id():
        if mark.get("boot_id"):
            _forget_container(spec)
        return True, []
    wanted = outside.tags(folder, spec)
    ended: dict[tuple[int, int], str] = {}
    by = time.monotonic() + _PATIENCE_SECONDS
    while living := _living(wanted, spec["cgroups"]):
        for proc in living.values():
            ended.setdefault((proc.pid, proc.start_ticks), f"{proc.name} ({proc.pid})")
            procs.send(proc, signal.SIGKILL)
        cgroup.kill(spec["cgroups"])
        if time.monotonic() > by:
            return False, list(ended.values())[: files.MOST_NAMED]
        time.sleep(0.01)
    _forget_container(spec)
    cgroup.remove(spec["cgroups"])
    return True, list(ended.values())[: files.MOST_NAMED]


def _forget_container(spec: dict[str, Any]) -> None:
    if spec.get("container"):
        outside.remove(spec)


def lost(folder: str, *, why: str, forced: list[str], order: dict[str, Any] | None) -> dict[str, Any]:
    """Write the outcome of an attempt that can no longer tell its own; returns it."""
    outcome = {
        "end": "lost", "detail": why, "forced": forced, "order": order, "gone": True, "ended_at": time.time(),
    }  # fmt: skip
    files.write_whole(f"{folder}/{files.OUTCOME}", outcome)
    return outcome


def _living(wanted: list[bytes], cgroups: list[str]) -> dict[int, procs.Proc]:
    found = procs.tagged(wanted)
    for pid in cgroup.members(cgroups):
        proc = procs.find(pid)
        if proc and not proc.zombie:
            found[pid] = proc
    # What they have started may have emptied its environment.
    everyone = procs.everyone() if found else {}
    for pid in list(found):
        found |= procs.descendants(pid, everyone)
    return found
