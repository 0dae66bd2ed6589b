"""Random lives with reservations for later and holds: promises are kept, as long as work keeps to what it stated.

Everybody here is well behaved: who must leave saves and is gone by the end of the grace, who reserved gives back when
the time is over. Then each promise is kept to the second, whatever the planner started meanwhile.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from jupyter_gpu.errors import GpuError
from jupyter_gpu.model import (
    AddHold,
    Cancel,
    Kind,
    Move,
    Policy,
    Release,
    RemoveHold,
    Span,
    State,
    Tick,
    WaitingReason,
    Workload,
)
from jupyter_gpu.model.queues import DEFERRED, INTERACTIVE, TRAINING, QueuePolicy
from tests.core import oracle_holds as oracle
from tests.world import BEGIN, DONE, HOUR, KERNEL, SAVED, Play, a_device, a_job, a_reservation, differences, refolded

FIRM = QueuePolicy(name="firm", priority=20)
TEAMS = {"course": ("eve",), "vision": ("ada",)}
POLICY = Policy(queues=(INTERACTIVE, TRAINING, DEFERRED, FIRM), teams=TEAMS, preemptions_per_day=2)
OWNERS = ("ada", "bob", "eve")
DEVICES = (a_device(0), a_device(1), a_device(2, node="far"), a_device(3, node="far", device_class="l4"))
#: So early free devices are kept for who begins soon: the longest grace, and the kill after it.
NOTICE_SECONDS = POLICY.most_grace_seconds + POLICY.kill_after_seconds

half_hours = st.integers(1, 16).map(lambda n: n * HOUR / 2)


class Promises(RuleBasedStateMachine):
    """Everything that takes and gives back devices, with promises in between."""

    @initialize(count=st.sampled_from((1, 2, 3, 4)))
    def begin(self, count):
        """A few devices."""
        self.play = Play(DEVICES[:count], POLICY)
        self.expected: set[int] = set()

    def do(self, command) -> None:
        """A refusal is an answer like any other; and it is not what breaks a promise."""
        kept = oracle.can_all_be_kept(self.play.world, self.play.now)
        try:
            self.play.do(command)
        except GpuError:
            return
        self._settle()
        if kept and not isinstance(command, AddHold) and not oracle.can_all_be_kept(self.play.world, self.play.now):
            said = [(one.name, one.begin - BEGIN) for one in oracle.promises(self.play.world, self.play.now)]
            raise AssertionError(f"{command} broke a promise: {said}, held: {self.play.holding()}")

    def _settle(self) -> None:
        """Who was granted something takes it at once."""
        play = self.play
        for it in list(play.world.holders()):
            if it.kind is Kind.RESERVATION and it.holder is None and it.state is State.ACTIVE:
                play.do(Move(workload=it.id, by=it.owner, holder=KERNEL))
            elif it.kind is Kind.JOB and it.state is State.ACTIVE and it.started_at is None:
                play.start(it.id)

    @rule(
        owner=st.sampled_from(OWNERS),
        devices=st.sampled_from((1, 1, 2)),
        seconds=st.none() | half_hours,
        queue=st.sampled_from(("training", "deferred", "firm")),
        device_class=st.sampled_from((None, None, "a100", "l4")),
    )
    def submit_a_job(self, owner, devices, seconds, queue, device_class):
        """One that yields or not, that states an end or not."""
        whole = None if seconds is None else round(seconds)
        self.do(a_job(owner, devices, whole, queue=queue, device_class=device_class))

    @rule(owner=st.sampled_from(OWNERS), devices=st.sampled_from((1, 1, 2)), seconds=half_hours)
    def reserve(self, owner, devices, seconds):
        """From now on."""
        self.do(a_reservation(owner, devices, round(seconds)))

    @rule(
        owner=st.sampled_from(OWNERS),
        devices=st.sampled_from((1, 1, 2)),
        begin=half_hours,
        seconds=half_hours,
        on=st.sampled_from(((), (), (), ("gpu-0",))),
    )
    def reserve_for_later(self, owner, devices, begin, seconds, on):
        """What is accepted is kept from then on."""
        count = 1 if on else devices
        words = {"not_before": self.play.now + begin, "holder": None, "on": on}
        kept = oracle.can_all_be_kept(self.play.world, self.play.now)
        self.do(a_reservation(owner, count, round(seconds), **words))
        if kept:
            assert oracle.can_all_be_kept(self.play.world, self.play.now)
            self.expected |= set(self.play.world.booked)

    @rule(
        begin=half_hours,
        seconds=half_hours,
        count=st.sampled_from((1, 1, 2)),
        teams=st.sampled_from((("course",), ())),
        named=st.booleans(),
        no_show=st.sampled_from((None, 600)),
    )
    def put_a_hold(self, begin, seconds, count, teams, named, no_show):  # noqa: PLR0917 - all of a hold
        """For the course, or for maintenance. What is in its way keeps what it had."""
        from_at = self.play.now + begin
        words = {"devices": ("gpu-0",)} if named else {"count": count}
        self.do(
            AddHold(
                name="hold", by="op", teams=teams, no_show_seconds=no_show if teams else None,
                windows=(Span(from_at=from_at, until_at=from_at + seconds),), **words,
            )
        )  # fmt: skip

    @rule(which=st.integers(0, 20))
    def remove_a_hold(self, which):
        """An operator needs it no more."""
        holds = sorted(self.play.world.holds)
        if holds:
            self.do(RemoveHold(hold=holds[which % len(holds)], by="op"))

    @rule(which=st.integers(0, 20))
    def one_is_done(self, which):
        """Before it had to be."""
        live = [it for it in self.play.world.holders() if it.outcome is None]
        if live:
            self._leave(live[which % len(live)])

    @rule(which=st.integers(0, 20))
    def cancel(self, which):
        """Something that waits is not wanted any more."""
        waiting = [it.id for it in self.play.world.queued()]
        if waiting:
            self.do(Cancel(workload=waiting[which % len(waiting)], by="ada"))

    @rule(seconds=st.sampled_from((60, 600, HOUR / 2, HOUR, 3 * HOUR)))
    def time_passes(self, seconds):
        """Moment by moment, each of them in which somebody must do something."""
        end = self.play.now + seconds
        while self.play.now < end:
            self.play.now = min(end, self._next_moment())
            self._all_do_as_they_must()
            self.do(Tick())
            self._look_at_the_instant()

    def _next_moment(self) -> float:
        """The next deadline of anybody, a grace before a promise begins, or its beginning."""
        world, now = self.play.world, self.play.now
        moments = [now + HOUR]
        for it in world.holders():
            moments += [at for at in (it.yield_by, it.lease.ends_at) if at is not None]
            if it.active_at is not None:
                moments += [it.active_at + queue.protected_seconds for queue in POLICY.queues]
        for one in oracle.promises(world, now):
            moments += [one.begin, one.end, one.begin + 600]
            moments += [one.begin - grace - 30 for grace in (60, 120)]
        return min(at for at in moments if at > now)

    def _all_do_as_they_must(self) -> None:
        """Who yields is gone at the end of the grace, who reserved at the end of the time, jobs at their limit."""
        now = self.play.now
        for it in list(self.play.world.holders()):
            is_over = it.lease.ends_at is not None and it.lease.ends_at <= now
            if (it.yield_by is not None and it.yield_by <= now) or is_over:
                self._leave(it)

    def _leave(self, it: Workload) -> None:
        if it.kind is Kind.JOB:
            self.play.exit(it.id, SAVED if it.state is State.YIELDING else DONE)
        else:
            self.play.do(Release(workload=it.id, by=it.owner))
            if self.play.state(it.id) is not State.ENDED:
                self.play.clear(it.id)
        self._settle()

    def _look_at_the_instant(self) -> None:
        """Whoever reserved for now has begun, unless a promise was broken before by what an operator put in its way."""
        for id_ in list(self.expected):
            it = self.play[id_]
            if it.state is not State.QUEUED:
                self.expected.discard(id_)
            elif it.not_before <= self.play.now:
                raise AssertionError(f"{it.title} was to begin at {it.not_before - BEGIN} and waits for {it.waiting}")
        for one in oracle.promises(self.play.world, self.play.now):
            if (
                one.workload is None
                and one.begin <= self.play.now
                and oracle.can_all_be_kept(self.play.world, self.play.now)
            ):
                strangers = {
                    uuid
                    for it in self.play.world.holders()
                    for uuid in it.lease.devices
                    if not oracle.entitled(one, it.owner, it.team)
                }
                left = [uuid for uuid in one.named or self.play.world.devices if uuid not in strangers]
                assert len(left) >= one.count, f"{one.name} has {left} of {one.count}"

    @invariant()
    def no_device_idles_without_need(self):
        """Who is first in line and waits for what is held for others could not start without breaking a promise."""
        if not hasattr(self, "play"):
            return
        self.do(Tick())  # within a step, what was refused before a device came free stays refused
        world, now = self.play.world, self.play.now
        if any(now < one.begin <= now + NOTICE_SECONDS for one in oracle.promises(world, now)):
            return
        waiting = [it for it in world.queued() if it.waiting in (WaitingReason.HOLD, WaitingReason.DEVICES)]
        if waiting and not world.live.keys() - {it.id for it in world.holders() if it.state is State.ACTIVE}:
            found = oracle.idle_without_need(world, waiting[0], now)
            assert found is None, f"{waiting[0].title} waits for {waiting[0].waiting}, and {found} idles"

    @invariant()
    def the_log_gives_the_world(self):
        """Replay."""
        if hasattr(self, "play"):
            assert differences(refolded(self.play), self.play.world) == []


def test_random_lives_with_promises():
    """Briefly, and always the same ones; at length, and others each time, under the marker `sim`."""
    run_state_machine_as_test(
        Promises,
        settings=settings(
            max_examples=30,
            stateful_step_count=20,
            derandomize=True,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_work_starts_beside_a_promise_that_others_can_keep_as_well():
    """A hold of any device chose the only one of a class; who needs that class does not wait for it."""
    play = Play(DEVICES, POLICY)
    play.do(
        AddHold(
            name="hold",
            by="op",
            teams=("course",),
            count=1,
            windows=(Span(from_at=play.now + HOUR / 2, until_at=play.now + HOUR),),
        )
    )
    job = play.job("ada", device_class="l4", queue="firm")

    assert play.devices_of(job) == ("gpu-3",)
    assert oracle.can_all_be_kept(play.world, play.now)


def test_no_work_starts_beside_a_promise_that_needs_every_device():
    """Nor where the hold begins so soon that those on other devices would be told too late."""
    play = Play(DEVICES, POLICY)
    spans = (Span(from_at=play.now + HOUR / 2, until_at=play.now + HOUR),)
    play.do(AddHold(name="hold", by="op", teams=("course",), count=4, windows=spans))
    assert play.waiting(play.job("ada", device_class="l4", queue="firm")) is WaitingReason.HOLD

    play = Play(DEVICES, POLICY)
    spans = (Span(from_at=play.now + 60, until_at=play.now + HOUR),)
    play.do(AddHold(name="hold", by="op", teams=("course",), count=1, windows=spans))
    assert play.waiting(play.job("ada", device_class="l4", queue="firm")) is WaitingReason.HOLD


def test_who_waited_past_the_limit_keeps_no_promise_from_being_kept():
    """Nothing else may start where they wait, but what was promised begins all the same."""
    play = Play(DEVICES[:2], POLICY)
    play.do(a_reservation("ada", 1, 6 * HOUR))
    booked = play.reservation("bob", 1, HOUR, not_before=play.now + 2 * HOUR, holder=None)
    wide = play.reservation("eve", 2, HOUR)
    play.later(HOUR)
    assert play[wide].lifted

    play.later(HOUR)
    assert play.devices_of(booked) == ("gpu-1",)


def test_nothing_starts_on_a_device_in_maintenance_though_it_is_promised_for_later():
    """The reservation was promised first and begins before the maintenance ends; until then nobody has the device."""
    play = Play(DEVICES[:1], POLICY)
    booked = play.reservation("bob", 1, HOUR, not_before=play.now + HOUR, holder=None)
    spans = (Span(from_at=play.now, until_at=play.now + 2 * HOUR),)
    play.do(AddHold(name="works", by="op", devices=("gpu-0",), windows=spans))

    assert play.waiting(play.job("ada", seconds=600, queue="firm")) is WaitingReason.HOLD
    play.later(HOUR)
    assert play.devices_of(booked) == ("gpu-0",)
