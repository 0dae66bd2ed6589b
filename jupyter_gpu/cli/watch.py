"""`jupyter gpu status --watch`: the picture, drawn anew as the broker's stream tells of changes. Nothing is polled."""

from __future__ import annotations

import time

from rich.console import RenderableType

from ..client.following import fold
from ..errors import BrokerUnavailable
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
                for change in client.stream(picture):
                    picture = fold(picture, change)
                    live.update(drawn(), refresh=True)
                    pause = 0.5
            except BrokerUnavailable:
                pass
            live.update(drawn("no answer, trying again"), refresh=True)
            time.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
