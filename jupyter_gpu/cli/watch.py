"""`jupyter gpu status --watch`: the picture, drawn anew as the broker's stream tells of changes. Nothing is polled."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import msgspec
from rich.console import RenderableType

from ..errors import BrokerUnavailable
from ..model import Change, DeviceView, Status
from .base import Face
from .picture import status_picture
from .see import is_fancy

LONGEST_PAUSE_SECONDS = 10.0


def watch_status(face: Face) -> None:
    """Draw until Ctrl-C. When the broker goes away the last picture stays, marked, until it is back."""
    from rich.live import Live

    picture = face.client.status()
    # Whoever stops the broker does not want it started again by those who look on.
    client = face.looking_on()
    pause = 0.5

    def drawn(note: str = "") -> RenderableType:
        width, height = face.out.size
        return status_picture(picture, note=note, fancy=is_fancy(face), width=width, height=height)

    with (
        face.going_on("Only the watching has ended; the work goes on."),
        Live(drawn(), console=face.out, auto_refresh=False) as live,
    ):
        while True:
            try:
                for change in client.stream():
                    picture = apply(picture, change, client.status, face.now())
                    live.update(drawn(), refresh=True)
                    pause = 0.5
            except BrokerUnavailable:
                pass
            live.update(drawn("no answer, trying again"), refresh=True)
            time.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)


def apply(status: Status, change: Change, ask: Callable[[], Status], now: float) -> Status:
    """Bring the picture up to date. Readings are put in; anything more moves places and quota, so it is asked anew."""
    if change.status is not None:
        return change.status
    if change.changes or change.devices:
        return ask()
    return msgspec.structs.replace(status, devices=_merged(status.devices, change.samples), at=now)


def _merged(devices: tuple[DeviceView, ...], samples: Iterable[DeviceView]) -> tuple[DeviceView, ...]:
    newest = {it.uuid: it for it in samples}
    return tuple(_with_reading(it, newest[it.uuid]) if it.uuid in newest else it for it in devices)


def _with_reading(device: DeviceView, sample: DeviceView) -> DeviceView:
    # Samples are encoded once for everybody, so who holds the device does not stand in them.
    return msgspec.structs.replace(
        device,
        memory_total_bytes=sample.memory_total_bytes,
        memory_used_bytes=sample.memory_used_bytes,
        utilisation_percent=sample.utilisation_percent,
        temperature_celsius=sample.temperature_celsius,
        power_watts=sample.power_watts,
        sampled_at=sample.sampled_at,
    )
