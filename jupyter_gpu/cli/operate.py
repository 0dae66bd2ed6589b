"""`jupyter gpu cordon`, `uncordon`, `drain`, `broker` and `completion`: for who keeps the lab running."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from ..errors import BrokerUnavailable
from .base import DeviceName, Face, for_each, json_option, pass_face
from .text import safe

if TYPE_CHECKING:
    from ..model import BrokerView, DeviceView

devices_argument = click.argument("devices", type=DeviceName(), nargs=-1, required=True, metavar="GPU...")


def _mark(face: Face, devices: tuple[str, ...], act: Callable[[str], DeviceView], said: str) -> int:
    from ..model import DevicePage

    def one(name: str) -> DeviceView:
        it = act(name)
        if not face.as_json:
            face.say(f"GPU {it.index} ({safe(it.uuid)}) {said}")
        return it

    done, code = for_each(face, dict.fromkeys(devices), one)
    if face.as_json:
        face.document(DevicePage(items=tuple(done)))
    return code


@click.command(short_help="Give no new leases on GPUs.")
@devices_argument
@json_option
@pass_face
def cordon(face: Face, devices: tuple[str, ...]) -> int:
    """Give no new leases on GPUs, named by number or UUID. What runs on them goes on."""
    return _mark(face, devices, face.client.cordon, "is cordoned; what runs on it goes on.")


@click.command(short_help="Give leases on GPUs again.")
@devices_argument
@json_option
@pass_face
def uncordon(face: Face, devices: tuple[str, ...]) -> int:
    """Give leases on GPUs again. It ends a quarantine too."""
    return _mark(face, devices, face.client.uncordon, "gets leases again.")


@click.command(short_help="Cordon GPUs, and ask the work on them to yield.")
@devices_argument
@json_option
@pass_face
def drain(face: Face, devices: tuple[str, ...]) -> int:
    """Cordon GPUs and ask the work on them to save and yield, with its grace. Jobs go back to their places."""
    return _mark(face, devices, face.client.drain, "is cordoned, and the work on it has been asked to yield.")


@click.command(short_help="Show, start or stop the broker.")
@click.argument("what", type=click.Choice(["status", "start", "stop"]), default="status", metavar="[status|start|stop]")
@json_option
@pass_face
def broker(face: Face, what: str) -> int:
    """Show which broker answers, start the embedded one, or stop it. Jobs that run go on without it."""
    view = face.connect(start=what == "start").broker()
    if what == "stop":
        face.client.stop_broker()
    if face.as_json:
        face.document(view)
    elif what == "stop":
        face.say(
            f"The broker (pid {view.pid}) is stopping. What runs goes on, and the queue waits for the next broker."
        )
    else:
        _show_broker(face, view)
    return 0


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
    for name, value in (
        ("broker", f"pid {view.pid} of {view.user} on {view.node}, version {view.version}"),
        ("devices", f"{plural(view.devices, 'GPU')}{label}"),
        ("state", view.state_dir),
        ("store", view.store_id),
        ("running since", format_when(view.started_at, now)),
        ("stops", stops),
    ):
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
