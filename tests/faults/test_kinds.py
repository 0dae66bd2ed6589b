"""Every way in which a job ends, provoked with a real broker and its real engine: its rule, its budget, its sentence.

The rules are those of `core.verdict`: what goes elsewhere, what waits before it is tried again, what is not repeated. A
budget that is used up is a row of its own. What the machine cannot do here (a GPU that breaks, or is full) is in the
words that frameworks have for it. A part of a shared GPU that is exceeded needs a board: `test_sick_devices`.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import jupyter_gpu
from jupyter_gpu.broker.engines import files, procs
from jupyter_gpu.client import Client
from jupyter_gpu.core.events import Requeued
from jupyter_gpu.model import (
    Ask,
    Cancel,
    Dependency,
    EndReason,
    Kind,
    LetGo,
    SeeHung,
    State,
    WaitingReason,
    Workload,
    pack_bytes,
)
from tests.faults.house import PYTHON, QUICK, House, job, reservation, until

#: One of each, so that each budget is seen to end; and no pause that a test must sit out.
POLICY = QUICK | {
    "failures": 1,
    "timeouts": 1,
    "losses": 1,
    "launch_failures": 2,
    "back_off_seconds": 1,
    "strike_seconds": 1,
    "queues": [
        {"name": "interactive", "priority": 100, "kinds": ["reservation"]},
        {"name": "training", "priority": 50, "kinds": ["job"], "preemptible": True, "grace_seconds": 1},
    ],
}
UNTIL_GO = ("sh", "-c", "echo $JUPYTER_GPU_ATTEMPT >> out; while [ ! -e go ]; do sleep 0.02; done")
TRAINING = f"""\
import os, sys, time
sys.path.insert(0, {str(Path(jupyter_gpu.__file__).parents[1])!r})
from jupyter_gpu import training
with training.checkpoint(int(os.environ["JUPYTER_GPU_ATTEMPT"])) as folder:
    (folder / "w").write_text("x")
"""
SAVES_AND_FAILS = (*PYTHON, TRAINING + "sys.exit(3)")
SAVES_AND_GOES_ON = (*PYTHON, TRAINING + "time.sleep(600)")


def says(line: str) -> tuple[str, ...]:
    """A command that fails with these last words."""
    return ("sh", "-c", 'echo "$0" >&2; exit 1', line)


# -- what happens to them


def nothing(_: House, __: int) -> None:
    """It comes to its end by itself."""


def is_cancelled(house: House, id_: int) -> None:
    """Its owner ends it while it runs."""
    house.wait("started", id_)
    house.commands(Cancel(workload=id_, by="ada", reason="wrong data"))


def hangs(house: House, id_: int) -> None:
    """Each attempt is seen to stand still; how that is seen is tried in `tests/broker/test_hangs.py`."""
    for attempt in (1, 2):
        until(lambda n=attempt: house.mark(id_, n), f"attempt {attempt} begins")
        house.wait("started" if attempt == 1 else "second", id_)
        house.commands(SeeHung(workload=id_, attempt=attempt, detail="no report and no log for 10m"))


def is_lost(house: House, id_: int) -> None:
    """What watches it is killed, again and again."""
    for attempt in (1, 2):
        mark = until(lambda n=attempt: house.mark(id_, n), f"attempt {attempt} begins")
        supervisor = procs.find(mark["pid"])
        assert supervisor is not None
        procs.send(supervisor, signal.SIGKILL)


def gives_way(house: House, id_: int) -> None:
    """Somebody reserves the GPUs twice, and gives them back."""
    for until_there in ("started", "second"):
        house.wait(until_there, id_)
        (reserved,) = house.submit(reservation(devices=2))
        house.wait("active", reserved)
        house.release(reserved)
    (house.work / "go").touch()


def wants_memory(house: House, id_: int) -> None:
    """The machine has little, by a limit on the attempt's own cgroup."""
    house.wait_line("ready")
    limits = [
        Path(folder) / name
        for folder in files.read(str(house.attempt(id_) / files.SPEC))["cgroups"]  # type: ignore[index]
        for name in ("memory.limit_in_bytes", "memory.max")
        if (Path(folder) / name).exists()
    ]
    if not limits:
        pytest.skip("no cgroup with a memory controller can be made here")
    for limit in limits:
        limit.write_text(str(64 << 20))
    (house.work / "go").touch()


class Way(NamedTuple):
    """One way to end."""

    end: EndReason
    argv: tuple[str, ...]
    #: Why it was put back in line, each time.
    causes: tuple[str, ...] = ()
    #: What of its budgets it took; the others are untouched.
    took: Mapping[str, int] = {}
    #: Of its detail: what happened, and by what that is known.
    known: str = ""
    #: Of its sentence: what to do now.
    now: tuple[str, ...] = ()
    happens: Callable[[House, int], None] = nothing
    spec: Mapping[str, Any] = {}
    ask: Ask = Ask(devices=1)


OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.6 GiB."
AGAIN = "`jupyter gpu again ID` runs it once more."
RESUME = "`jupyter gpu again ID --resume` goes on from its newest checkpoint, step 2."
LOG = "`jupyter gpu log ID` has its last words."
#: It fills what is left of a small disk.
FILLS = ("sh", "-c", "dd if=/dev/zero of=small/checkpoint bs=64k")
HOG = """
import os, time
print("ready", file=open("out", "a"), flush=True)
while not os.path.exists("go"): time.sleep(0.01)
hoard = []
while True: hoard.append(b"x" * 2**20)
"""

WAYS: dict[str, Way] = {
    "it succeeds": Way(EndReason.SUCCEEDED, ("true",), known="exit code 0"),
    "it fails, and has saved nothing": Way(
        EndReason.FAILED, ("sh", "-c", "exit 3"), known="exit code 3",
        now=(LOG, "repeated by itself only where it has saved since it began, or with `--retries N`", AGAIN),
    ),
    "it fails after each save": Way(
        EndReason.FAILED, SAVES_AND_FAILS, ("failed",), {"failures": 1}, "exit code 3",
        (LOG, "It was repeated once, which is all that it may be.", RESUME),
    ),
    "it fails the same way again": Way(
        EndReason.FAILED, ("sh", "-c", "kill -SEGV $$"), ("failed",), {"failures": 1},
        r"segmentation fault \(signal 11\); the same twice without a newer checkpoint", (LOG, AGAIN),
        spec={"retries": 5},
    ),
    "it asks not to be repeated": Way(
        EndReason.FAILED, ("sh", "-c", "exit 93"), known="exit code 93 asks not to be repeated", now=(LOG, AGAIN),
        spec={"retries": 5},
    ),
    "it asks to be put back, and saves nothing": Way(
        EndReason.FAILED, ("sh", "-c", "exit 75"), ("asked",) * 5, known="exit code 75", now=(LOG, AGAIN),
    ),
    "it returns 137 itself": Way(
        EndReason.FAILED, ("sh", "-c", "exit 137"), known=r"exit code 137 \(looks like signal 9\)", now=(LOG, AGAIN),
    ),
    "the GPU has too little memory": Way(
        EndReason.GPU_OOM, says(OOM), known="it asked for 2.00 GiB",
        now=("It is not repeated by itself, since it would end the same way.", "smaller batches need less"),
        spec={"retries": 5},
    ),
    "the machine has too little memory": Way(
        EndReason.HOST_OOM, (*PYTHON, HOG), known="the kernel killed 1 process of it for want of host memory",
        now=("not the GPU's: fewer data-loader workers", "It is not repeated by itself.", AGAIN),
        happens=wants_memory, spec={"retries": 5},
    ),
    "the disk is full": Way(
        EndReason.DISK_FULL, FILLS, known="No space left on device",
        now=("Make room where it writes", "`jupyter gpu checkpoints`", "It is not repeated by itself", AGAIN),
        spec={"retries": 5},
    ),
    "the GPU breaks under it": Way(
        EndReason.DEVICE_LOST, says("RuntimeError: CUDA error: uncorrectable ECC error encountered"),
        ("device-lost",), {"losses": 1}, "uncorrectable ECC error",
        ("It was tried elsewhere once", "no fault of the job: `jupyter gpu devices`", AGAIN),
    ),
    "it hangs": Way(
        EndReason.HUNG, UNTIL_GO, ("failed",), {"failures": 1}, "no report and no log for 10m",
        ("It was started anew once", LOG, "`--hang TIME`", AGAIN), hangs,
    ),
    "its time is over, and it has saved nothing": Way(
        EndReason.TIMED_OUT, ("sleep", "600"),
        now=("only where it has saved since it began", "`jupyter gpu again ID --time TIME` asks for more than 1s."),
        ask=Ask(devices=1, duration_seconds=1),
    ),
    "its time is over after each save": Way(
        EndReason.TIMED_OUT, SAVES_AND_GOES_ON, ("timed-out",), {"timeouts": 1},
        now=("It was repeated from its checkpoint once", "`jupyter gpu again ID --resume --time TIME` asks for more"),
        ask=Ask(devices=1, duration_seconds=2),
    ),
    "its owner cancels it": Way(
        EndReason.CANCELLED, UNTIL_GO, known="cancelled by ada: wrong data", happens=is_cancelled
    ),
    "its program is none": Way(
        EndReason.LAUNCH_FAILED, ("./none",), known="could not start",
        now=("It has not run, and is not tried again by itself. Mend what is named, then `jupyter gpu again ID`.",),
        spec={"retries": 5},
    ),
    "what watches it is killed": Way(
        EndReason.LOST, UNTIL_GO, ("lost",), {"losses": 1}, "",
        ("It was tried again once", "Nobody saw how it ended", AGAIN), is_lost,
    ),
    "it gives way twice": Way(
        EndReason.SUCCEEDED, UNTIL_GO, ("preempted", "preempted"), happens=gives_way, ask=Ask(devices=2)
    ),
}  # fmt: skip
#: One is tried below, with the other job that it needs; the other in `test_sick_devices`, with a board.
OTHERS = {EndReason.DEPENDENCY_UNMET, EndReason.ABOVE_SHARE}
OF_RESERVATIONS = {EndReason.RELEASED, EndReason.EXPIRED, EndReason.ABANDONED}
BUDGETS = ("failures", "timeouts", "losses", "launch_failures")


