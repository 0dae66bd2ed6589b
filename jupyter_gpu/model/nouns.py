"""The nouns, each with one meaning (docs/glossary.md).

Everything here is frozen: a change of a workload is a new workload, made by `core.lifecycle.evolve` and by nobody else.
Instants (`*_at`, `*_by`, `not_before`) are Unix seconds as floats; lengths carry their unit in the name (`*_seconds`,
`*_bytes`, `*_ms`). None means "not known" or "not asked for", never zero.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from .jobs import Dependency, JobSpec, Member
from .states import EndReason, EvictionReason, Kind, State, WaitingReason


class Ask(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a workload wants. Zero devices is a meaning of its own: it sees no GPU."""

    devices: int = 1
    device_class: str | None = None
    #: A part of a shareable device; None asks for whole devices.
    memory_bytes: int | None = None
    #: This much must be free at the grant: of a whole device by NVML, of a shared one beside what others have of it.
    min_free_bytes: int | None = None
    duration_seconds: int | None = None
    cpus: int | None = None
    host_memory_bytes: int | None = None
    pool: str | None = None
    same_link_group: bool = False
    #: Devices of several nodes will do where it wants more than one node has: whole free nodes, and one for the rest.
    across_nodes: bool = False
    #: Only these devices, by UUID: placed by hand. Empty leaves the choice to the planner.
    on: tuple[str, ...] = ()


class Holder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What uses a lease now. A word with a stale `number` changes nothing."""

    #: kernel, server, shell or attempt.
    kind: str
    name: str
    number: int = 1
    pid: int | None = None
    #: Clock ticks since boot, from /proc/PID/stat: with boot_id it tells a process from a later one with the same pid.
    start_ticks: int | None = None
    boot_id: str | None = None
    #: Of a kernel: who looks after it and starts it anew (its Jupyter server). While this one lives, a kernel that is
    #: gone may be a restart.
    keeper_pid: int | None = None
    keeper_start_ticks: int | None = None


class Lease(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The holding. `ends_at` is what was bought, `attach_by` is no-show; `renew_by` (liveness) is not of the log."""

    devices: tuple[str, ...]
    pool: str
    granted_at: float
    #: The part of each device; None is the whole device.
    memory_bytes: int | None = None
    ends_at: float | None = None
    #: Of a job: when it is expected to be over, by what was known at the grant.
    expected_end_at: float | None = None
    attach_by: float | None = None


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one attempt, or the use of one reservation, came to its end; fixed at *released*."""

    end: EndReason
    exit_code: int | None = None
    signal: int | None = None
    #: A sentence for people: what happened and on what evidence.
    detail: str = ""
    #: The notice reached the processes before they exited; only then a preemption counts.
    noticed: bool = False
    #: `training.finished()` was called.
    finished: bool = False
    #: A complete checkpoint newer than the one this attempt began from exists.
    progressed: bool = False
    #: The engine could not start it, through no fault of the command (a full spool, no more processes).
    engine_fault: bool = False
    #: What had to be ended by SIGKILL, as "name (pid)".
    forced: tuple[str, ...] = ()
    ended_at: float | None = None
    #: The step that it began from, and of the newest complete checkpoint at its end; None where there was none.
    from_step: int | None = None
    to_step: int | None = None
    #: How long it had worked since that checkpoint (since its start without one): what another attempt repeats.
    unsaved_seconds: float | None = None
    #: From the notice to the end of its main process; None where no notice reached it.
    yield_seconds: float | None = None


class LearntGrace(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of the grace that a job needs, from how an attempt of it left; see `core.grace`."""

    #: What it gets, within the policy; 0 is the usual, since not even the longest was enough.
    seconds: int
    #: The attempt that this was learnt from.
    attempt: int
    #: From the notice until it had saved; None where it was ended by force, so that nobody knows.
    needed_seconds: float | None = None

    @property
    def is_in_vain(self) -> bool:
        """Whether more grace did not help."""
        return self.seconds == 0


