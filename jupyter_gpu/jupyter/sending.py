"""`submit` in a kernel: as in a terminal, and with names of the notebook for the job where a cell is sent."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, cast

import click

from ..cli.base import Face
from ..cli.submit import submit as in_a_terminal
from ..units import format_bytes
from .taking import MOST_BYTES, read_names, take_along

if TYPE_CHECKING:
    from .faces import KernelFace

_WITH = click.Option(
    ["--with", "with_names"],
    multiple=True,
    metavar="NAME[,NAME]",
    help="For %%gpu submit: what of the notebook the cell gets, as it is now; together at most "
    f"{format_bytes(MOST_BYTES)}.",
)


def _submit(**words: Any) -> Any:
    """Queue a job, after the cell that is sent was given what it is to have."""
    names = read_names(words.pop("with_names"))
    face = cast("KernelFace", click.get_current_context().find_object(Face))
    if names:
        if face.cell is None:
            raise click.UsageError("--with is for a cell: %%gpu submit --with NAME in its first line.")
        face.cell, told = take_along(face.cell, names, face.names)
        face.aside(told)
    return in_a_terminal.callback(**words) if in_a_terminal.callback is not None else None


submit = copy.copy(in_a_terminal)
submit.params = [_WITH, *in_a_terminal.params]
submit.callback = _submit
