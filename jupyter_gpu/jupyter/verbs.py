"""The verbs that mean something else in a kernel than in a shell: reserve, keep, release, pin, and `%gpu` alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import click

from .. import pins
from ..cli.act import keep as keep_by_number
from ..cli.act import release as release_by_number
from ..cli.base import INTERRUPTED, Face, json_option
from ..cli.reserve import at_option, read_count, refuse_useless, reserve_for_later, send_reservation, tell_held
from ..cli.see import held_by, show_status
from ..cli.submit import ask_options
from ..cli.text import why
from ..cli.words import Seconds, WorkloadId
from ..errors import Conflict, GpuError, NotFound, WaitTimeout
from ..units import format_when
from . import live
from .here import has_keeper, held_here, is_held_here, kernel_id, name_of_work, remark_in_an_attempt
from .sending import submit

if TYPE_CHECKING:
    from ..model import WorkloadView
    from .faces import KernelFace

#: As the command line's own, for the face of a kernel.
pass_face = click.make_pass_decorator(cast("type[KernelFace]", Face))


@click.command(short_help="Reserve GPUs for this kernel, and pin it to them.")
@click.argument("numbers", nargs=-1, type=click.UNPROCESSED, metavar="[N]")
@click.option("--for", "seconds", type=Seconds("duration"), help="For how long, such as 2h.")
@at_option
@ask_options
@click.option("--wait/--no-wait", "may_wait", default=True, help="Wait in line where nothing is free; or only join it.")
@click.option("--timeout", type=Seconds("timeout"), help="Wait at most so long; the place in line stays.")
@json_option
@pass_face
@click.pass_context
def reserve(ctx: click.Context, face: KernelFace, /, **words: Any) -> int:
    """Reserve N GPUs. They are this kernel's until the time is over, or it is shut down.

    Where nothing is free it waits, and says its place and why. Interrupting the kernel gives the place up; with
    --no-wait, or after --timeout, the place stays: `%gpu wait ID` waits on, `%gpu pin` pins once it is granted.

    The kernel is pinned at once where CUDA is not loaded in it yet, else by a restart.

    With --at it is for later, and whichever kernel waits for it then gets it.
    """
    words["count"] = read_count(ctx, words["numbers"])
    if words["at"] is not None:
        return reserve_for_later(ctx, face, words)
    if _is_left(face, "nothing is reserved"):
        return 0
    _refuse_a_second(held_here(face.client))
    words["name"] = words["name"] or name_of_work()
    it = send_reservation(face, words, face.holder)
    if not it.devices and words["may_wait"]:
        it = _wait(face, it, words["timeout"])
    refuse_useless(face, it)
    if it.devices:
        tell_held(face, it)
        return 0
    if face.as_json:
        face.document(it)
        return WaitTimeout.exit_code
    face.say(f"Reservation {it.id} stays in line for this kernel. {why(it)}")
    face.say(f"`%gpu wait {it.id}` waits for it and pins; `%gpu release` leaves the line.")
    return WaitTimeout.exit_code


def _is_left(face: KernelFace, what: str) -> bool:
    """Whether this kernel is a job's, so that nothing is done: said, and the notebook goes on."""
    remark = remark_in_an_attempt(what)
    if remark and not face.as_json:
        face.say(remark)
    return bool(remark)


def _refuse_a_second(it: WorkloadView | None) -> None:
    """One kernel, one reservation: its pin could not say which."""
    if it is None or it.state == "yielding":
        return
    if it.state == "queued":
        raise Conflict(
            f"This kernel waits in line already, with reservation {it.id}. {why(it)}",
            hint=f"Wait with `%gpu wait {it.id}`, or leave the line with `%gpu release`.",
        )
    raise Conflict(
        f"This kernel has reservation {it.id} already, and a kernel has one at a time.",
        hint=f"For more time: `%gpu extend {it.id} 1h`. For other GPUs: `%gpu release` first.",
    )


def _wait(face: KernelFace, it: WorkloadView, timeout: int | None) -> WorkloadView:
    face.aside(f"Reservation {it.id} waits. Interrupt the kernel to give its place up.")
    try:
        return face.wait_for(it.id, "active", timeout, raise_on_timeout=False)
    except KeyboardInterrupt:
        face.waiting("")
        try:
            # Granted in the very moment or not: who interrupts does not want it.
            face.client.cancel(it.id)
        except (GpuError, KeyboardInterrupt):
            face.aside(f"It could not be taken out of the line: `%gpu cancel {it.id}`.")
        else:
            face.aside(f"Reservation {it.id} has left the line.")
        raise click.exceptions.Exit(INTERRUPTED) from None


def pin_to(it: WorkloadView) -> Sequence[str]:
    """Pin this process if that is still possible; the sentences that say how it went."""
    if set(_seen()) == set(it.devices):
        return ("This kernel is pinned to it." if len(it.devices) == 1 else "This kernel is pinned to them.",)
    if not live.cuda_is_loaded():
        live.pin(it.devices)
        return ("This kernel is pinned: what you load now sees exactly this.",)
    if has_keeper():
        return (
            "CUDA is loaded in this kernel already, so it goes on seeing what it saw.",
            "Restart the kernel: it keeps the reservation and starts pinned.",
        )
    return (
        "CUDA is loaded in this process already, so it goes on seeing what it saw.",
        "Give the reservation back with `%gpu release`, start anew, and reserve before CUDA is used.",
    )


