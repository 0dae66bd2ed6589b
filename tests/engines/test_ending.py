"""Notice, grace, closing SIGTERM, SIGKILL: from one order file, each process noticed at most once."""

import json
import signal
import subprocess
import time
from pathlib import Path

from jupyter_gpu.broker.engines import files, notice, procs
from jupyter_gpu.broker.engines.base import Stage
from jupyter_gpu.broker.engines.ending import Ending
from jupyter_gpu.model import EndReason
from tests.engines.bench import PATIENCE, PYTHON, bench, lives, scenario, until

# Tells of each SIGTERM, and ends when the file `leave` appears.
COUNTER = """
import os, signal, sys, time
def told(number, frame): os.write(1, b"TERM\\n")
signal.signal(signal.SIGTERM, told)
os.write(1, b"pid %d\\n" % os.getpid())
while not os.path.exists("leave"): time.sleep(0.01)
"""
SAVER = """
import json, os, signal, sys, time
def told(number, frame):
    notice = json.load(open(os.environ["JUPYTER_GPU_NOTICE_FILE"]))
    print(json.dumps(notice), flush=True); sys.exit(0)
signal.signal(signal.SIGTERM, told)
os.write(1, b"pid %d\\n" % os.getpid())
while True: time.sleep(0.01)
"""
DEAF = "import os, signal, time; signal.signal(15, signal.SIG_IGN); "
DEAF += "os.write(1, b'pid %d\\n' % os.getpid()); time.sleep(600)"


@scenario
async def test_the_notice_is_a_file_and_a_signal(tmp_path):
    """A training that saves on SIGTERM finds reason and deadline, and its outcome says that it was told."""
    async with bench(tmp_path) as it:
        await it.hand_over(*PYTHON, "-c", SAVER)
        await it.pids(1)
        before = time.time()
        order = await it.order(grace=60)
        outcome = await it.end()
        notice = json.loads(it.log().splitlines()[-1])
        assert notice["reason"] == "preempted"
        assert notice["notice_at"] == order.ordered_at
        assert abs(notice["deadline"] - order.yield_by) < 1
        assert (outcome.end, outcome.noticed, outcome.forced) == (EndReason.SUCCEEDED, True, ())
        full = it.file("outcome.json")
        assert before <= full["noticed_at"] <= full["ended_at"]
        assert it.engine.inventory()[1].order == order


@scenario
async def test_who_exits_before_the_order_was_not_noticed(tmp_path):
    """A preemption counts only if the notice was delivered before the exit."""
    async with bench(tmp_path) as it:
        assert not (await it.run("true")).noticed
        await it.order(grace=5)
        assert it.file("order.json") is None


@scenario
async def test_a_repeated_order_sends_nothing_twice(tmp_path):
    """However often it is ordered, each process gets exactly one notice."""
    async with bench(tmp_path) as it:
        await it.hand_over(*PYTHON, "-c", COUNTER)
        [pid] = await it.pids(1)
        order = await it.order(grace=60)
        await it.says(b"TERM")
        for _ in range(3):
            await it.engine.order(order)
            await it.order(grace=60)  # the same meaning, at a later time
        await it.anew()
        await it.order(grace=60)
        await until(lambda: asleep(supervisor_of(it)))
        assert lives(pid)
        (it.work / "leave").touch()
        assert (await it.end()).noticed
        assert it.log().count(b"TERM") == 1


def supervisor_of(it):
    """Its pid, as the engine reports it."""
    return it.engine.inventory()[1].holder.pid


def asleep(pid):
    """It has done what there was to do."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


@scenario
async def test_a_stronger_order_shortens_the_grace_and_gives_no_second_notice(tmp_path):
    """A cancel during the grace ends it sooner; the notice file tells the new deadline."""
    async with bench(tmp_path) as it:
        await it.hand_over(*PYTHON, "-c", COUNTER)
        await it.pids(1)
        await it.order(grace=600)
        await it.says(b"TERM")
        cancel = await it.order(grace=0.5, kill_after=600, reason="cancelled")
        await until(lambda: it.log().count(b"TERM") == 2)  # the second one is the closing SIGTERM
        assert it.file(files.NOTICE)["reason"] == "cancelled"
        assert it.file(files.NOTICE)["deadline"] <= cancel.yield_by + 0.1
        assert it.file("outcome.json") is None
        await it.order(grace=600, kill_after=600, reason="preempted")  # longer again: changes nothing
        await it.order(grace=0, kill_after=0, reason="cancelled")
        outcome = await it.end()
        assert outcome.signal == signal.SIGKILL
        assert it.log().count(b"TERM") == 2


@scenario
async def test_who_ignores_it_is_ended_by_force_and_named(tmp_path):
    """SIGTERM ignored: after grace and kill_after SIGKILL, on record: facebookincubator/submitit#1677."""
    async with bench(tmp_path) as it:
        await it.hand_over(*PYTHON, "-c", DEAF)
        [pid] = await it.pids(1)
        await it.order(grace=0.2, kill_after=1)
        outcome = await it.end()
        assert outcome.signal == signal.SIGKILL
        assert outcome.noticed
        assert [name.split()[1] for name in outcome.forced] == [f"({pid})"]


