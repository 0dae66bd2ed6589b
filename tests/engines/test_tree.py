"""The whole tree of a job ends with it, however it forked or hid."""

import os
import signal

import pytest

from jupyter_gpu.broker.engines.base import Stage
from tests.engines.bench import PYTHON, bench, lives, scenario, until

SLEEPER = "import os,time; os.write(1, b'pid %d\\n' % os.getpid()); time.sleep(600)"
DEAF = "import signal; signal.signal(15, signal.SIG_IGN); " + SLEEPER
HIDDEN = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork(): os._exit(0)
    os.environ.clear(); os.chdir("/")
    %s
time.sleep(600)
"""


@scenario
async def test_cancel_reaches_the_training_three_levels_down(tmp_path):
    """`bash a.sh` -> `bash b.sh` -> python: all gone within the grace: Nukesor/pueue#347, pytorch/pytorch#5736."""
    async with bench(tmp_path) as it:
        (it.work / "a.sh").write_text("echo pid $$; bash b.sh; echo a\n")
        (it.work / "b.sh").write_text(f'echo pid $$; {" ".join(PYTHON)} -c "$CODE"; echo b\n')
        await it.hand_over("bash", "a.sh", environment={"PATH": os.environ["PATH"], "CODE": SLEEPER})
        pids = await it.pids(3)
        await it.order(grace=5)
        await it.end()
        assert not any(lives(pid) for pid in pids)


@scenario
async def test_a_pipe_ends_whole(tmp_path):
    """`sh -c "python x.py | tee log"`: Nukesor/pueue#372."""
    async with bench(tmp_path) as it:
        (it.work / "x.py").write_text(SLEEPER)
        await it.hand_over("sh", "-c", f"{' '.join(PYTHON)} x.py | tee log")
        [pid] = await it.pids(1)
        await it.order(grace=5)
        outcome = await it.end()
        assert not lives(pid)
        assert outcome.noticed


@pytest.mark.parametrize("deaf", [False, True])
@scenario
async def test_workers_in_sessions_of_their_own_are_found(tmp_path, deaf):
    """A setsid and a double fork do not hide it: pytorch/pytorch#113231. What had to be killed is on record."""
    async with bench(tmp_path) as it:
        await it.hand_over(*PYTHON, "-c", HIDDEN % (DEAF if deaf else SLEEPER))
        [pid] = await it.pids(1)
        await it.order(grace=0.2, kill_after=0 if deaf else 30)
        outcome = await it.end()
        assert not lives(pid)
        assert [name for name in outcome.forced if f"({pid})" in name] == ([outcome.forced[0]] if deaf else [])


@scenario
async def test_what_outlives_the_main_process_is_ended_after_it(tmp_path):
    """The outcome is told at once; the rest gets SIGTERM, and the device is clear only when it is gone."""
    async with bench(tmp_path) as it:
        script = "trap 'echo got TERM; exit' TERM; echo pid $BASHPID; while :; do sleep 0.01; done"
        await it.hand_over("bash", "-c", f"({script}) & while [ ! -e go ]; do sleep 0.01; done; exit 3")
        [pid] = await it.pids(1)
        (it.work / "go").touch()
        exited = await it.sighting(Stage.EXITED)
        outcome = await it.end()
        assert exited.outcome.exit_code == outcome.exit_code == 3
        assert b"got TERM" in it.log()
        assert outcome.forced == ()
        assert not outcome.noticed
        assert not lives(pid)


@scenario
async def test_what_ignores_that_too_is_killed_and_named(tmp_path):
    """SIGKILL after `leftover_seconds`."""
    async with bench(tmp_path) as it:
        (it.work / "deaf.py").write_text(DEAF)
        await it.hand_over(
            "bash", "-c", f"{' '.join(PYTHON)} deaf.py & while [ ! -e go ]; do sleep 0.01; done", leftover_seconds=0
        )
        [pid] = await it.pids(1)
        (it.work / "go").touch()
        outcome = await it.end()
        assert outcome.exit_code == 0
        assert [name.split()[-1] for name in outcome.forced] == [f"({pid})"]


@scenario
async def test_an_order_after_the_main_process_kills_what_ignores_sigterm(tmp_path):
    """However long it was given by whoever started it."""
    async with bench(tmp_path) as it:
        (it.work / "deaf.py").write_text(DEAF)
        script = f"{' '.join(PYTHON)} deaf.py & while [ ! -e go ]; do sleep 0.01; done"
        await it.hand_over("bash", "-c", script, leftover_seconds=10**9)
        [pid] = await it.pids(1)
        (it.work / "go").touch()
        await it.sighting(Stage.EXITED)
        await it.order(grace=0, kill_after=0, reason="left-over")
        outcome = await it.end()
        assert outcome.exit_code == 0
        assert [name.split()[-1] for name in outcome.forced] == [f"({pid})"]


@scenario
async def test_a_tree_that_keeps_forking_is_ended(tmp_path):
    """Each generation is a new process; the killing goes on until none is left."""
    async with bench(tmp_path) as it:
        code = "import os, signal, time\nsignal.signal(15, signal.SIG_IGN); os.write(1, b'pid 1\\n')\n"
        code += "while True:\n    if os.fork(): os._exit(0)\n    time.sleep(0.005)"
        await it.hand_over(*PYTHON, "-c", code, leftover_seconds=600)
        await it.sighting(Stage.EXITED)
        await it.order(0, 0)
        outcome = await it.end()
        assert outcome.forced


@scenario
async def test_nothing_is_left_behind(tmp_path):
    """No cgroup, no process of ours, no empty checkpoint folder."""
    async with bench(tmp_path) as it:
        await it.run("bash", "-c", "test -d $JUPYTER_GPU_CHECKPOINT_DIR && echo there")
        assert it.log() == b"there\n"
        assert not list(it.work.iterdir())
        assert not [path for path in it.file("spec.json")["cgroups"] if os.access(path, os.F_OK)]
        supervisor = it.engine.inventory()[1].holder.pid
        await until(lambda: not lives(supervisor))


@scenario
async def test_a_job_that_kills_its_own_group_harms_nobody_else(tmp_path):
    """The supervisor and other jobs are in other sessions and groups."""
    async with bench(tmp_path) as it:
        await it.hand_over("sleep", "600", workload=2)
        outcome = await it.run("bash", "-c", "kill -KILL 0")
        assert outcome.signal == signal.SIGKILL
        assert it.engine.inventory()[2].stage is not Stage.GONE