def test_every_end_of_a_job_is_here() -> None:
    """A new one must not come without its rule, its budget and its sentence."""
    assert {way.end for way in WAYS.values()} | OTHERS | OF_RESERVATIONS == set(EndReason)


def sentence(house: House, id_: int) -> str:
    """What its owner reads."""
    with Client(str(house.root / "run" / "broker.sock"), start=False) as client:
        return client.workload(id_).reason


def budgets(it: Workload) -> dict[str, int]:
    """What of them was taken."""
    return {name: taken for name in BUDGETS if (taken := getattr(it, name))}


@pytest.mark.parametrize("how", WAYS)
def test_each_end_has_its_rule_its_budget_and_a_sentence_that_helps(make_house: Callable[..., House], how: str) -> None:
    """What happened, why it was repeated or not, and what to do now."""
    way = WAYS[how]
    house = make_house(devices=2, policy=POLICY)
    _lay_out(house, way)
    house.start()
    (id_,) = house.submit(job(house, [pack_bytes(os.fsencode(word)) for word in way.argv], ask=way.ask, spec=way.spec))
    try:
        way.happens(house, id_)
        it = house.wait("ended", id_)[0]
        said = sentence(house, id_)
    finally:
        subprocess.run(["umount", "-l", house.work / "small"], check=False, capture_output=True)

    assert it.end is way.end, it.detail
    assert tuple(event.cause for event in house.events(id_) if isinstance(event, Requeued)) == way.causes
    assert budgets(it) == dict(way.took)
    assert it.attempt == len(way.causes) + 1
    assert re.search(way.known, it.detail), it.detail
    assert said.startswith(f"It ended: {way.end}")
    for part in way.now:
        assert part.replace("ID", str(id_)) in said
    if not way.now:
        assert "`jupyter gpu" not in said, "nothing is to be done"
    assert house.world()["leases"] == {}


def _lay_out(house: House, way: Way) -> None:
    if way.argv == ("./none",):
        (house.work / "none").write_text("#!/no/such/interpreter\n")
        (house.work / "none").chmod(0o755)
    if way.argv == FILLS:
        small = house.work / "small"
        small.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", "size=256k,mode=777", "none", small]
        if subprocess.run(command, check=False, capture_output=True).returncode:
            pytest.skip("a small disk cannot be mounted here")


def test_what_died_of_the_hardware_goes_elsewhere_after_a_pause(make_house: Callable[..., House]) -> None:
    """Not to the GPU that it died on, and not in a hot loop: MFlowCode/MFC#1748."""
    house = make_house(devices=2, policy=POLICY | {"losses": 5, "strike_seconds": 60})
    house.start()
    dies_once = "echo $CUDA_VISIBLE_DEVICES >> out; [ -e been ] || { touch been; echo 'GPU is lost' >&2; exit 1; }"
    (id_,) = house.submit(job(house, ["sh", "-c", dies_once]))
    it = house.wait("ended", id_)[0]

    assert (it.end, it.attempt, budgets(it)) == (EndReason.SUCCEEDED, 2, {"losses": 1})
    assert len(set(house.lines())) == 2
    (requeued,) = [event for event in house.events(id_) if isinstance(event, Requeued)]
    assert requeued.back_off_until == requeued.at + 1


def test_a_start_that_fails_by_no_fault_of_the_job_pauses_it_at_last(make_house: Callable[..., House]) -> None:
    """Growing pauses, none of its owner's retries, and it keeps its place: ROCm/spur#520."""
    house = make_house(policy=POLICY)
    house.start()
    in_the_way = house.state / "attempts" / "1.1"
    in_the_way.touch()
    (id_,) = house.submit(job(house, ["true"], spec={"retries": 1}))
    it = house.wait("paused", id_)[0]

    assert (it.state, it.waiting, budgets(it)) == (State.QUEUED, WaitingReason.PAUSED, {"launch_failures": 2})
    said = sentence(house, id_)
    assert "Errno 20" in said
    assert f"`jupyter gpu let-go {id_}`" in said
    in_the_way.unlink()
    house.commands(LetGo(workload=id_, by="ada"))
    assert house.wait("ended", id_)[0].end is EndReason.SUCCEEDED


def test_what_comes_after_a_failure_ends_with_the_path_in_words(make_house: Callable[..., House]) -> None:
    """It takes no budget and no attempt, and says how it is run all the same."""
    house = make_house(policy=POLICY)
    house.start()
    (parent,) = house.submit(job(house, ["false"], name="prep"))
    (child,) = house.submit(job(house, ["true"], after=(Dependency(workload=parent, ok=True),)))
    it = house.wait("ended", child)[0]

    assert (it.end, it.attempt, budgets(it)) == (EndReason.DEPENDENCY_UNMET, 0, {})
    assert it.kind is Kind.JOB
    said = sentence(house, child)
    assert f"job {parent} (prep) failed, and job {child} was to come after its success" in said
    assert "`jupyter gpu again` runs such a job all the same, after nothing." in said
