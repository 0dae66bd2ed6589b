"""How much device time there was, and when which device was there: folded from the events of devices. Pure.

A device is there while it is listed and not lost. In whole milliseconds, so that parts add up to the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..model import Condition
from .events import DeviceAppeared, DeviceForgotten, DeviceMarked, Event
from .past import Span

#: From when until when, in ms, and whether it could be leased all that time.
_Stretch = tuple[int, int, bool]


def ms(seconds: float) -> int:
    """Whole milliseconds."""
    return round(seconds * 1000)


class DeviceTimes:
    """When each device was there, within a window."""

    def __init__(self, events: Iterable[Event], begin: float, end: float) -> None:
        self._begin, self._end = ms(begin), ms(end)
        self._stretches: dict[str, list[_Stretch]] = {}
        self._memory: dict[str, int | None] = {}
        since: dict[str, tuple[int, bool] | None] = {}
        for event in events:
            self._read(since, event)
        self.devices = sum(1 for it in since.values() if it is not None)
        for uuid in since:
            self._close(since, uuid, self._end)

    def _read(self, since: dict[str, tuple[int, bool] | None], event: Event) -> None:
        """Let a device be from now on as the event says."""
        if ms(event.at) > self._end:
            return
        at = ms(event.at)
        if isinstance(event, DeviceAppeared):
            device = event.device
            self._memory[device.uuid] = device.memory_bytes
            self._close(since, device.uuid, at)
            since[device.uuid] = _from(at, cordoned=device.cordoned, condition=device.condition)
        elif isinstance(event, DeviceMarked):
            self._close(since, event.device, at)
            since[event.device] = _from(at, cordoned=event.cordoned, condition=event.condition)
        elif isinstance(event, DeviceForgotten):
            self._close(since, event.device, at)
            since[event.device] = None

    def _close(self, since: Mapping[str, tuple[int, bool] | None], uuid: str, at: int) -> None:
        stood = since.get(uuid)
        if stood is None:
            return
        begin, is_usable = max(stood[0], self._begin), stood[1]
        if at > begin:
            self._stretches.setdefault(uuid, []).append((begin, at, is_usable))

    def there_ms(self) -> int:
        """Of all devices together."""
        return sum(end - begin for stretches in self._stretches.values() for begin, end, _ in stretches)

    def unusable_ms(self) -> int:
        """Of that, what was cordoned or had a condition."""
        return sum(end - begin for them in self._stretches.values() for begin, end, is_usable in them if not is_usable)

    def of(self, span: Span) -> int:
        """Device-ms of a span within the window, while its devices were there; of a shared one the part."""
        begin = ms(span.begin)
        end = self._end if span.end is None else ms(span.end)
        return sum(
            self._part(uuid, span.memory_bytes, max(0, min(end, until) - max(begin, since)))
            for uuid in span.devices
            for since, until, _ in self._stretches.get(uuid, ())
        )

    def ms_of(self, span: Span) -> int:
        """Ms of a span within the window, however many devices it had."""
        end = self._end if span.end is None else ms(span.end)
        return max(0, min(end, self._end) - max(ms(span.begin), self._begin))

    def _part(self, uuid: str, memory_bytes: int | None, length_ms: int) -> int:
        whole = self._memory.get(uuid)
        return length_ms if memory_bytes is None or not whole else length_ms * memory_bytes // whole


def _from(at: int, *, cordoned: bool, condition: Condition | None) -> tuple[int, bool] | None:
    """From when it stands so, and whether it can be leased; None where it is lost."""
    return None if condition is Condition.LOST else (at, not cordoned and condition is None)
