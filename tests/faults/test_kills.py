"""What is killed from outside (supervisor, launcher, training, everything at once) is seen, told and put right."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from jupyter_gpu.broker.engines import files, procs
from jupyter_gpu.model import EndReason, State
from tests.faults.house import PYTHON, QUICK, House, job, reservation, until

UNTIL_GO = ("sh", "-c", "echo $JUPYTER_GPU_JOB.$JUPYTER_GPU_ATTEMPT >> out; while [ ! -e go ]; do sleep 0.02; done")
#: Writes a checkpoint, says where it began, and stays until it may go.
SAVING = """
import os, time
from pathlib import Path
from jupyter_gpu import training
resume = training.resume_from() if hasattr(training, "resume_from") else os.environ.get("JUPYTER_GPU_RESUME_FROM")
with open("out", "a") as out:
    print(os.environ["JUPYTER_GPU_ATTEMPT"], Path(resume).name if resume else "-", file=out, flush=True)
    if not resume:
        with training.checkpoint(1) as folder:
            (folder / "weights").write_text("1")
        print("saved", file=out, flush=True)
while not os.path.exists("go"):
    time.sleep(0.02)
"""
#: Its child hides in a session of its own, heeds no SIGTERM, has no variable of ours, and lives until `leave` is there.
WITH_A_HIDDEN_CHILD = """
import os, signal, time
if not os.fork():
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    open("child", "w").write(str(os.getpid()))
    os.execve("/bin/sh", ["sh", "-c", "trap '' TERM; while [ ! -e leave ]; do sleep 0.02; done"], {})
while not os.path.exists("child"):
    time.sleep(0.01)
open("out", "a").write(f"start {os.environ['JUPYTER_GPU_ATTEMPT']}\\n")
if os.environ["JUPYTER_GPU_ATTEMPT"] == "1":
    signal.pause()
