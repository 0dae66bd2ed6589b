"""What one process or one device can do to the look at all of them: nothing. A fault of ours there is logged once."""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections.abc import Iterator

log = logging.getLogger(__name__)

#: So many different faults are logged; who finds more has heard enough.
_MOST_TOLD = 32


class Shield:
    """Keeps what goes wrong with one of many from the others."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    @contextlib.contextmanager
    def around(self, what: str) -> Iterator[None]:
        """Go on after this, whatever it does; `what` says what it was about, like "process 4711"."""
        try:
            yield
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            place = f"{type(error).__name__} {frames[-1].filename}:{frames[-1].lineno}"
            if place not in self._told and len(self._told) < _MOST_TOLD:
                self._told.add(place)
                log.exception("%s cannot be looked at, so it is passed over; this is told once", what)
