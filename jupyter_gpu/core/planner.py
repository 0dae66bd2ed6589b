"""plan(world, now) -> events: a step of scheduling; what it does is in `one_step`, in numbered parts.

Where commands are decided one after the other in one world, a step goes on from what the one before has found out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ..model import World
from .events import Event, Submitted
from .one_step import Step

#: For so long a step may go on from what the one before has found out: what time alone brings may wait for a tick.
_REMEMBERED_SECONDS = 30.0


class Memory:
    """What the last step on a world has found out, for whoever decides one command after the other on it in place.

    Where nobody has given anything back since, and nobody's claim is another than it was, those who waited still do. So
    only who is new is looked at, with the promises that were made to those before.
    """

    def __init__(self) -> None:
        """Nothing is known: the first step looks at all."""
        self._step: Step | None = None
        self._looked_at = 0.0
        self._revision = -1
        self._came: list[int] = []

    def note(self, world: World, before: int, events: Sequence[Event]) -> None:
        """These are all the events that have happened to a world since a revision."""
        if before == self._revision and not world.booked and all(isinstance(event, Submitted) for event in events):
            self._came += [event.it.id for event in events if isinstance(event, Submitted)]
        else:
            self._step = None
        self._revision = world.revision

    def take(self, world: World, now: float) -> tuple[Step, list[int]] | None:
        """The step to go on from, and who is new since then."""
        step, came = self._step, self._came
        self._came = []
        if step is None or step.world is not world or not 0 <= now - self._looked_at <= _REMEMBERED_SECONDS:
            return None
        if any(step.stands_before_a_promise(world.workloads[id_]) for id_ in came):
            return None
        step.go_on(now)
        return step, came

    def keep(self, step: Step) -> None:
        """Remember the newest."""
        if step is not self._step:
            self._looked_at = step.now
        self._step, self._revision = step, step.world.revision


def plan(
    world: World,
    now: float,
    memory: Memory | None = None,
    first: Iterable[int] = (),
    turns_of: Collection[int] | None = None,
) -> list[Event]:
    """Give what is free to who is first, preempt where it helps, and say why the others wait.

    `first` are those for whom others have just made room: what was taken for them is theirs. Where jobs take turns,
    `turns_of` are those for whom others are looked for: who is new, and all when time is told, which is often enough.
    """
    known = None if memory is None else memory.take(world, now)
    if known is not None:
        step, came = known
        step.preemption.turns_of = turns_of
        step.greet(came)
    else:
        step = Step(world, now, turns_of)
        step.clear_the_holds()
        step.walk(first)
    step.explain()
    if memory is not None:
        memory.keep(step)
    return step.events
