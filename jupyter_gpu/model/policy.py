"""The policy: what the admin decided, frozen. Traits at the rim (`broker.app`) become this, and nothing else is read.

A policy that cannot be meant is refused by `problems()`, with the name of the setting that is wrong, before anything
is loaded. Its digest stands on each event, so a past decision can be explained by the rules of its time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import Literal

import msgspec

from .containers import ContainerRules
from .devices import Condition, Device
from .policy_problems import problems_of
from .queues import (
    BUCKET_SECONDS,
    DEFERRED,
    INTERACTIVE,
    TRAINING,
    USAGE_SECONDS,
    HoldPolicy,
    Profile,
    QueuePolicy,
    QuotaRule,
)
from .rules import EVERYONE, ForeignRule, SharingRule, Treatment, of_foreign

__all__ = ["BUCKET_SECONDS", "USAGE_SECONDS", "Policy"]


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the core may know of the admin's will. The defaults are those that ship."""

    queues: tuple[QueuePolicy, ...] = (INTERACTIVE, TRAINING, DEFERRED)
    quotas: tuple[QuotaRule, ...] = ()
    holds: tuple[HoldPolicy, ...] = ()
    profiles: tuple[Profile, ...] = ()
    #: The first rule that names a device counts; devices that none names are leased whole.
    sharing: tuple[SharingRule, ...] = ()
    #: Team -> its members; who is in none counts for the team "everyone".
    teams: dict[str, tuple[str, ...]] = {}
    #: Groups of the hub that are teams as well; None takes all of them.
    team_groups: tuple[str, ...] | None = None
    operators: tuple[str, ...] = ()
    #: Whether everybody sees who holds and who waits; operators always do.
    names_are_public: bool = True
    #: Limits of one ask.
    most_devices: int | None = None
    reservation_seconds: int = 2 * 3600
    attach_seconds: int = 300
    renew_seconds: int = 20
    lapse_seconds: int = 90
    reservation_grace_seconds: int = 60
    kill_after_seconds: int = 30
    #: The longest grace that a job may ask for itself: so long others wait for it to save.
    most_grace_seconds: int = 900
    #: The longest that what a job leaves behind may take to leave after its main process.
    most_leftover_seconds: int = 60
    #: A reservation whose GPU does nothing while no cell runs is warned of after so long; None never is. It is
    #: given back so much later, unless its owner says to keep it.
    idle_warn_seconds: int | None = 1200
    idle_release_seconds: int = 600
    #: A job that reports nothing, prints nothing and leaves its devices idle is told of after so long; None never is.
    #: It is started anew from its checkpoint after so long, where it does not say itself when; None never does.
    hang_warn_seconds: int | None = 1800
    hang_restart_seconds: int | None = None
    #: How long a device may take to be clear after its work ended, before it is quarantined.
    clear_seconds: int = 60
    preemptions_per_day: int = 5
    failures: int = 3
    timeouts: int = 3
    launch_failures: int = 5
    losses: int = 5
    back_off_seconds: int = 10
    #: Order: how many seconds of waiting an expected second of work is worth, times the root of its GPUs; what all
    #: that never reaches, however long the work is; and by how much it counts more for who had all of the recent use.
    order_multiple: int = 2
    order_most_seconds: int = 302_400
    order_use_weight: int = 5
    #: And what it costs by itself, however short the work is expected to be: so much who had all of the recent use.
    order_use_seconds: int = 86_400
    half_life_seconds: int = 7 * 86_400
    #: Most queued workloads of one owner; beyond it an ask is refused.
    most_queued: int = 20_000
    #: Most GPU-hours of one owner's reservations for later that have not begun; None is no limit.
    most_booked_gpu_hours: int | None = 336
    ignored_process_names: tuple[str, ...] = (
        "Xorg",
        "Xwayland",
        "gnome-shell",
        "nvidia-smi",
        "nvtop",
        "dcgm",
        "nv-hostengine",
    )
    #: Memory that an idle device may show and still be clear.
    baseline_bytes: int = 1 << 30
    #: What only draws, with no more memory than this, is a display and nobody's use.
    drawing_bytes: int = 1 << 30
    #: What is done about a process on a device without a lease: "warn", or "end" it after so long, where it is
    #: certain whose it is.
    foreign_use: Literal["warn", "end"] = "warn"
    foreign_seconds: int = 60
    #: The same for owners in a team; `rules` says which of several counts.
    foreign_rules: tuple[ForeignRule, ...] = ()
    #: From here on a device gets no new lease; None is where the card slows itself down.
    hot_celsius: int | None = None
    #: How long heat or slowing must last to count, and how long a device must be well to be well again.
    hot_seconds: int = 30
    #: How long a device may show load with nobody on it.
    suspect_seconds: int = 10
    #: So many workloads in a row, all within the time, that died of a device's hardware take it out of use; 0 never
    #: does. By their words alone those of one owner take out one device within the time.
    strikes: int = 3
    strike_seconds: int = 3600
    #: Conditions in which jobs are moved off a device; in all others they run on, and it only gets no new work.
    drains: tuple[Condition, ...] = (Condition.FAULTY,)
    #: Which container engines and images jobs may run in.
    containers: ContainerRules = ContainerRules()
    #: Work that ended longer ago is forgotten, save the newest 10,000; its logs go before that.
    keep_days: int = 365
    keep_log_days: int = 90
    #: Where all together have more, the oldest logs of whoever has most go; None is a tenth of their disk.
    keep_log_bytes: int | None = None

    def queue(self, name: str) -> QueuePolicy | None:
        """Find a queue by its name."""
        for queue in self.queues:
            if queue.name == name:
                return queue
        return None

    def teams_of(self, user: str, groups: Collection[str] = ()) -> tuple[str, ...]:
        """The teams that a user's work may count for, the usual one first: those that list them, then their groups."""
        listed = sorted(team for team, members in self.teams.items() if user in members)
        known = sorted(groups) if self.team_groups is None else [it for it in self.team_groups if it in groups]
        return tuple(dict.fromkeys([*listed, *known])) or (EVERYONE,)

    def profiles_for(self, user: str, teams: Collection[str]) -> tuple[Profile, ...]:
        """The profiles that a user may use, in the admin's order."""
        return tuple(it for it in self.profiles if it.is_open_to(user, teams))

    def sharing_of(self, device: Device) -> SharingRule | None:
        """The rule by which parts of a device may be leased; None where it is leased whole."""
        return next((rule for rule in self.sharing if rule.names(device)), None)

    def treatment_of(self, teams: Collection[str] | None) -> Treatment:
        """What becomes of a process without a lease whose owner is in these teams; None where they are not known."""
        usual = Treatment("foreign_use", self.foreign_seconds if self.foreign_use == "end" else None)
        return of_foreign(usual, self.foreign_rules, self.foreign_seconds, teams)

    @property
    def differs_by_team(self) -> bool:
        """Whether what is done about use beside the leases depends on whose it is."""
        return bool(self.foreign_rules) or any(rule.by_team for rule in self.sharing)

    @property
    def known_teams(self) -> frozenset[str] | None:
        """All teams that there can be; None where nothing is declared, so that any group of a hub may be one."""
        if not self.teams and self.team_groups is None:
            return None
        return frozenset((*self.teams, *(self.team_groups or ()), EVERYONE))

    @property
    def bounds(self) -> tuple[QuotaRule, ...]:
        """Every rule that bounds use: the quotas, under their numbers, and after them what a queue may hold at most."""
        queues = (it for it in self.queues if it.most_devices is not None)
        return (*self.quotas, *(QuotaRule(queue=it.name, devices=it.most_devices) for it in queues))

    def digest(self) -> str:
        """Twelve hex digits that change whenever a rule changes."""
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()[:12]

    def problems(self) -> list[str]:
        """What cannot be meant, one sentence each with the setting's name; empty when all is well."""
        return problems_of(self)
