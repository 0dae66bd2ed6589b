"""What comes after what: met, unmet, told, and never waiting for what does not come."""

import pytest

from jupyter_gpu.core.events import Amended, Ended
from jupyter_gpu.core.status import view
from jupyter_gpu.errors import Conflict, InvalidAsk, NotFound
from jupyter_gpu.model import (
    Caller,
    Cancel,
    Chain,
    Dependency,
    EndReason,
    EvictionReason,
    LetGo,
    Outcome,
    Pause,
    Policy,
    Release,
    Scope,
    SeeExited,
    SeeHolderGone,
    State,
    WaitingReason,
)
from tests.world import CRASHED, DAY, DONE, HOUR, SAVED, Play, a_job, a_reservation, a_spec, differences, refolded

ADA = Caller(name="ada", account="ada", scopes=frozenset({Scope.READ, Scope.SUBMIT}))


def after(*ids: int, ok: bool = False) -> tuple[Dependency, ...]:
    """Any end of these, or their success."""
    return tuple(Dependency(workload=id_, ok=ok) for id_ in ids)


def ended(play: Play, id_: int) -> tuple[EndReason | None, str]:
    """How it ended, and the words about it."""
    return play[id_].end, play[id_].detail


def reason(play: Play, id_: int, caller: Caller = ADA) -> str:
    """The sentence that its owner reads."""
    return view(play.world, play[id_], caller, play.now, alone=True).reason


def test_a_job_starts_in_the_step_in_which_what_it_comes_after_ends():
    """Devices are free meanwhile, and others use them."""
    play = Play(2)
    first = play.running(name="prep")
    second = play.job(after=after(first))
    assert (play.waiting(second), play[second].unmet) == (WaitingReason.DEPENDENCY, (first,))

    assert play.exit(first)[-2:] == [f"amended {second}", f"granted {second}"]

    assert (play[second].unmet, play[second].after) == ((), after(first))
    assert differences(refolded(play), play.world) == []


@pytest.mark.parametrize("outcome", [DONE, CRASHED, Outcome(end=EndReason.GPU_OOM, exit_code=1)])
def test_any_end_will_do_unless_success_is_asked_for(outcome):
    """What failed left something behind, perhaps; whoever needs its success says so."""
    play = Play(2)
    first = play.running(name="prep")
    plain, strict = play.job(after=after(first)), play.job(after=after(first, ok=True))

    play.exit(first, outcome)

    assert play.state(plain) is State.ACTIVE
    assert play.state(strict) is (State.ACTIVE if outcome is DONE else State.ENDED)


def test_all_of_several_are_waited_for():
    """Each end is noted as it comes."""
    play = Play(3)
    first, second = play.running(name="one"), play.running(name="two")
    third = play.job(after=after(first, second))

    play.exit(second)
    assert (play[third].unmet, play.waiting(third)) == ((first,), WaitingReason.DEPENDENCY)
    play.exit(first)

    assert play.state(third) is State.ACTIVE
    details = [it.detail for it in play.events if isinstance(it, Amended)]
    assert details == ["job 2 (two) ended (succeeded)", "job 1 (one) ended (succeeded)"]


def test_the_child_of_a_job_cancelled_before_it_started_ends_and_so_does_what_comes_after_it():
    """flux-framework/flux-core#6555, cylc/cylc-flow#512: it neither runs nor waits for ever, and the path is told."""
    play = Play(1)
    prep = play.job(devices=0, paused=True, name="prep")
    train = play.job(after=after(prep), name="train")
    report = play.job(after=after(train))
    last = play.job(after=after(report, ok=True))

    said = play.do(Cancel(workload=prep, by="ada"))

    assert said == [f"ended ({'cancelled' if id_ == prep else 'dependency-unmet'}) {id_}" for id_ in (1, 2, 3, 4)]
    assert ended(play, train) == (
        EndReason.DEPENDENCY_UNMET,
        "job 1 (prep) was cancelled before it began, and job 2 (train) was to come after it",
    )
    assert ended(play, report)[1] == f"{play[train].detail}, and job 3 after job 2"
    assert ended(play, last)[1] == f"{play[report].detail}, and job 4 after job 3"
    assert play.world.children == []
    assert differences(refolded(play), play.world) == []


