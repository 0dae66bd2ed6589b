"""`jupyter gpu doctor --trial`: reserves each free GPU in turn, lets it compute for some seconds, and looks meanwhile.

The computation is a process of its own, pinned to the GPU and ended at its deadline (`trial_program`). The reservation
is this process's, so it ends with it, however that ends.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import platform
import sys
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from .. import pins, spawn
from ..client.following import fold
from ..errors import GpuError
from ..model import Ask, DeviceView, Kind, State, Status, SubmitBody, WorkloadView
from . import trial_program
from .base import Face
from .holder import process_holder
from .judgement import Trial, judge, judge_together, no_engine
from .text import condition_text, end_text, sentence

if TYPE_CHECKING:
    from ..client import Client

#: Loading a library and the driver may take so long; so long a trial may take beside its own seconds.
SPARE_SECONDS = 120
#: A GPU that was free a moment ago is granted at once, or somebody else has it now.
PATIENCE_SECONDS = 10.0
#: A device that is not clear after a minute is set aside by the broker.
CLEAR_SECONDS = 90.0
_LIBRARIES = ("torch", "jax", "cupy")
_LINE = 300


def try_all(face: Face, status: Status, node: str, seconds: int) -> tuple[Trial, ...]:
    """Try each GPU that is free, one after the other, and compare those of a kind."""
    if status.simulated or all(it.simulated for it in status.devices):
        why = (
            "simulated GPUs compute nothing, so there is nothing to try" if status.devices else "there is no GPU to try"
        )
        return (Trial(state="ok", text=why),)
    if node != platform.node():
        return (Trial(state="warn", text=f"the GPUs are on {node}", remedy="Run `jupyter gpu doctor --trial` there."),)
    engines = ",".join([*(it for it in _LIBRARIES if importlib.util.find_spec(it) is not None), "cuda"])
    with face.going_on("The trial has ended; its GPU is given back."):
        return judge_together(list(_in_turn(face, status.devices, engines, seconds)))


def _in_turn(face: Face, devices: Sequence[DeviceView], engines: str, seconds: int) -> Iterator[Trial]:
    """Try one after the other. What nothing here can compute on the first, it cannot on the next either."""
    for device in devices:
        found = _try(face, device, engines, seconds)
        yield found
        if not found.device:
            return


def _try(face: Face, device: DeviceView, engines: str, seconds: int) -> Trial:
    why = _why_not(device)
    if why:
        return _skipped(device, why)
    face.aside(f"GPU {device.number} is tried for {seconds}s.")
    client = face.connect(start=False)
    try:
        with _reserved(client, device, seconds) as it:
            if not it.devices:
                return _skipped(device, _why_not_granted(it))
            environ = os.environ if face.environ is None else face.environ
            answer, seen = _run(face.looking_on(), it, environ, engines, seconds)
        if answer.get("has_no_engine"):
            return no_engine(answer)
        return judge(device, answer, seen, _afterwards(client, device, it.id))
    except GpuError as error:
        return _skipped(device, error.message)


def _why_not(device: DeviceView) -> str:
    """Why a GPU is left alone. One that is not well is leased to nobody, so to try it somebody must say it is."""
    if device.condition is not None:
        return f"it is not well ({condition_text(device)})"
    if device.cordoned:
        return "it is cordoned"
    return "it is in use" if device.workloads else ""


def _skipped(device: DeviceView, why: str) -> Trial:
    return Trial(device=device.uuid, number=device.number, state="ok", text=f"not tried: {why.rstrip('.')}")


@contextlib.contextmanager
def _reserved(client: Client, device: DeviceView, seconds: int) -> Iterator[WorkloadView]:
    """Hold the GPU for the length of a block. Without a grant in time the place in line is given up."""
    # A shell: the broker never ends one, and this process goes on after its lease.
    body = SubmitBody(
        kind=Kind.RESERVATION,
        ask=Ask(devices=1, on=(device.uuid,), duration_seconds=seconds + 2 * SPARE_SECONDS),
        name="doctor --trial",
        holder=process_holder("shell"),
    )
    it = client.submit(body, uuid.uuid4().hex)
    try:
        if it.state is State.QUEUED:
            it = client.wait(it.id, "active", PATIENCE_SECONDS, raise_on_timeout=False)
        yield it
    finally:
        # If the broker is away now, it sees us end.
        with contextlib.suppress(GpuError):
            client.release(it.id) if it.devices else client.cancel(it.id)


def _why_not_granted(it: WorkloadView) -> str:
    if it.end is not None:
        return f"its reservation ended ({end_text(it)})"
    return f"it was not granted. {sentence(it.reason)}" if it.reason else "somebody else has it now"


def _run(
    client: Client, it: WorkloadView, environ: Mapping[str, str], engines: str, seconds: int
) -> tuple[dict[str, Any], Sequence[DeviceView]]:
    """Let the GPU compute, and look at it meanwhile."""
    given = dict(environ) | pins.under(it.id, it.devices) | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    # -P: a torch.py in this folder is none.
    argv = [sys.executable, "-P", str(Path(trial_program.__file__)), engines, str(seconds), str(os.getpid())]
    with _looked_at(client, it.devices[0]) as seen:
        done = spawn.run(argv, seconds + SPARE_SECONDS, environ=given)
    return _answer(done, seconds), seen


def _answer(done: spawn.Finished, seconds: int) -> dict[str, Any]:
    """What the computation said at last, or how it ended without a word."""
    if done.exit_code is None:
        return {"error": f"it did not end within {seconds + SPARE_SECONDS}s, and was ended"}
    with contextlib.suppress(ValueError, IndexError):
        found = json.loads(done.output.strip().splitlines()[-1])
        if isinstance(found, dict):
            return found
    if done.exit_code < 0:
        return {"error": f"it died of signal {-done.exit_code}"}
    last = (done.errors.strip().splitlines() or [f"exit code {done.exit_code}"])[-1]
    return {"error": last[:_LINE]}


@contextlib.contextmanager
def _looked_at(client: Client, device: str) -> Iterator[list[DeviceView]]:
    """How the GPU reads during a block, as the broker's stream tells it."""
    seen: list[DeviceView] = []
    over = threading.Event()

    def look() -> None:
        held = None
        with contextlib.suppress(GpuError):  # without readings the trial is judged by its results
            for change in client.stream():
                held = fold(held, change)
                if over.is_set():
                    return
                seen.extend(_with_heat(it, held) for it in held.devices if it.uuid == device)

    looking = threading.Thread(target=look, name="jupyter-gpu-trial", daemon=True)
    looking.start()
    try:
        yield seen
    finally:
        over.set()  # it ends with the next line of the stream; nobody waits for that


def _with_heat(device: DeviceView, status: Status) -> DeviceView:
    """A MIG device is as hot as the card that it is a part of."""
    if device.temperature_celsius is not None:
        return device
    heat = next((it.temperature_celsius for it in status.cards if it.uuid == device.card), None)
    return msgspec.structs.replace(device, temperature_celsius=heat)


def _afterwards(client: Client, device: DeviceView, workload: int) -> DeviceView | None:
    """The GPU once its trial has ended; None where it did not become clear in time."""
    it = client.wait(workload, "ended", CLEAR_SECONDS, raise_on_timeout=False)
    if it.end is None:
        return None
    return next((one for one in client.devices().items if one.uuid == device.uuid), None)
