"""What may enter the line: the queue and the team of an ask, its defaults, its limits.

Beyond a limit an ask is refused, and so is what its quota could never hold; what is beyond what is left of a quota
waits, which is not decided here.
"""

from __future__ import annotations

from math import isfinite

import msgspec

from ..errors import Conflict, InvalidAsk, LimitExceeded, NotAllowed
from ..model import Ask, EndReason, JobSpec, Kind, Policy, QueuePolicy, Submit, WaitingReason, Workload, World
from ..units import format_seconds
from .arrays import member_spec, members, refuse_no_array
from .booking import refuse_what_cannot_be_kept
from .chains import linked, refuse_too_many_links, why_never
from .events import Ended, Event, Submitted
from .forecast import rank_ms
from .impossible import refuse_the_impossible
from .recent_use import RecentUse
from .which_quota import refuse_what_no_quota_allows

#: Beyond ten years a length is a slip of the keyboard, and instants made with it would lose their seconds.
LONGEST_SECONDS = 10 * 366 * 86_400

_USUAL_LEFTOVER_SECONDS = JobSpec(argv=(), folder="").leftover_seconds


def submit(world: World, command: Submit, now: float) -> list[Event]:
    """Let a workload in, or say why it cannot be meant. A key that the owner has used already adds nothing."""
    if command.idempotency_key is not None and (command.owner, command.idempotency_key) in world.keys:
        _refuse_another(world.workloads[world.keys[command.owner, command.idempotency_key]], command)
        return []
    command = _from_now(_with_profile(world.policy, command), now)
    team = _team_for(world.policy, command)
    queue = _queue_for(world.policy, command, team)
    if command.kind is Kind.JOB and (command.spec is None or not command.spec.argv):
        raise InvalidAsk("the job has nothing to run", hint="Give a command: `jupyter gpu submit -- python train.py`.")
    refuse_no_array(command)
    ask = _limited(world, command, queue)
    refuse_what_no_quota_allows(world, (command.owner, team, queue.name), command.kind, ask)
    _refuse_too_many(world, command)
    if command.after and command.kind is not Kind.JOB:
        raise InvalidAsk("a reservation comes after nothing: only jobs do", hint="Reserve once that has ended.")
    links = linked(world, command.after, command.past)
    refuse_too_many_links(world, command.owner, len(links.unmet) * max(1, len(command.array)))
    it = Workload(
        id=world.last_id + 1,
        kind=command.kind,
        owner=command.owner,
        team=team,
        queue=queue.name,
        name=command.name,
        ask=ask,
        submitted_at=now,
        priority=queue.priority,
        paused=command.paused,
        not_before=command.not_before,
        waiting=WaitingReason.DEPENDENCY if links.unmet else WaitingReason.DEVICES,
        after=links.after,
        unmet=links.unmet,
        recurring=command.recurring,
        spec=command.spec,
        account=command.account or command.owner,
        holder=command.holder,
        idempotency_key=command.idempotency_key,
    )
    it = msgspec.structs.replace(it, rank_ms=rank_ms(it, world, RecentUse(world, now).permille(it.owner, it.team)))
    if it.is_booked:
        refuse_what_cannot_be_kept(world, it, now)
    its = list(members(it, command)) if command.array else [it]
    events: list[Event] = [Submitted(at=now, it=one) for one in its]
    if links.broken is not None:  # as if it had waited already: whether a parent ended just before or after is chance
        events += [
            Ended(at=now, workload=one.id, end=EndReason.DEPENDENCY_UNMET, detail=why_never(one, *links.broken))
            for one in its
        ]
    return events


def _from_now(command: Submit, now: float) -> Submit:
    """A reservation for a time that has come is one like any other."""
    if command.kind is Kind.RESERVATION and (command.not_before or 0.0) <= now:
        return msgspec.structs.replace(command, not_before=None)
    return command


