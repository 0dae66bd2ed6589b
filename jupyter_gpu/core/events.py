"""What the broker records: the facts that lives are made of. What each of them does stands in `lifecycle`.

An event carries all that `evolve` needs (ends, graces, reasons), so folding the log needs no policy and no clock and
gives the same world for ever.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from ..model import (
    Condition,
    Dependency,
    Device,
    EndReason,
    EvictionReason,
    Hold,
    Holder,
    Lease,
    Outcome,
    Recurring,
    Span,
    WaitingReason,
    Workload,
)


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A fact the broker recorded, in the past tense."""

    at: float


class OfWorkload(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A fact in the life of one workload: the table says where it leads."""

    workload: int


class Submitted(Event, frozen=True, kw_only=True, tag="submitted", omit_defaults=True):
    """A workload came into the world."""

    it: Workload


class Granted(OfWorkload, frozen=True, kw_only=True, tag="granted", omit_defaults=True):
    """A lease was made."""

    lease: Lease


class Started(OfWorkload, frozen=True, kw_only=True, tag="started", omit_defaults=True):
    """The started mark of an attempt was observed."""

    attempt: int
    holder: Holder


class Amended(OfWorkload, frozen=True, kw_only=True, tag="amended", omit_defaults=True):
    """Extended, paused, let go, reprioritised, lifted, or what it waits for; what is None stays as it was."""

    by: str = ""
    ends_at: float | None = None
    paused: bool | None = None
    priority: int | None = None
    lifted: bool | None = None
    #: What it comes after from now on, and which of these it still waits for.
    after: tuple[Dependency, ...] | None = None
    unmet: tuple[int, ...] | None = None
    detail: str = ""


class Moved(OfWorkload, frozen=True, kw_only=True, tag="moved", omit_defaults=True):
    """The lease passed to another holder."""

    holder: Holder


class Released(OfWorkload, frozen=True, kw_only=True, tag="released", omit_defaults=True):
    """The holder is done. In ACTIVE this fixes the outcome."""

    outcome: Outcome
    by: str = ""
    #: The attempt that ran: its number rises even when the notice came before its start was seen.
    attempt: int | None = None


class Evicted(OfWorkload, frozen=True, kw_only=True, tag="evicted", omit_defaults=True):
    """The broker ends the lease: the notice goes out now, force comes at `yield_by`."""

    reason: EvictionReason
    yield_by: float
    by: str = ""
    #: The workload with the better claim.
    evicted_for: int | None = None
    detail: str = ""


class Overdue(OfWorkload, frozen=True, kw_only=True, tag="overdue", omit_defaults=True):
    """The grace is over and the holder still there. It leads to a kill, not to a free device."""


class Requeued(OfWorkload, frozen=True, kw_only=True, tag="requeued", omit_defaults=True):
    """Back to its place in line, with the count that this end adds to."""

    #: preempted, failed, timed-out, launch-failed, lost or asked.
    cause: str
    back_off_until: float | None = None
    paused: bool = False
    detail: str = ""
    #: The hardware failed: it need not go back to where it was, and until this instant it must not.
    avoid_until: float | None = None


class Ended(OfWorkload, frozen=True, kw_only=True, tag="ended", omit_defaults=True):
    """Over, for good."""

    end: EndReason
    detail: str = ""


class OfLine(Event, frozen=True, kw_only=True):
    """About many who wait at once: a fact of the line, not of one life."""

    @property
    def workloads(self) -> Collection[int]:
        """Whom it concerns."""
        raise NotImplementedError


class Explained(OfLine, frozen=True, kw_only=True, tag="explained", omit_defaults=True):
    """Why workloads wait changed. One event for a whole step."""

    reasons: dict[int, WaitingReason]

    @property
    def workloads(self) -> Collection[int]:
        """Whom it concerns."""
        return self.reasons


class Reranked(OfLine, frozen=True, kw_only=True, tag="reranked", omit_defaults=True):
    """What is expected of work, or what its owners have used, changed, and with it their places in the line."""

    #: Workload -> its rank, in ms.
    ranks: dict[int, int]

    @property
    def workloads(self) -> Collection[int]:
        """Whom it concerns."""
        return self.ranks


class DeviceAppeared(Event, frozen=True, kw_only=True, tag="device-appeared", omit_defaults=True):
    """A device is new, or its unchanging facts were read anew."""

    device: Device


class DeviceMarked(Event, frozen=True, kw_only=True, tag="device-marked", omit_defaults=True):
    """A device was cordoned, quarantined, or is well again."""

    device: str
    cordoned: bool = False
    cordoned_by: str = ""
    cordon_reason: str = ""
    condition: Condition | None = None
    detail: str = ""
    by: str = ""


class DeviceForgotten(Event, frozen=True, kw_only=True, tag="device-forgotten", omit_defaults=True):
    """A lost device will not come back, and nobody holds it: it is listed no more. What ran on it keeps its story."""

    device: str
    by: str = ""


class RecurringPut(Event, frozen=True, kw_only=True, tag="recurring-put", omit_defaults=True):
    """A recurring job was added, as it is from now on. Logs from before `RecurringChanged` have it for all of that."""

    it: Recurring
    #: What happened: "added", or as of `RecurringChanged`.
    what: str
    by: str = ""


class RecurringChanged(Event, frozen=True, kw_only=True, tag="recurring-changed", omit_defaults=True):
    """A recurring job was paused, let go, or one of its instants came: how it stands then, without what it runs.

    That stays as it was added, and may be megabytes.
    """

    recurring: int
    #: What happened: "fired", "skipped", "refused", "paused" or "let go".
    what: str
    by: str = ""
    paused: bool = False
    next_at: float | None = None
    last_at: float | None = None
    last_workload: int | None = None
    last_detail: str = ""
    times: int = 0


class RecurringRemoved(Event, frozen=True, kw_only=True, tag="recurring-removed", omit_defaults=True):
    """A recurring job is no more."""

    recurring: int
    by: str = ""


class HoldPut(Event, frozen=True, kw_only=True, tag="hold-put", omit_defaults=True):
    """An operator put a hold."""

    it: Hold


class HoldChanged(Event, frozen=True, kw_only=True, tag="hold-changed", omit_defaults=True):
    """More of a hold's windows are known, or of one it is known what became of it; what is None stays as it was."""

    hold: int
    #: What happened: "known", "attended" or "given back".
    what: str
    windows: tuple[Span, ...] | None = None
    known_until: float | None = None
    #: The beginning of the window that the entitled came to, or that was given back.
    window: float | None = None


class HoldRemoved(Event, frozen=True, kw_only=True, tag="hold-removed", omit_defaults=True):
    """A hold is no more: an operator removed it, or its last window is over."""

    hold: int
    by: str = ""


class PolicyLoaded(Event, frozen=True, kw_only=True, tag="policy-loaded", omit_defaults=True):
    """From here on these rules hold; the digest stands on each event too."""

    digest: str


AnyEvent = (
    Submitted | Granted | Started | Amended | Moved | Released | Evicted | Overdue | Requeued | Ended
    | Explained | Reranked | DeviceAppeared | DeviceMarked | DeviceForgotten | PolicyLoaded | RecurringPut
    | RecurringChanged | RecurringRemoved | HoldPut | HoldChanged | HoldRemoved
)  # fmt: skip
