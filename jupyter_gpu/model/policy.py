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
from .queues import DEFERRED, EACH, INTERACTIVE, TRAINING, HoldPolicy, Profile, QueuePolicy, QuotaRule
from .rules import EVERYONE, ForeignRule, SharingRule, Treatment, foreign_problems, of_foreign, sharing_problems
from .states import Kind

#: Use is summed in buckets of this length and kept for so long; a window cannot be finer or longer.
BUCKET_SECONDS = 3600
USAGE_SECONDS = 35 * 86_400


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
    #: Order: how many seconds of waiting a GPU-second of expected work is worth, and the most it may come to.
    order_multiple: int = 1
    order_most_seconds: int = 86_400
    half_life_seconds: int = 7 * 86_400
    #: Most queued workloads of one owner; beyond it an ask is refused.
    most_queued: int = 20_000
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

    def digest(self) -> str:
        """Twelve hex digits that change whenever a rule changes."""
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()[:12]

    def problems(self) -> list[str]:
        """What cannot be meant, one sentence each with the setting's name; empty when all is well."""
        return [*_queue_problems(self), *_number_problems(self), *_rule_problems(self)]


def _queue_problems(policy: Policy) -> list[str]:
    found = []
    names = [queue.name for queue in policy.queues]
    if not names:
        found.append("queues: there must be at least one queue")
    found += [f"queues: the name {name!r} is given twice" for name in sorted({n for n in names if names.count(n) > 1})]
    for queue in policy.queues:
        if not queue.name.replace("-", "").replace("_", "").isalnum():
            found.append(f"queues: {queue.name!r} is no name; use letters, digits, '-' and '_'")
        found += [
            f"queues: {queue.name}.{field} is {value}; it must be {least} or more"
            for field, value, least in (
                ("protected_seconds", queue.protected_seconds, 0),
                ("grace_seconds", queue.grace_seconds, 0),
                ("expected_seconds", queue.expected_seconds, 1),
                ("wait_limit_seconds", queue.wait_limit_seconds, 1),
                ("longest_seconds", queue.longest_seconds, 1),
            )
            if value is not None and value < least
        ]
    for kind in Kind:
        if not any(kind in queue.kinds for queue in policy.queues):
            found.append(f"queues: no queue admits a {kind}")
    return found


_MOST_CELSIUS = 150

_AT_LEAST_ONE = (
    "reservation_seconds", "attach_seconds", "renew_seconds", "lapse_seconds", "clear_seconds",
    "back_off_seconds", "half_life_seconds", "most_queued", "strike_seconds", "keep_days", "keep_log_days",
)  # fmt: skip
_AT_LEAST_ZERO = (
    "reservation_grace_seconds", "kill_after_seconds", "most_grace_seconds", "most_leftover_seconds",
    "preemptions_per_day", "failures", "timeouts", "launch_failures", "losses", "order_multiple", "order_most_seconds",
    "baseline_bytes", "drawing_bytes", "foreign_seconds", "hot_seconds", "suspect_seconds", "strikes",
)  # fmt: skip


def _number_problems(policy: Policy) -> list[str]:
    found = [f"{n}: {getattr(policy, n)} must be 1 or more" for n in _AT_LEAST_ONE if getattr(policy, n) < 1]
    found += [f"{n}: {getattr(policy, n)} must be 0 or more" for n in _AT_LEAST_ZERO if getattr(policy, n) < 0]
    if policy.hot_celsius is not None and not 1 <= policy.hot_celsius <= _MOST_CELSIUS:
        found.append(
            f"hot_celsius: {policy.hot_celsius} is no temperature of a GPU; give 1 to {_MOST_CELSIUS}, or None"
        )
    if policy.most_devices is not None and policy.most_devices < 1:
        found.append(f"most_devices: {policy.most_devices} must be 1 or more, or None for no limit")
    if policy.keep_log_bytes is not None and policy.keep_log_bytes < 0:
        found.append(f"keep_log_bytes: {policy.keep_log_bytes} must be 0 or more, or None for a tenth of the disk")
    found += [
        f"{name}: {seconds} must be 1 or more, or None for never"
        for name, seconds in (
            ("hang_warn_seconds", policy.hang_warn_seconds),
            ("hang_restart_seconds", policy.hang_restart_seconds),
        )
        if seconds is not None and seconds < 1
    ]
    if policy.lapse_seconds <= policy.renew_seconds:
        found.append("lapse_seconds: it must be longer than renew_seconds, or every holder lapses between two renewals")
    return found


