"""`jupyter gpu recurring`: the jobs that come again and again by a calendar."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from .base import Face, for_each, json_option
from .words import ParamType, complete

if TYPE_CHECKING:
    from rich.table import Table

    from ..model import RecurringView

_EXAMPLES = """\b
Examples:
  jupyter gpu recurring add --cron "30 2 * * *" --zone Europe/Amsterdam -- python nightly.py
  jupyter gpu recurring
  jupyter gpu recurring pause 15
  jupyter gpu recurring fire 15
"""
_ACTS = ("show", "pause", "let-go", "fire", "remove")


class RecurringId(ParamType):
    """The number of a recurring job."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read 15, or #15 as people write it."""
        text = str(value).removeprefix("#")
        if not (text.isascii() and text.isdigit() and 0 < int(text[:20]) < 2**63):
            said = f"{str(value)!r} is no number of a recurring job; `jupyter gpu recurring` lists them."
            self.fail(said, param, ctx)
        return int(text)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:  # noqa: ARG002
        """Offer those that there are."""
        return complete(ctx, lambda client: [str(it.id) for it in client.recurring()], incomplete)


class _Recurring(click.Command):
    """What follows `add` are the options and the command of `submit`, and is read there."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Set the words of `add` aside, as they were given."""
        at = next((at for at, word in enumerate(args) if not word.startswith("-")), None)
        if at is not None and args[at] == "add":
            ctx.meta["jupyter_gpu.command"] = tuple(args[at + 1 :])
            args = args[: at + 1]
        return super().parse_args(ctx, args)


@click.command(cls=_Recurring, short_help="List, add or change jobs that come by a calendar.", epilog=_EXAMPLES)
@click.argument(
    "what",
    type=click.Choice(["list", "add", *_ACTS]),
    default="list",
    metavar="[list|add|show|pause|let-go|fire|remove]",
)
@click.argument("numbers", type=RecurringId(), nargs=-1, metavar="[ID...]")
@json_option
@click.pass_context
def recurring(ctx: click.Context, what: str, numbers: tuple[int, ...]) -> int:
    """List the jobs that come again and again, or change them by their numbers.

    `add` takes a calendar (--cron), its time zone (--zone, the broker's if not given) and the options and the command
    of `submit`. The calendar has five fields: minute, hour, day of the month, month, day of the week. A daily job comes
    once on each local day, also where clocks are changed; what was missed while no broker ran comes once, late.

    `show` tells all that is known of one. `pause` keeps it from coming until `let-go`, `fire` brings it once more now,
    `remove` ends it; jobs that it led to stay. `--overlap queue` at `add` lets a time wait for the end of the last one,
    where it is left out else.
    """
    face = ctx.find_object(Face) or Face()
    if what == "add":
        return _add(ctx)
    if what == "list":
        if numbers:
            raise click.UsageError("list takes no numbers: it shows all of yours.", ctx)
        return _list(face)
    if not numbers:
        raise click.UsageError(f"Which? Write `jupyter gpu recurring {what} ID`.", ctx)
    if what == "show":
        return _show(face, numbers)
    return _fire(face, numbers) if what == "fire" else _change(face, what, numbers)


def _add(ctx: click.Context) -> int:
    from .submit import submit

    words = list(ctx.meta.get("jupyter_gpu.command", ()))
    with submit.make_context("add", words, parent=ctx) as own:
        if own.params["cron"] is None:
            raise click.UsageError(
                'When does it come? Write --cron "30 2 * * *" for each night at 02:30, before the command.', own
            )
        return int(submit.invoke(own) or 0)


def _list(face: Face) -> int:
    from ..model import RecurringPage

    items = face.client.recurring()
    if face.as_json:
        face.document(RecurringPage(items=items))
    elif not items:
        face.say('Nothing recurs. `jupyter gpu recurring add --cron "30 2 * * *" -- COMMAND` adds a nightly job.')
    else:
        face.say(_table(items, face.now()))
    return 0


def _show(face: Face, numbers: Sequence[int]) -> int:
    from ..model import RecurringPage

    def one(number: int) -> RecurringView:
        it = face.client.recurring_job(number)
        if not face.as_json:
            _tell(face, it)
        return it

    done, code = for_each(face, dict.fromkeys(numbers), one)
    if face.as_json and done:
        face.document(RecurringPage(items=tuple(done)))
    return code


