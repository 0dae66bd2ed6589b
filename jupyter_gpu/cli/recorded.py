"""What `show` tells of the record of a job: what was written down at its submission, and what each attempt came to."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ..errors import GpuError
from ..units import format_seconds
from .text import plural, safe, shell_word, took, unpacked

if TYPE_CHECKING:
    from ..model import AttemptView, JobSpec, WorkloadView
    from .base import Face

_SHORT = 12


def surroundings(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """What it was given beside its command: parameters, variables, a container, who is told."""
    if spec.parameters:
        yield "parameters", safe(", ".join(f"{name}={value!r}" for name, value in spec.parameters.items()))
    if spec.environment:
        yield "variables", safe(", ".join(sorted(map(unpacked, spec.environment))))
    if spec.image is not None:
        engine = f", by {spec.container_engine}" if spec.container_engine else ""
        mounts = f", with {', '.join(map(unpacked, spec.mounts))}" if spec.mounts else ""
        yield "image", safe(f"{spec.image}{engine}{mounts}")
    if spec.hang_seconds is not None:
        yield "hangs", f"after {format_seconds(spec.hang_seconds)} without a sign of life"
    if spec.notify:
        yield "tells", told_text(spec)


def told_text(spec: JobSpec) -> str:
    """Say who is told of it, and of what."""
    return safe(", ".join(spec.notify) + (f", of: {', '.join(spec.notify_on)}" if spec.notify_on else ""))


def results(it: WorkloadView) -> Iterator[tuple[str, str]]:
    """Where the results of a notebook are, or will be."""
    from ..notebooks import BY_JOB, numbered

    spec = it.spec
    if spec is None or "output_notebook" not in spec.recorded:
        return
    found = unpacked(spec.recorded["output_notebook"])
    if BY_JOB in spec.argv:
        found = numbered(found, str(it.id))
    yield "results", shell_word(os.path.join(unpacked(spec.folder), found))  # noqa: PTH118 - text, as argv is


def record(it: WorkloadView) -> Iterator[tuple[str, str]]:
    """The state of its folder, its Python and its machine at the submission."""
    if it.spec is None:
        return
    words = {name: safe(unpacked(value)) for name, value in it.spec.recorded.items()}
    if commit := words.get("git_commit"):
        branch = f" of {words['git_branch']}" if "git_branch" in words else ""
        remote = f", {words['git_remote']}" if "git_remote" in words else ""
        yield "commit", f"{commit[:_SHORT]}{branch}{remote}"
    if words.get("git_dirty", "no") != "no":
        kept = f": `jupyter gpu show {it.id} --diff`" if "diff" in it.spec.kept else ""
        yield "changes", f"{words['git_dirty']}{kept}"
    if "git_note" in words:
        yield "git", words["git_note"]
    if python := words.get("python"):
        version = f", {words['python_version']}" if "python_version" in words else ""
        count = words.get("packages", "")
        packages = f", {plural(int(count), 'package')}" if count.isdecimal() else ""
        yield "Python", f"{shell_word(python)}{version}{packages}"
    if "platform" in words:
        yield "system", words["platform"]
    if "record_left_out" in words:
        yield "not kept", f"{words['record_left_out']}, for want of room"
    if "again" in words:
        yield "again", f"from what was kept of job {words['again']}"


def place(face: Face, it: WorkloadView) -> Iterator[tuple[str, str]]:
    """Where it stands among others: an array, what it comes after, a calendar."""
    if it.member is not None:
        most = f", at most {it.member.at_most} at once" if it.member.at_most is not None else ""
        own = ", ".join(f"{name}={value}" for name, value in it.member.parameters.items())
        yield (
            "array",
            safe(f"{it.member.index} of {it.member.of} of array {it.member.array}{most}" + (own and f": {own}")),
        )
    if it.after:
        waits = set(it.unmet)
        yield (
            "comes after",
            ", ".join(
                _parent(face, to.workload)
                + (" (must succeed)" if to.ok else "")
                + (", not over" if to.workload in waits else "")
                for to in it.after
            ),
        )
    if it.recurring is not None:
        yield "comes by", f"the calendar of recurring job {it.recurring}"


def _parent(face: Face, number: int) -> str:
    """Name whom a job comes after: the number of an array's first means all of the array."""
    try:
        member = face.client.workload(number).member
    except GpuError:  # it may be forgotten
        member = None
    return f"array {number}" if member is not None and member.array == number else f"job {number}"


def attempts(face: Face, it: WorkloadView) -> Iterator[str]:
    """A line for each attempt, where there is more than one or it waits for the next; none where nobody tells them."""
    if it.attempt > 1 or (it.attempt == 1 and it.state == "queued"):
        try:
            found = face.client.attempts(it.id)
        except GpuError:
            return
        yield from _lines(found, face.now())


def _lines(found: Iterable[AttemptView], now: float) -> Iterator[str]:
    from .text import moment

    for it in found:
        length = took(max(0.0, (now if it.ended_at is None else it.ended_at) - it.started_at))
        if it.ended_at is None:
            how = f"runs for {length}"
        elif it.eviction is not None:
            by = f" for {it.evicted_for}" if it.evicted_for is not None else ""
            how = f"{it.eviction}{by} after {length}"
        else:
            how = f"{'ended' if it.outcome is None else it.outcome.end} after {length}"
        again = f"; repeated {took(it.repeated_seconds)} of work" if it.repeated_seconds else ""
        yield f"{it.attempt}  {moment(it.started_at, now)}  {how}{again}"
