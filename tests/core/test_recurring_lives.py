"""Random lives of recurring jobs: whatever is told, late, twice or of another clock, what is promised of them holds."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from jupyter_gpu.core import recurring
from jupyter_gpu.core.events import RecurringChanged, RecurringPut, RecurringRemoved, Submitted
from jupyter_gpu.model import (
    AddRecurring,
    Cancel,
    Fire,
    FireNow,
    LetGo,
    Overlap,
    Pause,
    PauseRecurring,
    Policy,
    RemoveRecurring,
    State,
)
from tests.core.machine import Checked
from tests.world import HOUR, MINUTE, a_job

BRIEF = settings(
    max_examples=100,
    stateful_step_count=30,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
#: Until the first failure, which nobody needs to see in its shortest form.
UNTIL_CAUGHT = settings(BRIEF, max_examples=500, phases=(Phase.generate,), report_multiple_bugs=False)
which = st.integers(0, 3)


class Calendars(RuleBasedStateMachine):
    """Hourly jobs, some of which may stand in line behind each other, in a line that is soon full."""

    @initialize()
    def begin(self):
        """Two devices would be plenty; the line is short."""
        self.play = Checked(Policy(most_queued=4))

    def pick(self, number: int) -> int:
        """One that there is, or was."""
        known = sorted(self.play.world.recurring) or [1]
        return known[number % len(known)]

    @rule(owner=st.sampled_from(("ada", "bob")), overlap=st.sampled_from(Overlap), of=st.sampled_from((0, 0, 2)))
    def add(self, owner, overlap, of):
        """One or an array, each hour."""
        submit = a_job(owner, array=tuple({"n": str(n)} for n in range(of)))
        next_at = self.play.now + HOUR
        self.play.do(AddRecurring(cron="0 * * * *", timezone="UTC", submit=submit, overlap=overlap, next_at=next_at))

    @rule(number=which, missed=st.sampled_from((0, 0, 3)), repeats=st.integers(1, 3))
    def fire(self, number, missed, repeats):
        """What the loop says, as often as it likes; early words too, of a clock that was set back."""
        it = self.play.world.recurring.get(self.pick(number))
        if it is not None and it.next_at is not None:
            next_at = it.next_at + HOUR * (1 + missed)
            for _ in range(repeats):
                self.play.do(Fire(recurring=it.id, due_at=it.next_at, next_at=next_at, missed=missed))

    @rule(number=which)
    def fire_now(self, number):
        """Its owner cannot wait."""
        self.play.do(FireNow(recurring=self.pick(number), by="ada"))

    @rule(number=which, paused=st.booleans(), ahead=st.sampled_from((-2, -1, 1, 2)))
    def pause_or_let_go(self, number, paused, ahead):
        """Let go at an instant that may have been before: the clock was set back, say."""
        it = self.play.world.recurring.get(self.pick(number))
        next_at = (self.play.now if it is None or it.next_at is None else it.next_at) + ahead * HOUR
        self.play.do(PauseRecurring(recurring=self.pick(number), by="ada", paused=paused, next_at=next_at))

    @rule(number=which)
    def remove(self, number):
        """It is no more."""
        self.play.do(RemoveRecurring(recurring=self.pick(number), by="ada"))

    @rule(number=st.integers(0, 9), ends=st.booleans(), act=st.sampled_from((Cancel, Pause, LetGo)))
    def of_a_job(self, number, ends, act):
        """A job of theirs ends, or its owner does something to it."""
        living = [it.id for it in self.play.world.workloads.values() if it.state is not State.ENDED]
        if not living:
            return
        id_ = living[number % len(living)]
        if ends and self.play[id_].is_live:
            self.play.exit(id_)
        else:
            self.play.do(act(workload=id_, by="ada"))

    @rule(minutes=st.sampled_from((-90, 1, 30, 61, 200)))
    def time_passes(self, minutes):
        """Mostly ahead."""
        self.play.later(minutes * MINUTE)

    @invariant()
    def an_instant_has_one_job_or_array(self):
        """By the key, which names the recurring job and the instant."""
        events = (getattr(self, "play", None) and self.play.events) or []
        submitted = [event.it for event in events if isinstance(event, Submitted)]
        keys = Counter(it.idempotency_key for it in submitted if it.idempotency_key is not None)
        assert all(count == 1 for count in keys.values())
        assert all(key.startswith("recurring/") for key in keys)

    @invariant()
    def none_that_leaves_out_runs_beside_itself(self):
        """With overlap skip there is one time's work at most that is not over."""
        for it in self.play.world.recurring.values():
            alive = [
                w.member.array if w.member is not None else w.id
                for w in self.play.world.workloads.values()
                if w.recurring == it.id and w.state is not State.ENDED
            ]
            assert it.overlap is Overlap.QUEUE or len(set(alive)) <= 1

    @invariant()
    def every_job_of_theirs_is_counted(self):
        """`times` is the number of jobs or arrays that it led to; and nothing comes of what was removed."""
        times: Counter[int] = Counter()
        gone: set[int] = set()
        for event in self.play.events:
            if isinstance(event, Submitted) and (event.it.member is None or event.it.member.index == 1):
                assert event.it.recurring not in gone
                times[event.it.recurring or 0] += 1
            elif isinstance(event, RecurringPut):
                assert (event.what, event.it.times) == ("added", 0)
            elif isinstance(event, RecurringChanged):
                assert event.times == times[event.recurring]
                assert event.what in ("fired", "skipped", "refused", "paused", "let go")
            elif isinstance(event, RecurringRemoved):
                gone.add(event.recurring)

    def teardown(self):
        """The log alone gives the same world."""
        self.play.look_at_replay()


def test_random_lives_of_recurring_jobs_keep_all_promises():
    """Safety, liveness and replay as for all work, and what is promised of them alone."""
    run_state_machine_as_test(Calendars, settings=BRIEF)


def forget_the_calendar(patch):
    """The job is submitted, and its instant is awaited on."""
    real = recurring._submitted

    def careless(*words, **more):
        return [event for event in real(*words, **more) if not isinstance(event, RecurringChanged)]

    patch.setattr(recurring, "_submitted", careless)


def look_at_no_overlap(patch):
    """Whether the last time's job is over is not asked."""
    patch.setattr(recurring, "_not_over", lambda *_: None)


@pytest.mark.parametrize("fault", [forget_the_calendar, look_at_no_overlap])
def test_a_fault_in_the_rules_is_found(fault, monkeypatch):
    """The promises bite: what is broken on purpose does not go unseen."""
    fault(monkeypatch)

    with pytest.raises(AssertionError):
        run_state_machine_as_test(Calendars, settings=UNTIL_CAUGHT)
