"""The closed enums: where a workload stands, why it waits, why it was evicted, how it ended."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """Where a workload stands. Why it waits and how it ended are separate enums beside it."""

    QUEUED = "queued"
    ACTIVE = "active"
    YIELDING = "yielding"
    ENDED = "ended"


class Kind(StrEnum):
    """The two kinds of workload; there is no third."""

    RESERVATION = "reservation"
    JOB = "job"


class WaitingReason(StrEnum):
    """Why a QUEUED workload is not ACTIVE; exactly one at a time, set by the planner."""

    DEVICES = "devices"
    QUOTA = "quota"
    BUDGET = "budget"
    HOLD = "hold"
    PAUSED = "paused"
    DEPENDENCY = "dependency"
    NOT_BEFORE = "not-before"
    BACK_OFF = "back-off"
    CLEARING = "clearing"
    ENGINE = "engine"
    DRIVER = "driver"


class EvictionReason(StrEnum):
    """Why the broker ends a lease, strongest first: among evictions of one attempt the stronger wins."""

    CANCELLED = "cancelled"
    TIMED_OUT = "timed-out"
    EXPIRED = "expired"
    DEVICE_LOST = "device-lost"
    HUNG = "hung"
    DRAINED = "drained"
    ABOVE_SHARE = "above-share"
    NO_SHOW = "no-show"
    IDLE = "idle"
    PREEMPTED = "preempted"

    def is_stronger_than(self, other: EvictionReason | None) -> bool:
        """Say whether this reason replaces `other`; any reason replaces none."""
        return other is None or EVICTION_STRENGTH[self] < EVICTION_STRENGTH[other]


EVICTION_STRENGTH = {reason: place for place, reason in enumerate(EvictionReason)}


class EndReason(StrEnum):
    """How a workload ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    GPU_OOM = "gpu-oom"
    HOST_OOM = "host-oom"
    DISK_FULL = "disk-full"
    DEVICE_LOST = "device-lost"
    #: It used more of a shared device than its part, for longer than is borne.
    ABOVE_SHARE = "above-share"
    HUNG = "hung"
    TIMED_OUT = "timed-out"
    CANCELLED = "cancelled"
    LAUNCH_FAILED = "launch-failed"
    DEPENDENCY_UNMET = "dependency-unmet"
    LOST = "lost"
    RELEASED = "released"
    EXPIRED = "expired"
    ABANDONED = "abandoned"
