"""The short way for a script or a notebook: hold GPUs for the length of a block, or queue a command.

    with jupyter_gpu.reserve(devices=2, for_="1h") as gpus:
        train(gpus.devices)

This process is the holder: the broker sees by itself when it ends, however it ends, so nothing needs renewing.
"""

from __future__ import annotations

import contextlib
import os
import uuid
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from .. import pins
from ..environment import select
from ..errors import GpuError, LeaseLost
from ..holding import process_holder
from ..jupyter.live import cuda_is_loaded
from ..model import Ask, Holder, JobSpec, Kind, Status, SubmitBody, WorkloadView, pack_bytes
from ..out_of_reach import refuse_granted, refuse_in_vain
from ..units import parse_bytes, parse_seconds
from .hearing import heard
from .naming import uuids_of
from .sync import Client


class Reservation:
    """What `reserve` gives: the devices that are held, until when, and how to keep them longer."""

    def __init__(self, client: Client, view: WorkloadView) -> None:
        self._client = client
        self.view = view

    def __repr__(self) -> str:
        return f"<Reservation {self.id} of {', '.join(self.devices)}>"

    @property
    def id(self) -> int:
        """The number of the workload."""
        return self.view.id

    @property
    def devices(self) -> tuple[str, ...]:
        """The UUIDs of the devices."""
        return self.view.devices

    @property
    def ends_at(self) -> float | None:
        """Until when they are yours, in Unix seconds."""
        return self.view.ends_at

    def extend(self, by: str | float) -> float | None:
        """Buy more time, such as "30m", and say the new end."""
        self.view = self._client.extend(self.id, parse_seconds(by))
        return self.ends_at

    def release(self) -> None:
        """Give them back before the end of the block."""
        _give_back(self._client, self.id)


@contextlib.contextmanager
def reserve(
    devices: int | None = None,
    for_: str | float | None = None,
    *,
    minutes: float | None = None,
    device_class: str | None = None,
    memory: str | float | None = None,
    min_free: str | float | None = None,
    on: str | Sequence[str] = (),
    queue: str | None = None,
    team: str | None = None,
    name: str = "",
    wait_seconds: float | None = None,
    client: Client | None = None,
) -> Iterator[Reservation]:
    """Hold GPUs for the length of a block, and pin this process to them. Waits in line as long as `wait_seconds`.

    `devices` is one if not given, or as many as `on` names, which are the only GPUs that will do, by number or UUID.
    `memory` takes a part of one that is shared. What the broker tells the holder meanwhile (that it uses more than its
    part, say) stands in the log "jupyter_gpu".

    Raises WaitTimeout, with the place in line, when they are not granted in time; the place is given up then.
    """
    seconds = minutes * 60 if for_ is None and minutes is not None else for_
    wanted = SubmitBody(
        kind=Kind.RESERVATION,
        ask=Ask(
            devices=1 if devices is None else devices,
            device_class=device_class,
            memory_bytes=None if memory is None else parse_bytes(memory, what="memory"),
            min_free_bytes=None if min_free is None else parse_bytes(min_free, what="min_free"),
            duration_seconds=None if seconds is None else parse_seconds(seconds),
        ),
        queue=queue,
        team=team,
        name=name,
        holder=this_process(),
    )
    with contextlib.ExitStack() as stack:
        asked = stack.enter_context(Client()) if client is None else client
        refuse_in_vain(asked)
        view = asked.submit(_placed(wanted, on, asked, devices), uuid.uuid4().hex)
        # Given back however the block ends, the wait for it included. If the broker is away, it sees us end.
        stack.callback(_give_back, asked, view.id)
        view = asked.wait(view.id, "active", wait_seconds)
        _refuse_useless(asked, view)
        stack.enter_context(heard(asked, view))
        with pinned(view.devices):
            yield Reservation(asked, view)


