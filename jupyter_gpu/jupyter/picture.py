"""What a page that listened from the beginning would show now, for pages that come later. Pure."""

from __future__ import annotations

import msgspec

from ..model import Change, DeviceView, State, Status, WorkloadView

#: What samples bring; they know nothing of who holds a device.
_READINGS = (
    "memory_total_bytes", "memory_used_bytes", "utilisation_percent", "temperature_celsius", "power_watts",
    "sampled_at",
)  # fmt: skip


class Picture:
    """A status and all that has changed since."""

    def __init__(self, status: Status) -> None:
        self.revision = status.revision
        self._status = status
        self._workloads = {it.id: it for it in status.workloads}
        self._devices = {it.uuid: it for it in status.devices}

    def take(self, change: Change) -> None:
        """Add what changed. What is older than the status is in it already."""
        for reading in change.samples:
            self._devices = self._devices | self._with(reading)
        if change.revision is None or change.revision < self.revision:
            return
        self.revision = change.revision
        for view in change.changes:
            if stands_in_status(view):
                self._workloads[view.id] = view
            else:
                self._workloads.pop(view.id, None)
        self._devices |= {it.uuid: it for it in change.devices}

    def _with(self, reading: DeviceView) -> dict[str, DeviceView]:
        known = self._devices.get(reading.uuid)
        if known is None:
            return {}
        news = {name: getattr(reading, name) for name in _READINGS}
        return {reading.uuid: msgspec.structs.replace(known, **news)}

    def whole(self) -> Status:
        """The status as it is now."""
        return msgspec.structs.replace(
            self._status,
            revision=self.revision,
            workloads=tuple(self._workloads.values()),
            devices=tuple(self._devices.values()),
        )

    def tells_less_than(self, status: Status) -> bool:
        """Whether a newer status has what no change tells: quota, how many wait, what an operator should know."""
        return _told_by_status(self._status) != _told_by_status(status)


def stands_in_status(view: WorkloadView) -> bool:
    """The caller's own until they end, and others' while they hold devices."""
    return view.state is not State.ENDED and (view.is_mine or bool(view.devices))


def _told_by_status(status: Status) -> tuple[object, ...]:
    return (status.quotas, status.waiting, status.warnings, status.more_of_mine)
