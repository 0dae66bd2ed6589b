"""The part of `jupyter gpu doctor` that concerns the machine: its disk, its clock, what a container sees, what ends.

It reads files and starts nothing; tests give other files.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from .. import disks, paths, pins
from ..units import format_bytes, format_seconds
from .doctor import Check

LOW_BYTES = 1 << 30
FULL_BYTES = 100 << 20
SKEW_SECONDS = 5.0
#: Docker gives 64 MiB; the workers of one data loader take more.
LEAST_SHARED_BYTES = 1 << 30
# Nothing of ours is older, so an earlier date is a clock that was never set.
_EARLIEST = 1_735_689_600.0
#: The name of the first namespace of pids: its number is part of the kernel.
_FIRST_PIDS = "pid:[4026531836]"
_CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES"

# Control groups that end early: a server's own unit, as TLJH and systemdspawner make them, a container, a batch job.
_DIES_WITH = (
    (re.compile(r"/[^/]*jupyter(?!-gpu\b)[^/]*\.(?:service|scope)"), "the unit of a Jupyter server"),
    (re.compile(r"kubepods|docker|containerd|libpod|crio|lxc"), "a container"),
    (re.compile(r"slurm|/job_\d+"), "a batch job"),
)


def disk_check(folder: Path) -> Check:
    """Look at the space where the store and the logs lie."""
    place = _there(folder)
    try:
        free = shutil.disk_usage(place).free
    except OSError as error:
        return Check(name="disk", state="warn", text=f"{folder} cannot be looked at: {error.strerror}")
    text = f"{format_bytes(free)} free where the state lies ({folder})"
    if free < FULL_BYTES:
        return Check(
            name="disk", state="fail", text=text, remedy="Free some: the broker accepts nothing when it cannot write."
        )
    if free < LOW_BYTES:
        return Check(name="disk", state="warn", text=text, remedy="Free some; logs and checkpoints may need more.")
    return Check(name="disk", state="ok", text=text)


def store_check(folder: Path) -> Check:
    """See whether the store lies on a disk of this machine; a home is often shared by several."""
    place = _there(folder)
    kind = disks.network_file_system(place)
    if kind is None:
        on = disks.file_system(place)
        return Check(name="store", state="ok", text="on a disk of this machine" + (f" ({on})" if on else ""))
    return Check(
        name="store",
        state="warn",
        text=f"{folder} lies on a network file system ({kind}), where SQLite's locks are slow and may fail",
        remedy="Set JUPYTER_GPU_STATE_DIR to a folder on a local disk, for all who ask too, and start the broker anew.",
    )


def _there(folder: Path) -> Path:
    return next(it for it in (folder, *folder.parents) if it.exists())


def clock_check(here: float, there: float | None) -> Check:
    """See whether leases and their ends mean the same instants to both."""
    if here < _EARLIEST:
        return Check(
            name="clock",
            state="fail",
            text="this machine's clock was never set",
            remedy="Set it, and run an NTP service.",
        )
    if there is not None and abs(here - there) > SKEW_SECONDS:
        return Check(
            name="clock",
            state="warn",
            text=f"the broker's clock differs by {format_seconds(abs(here - there))}",
            remedy="Run an NTP service on both machines; ends of leases are told by the broker's clock.",
        )
    return Check(name="clock", state="ok", text="set" if there is None else "set, and the broker's agrees")


def survival_check(broker_pid: int | None, proc: Path = Path("/proc")) -> Check:
    """See whether the queue ends with the Jupyter server, the container or the session it was started from."""
    for who, pid in (("the broker", broker_pid), ("this process", os.getpid())):
        if pid is None:
            continue
        groups = slurp(proc / str(pid) / "cgroup")
        if groups is None:
            continue
        what = next((what for pattern, what in _DIES_WITH if pattern.search(groups)), None)
        if what is None:
            return Check(name="survival", state="ok", text=f"{who} belongs to no unit that ends with a Jupyter server")
        return Check(
            name="survival",
            state="warn",
            text=f"{who} sits in {what}, and may end with it, jobs included",
            remedy="Ask an admin for the shared broker, a systemd service of its own.",
        )
    return Check(name="survival", state="ok", text="the broker runs elsewhere")


def socket_check() -> Check:
    """Say where a broker is looked for."""
    places = list(dict.fromkeys((paths.system_socket(), paths.user_socket())))
    there = [str(place) for place in places if place.exists()]
    return Check(
        name="socket", state="ok", text=", ".join(there) if there else f"looked for: {', '.join(map(str, places))}"
    )


def container_checks(environ: Mapping[str, str], root: Path = Path("/")) -> Iterator[Check]:
    """What a container sees of the GPUs and of who is on them; nothing outside of one."""
    if not is_in_container(environ, root):
        return
    yield _pids_check(root)
    yield from _shared_memory_checks(root)
    yield from _given_checks(environ)


def is_in_container(environ: Mapping[str, str], root: Path = Path("/")) -> bool:
    """Whether this is the inside of a container, as far as it shows."""
    marks = (root / ".dockerenv", root / "run/.containerenv")
    groups = slurp(root / "proc/self/cgroup") or ""
    return (
        any(mark.exists() for mark in marks)
        or "KUBERNETES_SERVICE_HOST" in environ
        or environ.get("container", "") != ""
        or bool(_DIES_WITH[1][0].search(groups))
    )


def _pids_check(root: Path) -> Check:
    """The driver counts processes of the machine: in a namespace of pids its numbers are others' (gpustat#117)."""
    try:
        first = str((root / "proc/self/ns/pid").readlink()) == _FIRST_PIDS
    except OSError:
        first = False
    if first:
        return Check(name="container", state="ok", text="this is one, and it shares the machine's pids")
    return Check(
        name="container",
        state="warn",
        text="this is one with pids of its own, and the driver tells the machine's: whose a process on a GPU is "
        "cannot be told in here, and none is ended for it",
        remedy="Run the broker on the machine itself, or start the container with `--pid=host` "
        "(`hostPID: true` in Kubernetes).",
    )


