"""Recurring jobs: what an instant of a calendar leads to. The instants themselves are told, for the core has no clock.

One instant is awaited at a time, and only that one leads to anything; so however often it is told, there is one job.
"""

from __future__ import annotations

import msgspec

from ..errors import Conflict, GpuError, InvalidAsk, LimitExceeded, NotFound
from ..model import (
    MOST_MISSED,
    AddRecurring,
    Fire,
    FireNow,
    Kind,
    Overlap,
    PauseRecurring,
    Recurring,
    RemoveRecurring,
    State,
    Submit,
    World,
)
from ..units import format_seconds
from .admission import submit
from .events import Event, RecurringChanged, RecurringPut, RecurringRemoved, Submitted

#: Of one owner; all of them are kept in memory and looked at whenever the loop wakes.
MOST_RECURRING = 100
MOST_RECURRING_CHARACTERS = 32 << 20
#: Later than this is told: a broker that is busy is some seconds late, and nobody minds.
LATE_SECONDS = 60

_replace = msgspec.structs.replace


def add(world: World, command: AddRecurring, now: float) -> list[Event]:
    """Keep it, if the job could be submitted now. A key that the owner has used already adds nothing."""
    asked = command.submit
    if asked.idempotency_key is not None and (known := keyed(world, asked.owner, asked.idempotency_key)) is not None:
        _refuse_another(known, command)
        return []
    _refuse_the_meaningless(command)
    _refuse_too_many(world, asked)
    submit(world, _replace(asked, idempotency_key=None), now)  # refuses what would be refused each time
    it = Recurring(
        id=world.last_id + 1,
        cron=command.cron,
        timezone=command.timezone,
        submit=asked,
        overlap=command.overlap,
        added_at=now,
        next_at=command.next_at,
    )
    return [RecurringPut(at=now, it=it, what="added", by=asked.owner)]


def fire(world: World, command: Fire, now: float) -> list[Event]:
    """An instant came. Whatever it leads to, it is awaited no more, and the next one is."""
    it = world.recurring.get(command.recurring)
    if it is None or it.paused or it.next_at != command.due_at or command.due_at > now:
        return []  # a late word, or one of a clock that was set back meanwhile
    it = _replace(it, next_at=command.next_at, last_at=command.due_at, last_detail="")
    late = _lateness(command, now)
    alive = _not_over(world, it)
    if it.overlap is Overlap.SKIP and alive is not None:
        said = _sentence(f"left out, since job {alive} of the time before is not over", late)
        return [_changed(_replace(it, last_detail=said), "skipped", now)]
    key = f"recurring/{it.id}/{command.due_at:.0f}"
    if (it.owner, key) in world.keys:  # the clock was set back so far that the calendar begins anew
        said = _sentence(f"left out, since job {world.keys[it.owner, key]} was for this time already", late)
        return [_changed(_replace(it, last_detail=said), "skipped", now)]
    try:
        return _submitted(world, it, now, key=key, detail=late)
    except GpuError as error:
        said = _sentence(f"refused: {error.message.rstrip('.')}", late)
        return [_changed(_replace(it, last_detail=said), "refused", now)]


def fire_now(world: World, command: FireNow, now: float) -> list[Event]:
    """Once more, at its owner's wish, also while it is paused. What it is refused for they are told at once."""
    it = found(world, command.recurring)
    alive = _not_over(world, it)
    if it.overlap is Overlap.SKIP and alive is not None:
        raise Conflict(
            f"job {alive} of {named(it)} is not over, and no two of it are to run at once",
            hint=f"Wait until it has ended, or `jupyter gpu cancel {alive}`.",
        )
    return _submitted(world, _replace(it, last_at=now, last_detail=""), now, key=None, by=command.by)


def pause(world: World, command: PauseRecurring, now: float) -> list[Event]:
    """No more times, or again from an instant on. What was missed meanwhile is not made up for."""
    it = found(world, command.recurring)
    after = _replace(it, paused=command.paused, next_at=it.next_at if command.paused else command.next_at)
    if after == it:
        return []
    return [_changed(after, "paused" if command.paused else "let go", now, command.by)]


def remove(world: World, command: RemoveRecurring, now: float) -> list[Event]:
    """It is no more; its jobs stay."""
    return [RecurringRemoved(at=now, recurring=found(world, command.recurring).id, by=command.by)]


def found(world: World, recurring_id: int) -> Recurring:
    """Look a recurring job up, or say that it is not there."""
    it = world.recurring.get(recurring_id)
    if it is None:
        raise NotFound(f"there is no recurring job {recurring_id}", hint="`jupyter gpu recurring` lists yours.")
    return it


def keyed(world: World, owner: str, key: str) -> Recurring | None:
    """The recurring job that an owner has added with a key."""
    return next(
        (it for it in world.recurring.values() if it.owner == owner and it.submit.idempotency_key == key),
        None,
    )


def named(it: Recurring) -> str:
    """How texts name it: "recurring job 12 (digits)"."""
    return f"recurring job {it.id}" + (f" ({it.submit.name})" if it.submit.name else "")


