"""What cannot be meant of a policy: one sentence for each fault, which begins with the place of what is wrong.

A place is like `quotas[1]` or `queues[0]`, so that a face can show the line of the file (`jupyter_gpu.policies`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .queues import BUCKET_SECONDS, EACH, USAGE_SECONDS, Profile, QueuePolicy, QuotaRule
from .rules import foreign_problems, sharing_problems
from .states import Kind

if TYPE_CHECKING:
    from .policy import Policy


def problems_of(policy: Policy) -> list[str]:
    """Every fault of a policy; empty when all is well."""
    return [*_queue_problems(policy), *_number_problems(policy), *_rule_problems(policy)]


def _queue_problems(policy: Policy) -> list[str]:
    found = []
    names = [queue.name for queue in policy.queues]
    if not names:
        found.append("queues: there must be at least one queue")
    found += [f"queues: the name {name!r} is given twice" for name in sorted({n for n in names if names.count(n) > 1})]
    for number, queue in enumerate(policy.queues):
        place = f"queues[{number}]"
        if not queue.name.replace("-", "").replace("_", "").isalnum():
            found.append(f"{place}: {queue.name!r} is no name; use letters, digits, '-' and '_'")
        found += [
            f"{place}: {queue.name}.{field} is {value}; it must be {least} or more"
            for field, value, least in (
                ("protected_seconds", queue.protected_seconds, 0),
                ("grace_seconds", queue.grace_seconds, 0),
                ("expected_seconds", queue.expected_seconds, 1),
                ("wait_limit_seconds", queue.wait_limit_seconds, 1),
                ("longest_seconds", queue.longest_seconds, 1),
                ("share_devices", queue.share_devices, 0),
                ("most_devices", queue.most_devices, 1),
                ("slice_factor", queue.slice_factor, 2),
            )
            if value is not None and value < least
        ]
        found += [f"{place}: {what}" for what in _of_queue(policy, queue)]
    for kind in Kind:
        if not any(kind in queue.kinds for queue in policy.queues):
            found.append(f"queues: no queue admits a {kind}")
    return found


def _of_queue(policy: Policy, queue: QueuePolicy) -> list[str]:
    """What of a queue contradicts itself or others: work that nothing could serve, or preemption that gains nothing."""
    name, found = queue.name, []
    if not queue.kinds:
        found.append(f"{name}.kinds is empty, so it takes neither jobs nor reservations")
    if queue.most_devices is not None and (queue.share_devices or 0) > queue.most_devices:
        found.append(
            f"{name}.share_devices is {queue.share_devices}, and most_devices lets it hold {queue.most_devices}"
        )
    known = policy.known_teams
    if known is not None and queue.teams and not queue.users and known.isdisjoint(queue.teams):
        found.append(
            f"{name}.teams: nobody could enter it, since the teams are {', '.join(sorted(known))}. "
            "A group of the hub is named in team_groups"
        )
    if queue.preempted_by is not None and not queue.preemptible:
        found.append(f"{name}.preempted_by says who may preempt it, and it is not preemptible")
    if queue.slice_factor is not None and not queue.preemptible:
        found.append(f"{name}.slice_factor lets its jobs take turns, and it is not preemptible")
    for other in queue.preempted_by or ():
        above = policy.queue(other)
        if above is None:
            found.append(f"{name}.preempted_by: there is no queue {other!r}")
        elif above.priority <= queue.priority:
            found.append(f"{name}.preempted_by: {other} has no higher priority, so what it took would go straight back")
    return found


_MOST_CELSIUS = 150

_AT_LEAST_ONE = (
    "reservation_seconds", "attach_seconds", "renew_seconds", "lapse_seconds", "clear_seconds",
    "back_off_seconds", "half_life_seconds", "most_queued", "strike_seconds", "keep_days", "keep_log_days",
)  # fmt: skip
_AT_LEAST_ZERO = (
    "reservation_grace_seconds", "kill_after_seconds", "most_grace_seconds", "most_leftover_seconds",
    "preemptions_per_day", "failures", "timeouts", "launch_failures", "losses", "order_multiple", "order_most_seconds",
    "order_use_weight", "order_use_seconds",
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
    if policy.most_booked_gpu_hours is not None and policy.most_booked_gpu_hours < 0:
        found.append(f"most_booked_gpu_hours: {policy.most_booked_gpu_hours} must be 0 or more, or None for no limit")
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
    found = [
        f"quotas[{number}]: {problem}"
        for number, rule in enumerate(policy.quotas)
        for problem in _quota_problems(rule, names)
    ]
    with_share = [rule.team for rule in policy.quotas if rule.share_devices is not None]
    found += [
        f"quotas: the team {team} has two shares"
        for team in sorted({team for team in with_share if team is not None and with_share.count(team) > 1})
    ]
    for number, hold in enumerate(policy.holds):
        place = f"holds[{number}]"
        if hold.until_at <= hold.from_at:
            found.append(f"{place}: {hold.name!r} ends before it begins")
        if not hold.devices and hold.count < 1:
            found.append(f"{place}: {hold.name!r} withholds nothing; give devices or count")
        if hold.no_show_seconds is not None and hold.no_show_seconds < 0:
            found.append(f"{place}: {hold.name}.no_show_seconds is {hold.no_show_seconds}; it must be 0 or more")
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
        found += [f"profiles[{number}]: {profile.name!r} {what}" for what in _beyond_every_quota(policy, profile)]
        seen.add(profile.name)
    return found


def _beyond_every_quota(policy: Policy, profile: Profile) -> list[str]:
    """Bounds of all who may use a profile that it is beyond by itself: whoever chose it would wait for ever."""
    hours = -(-profile.devices * (profile.duration_seconds or 0) // 3600)
    memory = profile.devices * (profile.memory_bytes or 0)
    found = []
    for rule in policy.bounds:
        binds_all = rule.user in (None, EACH) and rule.team in (None, EACH)
        its_queue = rule.queue in (None, EACH, profile.queue)
        its_class = rule.device_class is None or (
            profile.device_class and rule.device_class in (EACH, profile.device_class)
        )
        if profile.devices == 0 or not (binds_all and its_queue and its_class):
            continue
        for asked, most, what in (
            (profile.devices, rule.devices, "devices at once"),
            (memory, rule.memory_bytes, "bytes of shared devices"),
            (hours, rule.gpu_hours, "GPU-hours"),
        ):
            if most is not None and asked > most:
                found.append(
                    f"asks for {asked} {what}, and the rule for {rule.title} allows {most}: it would wait for ever"
                )
    return found


def _quota_problems(rule: QuotaRule, queues: set[str]) -> list[str]:
    found = []
    if rule.devices is None and rule.memory_bytes is None and rule.gpu_hours is None and rule.share_devices is None:
        found.append(
            f"the rule for {rule.title} bounds nothing; give devices, memory_bytes, share_devices or gpu_hours"
        )
    if rule.queue not in (None, EACH) and rule.queue not in queues:
        found.append(f"there is no queue {rule.queue!r}")
    if rule.share_devices is not None:
        if rule.team in (None, EACH):
            found.append("share_devices belongs to one named team")
        if rule.user or rule.queue or rule.device_class:
            found.append(f"the share of the team {rule.team} takes no user, queue or class")
    found += [
        f"{field} of the rule for {rule.title} is {value}; it must be 0 or more"
        for field, value in (
            ("devices", rule.devices),
            ("memory_bytes", rule.memory_bytes),
            ("share_devices", rule.share_devices),
            ("gpu_hours", rule.gpu_hours),
        )
        if value is not None and value < 0
    ]
    if not BUCKET_SECONDS <= rule.window_seconds <= USAGE_SECONDS:
        found.append(
            f"window_seconds of the rule for {rule.title} is {rule.window_seconds};"
            f" it must be between {BUCKET_SECONDS} (an hour) and {USAGE_SECONDS} (35 days)"
        )
    return found
