"""Arrays: many jobs by one ask, all or none of them, so many at once as their owner says."""

import pytest

from jupyter_gpu.core.arrays import member_spec
from jupyter_gpu.core.events import Amended, Evicted, Submitted
from jupyter_gpu.core.status import view
from jupyter_gpu.errors import Conflict, InvalidAsk, LimitExceeded
from jupyter_gpu.model import (
    Caller,
    Cancel,
    Chain,
    Dependency,
    EndReason,
    LetGo,
    Pause,
    Policy,
    Progress,
    QuotaRule,
    Scope,
    State,
    Submit,
    Unfilled,
    WaitingReason,
    pack_bytes,
)
from tests.world import CRASHED, HOUR, SAVED, Play, a_job, a_reservation, a_spec, differences, refolded

ADA = Caller(name="ada", account="ada", scopes=frozenset({Scope.READ, Scope.SUBMIT}))


def sweep(count: int = 3, **words) -> Submit:
    """An array of jobs that differ in their seed."""
    return a_job(**{"array": tuple({"seed": str(seed)} for seed in range(count)), **words})


def submitted(play: Play, command: Submit) -> range:
    """Submit an array and give its numbers."""
    first = play.world.last_id + 1
    play.do(command)
    return play[first].member.ids


def running(play: Play, ids: range) -> list[int]:
    """Which of an array hold devices."""
    return [id_ for id_ in ids if play[id_].is_live]


def reason(play: Play, id_: int) -> str:
    """The sentence that its owner reads."""
    return view(play.world, play[id_], ADA, play.now, alone=True).reason


def test_all_of_an_array_enter_the_line_in_one_step_with_ids_that_follow():
    """Each knows its place, what tells it from the others, and texts say both."""
    play = Play(2)
    play.job("bob", name="before")
    spec = a_spec(argv=("python", "train.py", "--seed={seed}", "--out=run-{index}"), environment={"SEED": "s{seed}"})

    ids = submitted(play, sweep(name="digits", spec=spec))

    assert list(ids) == [2, 3, 4]
    last = play[4]
    assert (last.member.array, last.member.index, last.member.of, last.member.parameters) == (2, 3, 3, {"seed": "2"})
    assert last.title == "job 4 (digits, 3 of 3 of array 2)"
    assert last.spec.argv == ("python", "train.py", "--seed=2", "--out=run-3")
    assert (last.spec.environment, last.spec.parameters) == ({"SEED": "s2"}, {"seed": 2})
    assert differences(refolded(play), play.world) == []


@pytest.mark.parametrize(
    ("text", "value"),
    [("0.1", 0.1), ("1e-3", 0.001), ("5", 5), ("true", True), ("no", "no"), ("[1, 2]", [1, 2]), ('"5"', "5"), ("", "")],
)
def test_parameters_are_typed_as_json_and_stand_in_words_as_they_were_written(text, value):
    """A notebook gets a number where a number was written; a command gets what was typed."""
    found = member_spec(a_spec(argv=("run", "{x}")), {"x": text}, 1)

    assert found.parameters == {"x": value}
    assert found.argv == ("run", text)


def test_only_an_arrays_own_names_are_replaced_and_each_once():
    """Other braces are a shell's or a format's; a value that looks like a placeholder stays what it is."""
    spec = a_spec(argv=("sh", "-c", "echo ${HOME} {lr} {other} {{lr}} %s{index}", "{}"), environment={"{lr}": "{lr"})

    found = member_spec(spec, {"lr": "{index}"}, 7)

    assert found.argv == ("sh", "-c", "echo ${HOME} {index} {other} {{index}} %s7", "{}")
    assert found.environment == {"{lr}": "{lr"}


def test_words_that_are_no_text_are_filled_in_too():
    """A path in some old encoding arrives byte for byte, and what a value makes of a word is not misread."""
    spec = a_spec(argv=("run", pack_bytes(b"/data/\xff/{seed}"), "{odd}"))

    found = member_spec(spec, {"seed": "4", "odd": "base64:AAAA"}, 1)

    assert found.argv == ("run", pack_bytes(b"/data/\xff/4"), pack_bytes(b"base64:AAAA"))


