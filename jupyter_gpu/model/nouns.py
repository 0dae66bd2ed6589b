"""The nouns, each with one meaning (docs/glossary.md).

Everything here is frozen: a change of a workload is a new workload, made by `core.lifecycle.evolve` and by nobody else.
Instants (`*_at`, `*_by`, `not_before`) are Unix seconds as floats; lengths carry their unit in the name (`*_seconds`,
`*_bytes`, `*_ms`). None means "not known" or "not asked for", never zero.
"""

from __future__ import annotations

import base64
import shlex
from enum import StrEnum

import msgspec


class State(StrEnum):
    """Where a workload stands. Why it waits and how it ended are separate enums beside it."""

    QUEUED = "queued"
    ACTIVE = "active"
    YIELDING = "yielding"
    ENDED = "ended"


class Kind(StrEnum):
    """The two kinds of workload; there is no third."""

    RESERVATION = "reservation"
    JOB = "job"


class WaitingReason(StrEnum):
    """Why a QUEUED workload is not ACTIVE; exactly one at a time, set by the planner."""

    DEVICES = "devices"
    QUOTA = "quota"
    BUDGET = "budget"
    HOLD = "hold"
    PAUSED = "paused"
    DEPENDENCY = "dependency"
    NOT_BEFORE = "not-before"
    BACK_OFF = "back-off"
    CLEARING = "clearing"
    ENGINE = "engine"
    DRIVER = "driver"


class EvictionReason(StrEnum):
    """Why the broker ends a lease, strongest first: among evictions of one attempt the stronger wins."""

    CANCELLED = "cancelled"
    TIMED_OUT = "timed-out"
    EXPIRED = "expired"
    DEVICE_LOST = "device-lost"
    HUNG = "hung"
    DRAINED = "drained"
    ABOVE_SHARE = "above-share"
    NO_SHOW = "no-show"
    IDLE = "idle"
    PREEMPTED = "preempted"

    def is_stronger_than(self, other: EvictionReason | None) -> bool:
        """Say whether this reason replaces `other`; any reason replaces none."""
        return other is None or EVICTION_STRENGTH[self] < EVICTION_STRENGTH[other]


EVICTION_STRENGTH = {reason: place for place, reason in enumerate(EvictionReason)}


class EndReason(StrEnum):
    """How a workload ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    GPU_OOM = "gpu-oom"
    HOST_OOM = "host-oom"
    DISK_FULL = "disk-full"
    DEVICE_LOST = "device-lost"
    #: It used more of a shared device than its part, for longer than is borne.
    ABOVE_SHARE = "above-share"
    HUNG = "hung"
    TIMED_OUT = "timed-out"
    CANCELLED = "cancelled"
    LAUNCH_FAILED = "launch-failed"
    DEPENDENCY_UNMET = "dependency-unmet"
    LOST = "lost"
    RELEASED = "released"
    EXPIRED = "expired"
    ABANDONED = "abandoned"


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
    #: Only these devices, by UUID: placed by hand. Empty leaves the choice to the planner.
    on: tuple[str, ...] = ()


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a job runs. Text that is no UTF-8 is packed by `pack_bytes`, so argv arrives byte for byte."""

    argv: tuple[str, ...]
    #: The folder of submission: working folder and first on sys.path.
    folder: str
    #: Only what the user asked for and what the scrubbing let through; never secrets.
    environment: dict[str, str] = {}
    #: The place in argv of the submitted script, whose copy runs instead.
    script_index: int | None = None
    #: Where the copy lies, readable by the account that runs it.
    script_copy: str | None = None
    checkpoint_dir: str | None = None
    #: How many failed attempts are repeated; None leaves it to the policy's rule.
    retries: int | None = None
    grace_seconds: int | None = None
    log_limit_bytes: int = 1 << 30
    core_dumps: bool = False
    #: What outlives the main process gets SIGTERM, and SIGKILL so much later.
    leftover_seconds: int = 5
    #: A marker of reproducibility: git commit, interpreter; recorded, never used.
    recorded: dict[str, str] = {}

    @property
    def weight(self) -> int:
        """About how much of memory and store it takes, in characters."""
        return (
            sum(map(len, self.argv))
            + sum(map(len, self.environment))
            + sum(map(len, self.environment.values()))
            + sum(map(len, self.recorded))
            + sum(map(len, self.recorded.values()))
            + len(self.folder)
        )

    def brief(self) -> str:
        """What tells a job from its neighbours in one line: the script without its folder, and the arguments."""
        argv = [unpack_bytes(word).decode("utf-8", "replace")[:_BRIEF_CHARACTERS] for word in self.argv[:_BRIEF_WORDS]]
        if len(argv) == _SHELL_WORDS and argv[0].endswith("sh") and argv[1] == "-c":
            return argv[-1][:_BRIEF_CHARACTERS]
        first = min(self.script_index or 0, len(argv) - 1)
        return shlex.join([argv[first].rpartition("/")[2] or argv[first], *argv[first + 1 :]])[:_BRIEF_CHARACTERS]


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
    #: Submission time plus what its size and its owner's use add, in ms; see `core.planner.rank_ms`.
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
    #: The client's own key: the same key from the same owner is the same workload.
    idempotency_key: str | None = None

    @property
    def is_live(self) -> bool:
        """Whether it holds devices: ACTIVE or YIELDING."""
        return self.state in (State.ACTIVE, State.YIELDING)

    @property
    def title(self) -> str:
        """How texts name it: "job 12 (digits)"."""
        return f"{self.kind} {self.id}" + (f" ({self.name})" if self.name else "")

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


_BRIEF_CHARACTERS = 200
_BRIEF_WORDS = 50
#: A shell, -c, and its text.
_SHELL_WORDS = 3

_PACKED = "base64:"


def pack_bytes(raw: bytes) -> str:
    """Write bytes as text that JSON can carry: UTF-8 as it is, all else (and the prefix itself) as "base64:..."."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = _PACKED
    if text.startswith(_PACKED):
        return _PACKED + base64.b64encode(raw).decode("ascii")
    return text


def unpack_bytes(text: str) -> bytes:
    """Read back what `pack_bytes` wrote, byte for byte."""
    if text.startswith(_PACKED):
        return base64.b64decode(text[len(_PACKED) :])
    return text.encode("utf-8")
