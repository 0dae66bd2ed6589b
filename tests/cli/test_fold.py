"""Arrays in lists: one row for all of them, which says how many run, wait and are over."""

import json

import msgspec
import pytest

from jupyter_gpu.cli.curve import sparkline
from jupyter_gpu.cli.fold import counts_text, fold, how_they_go, name_of
from jupyter_gpu.cli.text import how_it_goes, progress_text
from jupyter_gpu.model import Dependency, EndReason, Member, Progress, State, WaitingReason
from tests.cli.conftest import Terminal
from tests.cli.fake import HOUR, NOW, FakeClient, device, ended, lab, workload


def member(index, of=5, *, array=20, **more):
    """Make one of an array; 2 of its devices' names are known to the lists."""
    return workload(array + index - 1, member=Member(array=array, index=index, of=of), **more)


def running(index, gpu, **more):
    """Make one that runs on a GPU."""
    return member(index, state=State.ACTIVE, devices=(device(gpu).uuid,), attempt=1, started_at=NOW - 60, **more)


KNOWN = {device(number).uuid: str(number) for number in range(4)}


def test_an_array_is_one_group_where_its_first_stands():
    """Its members are apart in a list that has who runs before who waits."""
    items = [running(2, 0), workload(9), member(3), member(4), workload(30)]

    assert [[it.id for it in group] for group in fold(items)] == [[21, 22, 23], [9], [30]]


@pytest.mark.parametrize(
    ("group", "said"),
    [
        ([running(1, 0), running(2, 1), member(3), member(4), member(5)], "[5: 2 run, 3 wait]"),
        ([running(1, 0), member(5)], "[5: 1 runs, 1 waits, 3 over]"),
        ([member(1, of=1)], "[1: 1 waits]"),
        ([ended(20, member=Member(array=20, index=1, of=2)), member(2, of=2)], "[2: 1 waits, 1 succeeded]"),
        (
            [
                ended(20 + index, end, member=Member(array=20, index=index + 1, of=3))
                for index, end in enumerate([EndReason.SUCCEEDED, EndReason.GPU_OOM, EndReason.SUCCEEDED])
            ],
            "[3: 2 succeeded, 1 gpu-oom]",
        ),
    ],
)
def test_a_group_is_counted(group, said):
    """Those that are not listed, where the list has all that are not over, are over."""
    assert counts_text(group, is_whole=True) == said


@pytest.mark.parametrize(
    ("commands", "said"),
    [
        (["train.py 0.1 1", "train.py 0.1 2"], "train.py 0.1 …"),
        (["train.py 1"], "train.py 1"),
        (["train.py a", "train.py b c"], "train.py …"),
    ],
)
def test_a_row_of_an_array_has_what_its_commands_have_in_common(commands, said):
    """The command of one of them, beside the number of another, would be no job's."""
    group = [member(place, name="", command=command) for place, command in enumerate(commands, 1)]
    assert name_of(group) == said


def test_the_gpus_of_an_array_are_named_in_their_order():
    """Whichever of it holds them."""
    group = [running(1, 3), running(2, 0), running(3, 1)]
    assert how_they_go(group, KNOWN, NOW, is_whole=True) == "[5: 3 run, 2 over] GPU 0, 1, 3"


def test_what_is_not_listed_is_not_counted_where_the_list_is_cut():
    """Of those that a list leaves out nobody knows how they stand."""
    assert counts_text([running(1, 0), member(5)], is_whole=False) == "[5: 1 runs, 1 waits]"


QUEUE = """\
ID  owner  GPUs  state   name     how it goes
 9  bob       1  active           GPU 1, until 14:35
12  you       1  active  digits   GPU 0, attempt 2, until 16:05
20  you       1  active  sweep    [5: 2 run, 3 wait] GPU 0, 2
14  you       2  queued  sweep 3  no GPU is free, first in line, about 16:05
40  you       1  queued  later    [3: 3 wait] waits for 20
"""


@pytest.fixture
def sweeps(gpu):
    """A lab with an array of which some run, and another one that comes after it."""
    more = (
        *(running(number, gpu_number, name="sweep") for number, gpu_number in ((1, 0), (2, 2))),
        *(member(number, name="sweep", waiting=WaitingReason.QUOTA) for number in (3, 4, 5)),
        *(
            member(
                number,
                of=3,
                array=40,
                name="later",
                after=(Dependency(workload=20),),
                unmet=(20,),
                waiting=WaitingReason.DEPENDENCY,
            )
            for number in (1, 2, 3)
        ),
    )
    gpu.client.lab = msgspec.structs.replace(gpu.client.lab, workloads=(*gpu.client.lab.workloads, *more))
    return gpu


def test_what_waits_is_listed_in_the_order_of_the_line():
    """By priority, who waited past the limit, rank and number, as the broker goes down it; who runs stands before."""
    line = (
        workload(7, state=State.ACTIVE, rank_ms=9),
        workload(5, priority=100, rank_ms=9),
        workload(6, lifted=True, rank_ms=9),
        workload(4, rank_ms=1),
        workload(2, rank_ms=2),
        workload(3, rank_ms=2),
        workload(1, rank_ms=3),
    )
    gpu = Terminal(client=FakeClient(msgspec.structs.replace(lab(), workloads=line)))

    rows = gpu("queue").out.splitlines()[1:]

    assert [row.split()[0] for row in rows] == ["7", "5", "6", "4", "2", "3", "1"]
    assert [it["id"] for it in json.loads(gpu("queue", "--json").out)["items"]] == [7, 5, 6, 4, 2, 3, 1]


def test_the_queue_has_one_row_for_an_array(sweeps):
    """A sweep of hundreds leaves the others in sight."""
    assert sweeps("queue").out == QUEUE


