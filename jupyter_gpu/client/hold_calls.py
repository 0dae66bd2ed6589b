"""Calls about holds: which there are, and for operators to put and to remove one."""

from __future__ import annotations

import msgspec

from ..model import HoldBody, HoldPage, HoldView
from .calls import Call, reading

_hold = reading(HoldView)
_encode = msgspec.json.Encoder().encode


def holds() -> Call[HoldPage]:
    """GET /holds."""
    return Call("GET", "/holds", reading(HoldPage), may_repeat=True)


def add_hold(body: HoldBody, key: str) -> Call[HoldView]:
    """POST /holds. With its key it may be sent again: it stays one hold."""
    return Call("POST", "/holds", _hold, (), _encode(body), (("Idempotency-Key", key),), may_repeat=True)


def remove_hold(hold_id: int) -> Call[HoldView]:
    """DELETE /holds/ID. A second time it is not there."""
    return Call("DELETE", f"/holds/{int(hold_id)}", _hold)