def _refuse_useless(client: Client, view: WorkloadView) -> None:
    if view.end is not None:
        raise LeaseLost(f"Reservation {view.id} ended before it was granted: {view.detail or view.end}.")
    refuse_granted(client, view)


def _placed(body: SubmitBody, on: str | Sequence[str], client: Client, devices: int | None) -> SubmitBody:
    """The ask with the devices that it names, by UUID: a number may be another card's after a reboot.

    Without `devices`, their number, it is for all that it names.
    """
    names = on.split(",") if isinstance(on, str) and on else on
    if not names:
        return body
    found = uuids_of(names, client.devices().items)
    count = len(found) if devices is None else devices
    return msgspec.structs.replace(body, ask=msgspec.structs.replace(body.ask, on=found, devices=count))


def _give_back(client: Client, workload_id: int) -> None:
    # The broker ends a command that stays on a device which it no longer holds. This process goes on after the block,
    # so it says first that it is none; if its memory stays on the card, the card is set aside until it is clear.
    with contextlib.suppress(GpuError):
        client.move(workload_id, msgspec.structs.replace(this_process(), kind="shell"))
    with contextlib.suppress(GpuError):
        client.release(workload_id)


@contextlib.contextmanager
def pinned(devices: Sequence[str]) -> Iterator[None]:
    """Let CUDA see only these devices for the length of a block; too late where CUDA has counted them already."""
    if cuda_is_loaded():
        warnings.warn(
            "CUDA is loaded in this process already, so it goes on seeing the devices it saw then. Reserve before the "
            f"first use of CUDA, or choose the devices yourself: {', '.join(devices)}.",
            RuntimeWarning,
            stacklevel=4,
        )
        yield
        return
    before = {word: os.environ.get(word) for word in pins.NAMES}
    os.environ.update(pins.variables(devices))
    try:
        yield
    finally:
        for word, value in before.items():
            if value is None:
                os.environ.pop(word, None)
            else:
                os.environ[word] = value


def this_process() -> Holder:
    """This process as a holder."""
    return process_holder("command", f"python {os.getpid()}")


def submit(
    argv: Sequence[str | bytes],
    *,
    devices: int | None = None,
    time: str | float | None = None,
    folder: str | os.PathLike[str] | None = None,
    env: Sequence[str] = (),
    device_class: str | None = None,
    memory: str | float | None = None,
    on: str | Sequence[str] = (),
    queue: str | None = None,
    team: str | None = None,
    name: str = "",
    retries: int | None = None,
    key: str | None = None,
    client: Client | None = None,
) -> WorkloadView:
    """Queue a command as a job: argv as it is, without a shell. `env` takes NAME and NAME=VALUE.

    `devices`, `on` and `memory` are those of `reserve`. The same `key` again is the same job. (`jupyter gpu
    submit` also keeps a copy of the script.)
    """
    variables, keep = select(os.environ, env)
    body = SubmitBody(
        kind=Kind.JOB,
        ask=Ask(
            devices=1 if devices is None else devices,
            device_class=device_class,
            memory_bytes=None if memory is None else parse_bytes(memory, what="memory"),
            duration_seconds=None if time is None else parse_seconds(time, what="time"),
        ),
        queue=queue,
        team=team,
        name=name,
        spec=JobSpec(
            argv=tuple(pack_bytes(os.fsencode(word)) for word in argv),
            folder=pack_bytes(os.fsencode(Path.cwd() if folder is None else Path(folder).absolute())),
            environment=variables,
            retries=retries,
        ),
    )
    with contextlib.ExitStack() as stack:
        asked = stack.enter_context(Client()) if client is None else client
        return asked.submit(_placed(body, on, asked, devices), key or uuid.uuid4().hex, keep=keep)


def status(client: Client | None = None) -> Status:
    """Everything at once: devices, your workloads, your quota, the lines."""
    with contextlib.ExitStack() as stack:
        return (stack.enter_context(Client()) if client is None else client).status()
