"""The report: utilisation, waits, failures, repeated work and idle holds, as a pure function of the history.

`Reckoning` takes in one life after another, so that a long history is read page by page; a life is forgotten as soon as
it is added up. Everything is added up in whole milliseconds and counted in (begin, end]: parts add up to the whole, and
windows that follow one another to the window of all of them.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ..model import (
    DeviceTime,
    EndReason,
    Kind,
    LossView,
    ReportBy,
    ReportOf,
    ReportView,
    Spent,
    SpentRow,
    WaitsView,
)
from .device_time import DeviceTimes, ms
from .events import Event
from .past import Life, Past, past_of

HOUR_MS = 3_600_000
#: More rows are for nobody to read.
MOST_ROWS = 1_000
#: The name of the row of what is not over, where rows are ends.
UNFINISHED = "unfinished"


@dataclass(slots=True)
class _Sum:
    """What some work came to, in ms."""

    there: Counter[Kind] = field(default_factory=Counter)
    leased: int = 0
    worked: int = 0
    repeated: int = 0
    repeated_on_devices: int = 0
    preemptions: int = 0
    failures: int = 0

    def words(self) -> dict[str, float | None]:
        """As the documents have it."""
        return {
            "jobs": self.there[Kind.JOB],
            "reservations": self.there[Kind.RESERVATION],
            "leased_device_seconds": self.leased / 1000,
            "worked_device_seconds": self.worked / 1000,
            "repeated_seconds": self.repeated / 1000,
            "repeated_device_seconds": self.repeated_on_devices / 1000,
            "repeated_share": _share(self.repeated_on_devices, self.worked),
            "preemptions": self.preemptions,
            "failures": self.failures,
            "failures_per_device_hour": _share(self.failures * HOUR_MS, self.worked),
        }


@dataclass(slots=True)
class _Waits:
    """Who waited in one queue, in ms: until a grant, or until now."""

    granted: list[int] = field(default_factory=list)
    waiting: int = 0
    waiting_longest: int = 0
    left_out: int = 0


class Reckoning:
    """A report in the making."""

    def __init__(
        self,
        devices: Iterable[Event],
        begin: float,
        end: float,
        *,
        by: ReportBy | None = None,
        named: Callable[[Life], bool] = lambda _: True,
    ) -> None:
        """Begin with the events of all devices, however old. `named` says of whose work the reader may know whose."""
        self.begin, self.end = begin, end
        #: How many were taken in.
        self.lives = 0
        self._devices = DeviceTimes(devices, begin, end)
        self._by, self._named = by, named
        self._whole = _Sum()
        self._rows: dict[str, _Sum] = {}
        self._waits: dict[str, _Waits] = {}
        self._ends: dict[Kind, Counter[str]] = {kind: Counter() for kind in Kind}
        self._unfinished: Counter[Kind] = Counter()
        self._failures: Counter[str] = Counter()
        self._idle, self._idle_ms = 0, 0
        self._loss: tuple[int, float, Life] | None = None
        self._untold = 0

    def add(self, life: Life, events: Iterable[Event]) -> None:
        """Take in one life, with the events of it that `OF_A_PAST` names, in order. Others' times are left out."""
        if life.submitted_at > self.end or (life.ended_at is not None and life.ended_at <= self.begin):
            return
        self.lives += 1
        past = past_of(life, events)
        end = life.end if life.ended_at is not None and life.ended_at <= self.end else None
        if end is None:
            self._unfinished[life.kind] += 1
        else:
            self._ends[life.kind][str(end)] += 1
        sums = [self._whole]
        if self._by is not None:
            sums.append(self._rows.setdefault(self._name(life, end), _Sum()))
        self._spend(life, past, sums)
        self._wait(life, past, is_over=end is not None)
        self._give_back(past)
        self._lose(life, past)

    def _has(self, at: float) -> bool:
        return self.begin < at <= self.end

    def _name(self, life: Life, end: EndReason | None) -> str:
        if self._by is ReportBy.END:
            return UNFINISHED if end is None else str(end)
        if self._by is ReportBy.QUEUE:
            return life.queue
        return "" if not self._named(life) else life.owner if self._by is ReportBy.USER else life.team

    def _spend(self, life: Life, past: Past, sums: list[_Sum]) -> None:
        devices = self._devices
        leased = sum(map(devices.of, past.leased))
        worked = sum(map(devices.of, past.worked))
        repeated = sum(map(devices.ms_of, past.repeated))
        on_devices = sum(map(devices.of, past.repeated))
        failed = [kind for at, kind in past.failed if self._has(at)]
        preempted = sum(map(self._has, past.preempted))
        self._failures.update(map(str, failed))
        for it in sums:
            it.there[life.kind] += 1
            it.leased += leased
            it.worked += worked
            it.repeated += repeated
            it.repeated_on_devices += on_devices
            it.preemptions += preempted
            it.failures += len(failed)

    def _wait(self, life: Life, past: Past, *, is_over: bool) -> None:
        waits = self._waits.setdefault(life.queue, _Waits())
        granted_at, free_at = past.granted_at, past.free_at
        if granted_at is not None and granted_at <= self.end:
            if granted_at <= self.begin:
                return
            if life.member is not None and life.member.at_most is not None:
                waits.left_out += 1
            else:
                waits.granted.append(max(0, ms(granted_at) - ms(granted_at if free_at is None else free_at)))
        elif not is_over and free_at is not None and free_at <= self.end:
            waits.waiting += 1
            waits.waiting_longest = max(waits.waiting_longest, ms(self.end) - ms(free_at))

    def _give_back(self, past: Past) -> None:
        for rest in past.idle:
            if self._has(rest.begin):
                self._idle += 1
                self._idle_ms += self._devices.of(rest)

    def _lose(self, life: Life, past: Past) -> None:
        self._untold += sum(map(self._has, past.untold))
        for span in past.repeated:
            lost = self._devices.ms_of(span)
            if lost and span.end is not None and (self._loss is None or lost > self._loss[0]):
                self._loss = (lost, span.end, life)

    def view(self, of: ReportOf, notes: Iterable[str] = ()) -> ReportView:
        """The document, of what was taken in."""
        rows = sorted(self._rows.items(), key=lambda row: (-row[1].leased, row[0]))
        said = [*notes]
        if len(rows) > MOST_ROWS:
            said.append(f"Of {len(rows)} rows these are the {MOST_ROWS} that held devices for longest.")
        return ReportView(
            of=of,
            begin_at=self.begin,
            end_at=self.end,
            device_time=self._device_time(),
            spent=Spent(**self._whole.words()),  # type: ignore[arg-type]
            job_ends=_most_first(self._ends[Kind.JOB]),
            reservation_ends=_most_first(self._ends[Kind.RESERVATION]),
            jobs_unfinished=self._unfinished[Kind.JOB],
            reservations_unfinished=self._unfinished[Kind.RESERVATION],
            failures=_most_first(self._failures),
            longest_loss=self._longest_loss(),
            losses_not_known=self._untold,
            idle_given_back=self._idle,
            idle_given_back_device_seconds=self._idle_ms / 1000,
            waits=tuple(_waits_view(queue, it) for queue, it in sorted(self._waits.items())),
            by=self._by,
            rows=tuple(SpentRow(name=name, **it.words()) for name, it in rows[:MOST_ROWS]),  # type: ignore[arg-type]
            notes=tuple(said),
        )

    def _device_time(self) -> DeviceTime:
        there = self._devices.there_ms()
        return DeviceTime(
            devices=self._devices.devices,
            there_seconds=there / 1000,
            unusable_seconds=self._devices.unusable_ms() / 1000,
            leased_seconds=self._whole.leased / 1000,
            leased_share=_share(self._whole.leased, there),
        )

    def _longest_loss(self) -> LossView | None:
        if self._loss is None:
            return None
        lost, at, life = self._loss
        if not self._named(life):
            return LossView(seconds=lost / 1000, at=at)
        return LossView(seconds=lost / 1000, at=at, workload=life.id, owner=life.owner)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _most_first(counted: Counter[str]) -> dict[str, int]:
    return dict(sorted(counted.items(), key=lambda it: (-it[1], it[0])))


def _waits_view(queue: str, it: _Waits) -> WaitsView:
    waited = sorted(it.granted)
    return WaitsView(
        queue=queue,
        granted=len(waited),
        median_seconds=statistics.median(waited) / 1000 if waited else None,
        # The smallest that nine of ten did not exceed.
        p90_seconds=waited[(9 * len(waited) + 9) // 10 - 1] / 1000 if waited else None,
        longest_seconds=waited[-1] / 1000 if waited else None,
        waiting=it.waiting,
        waiting_longest_seconds=it.waiting_longest / 1000 if it.waiting else None,
        left_out=it.left_out,
    )
