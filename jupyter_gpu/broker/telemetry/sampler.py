"""Readings of the devices: one sampler thread asks one source for everybody, and a hung call hurts nobody else.

The loop never calls a driver. It asks here and gets an answer within the deadline: a fresh reading, or one whose
`fault` says why there is none. What is unknown is never taken for gone: an inventory that cannot be read is None, and
a device that cannot be read is a `Reading` with a fault, so that whoever ends leases on the strength of it sees the
difference. Two sources stand behind the seam: `nvml` (real cards) and `simulated`.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from ...model import Card, CardEvent, Device, DriverView, Reading, Sample
from .clear import process_has_ended, process_name

log = logging.getLogger(__name__)

OnSample = Callable[[Sample], None]

#: So long the driver may take for its first answer (NVIDIA/nvidia-container-toolkit#1053); then it is called silent.
STARTING_SECONDS = 60.0

STARTING = (
    "The GPU monitor is starting: the driver is being opened, which takes up to half a minute where its persistence "
    "mode is off. The GPUs appear by themselves; `nvidia-smi -pm 1` or nvidia-persistenced makes it quick."
)


class Source(Protocol):
    """Where readings come from. Its calls may block as long as they like: only the sampler thread makes them."""

    @property
    def fault(self) -> str | None:
        """Why no device at all can be read now, with the remedy; None while it answers."""

    @property
    def busy_with(self) -> str | None:
        """The UUID of the device that a running call is asking, for the sentence about a call that hangs."""

    @property
    def has_local_pids(self) -> bool:
        """Whether the pids in readings are those of this machine as we see it, so that they may be looked up."""

    @property
    def driver(self) -> DriverView | None:
        """What reads the GPUs and of which versions; None where that is not known, or nothing is real."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What holds now and is worth a sentence, but is no fault: a GPU in MIG mode that has no MIG devices."""

    def devices(self) -> tuple[Device, ...] | None:
        """The inventory; empty where there are no devices, None where it cannot be read (`fault` says why)."""

    def cards(self) -> tuple[Card, ...]:
        """The GPUs in MIG mode that the last inventory found, also those that have no MIG devices. Asks nobody."""

    def events(self) -> tuple[CardEvent, ...]:
        """What the driver has reported since the last call, which waits for nothing; () where it reports nothing."""

    def read(self, uuids: Sequence[str]) -> tuple[Reading, ...]:
        """Fresh readings, one per UUID in the order asked; what cannot be read has a fault."""


class _Ask(NamedTuple):
    """What a coroutine waits for: readings of `uuids`, or the inventory where it names none."""

    uuids: tuple[str, ...] | None
    answer: asyncio.Future[_Look]


class _Look(NamedTuple):
    """What one round of the sampler thread saw."""

    at: float
    #: None: not asked, or not readable.
    devices: tuple[Device, ...] | None
    cards: tuple[Card, ...]
    readings: dict[str, Reading]
    #: Only of a tick: a probe leaves them for the next sample.
    events: tuple[CardEvent, ...]
    fault: str | None
    driver: DriverView | None
    notes: tuple[str, ...]
    #: The round was a tick: `readings` are those of all devices, and of their cards.
    is_sample: bool


