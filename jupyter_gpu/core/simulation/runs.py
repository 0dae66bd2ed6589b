"""What a replay leaves behind: when each job held its GPUs. All figures are made of this, alike for every policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .pool import Places
from .trace import TraceJob


@dataclass(slots=True)
class Runs:
    """Each time that a job held its GPUs, in seconds of the trace; a job that was preempted has several."""

    policy: str
    jobs: Sequence[TraceJob]
    #: How many GPUs each node has.
    nodes: Sequence[int]
    #: Which job (its place in `jobs`), from when, until when; in the order of the ends.
    spans: list[tuple[int, int, int]] = field(default_factory=list)
    #: Where each of these was; empty where the replay kept the places elsewhere.
    places: list[Places] = field(default_factory=list)
    #: Jobs that the policy never let in, or that no node could ever hold, with why.
    refused: dict[int, str] = field(default_factory=dict)
    #: How often a job had to leave before it was done.
    preemptions: int = 0


TOO_WIDE = "more GPUs than there are"


def refuse_too_wide(runs: Runs, fits: Sequence[bool] | dict[int, bool]) -> list[int]:
    """The places of the jobs that the pool can ever hold; the others are noted."""
    kept = []
    for number, job in enumerate(runs.jobs):
        if fits[job.gpus]:
            kept.append(number)
        else:
            runs.refused[number] = TOO_WIDE
    return kept
