"""Looks ahead for the documents: on a thread, one at a time, with rests, and only while somebody looks at them.

A look takes from milliseconds to a few seconds, so no answer waits for one, save that about a single workload, which is
looked for by itself. Until a look is done the documents say what the one before has found.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..core.foresight import Foresight, foresee
from ..core.outlook import Expected
from ..core.sooner import sooner
from ..model import SoonerView, State, Workload, World

if TYPE_CHECKING:
    from .loop import Loop

log = logging.getLogger(__name__)

#: With nothing decided, time alone makes what was found so old that it is looked for anew.
OLD_SECONDS = 60.0
#: After each look a rest, so that looks take no more than a tenth of the time, and a burst of work is one look.
LEAST_REST_SECONDS, RESTS = 1.0, 9.0
#: So long a look may take at most, and one at a single workload, and the one at what would be sooner.
LOOK_SECONDS, ALONE_SECONDS = 3.0, 1.0
#: Who listens is told of what differs by more than this.
_DIFFERS_SECONDS = 60.0


class Foreseeing:
    """What the last look has found, and the next one."""

    def __init__(self) -> None:
        self._known: Foresight | None = None
        self._revision, self._made_at = -1, float("-inf")
        self._task: asyncio.Task[None] | None = None
        self._rest_seconds = 0.0
        self._alone = asyncio.Lock()
        #: Of the state of now: what was found of one workload by itself.
        self._of_one: dict[int, tuple[Expected | None, tuple[SoonerView, ...]]] = {}
        self._of_one_revision = -1

    def known(self, loop: Loop) -> Foresight | None:
        """What was found last. Where that is of another state a new look begins, if none is under way."""
        is_old = loop.world.revision != self._revision or loop.now() >= self._made_at + OLD_SECONDS
        if loop.world.line and is_old and self._task is None:
            self._task = asyncio.create_task(self._look(loop))
        return self._known

    async def of_one(self, loop: Loop, it: Workload) -> tuple[Expected | None, tuple[SoonerView, ...]]:
        """When one that waits is expected to start as things are now, and what would let it start sooner."""
        if it.state is not State.QUEUED:
            return None, ()
        async with self._alone:  # whoever asks for many asks for one after the other
            world, now = loop.world, loop.now()
            if self._of_one_revision != world.revision:
                self._of_one, self._of_one_revision = {}, world.revision
            known = self._of_one.get(it.id)
            if known is None and it.id in world.workloads:
                # A copy, made here: what the thread finds out on its way it keeps for itself.
                known = await asyncio.to_thread(_alone, world.copy(), world.workloads[it.id], now)
                if self._of_one_revision == loop.world.revision:
                    self._of_one[it.id] = known
        return known or (None, ())

    def close(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()

    async def _look(self, loop: Loop) -> None:
        try:
            await asyncio.sleep(self._rest_seconds)
            world, now, begun = loop.world, loop.now(), time.monotonic()
            found = await asyncio.to_thread(foresee, world.copy(), now, is_over=_after(LOOK_SECONDS))
            self._rest_seconds = max(LEAST_REST_SECONDS, RESTS * (time.monotonic() - begun))
            before, self._known = self._known, found
            self._revision, self._made_at, loop.moment = world.revision, now, None
            if _differs(before, found, now):
                loop.publisher.look(loop.world.revision)
        except Exception:  # a fault of ours: the documents go without
            log.exception("cannot look ahead")
            self._rest_seconds = OLD_SECONDS
        finally:
            self._task = None


def _alone(world: World, it: Workload, now: float) -> tuple[Expected | None, tuple[SoonerView, ...]]:
    expected = foresee(world, now, [it.id], is_over=_after(ALONE_SECONDS)).of(it.id, now)
    if expected is None:
        return None, ()
    is_over = _after(ALONE_SECONDS)
    return expected, sooner(world, it, now, expected, lambda: is_over(1))


def _after(seconds: float) -> Callable[[int], bool]:
    """Whether the first of two runs has had its half of the time, or the second the rest."""
    begun = time.monotonic()
    return lambda run: time.monotonic() > begun + seconds * (run + 1) / 2


def _differs(before: Foresight | None, after: Foresight, now: float) -> bool:
    """Whether those that listen should hear of it: who starts, or does not wait any more, they hear of anyway."""
    for id_ in after.starts:
        known, found = None if before is None else before.of(id_, now), after.of(id_, now)
        if known is None or found is None or (known.until_at is None) is not (found.until_at is None):
            return True
        if abs(known.from_at - found.from_at) > _DIFFERS_SECONDS:
            return True
        if abs((known.until_at or 0.0) - (found.until_at or 0.0)) > _DIFFERS_SECONDS:
            return True
    return False
