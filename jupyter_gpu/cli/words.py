"""What people write on the command line: numbers of workloads and of GPUs, queues, lengths of time, amounts of memory.

What cannot be meant is refused with a sentence, and the Tab key is answered here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click

from ..errors import InvalidAsk
from .base import Face

if TYPE_CHECKING:
    from ..client import Client

    # Generic for the type checker; not yet at run time, in the oldest click that we take.
    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType

_MOST_DIGITS = 10
_BARE = re.compile(r"\+?\d+(\.\d+)?")


def complete(ctx: click.Context, ask: Callable[[Client], Iterable[str]], incomplete: str) -> list[Any]:
    """Answer the Tab key: quickly and silently, from a broker that runs already."""
    from click.shell_completion import CompletionItem

    # A group that was not entered, as while completing, has made no Face.
    face = ctx.find_object(Face) or Face()
    try:
        found = ask(face.connect(start=False))
        return [CompletionItem(word) for word in found if word.startswith(incomplete)]
    except Exception:  # noqa: BLE001 - whatever it is, it must not be written over the line that is being typed
        return []


class WorkloadId(ParamType):
    """The number of a workload."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read 12, or #12 as people write it."""
        text = str(value).removeprefix("#")
        if not (text.isascii() and text.isdigit() and 0 < int(text[:20]) < 2**63):
            self.fail(f"{str(value)!r} is no number of a workload; `jupyter gpu queue` lists them.", param, ctx)
        return int(text)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:  # noqa: ARG002
        """Offer the workloads in the queue."""
        return complete(ctx, lambda client: [str(it.id) for it in client.status().workloads], incomplete)


class WorkloadIds(ParamType):
    """Numbers of workloads in one word: 12,13. They are read where they are put together."""

    name = "id[,id]"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:  # noqa: ARG002
        """Offer the workloads in the queue, also behind a comma."""
        before, comma, _ = incomplete.rpartition(",")
        return complete(ctx, lambda client: [f"{before}{comma}{it.id}" for it in client.status().workloads], incomplete)


class DeviceName(ParamType):
    """A GPU by its number or UUID."""

    name = "gpu"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:  # noqa: ARG002
        """Offer the UUIDs."""
        return complete(ctx, lambda client: [it.uuid for it in client.status().devices], incomplete)


class QueueName(ParamType):
    """A queue."""

    name = "queue"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:  # noqa: ARG002
        """Offer the queues."""
        return complete(ctx, lambda client: list(client.status().waiting), incomplete)


class Seconds(ParamType):
    """A length of time."""

    name = "length"

    def __init__(self, what: str, *, allow_zero: bool = False) -> None:
        self.what = what
        self.allow_zero = allow_zero

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:  # noqa: ARG002
        """Read "2h"; what cannot be meant is refused with its sentence."""
        return value if isinstance(value, int) else read_length(value, what=self.what, allow_zero=self.allow_zero)


def read_length(text: str, *, what: str, allow_zero: bool = False) -> int:
    """Read a length of time as seconds. A bare 5 is minutes to who comes from Slurm, so its unit must be said."""
    from ..units import parse_seconds

    if (number := _without_unit(text)) is not None:
        raise InvalidAsk(f"The {what} {text!r} has no unit.", hint=f"Say {number}s, {number}m or {number}h.")
    return parse_seconds(text, what=what, allow_zero=allow_zero)


def _without_unit(text: str) -> str | None:
    """The number, where it is one and nothing else. Of zero no unit is asked."""
    number = text.strip()
    return number.removeprefix("+") if _BARE.fullmatch(number) and float(number) > 0 else None


class Size(ParamType):
    """An amount of memory."""

    name = "size"

    def __init__(self, what: str) -> None:
        self.what = what

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:  # noqa: ARG002
        """Read "20GiB"; what cannot be meant is refused with its sentence."""
        return value if isinstance(value, int) else read_amount(value, what=self.what)


def read_amount(text: str, *, what: str) -> int:
    """Read an amount of memory as bytes. A bare 5 is meant as something larger than bytes, so its unit must be said."""
    from ..units import parse_bytes

    if (number := _without_unit(text)) is not None:
        raise InvalidAsk(f"The {what} {text!r} has no unit.", hint=f"Say {number}GiB, or {number}MiB.")
    return parse_bytes(text, what=what)


class Count(ParamType):
    """A number of GPUs."""

    name = "n"

    def __init__(self, least: int) -> None:
        self.least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read 2; words are refused with what to write instead."""
        text = str(value)
        if not (text.isascii() and text.isdigit() and len(text) < _MOST_DIGITS):
            self.fail(f"{text!r} is no number of GPUs; write it in digits, such as 2.", param, ctx)
        if int(text) < self.least:
            self.fail(f"{text!r} is too few; the least is {self.least}.", param, ctx)
        return int(text)
