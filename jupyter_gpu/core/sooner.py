"""What would let a workload start sooner: other asks, each decided and run forward by the planner on a copy.

Each is asked for anew instead of the one that waits, as its owner would have to, so it stands where a new ask stands.
What its owner may not have is refused there as everywhere, and is not told. Only what is clearly sooner is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from ..errors import GpuError
from ..model import Ask, Cancel, Holder, Kind, SoonerView, State, Submit, WaitingReason, Workload, World
from .decide import step
from .foresight import BUDGET, foresee
from .outlook import Expected

#: So many are told, and so many are tried.
MOST_TOLD, MOST_TRIED = 3, 8
_HELPS = frozenset({WaitingReason.DEVICES, WaitingReason.QUOTA, WaitingReason.BUDGET, WaitingReason.HOLD})
_HOLDER = Holder(kind="kernel", name="foreseen")
#: A limit is halved this often, and no further than to some minutes.
_HALVINGS, _LEAST_SECONDS = 2, 600


def sooner(
    world: World, it: Workload, now: float, expected: Expected, is_over: Callable[[], bool] = lambda: False
) -> tuple[SoonerView, ...]:
    """The few other asks that would start clearly sooner than it is expected to; of each kind the least change.

    None is tried any more once `is_over` says so, and a try that goes on then finds what it has found.
    """
    if it.state is not State.QUEUED or it.waiting not in _HELPS or it.unmet or it.is_booked or it.member is not None:
        return ()
    found: dict[str, SoonerView] = {}
    tried = 0
    for what, change in _changes(world, it):
        if what in found:
            continue
        if is_over():
            break
        tried += 1
        would = _would_start(world, it, change, now, expected, is_over)
        if would is not None and would.until_at is not None and _is_clearly_sooner(would, expected, now):
            found[what] = msgspec.structs.replace(
                change, expected_start_from=would.from_at, expected_start_until=would.until_at
            )
        if len(found) == MOST_TOLD or tried == MOST_TRIED:
            break
    return tuple(found.values())


def _is_clearly_sooner(would: Expected, expected: Expected, now: float) -> bool:
    """Wholly before the range as it is, or half the wait; what nobody knows the end of is only compared with that."""
    if would.until_at is None:
        return False
    if would.until_at < expected.from_at:
        return True
    if expected.until_at is None:
        return False
    return 2 * (would.from_at + would.until_at - 2 * now) <= expected.from_at + expected.until_at - 2 * now


def _changes(world: World, it: Workload) -> Iterator[tuple[str, SoonerView]]:
    """What could be asked for instead, of each kind the least change first."""
    ask = it.ask
    fewer = ask.devices // 2
    while fewer and not ask.on:
        yield "devices", _change(devices=fewer)
        fewer //= 2
    for other in _other_classes(world, ask):
        yield f"class {other}", _change(device_class=other)
    if ask.duration_seconds is not None:
        for halving in range(1, _HALVINGS + 1):
            shorter = ask.duration_seconds >> halving
            if shorter >= _LEAST_SECONDS:
                yield "duration", _change(duration_seconds=shorter)
    for queue in world.policy.queues:
        if queue.name != it.queue and it.kind in queue.kinds:
            yield f"queue {queue.name}", _change(queue=queue.name)


def _change(**words: int | str) -> SoonerView:
    return SoonerView(expected_start_from=0.0, expected_start_until=0.0, **words)  # type: ignore[arg-type]


def _other_classes(world: World, ask: Ask) -> list[str]:
    """Any class, where one was named; else those that are there are all tried already."""
    if ask.device_class is None or ask.on:
        return []
    others = sorted({it.device_class for it in world.devices.values()} - {ask.device_class})
    return ["", *others] if len(others) > 1 else others


def _would_start(  # noqa: PLR0917 - what one try is
    world: World, it: Workload, change: SoonerView, now: float, expected: Expected, is_over: Callable[[], bool]
) -> Expected | None:
    """When that would start if it were asked for now, and this one not; None where it may not be, or not sooner."""
    other = world.copy()
    try:
        step(other, Cancel(workload=it.id, by=it.owner), now, places=False)
        step(other, _asked_anew(world, it, change), now)
    except GpuError:
        return None
    new = other.workloads[other.last_id]
    if new.state is not State.QUEUED:
        return Expected(now, now) if new.is_live else None
    # No later than the present end is of any use, so nothing later is looked for.
    horizon = expected.from_at if expected.until_at is None else expected.until_at
    found = foresee(other, now, [new.id], budget=BUDGET // 4, horizon=horizon, is_over=lambda _: is_over())
    return found.starts.get(new.id)


def _asked_anew(world: World, it: Workload, change: SoonerView) -> Submit:
    ask = it.ask
    if change.devices is not None:
        ask = msgspec.structs.replace(ask, devices=change.devices)
    if change.device_class is not None:
        ask = msgspec.structs.replace(ask, device_class=change.device_class or None)
    if change.duration_seconds is not None:
        ask = msgspec.structs.replace(ask, duration_seconds=change.duration_seconds)
    known = () if world.groups is None else world.groups.get(it.owner, ())
    return Submit(
        kind=it.kind,
        owner=it.owner,
        team=it.team,
        groups=tuple({it.team, *known}),
        queue=change.queue or it.queue,
        ask=ask,
        name=it.name,
        account=it.account,
        spec=it.spec,
        holder=_HOLDER if it.kind is Kind.RESERVATION else None,
    )
