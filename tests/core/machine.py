"""Random lives of small worlds, checked after every step: safety, liveness, replay.

Hypothesis draws commands and observations; `Checked` plays them and says what is wrong. The same machine runs briefly
among the tests of the core, with planted faults to show that it bites, and at length under the marker `sim`.
"""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from jupyter_gpu.core import decide as decide_module
from jupyter_gpu.core.events import Event, Evicted, Explained, Granted, Released, Started, Submitted
from jupyter_gpu.core.lifecycle import DAY_SECONDS, evolve, fold
from jupyter_gpu.core.planner import Memory
from jupyter_gpu.errors import GpuError
from jupyter_gpu.model import (
    AddHold,
    AddRecurring,
    Cancel,
    Chain,
    Command,
    Condition,
    Cordon,
    Dependency,
    Drain,
    EndReason,
    EvictionReason,
    Extend,
    Fire,
    FireNow,
    Forget,
    Holder,
    HoldPolicy,
    Kind,
    KnowWindows,
    LetGo,
    LoadPolicy,
    Move,
    Outcome,
    Pause,
    PauseRecurring,
    Policy,
    QuotaRule,
    Reading,
    Release,
    RemoveHold,
    RemoveRecurring,
    Reprioritise,
    Rerank,
    SeeAboveShare,
    SeeCondition,
    SeeDevices,
    SeeExited,
    SeeHolderGone,
    SeeHung,
    SeeIdle,
    SeeProbe,
    SeeStarted,
    SharingRule,
    Span,
    State,
    Tick,
    Uncordon,
    Use,
    UseKind,
    Workload,
    World,
)
from jupyter_gpu.model.queues import DEFERRED, INTERACTIVE, TRAINING
from tests.core import oracle
from tests.world import (
    BEGIN,
    DAY,
    GIB,
    HOUR,
    SAVED,
    Play,
    a_device,
    a_job,
    a_mig_device,
    a_reservation,
    a_spec,
    differences,
)

OWNERS = ("ada", "bob", "cleo")
TEAMS = {"vision": ("ada", "bob"), "speech": ("cleo",)}

#: Two nodes, three classes, links, one device in parts where the policy says so, and two MIG devices of one card.
DEVICES = (
    a_device(0, link_group="a"),
    a_device(1, link_group="a"),
    a_device(2),
    a_device(3, node="far", device_class="l4", memory_bytes=24 * GIB),
    a_mig_device(0, card=4),
    a_mig_device(1, card=4),
)
#: What the second card may be made of instead.
SPLIT_ANEW = (a_mig_device(2, card=4, device_class="mig-1g.10gb", memory_bytes=10 * GIB),)
#: What may be found of the device in parts at an inventory, beside what it was.
CHANGED = (
    a_device(3, node="far", device_class="l4", memory_bytes=24 * GIB, exclusive=True),
    a_device(7, uuid="gpu-3", node="far", device_class="l4", shares_host_memory=True),
)
IN_PARTS = (SharingRule(device_class="l4"),)
HOLDS = (
    HoldPolicy(name="course", from_at=BEGIN + HOUR, until_at=BEGIN + 5 * HOUR, devices=("gpu-2",), teams=("vision",)),
    HoldPolicy(name="works", from_at=BEGIN + 3 * HOUR, until_at=BEGIN + 4 * HOUR, devices=("gpu-3",)),
)
POLICIES = (
    Policy(),
    Policy(
        teams=TEAMS,
        quotas=(QuotaRule(user="*", devices=2), QuotaRule(team="*", gpu_hours=6, window_seconds=DAY)),
        sharing=IN_PARTS,
    ),
    Policy(
        teams=TEAMS,
        quotas=(QuotaRule(team="vision", share_devices=2), QuotaRule(team="speech", share_devices=1)),
        preemptions_per_day=2,
        sharing=IN_PARTS,
        drains=(),
    ),
    Policy(teams=TEAMS, holds=HOLDS, preemptions_per_day=1, sharing=IN_PARTS),
    Policy(
        teams=TEAMS,
        holds=HOLDS[:1],
        quotas=(QuotaRule(user="*", device_class="*", devices=1), QuotaRule(queue="interactive", devices=2)),
        order_multiple=0,
        sharing=(SharingRule(device="gpu-3"),),
        drains=(Condition.FAULTY, Condition.HOT),
    ),
    Policy(
        teams=TEAMS,
        quotas=(QuotaRule(team="vision", share_devices=1), QuotaRule(user="*", memory_bytes=20 * GIB)),
        queues=(
            INTERACTIVE,
            msgspec.structs.replace(TRAINING, most_devices=3, preempted_by=("interactive",)),
            msgspec.structs.replace(DEFERRED, share_devices=1),
        ),
        sharing=IN_PARTS,
    ),
    Policy(
        teams=TEAMS,
        quotas=(QuotaRule(user="cleo", queue="deferred", devices=1),),
        queues=(
            INTERACTIVE,
            msgspec.structs.replace(TRAINING, preempted_by=(), slice_factor=2),
            msgspec.structs.replace(DEFERRED, most_devices=2, preempted_by=("training",)),
        ),
    ),
)

