"""Holds that operators put and remove by a word, and what becomes of their windows. Instants are told by the rim."""

from __future__ import annotations

from ..errors import Conflict, InvalidAsk, LimitExceeded, NotFound
from ..model import AddHold, Hold, HoldPolicy, KnowWindows, RemoveHold, Span, Window, World
from ..units import format_when
from .events import Event, HoldChanged, HoldPut, HoldRemoved
from .holds import is_attended
from .in_the_way import named
from .promises import is_entitled, overlap, windows_of_holds
from .which import devices_named

#: Each of their windows is looked at in each step.
MOST_HOLDS = 100
MOST_WINDOWS = 400
LONGEST_NAME = 100


def add(world: World, command: AddHold, now: float) -> list[Event]:
    """Put it, if it can be kept one day. What is in its way for now keeps it from nothing, and is shown with it."""
    known = _keyed(world, command)
    if known is not None:
        return []
    _refuse_the_meaningless(world, command, now)
    it = Hold(
        id=world.last_id + 1,
        name=command.name,
        by=command.by,
        added_at=now,
        devices=_uuids(world, command),
        count=command.count,
        device_class=command.device_class,
        users=command.users,
        teams=command.teams,
        no_show_seconds=command.no_show_seconds,
        every=command.every,
        timezone=command.timezone,
        until=command.until,
        windows=command.windows,
        known_until=command.known_until,
        idempotency_key=command.idempotency_key,
    )
    _refuse_what_never_can_be(world, it, now)
    return [HoldPut(at=now, it=it)]


def remove(world: World, command: RemoveHold, now: float) -> list[Event]:
    """It is no more."""
    return [HoldRemoved(at=now, hold=found(world, command.hold).id, by=command.by)]


def know(world: World, command: KnowWindows, now: float) -> list[Event]:
    """More of its windows are known. What is under way stays as it was told when it began."""
    it = world.holds.get(command.hold)
    if it is None:
        return []  # a late word
    begun = tuple(span for span in it.windows if span.from_at <= now < span.until_at)
    last = begun[-1].until_at if begun else now
    windows = (*begun, *(span for span in command.windows if span.from_at >= last))
    if (windows, command.known_until) == (it.windows, it.known_until):
        return []
    known_until = command.known_until
    return [HoldChanged(at=now, hold=it.id, what="known", windows=windows, known_until=known_until)]


def found(world: World, hold_id: int) -> Hold:
    """Look a hold up, or say that it is not there."""
    it = world.holds.get(hold_id)
    if it is None:
        raise NotFound(f"there is no hold {hold_id}", hint="`jupyter gpu hold` lists them.")
    return it


def keyed(world: World, by: str, key: str | None) -> Hold | None:
    """The hold that an operator has put with a key."""
    if key is None:
        return None
    return next((it for it in world.holds.values() if (it.by, it.idempotency_key) == (by, key)), None)


def see_windows(world: World, now: float) -> list[Event]:
    """What time brings to holds: the entitled have come to a window, a window is given back, the last one is over."""
    events: list[Event] = []
    for _, it in sorted(world.holds.items()):
        if not any(span.until_at > now for span in it.windows) and it.known_until is None:
            events.append(HoldRemoved(at=now, hold=it.id))
        elif it.no_show_seconds is not None:
            events += _of_window(world, it, it.no_show_seconds, now)
    return events


def _of_window(world: World, it: Hold, no_show_seconds: int, now: float) -> list[Event]:
    span = next((span for span in it.windows if span.from_at <= now < span.until_at), None)
    if span is None or span.from_at in (it.attended, it.given_back):
        return []
    window = _window(it, span)
    if any(is_entitled(window, holder.owner, holder.team) for holder in world.holders()):
        return [HoldChanged(at=now, hold=it.id, what="attended", window=span.from_at)]
    if now < span.from_at + no_show_seconds:
        return []
    what = "attended" if is_attended(world, window) else "given back"
    return [HoldChanged(at=now, hold=it.id, what=what, window=span.from_at)]


def _window(it: Hold, span: Span) -> HoldPolicy:
    return HoldPolicy(name=it.name, from_at=span.from_at, until_at=span.until_at, users=it.users, teams=it.teams)


# -- what cannot be meant


