"""What somebody holds or used of a bound that concerns them."""

from __future__ import annotations

import msgspec


class QuotaView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One bound that concerns the caller: what is held or used of it, and what is left."""

    rule: str
    devices_held: int | None = None
    devices_allowed: int | None = None
    #: Of parts of shared devices.
    memory_held_bytes: int | None = None
    memory_allowed_bytes: int | None = None
    used_ms: int | None = None
    allowed_ms: int | None = None
    window_seconds: int | None = None
    available_again_at: float | None = None
