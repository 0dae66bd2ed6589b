"""How one kernel stands, in the words that pages read."""

from __future__ import annotations

import contextlib
from typing import Any

from .documents import KernelView
from .keeper import Kept

_NOT_OURS = "It was started by another provisioner: its GPUs are not looked after here."


def view_of(kept: Kept | None, kernel_id: str, manager: Any, path: str | None) -> KernelView:
    """A kernel of this server; `kept` is None for one that another provisioner has started."""
    kept = kept or Kept(kernel_id, reason=_NOT_OURS)
    last, state = getattr(manager, "last_activity", None), getattr(manager, "execution_state", None) or "unknown"
    last_activity = None if last is None else last.timestamp()
    if kept.crashed_at is not None and (last_activity or 0.0) <= kept.crashed_at:
        # What it was before the crash says nothing of the new process, and nobody may have asked it anything yet.
        state, last_activity = "idle", kept.crashed_at
    return KernelView(
        kernel_id=kernel_id,
        name=_display_name(manager),
        notebook=path,
        workload=None if kept.lease is None else kept.lease.id,
        pinned=kept.is_pinned,
        devices=kept.devices,
        restart_needed=None if kept.is_pinned or kept.held is None else kept.restart_needed,
        execution_state=state,
        last_activity=last_activity,
        reason=kept.reason,
        told=kept.told,
    )


def _display_name(manager: Any) -> str:
    with contextlib.suppress(Exception):  # its kernelspec is gone
        return str(manager.kernel_spec.display_name)
    return str(getattr(manager, "kernel_name", ""))
