"""The part of `jupyter gpu doctor` that concerns the GPUs: driver, library, bindings, who may open them, how each is.

NVML is the broker's to ask. Where none answers, files are looked at, and no driver is called.
"""

from __future__ import annotations

import grp
import os
import pwd
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata, util
from pathlib import Path
from typing import NamedTuple

from .. import pins
from ..model import BrokerView, CardView, Condition, DeviceView, DriverView, IsolationView, Status, UseKind
from ..own_reach import find_out, is_closed_by_mode, question
from .doctor import Check
from .doctor_machine import slurp
from .picture import in_rows
from .text import condition_text, cordon_text, plural, split_text

_LIBRARY = "libnvidia-ml.so.1"
#: Where drivers and container runtimes put it; the first is what a program was told.
_LIBRARY_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/lib64",
    "/usr/local/nvidia/lib64", "/usr/lib/wsl/lib", "/run/opengl-driver/lib",
)  # fmt: skip
_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)?")
#: Besides the official one these bring a module of the same name, an older one (rossumai/nvgpu#29).
_NAMESAKES = ("pynvml", "nvidia-ml-py3")
_NODES = re.compile(r"nvidia\d+|nvidiactl|nvidia-uvm")
_MOST_NAMED = 3

_BACK = "It comes back by itself"
_RESET = "reset it with `sudo nvidia-smi --gpu-reset -i {card}`"
_REMEDIES = {
    Condition.LOST: "`dmesg` may say why: {reset}, seat it anew or restart the machine. {back} once it reads well. "
    "If it was taken out: `jupyter gpu forget {number}`.",
    Condition.FAULTY: "Once nothing runs on it {reset}, or replace it. "
    "If it is faulty still: `jupyter gpu uncordon {number}`.",
    Condition.RESET_NEEDED: "Let its work end, then {reset}. {back} after that.",
    Condition.PROHIBITED: "`sudo nvidia-smi -i {card} -c DEFAULT` lets CUDA in. {back} after that.",
    Condition.UNREADABLE: "See whether `nvidia-smi -i {card}` answers, and what `dmesg` says. {back} once it does.",
    Condition.HOT: "Look at its fans, at what stands before them, and at its power. {back} once it is cool; "
    "`hot_celsius` of the policy is the limit.",
    Condition.SUSPECT: "Where that stays: {reset}. {back} once the load is gone.",
    Condition.NOT_CLEAR: "End what is named: `jupyter gpu devices` lists it. {back} once nothing is left on it.",
    Condition.FOREIGN: "`jupyter gpu devices` names it: let its owner reserve, or end it. {back} once nobody is on it.",
}
#: Whatever the condition is called: nobody is there who could be asked or ended.
_OF_THE_DEAD = (
    "What is named has ended and cannot be ended again. If the driver still counts its memory after a minute: {reset}, "
    "while nothing runs on it, or restart the machine. {back} once nothing is left on it."
)
_WORD = "`jupyter gpu uncordon {number}` gives it back"


def driver_check(view: BrokerView | None, status: Status | None, root: Path = Path("/")) -> Check:
    """Say by what the GPUs are read, or why none can be."""
    if status is not None and status.devices and all(device.simulated for device in status.devices):
        return Check(name="driver", state="ok", text="not asked for: all GPUs are simulated")
    if view is not None and view.driver is not None and _has_gpus(status):
        return Check(name="driver", state="ok", text=_driver_text(view.driver))
    if _has_gpus(status):
        return Check(name="driver", state="ok", text="the broker reads the GPUs through NVML")
    loaded = _first_line(root / "proc/driver/nvidia/version")
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


def _has_gpus(status: Status | None) -> bool:
    return status is not None and bool(status.devices or status.cards)


def _driver_text(it: DriverView) -> str:
    parts = [f"{name} {version}" for name, version in (("driver", it.driver), ("NVML", it.nvml)) if version]
    parts += [f"CUDA up to {it.cuda}"] if it.cuda else []
    parts += [f"read by {it.bindings}"] if it.bindings else []
    return ", ".join(parts) or "the broker reads the GPUs through NVML"