def _refuse_too_many(world: World, command: Submit) -> None:
    most, waiting = world.policy.most_queued, world.queued_by.get(command.owner, 0)
    if waiting + max(1, len(command.array)) <= most:
        return
    if not command.array:
        raise LimitExceeded(
            f"{command.owner} has {waiting} workloads waiting already, and {most} are the most",
            hint="Wait until some have ended, or cancel some.",
        )
    raise LimitExceeded(
        f"{command.owner} has {waiting} workloads waiting already; {len(command.array)} more would be above {most}, "
        "which is the most",
        hint="Submit a smaller array, or wait until some have ended.",
    )


def _refuse_another(it: Workload, command: Submit) -> None:
    """A key repeats an ask whose answer was lost. With another command it is a slip, and must not look like success."""
    before, asked = it.spec, command.spec
    if asked is not None and command.array:
        asked = member_spec(asked, command.array[0], 1)
    if (
        it.kind is command.kind
        and _size_of(it) == len(command.array)
        and (
            before is None
            or asked is None
            or (before.argv, before.folder, before.script_copy) == (asked.argv, asked.folder, asked.script_copy)
        )
    ):
        return
    raise Conflict(
        f"the key {command.idempotency_key!r} belongs to {it.title}, which runs something else",
        hint="Use another key for another command; the same key is for asking again for the same.",
    )


def _size_of(it: Workload) -> int:
    return 0 if it.member is None else it.member.of


def _with_profile(policy: Policy, command: Submit) -> Submit:
    """The profile says what is asked for; a length or a queue of the asker's own goes before the profile's."""
    if command.profile is None:
        return command
    mine = policy.profiles_for(command.owner, policy.teams_of(command.owner, command.groups))
    offered = f"Use one of: {', '.join(it.name for it in mine)}." if mine else "This broker offers you no profiles."
    profile = next((it for it in policy.profiles if it.name == command.profile), None)
    if profile is None:
        raise InvalidAsk(f"there is no profile {command.profile!r}", hint=offered)
    if profile not in mine:
        raise NotAllowed(f"the profile {profile.name!r} is not for {command.owner}", hint=offered)
    is_server = command.holder is not None and command.holder.kind == "server"
    if not (profile.for_servers if is_server else profile.for_kernels):
        what = "is not for whole servers" if is_server else "is for whole servers only"
        raise InvalidAsk(f"the profile {profile.name!r} {what}", hint="Choose another, or ask without a profile.")
    ask = msgspec.structs.replace(
        command.ask,
        devices=profile.devices,
        device_class=profile.device_class,
        memory_bytes=profile.memory_bytes,
        duration_seconds=command.ask.duration_seconds or profile.duration_seconds,
    )
    return msgspec.structs.replace(command, ask=ask, queue=command.queue or profile.queue)


def _team_for(policy: Policy, command: Submit) -> str:
    """Fixed at submission: the team asked for, if the owner is in it, else their usual one."""
    teams = policy.teams_of(command.owner, command.groups)
    if command.team is None:
        return teams[0]
    if command.team not in teams:
        seen = f"The teams that are known of them: {', '.join(teams)}."
        raise NotAllowed(
            f"{command.owner} is not in the team {command.team!r}",
            hint=f"{seen} Leave the team out for the first of them; a new group of a hub is known within moments.",
        )
    return command.team


def _queue_for(policy: Policy, command: Submit, team: str) -> QueuePolicy:
    """The queue asked for, else the first that takes this kind from this person."""
    if command.queue is None:
        open_ones = [q for q in policy.queues if command.kind in q.kinds and _admits(q, command.owner, team)]
        if not open_ones:
            raise NotAllowed(f"no queue takes a {command.kind} from {command.owner}", hint="Ask an admin.")
        return open_ones[0]
    queue = policy.queue(command.queue)
    if queue is None:
        names = ", ".join(q.name for q in policy.queues)
        raise InvalidAsk(f"there is no queue {command.queue!r}", hint=f"Use one of: {names}.")
    if command.kind not in queue.kinds:
        raise InvalidAsk(
            f"the queue {queue.name} takes no {command.kind}s", hint="Leave the queue out for the usual one."
        )
    if not _admits(queue, command.owner, team):
        raise NotAllowed(
            f"{command.owner} may not enter the queue {queue.name}", hint="Ask an admin, or use another queue."
        )
    return queue


