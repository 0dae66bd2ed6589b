"""Recurring jobs: one job for each instant that is awaited, whatever is told twice, late, or out of turn."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_gpu.core import recurring as rules
from jupyter_gpu.core.events import AnyEvent, RecurringChanged, RecurringPut, Submitted
from jupyter_gpu.core.lifecycle import fold
from jupyter_gpu.errors import Conflict, InvalidAsk, LimitExceeded, NotAllowed, NotFound
from jupyter_gpu.model import (
    MOST_MISSED,
    AddRecurring,
    Cancel,
    Dependency,
    Fire,
    FireNow,
    JobSpec,
    Kind,
    LoadPolicy,
    Overlap,
    PauseRecurring,
    Policy,
    QueuePolicy,
    Recurring,
    RemoveRecurring,
    State,
    Submit,
    World,
)
from tests.world import BEGIN, DAY, HOUR, MINUTE, Play, a_job, a_reservation, a_spec, differences, refolded

NIGHT = BEGIN + HOUR


def nightly(submit: Submit | None = None, **words) -> AddRecurring:
    """A job at the first full hour, and each day after that."""
    usual = {"cron": "0 13 * * *", "timezone": "UTC", "next_at": NIGHT}
    return AddRecurring(submit=submit or a_job(name="digits"), **{**usual, **words})


def added(play: Play, command: AddRecurring | None = None) -> int:
    """Add it and give its number."""
    return play.submit(command or nightly())


def the(play: Play, id_: int) -> Recurring:
    """How it stands."""
    return play.world.recurring[id_]


def fire(play: Play, id_: int, *, late: float = 0, missed: int = 0) -> Recurring:
    """Its next instant comes, so late; the next one is a day later."""
    due_at = the(play, id_).next_at
    assert due_at is not None
    play.now = due_at + late
    play.do(Fire(recurring=id_, due_at=due_at, next_at=due_at + DAY * (1 + missed), missed=missed))
    return the(play, id_)


def test_an_instant_leads_to_a_job_like_any_other():
    """Its owner's, admitted by the same rules, placed in the same step, with the recurring job's number on it."""
    play = Play()
    id_ = added(play, nightly(a_job("ada", name="digits", queue="training")))
    assert play.world.workloads == {}

    it = fire(play, id_)

    job = play[it.last_workload]
    assert (job.owner, job.name, job.queue, job.recurring, job.state) == ("ada", "digits", "training", id_, "active")
    assert (it.times, it.last_at, it.next_at, it.last_detail) == (1, NIGHT, NIGHT + DAY, "")
    assert job.detail == ""


def test_its_number_means_nothing_else():
    """Workloads and recurring jobs are numbered in one row, so `cancel 2` and `recurring remove 2` are not mixed up."""
    play = Play()
    assert [play.job(), added(play), play.job()] == [1, 2, 3]


def test_an_instant_is_told_twice_and_leads_to_one_job():
    """A loop that repeats itself, or a second one: only what is awaited counts."""
    play = Play()
    id_ = added(play)
    fire(play, id_)
    before = len(play.world.workloads)

    for due_at in (NIGHT, NIGHT - DAY, NIGHT + 7 * DAY):
        assert play.do(Fire(recurring=id_, due_at=due_at, next_at=NIGHT + 2 * DAY)) == []

    assert len(play.world.workloads) == before
    assert the(play, id_).next_at == NIGHT + DAY


def test_an_instant_that_the_clock_has_not_reached_leads_to_nothing():
    """The clock was set back between the look at it and the decision."""
    play = Play()
    id_ = added(play)
    assert play.now < NIGHT

    assert play.do(Fire(recurring=id_, due_at=NIGHT, next_at=NIGHT + DAY)) == []
    assert the(play, id_).next_at == NIGHT


def test_the_key_of_the_instant_keeps_a_second_job_away_even_if_the_calendar_is_confused():
    """The clock was set back by more than a day, say: the same instant is awaited once more."""
    play = Play()
    id_ = added(play)
    first = fire(play, id_).last_workload
    play.do(PauseRecurring(recurring=id_, by="ada", paused=False, next_at=NIGHT))
    play.do(Cancel(workload=first, by="ada"))
    play.start(first)
    play.exit(first)

    it = fire(play, id_)

    assert [job.id for job in play.world.workloads.values()] == [first]
    assert (it.times, it.last_detail) == (1, f"left out, since job {first} was for this time already")


# -- overlap


def test_while_the_last_one_runs_the_next_is_left_out_and_says_so():
    """The usual rule; the one that runs is still the one that counts the time after."""
    play = Play()
    id_ = added(play)
    first = fire(play, id_).last_workload

    for _ in range(2):
        it = fire(play, id_)
        assert (it.last_workload, it.times) == (first, 1)
        assert it.last_detail == f"left out, since job {first} of the time before is not over"

    play.start(first)
    play.exit(first)
    assert fire(play, id_).last_workload == first + 1


def test_who_asked_for_it_has_them_stand_in_line():
    """Overlap queue: each time is a job, and those that have no device wait like others."""
    play = Play(devices=1)
    id_ = added(play, nightly(overlap=Overlap.QUEUE))

    jobs = [fire(play, id_).last_workload for _ in range(3)]

    assert [play.state(job) for job in jobs] == [State.ACTIVE, State.QUEUED, State.QUEUED]


def test_an_array_recurs_as_a_whole():
    """All of it each time, and it is over when the last of it is."""
    play = Play(devices=3)
    id_ = added(play, nightly(a_job(array=({"seed": "1"}, {"seed": "2"}))))
    first = fire(play, id_).last_workload
    assert [job.recurring for job in play.world.workloads.values()] == [id_, id_]

    play.start(first)
    play.exit(first)
    assert fire(play, id_).last_detail == f"left out, since job {first + 1} of the time before is not over"
    play.start(first + 1)
    play.exit(first + 1)
    assert fire(play, id_).last_workload == first + 2


# -- late and missed


@pytest.mark.parametrize(
    ("late", "missed", "said"),
    [
        (30, 0, ""),
        (7 * HOUR + 30 * MINUTE, 0, "7h30m late"),
        (DAY + HOUR, 1, "1d1h late; 1 more time was missed meanwhile, and this stands for all"),
        (7 * DAY, 6, "7d late; 6 more times were missed meanwhile, and this stands for all"),
        (
            900 * DAY,
            MOST_MISSED,
            f"900d late; at least {MOST_MISSED} more times were missed meanwhile, and this stands for all",
        ),
    ],
)
def test_what_was_missed_leads_to_one_job_that_says_so(late, missed, said):
    """Both the recurring job and the job itself; what is some seconds late is on time."""
    play = Play()
    id_ = added(play)

    it = fire(play, id_, late=late, missed=missed)

    assert (it.last_detail, play[it.last_workload].detail) == (said, said)
    assert (it.times, len(play.world.workloads)) == (1, 1)
    assert it.last_at == NIGHT


def test_what_was_left_out_late_says_both():
    """Nothing of what is to be known is lost for the other."""
    play = Play()
    id_ = added(play)
    first = fire(play, id_).last_workload

    it = fire(play, id_, late=2 * DAY, missed=1)

    assert it.last_detail == (
        f"left out, since job {first} of the time before is not over "
        "(2d late; 1 more time was missed meanwhile, and this stands for all)"
    )


# -- refused


def test_a_refused_job_is_told_and_the_next_instant_tries_again():
    """A full line, a changed policy: the calendar lives on."""
    play = Play(devices=1, policy=Policy(most_queued=2))
    id_ = added(play)
    blocking = [play.reservation("bob"), play.job(), play.job()]

    it = fire(play, id_)

    assert it.last_detail == "refused: ada has 2 workloads waiting already, and 2 are the most"
    assert (it.last_workload, it.times, it.last_at, it.next_at) == (None, 0, NIGHT, NIGHT + DAY)
    play.do(Cancel(workload=blocking[2], by="ada"))
    assert fire(play, id_).times == 1


def test_a_queue_that_its_owner_may_enter_no_more_refuses_the_job_alone():
    """The policy was changed since it was added."""
    play = Play()
    id_ = added(play, nightly(a_job("ada", queue="training")))
    closed = [
        msgspec.structs.replace(queue, users=("grace",)) if queue.name == "training" else queue
        for queue in play.world.policy.queues
    ]
    play.do(LoadPolicy(policy=Policy(queues=tuple(closed))))

    assert fire(play, id_).last_detail == "refused: ada may not enter the queue training"


def test_who_has_left_a_team_does_not_run_for_it():
    """The hub's word of now counts, and not that of the day on which it was added."""
    play = Play(policy=Policy(teams={"vision": ()}))
    id_ = added(play, nightly(a_job("ada", team="vision", groups=("vision",))))
    play.world.groups = {"ada": ()}

    assert fire(play, id_).last_detail == "refused: ada is not in the team 'vision'"

    play.world.groups = {}  # the hub was not asked about them yet
    assert play[fire(play, id_).last_workload].team == "vision"


