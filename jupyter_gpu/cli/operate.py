"""`jupyter gpu cordon`, `uncordon`, `drain`, `forget`, `broker` and `completion`: for who keeps the lab running."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from ..errors import BrokerUnavailable, Conflict
from ..model import MarkedView, UseKind
from .base import Face, for_each, json_option, pass_face
from .see import devices_of
from .text import condition_text, cordon_text, safe
from .words import DeviceName

if TYPE_CHECKING:
    from ..model import BrokerView, DeviceView, UseView

reason_option = click.option(
    "--reason", default="", metavar="TEXT", help="Told, with your name, to those whose work is on them."
)
devices_argument = click.argument("devices", type=DeviceName(), nargs=-1, required=True, metavar="GPU...")


def _mark(
    face: Face,
    devices: tuple[str, ...],
    act: Callable[[str], DeviceView],
    said: Callable[[DeviceView | None, DeviceView], str],
) -> int:
    """Mark several; what is told depends on how each was before and is now. A whole GPU in MIG mode is its parts."""
    from ..model import DevicePage

    # A document says nothing of before.
    before = {} if face.as_json else {it.uuid: it for it in devices_of(face)}

    def one(name: str) -> tuple[DeviceView, ...]:
        found = _each(act(name))
        for it in () if face.as_json else found:
            face.say(f"GPU {it.number} ({safe(it.uuid)}) {said(before.get(it.uuid), it)}")
        return found

    done, code = for_each(face, dict.fromkeys(devices), one)
    if face.as_json and done:
        face.document(DevicePage(items=tuple(it for found in done for it in found)))
    return code


def _each(it: DeviceView) -> tuple[DeviceView, ...]:
    return (msgspec.structs.replace(it, others=()), *it.others) if isinstance(it, MarkedView) else (it,)


def _named(workloads: Sequence[int]) -> str:
    """Name who is on a device: "workload 12", "workloads 12, 13"."""
    return f"workload{'s' if len(workloads) > 1 else ''} {', '.join(map(str, workloads))}"


def _cordoned(before: DeviceView | None, it: DeviceView) -> str:
    already = " already" if before is not None and before.cordoned and _by(before) == _by(it) else ""
    goes_on = f"what runs on it goes on ({_named(it.workloads)})" if it.workloads else ""
    return f"is cordoned{already}{_by(it)}; {_and_strangers(it, goes_on)}."


def _by(it: DeviceView) -> str:
    """By whom and why, where something is known of that: " by grace: node maintenance"."""
    return cordon_text(it).removeprefix("cordoned")


def _and_strangers(it: DeviceView, leased: str) -> str:
    """What of the queue is on a device, and what else: nothing runs there only where nobody at all is seen."""
    foreign = [use for use in it.uses if use.foreign]
    alive = [use for use in foreign if use.kind is not UseKind.DEAD]
    parts = [leased or ("no workload holds it" if foreign or it.condition is not None else "nothing runs on it")]
    if alive:
        runs = "a process runs on it" if len(alive) == 1 else f"{len(alive)} processes run on it"
        parts.append(f"{runs} without a lease ({', '.join(_process(use) for use in alive[:_MOST_NAMED])})")
    elif foreign:
        parts.append("memory of a process that has ended is still counted on it")
    return ", and ".join(parts)


def _process(use: UseView) -> str:
    return f"pid {use.pid}" + (f", {safe(use.name)}" if use.name else "")


_MOST_NAMED = 3


def _uncordoned(before: DeviceView | None, it: DeviceView) -> str:
    if it.condition is not None:
        was = "is cordoned no more" if before is not None and before.cordoned else "was not cordoned"
        return f"{was}, and gets no leases yet: {condition_text(it)}."
    if before is not None and not before.cordoned and before.condition is None:
        return "was not cordoned; it gets leases as before."
    return "gets leases again."


def _drained(_: DeviceView | None, it: DeviceView) -> str:
    asked = f"the work on it has been asked to yield ({_named(it.workloads)})" if it.workloads else ""
    return f"is cordoned{_by(it)}; {_and_strangers(it, asked)}."


@click.command(short_help="Give no new leases on GPUs.")
@devices_argument
@reason_option
@json_option
@pass_face
def cordon(face: Face, devices: tuple[str, ...], reason: str) -> int:
    """Give no new leases on GPUs, named by number or UUID. What runs on them goes on.

    A GPU in MIG mode means all its MIG devices.
    """
    return _mark(face, devices, lambda name: face.client.cordon(name, reason), _cordoned)


@click.command(short_help="Give leases on GPUs again.")
@devices_argument
@json_option
@pass_face
def uncordon(face: Face, devices: tuple[str, ...]) -> int:
    """Give leases on GPUs again, also on those that are out of use, as far as your word can say that they are well.

    What is seen of a GPU now (that it is lost, hot, or used without a lease) ends by itself and not by a word.
    """
    return _mark(face, devices, face.client.uncordon, _uncordoned)


@click.command(short_help="Cordon GPUs, and ask the work on them to yield.")
@devices_argument
@reason_option
@json_option
@pass_face
def drain(face: Face, devices: tuple[str, ...], reason: str) -> int:
    """Cordon GPUs and ask the work on them to save and yield, with its grace. Jobs go back to their places."""
    return _mark(face, devices, lambda name: face.client.drain(name, reason), _drained)


@click.command(short_help="List lost GPUs no more.")
@devices_argument
@json_option
@pass_face
def forget(face: Face, devices: tuple[str, ...]) -> int:
    """List lost GPUs no more: those that were taken out and do not come back.

    Only a lost GPU that nobody holds can be forgotten; if it is there again one day, it is a new one. MIG devices that
    are gone because their GPU was split anew are forgotten by themselves.
    """
    return _mark(face, devices, face.client.forget, lambda _before, _it: "is forgotten: it is listed no more.")


@click.command(short_help="Show, start or stop the broker.")
@click.argument("what", type=click.Choice(["status", "start", "stop"]), default="status", metavar="[status|start|stop]")
@click.option(
    "--simulated",
    type=click.IntRange(min=1),
    metavar="N",
    help="With start: serve N simulated GPUs instead of the real ones, to try things out.",
)
@json_option
@pass_face
def broker(face: Face, what: str, simulated: int | None) -> int:
    """Show which broker answers and where, start the embedded one, or stop it. Jobs that run go on without it.

    A broker that is started later by itself has simulated GPUs only if the config says so:
    `c.GpuBroker.simulated_devices = 4` in jupyter_gpu_config.py.
    """
    if simulated is not None:
        _start_simulated(face, what, simulated)
    view = face.connect(start=what == "start").broker()
    if what == "stop":
        face.client.stop_broker()
    if face.as_json:
        face.document(view)
    elif what == "stop":
        face.say(
            f"The broker (pid {view.pid}) is stopping. What runs goes on, and the queue waits for the next broker."
        )
        if view.simulated:
            face.say(
                f"Start that with `jupyter gpu broker start --simulated {view.devices}`: without, and where the config "
                "does not say so, it serves no simulated GPUs, and what runs on them must yield."
            )
    else:
        _show_broker(face, view)
    return 0


def _start_simulated(face: Face, what: str, count: int) -> None:
    from .. import spawn
    from ..client.find import running_broker, shown

    if what != "start":
        raise click.UsageError("--simulated is for `jupyter gpu broker start`.")
    place = running_broker()
    if place is not None or face.url is not None:
        where = place or shown(face.url or "")
        raise Conflict(f"A broker runs already, at {where}", hint="Stop it first, with `jupyter gpu broker stop`.")
    spawn.start_broker([f"--simulated={count}"])


def _show_broker(face: Face, view: BrokerView) -> None:
    from rich.table import Table
    from rich.text import Text

    from ..units import format_when
    from .text import plural, sentence

    now = face.now()
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    label = ", SIMULATED" if view.simulated else ""
    stops = "never by itself, or not while there is work" if view.stops_at is None else format_when(view.stops_at, now)
    place = face.client.place
    rows = [
        ("broker", f"pid {view.pid} of {view.user} on {view.node}, version {view.version}"),
        ("answers at", "" if place is None else str(place)),
        ("devices", f"{plural(view.devices, 'GPU')}{label}"),
        ("state", view.state_dir),
        ("store", view.store_id),
        ("running since", format_when(view.started_at, now)),
        ("stops", stops),
    ]
    for name, value in rows:
        if value:
            table.add_row(Text(name), Text(safe(value)))
    face.say(table)
    for warning in view.warnings:
        face.say(Text(f"! {sentence(warning)}", style="yellow"))


@click.command(short_help="Print what makes your shell complete these commands.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), metavar="SHELL")
@pass_face
def completion(face: Face, shell: str) -> None:
    """Print what makes SHELL (bash, zsh or fish) complete verbs, options, workloads, GPUs and queues.

    For bash write `eval "$(jupyter gpu completion bash)"` into ~/.bashrc. It completes `jupyter-gpu`, which is the
    same program as `jupyter gpu`.
    """
    from click.shell_completion import get_completion_class

    from . import COMPLETE_VARIABLE, gpu

    kind = get_completion_class(shell)
    if kind is None:  # click knows all three
        raise BrokerUnavailable(f"There is no completion for {shell}.")
    face.write(kind(gpu, {}, "jupyter-gpu", COMPLETE_VARIABLE).source() + "\n")