def test_the_child_of_a_failed_parent_whose_success_it_needs_ends():
    """rq/rq#1691: not left behind, and the sentence says who failed."""
    play = Play(1)
    first = play.running(name="prep")
    second = play.job(after=after(first, ok=True))

    play.exit(first, CRASHED)

    assert ended(play, second) == (
        EndReason.DEPENDENCY_UNMET,
        "job 1 (prep) failed, and job 2 was to come after its success",
    )
    assert reason(play, second).startswith("It ended: dependency-unmet (job 1 (prep) failed, and job 2 was")


def test_a_job_cancelled_while_it_ran_meets_after_but_not_success():
    """It began, so there is something to come after."""
    play = Play(2)
    first = play.running()
    plain, strict = play.job(after=after(first)), play.job(after=after(first, ok=True))
    play.do(Cancel(workload=first, by="ada"))
    assert play.waiting(plain) is WaitingReason.DEPENDENCY

    play.exit(first, SAVED)

    assert play.state(plain) is State.ACTIVE
    assert ended(play, strict)[1] == "job 1 was cancelled, and job 3 was to come after its success"


def test_one_cancelled_between_its_grant_and_its_start_never_began():
    """The lease alone is no beginning."""
    play = Play(1)
    first = play.job()
    second = play.job(after=after(first))
    play.do(Cancel(workload=first, by="ada"))

    outcome = Outcome(end=EndReason.LAUNCH_FAILED, engine_fault=True)
    play.do(SeeExited(workload=first, attempt=1, outcome=outcome, clear=True, started=False))

    assert ended(play, first)[0] is EndReason.CANCELLED
    assert ended(play, second)[0] is EndReason.DEPENDENCY_UNMET


def test_a_preempted_parent_has_not_ended():
    """It comes back, and whoever waits for it waits on."""
    play = Play(1)
    first = play.running(queue="deferred")
    second = play.job(devices=0, after=after(first))
    play.later(HOUR)
    play.reservation()
    assert play[first].eviction is EvictionReason.PREEMPTED

    play.exit(first, SAVED)

    assert (play.state(first), play.waiting(second)) == (State.QUEUED, WaitingReason.DEPENDENCY)


def test_every_way_in_which_a_workload_ends_is_noticed():
    """A person's word, an observation, a verdict after the clearing, time alone: nobody is forgotten."""
    play = Play(4)
    given_back, gone, no_show = play.reservation(), play.reservation(), play.reservation(holder=None)
    cleared = play.running()
    children = {it: play.job(devices=0, after=after(it)) for it in (given_back, gone, no_show, cleared)}

    play.do(Release(workload=given_back, by="bob"))
    play.clear(given_back)
    play.do(SeeHolderGone(workload=gone, holder_number=1))
    play.clear(gone)
    play.exit(cleared, clear=False)
    assert play.waiting(children[cleared]) is WaitingReason.DEPENDENCY
    play.clear(cleared)
    play.later(play.world.policy.attach_seconds + 1)
    play.clear(no_show)

    assert [play.state(child) for child in children.values()] == [State.ACTIVE] * 4


def test_what_has_ended_already_is_met_or_not_at_once():
    """As if it had ended a moment later: who submits a pipeline sees the same, however fast the first of it fails."""
    play = Play(1)
    done = play.running()
    play.exit(done)
    failed = play.running()
    play.exit(failed, CRASHED)

    assert play.state(play.job(after=after(done, ok=True))) is State.ACTIVE
    late = play.job(after=after(failed, ok=True))

    assert ended(play, late) == (
        EndReason.DEPENDENCY_UNMET,
        f"job {failed} failed, and job {late} was to come after its success",
    )
    assert isinstance(play.events[-1], Ended)


def test_what_the_world_has_forgotten_is_told_by_the_store():
    """A parent may have ended long ago: who submits brings it along."""
    play = Play(1)
    done = play.running()
    play.exit(done)
    past = (play[done],)
    play.world._forget(done)

    with pytest.raises(NotFound, match="there is no workload 1"):
        play.job(after=after(done))
    assert play.state(play.job(after=after(done, ok=True), past=past)) is State.ACTIVE


