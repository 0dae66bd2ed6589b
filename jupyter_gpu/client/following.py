"""The document that a reader of the stream holds: with each line folded into it, it is the document of now."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..errors import BrokerUnavailable
from ..model import Change, DeviceView, State, Status, WorkloadView


def fold(held: Status | None, change: Change) -> Status:
    """The document after a line of the stream. Before the first line there may be none; then that line is a whole."""
    if change.status is not None:
        return change.status
    if held is None:
        raise BrokerUnavailable("What answers is no broker: its stream does not begin with a whole document.")
    if change.revision is not None:
        held = _changed(held, change, change.revision)
    return _sampled(held, change) if change.samples or change.cards else held


def _changed(held: Status, change: Change, revision: int) -> Status:
    newer = {it.uuid: it for it in change.devices}
    devices = tuple(newer.get(it.uuid, it) for it in held.devices)
    return msgspec.structs.replace(
        held,
        revision=revision,
        at=held.at if change.at is None else change.at,
        devices=devices,
        workloads=(*_live(held, change, devices), *_line(change)),
        quotas=change.quotas,
        more_of_mine=change.more_of_mine,
        waiting=change.waiting,
        warnings=change.warnings,
        alerts=change.alerts,
    )


def _live(held: Status, change: Change, devices: Iterable[DeviceView]) -> list[WorkloadView]:
    """What holds devices, by id: the reader's own is told whole each time, others' when it changes."""
    known = (it for it in held.workloads if not it.is_mine)
    newest = {it.id: it for it in (*known, *change.changes)}
    on_devices = {id_ for device in devices for id_ in device.workloads}
    return [
        it
        for _, it in sorted(newest.items())
        if it.state in (State.ACTIVE, State.YIELDING)
        # Others' work that waits again may be nobody else's to see: then only its device tells that it is gone.
        and (it.is_mine or not it.devices or it.id in on_devices)
    ]


def _line(change: Change) -> list[WorkloadView]:
    """The reader's own that waits, told whole each time too; what has no place is beyond what is shown."""
    return [it for it in change.changes if it.is_mine and it.state is State.QUEUED and it.ahead is not None]


def _sampled(held: Status, change: Change) -> Status:
    newest = {it.uuid: it for it in change.samples}
    devices = tuple(_with_reading(it, newest[it.uuid]) if it.uuid in newest else it for it in held.devices)
    read = [*(it.sampled_at for it in change.samples), *(it.sampled_at for it in change.cards)]
    at = max([held.at, *(it for it in read if it is not None)])
    # The cards are all told with each sample: one that is split no more is none of them.
    return msgspec.structs.replace(held, devices=devices, cards=change.cards, at=at)


def _with_reading(device: DeviceView, sample: DeviceView) -> DeviceView:
    # Samples are encoded once for everybody, so who holds the device and who is on it do not stand in them.
    return msgspec.structs.replace(
        device,
        memory_total_bytes=sample.memory_total_bytes,
        memory_used_bytes=sample.memory_used_bytes,
        memory_reserved_bytes=sample.memory_reserved_bytes,
        utilisation_percent=sample.utilisation_percent,
        temperature_celsius=sample.temperature_celsius,
        power_watts=sample.power_watts,
        slowed_by=sample.slowed_by,
        sampled_at=sample.sampled_at,
    )
