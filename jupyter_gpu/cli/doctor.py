"""`jupyter gpu doctor`: what could be wrong, one line each, with what helps.

It starts nothing: a broker that does not run is a finding. What only the broker knows (NVML, the store) is asked of it.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import click
import msgspec

from .. import __version__, paths
from ..errors import BrokerUnavailable, GpuError
from ..model import BrokerView, Status
from ..versions import misfit
from .base import Face, json_option, pass_face
from .judgement import Trial
from .text import safe, sentence


class Check(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One finding."""

    name: str
    state: Literal["ok", "warn", "fail"]
    text: str
    remedy: str = ""


class Checkup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer of `doctor --json`."""

    checks: tuple[Check, ...]
    #: With --trial: what came of each GPU.
    trials: tuple[Trial, ...] = ()


@click.command(short_help="Check what could be wrong, and say what helps.")
@click.option("--trial", is_flag=True, help="Let each free GPU compute for a moment, and judge what it did.")
@click.option("--seconds", type=click.IntRange(1, 600), default=5, show_default=True, help="How long each is tried.")
@json_option
@pass_face
def doctor(face: Face, trial: bool, seconds: int) -> int:
    """Check the broker, the driver, the GPUs, Jupyter, the disk and the clock. Exit 1 if something fails.

    With --trial each GPU that is free is reserved for a moment and computes, with PyTorch, JAX or CuPy where one of
    them is installed beside this program, else by copying its memory. Its results are checked, and it is told how fast
    and how hot it was, beside others of its kind. GPUs in use, cordoned or not well are named and left alone. Podman,
    where it is here, is to start a container.
    """
    checks = tuple(examine(face, tries=trial))
    trials = _tried(face, seconds) if trial else ()
    if face.as_json:
        face.document(Checkup(checks=checks, trials=trials))
    else:
        _show(face, (*checks, *map(_line, trials)))
    return int("fail" in (*(it.state for it in checks), *(it.state for it in trials)))


def _tried(face: Face, seconds: int) -> tuple[Trial, ...]:
    """Try the GPUs; without a broker there is nobody to reserve them with."""
    from .trial import try_all

    try:
        client = face.connect(start=False)
        return try_all(face, client.status(), client.broker().node, seconds)
    except GpuError as error:
        return (Trial(state="fail", text=f"not possible: {error.message}", remedy="`jupyter gpu broker start`."),)


def _line(it: Trial) -> Check:
    name = f"trial GPU {it.number}" if it.number else "trial"
    return Check(name=name, state=it.state, text=it.text, remedy=it.remedy)


def examine(face: Face, *, tries: bool = False) -> Iterator[Check]:
    """Look at everything in turn; what cannot be asked is a finding like the others."""
    from .doctor_containers import engine_checks
    from .doctor_jupyter import jupyter_checks
    from .doctor_machine import clock_check, container_checks

    view, status = None, None
    environ = os.environ if face.environ is None else face.environ
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
    is_here = view is None or view.node == platform.node()
    folder = Path(view.state_dir) if view is not None else paths.state_dir(environ)
    place = list(_of_place(view, folder)) if is_here else []  # else its disk, its processes and socket are elsewhere
    shared = any(check.name == "store" and check.state != "ok" for check in place)
    for check in warning_checks(view, status):
        # What is said with its remedy below is not said twice.
        if not (shared and "network file system" in check.text):
            yield check
    yield from _of_devices(view, status, environ, is_here=is_here)
    yield clock_check(face.now(), None if status is None else status.at)
    yield from jupyter_checks(environ)
    yield from place
    yield from container_checks(environ)
    if is_here:
        yield from engine_checks(environ, status, tries=tries)


def _of_devices(
    view: BrokerView | None, status: Status | None, environ: Mapping[str, str], *, is_here: bool
) -> Iterator[Check]:
    """The driver and what stands on it. Of GPUs elsewhere only the broker's word counts."""
    from . import doctor_devices as devices

    yield devices.driver_check(view, status)
    simulated = status is not None and status.simulated
    if is_here and not simulated:
        yield from devices.library_checks(environ)
        yield from devices.permission_checks()
    yield from devices.bindings_checks(view, status)
    yield from devices.device_checks(status)
    yield from devices.alert_checks(status)
    isolation = None if view is None else view.isolation or (None if status is None else status.isolation)
    yield devices.isolation_check(isolation, status)
    told = (devices.own_check(status, environ), devices.visible_check(environ, status))
    yield from (it for it in told if it is not None)


def _of_place(view: BrokerView | None, folder: Path) -> Iterator[Check]:
    from .doctor_machine import disk_check, socket_check, store_check, survival_check

    yield disk_check(folder)
    yield store_check(folder)
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