class Workload(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Anything with an ask: a reservation or a job."""

    id: int
    kind: Kind
    owner: str
    team: str
    queue: str
    name: str
    ask: Ask
    state: State = State.QUEUED
    submitted_at: float
    #: The queue's priority when it entered; higher is first.
    priority: int = 0
    #: Submission time plus what its size and its owner's use add, in ms; see `core.forecast.rank_ms`.
    rank_ms: int = 0
    #: Waited past its queue's limit: stands at the front of its queue.
    lifted: bool = False
    paused: bool = False
    not_before: float | None = None
    back_off_until: float | None = None
    #: Only a kind; place, who is ahead and the expected start are computed on read.
    waiting: WaitingReason | None = None
    spec: JobSpec | None = None
    #: The OS account that the work runs as.
    account: str = ""
    lease: Lease | None = None
    holder: Holder | None = None
    #: Where the last lease was: the same devices again when that costs nothing.
    previous_devices: tuple[str, ...] = ()
    #: Where attempts of it died of the hardware: until that instant it goes elsewhere, if there is an elsewhere.
    avoids: tuple[str, ...] = ()
    avoids_until: float | None = None
    #: The last attempt that started; 0 before the first.
    attempt: int = 0
    started_at: float | None = None
    #: The instant from which the present lease is protected from preemption and charged.
    active_at: float | None = None
    eviction: EvictionReason | None = None
    evicted_at: float | None = None
    #: The workload whose better claim evicted this one.
    evicted_for: int | None = None
    #: The end of the grace: from then on the rest is ended by force.
    yield_by: float | None = None
    overdue: bool = False
    outcome: Outcome | None = None
    released_at: float | None = None
    #: How the last failed attempt went, so that the same crash twice is not repeated a third time.
    last_failure: Outcome | None = None
    end: EndReason | None = None
    ended_at: float | None = None
    detail: str = ""
    failures: int = 0
    timeouts: int = 0
    launch_failures: int = 0
    losses: int = 0
    #: Requeues in a row that brought no newer checkpoint.
    stalls: int = 0
    #: Instants of the preemptions of the last day, for the cap.
    preempted_at: tuple[float, ...] = ()
    #: Of a job that states no grace of its own, where its queue's was not, or hardly, enough.
    learnt_grace: LearntGrace | None = None
    #: What it comes after, and which of these it still waits for.
    after: tuple[Dependency, ...] = ()
    unmet: tuple[int, ...] = ()
    #: Its place in an array, and the recurring job that it is one time of.
    member: Member | None = None
    recurring: int | None = None
    #: Work that attempts of it did and later ones had to do again, all together.
    repeated_seconds: float = 0.0
    #: How long its attempts held devices, all together.
    worked_seconds: float = 0.0
    #: The client's own key: the same key from the same owner is the same workload.
    idempotency_key: str | None = None

    @property
    def is_live(self) -> bool:
        """Whether it holds devices: ACTIVE or YIELDING."""
        return self.state in (State.ACTIVE, State.YIELDING)

    @property
    def is_booked(self) -> bool:
        """Whether it is a reservation for later: its devices are promised to it from `not_before` on."""
        return self.not_before is not None and self.kind is Kind.RESERVATION and self.state is State.QUEUED

    @property
    def title(self) -> str:
        """How texts name it: "job 12 (digits)", and in an array "job 14 (digits, 3 of 5 of array 12)"."""
        place = "" if self.member is None else f"{self.member.index} of {self.member.of} of array {self.member.array}"
        said = ", ".join(filter(None, (self.name, place)))
        return f"{self.kind} {self.id}" + (f" ({said})" if said else "")

    @property
    def weight(self) -> int:
        """What its job weighs, if it is one."""
        return 0 if self.spec is None else self.spec.weight


class Scope(StrEnum):
    """What a caller may do; under a hub these are its custom scopes."""

    READ = "read"
    LOGS = "logs"
    METRICS = "metrics"
    RESERVE = "reserve"
    SUBMIT = "submit"
    OPERATE = "operate"
    ADMIN = "admin"


_OPERATORS = frozenset({Scope.OPERATE, Scope.ADMIN})


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks: an immutable principal, the OS account its work runs as, and what it may do."""

    name: str
    account: str
    scopes: frozenset[Scope] = frozenset()
    #: The groups that the hub says they are in, and when it said so; they are teams.
    groups: tuple[str, ...] = ()
    groups_at: float | None = None
    #: Others' work runs as the same account, so an account tells nothing about whose a process is.
    shares_account: bool = False

    @property
    def sees_others(self) -> bool:
        """Whether others' work is theirs to see at all: a contractor sees only their own."""
        return self.is_operator or Scope.READ in self.scopes

    @property
    def is_operator(self) -> bool:
        """Whether others' work is theirs to handle."""
        return not self.scopes.isdisjoint(_OPERATORS)
