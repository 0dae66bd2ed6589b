"""What is done to a whole array, and to a chain: `--array` of the verbs that change work, and `amend`."""

import msgspec
import pytest

from jupyter_gpu import errors
from jupyter_gpu.model import Dependency, EndReason, Member, State, WorkloadPage
from tests.cli.fake import ended, workload


def member(index, **more):
    """Make one of an array of five."""
    return workload(19 + index, member=Member(array=20, index=index, of=5), **more)


@pytest.fixture
def sweep(gpu):
    """A lab with an array: its first has ended, two run and two wait."""
    its = (
        *(member(index, state=State.ACTIVE, attempt=1) for index in (2, 3)),
        *(member(index) for index in (4, 5)),
    )
    first = ended(20, member=Member(array=20, index=1, of=5))
    gpu.client.lab = msgspec.structs.replace(gpu.client.lab, workloads=(*gpu.client.lab.workloads, *its))
    gpu.client.answers["workload 20"] = first
    return gpu


def acted_on(gpu, verb):
    """Give the numbers that a verb was sent for, in their order."""
    return [call[1] for call in gpu.client.calls if call[0] == verb]


def test_a_whole_array_is_cancelled(sweep):
    """One word to the broker, which ends those that wait first; who has ended is left alone."""
    result = sweep("cancel", "20", "--array")

    assert (acted_on(sweep, "cancel_array"), acted_on(sweep, "cancel")) == ([20], [])
    assert (result.code, result.err) == (0, "")
    assert result.out == "Array 20 (digits, 5 jobs): 2 cancelled, 2 being cancelled.\n"


def test_any_of_an_array_names_it(sweep):
    """With --array it is the whole one, whichever of it is named, and twice is once."""
    sweep("cancel", "22", "23", "--array", "--reason", "wrong data")

    assert [call[1:] for call in sweep.client.calls if call[0] == "cancel_array"] == [(22, "wrong data")]


@pytest.mark.parametrize(
    ("verb", "method", "said"), [("pause", "pause_array", "paused"), ("let-go", "let_go_array", "let go")]
)
def test_only_those_that_wait_are_paused_and_let_go(sweep, verb, method, said):
    """Who runs is not paused, and that is no failure where the whole array was meant."""
    result = sweep(verb, "20", "--array")

    assert acted_on(sweep, method) == [20]
    assert (result.code, result.out) == (0, f"Array 20 (digits, 5 jobs): 2 {said}.\n")


def test_a_job_that_is_of_no_array_is_itself(sweep):
    """Several may be named at once, and each is what it is."""
    result = sweep("cancel", "14", "20", "--array")

    assert [call[:2] for call in sweep.client.calls if "cancel" in call[0]] == [("cancel", 14), ("cancel_array", 20)]
    assert result.out.splitlines()[0] == "Job 14 (sweep 3) is cancelled."


def test_one_array_that_fails_stops_no_other_work(sweep):
    """It is told, and the first failure gives the exit code; an array is changed as a whole or not at all."""
    sweep.client.errors["cancel_array"] = errors.NotAllowed("it is not yours")

    result = sweep("cancel", "20", "14", "--array")

    assert (result.code, acted_on(sweep, "cancel")) == (3, [14])
    assert result.out == "Job 14 (sweep 3) is cancelled.\n"
    assert "It is not yours." in result.err


def test_none_of_an_array_waits_any_more(sweep):
    """Then there is nothing to pause, which is a conflict as it is for one job."""
    its = tuple(it for it in sweep.client.lab.workloads if it.state is not State.QUEUED)
    sweep.client.lab = msgspec.structs.replace(sweep.client.lab, workloads=its)

    result = sweep("pause", "21", "--array")

    assert (result.code, result.out) == (5, "")
    assert "None of array 20 waits: it runs or has ended." in result.err


def test_an_array_that_is_over_is_told_so(sweep):
    """As of a job that has ended."""
    sweep.client.lab = msgspec.structs.replace(sweep.client.lab, workloads=())

    result = sweep("cancel", "20", "--array")

    assert (result.code, result.out) == (5, "")
    assert "All of array 20 has ended already." in result.err