def test_what_was_filled_in_is_kept_with_the_job():
    """So that it can be submitted again with another value; where nothing was filled in there is nothing to keep."""
    spec = a_spec(argv=("train.py", "{seed}"), environment={"SEED": "s{seed}", "A": "b"})

    found = member_spec(spec, {"seed": "4"}, 2)

    assert found.unfilled == Unfilled(
        argv=spec.argv, environment={"SEED": "s{seed}"}, texts={"seed": "4", "index": "2"}
    )
    assert found.unfilled.argv is spec.argv
    assert member_spec(a_spec(argv=("train.py",)), {"seed": "4"}, 2).unfilled is None


def test_each_of_an_array_says_which_notebook_its_results_go_into():
    """The place in the array stands in that name too."""
    spec = a_spec(
        argv=("run", "out-{index}.ipynb"), recorded={"output_notebook": "out-{index}.ipynb", "git": "{index}"}
    )

    assert member_spec(spec, {"seed": "4"}, 2).recorded == {"output_notebook": "out-2.ipynb", "git": "{index}"}


@pytest.mark.parametrize(
    ("folder", "found"), [("/ck/{seed}", "/ck/4"), ("/ck", "/ck/2"), ("/ck/", "/ck/2"), (None, None)]
)
def test_no_two_of_an_array_write_into_one_checkpoint_folder(folder, found):
    """A folder that names no placeholder is the parent of one for each."""
    assert member_spec(a_spec(checkpoint_dir=folder), {"seed": "4"}, 2).checkpoint_dir == found


def test_what_is_the_same_for_all_is_kept_once():
    """Ten thousand copies of an environment would be kept in memory."""
    spec = a_spec(environment={"A": "b"})

    assert member_spec(spec, {"seed": "1"}, 1).environment is spec.environment


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"array": ({"a": "1"}, {"b": "1"})}, "the parameters of the array differ: the first has a, number 2 has b"),
        ({"array": ({"a": "1"}, {})}, "number 2 has none"),
        ({"array": ({"a": "1", "b": "2"}, {"b": "2", "a": "1"})}, r"numbers 1 and 2 of the array are the same \(b=2"),
        ({"array": ({"index": "1"},)}, "cannot be called 'index'"),
        ({"array": ({"a b": "1"},)}, "cannot be called 'a b'"),
        ({"array": ({"a": "1"},), "at_most": 0}, "0 at once would never start"),
        ({"at_most": 2}, "at_most is for an array"),
    ],
)
def test_an_array_that_cannot_be_meant_is_refused_whole(words, said):
    """Nothing of it enters the line."""
    play = Play(1)

    with pytest.raises(InvalidAsk, match=said):
        play.do(a_job(**words))
    assert play.world.workloads == {}


def test_an_array_without_parameters_differs_by_its_places():
    """The same command so many times, each with its index."""
    play = Play(1)

    ids = submitted(play, a_job(array=({}, {}, {}), spec=a_spec(argv=("run", "{index}"))))

    assert [play[id_].spec.argv[1] for id_ in ids] == ["1", "2", "3"]


def test_an_array_is_of_jobs():
    """A person reserves once."""
    with pytest.raises(InvalidAsk, match="an array is of jobs"):
        Play(1).do(a_reservation(array=({}, {})))


def test_all_of_an_array_count_for_the_most_that_may_wait():
    """All or nothing: not as many as there is room for."""
    play = Play(1, Policy(most_queued=4))
    play.job(paused=True)

    with pytest.raises(LimitExceeded, match="ada has 1 workloads waiting already; 4 more would be above 4"):
        play.do(sweep(4))
    assert list(play.world.workloads) == [1]
    assert len(submitted(play, sweep(3))) == 3


def test_a_key_makes_a_repeated_array_the_same_array():
    """Its first has the key; another command, or an array of another size, is a slip."""
    play = Play(1)
    spec = a_spec(argv=("run", "{seed}"))
    submitted(play, sweep(3, spec=spec, idempotency_key="k"))

    assert play.do(sweep(3, spec=spec, idempotency_key="k")) == []
    for other in (sweep(2, spec=spec, idempotency_key="k"), a_job(spec=a_spec(argv=("run", "0")), idempotency_key="k")):
        with pytest.raises(Conflict, match="runs something else"):
            play.do(other)
    assert [play[id_].idempotency_key for id_ in (1, 2, 3)] == ["k", None, None]


