"""`jupyter gpu hold`: capacity that is withheld for courses, for teams, for people, for maintenance."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from .base import Face, for_each, json_option
from .when import parse_instant
from .words import Count, DeviceName, Seconds

if TYPE_CHECKING:
    from rich.table import Table

    from ..model import HoldView

_EXAMPLES = """\b
Examples:
  jupyter gpu hold
  jupyter gpu hold add ml101 --for-team ml101 --devices 4 --every tue 10:00-12:00 --no-show 15m
  jupyter gpu hold add works --maintenance --on 0 --on 1 --from "tomorrow 7:00" --to "tomorrow 9:00"
  jupyter gpu hold remove 15
"""
_ADD_EXAMPLES = """\b
Examples:
  jupyter gpu hold add ml101 --for-team ml101 --devices 4 --every tue 10:00-12:00 --until 2027-02-01
  jupyter gpu hold add thesis --for-user ada --devices 1 --from "mon 9:00" --to "fri 18:00"
"""
_HOURS = re.compile(r"\d{1,2}:\d{2}\s*-\s*\d{1,2}:\d{2}")


class _Hold(click.Command):
    """What follows `add` are words of its own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Set the words of `add` aside, as they were given."""
        at = next((at for at, word in enumerate(args) if not word.startswith("-")), None)
        if at is not None and args[at] == "add":
            ctx.meta["jupyter_gpu.words"] = tuple(args[at + 1 :])
            args = args[: at + 1]
        return super().parse_args(ctx, args)


@click.command(
    cls=_Hold, short_help="List, add or remove holds: for courses, for teams, for maintenance.", epilog=_EXAMPLES
)
@click.argument("what", type=click.Choice(["list", "add", "remove"]), default="list", metavar="[list|add|remove]")
@click.argument("numbers", type=Count(1), nargs=-1, metavar="[ID...]")
@json_option
@click.pass_context
def hold(ctx: click.Context, what: str, numbers: tuple[int, ...]) -> int:
    """List what is withheld from whom and when. Operators add holds and remove them by their numbers.

    `hold add --help` tells what is taken. Holds of the policy file have no number: they are changed there.
    """
    face = ctx.find_object(Face) or Face()
    if what == "add":
        with _add.make_context("add", list(ctx.meta.get("jupyter_gpu.words", ())), parent=ctx) as own:
            return int(_add.invoke(own) or 0)
    if what == "list":
        if numbers:
            raise click.UsageError("list takes no numbers: it shows all holds.", ctx)
        return _list(face)
    if not numbers:
        raise click.UsageError("Which? Write `jupyter gpu hold remove ID`.", ctx)
    return _remove(face, numbers)


class _Add(click.Command):
    """`--every tue 10:00-12:00` is two words for one option, as people write it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Join the days with the hours that follow them."""
        for at in range(len(args) - 2, 0, -1):
            if args[at - 1] == "--every" and _HOURS.fullmatch(args[at + 1]):
                args[at : at + 2] = [f"{args[at]} {args[at + 1]}"]
        return super().parse_args(ctx, args)


@click.command(cls=_Add, short_help="Withhold GPUs.", epilog=_ADD_EXAMPLES)
@click.argument("name")
@click.option("--for-team", "teams", multiple=True, metavar="TEAM", help="Who is placed against it; may be repeated.")
@click.option("--for-user", "users", multiple=True, metavar="USER", help="Likewise, one person.")
@click.option("--maintenance", is_flag=True, help="Nobody is placed against it.")
@click.option("--devices", "count", type=Count(1), metavar="N", help="How many GPUs; which is decided late.")
@click.option("--class", "device_class", metavar="CLASS", help="The kind of GPU, as `devices` names it.")
@click.option("--on", type=DeviceName(), multiple=True, metavar="GPU", help="This one; repeat it for several.")
@click.option("--every", metavar="DAYS HOURS", help="Each week: tue 10:00-12:00, mon-fri 9:00-17:00, daily 22:00-6:00.")
@click.option("--zone", metavar="ZONE", help="Whose days and hours: Europe/Amsterdam. The broker's if not given.")
@click.option("--until", metavar="WHEN", help="No window begins then or later: a date, or a date and time.")
@click.option("--from", "begin", metavar="WHEN", help="Once, from then on; now if not given.")
@click.option("--to", "end", metavar="WHEN", help="Until then.")
@click.option("--no-show", type=Seconds("no-show time"), help="Given back when nobody came so long after a beginning.")
@json_option
@click.pass_context
def _add(ctx: click.Context, /, **words: Any) -> int:
    """Withhold GPUs each week (--every), or once (--from, --to), for teams, for users, or for maintenance.

    Nothing of others starts on them that would still be there when a window begins; jobs are told a grace before it.
    """
    face = ctx.find_object(Face) or Face()
    _refuse_mixtures(ctx, words)
    it = face.client.add_hold(_body(face, words), uuid.uuid4().hex)
    if face.as_json:
        face.document(it)
    else:
        _tell(face, it)
    return 0


def _refuse_mixtures(ctx: click.Context, words: dict[str, Any]) -> None:
    for is_wrong, said in (
        (
            bool(words["teams"] or words["users"]) is words["maintenance"],
            "For whom? Write --for-team, --for-user, or --maintenance.",
        ),
        (bool(words["on"]) is (words["count"] is not None), "What? Write --devices N, or --on GPU for each."),
        ((words["every"] is None) is (words["end"] is None), "When? Write --every DAYS HOURS, or --from and --to."),
        (words["every"] is not None and words["begin"] is not None, "--every says when: leave --from out."),
        (words["every"] is None and words["until"] is not None, "--until ends what comes --every week."),
        (words["every"] is None and words["zone"] is not None, "--zone is of the hours of --every."),
    ):
        if is_wrong:
            raise click.UsageError(said, ctx)


def _body(face: Face, words: dict[str, Any]) -> Any:
    from ..model import HoldBody

    def instant(text: str | None) -> float | None:
        return None if text is None else parse_instant(text, face.now())

    is_weekly = words["every"] is not None
    return HoldBody(
        name=words["name"],
        users=words["users"],
        teams=words["teams"],
        maintenance=words["maintenance"],
        count=words["count"] or 0,
        device_class=words["device_class"],
        devices=words["on"],
        from_at=None if is_weekly else instant(words["begin"]) or face.now(),
        until_at=instant(words["end"]),
        every=words["every"],
        timezone=words["zone"],
        until=instant(words["until"]),
        no_show_seconds=words["no_show"],
    )


def _tell(face: Face, it: HoldView) -> None:
    from .coming import held_what, span, whose
    from .text import safe, sentence

    again = f", {safe(it.every)} in {safe(it.timezone)}" if it.every else ""
    when = span(it.from_at, it.until_at, face.now())
    face.say(f"Hold {it.id} ({whose(it)}) withholds {held_what(it)}; next: {when}{again}.")
    for warning in it.warnings:
        face.say(sentence(warning))


def _list(face: Face) -> int:
    from ..model import HoldPage
    from .text import sentence

    items = face.client.holds()
    if face.as_json:
        face.document(HoldPage(items=items))
    elif not items:
        face.say("Nothing is withheld. `jupyter gpu hold add --help` tells how an operator does that.")
    else:
        face.say(_table(items, face.now()))
        for it in items:
            for warning in it.warnings:
                face.say(f"Hold {it.id}: {sentence(warning)}")
    return 0


def _table(items: Sequence[HoldView], now: float) -> Table:
    from .coming import held_what, span, whose
    from .tables import make_table
    from .text import safe

    table = make_table(">ID", "what", "next", "every", last="whose")
    for it in items:
        when = "given back" if it.given_back else span(it.from_at, it.until_at, now)
        number = "policy" if it.id is None else str(it.id)
        every = f"{safe(it.every)} ({safe(it.timezone)})" if it.every else ""
        table.add_row(number, held_what(it), when, every, whose(it))
    return table


def _remove(face: Face, numbers: Sequence[int]) -> int:
    from ..model import HoldPage
    from .text import safe

    def one(number: int) -> HoldView:
        it = face.client.remove_hold(number)
        if not face.as_json:
            face.say(f"Hold {it.id} ({safe(it.name)}) is removed; what it withheld goes to the line.")
        return it

    done, code = for_each(face, dict.fromkeys(numbers), one)
    if face.as_json and done:
        face.document(HoldPage(items=tuple(done)))
    return code
