"""Who we are: the kernel that this process is, as a holder, and what it holds.

A kernel is named by the id that its Jupyter server knows it by, so that every face finds the same reservation. Where
our provisioner started it, the environment says the id, and who started it is its keeper: a restart keeps what it has.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from .. import holding, pins
from ..model import Holder, State, WorkloadView

if TYPE_CHECKING:
    from ..client import Client

_CONNECTION_FILE = re.compile(r"kernel-(.+)\.json")


def kernel_id(environ: Mapping[str, str] = os.environ) -> str:
    """Give the id of this kernel; of a plain process its pid."""
    return environ.get(pins.KERNEL) or _of_connection_file() or f"ipython-{os.getpid()}"


def _of_connection_file() -> str:
    try:
        from ipykernel.connect import get_connection_file

        found = _CONNECTION_FILE.fullmatch(PurePath(get_connection_file()).name)
    except (ImportError, RuntimeError):  # no ipykernel, or no kernel
        return ""
    return found[1] if found else ""


def has_keeper(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether somebody starts this kernel anew, pinned, when it restarts."""
    return pins.KERNEL in environ


def kernel_holder(environ: Mapping[str, str] = os.environ) -> Holder:
    """Give this kernel as a holder, and who looks after it."""
    name, keeper = kernel_id(environ), os.getppid()
    try:
        # Who started us may have ended; then the parent is the system's first process, which never does.
        if has_keeper(environ) and Path(f"/proc/{keeper}").stat().st_uid == os.geteuid():
            return holding.kernel_holder(name, os.getpid(), keeper)
    except (OSError, ProcessLookupError):
        pass
    return holding.process_holder("kernel", name)


def name_of_work(environ: Mapping[str, str] = os.environ) -> str:
    """Give the name that people know: the notebook's file name, where it is known."""
    return PurePath(environ.get("JPY_SESSION_NAME", "")).name


def is_held_here(it: WorkloadView, name: str) -> bool:
    """Whether it is the reservation of the kernel with this id."""
    return (
        it.is_mine
        and it.kind == "reservation"
        and it.end is None
        and it.holder is not None
        and (it.holder.kind, it.holder.name) == ("kernel", name)
    )


def find_held(workloads: Iterable[WorkloadView], name: str) -> WorkloadView | None:
    """Find the kernel's reservation, queued or active; one that is being given back only where there is no other."""
    found = sorted((it for it in workloads if is_held_here(it, name)), key=lambda it: it.state is State.YIELDING)
    return found[0] if found else None


def held_here(client: Client, environ: Mapping[str, str] = os.environ) -> WorkloadView | None:
    """Ask for this kernel's reservation."""
    return find_held(client.status().workloads, kernel_id(environ))


def remark_in_an_attempt(what: str, environ: Mapping[str, str] = os.environ) -> str:
    """Say what is left undone where the kernel is a job's, which has its GPUs; empty in every other kernel."""
    if pins.ATTEMPT not in environ:
        return ""
    return f"This kernel runs in job {environ.get('JUPYTER_GPU_JOB', '?')} and has its GPUs; {what}."
