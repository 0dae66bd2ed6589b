"""What was kept of a job at its submission: given back to its owner, and taken for a job that is submitted again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from ...errors import Conflict, InvalidAsk, NotAllowed, NotFound
from ...model import Caller, JobSpec, Kind, Script, SubmitBody, Workload
from . import views
from .base import Base, endpoint
from .bounds import too_much
from .scripts import LARGEST_BYTES, SCRIPT, read_copy, safe_name

if TYPE_CHECKING:
    from ..loop import Loop


class Record(Base):
    """/workloads/ID/record/NAME."""

    @endpoint("text/plain")
    async def get(self, id_: str, name: str) -> None:
        """What was kept of a job at its submission, byte for byte: its script, the diff, the list of packages."""
        it = await self.find(id_)
        copy = self._copy(it, name)
        if not self.application.may_hold(self.caller.name, LARGEST_BYTES):
            raise too_much(self.caller.name)
        self.held_bytes = LARGEST_BYTES
        kept = await asyncio.to_thread(read_copy, copy)
        if kept is None:
            raise NotFound(f"The {name[:40]} of {it.title} is not there any more as it was.", hint=_kept_for(self.loop))
        self._give(kept, it.id, name)

    def _copy(self, it: Workload, name: str) -> str:
        if it.owner != self.caller.name and not self.caller.is_operator:
            raise NotAllowed(f"What {it.title} runs is its owner's.", hint="Ask them.")
        copies = _copies(it.spec)
        if name not in copies:
            known = ", ".join(copies) or "nothing but what `jupyter gpu show` tells"
            raise NotFound(f"{it.title} has no {name[:40]!a} that was kept.", hint=f"Kept of it: {known}.")
        return copies[name]

    def _give(self, kept: Script, workload_id: int, name: str) -> None:
        # Nothing of it is a page, whatever it says of itself: a browser is to save it.
        self.set_header("Content-Type", "text/plain")
        file = kept.name if name == SCRIPT else f"job-{workload_id}.{name}.txt"
        self.set_header("Content-Disposition", f'attachment; filename="{safe_name(file)}"')
        self.set_header("Content-Length", str(len(kept.content)))
        self.finish(kept.content)


def _copies(spec: JobSpec | None) -> dict[str, str]:
    if spec is None:
        return {}
    return ({} if spec.script_copy is None else {SCRIPT: spec.script_copy}) | spec.kept


def _kept_for(loop: Loop) -> str:
    days = loop.world.policy.keep_log_days
    return f"Copies are kept for {days} days after a job's end here, and fewer where there are many."


async def with_copies_of(loop: Loop, body: SubmitBody, caller: Caller) -> SubmitBody:
    """Fill in the script and the record of an earlier job of the caller's, where the ask brings none of its own.

    Not of somebody else's, whoever may look at it: what one runs under one's own name one has chosen oneself.
    """
    it = await views.find(loop, str(body.again), caller)
    if body.kind is not Kind.JOB or it.kind is not Kind.JOB or it.spec is None or body.spec is None:
        raise InvalidAsk("Only a job can be submitted again.", hint="Make another reservation.")
    if it.owner != caller.name:
        raise NotAllowed(
            f"{it.title} is not yours, and would run as yours.", hint="Read its script, and submit that yourself."
        )
    script, record = body.script, body.record
    if script is None and body.spec.script_index is not None:
        if it.spec.script_copy is None:
            raise InvalidAsk(f"No script of {it.title} was kept.", hint="Leave spec.script_index out, or send one.")
        script = await asyncio.to_thread(read_copy, it.spec.script_copy)
        if script is None:
            raise Conflict(
                f"The script of {it.title} was cleared away, or changed, since it was submitted.",
                hint=f"Submit the file anew. {_kept_for(loop)}",
            )
    if not record:
        found = {name: await asyncio.to_thread(read_copy, copy) for name, copy in it.spec.kept.items()}
        record = tuple(msgspec.structs.replace(kept, name=name) for name, kept in found.items() if kept is not None)
    return msgspec.structs.replace(body, script=script, record=record)
