"""What the broker sees beside the world, and shows with it: set by the app once the parts are there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..model import Card, DriverView, IsolationView


@dataclass
class Sights:
    """Asked each time, since all of it may change."""

    cards: Callable[[], tuple[Card, ...]] = tuple
    driver: Callable[[], DriverView | None] = lambda: None
    isolation: Callable[[], IsolationView | None] = lambda: None
    warnings: Callable[[], tuple[str, ...]] = tuple
