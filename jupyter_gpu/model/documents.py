"""What goes over the wire to the faces: the documents that every one of them shows.

The API, the OpenAPI file, the client and the browser's types all come from these and from `bodies`. Fields may be
added within v1, never removed. Instants are Unix seconds, lengths say their unit; None is "not known" and read as
"n/a", never as 0.
"""

from __future__ import annotations

import msgspec

from .devices import Condition, UseKind
from .hold_views import HoldView
from .jobs import Dependency, JobSpec, Member, Progress
from .nouns import Ask, Holder, LearntGrace, Outcome
from .prospects import SoonerView
from .quota_views import QuotaView
from .states import EndReason, EvictionReason, Kind, State, WaitingReason

API_VERSION = 1


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """The warning before a lease is ended by force."""

    reason: EvictionReason
    yield_by: float
    detail: str = ""


class Renewal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to a renewal; it carries any notice, so the broker never calls back."""

    renew_by: float
    ends_at: float | None = None
    notice: Notice | None = None
    #: What the holder should know although nothing ends: that it uses more than its part, say.
    told: str = ""


class WorkloadView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One workload as a caller may see it. Of others' work only what concerns the devices, unless they may see more."""

    id: int
    kind: Kind
    state: State
    #: None where the caller may not see whose it is.
    owner: str | None
    team: str | None
    queue: str
    name: str | None
    ask: Ask
    submitted_at: float
    priority: int
    waiting: WaitingReason | None = None
    #: A sentence: why it waits or how it stands, and what can be done.
    reason: str = ""
    #: Of one that waits, asked for by itself: why, without its place and what can be done, which are said elsewhere.
    why: str = ""
    #: Workloads before it in its queue; 0 is first in line.
    ahead: int | None = None
    #: The last few of those, in their order, as far as the caller may know of them.
    before: tuple[int, ...] = ()
    #: The middle of the range in which it is expected to start, which has no end where nobody knows.
    expected_start_at: float | None = None
    expected_start_from: float | None = None
    expected_start_until: float | None = None
    #: Of one by itself: what would let it start sooner, asked for anew.
    sooner: tuple[SoonerView, ...] = ()
    paused: bool = False
    lifted: bool = False
    #: Among those of its priority who waits stands in this order: its submission and a penalty, in ms.
    rank_ms: int = 0
    not_before: float | None = None
    back_off_until: float | None = None
    devices: tuple[str, ...] = ()
    granted_at: float | None = None
    ends_at: float | None = None
    attach_by: float | None = None
    overtime: bool = False
    holder: Holder | None = None
    attempt: int = 0
    started_at: float | None = None
    notice: Notice | None = None
    outcome: Outcome | None = None
    end: EndReason | None = None
    ended_at: float | None = None
    detail: str = ""
    preemptions: int = 0
    failures: int = 0
    is_mine: bool = False
    after: tuple[Dependency, ...] = ()
    #: Those of `after` that it still waits for.
    unmet: tuple[int, ...] = ()
    member: Member | None = None
    #: The recurring job that it is one time of.
    recurring: int | None = None
    #: The newest word of how far it is, of its present or last attempt; its owner's, and operators'.
    progress: Progress | None = None
    #: Work that was done and had to be done again, over all its attempts.
    repeated_seconds: float = 0.0
    #: What a job runs, in short, where the caller may see it: a name for those without one.
    command: str = ""
    #: Only when one workload is asked for by itself, by somebody who may see it.
    spec: JobSpec | None = None
    #: Of a job by itself: the seconds between notice and kill as it would get them now, and what was learnt of that.
    grace_seconds: int | None = None
    learnt_grace: LearntGrace | None = None
    #: Why its owner could not be told of it the last time; of one by itself, and until the broker is started anew.
    untold: str = ""


