"""`GpuMonitor`, `QuotaBar` and `JobView`: pictures in a notebook that update themselves, also while a cell computes.

The kernel draws and the page shows, so that a page, a saved notebook and nbconvert show the same. One thread feeds all
widgets of a kernel. A page says which views it shows: where none is left, a widget is fed no more, and is fed again
when it is shown again.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import anywidget
import traitlets
from IPython.display import display

from ..errors import InvalidAsk
from . import drawings
from .feed import Feed, feed

_STATIC = Path(__file__).parent / "static"
_FIRST_SECONDS = 3.0
#: A page that was closed says nothing any more. So many looks in a row, made while the kernel has time to hear.
_MOST_MISSED = 3
_LOOK_SECONDS = 40.0
#: The view that a cell asked for, before any page has said that it shows one.
_CELL = "cell"


class _Picture(anywidget.AnyWidget):
    """A picture that the feed draws and a page shows."""

    _esm = _STATIC / "picture.js"
    _css = _STATIC / "picture.css"

    #: The picture: HTML that stands by itself.
    html = traitlets.Unicode().tag(sync=True)
    #: What the picture that stands beside the live view is found by.
    key = traitlets.Unicode().tag(sync=True)

    #: The jobs that it shows.
    jobs: tuple[int, ...] = ()

    def __init__(self, **words: Any) -> None:
        super().__init__(key=uuid4().hex, **words)
        #: The views that pages show -> looks since each was heard of.
        self._views: dict[str, int] = {}
        self._look: Any = None
        self.on_msg(self._heard)
        self.draw(feed())

    def draw(self, known: Feed) -> None:
        """Draw what is known; called on the feed's thread."""
        raise NotImplementedError

    def show(self) -> None:
        """Be fed from now on."""
        feed().join(self)
        self._look_later()

    def close(self) -> None:
        """End it, in all pages."""
        feed().leave(self)
        if self._look is not None:
            self._look.cancel()
        super().close()

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """The live view, and beside it the picture as it is now."""
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        self._views[_CELL] = 0  # until a page says that it shows it
        self.show()
        feed().wait_for_first(_FIRST_SECONDS, self.jobs)
        self.draw(feed())
        data, metadata = bundle
        return {**data, "text/html": self._still(), "text/plain": repr(self)}, metadata

    def _ipython_display_(self, **kwargs: Any) -> None:
        """Show the picture as it is now, and the live view, which hides the first.

        In one output a page without the kernel would choose the live view, and show nothing.
        """
        bundle = self._repr_mimebundle_(**kwargs)
        if bundle is None:
            return
        data, metadata = bundle
        display({"text/html": data.pop("text/html"), "text/plain": ""}, raw=True)
        display(data, metadata=metadata, raw=True)

    def _still(self) -> str:
        return f'<div data-jupyter-gpu-still="{self.key}">{self.html}</div>'

    def __repr__(self) -> str:
        """Name it shortly."""
        return f"{type(self).__name__}()"

    def cancel(self) -> None:
        """Nothing here can be cancelled."""

    # -- what a page says

    def _heard(self, _widget: Any, content: Any, _buffers: Any) -> None:
        view = str(content.get("view", ""))
        match content.get("says"):
            case "shown":
                self._views.pop(_CELL, None)
                self._views[view] = 0
                self.show()
            case "gone":
                self._views.pop(view, None)
                if not self._views:
                    feed().leave(self)
            case "cancel":
                self.cancel()

    def _look_later(self) -> None:
        """Look from time to time whether the pages that showed it are still there."""
        if self._look is not None:
            self._look.cancel()
        try:
            self._look = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look_for_views)
        except RuntimeError:  # no kernel, so no page either
            self._look = None

    def _look_for_views(self) -> None:
        self._look = None
        # This runs when the kernel has time, so what pages said has been heard, or is about to be.
        self._views = {view: missed + 1 for view, missed in self._views.items() if missed < _MOST_MISSED}
        if self._views:
            self._look_later()
        else:
            feed().leave(self)


class GpuMonitor(_Picture):
    """The GPUs: memory and load, now and lately, and who holds each until when. This kernel's own are marked."""

    def draw(self, known: Feed) -> None:
        """Draw the devices."""
        self.html = drawings.monitor(known.status, known.traces(), known.mine(), known.note)


class QuotaBar(_Picture):
    """Your quota: what you hold or used of each bound, and what is left."""

    def draw(self, known: Feed) -> None:
        """Draw the bounds."""
        self.html = drawings.quota(known.status, known.note)


class JobView(_Picture):
    """One job: how it stands and why, its attempts, the end of its log, and a button that cancels it."""

    #: The job that the page's button cancels; 0 for none.
    cancels = traitlets.Int(0).tag(sync=True)

    def __init__(self, job: Any, **words: Any) -> None:
        number = getattr(job, "id", job)
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise InvalidAsk(
                f"{job!r} is no job.", hint="Give its number, as in JobView(12), or what %gpu submit gave."
            )
        self.jobs = (number,)
        super().__init__(**words)

    def draw(self, known: Feed) -> None:
        """Draw the job."""
        number = self.jobs[0]
        it = known.jobs.get(number)
        note = known.notes.get(number) or known.note
        self.html = drawings.job(
            number, it, log=known.logs.get(number, ""), numbers=known.numbers(), now=time.time(), note=note
        )
        self.cancels = number if drawings.is_live(it) else 0

    def cancel(self) -> None:
        """Cancel the job, as the button does."""
        feed().cancel(self.jobs[0])

    def __repr__(self) -> str:
        """Name it shortly."""
        return f"JobView({self.jobs[0]})"
