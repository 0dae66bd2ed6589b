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
    state, last_activity = _activity(kept, manager)
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


def word_of(kept: Kept, manager: Any) -> dict[str, Any]:
    """For a renewal: whether it computes now, else since when it does not. Nothing where its server does not know.

    What it prints is activity too, so the last of it is the end of the cell or later, never its start.
    """
    state, last_activity = _activity(kept, manager)
    if state == "busy":
        return {"busy": True}
    return {"busy": False, "idle_since": last_activity} if state in ("idle", "starting") else {}


def _activity(kept: Kept, manager: Any) -> tuple[str, float | None]:
    last, state = getattr(manager, "last_activity", None), getattr(manager, "execution_state", None) or "unknown"
    last_activity = None if last is None else last.timestamp()
    if kept.crashed_at is not None and (last_activity or 0.0) <= kept.crashed_at:
        # What it was before the crash says nothing of the new process, and nobody may have asked it anything yet.
        return "idle", kept.crashed_at
    return state, last_activity


def _display_name(manager: Any) -> str:
    with contextlib.suppress(Exception):  # its kernelspec is gone
        return str(manager.kernel_spec.display_name)
    return str(getattr(manager, "kernel_name", ""))
