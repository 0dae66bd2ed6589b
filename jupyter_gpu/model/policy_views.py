"""What is said of a policy: the one in force, and what another one would change, for whom."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from .policy import Policy
from .states import Kind


class PolicyView(msgspec.Struct, frozen=True, kw_only=True):
    """The policy in force."""

    digest: str
    policy: Policy


class PolicyBody(msgspec.Struct, frozen=True, kw_only=True):
    """A policy that somebody thinks of."""

    policy: Policy


class BoundChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A bound that is another one; None is none."""

    #: Whom it binds, like "each user, queue training", and what of theirs, like "devices at once".
    whose: str
    what: str
    before: int | None = None
    after: int | None = None
    #: It allows less than before, or for what is somebody's own: it is less.
    shrinks: bool = False
    #: Of those whom it binds, who has work here now.
    users: tuple[str, ...] = ()


class PolicyEffect(StrEnum):
    """What another policy does to somebody's work; the worst first."""

    YIELDS = "yields"
    MUST_LEAVE = "must-leave"
    BORROWS = "borrows"
    WAITS = "waits"
    REFUSED = "refused"
    STARTS = "starts"
    EASES = "eases"


class PolicyAffected(msgspec.Struct, frozen=True, kw_only=True):
    """One workload that another policy affects, and how, in a sentence."""

    workload: int
    kind: Kind
    title: str
    owner: str
    team: str
    queue: str
    effect: PolicyEffect
    text: str


class PolicyCheckView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What would change, and for whom, if a policy took the place of the one in force now."""

    digest: str
    digest_now: str
    bounds: tuple[BoundChange, ...] = ()
    #: Other settings that differ, a sentence each.
    changes: tuple[str, ...] = ()
    affected: tuple[PolicyAffected, ...] = ()
    #: So many more workloads than are listed.
    more: int = 0
    #: Rules for GPUs or teams that are not there.
    warnings: tuple[str, ...] = ()
