"""Whom the planner moves, against brute force over every set of those who may go; and that it never goes round."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from jupyter_gpu.core.events import Evicted, Granted
from jupyter_gpu.errors import LimitExceeded
from jupyter_gpu.model import (
    Cancel,
    EvictionReason,
    LoadPolicy,
    Policy,
    QuotaRule,
    Release,
    SharingRule,
    State,
    WaitingReason,
)
from jupyter_gpu.model.queues import DEFERRED, INTERACTIVE, TRAINING
from tests.core import oracle, oracle_victims
from tests.world import GIB, HOUR, SAVED, Play, a_device

_replace = msgspec.structs.replace
TEAMS = {"vision": ("ada", "bob"), "speech": ("cleo", "dan")}
USERS = ("ada", "bob", "cleo", "dan", "zoe")
PARTS = (20 * GIB, 50 * GIB)

a_part = st.one_of(st.none(), st.none(), st.sampled_from(PARTS))
shapes = st.tuples(
    st.sampled_from(USERS),
    st.sampled_from(("training", "deferred", "interactive")),
    st.integers(1, 2),
    a_part,
    st.integers(0, 3) | st.just(40),
)


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    """Shares of teams and queues, budgets, who may preempt, in all combinations."""
    quotas = [QuotaRule(team=team, share_devices=draw(st.integers(0, 2))) for team in TEAMS if draw(st.booleans())]
    if draw(st.booleans()):
        quotas.append(QuotaRule(user=draw(st.sampled_from(USERS)), gpu_hours=1))
    own = st.one_of(st.none(), st.integers(0, 2))
    queues = (
        INTERACTIVE,
        _replace(
            TRAINING, share_devices=draw(own), preempted_by=draw(st.sampled_from((None, None, ("interactive",), ())))
        ),
        _replace(DEFERRED, share_devices=draw(own)),
    )
    return Policy(quotas=tuple(quotas), queues=queues, teams=TEAMS, sharing=(SharingRule(device_class="l4"),))


def submitted(play: Play, shape: tuple[str, str, int, int | None, int]) -> int:
    """Ask for it, as a reservation where the queue is for those."""
    owner, queue, devices, part, _ = shape
    devices = devices if part is None else 1  # one device of a node is shared
    words = {"memory_bytes": part} if part is not None else {}
    if queue == "interactive":
        return play.reservation(owner, devices=devices, seconds=HOUR, **words)
    return play.job(owner, devices=devices, queue=queue, **words)


def a_busy_lab(policy: Policy, nodes: int, jobs: list[tuple[str, str, int, int | None, int]]) -> Play:
    """Whoever found a place runs; nobody waits."""
    devices = [
        a_device(2 * node + slot, node=f"node-{node}", device_class="l4" if slot == 1 else "a100")
        for node in range(nodes)
        for slot in range(2)
    ]
    play = Play(devices, _replace(policy, queues=(INTERACTIVE, TRAINING, DEFERRED), quotas=()))
    for shape in jobs:
        id_ = submitted(play, shape)
        if play.state(id_) is State.QUEUED or play.world.yielding:
            for other in [it.id for it in play.world.queued()]:
                play.do(Cancel(workload=other, by="op"))
            for other in [it.id for it in play.world.holders() if it.state is State.YIELDING]:
                leave(play, other)
                if play.state(other) is State.QUEUED:
                    play.do(Cancel(workload=other, by="op"))
        elif play[id_].spec is not None:
            play.start(id_)
        play.now += 300 * shape[4]
    play.do(LoadPolicy(policy=policy))
    return play


@given(policies(), st.integers(1, 2), st.lists(shapes, min_size=1, max_size=6), shapes)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_who_yields_is_a_smallest_set_in_the_order_of_the_rules(policy, nodes, jobs, asked) -> None:
    """Nobody is moved in vain, nobody more than is needed, and somebody where anybody would do."""
    play = a_busy_lab(policy, nodes, jobs)
    before = play.world.copy()
    known = len(play.events)

    try:
        asker = submitted(play, asked)
    except LimitExceeded:  # what its quota could never hold waits for nobody
        assume(False)

    it = play.world.workloads[asker]
    victims = [event.workload for event in play.events[known:] if isinstance(event, Evicted)]
    probe = _replace(it, lease=None, state=State.QUEUED)
    if oracle.fits(before, probe) or it.waiting in (WaitingReason.QUOTA, WaitingReason.BUDGET):
        assert victims == []
        return
    assert oracle_victims.problems(before, probe, victims, play.now) == []


@pytest.mark.parametrize("wrong", ["all", "none", "another"])
def test_the_oracle_sees_a_wrong_choice(wrong):
    """More than is needed, nobody where somebody would do, and one out of turn."""
    play = Play(3)
    for _ in range(3):
        play.running("ada")
        play.now += 60
    play.now += HOUR
    before = play.world.copy()
    asker = play.reservation("bob")
    right = [it.id for it in play.world.holders() if it.state is State.YIELDING]
    said = {"all": [1, 2, 3], "none": [], "another": [1]}[wrong]
    probe = _replace(play[asker], state=State.QUEUED)

    assert oracle_victims.problems(before, probe, right, play.now) == []
    assert oracle_victims.problems(before, probe, said, play.now) != []


def test_what_leaves_for_nothing_does_not_shield_what_is_needed():
    """A team gets its share back on the card that it asks for, also where the borrower's first victim is on another."""
    quotas = (QuotaRule(team="vision", share_devices=1), QuotaRule(team="speech", share_devices=1))
    play = Play([a_device(0), a_device(1, device_class="l4")], Policy(quotas=quotas, teams=TEAMS))
    wanted = play.running("cleo", device_class="a100")
    play.now += 60
    play.running("cleo", device_class="l4")
    play.later(HOUR)

    play.job("ada", device_class="a100")

    assert [it.id for it in play.world.holders() if it.state is State.YIELDING] == [wanted]


