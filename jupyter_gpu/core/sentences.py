"""Why a workload waits and how it stands: what, why and what now, for people, made on read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..model import Ask, Caller, Condition, Device, Kind, State, WaitingReason, Workload, World
from ..units import bytes_apart, format_at, format_between, format_bytes, format_seconds, format_when, ordinal
from .advice import advice
from .names import may_see_names
from .outlook import MOST_NAMED, Expected, Place, expected_start_at, without_end
from .placement import avoided, free_bytes, has_room, in_order, is_well, suits
from .promises import window_of
from .quota import Ledger, available_again_at, bind
from .spare import spare_bytes
from .told import NOT_SERVED, WORDS, told
from .victims import is_in_overtime
from .which_quota import what_keeps

__all__ = ["MOST_NAMED", "sentence", "visible", "why"]

#: Not before so near an instant is not worth a word.
_SOON_SECONDS = 120
#: Waits whose end a look ahead can tell.
_FORESEEN = frozenset(
    {WaitingReason.DEVICES, WaitingReason.CLEARING, WaitingReason.QUOTA, WaitingReason.BUDGET, WaitingReason.HOLD}
)


def sentence(  # noqa: PLR0917 - all of it is said
    world: World, it: Workload, caller: Caller, now: float, place: Place | None, expected: Expected | None = None
) -> str:
    """What, why and what now, for people; with it, what a holder should know beside how it stands."""
    said = _of_state(world, it, caller, now, place, expected)
    more = told(world, it) if it.owner == caller.name or caller.is_operator else ""
    return f"{said} {more}" if more else said


def _of_state(  # noqa: PLR0917 - all of it is said
    world: World, it: Workload, caller: Caller, now: float, place: Place | None, expected: Expected | None
) -> str:
    # Words about it are its owner's, and who handles others' work.
    is_theirs = it.owner == caller.name or caller.is_operator
    if it.state is State.QUEUED:
        step = it.outcome.to_step if it.outcome is not None and is_theirs else None
        goes_on = "" if step is None else f" It goes on from step {step}."
        return f"{_why_waiting(world, it, caller, now, place or Place(0, ()), expected)}{goes_on}"
    detail = it.detail.removesuffix(".") if is_theirs else ""  # it may end with a whole sentence of a framework's
    if it.state is State.ENDED:
        said = f"It ended: {it.end}" + (f" ({detail})." if detail else ".")
        return " ".join(filter(None, (said, advice(world, it) if is_theirs else "")))
    if it.state is State.YIELDING:
        if it.outcome is not None:
            return f"It is over; its devices are being checked before anybody else gets them.{_left_text(world, it)}"
        return f"It must yield ({it.eviction}) by {format_when(it.yield_by, now)}." + (f" {detail}." if detail else "")
    if is_in_overtime(it, now):
        return "Its time is over; it keeps the GPU until somebody waits for it. Save your work, or extend it."
    return _how_it_stands(world, it, now)


def _how_it_stands(world: World, it: Workload, now: float) -> str:
    end = "" if it.lease is None or it.lease.ends_at is None else f" until {format_when(it.lease.ends_at, now)}"
    started = "" if it.kind is Kind.RESERVATION or it.started_at is not None else "; it is being started"
    part = "" if it.lease is None or it.lease.memory_bytes is None else f"{format_bytes(it.lease.memory_bytes)} of "
    return f"It holds {part}{_devices_text(world, it)}{end}{started}."


def _left_text(world: World, it: Workload) -> str:
    """Like " GPU 0 still has process 4711 on it": what its kernel or command has left behind."""
    parts = []
    for uuid in it.lease.devices if it.lease is not None and it.lease.memory_bytes is None else ():
        reading = world.readings.get(uuid)
        if reading is not None and reading.processes and reading.at > (it.released_at or reading.at):
            pids = [str(pid) for pid, _ in reading.processes]
            more = f" and {len(pids) - MOST_NAMED} more" if len(pids) > MOST_NAMED else ""
            what = f"process{'es' if len(pids) > 1 else ''} {', '.join(pids[:MOST_NAMED])}{more}"
            parts.append(f" {world.devices[uuid].title} still has {what} on it.")
    return "".join(parts)


def _devices_text(world: World, it: Workload) -> str:
    uuids = it.lease.devices if it.lease is not None else ()
    return ", ".join(world.devices[uuid].title for uuid in uuids) or "no GPU"


def why(world: World, it: Workload, caller: Caller, now: float, *, says_when: bool) -> str:
    """Why it waits, for faces that say its place and what can be done in their own way.

    `says_when`: with the ends of what holds its devices, which only confuse beside the expected start.
    """
    return _why(world, it, caller, now, "", says_when=says_when).strip()


def _why_waiting(  # noqa: PLR0917 - all of it is said
    world: World, it: Workload, caller: Caller, now: float, place: Place, expected: Expected | None
) -> str:
    where = _where(world, it, caller, place)
    if it.waiting is WaitingReason.DEPENDENCY:
        where = (
            f"`jupyter gpu amend {it.id} --no-after` lets it start all the same, `jupyter gpu cancel {it.id}` ends "
            f"it{_or_all(it)}."
        )
    if it.waiting in _FORESEEN:
        where += _expected(world, it, now, place.ahead, expected)
    if it.waiting is WaitingReason.DEVICES:
        where += f" Leave the line with `jupyter gpu cancel {it.id}`{_or_all(it)}."
    return _why(world, it, caller, now, where, says_when=True)


def _where(world: World, it: Workload, caller: Caller, place: Place) -> str:
    """Like "You are 3rd in queue training, behind job 12 and job 14."."""
    if place.ahead == 0:
        return f"You are first in queue {it.queue}."
    seen = [f"{world.workloads[id_].kind} {id_}" for id_ in visible(world, place.before, caller)]
    others = place.ahead - len(seen)
    named = [*seen, *([f"{others} more" if seen else f"{others} other{'s' if others > 1 else ''}"] if others else [])]
    behind = " and ".join(filter(None, (", ".join(named[:-1]), named[-1])))
    return f"You are {ordinal(place.ahead + 1)} in queue {it.queue}, behind {behind}."


def visible(world: World, ids: Iterable[int], caller: Caller) -> tuple[int, ...]:
    """Those of these that wait whom a caller may know of."""
    its = (world.workloads.get(id_) for id_ in ids)
    return tuple(it.id for it in its if it is not None and may_see_names(world, it, caller))


def _or_all(it: Workload) -> str:
    """For the end of a command: what makes it concern the whole array."""
    return "" if it.member is None else f" (with `--array` all of array {it.member.array})"


def _expected(world: World, it: Workload, now: float, ahead: int, expected: Expected | None) -> str:
    """When it may expect to start, or whose end nobody knows; no queue's guess is told as an end."""
    if expected is not None and expected.until_at is not None:
        return f" Expected {format_between(expected.from_at, expected.until_at, now)}."
    at = expected_start_at(world, it, now, ahead)
    if at is not None:
        return f" Expected by about {format_when(at, now)}."
    endless = without_end(world, it, now) if ahead == 0 and it.waiting is WaitingReason.DEVICES else None
    if endless is not None:
        return f" When is not known: {endless.kind} {endless.id} has no time limit."
    if expected is not None and expected.from_at >= now + _SOON_SECONDS:
        return f" Not expected before {format_when(expected.from_at, now)}; until when is not known."
    return ""


