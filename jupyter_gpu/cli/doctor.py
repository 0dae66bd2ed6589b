"""`jupyter gpu doctor`: what could be wrong, one line each, with what helps.

It starts nothing: a broker that does not run is a finding. What only the broker knows (NVML, the store) is asked of it.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import click
import msgspec

from .. import __version__, paths
from ..errors import BrokerUnavailable, GpuError
from ..model import BrokerView, Status
from ..units import format_bytes, format_seconds
from ..versions import misfit
from .base import Face, json_option, pass_face
from .text import plural, safe, sentence

LOW_BYTES = 1 << 30
FULL_BYTES = 100 << 20
SKEW_SECONDS = 5.0
# Nothing of ours is older, so an earlier date is a clock that was never set.
_EARLIEST = 1_735_689_600.0

# Control groups that end early: a server's own unit, as TLJH and systemdspawner make them, a container, a batch job.
_DIES_WITH = (
    (re.compile(r"/[^/]*jupyter(?!-gpu\b)[^/]*\.(?:service|scope)"), "the unit of a Jupyter server"),
    (re.compile(r"kubepods|docker|containerd|libpod|crio|lxc"), "a container"),
    (re.compile(r"slurm|/job_\d+"), "a batch job"),
)


class Check(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One finding."""

    name: str
    state: Literal["ok", "warn", "fail"]
    text: str
    remedy: str = ""


class Checkup(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `doctor --json`."""

    checks: tuple[Check, ...]


@click.command(short_help="Check what could be wrong, and say what helps.")
@json_option
@pass_face
def doctor(face: Face) -> int:
    """Check the broker, the driver, the GPUs, Jupyter, the disk and the clock. Exit 1 if something fails."""
    checks = tuple(examine(face))
    if face.as_json:
        face.document(Checkup(checks=checks))
    else:
        _show(face, checks)
    return int(any(check.state == "fail" for check in checks))


def examine(face: Face) -> Iterator[Check]:
    """Look at everything in turn; what cannot be asked is a finding like the others."""
    from .doctor_jupyter import jupyter_checks

    view, status = None, None
    try:
        client = face.connect(start=False)
        view, status = client.broker(), client.status()
        yield broker_check(view)
    except BrokerUnavailable as error:
        yield Check(
            name="broker",
            state="warn",
            text=f"none answers: {error.message}",
            remedy="The first command that needs one starts it; `jupyter gpu broker start` does so now.",
        )
    except GpuError as error:
        yield Check(name="broker", state="fail", text=error.message, remedy=error.hint or "")
    yield from warning_checks(view, status)
    yield driver_check(status)
    yield from device_checks(status)
    yield Check(
        name="isolation",
        state="ok",
        text="advisory: a job is told which GPUs are its own, and nothing keeps it from the others",
    )
    yield clock_check(face.now(), None if status is None else status.at)
    yield from jupyter_checks(os.environ if face.environ is None else face.environ)
    if view is not None and view.node != platform.node():
        return  # its disk, its processes and its socket are elsewhere
    yield disk_check(Path(view.state_dir) if view is not None else paths.state_dir())
    yield survival_check(None if view is None else view.pid)
    yield socket_check()


def broker_check(view: BrokerView) -> Check:
    """Say which broker answers, and whether it and we understand each other."""
    text = f"pid {view.pid} of {view.user} on {view.node}, version {view.version}"
    if misfit(view.version):
        return Check(
            name="broker",
            state="fail",
            text=f"{text}, but this is version {__version__}",
            remedy="Bring both to the same version: they may differ by one minor version.",
        )
    return Check(name="broker", state="ok", text=text)


def warning_checks(view: BrokerView | None, status: Status | None) -> Iterator[Check]:
    """Pass on what the broker itself warns of: no driver, a store on a network file system, a full disk."""
    found = (*(view.warnings if view else ()), *(status.warnings if status else ()))
    for warning in dict.fromkeys(found):
        yield Check(name="broker says", state="warn", text=warning)


def driver_check(status: Status | None, proc: Path = Path("/proc/driver/nvidia/version")) -> Check:
    """Say whether GPUs can be read. The broker asks NVML; without one only the kernel's module can be looked at."""
    if status is not None and status.devices:
        if all(device.simulated for device in status.devices):
            return Check(name="driver", state="ok", text="not asked for: all GPUs are simulated")
        return Check(name="driver", state="ok", text="the broker reads the GPUs through NVML")
    loaded = _first_line(proc)
    if loaded is None:
        return Check(
            name="driver",
            state="fail",
            text="this machine has no NVIDIA driver, or none that is loaded",
            remedy="Install the driver and check with `nvidia-smi`; in a container, start it with GPUs. "
            "Without any, try `jupyter gpu broker start --simulated 4`.",
        )
    if status is None:
        return Check(name="driver", state="ok", text=f"loaded: {loaded}")
    return Check(
        name="driver",
        state="fail",
        text=f"loaded, but the broker sees no GPU: {loaded}",
        remedy="Check with `nvidia-smi`, then `jupyter gpu broker stop` and `start`.",
    )


def device_checks(status: Status | None) -> Iterator[Check]:
    """Name each GPU that gets no work, and count the rest."""
    if status is None or not status.devices:
        return
    sound = [it for it in status.devices if it.condition is None and not it.cordoned]
    label = ", SIMULATED" if status.simulated else ""
    yield Check(
        name="devices",
        state="ok" if sound else "fail",
        text=f"{len(sound)} of {plural(len(status.devices), 'GPU')} can be leased{label}",
        remedy="" if sound else "`jupyter gpu devices` says how each one is.",
    )
    for it in status.devices:
        if it.condition is not None:
            detail = f" ({it.condition_detail})" if it.condition_detail else ""
            remedy = f"Once it is sound again: `jupyter gpu uncordon {it.index}`."
            yield Check(name=f"GPU {it.index}", state="warn", text=f"{it.condition}{detail}", remedy=remedy)
        elif it.cordoned:
            remedy = f"`jupyter gpu uncordon {it.index}` gives it back."
            yield Check(name=f"GPU {it.index}", state="warn", text="cordoned by an operator", remedy=remedy)


def disk_check(folder: Path) -> Check:
    """Look at the space where the store and the logs lie."""
    place = next(it for it in (folder, *folder.parents) if it.exists())
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
        groups = _slurp(proc / str(pid) / "cgroup")
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


def _first_line(path: Path) -> str | None:
    text = _slurp(path)
    return None if text is None else text.strip().partition("\n")[0]


def _slurp(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _show(face: Face, checks: tuple[Check, ...]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for check in checks:
        style = {"ok": "green", "warn": "yellow", "fail": "bold red"}[check.state]
        text = Text(safe(check.text))
        if check.remedy:
            text.append(f"\n{sentence(check.remedy)}", style="dim")
        table.add_row(Text(check.state, style=style), Text(safe(check.name)), text)
    face.say(table)