# -- adding


def test_what_could_never_be_submitted_is_not_added():
    """Somebody is there to read why; at night nobody is."""
    play = Play(policy=Policy(queues=(QueuePolicy(name="training", priority=50, kinds=(Kind.JOB,), users=("grace",)),)))

    with pytest.raises(NotAllowed):
        play.do(nightly(a_job("ada")))
    with pytest.raises(InvalidAsk, match="nothing to run"):
        play.do(nightly(a_job("grace", spec=None)))


@pytest.mark.parametrize(
    ("submit", "said"),
    [
        (a_reservation("ada"), "only jobs recur"),
        (a_job(not_before=NIGHT), "by its calendar"),
        (a_job(paused=True), "by its calendar"),
        (a_job(after=(Dependency(workload=1),)), "comes after no other"),
    ],
)
def test_what_has_no_meaning_each_night_is_refused(submit, said):
    """A start, an end and a parent of its own are of one job, not of all that come."""
    play = Play()
    play.job()

    with pytest.raises(InvalidAsk, match=said):
        play.do(nightly(submit))


def test_a_calendar_without_an_instant_is_refused():
    """The 31st of a month that has none would be waited for in vain."""
    with pytest.raises(InvalidAsk, match="no instant"):
        Play().do(nightly(next_at=None))