def _tell(face: Face, it: RecurringView) -> None:
    from .show import spec_rows, tell_rows
    from .text import ask_text, moment, plural, safe

    now = face.now()
    face.say(_title(it))
    rows = [
        ("calendar", f"{safe(it.cron)}, in the time of {safe(it.timezone)}"),
        ("next", _next(it, now)),
        ("last", _last(it, now)),
        ("so far", plural(it.times, "time")),
        ("overlap", "a time is left out while the last one is not over" if it.overlap == "skip" else "times queue up"),
        ("owner", safe(it.owner)),
        ("team", safe(it.team)),
        ("added", moment(it.added_at, now)),
    ]
    if it.ask is not None:
        rows.append(("asked for", ask_text(it.ask)))
    tell_rows(face, [*rows, *spec_rows(it.spec)])


def _table(items: Sequence[RecurringView], now: float) -> Table:
    from .tables import clip, clip_command, make_table
    from .text import safe

    whose = len({it.owner for it in items}) > 1  # an operator sees all
    table = make_table(">ID", *(["owner"] if whose else []), "calendar", "zone", "next", "name", last="the last time")
    for it in items:
        name = clip(it.name, _NAME_CELLS) if it.name else clip_command(safe(it.command), _NAME_CELLS)
        owner = [safe(it.owner)] if whose else []
        table.add_row(str(it.id), *owner, safe(it.cron), safe(it.timezone), _next(it, now), name, _last(it, now))
    return table


_NAME_CELLS = 16


def _next(it: RecurringView, now: float) -> str:
    """When it comes, by the clock on the reader's wall."""
    from ..units import format_when

    if it.paused:
        return "paused"
    if it.next_at is None:
        return "never"
    return "due" if it.next_at <= now else format_when(it.next_at, now)


def _last(it: RecurringView, now: float) -> str:
    """What the last time led to: "job 14 succeeded, Tue 02:30"; and what is to be said of it."""
    from ..units import format_when
    from .text import safe

    when = "" if it.last_at is None else f", {format_when(it.last_at, now)}"
    if it.last_workload is None:
        job = "not yet" if it.last_at is None else f"none{when}"
    else:
        job = f"job {it.last_workload} {it.last_end or it.last_state or ''}".rstrip() + when
    return job + (f": {safe(it.last_detail)}" if it.last_detail else "")


def _change(face: Face, what: str, numbers: Sequence[int]) -> int:
    from ..model import RecurringPage
    from ..units import format_when

    acts: dict[str, Callable[[int], RecurringView]] = {
        "pause": face.client.pause_recurring,
        "let-go": face.client.let_go_recurring,
        "remove": face.client.remove_recurring,
    }

    def one(number: int) -> RecurringView:
        it = acts[what](number)
        if not face.as_json:
            comes = "never" if it.next_at is None else format_when(it.next_at, face.now())
            said = {
                "pause": "is paused: it comes no more until `let-go`",
                "let-go": f"comes again; the next time: {comes}",
                "remove": "is removed; the jobs that it led to stay",
            }
            face.say(f"{_title(it)} {said[what]}.")
        return it

    done, code = for_each(face, dict.fromkeys(numbers), one)
    if face.as_json and done:
        face.document(RecurringPage(items=tuple(done)))
    return code


def _title(it: RecurringView) -> str:
    from .text import safe

    return f"Recurring job {it.id}" + (f" ({safe(it.name)})" if it.name else "")


def _fire(face: Face, numbers: Sequence[int]) -> int:
    from ..model import WorkloadPage, WorkloadView
    from .text import sentence, title

    def one(number: int) -> WorkloadView:
        it = face.client.fire(number)
        if not face.as_json:
            what = f"{title(it)[0].lower()}{title(it)[1:]}"
            face.say(" ".join(filter(None, (f"Recurring job {number} leads to {what}.", sentence(it.reason)))))
        return it

    with face.going_on("It may have come already; `jupyter gpu recurring` shows it."):
        done, code = for_each(face, dict.fromkeys(numbers), one)
    if face.as_json and done:
        face.document(WorkloadPage(items=tuple(done)))
    return code