def _rule_problems(policy: Policy) -> list[str]:
    names = {queue.name for queue in policy.queues}
    found = [problem for rule in policy.quotas for problem in _quota_problems(rule, names)]
    with_share = [rule.team for rule in policy.quotas if rule.share_devices is not None]
    found += [
        f"quotas: the team {team} has two shares"
        for team in sorted({team for team in with_share if team is not None and with_share.count(team) > 1})
    ]
    for hold in policy.holds:
        if hold.until_at <= hold.from_at:
            found.append(f"holds: {hold.name!r} ends before it begins")
        if not hold.devices and hold.count < 1:
            found.append(f"holds: {hold.name!r} withholds nothing; give devices or count")
        if hold.no_show_seconds is not None and hold.no_show_seconds < 0:
            found.append(f"holds: {hold.name}.no_show_seconds is {hold.no_show_seconds}; it must be 0 or more")
    found += sharing_problems(policy.sharing, policy.known_teams)
    found += foreign_problems(policy.foreign_rules, policy.known_teams)
    return found + _profile_problems(policy)


def _profile_problems(policy: Policy) -> list[str]:
    """Each with the place of its profile in the list, so that a face can show the line."""
    found, seen = [], set[str]()
    for number, profile in enumerate(policy.profiles):
        queue = None if profile.queue is None else policy.queue(profile.queue)
        longest = None if queue is None else queue.longest_seconds
        most = policy.most_devices
        faults = {
            "has no name": not profile.name.strip(),
            "has the name of another": profile.name in seen,
            f"names the queue {profile.queue!r}, which does not exist": profile.queue is not None and queue is None,
            f"asks for {profile.devices} devices": profile.devices < 0,
            f"asks for {profile.devices} devices, and most_devices is {most}": most is not None
            and profile.devices > most,
            "asks for memory of no device; give devices": profile.devices == 0 and profile.memory_bytes is not None,
            f"asks for {profile.memory_bytes} bytes": profile.memory_bytes is not None and profile.memory_bytes < 1,
            f"lasts {profile.duration_seconds} s": profile.duration_seconds is not None
            and profile.duration_seconds < 1,
            f"lasts longer than longest_seconds of its queue, {longest}": longest is not None
            and (profile.duration_seconds or 0) > longest,
            "is for neither servers nor kernels": not (profile.for_servers or profile.for_kernels),
        }
        found += [f"profiles[{number}]: {profile.name!r} {what}" for what, holds in faults.items() if holds]
        seen.add(profile.name)
    return found


def _quota_problems(rule: QuotaRule, queues: set[str]) -> list[str]:
    found = []
    if rule.devices is None and rule.gpu_hours is None and rule.share_devices is None:
        found.append(f"quotas: the rule for {rule.title} bounds nothing; give devices, share_devices or gpu_hours")
    if rule.queue not in (None, EACH) and rule.queue not in queues:
        found.append(f"quotas: there is no queue {rule.queue!r}")
    if rule.share_devices is not None:
        if rule.team in (None, EACH):
            found.append("quotas: share_devices belongs to one named team")
        if rule.user or rule.queue or rule.device_class:
            found.append(f"quotas: the share of the team {rule.team} takes no user, queue or class")
    found += [
        f"quotas: {field} of the rule for {rule.title} is {value}; it must be 0 or more"
        for field, value in (
            ("devices", rule.devices),
            ("share_devices", rule.share_devices),
            ("gpu_hours", rule.gpu_hours),
        )
        if value is not None and value < 0
    ]
    if not BUCKET_SECONDS <= rule.window_seconds <= USAGE_SECONDS:
        found.append(
            f"quotas: window_seconds of the rule for {rule.title} is {rule.window_seconds};"
            f" it must be between {BUCKET_SECONDS} (an hour) and {USAGE_SECONDS} (35 days)"
        )
    return found