def test_asked_again_with_its_key_it_is_the_same_one():
    """A client that lost the answer does not get two calendars, and a key is not for two different jobs."""
    play = Play()
    command = nightly(a_job(idempotency_key="k"))
    id_ = added(play, command)

    assert play.do(command) == []
    assert list(play.world.recurring) == [id_]
    assert play.do(nightly(a_job("bob", idempotency_key="k"))) == ["recurring-put"]
    with pytest.raises(Conflict, match="something else"):
        play.do(msgspec.structs.replace(command, cron="0 14 * * *"))
    with pytest.raises(Conflict, match="something else"):
        play.do(nightly(a_job(idempotency_key="k", spec=a_spec(argv=("other",)))))


def test_the_key_of_the_ask_is_not_the_key_of_its_jobs():
    """Else every night's job would be the first night's."""
    play = Play()
    id_ = added(play, nightly(a_job(idempotency_key="k"), overlap=Overlap.QUEUE))

    assert fire(play, id_).last_workload != fire(play, id_).last_workload


def test_one_owner_has_a_bounded_number(monkeypatch):
    """And of what they weigh together, since all are kept in memory; others are not hindered."""
    monkeypatch.setattr(rules, "MOST_RECURRING", 2)
    play = Play()
    first = added(play)
    added(play)

    with pytest.raises(LimitExceeded, match="2 recurring jobs already"):
        play.do(nightly())
    added(play, nightly(a_job("bob")))
    play.do(RemoveRecurring(recurring=first, by="ada"))
    monkeypatch.setattr(rules, "MOST_RECURRING_CHARACTERS", 1000)
    with pytest.raises(LimitExceeded, match="1000 are the most"):
        play.do(nightly(a_job(spec=a_spec(argv=("python", "x" * 1000)))))


# -- now, pause, let go, remove


def test_once_more_now_leaves_the_calendar_as_it_is():
    """Also while it is paused: its owner says so."""
    play = Play()
    id_ = added(play)
    play.do(PauseRecurring(recurring=id_, by="ada", paused=True))

    play.do(FireNow(recurring=id_, by="ada"))

    it = the(play, id_)
    assert (it.times, it.next_at, it.last_at, it.paused) == (1, NIGHT, BEGIN, True)
    assert play[it.last_workload].recurring == id_


