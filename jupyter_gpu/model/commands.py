"""Commands: what someone asks of the broker, in the imperative, and what was observed. All pass through `core.decide`.

`by` is who asks; the rim has checked that they may. A command holds data only: no clock, no socket, no path to open.
"""

from __future__ import annotations

import msgspec

from .devices import Card, Condition, Device
from .jobs import Dependency, JobSpec
from .nouns import Ask, Holder, Outcome, Workload
from .policy import Policy
from .states import Kind


class Command(msgspec.Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The root of all commands."""


class Submit(Command, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A person asks for devices, to use (reservation) or to run something on (job)."""

    kind: Kind
    owner: str
    ask: Ask
    team: str | None = None
    #: The groups that the hub says the owner is in.
    groups: tuple[str, ...] = ()
    queue: str | None = None
    name: str = ""
    account: str = ""
    spec: JobSpec | None = None
    holder: Holder | None = None
    not_before: float | None = None
    paused: bool = False
    profile: str | None = None
    idempotency_key: str | None = None
    after: tuple[Dependency, ...] = ()
    #: Those of `after` (of an array all of it) that the world keeps no more, as the store has them.
    past: tuple[Workload, ...] = ()
    #: One job for each of these sets of parameters, as text by name; so many of them at once.
    array: tuple[dict[str, str], ...] = ()
    at_most: int | None = None
    #: Only tried: of the array so many are decided, which tells as much as all of them would.
    tried: int | None = None
    #: The recurring job that this is one time of.
    recurring: int | None = None
    #: The driver is being opened and no device known yet, so whether any could ever serve it is not judged.
    blind: bool = False


class Cancel(Command, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """End it, wherever it stands; during a grace it never comes back. `reason` is told to its owner.

    With `array`, here and below, all others of its array that this can concern as well: in one step, or none.
    """

    workload: int
    by: str
    reason: str = ""
    array: bool = False


class Release(Command, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The holder, its owner or an operator gives a reservation back. A stale `holder_number` changes nothing."""

    workload: int
    by: str
    holder_number: int | None = None
    detail: str = ""


class Extend(Command, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """Buy more time: up to quota, limit and the next hold."""

    workload: int
    by: str
    seconds: int


class Pause(Command, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A queued job must not start yet."""

    workload: int
    by: str
    array: bool = False


class LetGo(Command, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A paused job may start."""

    workload: int
    by: str
    array: bool = False


class Reprioritise(Command, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """An operator moves a queued workload to another priority."""

    workload: int
    by: str
    priority: int


class Chain(Command, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A queued job comes after these from now on, and after nothing else. `past` as in Submit."""

    workload: int
    by: str
    after: tuple[Dependency, ...] = ()
    past: tuple[Workload, ...] = ()
    array: bool = False


class Move(Command, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The lease passes to another holder: a first one that attaches, or a changed kernel."""

    workload: int
    by: str
    holder: Holder


class Cordon(Command, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """No new leases on a device. Said anew, another reason replaces the one before."""

    device: str
    by: str
    reason: str = ""


class Uncordon(Command, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """Leases again, and a fault that an operator may know to be mended ends. What readings decide stays."""

    device: str
    by: str


class Drain(Command, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """Cordon, then evict with grace. `reason` is told to whom it concerns."""

    device: str
    by: str
    reason: str = ""


class Forget(Command, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """An operator says of a lost device that it does not come back: it is listed no more."""

    device: str
    by: str


class Tick(Command, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """Time passed: time limits, no-shows, overdue graces, waits past their limit; then a step of the planner."""


class Rerank(Command, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The ranks of all who wait are made anew, by what is known by now. It comes once an hour."""


class LoadPolicy(Command, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The admin's rules changed; it never stops the queue and never drops a lease."""

    policy: Policy


class SeeDevices(Command, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The engine's inventory of one pool: new devices appear, missing ones are lost, known ones keep their marks."""

    pool: str
    devices: tuple[Device, ...]
    #: The GPUs in MIG mode that are there, also those that have no MIG devices.
    cards: tuple[Card, ...] = ()


class SeeCondition(Command, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The gravest that is wrong with a device now changed; None is a clean reading."""

    device: str
    condition: Condition | None
    detail: str = ""
    #: The card was reset, or the machine restarted, since it was marked: only so a hardware fault ends by itself.
    was_reset: bool = False


class SeeAboveShare(Command, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A holder used more of a shared device than its part, for longer than the policy bears after it was told."""

    workload: int
    detail: str = ""


class SeeIdle(Command, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A reservation's devices and its holder have been idle for longer than the policy bears after a warning."""

    workload: int
    detail: str = ""


class SeeStarted(Command, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The started mark of an attempt was observed."""

    workload: int
    attempt: int
    holder: Holder


class SeeExited(Command, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The main process of an attempt is gone; `clear` when its tree is too and its devices were probed clear since."""

    workload: int
    attempt: int
    outcome: Outcome
    clear: bool = False
    #: Whether its started mark was made; without one nothing ran and the number does not rise.
    started: bool = True


class SeeHung(Command, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """An attempt reported nothing, printed nothing and left its devices idle for longer than was stated."""

    workload: int
    attempt: int
    detail: str = ""


class SeeHolderGone(Command, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A holder's process is gone, or its renewals lapsed with nobody alive behind them."""

    workload: int
    holder_number: int
    detail: str = ""


class SeeProbe(Command, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The devices of a YIELDING workload were read after its release. `unclear_seconds` counts only readable time."""

    workload: int
    #: Devices that still show a process or memory of the former holder.
    unclear: tuple[str, ...] = ()
    unclear_seconds: float = 0.0
    detail: str = ""
