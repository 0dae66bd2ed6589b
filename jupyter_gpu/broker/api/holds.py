"""Holds over the API: everybody sees what is withheld from them, operators put and remove."""

from __future__ import annotations

import asyncio

from ...core.holds_view import hold_view, hold_views
from ...core.withholding import found
from ...errors import InvalidAsk, NotFound
from ...model import AddHold, HoldBody, HoldPage, HoldView, RemoveHold, Scope, Span
from ..holds import Weekly, windows_of
from ..recurring import own_timezone
from . import views
from .base import PREFIX, Base, endpoint
from .bounds import LATEST_INSTANT, check_key, check_word


class Holds(Base):
    """/holds."""

    @endpoint(HoldPage, in_turn=True)
    async def get(self) -> HoldPage:
        """All holds with the window that is under way or comes next; of a contractor theirs alone."""
        moment = views.moment_of(self.loop)
        shown = hold_views(moment, self.caller)
        return HoldPage(items=tuple(it for it in shown if it.is_mine or self.caller.sees_others))

    @endpoint(HoldView, scope=Scope.OPERATE, body=HoldBody, statuses=(201,))
    async def post(self, body: HoldBody) -> HoldView:
        """Withhold capacity. With an Idempotency-Key a repeated ask is the same hold."""
        key = self.request.headers.get("Idempotency-Key")
        check_key(key)
        command = await asyncio.to_thread(_command, body, self.caller.name, key, self.loop.now())
        answer = await self.loop.handle(command)
        it = found(self.loop.world, answer.workload or 0)
        self.set_header("Location", self.application.link(self.request, f"{PREFIX}/holds/{it.id}"))
        return hold_view(views.moment_of(self.loop), it, self.caller)


class HoldHandler(Base):
    """/holds/ID."""

    @endpoint(HoldView)
    async def get(self, id_: str) -> HoldView:
        """One."""
        it = next((it for it in hold_views(views.moment_of(self.loop), self.caller) if str(it.id) == id_), None)
        if it is None or not (it.is_mine or self.caller.sees_others):
            raise NotFound(f"there is no hold {id_[:40]!a}", hint="`jupyter gpu hold` lists them.")
        return it

    @endpoint(HoldView, scope=Scope.OPERATE)
    async def delete(self, id_: str) -> HoldView:
        """It is no more, and the answer is how it last stood."""
        is_number = id_.isascii() and id_.isdecimal() and len(id_) < len(str(views.LARGEST_ID))
        it = found(self.loop.world, int(id_) if is_number else 0)
        shown = hold_view(views.moment_of(self.loop), it, self.caller)
        await self.loop.handle(RemoveHold(hold=it.id, by=self.caller.name))
        return shown


def _refuse_no_time(body: HoldBody) -> None:
    """What no calendar has cannot be shown to anybody either."""
    for word, at in (("from_at", body.from_at), ("until_at", body.until_at), ("until", body.until)):
        if at is not None and not 0 <= at <= LATEST_INSTANT:
            raise InvalidAsk(f"{word} {at} is no time that a hold can have", hint="Give Unix seconds of this century.")


def _command(body: HoldBody, by: str, key: str | None, now: float) -> AddHold:
    for word, text in (("name", body.name), ("device_class", body.device_class or ""), *_named(body)):
        check_word(word, text)
    _refuse_no_time(body)
    if not all(name.strip() for name in (*body.users, *body.teams)):
        raise InvalidAsk("a hold for nobody was meant for somebody", hint="Give the names of its users or teams.")
    is_single = body.from_at is not None or body.until_at is not None
    if is_single is (body.every is not None):
        raise InvalidAsk("a hold comes each week, or once", hint="Give its days and hours, or its beginning and end.")
    if body.maintenance is bool(body.users or body.teams):
        raise InvalidAsk(
            "a hold is for users or teams, or for maintenance", hint="Name whom it is for, or say maintenance."
        )
    every = timezone = ""
    if body.every is not None:
        weekly = Weekly(body.every, body.timezone or own_timezone())
        every, timezone = weekly.text, weekly.timezone
        windows, known_until = windows_of(weekly, body.until, now, None, since=now)
    else:
        windows, known_until = (Span(from_at=body.from_at or now, until_at=body.until_at or 0.0),), None
    return AddHold(
        name=body.name.strip(),
        by=by,
        devices=body.devices,
        count=body.count,
        device_class=body.device_class,
        users=body.users,
        teams=body.teams,
        no_show_seconds=body.no_show_seconds,
        every=every,
        timezone=timezone,
        until=body.until if every else None,
        windows=windows,
        known_until=known_until,
        idempotency_key=key,
    )


def _named(body: HoldBody) -> list[tuple[str, str]]:
    return [("devices", text) for text in (*body.devices, *body.users, *body.teams)]