OUTCOMES = (
    Outcome(end=EndReason.SUCCEEDED, exit_code=0),
    Outcome(end=EndReason.SUCCEEDED, exit_code=0, noticed=True, progressed=True),
    Outcome(end=EndReason.SUCCEEDED, exit_code=0, noticed=True, finished=True),
    Outcome(end=EndReason.FAILED, exit_code=1),
    Outcome(end=EndReason.FAILED, exit_code=1, progressed=True),
    Outcome(end=EndReason.FAILED, exit_code=75, noticed=True),
    Outcome(end=EndReason.FAILED, exit_code=93, noticed=True),
    Outcome(end=EndReason.LAUNCH_FAILED, engine_fault=True),
    Outcome(end=EndReason.LOST),
    Outcome(end=EndReason.DEVICE_LOST, exit_code=1),
    Outcome(end=EndReason.GPU_OOM, exit_code=1),
)


class Wrong(AssertionError):  # noqa: N818 - a sentence is raised, and it says what is wrong
    """The core did what it must never do."""


class Checked(Play):
    """A play that looks at every event before it happens and at the world after every step.

    In place it decides as a replay does: by `step`, on the one world, each step going on from what the one before knew.
    """

    def __init__(self, policy: Policy | None = None, *, in_place: bool = False) -> None:
        #: None decides on copies, and each step looks at all.
        self.memory = Memory() if in_place else None
        #: Whether a step has looked at all that was observed: for half a minute, what is remembered is not asked anew.
        self.is_settled = True
        super().__init__(DEVICES, policy)

    def do(self, command: Command) -> list[str]:
        """Decide, look, evolve, look again. A refusal is an answer like any other."""
        before = self.world.copy()
        try:
            events = self._decide(command, before)
        except GpuError as refusal:
            if "must always hold" in str(refusal):
                raise Wrong(str(refusal)) from refusal
            self._look_at_refusal(before, command)
            return []
        after, self.world = self.world, before
        self._play(command, events)
        if self.memory is not None:
            self._all([f"in place: {it}" for it in differences(after, self.world)])
            self.world = after
        self.events += events
        self._look_after()
        return [type(event).__name__ for event in events]

    def _decide(self, command: Command, before: World) -> list[Event]:
        if self.memory is None:
            events = decide_module.decide(self.world, command, self.now)
            if self.world.revision != before.revision:
                raise Wrong("decide changed the world that it was given")
            self.is_settled = True
            return events
        known = self.memory._step
        events = decide_module.step(self.world, command, self.now, memory=self.memory)
        step = self.memory._step
        if step is None:  # nothing was placed
            return events
        if step is not known:
            self.is_settled = True
        elif self.memory._looked_at != self.now:
            self.is_settled = False
        elif self.is_settled:
            self._look_at_what_was_remembered(command, before, events)
        return events

    def _look_at_what_was_remembered(self, command: Command, before: World, events: list[Event]) -> None:
        """Of those who are new the same start, as if all of the line were looked at again at this instant."""
        again = decide_module.decide(before, command, self.now)
        new = {event.it.id for event in events if isinstance(event, Submitted)}
        got, would = (
            [event.workload for event in some if isinstance(event, Granted) and event.workload in new]
            for some in (events, again)
        )
        if got != would:
            raise Wrong(f"{command}: what was remembered leads to grants to {got}, and a look at all to {would}")

    def _look_at_refusal(self, before: World, command: Command) -> None:
        """Nothing is left of what was refused."""
        found = differences(before, self.world)
        if found or before.policy is not self.world.policy:
            raise Wrong(f"{command} was refused and left something: {found}")

    def _play(self, command: Command, events: list[Event]) -> None:
        """The same events once more, one by one, on the world as it was."""
        if isinstance(command, SeeExited) and any(isinstance(event, Released) for event in events):
            it = self.world.workloads[command.workload]
            if command.attempt != it.attempt + (it.started_at is None):
                raise Wrong(f"{it.title}: a word about attempt {command.attempt} counted for another")
        policy = command.policy if isinstance(command, LoadPolicy) else self.world.policy
        #: What others have left, or leave, for somebody is theirs, whoever has come before them in line meanwhile.
        self.made_room_for = {it.evicted_for for it in self.world.workloads.values() if it.evicted_for is not None}
        for event in events:
            if event.at != self.now:
                raise Wrong(f"{event} is recorded at {event.at}, and it is {self.now}")
            shadow = self.world.copy()
            shadow.policy = policy
            self._look_before(shadow, event)
            evolve_as_the_core_does(self.world, event)
        self.world.policy = policy

    def _look_before(self, world: World, event: Event) -> None:
        """Safety of one event: nobody is granted what they must not have, nobody is moved who is protected."""
        if isinstance(event, Granted):
            evolve(world, event)
            it = world.workloads[event.workload]
            before = self.world.copy()
            before.policy = world.policy
            self._all(oracle.grant_problems(before, it, self.now))
            self._look_at_order(before, it.id)
        if isinstance(event, Evicted) and event.reason is EvictionReason.PREEMPTED:
            self._look_at_preemption(world, event)
        if isinstance(event, Evicted) and event.reason is EvictionReason.EXPIRED:
            it = world.workloads[event.workload]
            if it.lease is None or it.lease.ends_at is None or it.lease.ends_at > self.now:
                raise Wrong(f"{it.title} was evicted within its time")
        if isinstance(event, Started):
            it = world.workloads[event.workload]
            if event.attempt != it.attempt + 1:
                raise Wrong(f"{it.title}: attempt {event.attempt} came after {it.attempt}")
        if isinstance(event, Explained) and set(event.reasons) - {w.id for w in world.queued()}:
            raise Wrong("somebody who does not wait was given a reason to wait")

    def _look_at_order(self, world: World, id_: int) -> None:
        """Nobody gets a device while the first in line, who is within every quota, fits by itself."""
        first = oracle.first_in_line(world)
        if first is None or first.id == id_ or id_ in self.made_room_for or self._waits_for_more_than_devices(world):
            return
        if id_ not in [w.id for w in world.queued()] or not oracle.is_eligible(world, first, self.now):
            return
        it = world.workloads[id_]
        if oracle.place_in_line(first) < oracle.place_in_line(it) and self._fits(world, first):
            raise Wrong(f"{it.title} was granted before {first.title}, which is first in line and fits")

    @staticmethod
    def _waits_for_more_than_devices(world: World) -> bool:
        """Shares order borrowers behind owners, and budgets are not the oracle's business."""
        return any(rule.share_devices is not None or rule.gpu_hours is not None for rule in world.policy.quotas)

    def _fits(self, world: World, it: Workload) -> bool:
        barred = oracle.classes_over_quota(world, it)
        without = {uuid for uuid, device in world.devices.items() if device.device_class in barred}
        return oracle.fits(world, it, oracle.withheld(world, it, self.now) | without)

    def _look_at_preemption(self, world: World, event: Evicted) -> None:
        it = world.workloads[event.workload]
        queue = next(queue for queue in world.policy.queues if queue.name == it.queue)
        if it.kind is Kind.RESERVATION or not queue.preemptible:
            raise Wrong(f"{it.title} of {it.queue} was preempted")
        if it.active_at is None or self.now < it.active_at + queue.protected_seconds:
            raise Wrong(f"{it.title} was preempted in its protected time")
        if len([at for at in it.preempted_at if at > self.now - DAY_SECONDS]) >= world.policy.preemptions_per_day:
            raise Wrong(f"{it.title} was preempted beyond the cap")
        better = world.workloads.get(event.evicted_for or 0)
        by = queue.preempted_by
        has_own = any(queue.share_devices is not None for queue in world.policy.queues)
        has_shares = has_own or any(r.share_devices is not None for r in world.policy.quotas)
        has_budgets = any(r.gpu_hours is not None for r in world.policy.quotas)
        takes_turns = queue.slice_factor is not None and better is not None and better.queue == it.queue
        is_free_to = by is None or has_shares or has_budgets or takes_turns
        if better is not None and not is_free_to and better.queue not in by:
            raise Wrong(f"{it.title} yields to {better.title} of a queue that may not preempt it")
        if better is not None and better.priority < it.priority and not has_own:
            raise Wrong(f"{it.title} yields to {better.title} of a lower priority")
        has_right = has_shares or has_budgets or takes_turns
        if better is not None and better.priority == it.priority and not has_right:
            raise Wrong(f"{it.title} yields to its equal {better.title}")

    def _look_after(self) -> None:
        self._all(self.world.check())
        self._all(oracle.batch_problems(self.world))
        world = self.world
        for id_, it in world.workloads.items():
            if it.state is State.ENDED and (it.lease is not None or id_ in world.live):
                raise Wrong(f"{it.title} has ended and holds something")
        self._look_at_liveness()

    def _look_at_liveness(self) -> None:
        """What is first in line and fits on free devices is not left waiting, unless others leave some for another."""
        world = self.world
        leaving_for = {it.evicted_for for it in world.holders()}
        if any(it.id in leaving_for for it in world.queued()):
            return
        first = oracle.first_in_line(world) if self.is_settled else None
        has_shares = any(r.share_devices is not None for r in world.policy.quotas)
        if first is not None and not has_shares and self._fits(world, first):
            raise Wrong(f"{first.title} is first in line, fits and waits for {first.waiting}")

    @staticmethod
    def _all(problems: list[str]) -> None:
        if problems:
            raise Wrong("; ".join(problems))

    def look_at_replay(self) -> None:
        """Folding the log from nothing gives this world."""
        found = differences(fold(World(self.world.policy), self.events), self.world)
        if found:
            raise Wrong(f"replay: {found}")

    # -- the end of the play

    def let_all_run(self) -> None:
        """Everything is released, mended and given time: then all that can run does run. Nobody starves."""
        self.do(LoadPolicy(policy=Policy(teams=TEAMS, quotas=(), sharing=IN_PARTS)))
        self.do(SeeDevices(pool="local", devices=DEVICES))
        for id_ in list(self.world.holds):
            self.do(RemoveHold(hold=id_, by="op"))
        self.is_settled = False
        self.world.readings.clear()
        self.world.uses.clear()
        for device in DEVICES:
            self.do(Uncordon(device=device.uuid, by="op"))
            self.do(SeeCondition(device=device.uuid, condition=None))  # no operator's word ends what readings show
        for it in list(self.world.queued()):
            self.do(LetGo(workload=it.id, by="op"))
        for _ in range(60):
            self._end_all_that_lives()
            self.now += 20 * DAY if any(w.not_before for w in self.world.queued()) else 2 * HOUR
            self.do(Tick())
            if not self.world.line and not self.world.live:
                return
        left = [f"{it.title} ({it.waiting})" for it in self.world.queued()]
        raise Wrong(f"these never ran: {left}")

    def _end_all_that_lives(self) -> None:
        for it in list(self.world.holders()):
            if it.kind is Kind.RESERVATION:
                self.do(Release(workload=it.id, by="op"))
            else:
                self.exit(it.id, OUTCOMES[0])
        for it in list(self.world.holders()):
            self.clear(it.id)


