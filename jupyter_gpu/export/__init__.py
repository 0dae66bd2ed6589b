"""A job of the record, written for another system: a pure function of what it was for each of them."""

from __future__ import annotations

from collections.abc import Callable

from .dockerfile import dockerfile
from .kubernetes import kubernetes
from .slurm import slurm
from .work import Work, work_of

#: System -> what writes the text for it.
TARGETS: dict[str, Callable[[Work], str]] = {"slurm": slurm, "kubernetes": kubernetes, "dockerfile": dockerfile}

__all__ = ["TARGETS", "Work", "work_of"]
