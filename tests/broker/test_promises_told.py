"""What people are told of promises: an offer and until when, a no-show, a reminder, what is in the way."""

from __future__ import annotations

from jupyter_gpu.broker.alerts import Alerts
from jupyter_gpu.broker.promises_told import REMINDED_SECONDS, tell_of_promises
from jupyter_gpu.core.events import Ended, Granted
from jupyter_gpu.core.news import news_of_reservation
from jupyter_gpu.model import AddHold, Caller, Move, Release, Scope, Span
from tests.world import BEGIN, HOUR, KERNEL, Play

BOB = Caller(name="bob", account="bob", scopes=frozenset({Scope.READ, Scope.RESERVE}))
ADA = Caller(name="ada", account="ada", scopes=frozenset({Scope.READ, Scope.RESERVE}))
OPER = Caller(name="oper", account="oper", scopes=frozenset({Scope.OPERATE}))


def told(play: Play, caller: Caller) -> dict[str, str]:
    """What somebody reads now, by its key."""
    alerts = Alerts(lambda: play.now)
    tell_of_promises(alerts, play.world, play.now)
    return {it.key: it.text for it in alerts.views(caller)}


def booked(play: Play) -> int:
    """A reservation in an hour."""
    return play.reservation("bob", seconds=HOUR, not_before=BEGIN + HOUR, holder=None)


def test_who_waited_elsewhere_is_told_that_it_is_theirs_and_until_when():
    """Only they; once they have taken it there is nothing to tell."""
    play = Play(1)
    first = play.reservation("ada", seconds=HOUR)
    waits = play.reservation("bob", seconds=HOUR, holder=None)
    assert told(play, BOB) == {}
    play.do(Release(workload=first, by="ada"))
    play.clear(first)

    assert list(told(play, BOB)) == [f"offer:{waits}"]
    assert f"`jupyter gpu wait {waits}`" in told(play, BOB)[f"offer:{waits}"]
    assert "GPU 0" in told(play, BOB)[f"offer:{waits}"]
    assert told(play, ADA) == told(play, OPER) == {}
    play.do(Move(workload=waits, by="bob", holder=KERNEL))
    assert told(play, BOB) == {}


def test_it_is_passed_on_to_the_next_and_its_owner_is_told_for_an_hour():
    """It is over, not back in line: who does not come would else keep others waiting again and again."""
    play = Play(1)
    first = play.reservation("ada", seconds=HOUR)
    waits, following = play.reservation("bob", holder=None), play.reservation("cleo")
    play.do(Release(workload=first, by="ada"))
    play.clear(first)
    play.later(300)
    play.clear(waits)

    assert play.devices_of(following) == ("gpu-0",)
    assert list(told(play, BOB)) == [f"no-show:{waits}"]
    assert told(play, OPER) == {}
    play.now += HOUR + 1
    assert told(play, BOB) == {}


def test_a_reservation_for_later_is_recalled_before_it_begins():
    """So that it is used, or given up in time."""
    play = Play(1)
    it = booked(play)

    assert told(play, BOB) == {}
    play.now = BEGIN + HOUR - REMINDED_SECONDS
    assert list(told(play, BOB)) == [f"soon:{it}"]
    assert told(play, OPER) == {}


def test_what_is_in_the_way_of_a_promise_is_told_to_operators_and_to_its_owner():
    """A reservation that was there before a hold reaches into it."""
    play = Play(1)
    play.reservation("ada", seconds=2 * HOUR)
    span = Span(from_at=BEGIN + HOUR, until_at=BEGIN + 3 * HOUR)
    play.do(AddHold(name="works", by="oper", count=1, windows=(span,)))

    assert "held by reservation 1 until" in told(play, OPER)["promise:2"]
    assert told(play, BOB) == {}


def test_the_news_of_a_reservation_is_that_it_is_theirs_and_that_they_missed_it():
    """For the admin's command, which may write to people."""
    play = Play(1)
    it = booked(play)
    play.later(HOUR)
    play.later(300)
    play.clear(it)
    news = [news_of_reservation(play[it], event) for event in play.events if isinstance(event, Granted | Ended)]

    assert [one and one.what for one in news] == ["offered", "no-show"]
    assert "passed on: Nobody attached to it in time." in news[1].text
