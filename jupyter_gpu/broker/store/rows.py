"""Nouns and events as rows, and back. JSON writes a float in the fewest digits that read back as the same float."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from ...core.events import (
    AnyEvent,
    DeviceAppeared,
    DeviceForgotten,
    DeviceMarked,
    Event,
    HoldChanged,
    HoldPut,
    HoldRemoved,
    OfLine,
    OfWorkload,
    RecurringChanged,
    RecurringPut,
    RecurringRemoved,
    Submitted,
)  # fmt: skip
from ...core.past import Life
from ...model import Device, Hold, Policy, Recurring, Workload, World

UsageKey = tuple[str, str, str, str]
Usage = dict[UsageKey, dict[int, int]]
Row = tuple[object, ...]


class Record(msgspec.Struct, frozen=True):
    """One event as it stands in the log: its number, the digest of the policy it was decided by, and the fact."""

    number: int
    digest: str
    event: Event


class Touched(msgspec.Struct, frozen=True):
    """The workloads that a stretch of events was about, and the number of the last of these events."""

    workloads: set[int]
    revision: int


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A whole world at one revision."""

    revision: int
    last_id: int
    #: In the order in which a world puts them back exactly as they were: ended, live, queued.
    workloads: tuple[Workload, ...]
    devices: tuple[Device, ...]
    usage: tuple[tuple[UsageKey, dict[int, int]], ...]
    recurring: tuple[Recurring, ...] = ()
    holds: tuple[Hold, ...] = ()


_encode = msgspec.json.Encoder().encode
decode_event = msgspec.json.Decoder(AnyEvent).decode
decode_life = msgspec.json.Decoder(Life).decode
decode_workload = msgspec.json.Decoder(Workload).decode
decode_device = msgspec.json.Decoder(Device).decode
decode_recurring = msgspec.json.Decoder(Recurring).decode
decode_hold = msgspec.json.Decoder(Hold).decode
decode_policy = msgspec.json.Decoder(Policy).decode
encode_snapshot = msgspec.msgpack.Encoder().encode
decode_snapshot = msgspec.msgpack.Decoder(Snapshot).decode


def encode(noun: object) -> str:
    """JSON as text, so that SQLite's own JSON functions and `sqlite-utils rows` can read it."""
    return _encode(noun).decode()


def tag_of(event: Event | type[Event]) -> str:
    """How the log names an event: "granted"."""
    return str(event.__struct_config__.tag)


def workload_of(event: Event) -> int | None:
    """The one workload whose life the event belongs to; None where it is about devices, the line or the policy."""
    if isinstance(event, OfWorkload):
        return event.workload
    return event.it.id if isinstance(event, Submitted) else None


def workloads_of(workload: int | None, body: str | None) -> Iterable[int]:
    """As `workload_of`, and those of an event of the line, from its columns; of others no body is needed."""
    if workload is not None:
        return (workload,)
    event = None if body is None else decode_event(body)
    return event.workloads if isinstance(event, OfLine) else ()


def event_row(record: Record) -> Row:
    """(number, at, kind, workload, policy, body)."""
    event = record.event
    return (
        record.number,
        event.at,
        tag_of(event),
        workload_of(event),
        record.digest,
        encode(event),
    )


def record_of(row: tuple[int, str, str]) -> Record:
    """Read a record back from its number, policy and body."""
    number, digest, body = row
    return Record(number, digest, decode_event(body))


def workload_row(it: Workload, changed: int) -> Row:
    """All columns of the table `workloads`, in its order."""
    return (
        it.id, it.kind.value, it.state.value, it.owner, it.team, it.queue, it.name, it.submitted_at, it.ended_at,
        None if it.end is None else it.end.value, changed, encode(it),
    )  # fmt: skip


def device_row(it: Device) -> Row:
    """All columns of the table `devices` but its place, in its order."""
    condition = None if it.condition is None else it.condition.value
    return (it.uuid, it.device_class, it.pool, it.node, int(it.cordoned), condition, encode(it))