def _why(world: World, it: Workload, caller: Caller, now: float, where: str, *, says_when: bool) -> str:
    match it.waiting:
        case WaitingReason.PAUSED:
            detail = f" {it.detail}." if it.detail else ""
            return (
                f"It is paused and keeps its place.{detail} Let it go with `jupyter gpu let-go {it.id}`{_or_all(it)}."
            )
        case WaitingReason.NOT_BEFORE:
            return _from_when(it, now)
        case WaitingReason.BACK_OFF:
            wait = format_seconds(max(0, round((it.back_off_until or now) - now)))
            is_lost = it.outcome is not None and not it.outcome.engine_fault
            what = "Its last attempt died of the hardware" if is_lost else "Its last start failed"
            return f"{what}{f' ({it.detail})' if it.detail else ''}; the next try is in {wait}."
        case WaitingReason.DEPENDENCY:
            return f"It comes {_whom_after(world, it, caller)}. {where}"
        case WaitingReason.QUOTA if _waits_for_its_array(world, it, now):
            return f"{_how_many_run(world, it)}. It starts when one of them has ended. {where}"
        case WaitingReason.QUOTA:
            held = what_keeps(world, it, now) or "The quota is held already"
            return f"{held}; it starts when some of it is given back. {where}"
        case WaitingReason.BUDGET:
            used = what_keeps(world, it, now) or "The GPU-hours of the window are used"
            return f"{used}. {_again_text(world, it, now)}{where}"
        case WaitingReason.HOLD:
            return f"The free GPUs are held for others for now. {where}"
        case WaitingReason.CLEARING:
            return f"A GPU is being made free for it. {where}"
        case WaitingReason.DRIVER:
            return f"No GPU can be read; `jupyter gpu doctor` says why. {where}"
        case WaitingReason.ENGINE:
            return f"{_why_none_is_there(world, it, caller)}. {where}"
        case _:
            wanted, has = _amounts(world, it)
            who = _who_holds(world, it, caller, now, has, says_when=says_when)
            return f"{_how_many_are_free(world, it, now, wanted)}: {who}. {where}"


