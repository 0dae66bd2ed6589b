"""Commands with more options than one list can hold: their help shows them under headings, in the order of these."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import click

#: What stands in no section of its own.
REST = "This command"


def in_section(title: str, *options: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add options, as decorators of click do, and say under which heading the help lists them."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
            # click collects what is declared on the function until a command is made of it.
            command.__click_params__[-1].section = title  # type: ignore[attr-defined]
        return command

    return add


class InSections(click.Command):
    """A command whose options stand under headings."""

    def sections(self, ctx: click.Context) -> Mapping[str, Sequence[click.Parameter]]:
        """Give the options by their headings, in the order in which they were declared; the rest is last."""
        found: dict[str, list[click.Parameter]] = {}
        for param in self.get_params(ctx):
            if isinstance(param, click.Option):
                found.setdefault(getattr(param, "section", REST), []).append(param)
        return {title: found[title] for title in [*(it for it in found if it != REST), REST] if title in found}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a list for each heading."""
        for title, params in self.sections(ctx).items():
            with formatter.section(title):
                formatter.write_dl(record for param in params if (record := param.get_help_record(ctx)) is not None)


class SpreadsWords(InSections):
    """A command with options that take all words behind them that look like theirs: `--array lr=0.1 seed=1..5`.

    What follows the first word that belongs to no option is the command that is submitted, and not looked at.
    """

    #: Option -> whether a word behind its first value is one more value of it.
    spreads: ClassVar[Mapping[str, Callable[[str], object]]] = {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Write the option before each of its words, as click reads them."""
        return super().parse_args(ctx, list(self._spread(ctx, args)))

    def _spread(self, ctx: click.Context, args: Sequence[str]) -> Iterator[str]:
        takes = {
            name: param.nargs
            for param in self.get_params(ctx)
            if isinstance(param, click.Option) and not (param.is_flag or param.count)
            for name in param.opts
        }
        place = 0
        while place < len(args) and args[place] != "--" and args[place].startswith("-") and args[place] != "-":
            word = args[place]
            name, equals, _ = word.partition("=")
            values = takes.get(word, 0)
            yield from args[place : place + 1 + values]
            place += 1 + values
            belongs = self.spreads.get(name if equals else word)
            while belongs is not None and place < len(args) and belongs(args[place]):
                yield from (name, args[place])
                place += 1
        yield from args[place:]