def test_a_share_comes_back_on_the_node_where_all_of_it_can_be_had():
    """One device too many on another node is not taken first, and does not keep the rest from coming back."""
    quotas = (QuotaRule(team="vision", share_devices=2), QuotaRule(team="speech", share_devices=0))
    devices = [a_device(0, node="a"), a_device(1, node="a"), a_device(2, node="b"), a_device(3, node="b")]
    play = Play(devices, Policy(quotas=quotas, teams=TEAMS))
    old = [play.running("cleo", on=("gpu-2",)), play.running("cleo", on=("gpu-3",))]
    play.now += 60
    play.running("cleo", on=("gpu-0",))
    play.reservation("zoe", on=("gpu-1",), seconds=12 * HOUR)
    play.later(HOUR)

    play.job("ada", devices=2)

    assert [it.id for it in play.world.holders() if it.state is State.YIELDING] == old


def test_a_borrower_on_another_node_does_not_keep_what_is_needed_from_being_lent():
    """Either of two could go, and only one of them would help; the first in order is not that one."""
    deferred = _replace(DEFERRED, share_devices=2)
    devices = [a_device(0, node="a"), a_device(1, node="a"), a_device(2, node="b"), a_device(3, node="b")]
    play = Play(devices, Policy(queues=(INTERACTIVE, TRAINING, deferred)))
    wide = play.running("ada", devices=2, queue="deferred", on=("gpu-2", "gpu-3"))
    play.running("ada", queue="deferred", on=("gpu-0",))
    play.reservation("zoe", on=("gpu-1",), seconds=12 * HOUR)
    play.later(HOUR)

    play.job("bob", devices=2)

    assert [it.id for it in play.world.holders() if it.state is State.YIELDING] == [wide]


# -- no ping-pong


LIVES = 20
STEPS = 150


@pytest.mark.parametrize("seed", range(LIVES))
def test_nobody_is_moved_in_circles(seed):
    """In long random lives: what was taken from a job for another goes to that one, or to one with a better claim.

    So a job that was preempted for X never gets devices that X takes from it again: between two times that X makes
    somebody yield, X has had devices; and nobody is moved within the protected time of their new attempt.
    """
    draw = random.Random(seed)
    play = Play(draw.randint(1, 4), a_random_policy(draw))
    for _ in range(STEPS):
        a_random_step(play, draw)

    granted, took = dict[int, float](), dict[int, tuple[float, set[int]]]()
    for event in play.events:
        if isinstance(event, Granted):
            granted[event.workload] = event.at
        if isinstance(event, Evicted) and event.reason is EvictionReason.PREEMPTED and event.evicted_for is not None:
            victim, better = event.workload, event.evicted_for
            protected = play.world.policy.queue(play[victim].queue).protected_seconds
            assert event.at - granted[victim] >= protected
            at, victims = took.get(better, (event.at, set()))
            assert victim not in victims or granted.get(better, -1.0) > at, f"{victim} is moved for {better} again"
            took[better] = (event.at, victims | {victim})


def a_random_policy(draw: random.Random) -> Policy:
    """Shares, budgets and rules of yielding at random."""
    quotas = [QuotaRule(team=team, share_devices=draw.randint(0, 2)) for team in TEAMS if draw.random() < 0.5]
    quotas += [QuotaRule(user="*", gpu_hours=draw.randint(1, 3), window_seconds=6 * HOUR)] * (draw.random() < 0.4)
    own = (None, None, 1)
    queues = (
        INTERACTIVE,
        _replace(TRAINING, share_devices=draw.choice(own), preempted_by=draw.choice((None, ("interactive",)))),
        _replace(DEFERRED, share_devices=draw.choice(own)),
    )
    return Policy(quotas=tuple(quotas), queues=queues, teams=TEAMS, preemptions_per_day=1000)


def a_random_step(play: Play, draw: random.Random) -> None:
    """Somebody asks, somebody ends, somebody who must yield does, or time passes."""
    play.now += draw.choice((1, 60, 400, 900))
    live = list(play.world.holders())
    yielding = [it for it in live if it.state is State.YIELDING]
    running = [it for it in live if it.state is State.ACTIVE]
    what = draw.random()
    if yielding and what < 0.4:
        leave(play, draw.choice(yielding).id)
    elif running and what < 0.5:
        leave(play, draw.choice(running).id)
    elif what < 0.8 and len(play.world.line) < 12:
        submitted(play, (draw.choice(USERS), draw.choice(("training", "deferred", "interactive")), 1, None, 0))
    else:
        play.later(draw.choice((60, 600, 1200)))
    for it in list(play.world.holders()):
        if it.spec is not None and it.started_at is None and it.state is State.ACTIVE:
            play.start(it.id)


def leave(play: Play, id_: int) -> None:
    """Save and go, or give back."""
    if play[id_].spec is not None:
        play.exit(id_, SAVED)
        return
    play.do(Release(workload=id_, by=play[id_].owner))
    play.clear(id_)