def _submitted(
    world: World, it: Recurring, now: float, *, key: str | None, detail: str = "", by: str = ""
) -> list[Event]:
    """The job of one time, and the recurring job as it stands after that."""
    groups = None if world.groups is None else world.groups.get(it.owner)  # who has left a team does not run for it
    asked = _replace(
        it.submit,
        idempotency_key=key,
        recurring=it.id,
        groups=it.submit.groups if groups is None else groups,
        blind=not world.devices,  # a driver that is not open yet is no reason to leave a night out
    )
    events = [
        _replace(event, it=_replace(event.it, detail=detail)) if isinstance(event, Submitted) else event
        for event in submit(world, asked, now)
    ]
    first = next(event.it.id for event in events if isinstance(event, Submitted))
    after = _replace(it, last_workload=first, last_detail=detail, times=it.times + 1)
    return [*events, _changed(after, "fired", now, by)]


def _changed(it: Recurring, what: str, now: float, by: str = "") -> RecurringChanged:
    """What happened, with how it stands then."""
    return RecurringChanged(
        at=now,
        recurring=it.id,
        what=what,
        by=by,
        paused=it.paused,
        next_at=it.next_at,
        last_at=it.last_at,
        last_workload=it.last_workload,
        last_detail=it.last_detail,
        times=it.times,
    )


def _not_over(world: World, it: Recurring) -> int | None:
    """A job of the last time that has not ended; of an array any."""
    if it.last_workload is None:
        return None
    ids = range(it.last_workload, it.last_workload + max(1, len(it.submit.array)))
    of_it = (world.workloads[id_] for id_ in ids if id_ in world.workloads)
    return next((one.id for one in of_it if one.recurring == it.id and one.state is not State.ENDED), None)


def _lateness(command: Fire, now: float) -> str:
    """What is to be said of an instant that came long ago; empty where it came just now."""
    late_seconds = now - command.due_at
    if late_seconds < LATE_SECONDS and not command.missed:
        return ""
    said = f"{format_seconds(late_seconds, parts=2)} late"
    if not command.missed:
        return said
    least = "at least " if command.missed >= MOST_MISSED else ""
    times = "time was" if command.missed == 1 else "times were"
    return f"{said}; {least}{command.missed} more {times} missed meanwhile, and this stands for all"


def _sentence(said: str, late: str) -> str:
    return f"{said} ({late})" if late else said


def _refuse_the_meaningless(command: AddRecurring) -> None:
    asked = command.submit
    if asked.kind is not Kind.JOB:
        raise InvalidAsk("only jobs recur, not reservations", hint="Submit a job that does the work.")
    if asked.not_before is not None or asked.paused:
        raise InvalidAsk(
            "a recurring job begins by its calendar: it has no earliest start of its own, and is not added paused",
            hint="Leave that out; `jupyter gpu recurring pause` keeps it from coming.",
        )
    if asked.after:
        raise InvalidAsk(
            "a recurring job comes after no other: that other ends once, and this comes again and again",
            hint="Let one job do both, one after the other.",
        )
    if command.next_at is None:
        raise InvalidAsk(
            f"the calendar {command.cron!r} has no instant in the next fifty years",
            hint="Look at its days: some months have no 31st, and a day of the week may never meet a day of the month.",
        )


def _refuse_too_many(world: World, asked: Submit) -> None:
    mine = [it.submit for it in world.recurring.values() if it.owner == asked.owner]
    characters = sum(_weight(it) for it in (*mine, asked))
    if len(mine) >= MOST_RECURRING:
        raise LimitExceeded(
            f"{asked.owner} has {len(mine)} recurring jobs already, which is the most",
            hint="Remove one: `jupyter gpu recurring remove ID`.",
        )
    if characters > MOST_RECURRING_CHARACTERS:
        raise LimitExceeded(
            f"the recurring jobs of {asked.owner} would have {characters} characters of commands and variables; "
            f"{MOST_RECURRING_CHARACTERS} are the most",
            hint="Pass large inputs in files, or remove one: `jupyter gpu recurring remove ID`.",
        )


def _weight(asked: Submit) -> int:
    own = 0 if asked.spec is None else asked.spec.weight
    return own + sum(len(name) + len(text) for one in asked.array for name, text in one.items())


def _refuse_another(known: Recurring, command: AddRecurring) -> None:
    """As with workloads: a key repeats an ask whose answer was lost, and is no other ask's."""
    if _essence(known.cron, known.timezone, known.submit) == _essence(command.cron, command.timezone, command.submit):
        return
    raise Conflict(
        f"the key {command.submit.idempotency_key!r} belongs to {named(known)}, which is something else",
        hint="Use another key for another job; the same key is for asking again for the same.",
    )


def _essence(cron: str, timezone: str, asked: Submit) -> tuple[object, ...]:
    spec = asked.spec
    return cron, timezone, None if spec is None else (spec.argv, spec.folder, spec.script_copy)
