"""What would let a workload start sooner than it is expected to."""

from __future__ import annotations

import msgspec


class SoonerView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Another ask that the planner would start sooner if it were made now instead; what is None stays as it is."""

    devices: int | None = None
    #: Empty is any class.
    device_class: str | None = None
    queue: str | None = None
    duration_seconds: int | None = None
    expected_start_from: float
    expected_start_until: float