def test_what_is_not_there_cannot_be_come_after():
    """Also the number that the job itself will get: a job after itself cannot even be said (cylc/cylc-flow#512)."""
    play = Play(1)

    with pytest.raises(NotFound, match="there is no workload 1"):
        play.job(after=after(1))
    assert play.world.workloads == {}


def test_a_job_after_itself_is_refused():
    """cylc/cylc-flow#512: it would wait for ever."""
    play = Play(1)
    only = play.job(devices=0, paused=True)

    with pytest.raises(Conflict, match="job 1 would wait for itself: 1 → 1, each after the next"):
        play.do(Chain(workload=only, by="ada", after=after(only)))


def test_a_circle_is_refused_with_its_path():
    """apache/dolphinscheduler#458: A after B, and B edited to be after A, over however many."""
    play = Play(1)
    first = play.job(devices=0, paused=True)
    second = play.job(devices=0, after=after(first))
    third = play.job(devices=0, after=after(second))

    with pytest.raises(Conflict, match="job 1 would wait for itself: 1 → 2 → 1,"):
        play.do(Chain(workload=first, by="ada", after=after(second)))
    with pytest.raises(Conflict, match="job 1 would wait for itself: 1 → 3 → 2 → 1,") as refused:
        play.do(Chain(workload=first, by="ada", after=after(third)))

    assert refused.value.hint == "Leave 3 out, or let 2 come after something else first."
    assert play[first].after == ()


def test_what_a_job_comes_after_can_be_changed_while_it_waits():
    """To others, to fewer, to nothing; said twice it changes nothing."""
    play = Play(2)
    first, second = play.running(), play.running()
    child = play.job(devices=0, after=after(first))

    play.do(Chain(workload=child, by="ada", after=after(second, ok=True)))
    assert (play[child].after, play[child].unmet) == (after(second, ok=True), (second,))
    assert play.do(Chain(workload=child, by="ada", after=after(second, ok=True))) == []
    play.exit(first)
    assert play.waiting(child) is WaitingReason.DEPENDENCY

    assert play.do(Chain(workload=child, by="ada")) == [f"amended {child}", f"granted {child}"]
    assert differences(refolded(play), play.world) == []


def test_an_amendment_that_would_end_the_job_is_refused():
    """A slip of one digit must not cost a place in line."""
    play = Play(1)
    failed = play.running(name="prep")
    play.exit(failed, CRASHED)
    child = play.job(paused=True)

    with pytest.raises(Conflict, match=r"it would never start: job 1 \(prep\) failed, and job 2 was to come after its"):
        play.do(Chain(workload=child, by="ada", after=after(failed, ok=True)))
    assert play.state(child) is State.QUEUED


@pytest.mark.parametrize("state", [State.ACTIVE, State.ENDED])
def test_only_what_is_queued_can_be_made_to_come_after_others(state):
    """It has begun, so it can come after nothing any more."""
    play = Play(2)
    first, other = play.running(), play.running()
    if state is State.ENDED:
        play.exit(first)

    with pytest.raises(Conflict, match=f"job 1 is {state}; only what is queued can be made to come after others"):
        play.do(Chain(workload=first, by="ada", after=after(other)))


def test_reservations_come_after_nothing_and_succeed_at_nothing():
    """A person waits by themselves; what they hold is given back."""
    play = Play(1)
    held = play.reservation()

    with pytest.raises(InvalidAsk, match="a reservation comes after nothing"):
        play.do(a_reservation(after=after(held)))
    with pytest.raises(InvalidAsk, match="reservation 1 cannot succeed"):
        play.do(a_job(after=after(held, ok=True)))
    waiting = play.reservation()
    with pytest.raises(InvalidAsk, match="comes after nothing"):
        play.do(Chain(workload=waiting, by="bob", after=after(held)))


def test_the_same_twice_is_once_and_the_stricter():
    """`--after 1 --after-ok 1`."""
    play = Play(1)
    first = play.running()
    child = play.job(after=(*after(first), *after(first, ok=True)))

    assert play[child].after == after(first, ok=True)


