"""The lab's own past as a trace: of all work for operators, of their own for everybody else."""

from __future__ import annotations

from collections import Counter

import msgspec

from ...core.events import Event
from ...core.past import Life
from ...core.simulation.history import past_job
from ...model import PastJob, PastPage
from . import views
from .base import Base, endpoint


class PastQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page: `after` is the `next` of the page before."""

    after: views.After = 0


class PastJobs(Base):
    """/history."""

    @endpoint(PastPage, query=PastQuery, in_turn=True)
    async def get(self, query: PastQuery) -> PastPage:
        """A page of what is over and held GPUs, by id, as `jupyter gpu simulate` replays it."""
        owner = None if self.caller.is_operator else self.caller.name
        window = {"begin": 0.0, "end": self.loop.now()}
        page = _Page()
        following = await self.loop.read(lambda store: store.lives(query.after, page.add, owner=owner, **window))
        return PastPage(items=tuple(page.items), next=following, left_out=dict(page.left_out))


class _Page:
    """What one look at the store gave."""

    def __init__(self) -> None:
        self.items: list[PastJob] = []
        self.left_out: Counter[str] = Counter()

    def add(self, life: Life, events: list[Event]) -> None:
        """Take a life in."""
        found = past_job(life, events)
        if isinstance(found, str):
            self.left_out[found] += 1
        else:
            self.items.append(found)
