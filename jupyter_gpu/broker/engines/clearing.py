"""Clears away the folders of attempts of work that is over: the old ones, and more where all take too much.

Only folders that the spool has made are touched, and only of workloads that are known to be over: what is not known is
kept. Nothing in them was made by a user, and no link in them is followed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

#: By default all logs together may have so much of their disk.
SHARE_OF_DISK = 10


class Cleared(NamedTuple):
    """What went."""

    folders: int
    freed_bytes: int


class Folder(NamedTuple):
    """One that may go."""

    ended_at: float
    size_bytes: int
    path: Path
    workload: int


def find(root: Path, may_go: Callable[[int], bool]) -> list[Folder]:
    """The folders that may go. `may_go` says of a workload whether it is over. Blocks: call it on a thread."""
    live, found = _names(root / "live"), []
    for name in _names(root):
        attempt = name.partition("-")[0]
        workload = attempt.partition(".")[0]
        if attempt in live or not workload.isdecimal() or not may_go(int(workload)):
            continue
        with contextlib.suppress(OSError):
            found.append(_look(root / name, int(workload)))
    return found


def too_large(found: Iterable[Folder], before: float, most_bytes: int) -> set[int]:
    """Whose folders they are is to be known of these workloads: none where what is not too old has room."""
    young = [it for it in found if it.ended_at >= before]
    return {it.workload for it in young} if sum(it.size_bytes for it in young) > most_bytes else set()


def clear_away(found: Iterable[Folder], *, owners: Mapping[int, str], before: float, most_bytes: int) -> Cleared:
    """Remove what is older than `before` (Unix seconds), then until the rest has at most `most_bytes`.

    Of the rest always the oldest of whoever has most, by the owners of workloads: one person's large logs push out
    nobody else's. Blocks: call it on a thread.
    """
    rest: dict[str, list[Folder]] = {}
    folders = freed = 0
    for it in sorted(found, reverse=True):
        if it.ended_at >= before:
            rest.setdefault(owners.get(it.workload, ""), []).append(it)
        elif _remove(it):
            folders, freed = folders + 1, freed + it.size_bytes
    sizes = {name: sum(it.size_bytes for it in theirs) for name, theirs in rest.items()}
    left = sum(sizes.values())
    while left > most_bytes and sizes:
        name = max(sizes, key=sizes.__getitem__)
        it = rest[name].pop()
        sizes[name] -= it.size_bytes
        if not rest[name]:
            del sizes[name]
        if _remove(it):
            folders, freed, left = folders + 1, freed + it.size_bytes, left - it.size_bytes
    return Cleared(folders, freed)


def _remove(it: Folder) -> bool:
    try:
        shutil.rmtree(it.path)
    except OSError:
        return False
    return True


def _look(path: Path, workload: int) -> Folder:
    newest, size = path.lstat().st_mtime, 0
    with os.scandir(path) as entries:
        for entry in entries:
            seen = entry.stat(follow_symlinks=False)
            newest, size = max(newest, seen.st_mtime), size + seen.st_blocks * 512
    return Folder(newest, size, path, workload)


def _names(folder: Path) -> set[str]:
    try:
        return set(os.listdir(folder))  # noqa: PTH208 - names, not paths
    except OSError:
        return set()


def share_of_disk(root: Path) -> int:
    """What all may have where nobody says; nothing is there where the folder is not."""
    try:
        return shutil.disk_usage(root).total // SHARE_OF_DISK
    except FileNotFoundError:
        return 0
