"""The seam between the broker and what starts work: hand over, order, observe, inventory, samples.

The loop derives what must be done from its own state against `inventory()` and calls an engine again and again until
the two agree, so every call here is idempotent by (workload, attempt). An engine never decides: it starts, orders and
reports. Instants are Unix seconds; unreachable is unknown, and nothing ends because of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import msgspec

from ...model import Device, Holder, JobSpec, Member, Outcome


class Stage(StrEnum):
    """How far an attempt has come, as the engine sees it."""

    HANDED_OVER = "handed-over"
    STARTED = "started"
    #: The main process is gone and the outcome is known; something of its tree may live.
    EXITED = "exited"
    #: The whole tree is gone.
    GONE = "gone"


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """What is handed over: everything that one attempt needs, with its devices already chosen."""

    workload: int
    attempt: int
    name: str
    owner: str
    #: The OS account to run as; the engine refuses one that does not exist.
    account: str
    spec: JobSpec
    devices: tuple[Device, ...]
    memory_bytes: int | None = None
    #: When the lease ends, for JUPYTER_GPU_DEADLINE.
    deadline_at: float | None = None
    #: The device nodes that it must not open: those of all other devices, save what they share with its own.
    withheld: tuple[str, ...] = ()
    #: Its place in an array, where it is of one.
    member: Member | None = None


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """Yield: the notice now, the closing SIGTERM at `yield_by`, SIGKILL `kill_after_seconds` later."""

    workload: int
    attempt: int
    #: The eviction reason, as the notice tells it.
    reason: str
    ordered_at: float
    yield_by: float
    kill_after_seconds: int


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine knows of one attempt."""

    workload: int
    attempt: int
    stage: Stage
    #: Known from STARTED on.
    holder: Holder | None = None
    #: Known from EXITED on.
    outcome: Outcome | None = None
    #: The newest order that the engine has taken, so that the loop need not repeat it.
    order: Order | None = None


class Engine(Protocol):
    """One pool's engine. All methods run on the broker's event loop and return soon; slow work goes elsewhere."""

    async def start(self, on_sighting: Callable[[Sighting], None]) -> None:
        """Adopt what an earlier broker left and begin to report; `on_sighting` is called on the event loop."""

    async def close(self) -> None:
        """Stop reporting. What runs goes on."""

    def inventory(self) -> Mapping[int, Sighting]:
        """The newest attempt of each workload that the engine still knows, by workload id."""

    def keep_apart(self, nodes: Iterable[str]) -> None:
        """Take the device nodes of all devices, and find out whether jobs can be kept from those of others."""

    async def hand_over(self, attempt: Attempt) -> None:
        """Start it once. A fault of the engine becomes a sighting with an outcome, never an exception."""

    async def order(self, order: Order) -> None:
        """Bring it to an end; repeated orders send nothing twice, a stronger one may only shorten the grace."""

    def log_path(self, workload: int, attempt: int) -> Path:
        """Where the raw log of an attempt stands, whether or not it exists yet."""

    async def take_back(self, workload: int, attempt: int) -> None:
        """Forget an attempt that is over (or was handed over and must not start); its log and outcome stay."""