def _from_when(it: Workload, now: float) -> str:
    begin = format_when(it.not_before, now)
    if not it.is_booked:
        return f"It must not start before {begin}."
    end = format_when(window_of(it).until_at, now)
    return f"It is promised from {begin} to {end}. Give it up with `jupyter gpu cancel {it.id}`."


def _whom_after(world: World, it: Workload, caller: Caller) -> str:
    """Like "after job 12 (prep), which runs; after the success of job 13, which waits in line"."""
    if it.owner != caller.name and not caller.is_operator:
        return "after other work, which has not ended"
    waited_for = [dependency for dependency in it.after if dependency.workload in it.unmet]
    more = f"; and after {len(waited_for) - MOST_NAMED} more" if len(waited_for) > MOST_NAMED else ""
    said = (
        f"after {'the success of ' if one.ok else ''}{_how_a_parent_stands(world, one.workload, caller)}"
        for one in waited_for[:MOST_NAMED]
    )
    return "; ".join(said) + more


def _how_a_parent_stands(world: World, id_: int, caller: Caller) -> str:
    parent = world.workloads.get(id_)
    member = None if parent is None else parent.member
    if member is not None and member.array == id_:
        its = [one for other in member.ids if (one := world.workloads.get(other)) is not None]
        left = sum(1 for one in its if one.state is not State.ENDED)
        return f"array {id_}, of which {member.of - left} of {member.of} have ended"
    if parent is None:  # who has ended is forgotten one day: it was the first of others
        return f"the rest of array {id_}"
    who = parent.title if may_see_names(world, parent, caller) else f"{parent.kind} {id_}"
    return f"{who}, which {_stands(parent)}"


def _stands(it: Workload) -> str:
    if it.state is not State.QUEUED:
        return "runs" if it.kind is Kind.JOB else "is in use"
    said = {
        WaitingReason.PAUSED: "is paused",
        WaitingReason.DEPENDENCY: "waits for other work itself",
        WaitingReason.NOT_BEFORE: "must not start yet",
    }
    return said.get(it.waiting or WaitingReason.DEVICES, "waits in line")


def _waits_for_its_array(world: World, it: Workload, now: float) -> bool:
    """Whether its own array, and no quota of others' making, is what one of an array waits for."""
    if it.member is None or it.member.at_most is None:
        return False
    return Ledger(world, now).allowance(it).refusal(it.ask.devices) is None


def _how_many_run(world: World, it: Workload) -> str:
    """Like "2 of array 12 run, the most that was asked for at once"."""
    member = it.member
    if member is None:
        return ""
    running, most = world.members.get(member.array, 0), member.at_most or 0
    how = ("runs", "is about to") if max(running, most) == 1 else ("run", "are about to")
    more = "" if running >= most else f" or {how[1]}"
    return f"{max(running, most)} of array {member.array} {how[0]}{more}, the most that was asked for at once"


def _again_text(world: World, it: Workload, now: float) -> str:
    instants = []
    for number, rule in enumerate(world.policy.bounds):
        binding = bind(number, rule, it.owner, it.team, it.queue, it.ask.device_class)
        at = None if binding is None else available_again_at(world, number, binding, now)
        if at is not None:
            instants.append(at)
    return f"Some are available again {format_at(max(instants), now)}. " if instants else ""