class Telemetry:
    """Samples each interval, and probes at once. All but the sampler thread happens on the loop given to `start`."""

    def __init__(self, source: Source, *, interval_seconds: float = 1.0, deadline_seconds: float = 5.0) -> None:
        self._source = source
        self._interval_seconds = interval_seconds
        self._deadline_seconds = deadline_seconds
        #: The newest reading of each device of the inventory and of each card; read it on the loop only.
        self.latest: dict[str, Reading] = {}
        #: As of the newest answer of the source; read them on the loop only.
        self.cards: tuple[Card, ...] = ()
        self.driver: DriverView | None = None
        self.notes: tuple[str, ...] = ()
        # A SimpleQueue is never held by a thread that waits for its turn, so putting never blocks the loop.
        self._asks: queue.SimpleQueue[_Ask | None] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_sample: OnSample | None = None
        self._watch_timer: asyncio.TimerHandle | None = None
        #: Monotonic and wall time at which the source was called; written whole by the sampler thread.
        self._called_at: tuple[float, float] | None = None
        #: The sampler thread's own: whom a tick reads, and what no sample has carried yet.
        self._uuids: tuple[str, ...] | None = None
        #: Whether the last inventory could be read; until it can, each tick tries.
        self._is_listed = False
        self._events: tuple[CardEvent, ...] = ()
        self._has_answered = False
        self._fault: str | None = None
        self._said: str | None = None
        self._noted: set[str] = set()

    # --- on the loop ----------------------------------------------------------------------------

    def start(self, loop: asyncio.AbstractEventLoop, on_sample: OnSample) -> None:
        """Begin to sample; `on_sample` is called on the loop once per interval, also while the source hangs."""
        self._loop, self._on_sample = loop, on_sample
        # A daemon: a call into a sick driver may never return, and must not keep the process from ending.
        threading.Thread(target=self._run, name="sampler", daemon=True).start()
        self._watch_timer = loop.call_later(self._interval_seconds, self._watch)

    def close(self) -> None:
        """Stop sampling, without waiting for a call that hangs."""
        if self._watch_timer is not None:
            self._watch_timer.cancel()
        self._on_sample = None
        self._asks.put(None)

    async def probe(self, uuids: Iterable[str]) -> tuple[Reading, ...]:
        """Readings made after this call, within the deadline; probes that wait are answered by one read together."""
        wanted = tuple(uuids)
        look = await self._ask(wanted)
        if look is None:
            return _faulty(wanted, self.fault or self._silence(), time.time())
        missing = "the source gave no reading of it"
        return tuple(look.readings.get(uuid) or _faulty([uuid], missing, look.at)[0] for uuid in wanted)

    async def inventory(self) -> tuple[Device, ...] | None:
        """The devices that there are now; None where that cannot be read (`fault` says why), which is not "none"."""
        look = await self._ask(None)
        return None if look is None else look.devices

    @property
    def stalled_since(self) -> float | None:
        """When the call began that has been hanging for longer than the deadline; None while the source answers."""
        called_at = self._called_at
        if called_at is None or time.monotonic() - called_at[0] <= self._deadline_seconds:
            return None
        return called_at[1]

    @property
    def fault(self) -> str | None:
        """Why no device can be read now, as a sentence with its remedy; None while all is well."""
        if self.stalled_since is not None:
            return self._silence()
        return STARTING if self._loop is not None and not self._has_answered else self._fault

    @property
    def has_local_pids(self) -> bool:
        """Whether pids in readings may be looked up here."""
        return self._source.has_local_pids

    def name_of(self, pid: int) -> str | None:
        """The name of a process in a reading; None where it has ended or its pid is not one of ours to look up."""
        return process_name(pid) if self._source.has_local_pids else None

    def has_ended(self, pid: int) -> bool:
        """Whether a process in a reading is no more; False where its pid is not one of ours to look up."""
        return self._source.has_local_pids and process_has_ended(pid)

    async def _ask(self, uuids: tuple[str, ...] | None) -> _Look | None:
        if self._loop is None:
            raise RuntimeError("telemetry was asked before it was started")
        if self.stalled_since is not None:  # a known hang is answered at once, not after one more deadline
            return None
        ask = _Ask(uuids, self._loop.create_future())
        self._asks.put(ask)
        try:
            return await asyncio.wait_for(ask.answer, self._deadline_seconds)
        except TimeoutError:
            return None

    def _take(self, asks: list[_Ask], look: _Look) -> None:
        """Hand out what a round saw."""
        self._has_answered, self._fault = True, look.fault
        self.cards, self.driver, self.notes = look.cards, look.driver, look.notes
        self._say(self.fault)
        self._note(look.notes)
        if look.is_sample:
            self.latest = look.readings
        else:
            self.latest.update((u, r) for u, r in look.readings.items() if u in self.latest)
        for ask in asks:
            if not ask.answer.done():
                ask.answer.set_result(look)
        if look.is_sample and self._on_sample is not None:
            readings = tuple(look.readings.values())
            self._on_sample(Sample(at=look.at, readings=readings, events=look.events, fault=look.fault))

    def _watch(self) -> None:
        """While the source hangs nobody else makes samples: say so in its place."""
        if self._loop is None or self._on_sample is None:
            return
        self._watch_timer = self._loop.call_later(self._interval_seconds, self._watch)
        if self.stalled_since is not None:
            sentence, now = self._silence(), time.time()
            self._say(sentence)
            readings = _faulty(self.latest, sentence, now)
            self.latest = {reading.uuid: reading for reading in readings}
            self._on_sample(Sample(at=now, readings=readings, fault=sentence))

    def _silence(self) -> str:
        called_at = self._called_at
        if not self._has_answered and called_at and time.monotonic() - called_at[0] < STARTING_SECONDS:
            return STARTING
        culprit = self._source.busy_with
        asked = f" It was asked about {culprit}." if culprit else ""
        return (
            f"The GPU driver has not answered for more than {self._deadline_seconds:g} s.{asked} "
            "Readings go on by themselves once it does; if it stays silent, look for Xid errors in `dmesg` and reset "
            "the GPU or reboot."
        )

    def _say(self, fault: str | None) -> None:
        if fault == self._said:
            return
        self._said = fault
        if fault is None:
            log.info("The GPUs can be read again.")
        else:
            log.warning("%s", fault)

    def _note(self, notes: tuple[str, ...]) -> None:
        """Each is said once per start, not once a second (gpuopenanalytics/pynvml#43)."""
        for note in notes:
            if note not in self._noted:
                self._noted.add(note)
                log.info("%s", note)

    # --- in the sampler thread ------------------------------------------------------------------

    def _run(self) -> None:
        tick_at = time.monotonic()
        while (asks := self._next_asks(tick_at)) is not None:
            now = time.monotonic()
            is_due = now >= tick_at
            if is_due:
                tick_at = max(tick_at + self._interval_seconds, now)  # ticks that a hang has eaten are not made up
            self._called_at = (now, time.time())
            look = self._look(asks, is_due=is_due)
            self._called_at = None
            try:
                assert self._loop is not None  # noqa: S101 - start() has set it
                self._loop.call_soon_threadsafe(self._take, asks, look)
            except RuntimeError:  # the loop is closed, so nobody asks any more
                return

    def _next_asks(self, tick_at: float) -> list[_Ask] | None:
        """Wait for the tick or the first ask, then take all that wait; None at the end."""
        asks: list[_Ask] = []
        while True:
            try:
                wait_seconds = 0 if asks else max(0, tick_at - time.monotonic())
                ask = self._asks.get(timeout=wait_seconds) if wait_seconds else self._asks.get_nowait()
            except queue.Empty:
                return asks
            if ask is None:
                return None
            if not ask.answer.done():  # whoever asked has given up
                asks.append(ask)

    def _look(self, asks: list[_Ask], *, is_due: bool) -> _Look:
        """One round: the inventory if wanted or not known yet, and one read for everybody."""
        at = time.time()
        source = self._source
        devices, readings, fault = None, {}, None
        try:
            if any(ask.uuids is None for ask in asks) or (is_due and not self._is_listed):
                devices = source.devices()
                self._is_listed = devices is not None
                if devices is not None:
                    self._uuids = (*(it.uuid for it in devices), *(it.uuid for it in source.cards()))
            wanted = dict.fromkeys(self._uuids or () if is_due else ())
            wanted.update(dict.fromkeys(uuid for ask in asks for uuid in ask.uuids or ()))
            if is_due:
                self._events += source.events()
            if wanted:
                readings = {reading.uuid: reading for reading in source.read(tuple(wanted))}
            fault = source.fault
        except Exception as error:
            log.exception("Reading the GPUs failed in a way that the source did not foresee.")
            fault = f"Reading the GPUs failed: {type(error).__name__}: {error}. Please report this."
            uuids = [*(self._uuids or ()), *(uuid for ask in asks for uuid in ask.uuids or ())]
            readings = {reading.uuid: reading for reading in _faulty(uuids, fault, at)}
        events: tuple[CardEvent, ...] = ()
        if is_due:
            events, self._events = self._events, ()
        return _Look(at, devices, source.cards(), readings, events, fault, source.driver, source.notes, is_due)


def _faulty(uuids: Iterable[str], fault: str, at: float) -> tuple[Reading, ...]:
    return tuple(Reading(uuid=uuid, at=at, fault=fault) for uuid in uuids)