"""


def supervisor(house: House, workload: int, attempt: int = 1) -> procs.Proc:
    """The supervisor of an attempt."""
    mark = house.mark(workload, attempt)
    found = procs.find(mark["pid"])
    assert found is not None
    assert found.start_ticks == mark["start_ticks"]
    return found


def lives(was: procs.Proc) -> bool:
    """Whether it is still there, and no other of its number."""
    now = procs.find(was.pid)
    return now is not None and now.start_ticks == was.start_ticks and not now.zombie


def main_process(house: House, workload: int, attempt: int = 1) -> procs.Proc:
    """What the supervisor has started."""
    under = procs.descendants(supervisor(house, workload, attempt).pid)
    return next(it for it in under.values() if it.parent == supervisor(house, workload, attempt).pid)


def test_a_killed_supervisor_costs_one_attempt_and_its_tree(house: House) -> None:
    """Its tree is ended, the attempt is lost, and the job goes on as attempt 2 on the device that is free again."""
    house.start()
    (id_,) = house.submit(job(house, UNTIL_GO))
    house.wait("started", id_)
    house.wait_line(f"{id_}.1")
    tree = procs.descendants(supervisor(house, id_).pid)
    assert procs.send(supervisor(house, id_), signal.SIGKILL)
    it = house.wait("second", id_)[0]
    assert (it.losses, it.failures) == (1, 0)
    assert not [was for was in tree.values() if lives(was)]
    (house.work / "go").touch()
    assert house.wait("ended", id_)[0].end is EndReason.SUCCEEDED
    assert house.lines() == [f"{id_}.1", f"{id_}.2"]
    assert "lost" not in house.story_of(id_)


def test_supervisors_that_are_killed_again_and_again_end_the_job_as_lost(house: House) -> None:
    """Losses have a budget of their own: then it ends, told as lost, and the device is free."""
    house.start()
    (id_,) = house.submit(job(house, UNTIL_GO))
    for attempt in range(1, 20):
        until(lambda n=attempt: house.look(id_).state is State.ENDED or house.mark(id_, n), f"attempt {attempt}")
        if house.look(id_).state is State.ENDED:
            break
        procs.send(supervisor(house, id_, attempt), signal.SIGKILL)
    it = house.wait("ended", id_)[0]
    assert it.end is EndReason.LOST
    assert house.world()["leases"] == {}


def test_a_killed_launcher_is_replaced_and_nobody_notices(make_house: Callable[..., House]) -> None:
    """What runs goes on and is followed to its end; new work starts by the next launcher."""
    house = make_house(devices=2)
    house.start()
    (running,) = house.submit(job(house, UNTIL_GO))
    house.wait("started", running)
    launcher = house.ask("engine")["launcher"]
    os.kill(launcher, signal.SIGKILL)
    (later,) = house.submit(job(house, UNTIL_GO))
    house.wait("started", later)
    assert house.ask("engine")["launcher"] != launcher
    (house.work / "go").touch()
    assert [it.end for it in house.wait("ended", running, later)] == [EndReason.SUCCEEDED] * 2
    assert [it.attempt for it in house.wait("ended", running, later)] == [1, 1]


@pytest.mark.parametrize(("retries", "attempts"), [(None, 1), (0, 1), (2, 2)])
def test_a_training_killed_by_a_signal_is_told_apart_and_repeated_only_by_rule(
    house: House, retries: int | None, attempts: int
) -> None:
    """Signal 9 is no exit code 137 (cortexlabs/cortex#1806); the same crash twice is not tried a third time."""
    house.start()
    spec = {} if retries is None else {"retries": retries}
    (id_,) = house.submit(job(house, ["sh", "-c", "echo $JUPYTER_GPU_ATTEMPT >> out; kill -9 $$"], spec=spec))
    it = house.wait("ended", id_)[0]
    assert it.end is EndReason.FAILED
    assert it.outcome is not None
    assert (it.outcome.signal, it.outcome.exit_code) == (signal.SIGKILL, None)
    assert "signal 9" in it.outcome.detail
    assert house.lines() == [str(n + 1) for n in range(attempts)]


def test_five_identical_crashes_stop_early_and_leave_no_core(house: House) -> None:
    """Ten retries are not used up by a crash that comes the same way each time: gpustack/gpustack#3094."""
    house.start()
    (id_,) = house.submit(job(house, ["bash", "-c", "ulimit -c; kill -SEGV $$"], spec={"retries": 10}))
    it = house.wait("ended", id_)[0]
    assert it.end is EndReason.FAILED
    assert it.attempt < 5
    assert it.outcome is not None
    assert "segmentation fault (signal 11)" in it.outcome.detail
    assert (house.attempt(id_) / files.LOG).read_text() == "0\n"
    assert list(house.work.iterdir()) == []


def test_the_death_of_the_brokers_whole_group_spares_the_work(house: House) -> None:
    """A closed terminal or a killed group takes the broker alone: supervisors have sessions of their own."""
    house.start()
    (id_,) = house.submit(job(house, UNTIL_GO))
    house.wait("started", id_)
    os.killpg(house.pid, signal.SIGKILL)
    assert house.wait_dead()
    assert house.start() == "ready"
    assert house.look(id_).attempt == 1
    (house.work / "go").touch()
    it = house.wait("ended", id_)[0]
    assert (it.end, it.attempt, house.lines()) == (EndReason.SUCCEEDED, 1, [f"{id_}.1"])


@pytest.mark.parametrize("both", [False, True])
def test_broker_and_job_die_together(house: House, both: bool) -> None:
    """Not "running" for ever: lost, tried again by its rule, and the device is used: Nextdoor/ndscheduler#86."""
    house.start()
    (id_,) = house.submit(job(house, UNTIL_GO))
    house.wait_line(f"{id_}.1")
    main, above = main_process(house, id_), supervisor(house, id_)
    house.kill()
    if both:
        procs.send(above, signal.SIGKILL)
        procs.send(main, signal.SIGKILL)
        house.start()
        it = house.wait("second", id_)[0]
        assert (it.losses, it.attempt) == (1, 2)
        (house.work / "go").touch()
    else:
        (house.work / "go").touch()
        until(lambda: not lives(above), "the supervisor has written the outcome and left")
        house.start()
    it = house.wait("ended", id_)[0]
    assert it.end is EndReason.SUCCEEDED
    assert it.outcome is not None
    assert it.outcome.exit_code == 0


def test_after_a_reboot_nothing_is_adopted_by_its_number(make_house: Callable[..., House]) -> None:
    """Another boot id on the mark: who has the pid now is a stranger whom no signal reaches: tenzir/tenzir#2526."""
    house = make_house(devices=2)
    house.start()
    (id_,) = house.submit(job(house, UNTIL_GO))
    house.wait_line(f"{id_}.1")
    stranger = supervisor(house, id_)
    house.kill()
    path = str(house.attempt(id_) / files.MARK)
    files.write_whole(path, {**house.mark(id_), "boot_id": "00000000-0000-0000-0000-000000000000"})
    house.start()
    it = house.wait("second", id_)[0]
    assert it.losses == 1
    assert lives(stranger)
    lost = next(e for e in house.events(id_) if e.__struct_config__.tag == "released")
    assert "restarted" in lost.outcome.detail
    (house.work / "go").touch()
    assert house.wait("ended", id_)[0].end is EndReason.SUCCEEDED


def test_a_job_evicted_before_its_start_was_told_keeps_its_device_until_its_tree_is_gone(house: House) -> None:
    """The word of the start may be late, and the tree hidden: the next lease still waits for the end of the last."""
    let = house.root / "let"
    house.traits["policy"] = {**QUICK, "kill_after_seconds": 30}  # the rest of what was evicted has no longer
    house.start(hold=("SeeStarted", str(let)))
    (first,) = house.submit(job(house, [*PYTHON, WITH_A_HIDDEN_CHILD], spec={"leftover_seconds": 30}))
    house.wait_line("start 1")
    (second,) = house.submit(reservation())
    assert house.wait("released", first)[0].outcome is not None
    child = int((house.work / "child").read_text())
    assert procs.find(child) is not None
    assert house.wait("active", second, seconds=1.0)[0].state is State.QUEUED
    let.touch()
    assert house.wait("active", second, seconds=0.3)[0].state is State.QUEUED
    (house.work / "leave").touch()
    assert house.wait("active", second)[0].state is State.ACTIVE
    house.release(second)
    it = house.wait("ended", first)[0]
    assert (it.end, it.attempt) == (EndReason.SUCCEEDED, 2)
    assert house.lines() == ["start 1", "start 2"]
