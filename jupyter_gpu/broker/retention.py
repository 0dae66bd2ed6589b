"""What is not kept for ever: lives and logs of work that ended long ago, and copies that no job needs any more."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ..model import State, World
from ..units import format_bytes
from .engines.clearing import Cleared, clear_away, find, share_of_disk, too_large

if TYPE_CHECKING:
    from pathlib import Path

    from .api.scripts import Scripts
    from .loop import Loop

log = logging.getLogger(__name__)

DAY_SECONDS = 86_400
#: The store is asked so often at a time at most, other questions in between; the rest goes the next hour.
MOST_TURNS = 200


async def tidy(loop: Loop, scripts: Scripts, attempts: Path) -> None:
    """Let go of what the policy does not keep; a fault is told and ends nothing."""
    # Copies stay as long as logs, so that what has a log can be submitted again.
    copy_seconds = loop.world.policy.keep_log_days * DAY_SECONDS
    for what, call in (
        ("old copies of scripts", asyncio.to_thread(scripts.sweep, older_than_seconds=copy_seconds)),
        ("old logs", _clear_logs(loop, attempts)),
        ("old work", _retire(loop)),
    ):
        try:
            await call
        except Exception:  # what is in the way of tidiness must not end the broker
            log.exception("%s cannot be cleared away", what)


async def _clear_logs(loop: Loop, attempts: Path) -> Cleared:
    policy, before = loop.world.policy, loop.now() - loop.world.policy.keep_log_days * DAY_SECONDS
    most = share_of_disk(attempts) if policy.keep_log_bytes is None else policy.keep_log_bytes
    found = await asyncio.to_thread(find, attempts, lambda id_: _is_over(loop.world, id_))
    asked = too_large(found, before, most)
    owners = await loop.read(lambda store: store.owners(asked)) if asked else {}
    cleared = await asyncio.to_thread(clear_away, found, owners=owners, before=before, most_bytes=most)
    if cleared.folders:
        log.info("%s old attempts with %s were cleared away", cleared.folders, format_bytes(cleared.freed_bytes))
    return cleared


def _is_over(world: World, workload_id: int) -> bool:
    """The world keeps all that is not over; of what it knows no more, all ended long ago."""
    it = world.workloads.get(workload_id)
    return workload_id <= world.last_id if it is None else it.state is State.ENDED


async def _retire(loop: Loop) -> None:
    before = loop.now() - loop.world.policy.keep_days * DAY_SECONDS
    for _ in range(MOST_TURNS):
        if not await loop.read(lambda store: store.retire(before=before, known=loop.world.workloads)):
            return