def test_the_members_are_shown_where_they_are_wanted(sweeps):
    """--unfold has a row for each, and a document is never folded."""
    unfolded = sweeps("queue", "--unfold").out

    assert [line.split()[0] for line in unfolded.splitlines()[1:]] == (
        ["9", "12", "20", "21", "14", "22", "23", "24", "40", "41", "42"]
    )
    assert "how it goes" in unfolded
    assert sweeps("queue", "--json").out.count('"member"') == 8


def test_rows_are_what_is_limited(sweeps):
    """An array counts as one, and what it hides is not told to be more."""
    found = sweeps("queue", "--limit", "4")

    assert [line.split()[0] for line in found.out.splitlines()[1:]] == ["9", "12", "20", "14"]
    assert "There are more" in found.err
    assert sweeps("queue", "--limit", "5").err == ""
    assert [line.split()[0] for line in sweeps("queue", "--all", "--limit", "3").out.splitlines()[1:]] == [
        "14", "20", "40",
    ]  # fmt: skip


def test_your_work_has_one_row_for_an_array(sweeps):
    """The picture of the lab too."""
    shown = sweeps("status").out

    assert "20  active  job   sweep    [5: 2 run, 3 wait] GPU 0, 2\n" in shown
    assert "[3: 3 wait] waits for 20\n" in shown
    assert "\n21" not in shown


def test_a_reason_that_holds_for_an_array_is_said_once(sweeps):
    """A sweep of hundreds that waits for something is one sentence."""
    reason = "It comes after array 20, of which 5 are not over."
    items = [
        msgspec.structs.replace(it, reason=reason if it.unmet else it.reason) for it in sweeps.client.lab.workloads
    ]
    sweeps.client.lab = msgspec.structs.replace(sweeps.client.lab, workloads=tuple(items))

    assert sweeps("status").out.count("It comes after array 20") == 1


# -- how far it is


def far(step=12, of=50, *, attempt=1, at=NOW, **numbers):
    """Make what a job reports."""
    return Progress(at=at, attempt=attempt, step=step, of=of, numbers=numbers)


def resumed(step):
    """Make what a second attempt reports that went on at step 30 an hour ago."""
    return msgspec.structs.replace(far(step, attempt=2), from_at=NOW - HOUR, from_step=30)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"progress": far(loss=0.31)}, "step 12/50, 24 %, about 3h left, loss 0.31"),
        ({"progress": far(of=None)}, "step 12"),
        ({"progress": far(0)}, "step 0/50, 0 %"),
        ({"progress": far(50)}, "step 50/50, 100 %"),
        ({"progress": far(60)}, "step 60/50, 100 %"),
        ({"progress": far(49, loss=1234567.0)}, "step 49/50, 98 %, about 1m left, loss 1.23e+06"),
        ({"progress": far(loss=None, acc=0.5, f1=0.25)}, "step 12/50, 24 %, about 3h left, loss n/a, acc 0.5"),
        ({"progress": far(attempt=2), "attempt": 2}, "step 12/50, 24 %"),
        (
            {"progress": resumed(40), "attempt": 2},
            "step 40/50, 80 %, about 1h left",
        ),
        ({"progress": far(), "attempt": 2}, ""),
        ({"progress": far(), "state": State.QUEUED}, "step 12/50, 24 %"),
        ({"progress": far(), "state": State.YIELDING}, "step 12/50, 24 %"),
        ({}, ""),
    ],
)
def test_how_far_a_job_is(more, said):
    """Its step, what is left by the rate of this attempt where that is known, and its first numbers."""
    it = workload(1, **{"state": State.ACTIVE, "attempt": 1, "started_at": NOW - HOUR, **more})

    assert progress_text(it, NOW) == said


def test_a_list_has_how_far_it_is():
    """Between what it holds and until when."""
    it = workload(
        1,
        state=State.ACTIVE,
        devices=(device(0).uuid,),
        attempt=1,
        started_at=NOW - HOUR,
        ends_at=NOW + HOUR,
        progress=far(loss=0.31),
    )

    assert how_it_goes(it, KNOWN, NOW) == "GPU 0, step 12/50, 24 %, about 3h left, loss 0.31, until 15:05"


def test_a_job_in_a_chain_says_whom_it_waits_for():
    """Those whose end is still awaited, and no others."""
    it = workload(1, waiting=WaitingReason.DEPENDENCY, unmet=(12, 13))

    assert how_it_goes(it, {}, NOW) == "waits for 12, 13"


@pytest.mark.parametrize(
    ("values", "fancy", "drawn"),
    [
        ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], True, "▁▂▃▄▅▆▇█"),
        ([8.0, 1.0], True, "█▁"),
        ([8.0, 1.0], False, "#_"),
        ([3.0, 3.0], True, "▄▄"),
        ([1.0, None, 2.0], True, "▁ █"),
        ([], True, ""),
        ([None], True, " "),
    ],
)
def test_a_curve_of_blocks(values, fancy, drawn):
    """The lowest is lowest and the highest highest; what was no number is a gap."""
    assert sparkline(values, fancy=fancy) == drawn


def test_a_long_curve_is_made_to_fit():
    """Means of neighbours, so that no cell hides what lies between; the ends stay where they are."""
    drawn = sparkline([float(step) for step in range(1000)], fancy=True, cells=8)

    assert drawn == "▁▂▃▄▅▆▇█"


def test_a_remark_below_stands_under_the_number_of_its_row(gpu):
    """And says of which of the array it is."""
    waiting = [member(place, reason="No GPU is free.") for place in (3, 4)]
    gpu.client.lab = msgspec.structs.replace(gpu.client.lab, workloads=tuple(waiting))

    out = gpu("status").out

    assert "20 (job 22 of it): No GPU is free." in out