def touched_workloads(records: Iterable[Record]) -> dict[int, int]:
    """Workload -> the number of the last event that changed it."""
    touched: dict[int, int] = {}
    for record in records:
        if isinstance(record.event, OfLine):
            touched.update(dict.fromkeys(record.event.workloads, record.number))
        else:
            id_ = workload_of(record.event)
            if id_ is not None:
                touched[id_] = record.number
    return touched


def touched_devices(records: Iterable[Record]) -> dict[str, None]:
    """The devices that events changed and left there, in the order in which they did, each once."""
    uuids: dict[str, None] = {}
    for record in records:
        if isinstance(record.event, DeviceAppeared):
            uuids.setdefault(record.event.device.uuid)
        elif isinstance(record.event, DeviceMarked):
            uuids.setdefault(record.event.device)
        elif isinstance(record.event, DeviceForgotten):
            uuids.pop(record.event.device, None)
    return uuids


def forgotten_devices(records: Iterable[Record]) -> list[str]:
    """Those that were forgotten, also where they have come again since: then they stand at the end."""
    return [record.event.device for record in records if isinstance(record.event, DeviceForgotten)]


def recurring_rows(records: Iterable[Record], there: Mapping[int, Recurring]) -> tuple[list[Row], list[Row]]:
    """The recurring jobs to write, as all columns of their table in its order, and the ids of those to forget."""
    touched: dict[int, None] = {}
    for record in records:
        if isinstance(record.event, RecurringPut):
            touched[record.event.it.id] = None
        elif isinstance(record.event, RecurringChanged | RecurringRemoved):
            touched[record.event.recurring] = None
    found = [there[id_] for id_ in touched if id_ in there]
    written: list[Row] = [(it.id, it.owner, it.next_at, encode(it)) for it in found]
    return written, [(id_,) for id_ in touched if id_ not in there]


def hold_rows(records: Iterable[Record], there: Mapping[int, Hold]) -> tuple[list[Row], list[Row]]:
    """The holds to write, as all columns of their table in its order, and the ids of those to forget."""
    touched: dict[int, None] = {}
    for record in records:
        if isinstance(record.event, HoldPut):
            touched[record.event.it.id] = None
        elif isinstance(record.event, HoldChanged | HoldRemoved):
            touched[record.event.hold] = None
    found = [there[id_] for id_ in touched if id_ in there]
    return [(it.id, it.name, encode(it)) for it in found], [(id_,) for id_ in touched if id_ not in there]


def changed_usage(stored: Usage, usage: Mapping[UsageKey, dict[int, int]]) -> tuple[list[Row], list[Row]]:
    """The buckets to write and the buckets to forget.

    A world replaces the buckets of a key and never writes into them, so the same object means the same numbers.
    """
    written: list[Row] = []
    forgotten: list[Row] = []
    for key, buckets in usage.items():
        before = stored.get(key, {})
        if before is buckets:
            continue
        written += [(*key, bucket, used) for bucket, used in buckets.items() if before.get(bucket) != used]
        forgotten += [(*key, bucket) for bucket in before.keys() - buckets.keys()]
    return written, forgotten


def snapshot_of(world: World) -> Snapshot:
    """All of a world that is fact; its policy and its readings stand beside it."""
    order = (*world.ended, *world.live, *(it.id for it in world.queued()))
    return Snapshot(
        revision=world.revision,
        last_id=world.last_id,
        workloads=tuple(world.workloads[id_] for id_ in order),
        devices=tuple(world.devices.values()),
        usage=tuple(world.usage.items()),
        recurring=tuple(world.recurring.values()),
        holds=tuple(world.holds.values()),
    )


def world_of(snapshot: Snapshot, policy: Policy) -> World:
    """Put a world together, its indices in step."""
    world = World(policy)
    for device in snapshot.devices:
        world.put_device(device)
    for it in snapshot.workloads:
        world.put_workload(it)
    for recurring in snapshot.recurring:
        world.put_recurring(recurring)
    for hold in snapshot.holds:
        world.put_hold(hold)
    # By id, as they came in: whoever walks over a world meets them in the same order before and after a restart.
    world.workloads = dict(sorted(world.workloads.items()))
    world.usage = dict(snapshot.usage)
    world.revision, world.last_id = snapshot.revision, snapshot.last_id
    return world