def _admits(queue: QueuePolicy, owner: str, team: str) -> bool:
    return not (queue.users or queue.teams) or owner in queue.users or team in queue.teams


def _limited(world: World, command: Submit, queue: QueuePolicy) -> Ask:
    """The ask with its defaults filled in, or the limit that it goes beyond."""
    _refuse_the_meaningless(command)
    ask = command.ask
    if command.kind is Kind.RESERVATION and ask.duration_seconds is None:
        usual = world.policy.reservation_seconds
        ask = msgspec.structs.replace(ask, duration_seconds=min(usual, queue.longest_seconds or usual))
    if queue.longest_seconds is not None and (ask.duration_seconds or 0) > queue.longest_seconds:
        raise LimitExceeded(
            f"{format_seconds(ask.duration_seconds)} is longer than the {format_seconds(queue.longest_seconds)} that "
            f"the queue {queue.name} allows",
            hint="Ask for less, or send the work to a queue for long jobs.",
        )
    if command.spec is not None:
        _refuse_what_keeps_others_waiting(world.policy, command.spec)
    most = world.policy.most_devices
    if most is not None and ask.devices > most:
        raise LimitExceeded(f"one ask may contain {most} devices, not {ask.devices}", hint="Ask for fewer.")
    if ask.devices > 0 and not command.blind:
        refuse_the_impossible(world, ask)
    return ask


def _refuse_what_keeps_others_waiting(policy: Policy, spec: JobSpec) -> None:
    """How long a job that must leave, or has ended, may still be there."""
    grace = spec.grace_seconds or 0
    if grace > policy.most_grace_seconds:
        raise LimitExceeded(
            f"a grace of {format_seconds(grace)} is longer than the {format_seconds(policy.most_grace_seconds)} "
            "that others may be kept waiting",
            hint="Save more often, so that less is left to save when the notice comes.",
        )
    # Who asked for nothing is refused nothing: a policy that gives less than the usual time shortens it at the start.
    if spec.leftover_seconds > max(policy.most_leftover_seconds, _USUAL_LEFTOVER_SECONDS):
        raise LimitExceeded(
            f"{format_seconds(spec.leftover_seconds)} for what outlives the main process is longer than the "
            f"{format_seconds(policy.most_leftover_seconds)} that others may be kept waiting",
            hint="Let the main process wait for what it has started.",
        )


def _refuse_the_meaningless(command: Submit) -> None:
    """What says nothing, whoever asks and whatever there is."""
    ask = command.ask
    if ask.devices < 0:
        raise InvalidAsk(f"{ask.devices} devices cannot be asked for", hint="Ask for 1 or more, or 0 to see no GPU.")
    if ask.devices == 0 and ask.on:
        raise InvalidAsk("0 devices on a certain GPU cannot be meant", hint="Leave --on out, or ask for 1 or more.")
    if ask.devices == 0 and command.kind is Kind.RESERVATION:
        raise InvalidAsk("a reservation of 0 devices reserves nothing", hint="Ask for 1 or more.")
    for word, value in (
        ("length", ask.duration_seconds),
        ("memory", ask.memory_bytes),
        ("free memory", ask.min_free_bytes),
        ("host memory", ask.host_memory_bytes),
        ("CPU count", ask.cpus),
        ("time to hang", None if command.spec is None else command.spec.hang_seconds),
    ):
        if value is not None and value <= 0:
            raise InvalidAsk(
                f"a {word} of {value} cannot be meant", hint="Give something above zero, like 2h or 20GiB."
            )
    if (ask.duration_seconds or 0) > LONGEST_SECONDS:
        raise InvalidAsk(
            f"a length of {format_seconds(ask.duration_seconds)} cannot be meant", hint="Give a length like 2h or 3d."
        )
    if command.not_before is not None and not isfinite(command.not_before):
        raise InvalidAsk(f"{command.not_before} is no instant", hint="Give a time like 18:00 or in 3h.")
