"""Whom the notice of a notebook's job is for, of all that its kernel has started."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Sequence
from pathlib import Path

import psutil


def who_waits_for_sigterm(kernel: int) -> list[psutil.Process]:
    """The kernel, where it has a handler of its own; else what it runs that has one, and is no worker of its own."""
    try:
        root = psutil.Process(kernel)
        if _catches_sigterm(kernel):
            return [root]
        same = root.cmdline()
        return [it for it in root.children(recursive=True) if _catches_sigterm(it.pid) and not _is_worker(it, same)]
    except psutil.Error:
        return []


def _is_worker(process: psutil.Process, kernel: Sequence[str]) -> bool:
    """Whether it was forked or spawned by multiprocessing: such ones end with the kernel, and have nothing to save."""
    words = process.cmdline()
    return words == kernel or any("multiprocessing" in word for word in words)


def _catches_sigterm(pid: int) -> bool:
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines()
        mask = int(next(line for line in lines if line.startswith("SigCgt:")).split()[1], 16)
        return bool(mask >> (signal.SIGTERM - 1) & 1)
    return False
