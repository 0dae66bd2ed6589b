"""What a command was about, for who sent it."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.events import Event, RecurringChanged, RecurringPut, Submitted
from ..core.recurring import keyed
from ..model import AddRecurring, Command, FireNow, Submit, World


def about(world: World, command: Command, events: Sequence[Event]) -> int | None:
    """The number that the answer names; where nothing was added, the key was used before."""
    match command:
        case Submit():  # of an array its first
            first = (event.it.id for event in events if isinstance(event, Submitted))
            return next(first, world.keys.get((command.owner, command.idempotency_key or "")))
        case AddRecurring():
            put = next((event.it for event in events if isinstance(event, RecurringPut)), None)
            known = put or keyed(world, command.submit.owner, command.submit.idempotency_key or "")
            return None if known is None else known.id
        case FireNow():
            return next((event.last_workload for event in events if isinstance(event, RecurringChanged)), None)
        case _:
            return getattr(command, "workload", None)