def test_the_first_number_alone_is_the_first_job(sweep):
    """It is acted on, and a note says how all of the array would be."""
    sweep.client.answers["workload 20"] = None
    it = member(1)
    sweep.client.lab = msgspec.structs.replace(sweep.client.lab, workloads=(*sweep.client.lab.workloads, it))

    result = sweep("cancel", "20")

    assert acted_on(sweep, "cancel") == [20]
    assert result.out == "Job 20 (digits, 1 of 5 of array 20) is cancelled.\n"
    assert result.err == "Only this one of array 20: `--array` is for all of it.\n"
    assert sweep("cancel", "23").err == ""


def test_a_whole_array_is_waited_for(sweep):
    """All of it, those that have ended as well: one that failed is a failure."""
    for number in range(20, 25):
        end = EndReason.FAILED if number == 22 else EndReason.SUCCEEDED
        place = Member(array=20, index=number - 19, of=5)
        sweep.client.answers[f"wait {number}"] = ended(number, end, member=place)

    result = sweep("wait", "20", "--array")

    assert acted_on(sweep, "wait") == [20, 21, 22, 23, 24]
    assert result.code == 1
    assert result.out.splitlines()[-1] == "Array 20 (digits, 5 jobs): 4 succeeded, 1 failed."


def test_the_document_of_a_whole_array(sweep):
    """With --json all that was changed."""
    found = msgspec.json.decode(sweep("cancel", "--json", "20", "--array").out, type=WorkloadPage).items

    assert [it.id for it in found] == [23, 24, 21, 22]


# -- amend


@pytest.mark.parametrize(
    ("words", "after"),
    [
        ("--after 12", ((12, False),)),
        ("--after-ok 12 --after 9,11", ((9, False), (11, False), (12, True))),
        ("--no-after", ()),
    ],
)
def test_what_a_job_comes_after_is_amended(gpu, words, after):
    """It takes the place of what was said before."""
    result = gpu("amend", "14", *words.split())

    assert result.code == 0
    assert ("chain", 14, tuple(Dependency(workload=number, ok=ok) for number, ok in after)) in gpu.client.calls


def test_it_is_told_what_it_waits_for_now(gpu):
    """The broker's own sentence; without any it waits for its turn alone."""
    assert gpu("amend", "14", "--after", "12").out == (
        "Job 14 (sweep 3) comes after 12. It comes after job 12 (digits), which runs.\n"
    )
    assert gpu("amend", "14", "--after-ok", "12,9").out.startswith(
        "Job 14 (sweep 3) comes after the success of 12 and 9. "
    )
    assert gpu("amend", "14", "--no-after").out == "Job 14 (sweep 3) comes after nothing. No GPU is free.\n"
    (document,) = msgspec.json.decode(gpu("amend", "--json", "14", "--after", "12").out, type=WorkloadPage).items
    assert document.unmet == (12,)


@pytest.mark.parametrize("words", ["", "--no-after --after 12", "--after x"])
def test_an_amendment_must_say_one_thing(gpu, words):
    """Nothing said, or two that do not fit: 2, and nothing is sent."""
    assert gpu("amend", "14", *words.split()).code == 2
    assert not [call for call in gpu.client.calls if call[0] == "chain"]


def test_a_whole_array_is_amended(sweep):
    """Those of it that wait come after the others from now on."""
    result = sweep("amend", "20", "--array", "--after", "12")

    assert acted_on(sweep, "chain_array") == [20]
    assert result.out == "Array 20 (digits, 5 jobs): 2 amended.\n"


def test_a_circle_is_refused_with_its_way(gpu):
    """The broker's sentence names it."""
    gpu.client.errors["chain"] = errors.Conflict("job 14 would wait for itself: 14 → 12 → 14, each after the next")

    result = gpu("amend", "14", "--after", "12")

    assert (result.code, result.out) == (5, "")
    assert "14 → 12 → 14" in result.err
