"""Recurring jobs: what is submitted again and again by a calendar, for its owner and for operators.

The job in it is checked as one that is submitted now: what could not run tonight is refused while somebody is there.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from ...core.recurring import found
from ...errors import NotFound
from ...model import (
    AddRecurring,
    Command,
    FireNow,
    PauseRecurring,
    Recurring,
    RecurringBody,
    RecurringPage,
    RecurringView,
    RemoveRecurring,
    Scope,
    Submit,
    WorkloadView,
)
from ..recurring import Calendar, own_timezone
from . import views
from .base import PREFIX, Base, endpoint
from .room import EACH_BYTES
from .submissions import SUBMIT_BYTES, Accepting, SubmitQuery

if TYPE_CHECKING:
    from ..loop import Loop


class RecurringJobs(Accepting):
    """/recurring."""

    @endpoint(RecurringPage, in_turn=True)
    async def get(self) -> RecurringPage:
        """Your recurring jobs; an operator sees all."""
        mine = [it for it in self.loop.world.recurring.values() if views.may_see_recurring(it, self.caller)]
        return RecurringPage(items=tuple([await show(self.loop, it) for it in mine]))

    @endpoint(
        RecurringView,
        scope=Scope.SUBMIT,
        query=SubmitQuery,
        body=RecurringBody,
        body_bytes=SUBMIT_BYTES,
        statuses=(201,),
    )
    async def post(self, query: SubmitQuery, body: RecurringBody) -> RecurringView:
        """Ask for a job at each instant of a calendar. With an Idempotency-Key a repeated ask is the same one."""
        calendar = await asyncio.to_thread(lambda: Calendar(body.cron, body.timezone or own_timezone()))
        submit = await self.check(body.job, self.request.headers.get("Idempotency-Key"), query.keep)
        submit = await self.sighted(submit)
        next_at = await asyncio.to_thread(calendar.next_after, self.loop.now())
        answer = await self.decided(_command(body, calendar, submit, next_at), submit.spec)
        self.set_header("Location", self.application.link(self.request, f"{PREFIX}/recurring/{answer.workload}"))
        return await show(self.loop, found(self.loop.world, answer.workload or 0))


class OfOne(Base):
    """A handler of one recurring job."""

    def it(self, text: str) -> Recurring:
        """The recurring job of a path, if it is the caller's or they are an operator."""
        is_number = text.isascii() and text.isdecimal() and len(text) < len(str(views.LARGEST_ID))
        it = self.loop.world.recurring.get(int(text)) if is_number else None
        if it is None or not views.may_see_recurring(it, self.caller):
            raise NotFound(f"there is no recurring job {text[:40]!a}", hint="`jupyter gpu recurring` lists yours.")
        if not self.caller.is_operator:
            self.must_have(Scope.SUBMIT)
        return it

    def take_room(self) -> None:
        """Each word to it is written down for good, so nobody says it in a loop until the disk is full."""
        self.application.room.take(self.caller.name, EACH_BYTES)

    async def change(self, it: Recurring, command: Command) -> RecurringView:
        """Have it decided, and show how it stands then."""
        await self.loop.handle(command)
        return await show(self.loop, self.loop.world.recurring.get(it.id, it))


class RecurringJob(OfOne):
    """/recurring/ID."""

    @endpoint(RecurringView, scope=None)
    async def get(self, id_: str) -> RecurringView:
        """One, with what it runs."""
        it = self.it(id_)
        found = await show(self.loop, it)
        return msgspec.structs.replace(found, ask=it.submit.ask, spec=it.submit.spec)

    @endpoint(RecurringView, scope=None)
    async def delete(self, id_: str) -> RecurringView:
        """It is no more, and the answer is how it last stood; jobs that it led to stay."""
        it = self.it(id_)
        return await self.change(it, RemoveRecurring(recurring=it.id, by=self.caller.name))


class RecurringPause(OfOne):
    """/recurring/ID/pause."""

    @endpoint(RecurringView, scope=None)
    async def post(self, id_: str) -> RecurringView:
        """No more times until it is let go."""
        it = self.it(id_)
        if not it.paused:
            self.take_room()
        return await self.change(it, PauseRecurring(recurring=it.id, by=self.caller.name, paused=True))


class RecurringLetGo(OfOne):
    """/recurring/ID/let-go."""

    @endpoint(RecurringView, scope=None)
    async def post(self, id_: str) -> RecurringView:
        """Go on from the next instant; what was missed meanwhile is not made up for."""
        it = self.it(id_)
        if not it.paused:
            return await show(self.loop, it)
        self.take_room()
        now = self.loop.now()
        next_at = await asyncio.to_thread(lambda: Calendar(it.cron, it.timezone).next_after(now))
        command = PauseRecurring(recurring=it.id, by=self.caller.name, paused=False, next_at=next_at)
        return await self.change(it, command)


class RecurringFire(OfOne):
    """/recurring/ID/fire."""

    @endpoint(WorkloadView, scope=None)
    async def post(self, id_: str) -> WorkloadView:
        """Once more now, whatever the calendar says; the answer is the job, of an array its first."""
        it = self.it(id_)
        self.loop.clockwork.take(it.submit)
        answer = await self.loop.handle(FireNow(recurring=it.id, by=self.caller.name))
        return self.show(await self.find(str(answer.workload)))


def _command(body: RecurringBody, calendar: Calendar, submit: Submit, next_at: float | None) -> AddRecurring:
    return AddRecurring(
        cron=calendar.cron,
        timezone=calendar.timezone,
        submit=submit,
        overlap=body.overlap,
        next_at=next_at,
    )


async def show(loop: Loop, it: Recurring) -> RecurringView:
    """As its owner, or an operator, sees it; with its last job, however long ago that ended."""
    submit, id_ = it.submit, it.last_workload
    last = None if id_ is None else loop.world.workloads.get(id_)
    if last is None and id_ is not None:
        last = await loop.read(lambda store: store.workload(id_))
    return RecurringView(
        id=it.id,
        owner=it.owner,
        team=submit.team or (loop.world.teams_of(it.owner) or loop.world.policy.teams_of(it.owner, submit.groups))[0],
        name=submit.name,
        command="" if submit.spec is None else submit.spec.brief(),
        cron=it.cron,
        timezone=it.timezone,
        overlap=it.overlap,
        paused=it.paused,
        added_at=it.added_at,
        next_at=it.next_at,
        last_at=it.last_at,
        last_workload=it.last_workload,
        last_state=None if last is None else last.state,
        last_end=None if last is None else last.end,
        last_detail=loop.clockwork.held.get(it.id, it.last_detail),
        times=it.times,
    )