def evolve_as_the_core_does(world: World, event: Event) -> None:
    """The `evolve` of the core, looked up late, so that a planted fault is played as well."""
    decide_module.evolve(world, event)


#: Which of those that have not ended (or, rarely, of all).
some_of_them = st.integers(0, 23)
some_parents = st.lists(st.tuples(some_of_them, st.sampled_from((False, False, True))), min_size=1, max_size=3)
some_device = st.sampled_from([device.uuid for device in DEVICES])
some_owner = st.sampled_from(OWNERS)


class Lives(RuleBasedStateMachine):
    """All of commands.py, in any order."""

    @initialize(policy=st.sampled_from(POLICIES), in_place=st.booleans())
    def begin(self, policy, in_place):
        """A world under one of the policies."""
        self.play = Checked(policy, in_place=in_place)

    @rule(
        owner=some_owner,
        devices=st.sampled_from((1, 1, 1, 2, 3)),
        seconds=st.sampled_from((None, 60, HOUR, DAY)),
        device_class=st.sampled_from((None, None, "a100", "l4")),
        queue=st.sampled_from((None, None, "deferred")),
    )
    def submit_a_job(self, owner, devices, seconds, device_class, queue):
        """Whole devices of some kind; pairs that may last are linked."""
        words = {"device_class": device_class, "queue": queue, "same_link_group": seconds is None and devices == 2}
        self.play.do(a_job(owner, devices, seconds, **words))

    @rule(owner=some_owner, gib=st.sampled_from((6, 10, 20)), reserved=st.booleans())
    def submit_a_part(self, owner, gib, reserved):
        """A part of the shareable device."""
        make = a_reservation if reserved else a_job
        self.play.do(make(owner, seconds=HOUR, memory_bytes=gib * GIB))

    @rule(
        owner=some_owner,
        on=st.sampled_from((("gpu-0",), ("gpu-1", "gpu-2"), ("gpu-2", "mig-4:0"), ("gpu-3",), ("gpu-0", "gpu-9"))),
        devices=st.sampled_from((1, 1, 2)),
        gib=st.sampled_from((None, None, 6)),
    )
    def submit_by_hand(self, owner, on, devices, gib):
        """Only these devices, some of which can never serve."""
        self.play.do(a_job(owner, devices, HOUR, on=on, memory_bytes=gib * GIB if gib else None))

    @rule(owner=some_owner, devices=st.sampled_from((1, 1, 2)), hours=st.sampled_from((1, 2, 6)), held=st.booleans())
    def submit_a_reservation(self, owner, devices, hours, held):
        """With a kernel, or by somebody who still has to come."""
        words = {} if held else {"holder": None}
        self.play.do(a_reservation(owner, devices, hours * HOUR, **words))

    @rule(
        owner=some_owner,
        devices=st.sampled_from((1, 1, 2)),
        begin=st.sampled_from((60, HOUR, HOUR, 5 * HOUR)),
        hours=st.sampled_from((1, 2)),
        asked=st.sampled_from(({}, {}, {"device_class": "l4"}, {"on": ("gpu-2",)}, {"same_link_group": True})),
    )
    def reserve_for_later(self, owner, devices, begin, hours, asked):
        """It is promised, or refused at once."""
        words = {"holder": None, "not_before": self.play.now + begin}
        self.play.do(a_reservation(owner, 1 if "on" in asked else devices, hours * HOUR, **words, **asked))

    @rule(owner=some_owner, devices=st.sampled_from((2, 4)), queue=st.sampled_from((None, "deferred")))
    def submit_across_nodes(self, owner, devices, queue):
        """All of one node and some of the other, where one will not do."""
        self.play.do(a_job(owner, devices, HOUR, across_nodes=True, queue=queue))

    @rule(
        begin=st.sampled_from((-60, 60, HOUR)),
        hours=st.sampled_from((1, 3)),
        count=st.sampled_from((0, 1, 2)),
        whose=st.sampled_from(({}, {"users": ("bob",)}, {"teams": ("vision",)}, {"teams": ("vision",)})),
        weekly=st.booleans(),
        no_show=st.sampled_from((None, 600)),
    )
    def put_a_hold(self, begin, hours, count, whose, weekly, no_show):  # noqa: PLR0917 - all of a hold
        """So many devices, or one that is named; once, or again and again."""
        from_at = self.play.now + begin
        windows = [Span(from_at=from_at + at, until_at=from_at + at + hours * HOUR) for at in (0, 7 * DAY)]
        words = {"every": "mon 12:00-13:00", "timezone": "UTC", "known_until": from_at + 8 * DAY} if weekly else {}
        words |= {"count": count} if count else {"devices": ("gpu-2",)}
        no_show = no_show if whose else None
        windows = tuple(windows if weekly else windows[:1])
        self.play.do(AddHold(name="h", by="op", windows=windows, no_show_seconds=no_show, **whose, **words))

    @rule(which=some_of_them, more=st.sampled_from((None, 0, DAY)))
    def change_a_hold(self, which, more):
        """It is no more, or its calendar says something else, as that of another that is there no more may."""
        known = sorted(self.play.world.holds) or [1]
        id_ = known[which % len(known)] if which <= 20 else self.pick(which)
        if more is None:
            self.play.do(RemoveHold(hold=id_, by="op"))
        else:
            windows = (Span(from_at=self.play.now + more, until_at=self.play.now + more + HOUR),)
            self.play.do(KnowWindows(hold=id_, windows=windows, known_until=self.play.now + 2 * DAY))

    @rule(owner=some_owner, of=st.sampled_from((0, 0, 2)), devices=st.sampled_from((0, 1)))
    def recur(self, owner, of, devices):
        """A job, or an array, each hour."""
        submit = a_job(owner, devices, HOUR, array=tuple({"n": str(n)} for n in range(of)))
        self.play.do(AddRecurring(cron="0 * * * *", timezone="UTC", submit=submit, next_at=self.play.now + HOUR))

    @rule(which=some_of_them, word=st.sampled_from(("fire", "fire", "now", "pause", "go", "remove")))
    def tell_a_recurring_job(self, which, word):
        """Its instant came, its owner wants something, or it is none of them."""
        known = sorted(self.play.world.recurring) or [1]
        id_ = known[which % len(known)] if which <= 20 else self.pick(which)
        it, next_at = self.play.world.recurring.get(id_), self.play.now + HOUR
        due_at = (None if it is None else it.next_at) or self.play.now
        commands = {
            "fire": Fire(recurring=id_, due_at=due_at, next_at=max(due_at, self.play.now) + HOUR),
            "now": FireNow(recurring=id_, by="ada"),
            "pause": PauseRecurring(recurring=id_, by="ada", paused=True),
            "go": PauseRecurring(recurring=id_, by="ada", paused=False, next_at=next_at),
            "remove": RemoveRecurring(recurring=id_, by="ada"),
        }
        self.play.do(commands[word])

    @rule()
    def rerank(self):
        """An hour's word: where all stand is reckoned anew."""
        self.play.do(Rerank())

    @rule(
        owner=some_owner,
        paused=st.booleans(),
        later=st.sampled_from((None, 60, DAY)),
        key=st.sampled_from((None, "k")),
        free_gib=st.sampled_from((None, 60)),
    )
    def submit_an_odd_job(self, owner, paused, later, key, free_gib):
        """Paused, later, repeated, with free memory, with retries, with no device."""
        not_before = None if later is None else self.play.now + later
        spec = a_spec(retries=2 if key else None)
        words = {"paused": paused, "not_before": not_before, "idempotency_key": key, "spec": spec}
        asked = {} if free_gib is None else {"min_free_bytes": free_gib * GIB}
        self.play.do(a_job(owner, 0 if key and paused else 1, **words, **asked))

    @rule(
        owner=some_owner,
        parents=some_parents,
        count=st.sampled_from((0, 0, 2, 3)),
        devices=st.sampled_from((0, 1)),
        paused=st.booleans(),
    )
    def submit_after_others(self, owner, parents, count, devices, paused):
        """One, or an array, after whatever there is: some have ended, some are arrays, some are not there."""
        array = tuple({"n": str(n)} for n in range(count))
        self.play.do(a_job(owner, devices, HOUR, after=self.dependencies(parents), array=array, paused=paused))

    @rule(
        owner=some_owner,
        count=st.sampled_from((1, 2, 4)),
        at_most=st.sampled_from((None, 1, 1, 2)),
        devices=st.sampled_from((0, 1, 1, 2)),
        queue=st.sampled_from((None, "deferred")),
    )
    def submit_an_array(self, owner, count, at_most, devices, queue):
        """So many at once, or as many as there is room for."""
        array = tuple({"n": str(n)} for n in range(count))
        self.play.do(a_job(owner, devices, HOUR, array=array, at_most=at_most, queue=queue))

    @rule(which_of_them=some_of_them, parents=some_parents | st.just([]), array=st.booleans())
    def chain(self, which_of_them, parents, array):
        """Something comes after others from now on, or after nothing; often it would be a circle."""
        after = self.dependencies(parents)
        self.play.do(Chain(workload=self.pick(which_of_them), by="ada", after=after, array=array))

    def dependencies(self, parents: list[tuple[int, bool]]) -> tuple[Dependency, ...]:
        """What to come after, of those that there are."""
        return tuple(Dependency(workload=self.pick(which), ok=ok) for which, ok in parents)

    @rule(which_of_them=some_of_them, which=st.sampled_from((Cancel, Release, Pause, LetGo)))
    def ask(self, which_of_them, which):
        """What a person may ask of any workload, in any state."""
        id_ = self.pick(which_of_them)
        self.play.do(which(workload=id_, by="ada"))

    @rule(which_of_them=some_of_them, which=st.sampled_from((Cancel, Pause, LetGo)))
    def ask_of_an_array(self, which_of_them, which):
        """The same of all of an array, however some of it stand; of what is of none, of itself."""
        id_ = self.pick(which_of_them)
        self.play.do(which(workload=id_, by="ada", array=True))

    @rule(which_of_them=some_of_them, seconds=st.sampled_from((60, HOUR, DAY)))
    def extend(self, which_of_them, seconds):
        """More time."""
        id_ = self.pick(which_of_them)
        self.play.do(Extend(workload=id_, by="ada", seconds=seconds))

    @rule(which_of_them=some_of_them, priority=st.sampled_from((1, 50, 75, 150)))
    def reprioritise(self, which_of_them, priority):
        """Another place."""
        id_ = self.pick(which_of_them)
        self.play.do(Reprioritise(workload=id_, by="op", priority=priority))

    @rule(which_of_them=some_of_them, number=st.sampled_from((None, 1, 2)))
    def move_or_give_back(self, which_of_them, number):
        """A new holder comes, or some holder gives back."""
        id_ = self.pick(which_of_them)
        if number is None:
            self.play.do(Move(workload=id_, by="ada", holder=Holder(kind="kernel", name="k")))
        else:
            self.play.do(Release(workload=id_, by="ada", holder_number=number))

    @rule(which_of_them=some_of_them, number=st.sampled_from((1, 1, 2)))
    def a_holder_is_gone(self, which_of_them, number):
        """A kernel died."""
        id_ = self.pick(which_of_them)
        self.play.do(SeeHolderGone(workload=id_, holder_number=number))

    @rule(which_of_them=some_of_them, ahead=st.sampled_from((0, 1, 1, 1, 2)))
    def start(self, which_of_them, ahead):
        """The next attempt, or one that is none of the present."""
        id_ = self.pick(which_of_them)
        it = self.play.world.workloads.get(id_)
        attempt = ahead + (0 if it is None else it.attempt)
        holder = Holder(kind="attempt", name="a", number=max(1, attempt))
        self.play.do(SeeStarted(workload=id_, attempt=attempt, holder=holder))

    @rule(
        which_of_them=some_of_them,
        outcome=st.sampled_from(OUTCOMES),
        ahead=st.sampled_from((0, 0, 0, 1, 1, -1)),
        clear=st.booleans(),
        started=st.sampled_from((True, True, True, False)),
    )
    def exit(self, which_of_them, outcome, ahead, clear, started):
        """The end of an attempt, of the present one or of another."""
        id_ = self.pick(which_of_them)
        it = self.play.world.workloads.get(id_)
        attempt = ahead + (0 if it is None else it.attempt)
        self.play.do(SeeExited(workload=id_, attempt=attempt, outcome=outcome, clear=clear, started=started))

    @rule(
        which_of_them=some_of_them, unclear=st.sampled_from((False, False, True)), seconds=st.sampled_from((0.0, 61.0))
    )
    def probe(self, which_of_them, unclear, seconds):
        """Clear, or not, or not for long."""
        id_ = self.pick(which_of_them)
        uuids = self.play.devices_of(id_) if unclear and id_ in self.play.world.workloads else ()
        self.play.do(SeeProbe(workload=id_, unclear=uuids, unclear_seconds=seconds))

    @rule(device=some_device, which=st.sampled_from((Cordon, Uncordon, Uncordon, Uncordon, Drain)))
    def operate(self, device, which):
        """An operator's word."""
        self.play.do(which(device=device, by="op"))

    @rule(device=some_device, condition=st.sampled_from((None,) * 8 + tuple(Condition)), was_reset=st.booleans())
    def see_a_condition(self, device, condition, was_reset):
        """A device has something, or nothing any more."""
        self.play.do(SeeCondition(device=device, condition=condition, was_reset=was_reset))

    @rule(which_of_them=some_of_them)
    def see_above_share(self, which_of_them):
        """Somebody uses more than their part, or is said to."""
        self.play.do(SeeAboveShare(workload=self.pick(which_of_them)))

    @rule(which_of_them=some_of_them)
    def see_idle(self, which_of_them):
        """A reservation does nothing, or is said to."""
        self.play.do(SeeIdle(workload=self.pick(which_of_them)))

    @rule(which_of_them=some_of_them, ahead=st.sampled_from((0, 0, 0, 1, -1)))
    def see_hung(self, which_of_them, ahead):
        """An attempt stands still, the present one or another."""
        id_ = self.pick(which_of_them)
        it = self.play.world.workloads.get(id_)
        self.play.do(SeeHung(workload=id_, attempt=ahead + (0 if it is None else it.attempt)))

    @rule(missing=st.sampled_from((None, None, None, None, *DEVICES)), changed=st.sampled_from((None, None, *CHANGED)))
    def see_devices(self, missing, changed):
        """One is missing, or is another now, or all are back and read clean."""
        there = {device.uuid: device for device in DEVICES if device is not missing}
        if changed is not None:
            there[changed.uuid] = changed
        self.play.do(SeeDevices(pool="local", devices=tuple(there.values())))
        for uuid in there if missing is None else ():
            self.play.do(SeeCondition(device=uuid, condition=None))

    @rule(keep=st.sampled_from((None, 0, 1)), looks=st.sampled_from((1, 2)), named=st.booleans())
    def split_anew(self, keep, looks, named):
        """The card of the MIG devices has others now, or none and is only named; after two looks the old are gone."""
        parts = () if named else SPLIT_ANEW
        there = tuple(device for device in DEVICES if device.card is None or device.slot == keep)
        cards = (DEVICES[-1].card,) if named else ()
        for _ in range(looks):
            self.play.do(SeeDevices(pool="local", devices=(*there, *parts), cards=cards))

    @rule(device=some_device)
    def forget(self, device):
        """An operator says that a device does not come back, which is refused unless it is lost and nobody's."""
        known = self.play.world.devices.get(device)
        is_free = known is not None and known.condition is Condition.LOST and not self.play.world.holders_of(device)
        assert self.play.do(Forget(device=device, by="op"))[:1] == (["DeviceForgotten"] if is_free else [])
        assert (device in self.play.world.devices) is (known is not None and not is_free)

    @rule(
        device=st.sampled_from(("gpu-0", "gpu-3", "gpu-3", "mig-4:0")),
        used_gib=st.sampled_from((None, 0, 15, 30)),
        reserved_gib=st.sampled_from((None, 0, 2)),
        uses=st.none()
        | st.lists(st.tuples(st.sampled_from(UseKind), st.sampled_from((None, 0, 1, 5, 12))), max_size=3),
    )
    def read(self, device, used_gib, reserved_gib, uses):
        """NVML says how much memory is taken, and by whom, as far as that is known; it is no event."""
        total = self.play.world.devices[device].memory_bytes if device in self.play.world.devices else None
        used = None if used_gib is None else min(used_gib * GIB, total or 0)
        self.play.world.readings[device] = Reading(
            uuid=device,
            at=self.play.now,
            memory_used_bytes=used,
            memory_total_bytes=total,
            memory_reserved_bytes=None if reserved_gib is None else reserved_gib * GIB,
        )
        self.play.world.uses.pop(device, None)
        if uses is not None:
            self.play.world.uses[device] = tuple(self._use(device, *use) for use in uses)
        self.play.is_settled = False
        self.play.do(Tick())

    def _use(self, device: str, kind: UseKind, gib: int | None) -> Use:
        """A process of one of the holders, if it is one of a holder; the largest part is exceeded now and then."""
        holders = self.play.world.holders_of(device)
        return Use(
            pid=4711,
            kind=kind,
            workload=holders[gib % len(holders)].id if holders and gib else None,
            memory_bytes=None if gib is None else gib * GIB,
        )

    def pick(self, which: int) -> int:
        """A workload by its place among those that have not ended, or among all."""
        world = self.play.world
        found = [id_ for id_, it in sorted(world.workloads.items()) if it.state is not State.ENDED]
        found = sorted(world.workloads) if which > 20 else found
        return found[which % len(found)] if found else 1

    @rule(policy=st.sampled_from((None, None, None, *POLICIES)))
    def load_a_policy(self, policy):
        """Other rules, at any moment, though not at every."""
        if policy is not None:
            self.play.do(LoadPolicy(policy=policy))

    @rule(seconds=st.sampled_from((1, 130, 601, 601, HOUR)))
    def all_goes_well(self, seconds):
        """What was granted starts, what must yield saves and leaves, and time passes."""
        play = self.play
        for it in list(play.world.holders()):
            if it.kind is Kind.JOB and it.state is State.ACTIVE and it.started_at is None:
                play.start(it.id)
            elif it.kind is Kind.JOB and it.state is State.YIELDING and it.outcome is None:
                play.exit(it.id, SAVED)
            elif it.state is State.YIELDING:
                play.do(Release(workload=it.id, by="op")) if it.outcome is None else play.clear(it.id)
        play.later(seconds)

    @rule(which=some_of_them)
    def one_is_done(self, which):
        """A job ends, or a person gives back, and the device is clear."""
        live = list(self.play.world.holders())
        if live:
            it = live[which % len(live)]
            self.play.exit(it.id) if it.kind is Kind.JOB else self.play.do(Release(workload=it.id, by="op"))
            self.play.clear(it.id)

    @rule(seconds=st.sampled_from((1, 61, 130, 601, HOUR, 3 * HOUR, DAY)))
    def time_passes(self, seconds):
        """A tick after some time."""
        self.play.later(seconds)

    @invariant()
    def the_log_gives_the_world(self):
        """Replay, after every step."""
        self.play.look_at_replay()

    def teardown(self):
        """In the end everybody runs."""
        if hasattr(self, "play"):
            self.play.let_all_run()
