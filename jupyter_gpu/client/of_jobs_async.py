"""What AsyncClient asks about jobs beside their lives: chains, attempts, progress, record, calendars, reports."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import TypeVar
from uuid import uuid4

from ..model import (
    AttemptView,
    CancelBody,
    ChainBody,
    Dependency,
    DryRunView,
    HoldBody,
    HoldView,
    PastJob,
    Policy,
    PolicyCheckView,
    PolicyView,
    ProgressPage,
    RecurringBody,
    RecurringView,
    ReportBy,
    ReportOf,
    ReportView,
    SubmitBody,
    WorkloadView,
)
from . import hold_calls, policy_calls
from . import job_calls as calls
from .calls import Call

T = TypeVar("T")


class AsksOfJobsAsync:
    """The half of AsyncClient that is about jobs alone."""

    @abstractmethod
    async def _send(self, call: Call[T]) -> T: ...

    async def chain(self, workload_id: int, after: Iterable[Dependency]) -> WorkloadView:
        """What a queued job comes after from now on; nothing for nothing any more."""
        return await self._send(calls.chain(workload_id, after))

    async def cancel_array(self, workload_id: int, reason: str = "") -> tuple[WorkloadView, ...]:
        """End all of an array, named by any of it, in one step; given are those that waited, then those that run."""
        return (await self._send(calls.on_array(workload_id, "cancel", CancelBody(reason=reason)))).items

    async def pause_array(self, workload_id: int) -> tuple[WorkloadView, ...]:
        """Nothing of an array that is queued must start yet; those are given."""
        return (await self._send(calls.on_array(workload_id, "pause"))).items

    async def let_go_array(self, workload_id: int) -> tuple[WorkloadView, ...]:
        """All of an array that is paused may start."""
        return (await self._send(calls.on_array(workload_id, "let-go"))).items

    async def chain_array(self, workload_id: int, after: Iterable[Dependency]) -> tuple[WorkloadView, ...]:
        """What all of an array that is queued comes after from now on."""
        return (await self._send(calls.on_array(workload_id, "chain", ChainBody(after=tuple(after))))).items

    async def attempts(self, workload_id: int) -> tuple[AttemptView, ...]:
        """All attempts of a job, oldest first, with what each had to do again."""
        return (await self._send(calls.attempts(workload_id))).items

    async def progress(self, workload_id: int, attempt: int | None = None) -> ProgressPage:
        """The curve of an attempt; of the newest unless another is named."""
        return await self._send(calls.progress(workload_id, attempt))

    async def record(self, workload_id: int, name: str) -> bytes:
        """What was kept at submission: "script", "diff", "packages", as the job's `kept` names them."""
        return await self._send(calls.record(workload_id, name))

    async def report(
        self,
        *,
        since_seconds: float | None = None,
        begin_at: float | None = None,
        end_at: float | None = None,
        by: ReportBy | str | None = None,
        of: ReportOf | str | None = None,
    ) -> ReportView:
        """What some time was spent on, the last seven days if nothing is said; of all work for operators, else yours.

        `by` gives rows of each user, team, queue or end. `of="all"` is all work for others too, whose names may be left
        out; `of="own"` yours alone.
        """
        call = calls.report(since_seconds=since_seconds, begin_at=begin_at, end_at=end_at, by=by, of=of)
        return await self._send(call)

    async def past(self) -> tuple[PastJob, ...]:
        """All that is over and held a GPU, by id: of all work for operators, else yours. A trace for `simulate`."""
        found: list[PastJob] = []
        after: int | None = 0
        while after is not None:
            page = await self._send(calls.past(after))
            found += page.items
            after = page.next
        return tuple(found)

    async def policy(self) -> PolicyView:
        """The rules in force; for operators."""
        return await self._send(policy_calls.policy())

    async def check_policy(self, wanted: Policy) -> PolicyCheckView:
        """What would change, for whom, if these rules were loaded now; for operators. Nothing of it happens."""
        return await self._send(policy_calls.check_policy(wanted))

    async def recurring(self) -> tuple[RecurringView, ...]:
        """Your recurring jobs; an operator sees all."""
        return (await self._send(calls.recurring())).items

    async def recurring_job(self, recurring_id: int) -> RecurringView:
        """One recurring job, with what it asks for and runs each time."""
        return await self._send(calls.recurring_job(recurring_id))

    async def add_recurring(
        self, body: RecurringBody, idempotency_key: str | None = None, *, keep: Iterable[str] = ()
    ) -> RecurringView:
        """Ask for a job at each instant of a calendar. `keep` as in `submit`; the same key again adds nothing."""
        return await self._send(calls.add_recurring(body, idempotency_key or uuid4().hex, keep))

    async def pause_recurring(self, recurring_id: int) -> RecurringView:
        """No more times until it is let go."""
        return await self._send(calls.on_recurring(recurring_id, "pause"))

    async def let_go_recurring(self, recurring_id: int) -> RecurringView:
        """Go on from the next instant."""
        return await self._send(calls.on_recurring(recurring_id, "let-go"))

    async def fire(self, recurring_id: int) -> WorkloadView:
        """Once more now, whatever the calendar says."""
        return await self._send(calls.fire(recurring_id))

    async def remove_recurring(self, recurring_id: int) -> RecurringView:
        """It is no more; the jobs that it led to stay."""
        return await self._send(calls.remove_recurring(recurring_id))

    async def dry_run(self, body: SubmitBody, cron: str | None = None, timezone: str | None = None) -> DryRunView:
        """What would become of an ask, also of one that comes by a calendar; nothing is asked for."""
        return await self._send(calls.dry_run(body, cron, timezone))

    async def holds(self) -> tuple[HoldView, ...]:
        """What is withheld, from when to when, and for whom."""
        return (await self._send(hold_calls.holds())).items

    async def add_hold(self, body: HoldBody, idempotency_key: str | None = None) -> HoldView:
        """For operators: withhold capacity. The same key again adds nothing."""
        return await self._send(hold_calls.add_hold(body, idempotency_key or uuid4().hex))

    async def remove_hold(self, hold_id: int) -> HoldView:
        """For operators: a hold is no more."""
        return await self._send(hold_calls.remove_hold(hold_id))