def test_the_sentence_names_whom_it_waits_for_and_how_they_stand():
    """Nothing waits silently."""
    play = Play(2)
    prep = play.running(name="prep")
    held = play.reservation("ada")
    waits, paused = play.job(), play.job(paused=True, name="sweep")
    chained = play.job(devices=0, after=after(prep))
    it = play.job(after=(*after(prep), *after(waits, ok=True), *after(paused)))
    assert reason(play, it).startswith(
        f"It comes after job {prep} (prep), which runs; after the success of job {waits}, which waits in line; "
        f"after job {paused} (sweep), which is paused. "
    )

    it = play.job(after=after(held, chained, paused, waits))
    assert reason(play, it).startswith(
        f"It comes after reservation {held}, which is in use; after job {chained}, which waits for other work itself; "
        f"after job {paused} (sweep), which is paused; and after 1 more. "
    )
    stranger = Caller(name="eve", account="eve", scopes=frozenset({Scope.READ}))
    assert reason(play, it, stranger).startswith("It comes after other work, which has not ended. ")


def test_others_names_stay_out_of_a_jobs_own_words():
    """What somebody else calls theirs is not for its owner to read, nor why it ended."""
    play = Play(1, Policy(names_are_public=False))
    theirs = play.job("bob", devices=0, paused=True, name="secret")
    between = play.job("bob", devices=0, after=after(theirs), name="hidden")
    mine, second = play.job(after=after(theirs)), play.job(after=after(between))

    play.do(Cancel(workload=theirs, by="bob", reason="our secret plan"))

    assert ended(play, mine)[1] == "job 1 was cancelled before it began, and job 3 was to come after it"
    assert ended(play, second)[1] == "job 2 waited in vain for something else, and job 4 was to come after it"


def test_a_paused_child_keeps_its_pause_when_its_parent_ends():
    """Two things keep it, and each is lifted by itself."""
    play = Play(1)
    first = play.running()
    child = play.job(paused=True, after=after(first))
    assert play.waiting(child) is WaitingReason.PAUSED

    play.do(LetGo(workload=child, by="ada"))
    assert play.waiting(child) is WaitingReason.DEPENDENCY
    play.do(Pause(workload=child, by="ada"))
    play.exit(first)
    assert play.waiting(child) is WaitingReason.PAUSED

    play.do(LetGo(workload=child, by="ada"))
    assert play.state(child) is State.ACTIVE


def test_the_words_of_a_very_long_chain_stay_readable():
    """Where it began and where it ended; what lies between is left out."""
    play = Play(1)
    first = last = play.job(devices=0, paused=True, name="prep")
    for _ in range(300):
        last = play.job(devices=0, after=after(last))

    play.do(Cancel(workload=first, by="ada"))

    end, words = ended(play, last)
    assert end is EndReason.DEPENDENCY_UNMET
    assert words.startswith("job 1 (prep) was cancelled before it began, and job 2 was to come after it, and job 3")
    assert words.endswith(", and so on, and job 301 after job 300")
    assert len(words) < 600


def test_work_that_waits_for_other_work_keeps_nobody_from_a_device():
    """It is passed by, whatever its place in line."""
    play = Play(1)
    first = play.job(devices=0, paused=True)
    play.job(after=after(first))

    assert play.state(play.job("bob")) is State.ACTIVE


def test_the_limit_of_waiting_does_not_run_while_a_job_waits_for_others():
    """Nobody keeps it from a device meanwhile, so it does not come before those who wait for one."""
    play = Play(1)
    first = play.running()
    child = play.job(after=after(first))

    play.later(5 * DAY)
    assert not play[child].lifted
    play.do(Chain(workload=child, by="ada"))
    play.later(1)
    assert play[child].lifted


def test_a_requeued_job_goes_on_without_waiting_again():
    """What it came after has ended once and for all."""
    play = Play(2)
    first = play.running()
    child = play.job(after=after(first), spec=a_spec(retries=1))
    play.exit(first)
    play.start(child)

    play.exit(child, CRASHED)

    assert (play.state(child), play[child].failures) == (State.ACTIVE, 1)