def _seen() -> Sequence[str]:
    return [str(it) for it in pins.read(os.environ.get(pins.VISIBLE)) or ()]


@click.command(short_help="Give this kernel's GPUs back, or leave the line.")
@click.argument("workloads", type=WorkloadId(), nargs=-1, metavar="[ID...]")
@click.option("--force", is_flag=True, help="Even if CUDA is loaded; this kernel is then ended soon.")
@json_option
@pass_face
@click.pass_context
def release(ctx: click.Context, face: KernelFace, /, workloads: tuple[int, ...], *, force: bool) -> int:
    """Give back what this kernel holds, or the reservations that are named.

    A kernel that has loaded CUDA keeps memory on the GPU until it is restarted. Restart it first; it keeps the
    reservation, and then gives it back.
    """
    if not workloads and _is_left(face, "they go back when the job ends"):
        return 0
    mine = held_here(face.client)
    if not workloads and mine is None:
        raise NotFound("This kernel holds no GPUs.", hint="`%gpu queue --mine` lists what you have elsewhere.")
    wanted = workloads or ((mine.id,) if mine is not None else ())
    if mine is not None and mine.id in wanted:
        _refuse_while_loaded(mine, force=force)
    code: int = ctx.invoke(release_by_number, workloads=wanted)
    if mine is not None and mine.id in wanted and code == 0 and mine.devices and not live.cuda_is_loaded():
        live.unpin()
        if not face.as_json:
            face.say("This kernel is unpinned.")
    elif mine is not None and mine.id in wanted and code == 0 and mine.devices and not face.as_json:
        face.say("CUDA is still loaded here: restart the kernel now, or what is left on the GPU is ended by force.")
    return code


def _refuse_while_loaded(it: WorkloadView, *, force: bool) -> None:
    if force or not it.devices or it.state != "active" or not live.cuda_is_loaded():
        return
    raise Conflict(
        f"CUDA is loaded in this kernel, so it cannot let the GPU of reservation {it.id} go while it runs.",
        hint="Restart the kernel, then `%gpu release`. At once, and to lose what is in memory: `%gpu release --force`.",
    )


@click.command(short_help="Keep this kernel's GPUs although it is idle.")
@click.argument("workloads", type=WorkloadId(), nargs=-1, metavar="[ID...]")
@json_option
@pass_face
@click.pass_context
def keep(ctx: click.Context, face: KernelFace, /, workloads: tuple[int, ...]) -> int:
    """Keep what this kernel holds, or the reservations that are named: their idle time begins anew."""
    if not workloads and _is_left(face, "they go back when the job ends"):
        return 0
    mine = None if workloads else held_here(face.client)
    if not workloads and mine is None:
        raise NotFound("This kernel holds no GPUs.", hint="`%gpu queue --mine` lists what you have elsewhere.")
    code: int = ctx.invoke(keep_by_number, workloads=workloads or ((mine.id,) if mine is not None else ()))
    return code


@click.command(short_help="Pin this kernel to the GPUs that it holds.")
@pass_face
def pin(face: KernelFace) -> int:
    """Pin this kernel to what its reservation holds: at once where CUDA is not loaded, else say that a restart does."""
    if _is_left(face, "it is pinned to them"):
        return 0
    it = held_here(face.client)
    if it is None:
        raise NotFound("This kernel holds no GPUs.", hint="Reserve with `%gpu reserve 1 --for 2h`.")
    if not it.devices:
        raise Conflict(f"Reservation {it.id} is not granted yet. {why(it)}", hint=f"Wait with `%gpu wait {it.id}`.")
    tell_held(face, it)
    return 0


@click.command(hidden=True)
@json_option
@pass_face
def here(face: KernelFace) -> None:
    """Show what this kernel holds, and everything else there is to see."""
    found = face.client.status()
    if face.as_json:
        face.document(found)
        return
    name = kernel_id()
    mine = [it for it in found.workloads if is_held_here(it, name)]
    face.say(*(_about_this_kernel(face, it) for it in mine[:1]) if mine else (_holds_nothing(),))
    show_status(face, found)


def _about_this_kernel(face: Face, it: WorkloadView) -> str:
    if it.state == "queued":
        return f"This kernel waits in line with reservation {it.id}. {why(it)}"
    until = f" until {format_when(it.ends_at, face.now())}" if it.ends_at is not None else ""
    text = f"This kernel holds {held_by(face, it)}{until} (reservation {it.id})"
    if it.notice is not None:
        return f"{text} and must yield by {format_when(it.notice.yield_by, face.now())}: {it.notice.reason}."
    if set(_seen()) == set(it.devices):
        return f"{text} and is pinned to it."
    return f"{text}, but is not pinned: `%gpu pin`."


def _holds_nothing() -> str:
    if pins.ATTEMPT in os.environ:
        return f"This kernel runs in job {os.environ.get('JUPYTER_GPU_JOB', '?')} and has that job's GPUs."
    if pins.RESERVATION in os.environ:
        return f"This kernel has the GPUs of reservation {os.environ[pins.RESERVATION]}, as its server does."
    return "This kernel holds no GPU. Reserve one with `%gpu reserve 1 --for 2h`."


OWN: dict[str, click.Command] = {
    "reserve": reserve,
    "submit": submit,
    "keep": keep,
    "release": release,
    "pin": pin,
    "here": here,
}