def library_checks(environ: Mapping[str, str], root: Path = Path("/")) -> Iterator[Check]:
    """Compare the driver that is loaded with the library that programs find. Nothing of either is called."""
    loaded = _first_line(root / "proc/driver/nvidia/version")
    if loaded is None:
        return
    found = _library(environ, root)
    if found is None:
        yield Check(
            name="NVML library",
            state="fail",
            text=f"the driver is loaded, and {_LIBRARY} is nowhere to be found",
            remedy="Install the driver's own libraries; in a container start it with "
            "NVIDIA_DRIVER_CAPABILITIES=compute,utility.",
        )
        return
    path, of_library = found
    of_driver = _VERSION.search(loaded)
    if of_library is None or of_driver is None or of_library == of_driver[0]:
        yield Check(name="NVML library", state="ok", text=str(path))
        return
    yield Check(
        name="NVML library",
        state="fail",
        text=f"{path} is of driver {of_library}, and the one that is loaded is {of_driver[0]}",
        remedy="An update has replaced it: restart the machine. What runs goes on; nothing new can be read until then.",
    )


def _library(environ: Mapping[str, str], root: Path) -> tuple[Path, str | None] | None:
    told = [Path(it) for it in environ.get("LD_LIBRARY_PATH", "").split(":") if it.startswith("/")]
    for folder in (*told, *(root / it.removeprefix("/") for it in _LIBRARY_FOLDERS)):
        path = folder / _LIBRARY
        if path.exists():
            version = _VERSION.search(path.resolve().name.removeprefix(_LIBRARY.removesuffix("1")))
            return path, None if version is None else version[0]
    return None


def bindings_checks(view: BrokerView | None, status: Status | None) -> Iterator[Check]:
    """Name the module that speaks to NVML where the driver's own line does not: the broker's, else that found here."""
    told = "" if view is None or view.driver is None else view.driver.bindings
    if not told:
        yield bindings_check()
    elif not _has_gpus(status):
        yield Check(name="bindings", state="ok", text=told)


def bindings_check() -> Check:
    """Say which Python module would speak to NVML from this environment; it is found and not loaded."""
    spec = util.find_spec("pynvml")
    file = None if spec is None else spec.origin
    if file is None:
        return Check(
            name="bindings",
            state="fail",
            text="there is no module pynvml, so a broker of this environment could read no GPU",
            remedy="`pip install nvidia-ml-py`.",
        )
    owner = _owner_of(Path(file), ("nvidia-ml-py", *_NAMESAKES))
    text = file if owner is None else f"{file} ({owner})"
    if owner is not None and owner.split()[0] in _NAMESAKES:
        return Check(
            name="bindings",
            state="warn",
            text=f"{text}: an older package of that name stands before the official one",
            remedy=f"`pip uninstall {owner.split()[0]}`, then `pip install --force-reinstall nvidia-ml-py`.",
        )
    return Check(name="bindings", state="ok", text=text)


def _owner_of(file: Path, names: Iterable[str]) -> str | None:
    """The package that brought a file, and its version."""
    for name in names:
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        if any(Path(str(found.locate_file(it))) == file for it in found.files or ()):
            return f"{name} {found.version}"
    return None


class _Closed(NamedTuple):
    """A device node that the caller may not open."""

    path: Path
    mode: str
    owner: str
    group: str


def permission_checks(root: Path = Path("/")) -> Iterator[Check]:
    """See whether the caller may open the nodes that CUDA opens, and if not, who may."""
    dev = root / "dev"
    nodes = sorted(it for it in dev.glob("nvidia*") if _NODES.fullmatch(it.name))
    if not nodes:
        if _first_line(root / "proc/driver/nvidia/version") is not None:
            yield Check(
                name="permissions",
                state="fail",
                text="the driver is loaded, and there is no /dev/nvidia*",
                remedy="`sudo nvidia-modprobe -u -c 0` makes them, as `nvidia-smi` does; in a container, give it GPUs.",
            )
        return
    shut = [it for it in nodes if not os.access(it, os.R_OK | os.W_OK)]
    closed = [_closed(it) for it in shut if is_closed_by_mode(it)]
    if closed:
        yield _closed_check(closed)
    elif shut:  # the rules of a unit or a container: that is how a server is kept from the GPUs of others
        text = f"{len(shut)} of {len(nodes)} of /dev/nvidia* withheld from here by more than their own permissions"
        yield Check(name="permissions", state="ok", text=text)
    elif not (dev / "nvidia-uvm").exists():
        yield Check(
            name="permissions",
            state="warn",
            text="there is no /dev/nvidia-uvm, so no CUDA program can start",
            remedy="`sudo nvidia-modprobe -u -c 0` makes it.",
        )
    else:
        yield Check(name="permissions", state="ok", text=f"you may open all {len(nodes)} of /dev/nvidia*")


