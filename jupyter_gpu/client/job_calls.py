"""What is asked about jobs beside their lives: chains, attempts, progress, record, calendars, reports. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import quote

import msgspec

from ..model import (
    AttemptPage,
    ChainBody,
    Dependency,
    DryRunView,
    PastPage,
    ProgressPage,
    RecurringBody,
    RecurringPage,
    RecurringView,
    ReportBy,
    ReportOf,
    ReportView,
    SubmitBody,
    WorkloadPage,
    WorkloadView,
)
from .calls import MANY_SECONDS, Call, reading

_encode = msgspec.json.Encoder().encode
_dry, _workload, _recurring = reading(DryRunView), reading(WorkloadView), reading(RecurringView)


def dry_run(body: SubmitBody, cron: str | None, timezone: str | None) -> Call[DryRunView]:
    """POST /workloads?dry_run=true: nothing is asked for, so it may be sent again."""
    asked = [("dry_run", "true"), ("cron", cron), ("timezone", timezone)]
    query = tuple((name, value) for name, value in asked if value is not None)
    return Call("POST", "/workloads", _dry, query, _encode(body), may_repeat=True)


def chain(workload_id: int, after: Iterable[Dependency]) -> Call[WorkloadView]:
    """POST /workloads/ID/chain."""
    content = _encode(ChainBody(after=tuple(after)))
    return Call("POST", f"/workloads/{int(workload_id)}/chain", _workload, content=content, may_repeat=True)


def on_array(workload_id: int, verb: str, body: msgspec.Struct | None = None) -> Call[WorkloadPage]:
    """POST /workloads/ID/VERB?array=true: cancel, pause, let-go, chain. What it says stays said, so it may be repeated.

    Save a cancel: a second one is told that all has ended already.
    """
    return Call(
        "POST",
        f"/workloads/{int(workload_id)}/{verb}",
        reading(WorkloadPage),
        (("array", "true"),),
        None if body is None else _encode(body),
        may_repeat=verb != "cancel",
    )


def attempts(workload_id: int) -> Call[AttemptPage]:
    """GET /workloads/ID/attempts."""
    return Call("GET", f"/workloads/{int(workload_id)}/attempts", reading(AttemptPage), may_repeat=True)


def progress(workload_id: int, attempt: int | None = None) -> Call[ProgressPage]:
    """GET /workloads/ID/progress."""
    params = () if attempt is None else (("attempt", str(int(attempt))),)
    return Call("GET", f"/workloads/{int(workload_id)}/progress", reading(ProgressPage), params, may_repeat=True)


def record(workload_id: int, name: str) -> Call[bytes]:
    """GET /workloads/ID/record/NAME: a copy that was kept at submission, byte for byte; "script" is the script's."""
    return Call("GET", f"/workloads/{int(workload_id)}/record/{quote(name, safe='')}", _bytes, may_repeat=True)


def _bytes(body: bytes, _: Mapping[str, str]) -> bytes:
    return body


def report(
    *,
    since_seconds: float | None = None,
    begin_at: float | None = None,
    end_at: float | None = None,
    by: ReportBy | str | None = None,
    of: ReportOf | str | None = None,
) -> Call[ReportView]:
    """GET /report."""
    asked = {"since": since_seconds, "from": begin_at, "to": end_at, "by": by, "of": of}
    params = tuple((name, str(value)) for name, value in asked.items() if value is not None)
    return Call("GET", "/report", reading(ReportView), params, timeout_seconds=MANY_SECONDS, may_repeat=True)


def recurring() -> Call[RecurringPage]:
    """GET /recurring."""
    return Call("GET", "/recurring", reading(RecurringPage), may_repeat=True)


def recurring_job(recurring_id: int) -> Call[RecurringView]:
    """GET /recurring/ID."""
    return Call("GET", f"/recurring/{int(recurring_id)}", _recurring, may_repeat=True)


def add_recurring(body: RecurringBody, key: str, keep: Iterable[str] = ()) -> Call[RecurringView]:
    """POST /recurring. With its key it may be sent again: it stays one calendar."""
    return Call(
        "POST",
        "/recurring",
        _recurring,
        tuple(("keep", name) for name in keep),
        _encode(body),
        (("Idempotency-Key", key),),
        may_repeat=True,
    )


def on_recurring(recurring_id: int, verb: str) -> Call[RecurringView]:
    """POST /recurring/ID/VERB: pause and let-go."""
    return Call("POST", f"/recurring/{int(recurring_id)}/{verb}", _recurring, may_repeat=True)


def fire(recurring_id: int) -> Call[WorkloadView]:
    """POST /recurring/ID/fire. A second time would be a second job, so it is not repeated by itself."""
    return Call("POST", f"/recurring/{int(recurring_id)}/fire", _workload)


def remove_recurring(recurring_id: int) -> Call[RecurringView]:
    """DELETE /recurring/ID. A second time it is not there."""
    return Call("DELETE", f"/recurring/{int(recurring_id)}", _recurring)


def past(after: int) -> Call[PastPage]:
    """GET /history: a page of what is over, as a trace has it."""
    return Call("GET", "/history", reading(PastPage), (("after", str(int(after))),), may_repeat=True)
