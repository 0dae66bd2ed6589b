"""Clears away the folders of attempts of work that is over: the old ones, and the oldest where all take too much.

Only folders that the spool has made are touched, and only of workloads that are known to be over: what is not known is
kept. Nothing in them was made by a user, and no link in them is followed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

#: By default all logs together may have so much of their disk.
SHARE_OF_DISK = 10


class Cleared(NamedTuple):
    """What went."""

    folders: int
    freed_bytes: int


class _Folder(NamedTuple):
    ended_at: float
    size_bytes: int
    path: Path


def clear_away(root: Path, *, may_go: Callable[[int], bool], before: float, most_bytes: int | None) -> Cleared:
    """Remove what is older than `before` (Unix seconds), then the oldest until the rest has at most `most_bytes`.

    `may_go` says of a workload whether it is over. Blocks: call it on a thread.
    """
    live = _names(root / "live")
    found = sorted(_found(root, live, may_go))
    left = sum(it.size_bytes for it in found)
    most = _share_of_disk(root) if most_bytes is None else most_bytes
    folders = freed = 0
    for it in found:
        if it.ended_at >= before and left <= most:
            break
        with contextlib.suppress(OSError):
            shutil.rmtree(it.path)
            folders, freed, left = folders + 1, freed + it.size_bytes, left - it.size_bytes
    return Cleared(folders, freed)


def _found(root: Path, live: set[str], may_go: Callable[[int], bool]) -> list[_Folder]:
    found = []
    for name in _names(root):
        attempt = name.partition("-")[0]
        workload = attempt.partition(".")[0]
        if attempt in live or not workload.isdecimal() or not may_go(int(workload)):
            continue
        with contextlib.suppress(OSError):
            found.append(_look(root / name))
    return found


def _look(path: Path) -> _Folder:
    newest, size = path.lstat().st_mtime, 0
    with os.scandir(path) as entries:
        for entry in entries:
            seen = entry.stat(follow_symlinks=False)
            newest, size = max(newest, seen.st_mtime), size + seen.st_blocks * 512
    return _Folder(newest, size, path)


def _names(folder: Path) -> set[str]:
    try:
        return set(os.listdir(folder))  # noqa: PTH208 - names, not paths
    except OSError:
        return set()


def _share_of_disk(root: Path) -> int:
    return shutil.disk_usage(root).total // SHARE_OF_DISK