def _refuse_the_meaningless(world: World, command: AddHold, now: float) -> None:
    if not command.name.strip() or len(command.name) > LONGEST_NAME or not command.name.isprintable():
        raise InvalidAsk("a hold needs a name of one short line", hint='Name what it is for, such as "ml101".')
    if bool(command.devices) == bool(command.count) or command.count < 0:
        raise InvalidAsk(
            "a hold withholds a number of GPUs, or certain ones", hint="Give --devices 4, or --on GPU for each."
        )
    if command.no_show_seconds is not None and command.no_show_seconds <= 0:
        raise InvalidAsk("the no-show time must be above zero", hint="Give a length such as 15m, or leave it out.")
    if command.no_show_seconds is not None and not (command.users or command.teams):
        raise InvalidAsk("nobody is expected at maintenance, so it has no no-show time", hint="Leave it out.")
    if not any(span.until_at > now for span in command.windows):
        raise InvalidAsk(
            "the hold has no window that is still to come", hint="Look at its days, its hours and its last day."
        )
    if any(not span.from_at < span.until_at for span in command.windows):
        raise InvalidAsk("the hold ends before it begins", hint="Give a later end.")
    if len(command.windows) > MOST_WINDOWS:
        raise LimitExceeded(f"{len(command.windows)} windows are too many for one hold", hint="Use longer ones.")
    if len(world.holds) >= MOST_HOLDS:
        raise LimitExceeded(
            f"there are {len(world.holds)} holds already, which is the most", hint="`jupyter gpu hold remove ID`."
        )
    classes = sorted({device.device_class for device in world.devices.values()})
    if command.device_class is not None and command.device_class not in classes:
        raise InvalidAsk(
            f"there is no device class {command.device_class!r} here", hint=f"Use one of: {', '.join(classes)}."
        )


def _uuids(world: World, command: AddHold) -> tuple[str, ...]:
    uuids = [device.uuid for name in command.devices for device in devices_named(world, name)]
    return tuple(dict.fromkeys(uuids))


def _keyed(world: World, command: AddHold) -> Hold | None:
    known = keyed(world, command.by, command.idempotency_key)
    if known is None:
        return None
    if (known.name, known.every, known.count, known.device_class, known.users, known.teams) != (
        command.name, command.every, command.count, command.device_class, command.users, command.teams,
    ):  # fmt: skip
        raise Conflict(
            f"the key {command.idempotency_key!r} belongs to {known.title}, which is something else",
            hint="Use another key for another hold; the same key is for asking again for the same.",
        )
    return known


def _refuse_what_never_can_be(world: World, it: Hold, now: float) -> None:
    """More than there is, or than other holds leave."""
    kin = [device for device in world.devices.values() if it.device_class in (None, device.device_class)]
    if it.count > len(kin):
        kind = f" of class {it.device_class}" if it.device_class else ""
        raise LimitExceeded(
            f"{it.count} GPU{'' if it.count == 1 else 's'}{kind} cannot be held: there are {len(kin)}",
            hint="`jupyter gpu devices` shows them.",
        )
    for window in windows_of_holds(_only(world, it), now):
        others = [other for other in _holds(world, now) if overlap(other, window)]
        clash = _beyond_what_there_is(world, window, others)
        if clash is not None:
            raise Conflict(
                f"from {format_when(window.from_at, now)} to {format_when(window.until_at, now)} "
                f"{named(clash)} withholds what this would",
                hint="Hold fewer, or at another time; or remove the other: `jupyter gpu hold` lists them.",
            )


def _only(world: World, it: Hold) -> World:
    alone = World(world.policy)
    alone.put_hold(it)
    return alone


def _holds(world: World, now: float) -> list[HoldPolicy]:
    coming = [hold for hold in world.policy.holds if hold.until_at > now]
    return [*coming, *windows_of_holds(world, now)]


def _beyond_what_there_is(world: World, window: Window, others: list[HoldPolicy]) -> HoldPolicy | None:
    """The hold that leaves too little, at the moment at which most is withheld beside this one."""
    mine = set(window.devices)
    for other in others:
        if mine.intersection(other.devices):
            return other
    for instant in sorted({window.from_at, *(max(other.from_at, window.from_at) for other in others)}):
        then = [other for other in others if other.from_at <= instant < other.until_at]
        if not _have_room(world, [window, *then]):
            return then[-1]
    return None


def _have_room(world: World, at_once: list[HoldPolicy]) -> bool:
    """Whether so many of each class are there: those that name a class first, then those to whom any will do."""
    taken = {uuid for hold in at_once for uuid in hold.devices}
    left: dict[str, int] = {}
    for device in world.devices.values():
        left[device.device_class] = left.get(device.device_class, 0) + (device.uuid not in taken)
    for hold in at_once:
        if not hold.devices and hold.device_class is not None:
            left[hold.device_class] = left.get(hold.device_class, 0) - hold.count
    of_any = sum(hold.count for hold in at_once if not hold.devices and hold.device_class is None)
    return min(left.values(), default=0) >= 0 and sum(left.values()) >= of_any