@scenario
async def test_a_wrapper_passes_the_notice_by(tmp_path):
    """Bash without exec: the Python below it is noticed, the shell lives to pass on the exit status."""
    async with bench(tmp_path) as it:
        (it.work / "save.py").write_text(SAVER)
        await it.hand_over("bash", "-c", f"{' '.join(PYTHON)} save.py; echo status $?; exit 75")
        await it.pids(1)
        await it.order(grace=60)
        outcome = await it.end()
        assert b"status 0" in it.log()
        assert (outcome.exit_code, outcome.noticed) == (75, True)


@scenario
async def test_workers_are_left_to_their_training(tmp_path):
    """A training's own children get no notice: they would be gone before it has saved."""
    async with bench(tmp_path) as it:
        (it.work / "train.py").write_text("import os\nif os.fork(): os.fork()\n" + COUNTER)
        await it.hand_over("sh", "-c", f"{' '.join(PYTHON)} train.py; :")
        await it.pids(3)
        await it.order(grace=60)
        await it.says(b"TERM")
        await until(lambda: asleep(supervisor_of(it)))
        assert it.log().count(b"TERM") == 1
        (it.work / "leave").touch()
        await it.end()
        assert len(it.file("outcome.json")["noticed_processes"]) == 1


@scenario
async def test_a_shell_with_a_trap_is_noticed_itself(tmp_path):
    """Who catches SIGTERM has something to do with it."""
    async with bench(tmp_path) as it:
        await it.hand_over("bash", "-c", "trap 'echo saved; exit 75' TERM; echo ready; while :; do sleep 0.01; done")
        await it.says(b"ready")
        await it.order(grace=60)
        outcome = await it.end()
        assert (outcome.exit_code, outcome.noticed) == (75, True)
        assert b"saved" in it.log()


@scenario
async def test_the_order_is_found_when_the_poke_is_lost(tmp_path):
    """An order file alone is enough, as when the broker dies between writing and poking."""
    async with bench(tmp_path) as it:
        await it.hand_over(*PYTHON, "-c", SAVER)
        await it.pids(1)
        now = time.time()
        content = {"workload": 1, "attempt": 1, "reason": "preempted", "ordered_at": now, "yield_by": now + 60,
                   "kill_after_seconds": 30}  # fmt: skip
        files.write_whole(str(it.engine.folder_of(1, 1) / files.ORDER), content)
        assert (await it.end()).noticed


@scenario
async def test_the_whole_yield_runs_without_a_broker(tmp_path):
    """Ordered once, the supervisor goes through to SIGKILL by itself, and the next broker reads what happened."""
    async with bench(tmp_path) as it:
        await it.hand_over(*PYTHON, "-c", DEAF)
        [pid] = await it.pids(1)
        await it.order(grace=0.3, kill_after=1)
        await it.engine.close()
        await until(lambda: not lives(pid))
        await until(lambda: (it.file("outcome.json") or {}).get("gone"))
        it.seen.clear()
        await it.begin()
        outcome = await it.end()
        assert (outcome.signal, outcome.noticed) == (signal.SIGKILL, True)
        assert len(outcome.forced) == 1


def test_whom_no_notice_reached_has_had_it_with_the_closing_signal(tmp_path, monkeypatch):
    """A shell's short programs may each be over before their signal; its preemption is no failure of its own."""
    with subprocess.Popen(["/bin/sleep", "600"]) as child:
        ending = Ending(str(tmp_path))
        monkeypatch.setattr(ending, "_tree", lambda: {child.pid: procs.find(child.pid)})
        monkeypatch.setattr(notice, "targets", lambda *_: [])
        order = {"reason": "preempted", "ordered_at": time.time(), "yield_by": time.time(), "kill_after_seconds": 600}
        files.write_whole(f"{tmp_path}/{files.ORDER}", order)
        ending.look()
        ending.act(launched=True, cgroups=[])
        assert child.wait(PATIENCE) == -signal.SIGTERM
    assert ending.noticed == [f"sleep ({child.pid})"]
    assert ending.since_notice() is not None


@scenario
async def test_an_order_that_is_far_behind_leaves_no_grace_but_is_carried_out(tmp_path):
    """A broker that was asleep past the deadline orders all the same."""
    async with bench(tmp_path) as it:
        await it.hand_over(*PYTHON, "-c", DEAF)
        await it.pids(1)
        await it.order(grace=-100, kill_after=0)
        assert (await it.end()).signal == signal.SIGKILL


@scenario
async def test_started_comes_with_a_holder_that_names_the_process_for_good(tmp_path):
    """Pid, start time and boot id: what is needed to recognise it again."""
    async with bench(tmp_path) as it:
        await it.hand_over("sleep", "600")
        holder = (await it.sighting(Stage.STARTED)).holder
        assert (holder.kind, holder.number) == ("attempt", 1)
        assert lives(holder.pid)
        assert holder.start_ticks > 0
        assert len(holder.boot_id) == 36
