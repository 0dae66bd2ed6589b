"""The number of the attempt that a lease is for."""

from __future__ import annotations

from ..model import Workload


def attempt_of(it: Workload) -> int:
    """The attempt that the present lease is for: the number rises when the start is seen, not at the grant."""
    return it.attempt if it.started_at is not None else it.attempt + 1