def test_at_most_so_many_of_an_array_run_at_once():
    """The next starts when one has ended; others' work passes meanwhile."""
    play = Play(4)
    ids = submitted(play, sweep(5, at_most=2))
    assert running(play, ids) == [1, 2]
    assert [play.waiting(id_) for id_ in ids][2:] == [WaitingReason.QUOTA] * 3
    assert play.state(play.job("ada")) is State.ACTIVE

    play.start(1)
    play.exit(1)

    assert running(play, ids) == [2, 3]
    assert differences(refolded(play), play.world) == []


def test_the_sentence_says_that_it_was_asked_for():
    """No quota of anybody's: its owner's own word."""
    play = Play(4)
    ids = submitted(play, sweep(5, at_most=2))
    assert reason(play, ids[-1]).startswith(
        "2 of array 1 run, the most that was asked for at once. It starts when one of them has ended."
    )
    ids = submitted(play, sweep(2, at_most=1))
    assert reason(play, ids[-1]).startswith("1 of array 6 runs, the most that was asked for at once.")


def test_what_helps_one_of_an_array_is_said_for_all_of_it_too():
    """Who has sent a hundred wants to take a hundred back."""
    play = Play(1)
    ids = submitted(play, sweep(3))
    assert reason(play, ids[1]).endswith(
        f"Leave the line with `jupyter gpu cancel {ids[1]}` (with `--array` all of array {ids[0]})."
    )
    play.do(Pause(workload=ids[2], by="ada"))
    assert reason(play, ids[2]).endswith(
        f"Let it go with `jupyter gpu let-go {ids[2]}` (with `--array` all of array {ids[0]})."
    )


def test_a_quota_that_keeps_it_too_is_what_is_said():
    """More of the array may run, but nothing more of its owner."""
    play = Play(4, Policy(quotas=(QuotaRule(user="*", devices=1),)))
    ids = submitted(play, sweep(3, at_most=2))

    assert running(play, ids) == [1]
    assert reason(play, ids[1]).startswith("Each user: 1 of 1 GPU at once are held; it starts")


def test_one_that_is_leaving_counts_until_its_devices_are_clear():
    """It is not over before that."""
    play = Play(2)
    ids = submitted(play, sweep(2, at_most=1))
    play.start(1)

    play.exit(1, clear=False)
    assert play.waiting(ids[1]) is WaitingReason.QUOTA
    play.clear(1)

    assert running(play, ids) == [2]


def test_no_more_is_made_free_than_may_run():
    """With one at once, the second moves nobody for a device that it may not have."""
    play = Play(2)
    for _ in range(2):
        play.running("bob", queue="deferred")
    play.later(HOUR)

    ids = submitted(play, sweep(3, at_most=1))
    play.later(1)

    assert [play.waiting(id_) for id_ in ids] == [WaitingReason.CLEARING, WaitingReason.QUOTA, WaitingReason.QUOTA]
    assert len([it for it in play.events if isinstance(it, Evicted)]) == 1
    assert reason(play, ids[1]).startswith("1 of array 3 runs or is about to, the most that was asked for at once.")


def test_a_preempted_member_keeps_its_place_in_the_array():
    """It goes on as the same of the same array, before those behind it."""
    play = Play(1)
    ids = submitted(play, sweep(3, at_most=1, queue="deferred"))
    play.start(1)
    play.later(HOUR)
    reservation = play.reservation()
    play.exit(1, SAVED)
    assert (play.state(1), play[1].member.index) == (State.QUEUED, 1)
    assert running(play, ids) == []

    play.do(Cancel(workload=reservation, by="bob"))
    play.clear(reservation)

    assert running(play, ids) == [1]
    assert play[1].title == "job 1 (1 of 3 of array 1)"


def test_a_paused_or_later_member_counts_like_the_others_once_it_may_start():
    """What kept it is over, and still only so many run."""
    play = Play(4)
    ids = submitted(play, sweep(3, at_most=1, not_before=play.now + HOUR))
    assert [play.waiting(id_) for id_ in ids] == [WaitingReason.NOT_BEFORE] * 3

    play.later(HOUR + 1)

    assert [play.waiting(id_) for id_ in ids] == [None, WaitingReason.QUOTA, WaitingReason.QUOTA]