def _closed(path: Path) -> _Closed:
    found = path.stat()
    return _Closed(path, stat.filemode(found.st_mode), _user(found.st_uid), _group(found.st_gid))


def _closed_check(closed: Sequence[_Closed]) -> Check:
    shown = ", ".join(f"{it.path} ({it.mode} {it.owner}:{it.group})" for it in closed[:_MOST_NAMED])
    more = f" and {len(closed) - _MOST_NAMED} more" if len(closed) > _MOST_NAMED else ""
    groups = {it.group for it in closed if it.mode[4:6] == "rw" and it.group != "root"}
    if groups:
        group = ",".join(sorted(groups))
        remedy = (
            f"Let an admin put you into that group (`sudo usermod -aG {group} {_user(os.geteuid())}`); log in anew."
        )
    else:
        remedy = "`sudo chmod 0666` opens them until a restart; NVreg_DeviceFileMode=0666 of the driver does for good."
    return Check(name="permissions", state="fail", text=f"you may not open {shown}{more}", remedy=remedy)


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def isolation_check(isolation: IsolationView | None, status: Status | None) -> Check:
    """Say whether jobs are kept from GPUs that are not theirs, as the broker's probe found."""
    if status is not None and (status.simulated or not status.devices):
        there = "simulated GPUs have" if status.simulated else "there is"
        return Check(name="isolation", state="ok", text=f"{there} nothing to keep apart")
    if isolation is None:
        return Check(
            name="isolation", state="ok", text="advisory: no broker has tried it yet, so the pin alone is sure"
        )
    detail = f" ({isolation.detail.rstrip('.')})" if isolation.detail else ""
    if isolation.enforced:
        return Check(name="isolation", state="ok", text=f"enforced by {isolation.by or 'the system'}{detail}")
    if isolation.by:
        return Check(
            name="isolation",
            state="warn",
            text=f"advisory: {isolation.by} withholds the GPUs of others from a job, but not surely{detail}",
            remedy="What each way to withhold them holds, and what none does, is said in docs/devices.md.",
        )
    return Check(
        name="isolation",
        state="warn",
        text=f"advisory: a job is told which GPUs are its own, and nothing keeps it from the others{detail}",
        remedy="A broker that runs as root uses cgroups; one that does not needs Linux 5.19 or newer with Landlock, or "
        "bubblewrap. docs/devices.md says what each costs.",
    )


def own_check(status: Status | None, environ: Mapping[str, str]) -> Check | None:
    """Say whether the hub's server that this runs in is kept from other GPUs: it is tried here and now."""
    kernel = environ.get(pins.KERNEL)
    asked = None if status is None else question(status, environ, {kernel} if kernel else ())
    if asked is None:
        return None
    found = find_out(asked)
    word, by = ("enforced", f" by {found.by or 'the system'}") if found.enforced else ("advisory", "")
    return Check(
        name="this server",
        state="ok" if found.enforced else "warn",
        text=f"{word}{by} ({found.detail})",
        remedy="" if found.enforced else "docs/hub.md says which spawners keep servers apart. It is the hub's admin's.",
    )