class UseView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One process on a device, as far as a caller may know of it."""

    pid: int
    kind: UseKind
    #: On the device without a lease of it.
    foreign: bool
    memory_bytes: int | None = None
    name: str = ""
    #: The account and the owner: None where it is not certain, or the caller may not see whose it is.
    user: str | None = None
    owner: str | None = None
    #: Under a hub, which of its owner's servers; empty is their usual one.
    server: str | None = None
    notebook: str = ""
    #: Whose it says it is, where that is not certain: its own word.
    claim: str = ""
    workload: int | None = None
    where: str = ""


class CardView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A GPU in MIG mode: its MIG devices are listed under it, and it is none itself."""

    uuid: str
    index: int
    name: str
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    utilisation_percent: int | None = None
    temperature_celsius: int | None = None
    power_watts: float | None = None
    sampled_at: float | None = None


class DeviceView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One device with its newest reading and who holds it until when."""

    uuid: str
    index: int
    #: What people read after "GPU": "0", and "0:1" of a MIG device.
    number: str
    name: str
    device_class: str
    pool: str
    simulated: bool
    cordoned: bool
    #: Why an operator cordoned it, where they said so; and who, where the caller may see names.
    cordon_reason: str = ""
    cordoned_by: str | None = None
    shareable: bool = False
    #: Of a MIG device: the UUID of its GPU, which stands among the `cards`.
    card: str | None = None
    condition: Condition | None = None
    condition_detail: str = ""
    #: Since when it has this condition.
    condition_since: float | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    #: What the driver keeps for itself, beside what is used; where the memory is the machine's own, what all else uses.
    memory_reserved_bytes: int | None = None
    #: The parts of a shared device that are leased, together.
    memory_leased_bytes: int | None = None
    #: Its memory is the machine's own.
    shares_host_memory: bool = False
    utilisation_percent: int | None = None
    temperature_celsius: int | None = None
    power_watts: float | None = None
    #: Why it is slower than it could be, as `Vitals.slowed_by` has it; some moments of it are no condition yet.
    slowed_by: tuple[str, ...] = ()
    sampled_at: float | None = None
    #: A sentence that is no fault: that it drives a display, say.
    note: str = ""
    #: The device nodes that its holder needs besides those that all use: what a container or a unit must be let open.
    nodes: tuple[str, ...] = ()
    #: Who is on it, the largest first; not with the samples, which are the same for all.
    uses: tuple[UseView, ...] = ()
    #: The live workloads on it, oldest first.
    workloads: tuple[int, ...] = ()
    #: Names only where the caller may see them.
    holders: tuple[str, ...] = ()
    free_at: float | None = None


class MarkedView(DeviceView, frozen=True, kw_only=True, omit_defaults=True):
    """A device that an operator marked; what still keeps it from work is its `cordoned` and its `condition`."""

    #: Where a GPU in MIG mode was named as a whole: its other MIG devices, marked likewise.
    others: tuple[DeviceView, ...] = ()


class ServerView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A server of a hub, as the broker knows it now."""

    name: str
    #: Whether its processes can be told from others' here.
    is_seen: bool


class AlertView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that somebody should know: of a device for operators, of their own work for its owner."""

    #: What it is about, for good: the same thing happening again has the same key.
    key: str
    since: float
    #: What happened, why, and what to do now.
    text: str
    device: str | None = None
    workload: int | None = None


class IsolationView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether a job is kept from the GPUs that are not its own, as a probe found that tried to open every one."""

    enforced: bool
    #: By what: "cgroup v2", "cgroup v1", "landlock", "bubblewrap", or "" where by nothing.
    by: str = ""
    #: A sentence: on what evidence, or why not.
    detail: str = ""


class DriverView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What reads the GPUs: the driver, its library NVML, and the module that speaks to it."""

    driver: str | None = None
    nvml: str | None = None
    cuda: str | None = None
    #: The file of the Python module, and its version.
    bindings: str = ""


class ProfileView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A profile that the caller may use."""

    name: str
    title: str
    description: str
    devices: int
    device_class: str | None = None
    memory_bytes: int | None = None
    duration_seconds: int | None = None
    queue: str | None = None
    #: Whether a whole server may be started with it, and whether a kernel or a person may reserve by it.
    for_servers: bool = True
    for_kernels: bool = True