def test_once_more_now_is_refused_aloud():
    """Who asks is there to read it: what runs already, and what cannot be submitted."""
    play = Play(devices=1, policy=Policy(most_queued=1))
    id_ = added(play)
    play.do(FireNow(recurring=id_, by="ada"))
    with pytest.raises(Conflict, match=r"job \d+ of recurring job \d+ \(digits\) is not over"):
        play.do(FireNow(recurring=id_, by="ada"))

    other = added(play, nightly(a_job("ada"), overlap=Overlap.QUEUE))
    play.do(FireNow(recurring=other, by="ada"))
    with pytest.raises(LimitExceeded):
        play.do(FireNow(recurring=other, by="ada"))


def test_a_paused_one_awaits_nothing_and_makes_up_for_nothing():
    """Let go, it goes on from the next instant."""
    play = Play()
    id_ = added(play)
    play.do(PauseRecurring(recurring=id_, by="ada", paused=True))
    play.now = NIGHT
    assert play.do(Fire(recurring=id_, due_at=NIGHT, next_at=NIGHT + DAY)) == []

    play.now = NIGHT + 3 * DAY
    play.do(PauseRecurring(recurring=id_, by="ada", paused=False, next_at=NIGHT + 4 * DAY))

    assert (the(play, id_).paused, the(play, id_).next_at, play.world.workloads) == (False, NIGHT + 4 * DAY, {})
    assert play.do(PauseRecurring(recurring=id_, by="ada", paused=False, next_at=NIGHT + 4 * DAY)) == []


def test_a_removed_one_leaves_its_jobs():
    """What runs goes on; a late word of its calendar means nothing."""
    play = Play()
    id_ = added(play)
    job = fire(play, id_).last_workload

    play.do(RemoveRecurring(recurring=id_, by="ada"))

    assert play.world.recurring == {}
    assert play.state(job) is State.ACTIVE
    assert play.do(Fire(recurring=id_, due_at=NIGHT + DAY, next_at=None)) == []


@pytest.mark.parametrize(
    "command",
    [
        RemoveRecurring(recurring=1, by="ada"),
        FireNow(recurring=1, by="ada"),
        PauseRecurring(recurring=1, by="ada", paused=True),
    ],
)
def test_what_is_not_there_is_not_found(command):
    """A workload of that number is no recurring job."""
    play = Play()
    play.job()

    with pytest.raises(NotFound, match="no recurring job 1"):
        play.do(command)


def test_the_log_tells_all_of_it_again():
    """Replay gives the same recurring jobs; each event says what happened, and its job stands before it."""
    play = Play()
    id_ = added(play)
    fire(play, id_)
    fire(play, id_)
    play.do(PauseRecurring(recurring=id_, by="oper", paused=True))

    told = [(event.what, event.by) for event in play.events if isinstance(event, RecurringPut | RecurringChanged)]
    assert told == [("added", "ada"), ("fired", ""), ("skipped", ""), ("paused", "oper")]
    kinds = [type(event) for event in play.events if isinstance(event, RecurringPut | RecurringChanged | Submitted)]
    assert kinds[:3] == [RecurringPut, Submitted, RecurringChanged]
    assert differences(refolded(play), play.world) == []


def test_what_it_runs_is_written_down_once():
    """And not with each word to it, which is small however large that is."""
    play = Play()
    id_ = added(play, nightly(a_job(spec=JobSpec(argv=("x" * 100_000,), folder="/", environment={}))))
    before = len(play.events)
    for paused in (True, False, True):
        play.do(PauseRecurring(recurring=id_, by="ada", paused=paused, next_at=None if paused else NIGHT))
    assert max(len(msgspec.json.encode(event)) for event in play.events[before:]) < 1000
    assert play.world.recurring[id_].submit.spec.argv == ("x" * 100_000,)
    assert differences(refolded(play), play.world) == []


def test_logs_that_have_all_of_it_in_each_event_are_read():
    """As they were written at first."""
    play = Play()
    id_ = added(play)
    paused = msgspec.structs.replace(play.world.recurring[id_], paused=True, last_detail="x")
    log = [*play.events, RecurringPut(at=NIGHT, it=paused, what="paused", by="ada")]
    read = [msgspec.json.decode(msgspec.json.encode(event), type=AnyEvent) for event in log]
    assert fold(World(play.world.policy), read).recurring[id_] == paused