def device_checks(status: Status | None) -> Iterator[Check]:
    """Name each GPU that gets no work, with what helps, and count the rest."""
    if status is None or not (status.devices or status.cards):
        return
    sound = [it for it in status.devices if it.condition is None and not it.cordoned]
    label = ", SIMULATED" if status.simulated else ""
    yield Check(
        name="devices",
        state="ok" if sound else "fail",
        text=f"{len(sound)} of {plural(len(status.devices), 'GPU')} can be leased{label}",
        remedy="" if sound else "`jupyter gpu devices` says how each one is.",
    )
    split = {it.card for it in status.devices}
    for it in in_rows(status.devices, status.cards):
        if isinstance(it, CardView):
            yield from () if it.uuid in split else (_empty_card(it),)
        elif it.condition is not None:
            yield Check(name=f"GPU {it.number}", state="warn", text=condition_text(it), remedy=remedy_of(it))
        elif it.cordoned:
            remedy = f"{_WORD.format(number=it.number)}."
            yield Check(name=f"GPU {it.number}", state="warn", text=_cordoned(it), remedy=remedy)


def _cordoned(it: DeviceView) -> str:
    return cordon_text(it) if it.cordoned_by else cordon_text(it).replace("cordoned", "cordoned by an operator", 1)


def _empty_card(card: CardView) -> Check:
    return Check(
        name=f"GPU {card.index}",
        state="warn",
        text=split_text(card, 0),
        remedy=f"`sudo nvidia-smi mig -i {card.index} -lgip` lists the profiles and `-cgi PROFILE -C` makes "
        f"some; `sudo nvidia-smi -i {card.index} -mig 0` makes it one GPU again.",
    )


def remedy_of(device: DeviceView) -> str:
    """What helps a device that is not well, and whether somebody must say that it is well again."""
    if device.condition is None:
        return ""
    card = device.number.partition(":")[0]
    reset = _RESET.format(card=card)
    remedy = _OF_THE_DEAD if _is_held_by_the_dead(device) else _REMEDIES[device.condition]
    said = remedy.format(card=card, number=device.number, back=_BACK, reset=reset)
    # Where only somebody's word ends the condition, that word ends the cordon too, and stands there already.
    if device.cordoned and "uncordon" not in said:
        said += f" It is cordoned too: {_WORD.format(number=device.number)} then."
    return said


def _is_held_by_the_dead(device: DeviceView) -> bool:
    """Whether all that is on it without a lease has ended."""
    strange = [use for use in device.uses if use.foreign]
    is_occupied = device.condition in (Condition.NOT_CLEAR, Condition.FOREIGN)
    return is_occupied and bool(strange) and all(use.kind is UseKind.DEAD for use in strange)


def alert_checks(status: Status | None) -> Iterator[Check]:
    """Pass on what somebody should know, unless a GPU's own line says it."""
    if status is None:
        return
    sick = [it for it in status.devices if it.condition is not None]
    told = {it.uuid for it in sick} | {it.card for it in sick if it.card is not None}
    for alert in status.alerts:
        if alert.device not in told and alert.text not in status.warnings:
            yield Check(name="alert", state="warn", text=alert.text)


def visible_check(environ: Mapping[str, str], status: Status | None) -> Check | None:
    """Look at what shows GPUs to programs that are started here; one that nobody of ours has set is found out."""
    value = environ.get(pins.VISIBLE)
    if value is None:
        return None
    named = f"{pins.VISIBLE} is {value!r}"
    marks = (
        (pins.ATTEMPT, "an attempt of a job"),
        (pins.RESERVATION, "reservation"),
        (pins.KERNEL, "a kernel of ours"),
    )
    for mark, what in marks:
        if mark in environ:
            number = f" {environ[mark]}" if mark == pins.RESERVATION else ""
            return Check(name="visible GPUs", state="ok", text=f"{named}, by {what}{number}")
    if not pins.read(value):
        return Check(name="visible GPUs", state="ok", text=f"{named}: what is started here sees none")
    known = () if status is None else tuple(it.uuid for it in status.devices)
    none = " and names none of this machine" if known and not pins.visible(value, known) else ""
    return Check(
        name="visible GPUs",
        state="warn",
        text=f"{named}{none}: what is started here uses them without a lease, if any; jobs get their own",
        remedy=f"`unset {pins.VISIBLE}`, then `jupyter gpu reserve`; look into ~/.bashrc and the like.",
    )


def _first_line(path: Path) -> str | None:
    text = slurp(path)
    return None if text is None else text.strip().partition("\n")[0]