class Status(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The one document that every face shows, for one caller."""

    #: The event number; with `store_id` it says whether anything changed.
    revision: int
    store_id: str
    at: float
    caller: str
    simulated: bool
    devices: tuple[DeviceView, ...]
    #: The caller's own workloads that have not ended, and others' that hold devices.
    workloads: tuple[WorkloadView, ...]
    quotas: tuple[QuotaView, ...]
    #: The caller's waiting work that the document leaves out, being too much of it; the queue's page has it all.
    more_of_mine: int = 0
    #: Queue -> how many wait in it.
    waiting: dict[str, int]
    #: What an operator should know: no driver, no device, a full disk.
    warnings: tuple[str, ...] = ()
    #: The GPUs in MIG mode, whose MIG devices are among the devices.
    cards: tuple[CardView, ...] = ()
    #: Of the caller's own work; for operators also of devices and of others' work.
    alerts: tuple[AlertView, ...] = ()
    isolation: IsolationView | None = None
    profiles: tuple[ProfileView, ...] = ()
    #: What is withheld and what others have reserved for later, as far as the caller may know.
    holds: tuple[HoldView, ...] = ()
    coming: tuple[WorkloadView, ...] = ()
    #: The teams that the caller's work may count for, the usual one first, and since when that is known.
    teams: tuple[str, ...] = ()
    teams_at: float | None = None


class EventView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One recorded event of one workload."""

    number: int
    at: float
    #: submitted, granted, started, ...
    event: str
    #: The attempt of a *started*, the reason of an *evicted*, the end of an *ended*: what people read in brackets.
    note: str = ""
    detail: str = ""
    by: str = ""
    #: Of a *granted*: what it got, in the order in which the work counts them from 0.
    devices: tuple[str, ...] = ()


class Error(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong: for programs, for people, and what to do now."""

    code: str
    message: str
    hint: str | None = None


class Submission(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one of many asks: one of the two."""

    workload: WorkloadView | None = None
    error: Error | None = None


class SubmissionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answers to many asks, in their order."""

    items: tuple[Submission, ...]


class WorkloadPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of workloads; `next` is what to pass as `after` for the following one."""

    items: tuple[WorkloadView, ...]
    next: int | None = None


class EventPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of events."""

    items: tuple[EventView, ...]
    next: int | None = None


class DevicePage(msgspec.Struct, frozen=True, kw_only=True):
    """All devices; there are never so many that they are paged."""

    items: tuple[DeviceView, ...]


class QuotaPage(msgspec.Struct, frozen=True, kw_only=True):
    """All bounds that concern the caller."""

    items: tuple[QuotaView, ...]


class BrokerView(msgspec.Struct, frozen=True, kw_only=True):
    """Which broker answers."""

    version: str
    api_version: int
    pid: int
    user: str
    node: str
    store_id: str
    state_dir: str
    policy_digest: str
    devices: int
    simulated: bool
    started_at: float
    #: When it stops by itself if nothing happens; None while work exists or where it never does.
    stops_at: float | None
    warnings: tuple[str, ...]
    driver: DriverView | None = None
    isolation: IsolationView | None = None


class Change(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the stream: the whole `status`, or what changed since the line before, or `samples` alone.

    What changed is folded into the document that the reader holds. `revision` says which it is then; samples have none.
    """

    revision: int | None = None
    at: float | None = None
    #: Workloads that changed or ended, as the caller may see them, and all of the caller's own that have not ended; at
    #: last those that wait, in the order of the line, since the place of each moves with all others.
    changes: tuple[WorkloadView, ...] = ()
    #: Devices that changed other than by their readings.
    devices: tuple[DeviceView, ...] = ()
    #: As in the whole document, with each revision.
    quotas: tuple[QuotaView, ...] = ()
    more_of_mine: int = 0
    waiting: dict[str, int] = {}
    warnings: tuple[str, ...] = ()
    #: As in the whole document, with each revision.
    alerts: tuple[AlertView, ...] = ()
    samples: tuple[DeviceView, ...] = ()
    #: With the samples: the cards of MIG devices.
    cards: tuple[CardView, ...] = ()
    status: Status | None = None