def _shared_memory_checks(root: Path) -> Iterator[Check]:
    try:
        total = shutil.disk_usage(root / "dev/shm").total
    except OSError:
        return
    if total >= LEAST_SHARED_BYTES:
        yield Check(name="shared memory", state="ok", text=f"{format_bytes(total)} in /dev/shm")
        return
    yield Check(
        name="shared memory",
        state="warn",
        text=f"only {format_bytes(total)} in /dev/shm: data loaders with workers, and NCCL, fail with a bus error",
        remedy="Start the container with `--shm-size=8g` or `--ipc=host`; "
        "in Kubernetes mount an emptyDir with `medium: Memory` there.",
    )


def _given_checks(environ: Mapping[str, str]) -> Iterator[Check]:
    """What the container runtime was told of GPUs, where it says so at all."""
    given, offered = environ.get(pins.CONTAINERS), environ.get(_CAPABILITIES)
    if given in ("", "none", "void"):
        yield Check(
            name="given GPUs",
            state="warn",
            text=f"{pins.CONTAINERS} is {given!r}, so this container was given none",
            remedy="Start it with `--gpus all`, or with `--device nvidia.com/gpu=all`.",
        )
    elif given is not None:
        yield Check(name="given GPUs", state="ok", text=f"{pins.CONTAINERS} is {given!r}")
    if offered is not None and not {"all", "utility"} & set(offered.replace(" ", "").split(",")):
        yield Check(
            name="capabilities",
            state="fail",
            text=f"{_CAPABILITIES} is {offered!r}: without `utility` there is no NVML, so no GPU can be read",
            remedy=f"Start the container with {_CAPABILITIES}=compute,utility.",
        )


def slurp(path: Path) -> str | None:
    """The text of a file; None where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
