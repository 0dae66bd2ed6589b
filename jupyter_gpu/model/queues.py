"""The parts of a policy that are about who gets what: queues, quotas, holds, profiles."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from .states import Kind

EACH = "*"

#: Use is summed in buckets of this length and kept for so long; a window cannot be finer or longer.
BUCKET_SECONDS = 3600
USAGE_SECONDS = 35 * 86_400


class QueuePolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A named line: its right, its patience and its rule of yielding."""

    name: str
    #: Higher goes first and may preempt what is preemptible and lower.
    priority: int
    kinds: tuple[Kind, ...] = (Kind.JOB, Kind.RESERVATION)
    preemptible: bool = False
    #: No preemption in the first so many seconds of an attempt.
    protected_seconds: int = 0
    #: The queues whose higher priority counts against its work; None is every queue of a higher priority. A share is
    #: taken back by whomever it belongs to all the same.
    preempted_by: tuple[str, ...] | None = None
    #: Its jobs take turns: one that waits takes the place of one that runs and is expected to need so many times as
    #: long as it. None is that equals never preempt each other.
    slice_factor: int | None = None
    grace_seconds: int = 120
    #: Waiting longer lifts a workload to the front of its queue.
    wait_limit_seconds: int | None = None
    longest_seconds: int | None = None
    #: What to expect of work that states no time limit and has no history.
    expected_seconds: int = 3600
    #: Empty admits everybody.
    users: tuple[str, ...] = ()
    teams: tuple[str, ...] = ()
    #: Interactive work may use only what is within its team's share; others may borrow.
    may_borrow: bool = True
    #: Devices that are the queue's own: what others hold of them is borrowed and comes back by preemption.
    share_devices: int | None = None
    #: So many devices may all of its work hold at once; None is as many as there are.
    most_devices: int | None = None


class QuotaRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How much may be held at once or used per window; a selector is a name, "*" (each by itself) or None (all)."""

    user: str | None = None
    team: str | None = None
    queue: str | None = None
    device_class: str | None = None
    devices: int | None = None
    #: All parts of shared devices together. Whole devices do not count for it.
    memory_bytes: int | None = None
    #: A guaranteed part for a team: what others hold of it is borrowed and comes back by preemption.
    share_devices: int | None = None
    gpu_hours: int | None = None
    window_seconds: int = 7 * 86_400

    @property
    def title(self) -> str:
        """How texts name the rule."""
        parts = [
            f"{'each ' if value == EACH else ''}{word}{'' if value == EACH else ' ' + value}"
            for word, value in (
                ("user", self.user),
                ("team", self.team),
                ("queue", self.queue),
                ("class", self.device_class),
            )
            if value is not None
        ]
        return ", ".join(parts) or "everybody"


class HoldPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Capacity withheld over an interval for an owner, a team or maintenance (neither of both)."""

    name: str
    from_at: float
    until_at: float
    #: Device UUIDs; empty withholds `count` devices of the class, highest index first.
    devices: tuple[str, ...] = ()
    count: int = 0
    device_class: str | None = None
    users: tuple[str, ...] = ()
    teams: tuple[str, ...] = ()
    #: Given back when none of the entitled came within this time of its beginning.
    no_show_seconds: int | None = None


class Profile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A named ask that an admin offers."""

    name: str
    title: str = ""
    #: A sentence for whoever chooses.
    description: str = ""
    #: Who may use it; empty lets everybody.
    users: tuple[str, ...] = ()
    teams: tuple[str, ...] = ()
    #: What it may be used for: a whole server at its start, a kernel or a person on demand.
    for_servers: bool = True
    for_kernels: bool = True
    devices: int = 1
    device_class: str | None = None
    memory_bytes: int | None = None
    duration_seconds: int | None = None
    queue: str | None = None

    def is_open_to(self, user: str, teams: Collection[str]) -> bool:
        """Whether somebody of these teams may use it."""
        return not (self.users or self.teams) or user in self.users or not set(self.teams).isdisjoint(teams)


INTERACTIVE = QueuePolicy(
    name="interactive",
    priority=100,
    kinds=(Kind.RESERVATION,),
    wait_limit_seconds=900,
    longest_seconds=12 * 3600,
    expected_seconds=2 * 3600,
    may_borrow=False,
)
TRAINING = QueuePolicy(
    name="training",
    priority=50,
    kinds=(Kind.JOB,),
    preemptible=True,
    protected_seconds=600,
    wait_limit_seconds=4 * 86_400,
    expected_seconds=4 * 3600,
)
DEFERRED = QueuePolicy(
    name="deferred",
    priority=10,
    kinds=(Kind.JOB,),
    preemptible=True,
    protected_seconds=120,
    expected_seconds=4 * 3600,
)
