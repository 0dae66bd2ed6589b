"""The table: every row does what it says, every missing row refuses, and an event changes nothing else."""

from __future__ import annotations

import itertools

import pytest

from jupyter_gpu.core.events import (
    Amended,
    Ended,
    Event,
    Evicted,
    Granted,
    Moved,
    OfWorkload,
    Overdue,
    Released,
    Requeued,
    Started,
    Submitted,
)
from jupyter_gpu.core.lifecycle import TABLE, evolve, fold, next_state
from jupyter_gpu.errors import Conflict
from jupyter_gpu.model import EndReason, EvictionReason, Lease, Outcome, State, WaitingReason, World
from tests.world import BEGIN, DONE, KERNEL, Play, a_job, a_world, differences, refolded

EVENTS = (Submitted, Granted, Started, Amended, Moved, Released, Evicted, Overdue, Requeued, Ended)
STATES = (None, *State)


def an_event(kind: type[Event], world: World) -> Event:
    """One event of each kind about workload 1."""
    at = BEGIN + 60
    it = world.workloads.get(1) or Play(1).world.workloads.get(1)
    if kind is Submitted:
        play = Play(1)
        play.do(a_job(paused=True))
        return Submitted(at=at, it=it or play[1])
    words = {
        Granted: {"lease": Lease(devices=("gpu-0",), pool="local", granted_at=at)},
        Started: {"attempt": 1, "holder": KERNEL},
        Amended: {"by": "ada", "priority": 1},
        Moved: {"holder": KERNEL},
        Released: {"outcome": DONE},
        Evicted: {"reason": EvictionReason.PREEMPTED, "yield_by": at + 120},
        Overdue: {},
        Requeued: {"cause": "preempted"},
        Ended: {"end": EndReason.SUCCEEDED},
    }[kind]
    return kind(at=at, workload=1, **words)


def a_world_with_one(state: State | None) -> World:
    """A world whose workload 1 stands in this state."""
    play = Play(1)
    if state is None:
        return play.world
    play.job(paused=True)
    if state is not State.QUEUED:
        evolve(play.world, an_event(Granted, play.world))
    if state in (State.YIELDING, State.ENDED):
        evolve(play.world, an_event(Evicted, play.world))
    if state is State.ENDED:
        evolve(play.world, an_event(Ended, play.world))
    assert play[1].state is state
    return play.world


@pytest.mark.parametrize(("state", "kind"), [row for row in TABLE if row[0] is not None], ids=str)
def test_every_row_leads_where_it_says(state, kind):
    """An event in a state that has a row for it leads to the state of that row."""
    world = a_world_with_one(state)

    evolve(world, an_event(kind, world))

    assert world.workloads[1].state is TABLE[state, kind]
    assert world.check() == [] or kind is Amended


def test_the_first_row_makes_a_queued_workload():
    """*Submitted* brings a workload into the world, queued and with a reason."""
    world = a_world(1)

    evolve(world, an_event(Submitted, world))

    assert world.workloads[1].state is State.QUEUED
    assert world.workloads[1].waiting is WaitingReason.PAUSED


MISSING = [pair for pair in itertools.product(STATES, EVENTS) if pair not in TABLE]


@pytest.mark.parametrize(("state", "kind"), MISSING, ids=str)
def test_every_missing_row_refuses_and_changes_nothing(state, kind):
    """What is not in the table does not happen: Conflict, and the world is as it was."""
    world = a_world_with_one(state)
    before, revision = dict(world.workloads), world.revision

    with pytest.raises(Conflict):
        evolve(world, an_event(kind, world))

    assert (world.workloads, world.revision) == (before, revision)
    with pytest.raises(Conflict, match="cannot be"):
        next_state(state, kind)


def test_the_table_is_the_contract():
    """The rows are these and no others: three for new and ended, the rest as the design draws them."""
    drawn = {state: {kind.__name__ for at, kind in TABLE if at is state} for state in STATES}

    assert drawn == {
        None: {"Submitted"},
        State.QUEUED: {"Granted", "Amended", "Moved", "Evicted", "Ended"},
        State.ACTIVE: {"Started", "Amended", "Moved", "Released", "Evicted"},
        State.YIELDING: {"Released", "Evicted", "Overdue", "Requeued", "Ended"},
        State.ENDED: set(),
    }


def test_an_event_about_nobody_is_refused():
    """There is no life without a *submitted*."""
    with pytest.raises(Conflict, match="no workload 7"):
        evolve(a_world(1), Overdue(at=BEGIN, workload=7))


def test_every_event_of_a_workload_has_a_change():
    """No event type was added without saying what it changes."""
    kinds = {kind for _, kind in TABLE if issubclass(kind, OfWorkload)}

    assert kinds == set(OfWorkload.__subclasses__())


def test_eviction_of_queued_work_leaves_it_without_a_lease():
    """Footnote 1: work that an engine has already may be evicted from the line, and only then yields without a lease.

    How an earlier attempt went does not count as its outcome.
    """
    play = Play(1)
    id_ = play.running()
    play.exit(id_, Outcome(end=EndReason.LAUNCH_FAILED, engine_fault=True))
    assert play[id_].outcome is not None

    evolve(play.world, an_event(Evicted, play.world))

    assert play[id_].state is State.YIELDING
    assert (play[id_].lease, play[id_].outcome) == (None, None)
    assert play.world.check() == []


def test_yield_by_only_ever_comes_closer():
    """A second eviction may shorten the grace, never lengthen it."""
    world = a_world_with_one(State.YIELDING)
    later = Evicted(at=BEGIN + 70, workload=1, reason=EvictionReason.CANCELLED, yield_by=BEGIN + 999)

    evolve(world, later)

    assert world.workloads[1].yield_by == BEGIN + 180
    assert world.workloads[1].eviction is EvictionReason.CANCELLED
    assert world.workloads[1].evicted_at == BEGIN + 60


def test_folding_the_log_gives_the_world():
    """Two ways to one truth: the world that was evolved, and the events from nothing."""
    play = Play(2)
    first = play.running(seconds=7200)
    play.reservation()
    play.job("cleo", devices=2)
    play.later(3600)
    play.exit(first)
    play.later(100)

    assert differences(play.world, refolded(play)) == []
    assert fold(World(), []).revision == 0