def test_a_job_after_an_array_waits_for_all_of_it():
    """It is named by its first, and means the whole."""
    play = Play(2)
    ids = submitted(play, sweep(3, name="digits"))
    last = play.job(devices=0, after=(Dependency(workload=ids[0]),))
    assert reason(play, last).startswith("It comes after array 1, of which 0 of 3 have ended.")

    for id_ in reversed(ids):
        assert play.waiting(last) is WaitingReason.DEPENDENCY
        for it in running(play, ids):
            if play[it].started_at is None:
                play.start(it)
        if not play[id_].is_live:
            play.exit(next(iter(running(play, ids))))
        else:
            play.exit(id_)

    assert play.state(last) is State.ACTIVE


def test_the_success_of_an_array_is_the_success_of_all_of_it():
    """The first that fails decides, while others still run; one in its middle can be named by itself."""
    play = Play(3)
    ids = submitted(play, sweep(3))
    strict = play.job(devices=0, after=(Dependency(workload=ids[0], ok=True),))
    plain = play.job(devices=0, after=(Dependency(workload=ids[0]),))
    of_one = play.job(devices=0, after=(Dependency(workload=ids[1], ok=True),))

    play.exit(ids[1], CRASHED)

    words = "job 2 (2 of 3 of array 1) failed, and job {} was to come after its success"
    assert (play[strict].end, play[strict].detail) == (EndReason.DEPENDENCY_UNMET, words.format(strict))
    assert (play[of_one].end, play[of_one].detail) == (EndReason.DEPENDENCY_UNMET, words.format(of_one))
    assert play.waiting(plain) is WaitingReason.DEPENDENCY
    play.exit(ids[0])
    play.exit(ids[2])
    assert play.state(plain) is State.ACTIVE
    assert [it.detail for it in play.events if isinstance(it, Amended)] == ["all of array 1 have ended"]


def test_an_array_comes_after_others_as_a_whole_and_ends_as_a_whole():
    """Each of its jobs waits, and each is told why it will not start."""
    play = Play(4)
    first = play.running(name="prep")
    ids = submitted(play, sweep(3, after=(Dependency(workload=first, ok=True),)))
    assert [play.waiting(id_) for id_ in ids] == [WaitingReason.DEPENDENCY] * 3

    play.exit(first, CRASHED)

    assert {play[id_].end for id_ in ids} == {EndReason.DEPENDENCY_UNMET}
    assert play[4].detail == ("job 1 (prep) failed, and job 4 (3 of 3 of array 2) was to come after its success")


def test_one_of_an_array_cannot_come_after_its_array():
    """It would wait for itself, whichever of them it is."""
    play = Play(1)
    ids = submitted(play, sweep(3, paused=True))

    with pytest.raises(Conflict, match="would wait for itself: 3 → 3, each after the next"):
        play.do(Chain(workload=ids[2], by="ada", after=(Dependency(workload=ids[0]),)))
    outside = play.job(paused=True, after=(Dependency(workload=ids[0]),))
    with pytest.raises(Conflict, match="would wait for itself: 2 → 4 → 2, each after the next"):
        play.do(Chain(workload=ids[1], by="ada", after=(Dependency(workload=outside),)))


def test_an_array_whose_first_is_forgotten_is_still_waited_for_and_still_no_circle():
    """The world keeps so many of those that have ended; what waits for the rest is told, and refused, as before."""
    play = Play(1)
    ids = submitted(play, sweep(3))
    play.exit(ids[0])
    last = play.job(devices=0, after=(Dependency(workload=ids[0]),))
    play.world._forget(ids[0])

    assert reason(play, last).startswith("It comes after the rest of array 1. ")
    with pytest.raises(Conflict, match="would wait for itself: 3 → 4 → 3, each after the next"):
        play.do(Chain(workload=ids[2], by="ada", after=(Dependency(workload=last),)))
    for id_ in ids[1:]:
        play.exit(id_)
    assert play.state(last) is State.ACTIVE


