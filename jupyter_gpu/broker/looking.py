"""Something is looked at again and again for as long as the broker runs."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod

log = logging.getLogger(__name__)


class Looking(ABC):
    """Looks at once, and after each pause once more. A fault of ours ends one look, never the looking."""

    #: What is looked at, as the log names it where that fails.
    what: str

    def __init__(self) -> None:
        self._looking: asyncio.Task[None] | None = None

    @abstractmethod
    async def look(self) -> None:
        """Look once."""

    @abstractmethod
    def pause_seconds(self) -> float:
        """How long until the next look."""

    def begin(self) -> None:
        """Look from now on."""
        self._looking = asyncio.create_task(self._look_for_ever())

    async def close(self) -> None:
        """Look no more."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def _look_for_ever(self) -> None:
        while True:
            try:
                await self.look()
            except Exception:  # the next look may go well
                log.exception("%s cannot be looked at", self.what)
            await asyncio.sleep(self.pause_seconds())