def _why_none_is_there(world: World, it: Workload, caller: Caller) -> str:
    """Like "GPU 0 is lost: it has gone from the bus or from the inventory"."""
    gone = [_what_it_has(device, caller) for device in in_order(world) if suits(device, it.ask)]
    if gone:
        more = len(gone) - MOST_NAMED
        return "; ".join(gone[:MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")
    is_part = it.ask.memory_bytes is not None
    return f"{'No GPU that is shared is there' if is_part else 'There is no such GPU'} at the moment"


def _amounts(world: World, it: Workload) -> tuple[str, dict[str, str]]:
    """How much memory it wants, empty where any will do, and what each device has: differently where that differs."""
    wanted = max(it.ask.memory_bytes or 0, it.ask.min_free_bytes or 0)
    if not wanted:
        return "", {}
    there = {device.uuid: _bytes_that_count(world, device, it.ask) for device in world.devices.values()}
    known = {uuid: size for uuid, size in there.items() if size is not None and suits(world.devices[uuid], it.ask)}
    text, *others = bytes_apart(wanted, *known.values())
    return text, dict(zip(known, others, strict=True))


def _how_many_are_free(world: World, it: Workload, now: float, wanted: str) -> str:
    """Like "No GPU is free", "1 of the 2 GPUs it wants is free", or "No GPU has 20GiB free"."""
    kept_from = avoided(world, it, now)
    well = (device for device in world.devices.values() if suits(device, it.ask) and is_well(device))
    free = sum(1 for device in well if device.uuid not in kept_from and has_room(world, device, it.ask))
    what = f"{wanted} free" if wanted else "free"
    one, many = ("has", "have") if wanted else ("is", "are")
    if free == 0:
        return f"No GPU {one} {what}"
    return f"{free} of the {it.ask.devices} GPUs it wants {one if free == 1 else many} {what}"


def _what_it_has(device: Device, caller: Caller) -> str:
    """Like "GPU 0 has a hardware fault, and is taken out of use by an operator (node maintenance)"."""
    parts = [] if device.condition is None else [WORDS[device.condition]]
    if device.condition is Condition.LOST and device.condition_detail.startswith(NOT_SERVED):
        parts = [f"is lost: {device.condition_detail}"]
    why = f" ({device.cordon_reason})" if device.cordon_reason and caller.sees_others else ""
    parts += [f"is taken out of use by an operator{why}"] if device.cordoned else []
    return f"{device.title} {', and '.join(parts)}"


def _who_holds(
    world: World, it: Workload, caller: Caller, now: float, has: Mapping[str, str], *, says_when: bool
) -> str:
    """Like "GPU 0 is reserved by ada until 14:05, GPU 1 runs job 12"; what one is short of when nobody holds it."""
    kept_from = avoided(world, it, now)
    parts = []
    for device in in_order(world):
        if suits(device, it.ask):
            if is_well(device) and device.uuid in kept_from:
                parts.append(f"an attempt of it died of the hardware of {device.title}")
            at = now if says_when else None
            parts += _what_is_on(world, device, it, caller, at, has.get(device.uuid))
    if not parts:
        return f"{it.ask.devices} are wanted together, and those before you in line come first"
    more = len(parts) - MOST_NAMED
    return ", ".join(parts[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _what_is_on(  # noqa: PLR0917 - all of it is said
    world: World, device: Device, it: Workload, caller: Caller, now: float | None, has: str | None
) -> list[str]:
    """What is wrong with a device, what is short on it (it `has` only so much), or who holds it."""
    wrong = [] if is_well(device) else [_what_it_has(device, caller)]
    if has is not None and not wrong:
        return [] if has_room(world, device, it.ask) else [f"{device.title} has {has} free"]
    return wrong + [_who_is_on(world, device, other, caller, now) for other in world.holders_of(device.uuid)]


def _bytes_that_count(world: World, device: Device, ask: Ask) -> int | None:
    """The free memory by which a device serves an ask or not; None where that is not what decides."""
    if ask.memory_bytes is not None:
        return spare_bytes(world, device)
    is_free = device.uuid not in world.leases and ask.min_free_bytes is not None
    return free_bytes(world, device) if is_free else None


def _who_is_on(world: World, device: Device, other: Workload, caller: Caller, now: float | None) -> str:
    """Like "GPU 0 is reserved by ada until 14:05"; without the end where no `now` is given."""
    name = "you" if other.owner == caller.name else other.owner
    who = f" by {name}" if may_see_names(world, other, caller) else ""
    ends_at = other.lease.ends_at if other.lease else None
    until = "" if ends_at is None or now is None else f" until {format_when(ends_at, now)}"
    verb = f"is reserved{who}" if other.kind is Kind.RESERVATION else f"runs job {other.id}"
    return f"{device.title} {verb}{until}"