def test_what_tells_one_of_an_array_from_the_others_is_its_owners_to_see():
    """Strangers may see that jobs belong together, where they may see names; what each comes after is not theirs."""
    play = Play(1, Policy(names_are_public=True))
    first = play.running()
    ids = submitted(play, sweep(2, after=(Dependency(workload=first),)))
    play.world.progress[ids[0]] = Progress(at=play.now, attempt=1, step=3)
    eve = Caller(name="eve", account="eve", scopes=frozenset({Scope.READ}))
    mine, theirs = (view(play.world, play[ids[0]], who, play.now) for who in (ADA, eve))

    assert (mine.member, mine.after, mine.unmet) == (play[ids[0]].member, play[ids[0]].after, (first,))
    assert mine.progress == play.world.progress[ids[0]]
    assert (theirs.member.ids, theirs.member.parameters, theirs.after, theirs.progress) == (ids, {}, (), None)
    play.world.policy = Policy(names_are_public=False)
    assert view(play.world, play[ids[0]], eve, play.now).member is None


def test_a_step_with_a_bounded_array_of_ten_thousand_looks_at_one_of_them():
    """All that wait are alike, so they get one answer: such a line costs no more than any other."""
    play = Play(2)
    play.do(sweep(10_000, at_most=1))
    play.start(1)
    assert len({id(lane) for lane in play.world.lanes.of.values()}) == 1
    assert sum(isinstance(it, Submitted) for it in play.events) == 10_000

    assert play.exit(1) == ["released 1", "ended (succeeded) 1", "granted 2"]


def test_all_of_an_array_is_cancelled_in_one_step_and_nobody_of_it_gets_what_the_others_leave():
    """Named by any of it. Those that wait are over at once, those that run have their grace, who is over is left."""
    play = Play(2)
    ids = submitted(play, sweep(5))
    play.start(1)
    play.exit(1)
    play.start(2)

    told = play.do(Cancel(workload=ids[4], by="ada", array=True, reason="wrong data"))

    assert told == ["evicted (cancelled) 2", "evicted (cancelled) 3", "ended (cancelled) 4", "ended (cancelled) 5"]
    assert play[4].detail == play[3].detail == "cancelled by ada: wrong data"
    assert play.do(Cancel(workload=ids[0], by="ada", array=True)) == []
    play.exit(2)
    play.exit(3, CRASHED)
    with pytest.raises(Conflict, match="all of array 1 has ended already"):
        play.do(Cancel(workload=2, by="ada", array=True))


def test_what_waits_of_an_array_is_paused_let_go_and_chained_in_one_step():
    """Who runs is not meant; and where none waits that is said."""
    play = Play(1)
    before = play.job("bob", paused=True)
    ids = submitted(play, sweep(3))
    play.start(ids[0])

    assert play.do(Pause(workload=ids[0], by="ada", array=True)) == [
        "amended 3",
        "amended 4",
        "explained 3:paused 4:paused",
    ]
    assert [play[id_].paused for id_ in ids] == [False, True, True]
    assert play.do(Pause(workload=ids[0], by="ada", array=True)) == []
    play.do(LetGo(workload=ids[2], by="ada", array=True))
    assert [play.waiting(id_) for id_ in ids[1:]] == [WaitingReason.DEVICES] * 2

    play.do(Chain(workload=ids[1], by="ada", after=(Dependency(workload=before),), array=True))
    assert [play[id_].unmet for id_ in ids] == [(), (before,), (before,)]
    with pytest.raises(Conflict, match="would wait for itself"):
        play.do(Chain(workload=ids[1], by="ada", after=(Dependency(workload=ids[2]),), array=True))
    play.do(Cancel(workload=before, by="bob"))
    for command in (Pause, LetGo, Chain):
        with pytest.raises(Conflict, match="none of array 2 waits: it runs or has ended"):
            play.do(command(workload=ids[2], by="ada", array=True))


def test_a_job_of_no_array_is_all_of_itself():
    """Whoever says `array` of it gets what they would without."""
    play = Play(1)
    held, waiting = play.running(), play.job()

    play.do(Pause(workload=waiting, by="ada", array=True))
    assert play[waiting].paused
    with pytest.raises(Conflict, match="only what is queued can be paused"):
        play.do(Pause(workload=held, by="ada", array=True))


def test_ten_thousand_are_cancelled_by_one_command_with_one_event_for_each():
    """The log stays what it is: each job's end is its own."""
    play = Play(2)
    ids = submitted(play, sweep(10_000))
    ended = len(play.events)

    play.do(Cancel(workload=ids[9_999], by="ada", array=True))

    assert len(play.events) - ended == 10_000
    assert (len(play.world.line), sorted(play.world.live)) == (0, [1, 2])
    assert differences(refolded(play), play.world) == []
