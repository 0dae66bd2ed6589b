"""Calls about the policy, for operators: the one in force, and what another one would change."""

from __future__ import annotations

import msgspec

from ..model import Policy, PolicyBody, PolicyCheckView, PolicyView
from .calls import Call, reading


def policy() -> Call[PolicyView]:
    """GET /policy."""
    return Call("GET", "/policy", reading(PolicyView), may_repeat=True)


def check_policy(wanted: Policy) -> Call[PolicyCheckView]:
    """POST /policy/check. Nothing comes of it, so it may be sent again."""
    content = msgspec.json.encode(PolicyBody(policy=wanted))
    return Call("POST", "/policy/check", reading(PolicyCheckView), (), content, may_repeat=True)
