"""What the server extension and its pages say to each other, beside the broker's own documents.

As those: fields may be added, never removed; instants are Unix seconds, lengths say their unit, None is "not known".
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from ..model import Ask, Change, IsolationView, Status, WorkloadView
from ..notebooks import Parameter

PinState = Literal["pinned", "restart-needed", "waiting", "none"]
BrokerState = Literal["away", "back"]

_Count = Annotated[int, msgspec.Meta(ge=0)]
_Least = Annotated[int, msgspec.Meta(ge=1)]


class _Wanted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What is asked of the GPUs, for a kernel or for a job."""

    devices: _Count = 1
    duration_seconds: _Least | None = None
    device_class: str | None = None
    memory_bytes: _Least | None = None
    queue: str | None = None
    team: str | None = None

    def to_ask(self) -> Ask:
        """The broker's words for it."""
        return Ask(
            devices=self.devices,
            device_class=self.device_class,
            memory_bytes=self.memory_bytes,
            duration_seconds=self.duration_seconds,
        )


class KernelAsk(_Wanted, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """POST kernels/ID/reservation: what a kernel wants."""

    devices: _Least = 1
    profile: str | None = None


class KernelView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A kernel of this server, and what it has of the GPUs."""

    kernel_id: str
    #: The display name of its kernelspec.
    name: str
    #: The contents path of its session.
    notebook: str | None = None
    #: Its reservation, which may still be waiting.
    workload: int | None = None
    #: Whether its process sees the devices below.
    pinned: bool
    devices: tuple[str, ...] = ()
    #: Why it has to be restarted to see what it was granted; None where it has not.
    restart_needed: str | None = None
    execution_state: str
    last_activity: float | None = None
    #: What a person should know, like "restarted after a crash (killed by signal 9)".
    reason: str = ""
    #: What the broker tells who holds its devices although nothing ends: that it uses more than its part, say.
    told: str = ""


class PinBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST kernels/ID/pin."""

    #: Whether the kernel may be restarted, which ends what it computes.
    restart: bool = False


class PinAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether the kernel sees its devices, and what is missing."""

    state: PinState
    reason: str = ""
    devices: tuple[str, ...] = ()


class FileJob(_Wanted, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """POST jobs: a script or notebook of the file browser, to run unattended."""

    #: As the contents manager names it.
    path: str
    name: str = ""
    #: For a script: words after its name.
    arguments: tuple[str, ...] = ()
    #: For a notebook: JSON values by name. A script finds them in JUPYTER_GPU_PARAMETERS.
    parameters: dict[str, Any] = {}


class FileJobView(WorkloadView, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to POST jobs: the job, and what of it may not be as it was meant."""

    #: Sentences for a person: no cell of parameters, a name that the notebook does not use.
    notes: tuple[str, ...] = ()


class NotebookView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """GET notebook?path=PATH: what a form for the parameters of a notebook shows. Queues nothing."""

    path: str
    #: The kernel that it names; None is Python's.
    kernel: str | None
    #: Where there is none, what is given is put on top of all cells.
    has_parameters_cell: bool
    parameters: tuple[Parameter, ...]
    notes: tuple[str, ...] = ()


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """GET hello: whom a page talks to. Starts no broker; without one there is no store."""

    version: str
    store_id: str | None
    caller: str
    simulated: bool
    #: Whether the stream starts a broker where none runs.
    start_broker: bool


class KernelList(msgspec.Struct, frozen=True, kw_only=True):
    """GET kernels."""

    items: tuple[KernelView, ...]


class StatusFrame(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="status"):
    """The first message, and one after a socket fell behind or the broker came back."""

    status: Status


class ChangeFrame(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="change"):
    """What changed, and new samples."""

    change: Change


class KernelsFrame(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="kernels"):
    """The kernels of this server, whole."""

    kernels: tuple[KernelView, ...]


class BrokerFrame(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="broker"):
    """The broker went away or came back; after "back" a whole status follows."""

    state: BrokerState
    message: str = ""
    hint: str | None = None


class RestartFrame(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="restart"):
    """A kernel has to be restarted: the page that claims it (POST kernels/ID/claim) does so, and mends its cells."""

    kernel_id: str
    reason: str


class ServerFrame(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="server"):
    """What this server finds of itself; nobody but who it runs for is told, and no broker."""

    #: Whether it is kept from GPUs that are not its own; None where there are none, or no hub has started it.
    isolation: IsolationView | None


Frame = StatusFrame | ChangeFrame | KernelsFrame | BrokerFrame | RestartFrame | ServerFrame
