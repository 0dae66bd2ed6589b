"""What the broker sees beside the world, and shows with it: set by the app once the parts are there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..model import Card, DriverView, IsolationView


async def _known() -> bool:
    return True


@dataclass
class Sights:
    """Asked each time, since all of it may change."""

    cards: Callable[[], tuple[Card, ...]] = tuple
    driver: Callable[[], DriverView | None] = lambda: None
    isolation: Callable[[], IsolationView | None] = lambda: None
    warnings: Callable[[], tuple[str, ...]] = tuple
    #: In what the programs of users are run that the broker asks: see `engines.errand`.
    for_errands: Callable[[], Mapping[str, Any]] = dict
    #: Waits for the first look for devices, up to its deadline, and says whether it is known what there is.
    knows_devices: Callable[[], Awaitable[bool]] = _known
