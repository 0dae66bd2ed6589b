"""What `%gpu submit` leaves in `_`: the job, to wait for, to read and to cancel."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from ..cli.act import how_it_stands
from ..cli.logtext import LogText
from ..client import Client
from ..errors import GpuError
from ..model import State, WorkloadView


class JobHandle:
    """A job in the queue. It is only looked at: when this goes away, the job goes on."""

    def __init__(self, view: WorkloadView, *, url: str | None = None) -> None:
        self._view = view
        self._url = url

    @property
    def id(self) -> int:
        """The number of the job, as all verbs take it."""
        return self._view.id

    @property
    def view(self) -> WorkloadView:
        """The job as it stands now."""
        if self._view.state is not State.ENDED:
            with self._client() as client:
                self._view = client.workload(self.id)
        return self._view

    @property
    def state(self) -> str:
        """How it stands, in one word: queued, active, yielding, or how it ended."""
        it = self.view
        return str(it.end or it.state)

    def wait(self, timeout: float | None = None) -> WorkloadView:
        """Wait until it has ended, at most `timeout` seconds; then WaitTimeout. Interrupting ends the wait only."""
        with self._client() as client:
            self._view = client.wait(self.id, "ended", timeout)
        return self._view

    def log(self, tail: int | None = None) -> str:
        """What it printed until now, or the last `tail` lines; progress bars as they last stood."""
        with self._client() as client:
            text = LogText(colours=False)
            shown = text.feed(client.log(self.id), final=True)
        return shown if tail is None else "".join(shown.splitlines(keepends=True)[-tail or len(shown) :])

    def cancel(self) -> WorkloadView:
        """End it, with its grace, or give up its place in line."""
        with self._client() as client:
            self._view = client.cancel(self.id)
        return self._view

    def __repr__(self) -> str:
        """Say how it stands; where no broker answers, how it stood."""
        with contextlib.suppress(GpuError):
            return f"<{_stands(self.view)}>"
        return f"<{_stands(self._view)} (as last seen)>"

    @contextlib.contextmanager
    def _client(self) -> Iterator[Client]:
        with Client(self._url, start=False) as client:
            yield client


def _stands(it: WorkloadView) -> str:
    return how_it_stands(it, time.time()).rstrip(".")
