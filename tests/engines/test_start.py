"""How a job begins: its arguments, environment, user and files; and how a start that fails says why."""

import json
import os
import pwd
import resource
import stat
import sys

import pytest

from jupyter_gpu.broker.engines import files
from jupyter_gpu.broker.engines.base import Stage
from jupyter_gpu.model import EndReason, pack_bytes
from tests.engines.bench import PYTHON, bench, device, lives, scenario, until
from tests.engines.fences import open_folder

SHOW = "import os,sys,json; print(json.dumps({'argv': [os.fsencode(a).hex() for a in sys.argv[1:]], "
SHOW += "'env': dict(os.environ)}))"
IS_ROOT = os.geteuid() == 0
NOBODY = pwd.getpwnam("nobody")


@pytest.fixture
def place():
    """A folder that others reach: whoever starts pytest on this machine closes pytest's own to them again."""
    with open_folder() as folder:
        yield folder


def shown(log):
    """What SHOW has printed."""
    return json.loads(log.splitlines()[-1])


@scenario
async def test_arguments_arrive_byte_for_byte_and_no_shell_sees_them(tmp_path):
    """The argument list is run as it is: Nukesor/pueue#182, gc3pie/gc3pie#465."""
    hard = ["*", "$HOME", "a b", "", "two\nlines", ";rm x", "`id`", "\\", "'\"", "é", "base64:aGk="]
    hard += [b"\xff\x80/\xe2\x96"]
    async with bench(tmp_path) as it:
        await it.run(*PYTHON, "-c", SHOW, *hard)
        assert shown(it.log())["argv"] == [os.fsencode(word).hex() for word in hard]


@scenario
async def test_a_shell_command_is_run_by_the_shell_that_was_named(tmp_path):
    """`bash -c "sleep 0 && echo yo"` keeps its one argument whole: Nukesor/pueue#182."""
    async with bench(tmp_path) as it:
        outcome = await it.run("bash", "-c", "sleep 0 && echo yo")
        assert (outcome.end, it.log()) == (EndReason.SUCCEEDED, b"yo\n")


@scenario
async def test_it_runs_in_the_folder_of_submission(tmp_path):
    """The working folder is the folder of submission, whatever bytes its name has."""
    folder = os.fsencode(tmp_path) + b"/caf\xe9 \n"
    os.mkdir(folder)  # noqa: PTH102
    async with bench(tmp_path) as it:
        await it.run("pwd", folder=pack_bytes(folder))
        assert it.log() == folder + b"\n"


@scenario
async def test_the_environment_is_what_was_given_and_what_we_add_and_nothing_else(tmp_path, monkeypatch):
    """Nothing of the broker's own environment leaks into a job: PmagPy/PmagPy#919."""
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "secret")
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    async with bench(tmp_path) as it:
        given = {"PATH": os.environ["PATH"], "MINE": "1", "JUPYTER_GPU_JOB": "99", "CUDA_VISIBLE_DEVICES": "7"}
        await it.run(
            *PYTHON, "-c", SHOW, environment=given, devices=(device(2), device(0)), deadline_at=1800000000.25
        )  # fmt: skip
        env = shown(it.log())["env"]
        assert int(env.pop("MASTER_PORT")) > 0
        for name in ("HOME", "USER", "LOGNAME", "SHELL", "LC_CTYPE"):
            env.pop(name, None)
        assert env == {
            "PATH": os.environ["PATH"],
            "MINE": "1",
            "PYTHONUNBUFFERED": "1",
            "CUDA_VISIBLE_DEVICES": "GPU-00000002,GPU-00000000",
            "NVIDIA_VISIBLE_DEVICES": "GPU-00000002,GPU-00000000",
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "JUPYTER_GPU_JOB": "1",
            "JUPYTER_GPU_ATTEMPT": "1",
            "JUPYTER_GPU_CHECKPOINT_DIR": f"{it.work}/.jupyter-gpu/job-1",
            "JUPYTER_GPU_DEADLINE": "1800000000.250",
            "JUPYTER_GPU_NOTICE_FILE": str(it.engine.folder_of(1, 1) / "notice.json"),
            "JUPYTER_GPU_PROGRESS_FILE": str(it.engine.folder_of(1, 1) / "progress"),
        }


@scenario
async def test_without_devices_it_sees_none_and_the_users_word_on_buffering_wins(tmp_path):
    """Zero devices is said explicitly; PYTHONUNBUFFERED is only a default (leahneukirchen/nq#36)."""
    async with bench(tmp_path) as it:
        await it.run(*PYTHON, "-c", SHOW, environment={"PATH": os.environ["PATH"], "PYTHONUNBUFFERED": ""})
        env = shown(it.log())["env"]
        assert env["CUDA_VISIBLE_DEVICES"] == env["NVIDIA_VISIBLE_DEVICES"] == "none"
        assert env["PYTHONUNBUFFERED"] == ""


@scenario
async def test_what_a_job_prints_is_in_the_log_while_it_runs(tmp_path):
    """Lines appear as they are printed, or it would look hung: leahneukirchen/nq#36, alphaXiv/OpenResearch#71."""
    async with bench(tmp_path) as it:
        await it.hand_over(sys.executable, "-c", "print('early'); import time; time.sleep(600)")
        await it.says(b"early")
        assert it.engine.inventory()[1].stage is Stage.STARTED


@scenario
async def test_nobody_is_there_to_answer(tmp_path):
    """Standard input is empty, so input() fails at once instead of waiting: leahneukirchen/nq#36."""
    async with bench(tmp_path) as it:
        outcome = await it.run(*PYTHON, "-c", "input()")
        assert outcome.exit_code == 1
        assert b"EOFError" in it.log()


@scenario
async def test_no_file_descriptor_leaks_into_a_job(tmp_path):
    """A job has the three standard files and no more; else it could hold the broker's sockets open."""
    async with bench(tmp_path) as it:
        await it.run("ls", "-l", "/proc/self/fd")
        found = {line.split()[-3]: line.split()[-1] for line in it.log().decode().splitlines() if "->" in line}
        assert {"0", "1", "2"} <= set(found)
        assert found["0"] == "/dev/null"
        assert found["1"] == found["2"]
        assert [where for name, where in found.items() if name not in "012"] in ([], [f"/proc/{where_ls(found)}/fd"])


def where_ls(found):
    """The pid in the folder that ls itself holds open."""
    return next(where.split("/")[2] for name, where in found.items() if name not in "012")


@scenario
async def test_a_job_is_a_session_of_its_own_with_default_signals(tmp_path):
    """A signal to the broker's group never reaches a job, and nothing that Python ignores stays ignored."""
    async with bench(tmp_path) as it:
        await it.run("bash", "-c", "ps -o sid= -p $$; echo $$; grep -E 'SigIgn|SigBlk' /proc/$$/status")
        lines = it.log().split(b"\n")
        assert lines[0].strip() == lines[1].strip()
        # 32 and 33 belong to the C library, which lets nobody touch them: they stay as the broker found them.
        masks = [int(line.split()[1], 16) & ~(0b11 << 31) for line in lines[2:4]]
        assert masks == [0, 0]


@scenario
async def test_core_dumps_are_off_unless_asked_for(tmp_path):
    """A crash leaves no gigabytes behind: gpustack/gpustack#3094, ai-dynamo/aiconfigurator#587."""
    most = resource.getrlimit(resource.RLIMIT_CORE)[1]
    async with bench(tmp_path) as it:
        crash = await it.run("bash", "-c", "ulimit -c; kill -SEGV $$")
        assert it.log() == b"0\n"
        said = "segmentation fault (signal 11); the log ends with: 0"
        assert (crash.signal, crash.exit_code, crash.detail) == (11, None, said)
        assert not list(it.work.iterdir())
        await it.run("bash", "-c", "ulimit -c", workload=2, core_dumps=True)
        assert it.log(2) == (b"unlimited\n" if most == resource.RLIM_INFINITY else b"%d\n" % (most // 1024))


@pytest.mark.skipif(not IS_ROOT, reason="only root can start work as somebody else")
@scenario
async def test_a_job_runs_as_the_submitting_user(place):
    """As root the broker starts a job with all ids, groups and names of its user; the user's files are the user's."""
    async with bench(place) as it:
        os.chown(it.work, NOBODY.pw_uid, NOBODY.pw_gid)
        given = {"PATH": "/usr/bin:/bin", "HOME": "/root", "USER": "root", "SHELL": "x"}
        script = "id -u; id -g; id -G; echo $HOME $USER $LOGNAME $SHELL; touch mine; cat $JUPYTER_GPU_NOTICE_FILE; "
        script += "mkdir $JUPYTER_GPU_CHECKPOINT_DIR/x"
        outcome = await it.run("sh", "-c", script, account="nobody", environment=given)
        groups = " ".join(map(str, os.getgrouplist("nobody", NOBODY.pw_gid)))
        lines = it.log().decode().splitlines()
        assert lines[:3] == [str(NOBODY.pw_uid), str(NOBODY.pw_gid), groups]
        assert lines[3] == f"{NOBODY.pw_dir} nobody nobody {NOBODY.pw_shell}"
        assert outcome.end is EndReason.SUCCEEDED
        for path in ("mine", ".jupyter-gpu", ".jupyter-gpu/job-1", ".jupyter-gpu/job-1/x"):
            assert (it.work / path).stat().st_uid == NOBODY.pw_uid
        assert stat.S_IMODE((it.work / "mine").stat().st_mode) == 0o644


@pytest.mark.skipif(not IS_ROOT, reason="only root can start work as somebody else")
@scenario
async def test_another_users_job_can_read_its_notice_and_nothing_else_of_its_attempt(place):
    """The notice file is readable by the job; spec, log and outcome are not."""
    async with bench(place) as it:
        it.work.chmod(0o777)
        script = "trap 'cat $JUPYTER_GPU_NOTICE_FILE; exit 0' TERM; cd $(dirname $JUPYTER_GPU_NOTICE_FILE); "
        script += "cat spec.json log outcome.json; ls; echo ready; while :; do sleep 0.02; done"
        await it.hand_over("bash", "-c", script, account="nobody")
        log = await it.says(b"ready")
        assert log.count(b"Permission denied") >= 3
        await it.order(grace=60)
        outcome = await it.end()
        assert outcome.noticed
        assert b'"reason": "preempted"' in it.log()


@pytest.mark.parametrize(
    ("prepare", "argv", "words"),
    [
        ("", ["no-such-command-here"], ["start no-such-command-here", "No such file", "errno 2, ENOENT"]),
        ("", ["./plain"], ["start ./plain", "Permission denied", "errno 13, EACCES"]),
        ("", ["./no-shebang"], ["start ./no-shebang", "Exec format error", "errno 8, ENOEXEC"]),
        ("", ["true", "x" * 131072], ["start true", "Argument list too long", "errno 7, E2BIG"]),
        ("gone", ["true"], ["enter the folder", "No such file", "errno 2, ENOENT"]),
    ],
)
@scenario
async def test_a_command_that_cannot_be_started_says_the_full_cause(tmp_path, prepare, argv, words):
    """A launch failure names the step and the errno (ROCm/spur#520); DataBiosphere/toil#3955 met E2BIG."""
    async with bench(tmp_path) as it:
        (it.work / "plain").write_text("#!/bin/sh\n")
        (it.work / "no-shebang").write_text("nothing\n")
        (it.work / "no-shebang").chmod(0o755)
        outcome = await it.run(*argv, folder=str(it.work / prepare))
        assert outcome.end is EndReason.LAUNCH_FAILED
        assert not outcome.engine_fault
        assert all(word in outcome.detail for word in words), outcome.detail


@scenario
async def test_an_account_that_does_not_exist_is_refused(tmp_path):
    """The engine never runs work as somebody else than it was told."""
    async with bench(tmp_path) as it:
        outcome = await it.run("true", account="no-such-person")
        assert (outcome.end, outcome.engine_fault) == (EndReason.LAUNCH_FAILED, True)
        assert "no account no-such-person" in outcome.detail


@scenario
async def test_a_spool_that_cannot_be_written_is_the_engines_fault(tmp_path):
    """The cause is told with its errno, and it does not count against the job: ROCm/spur#520."""
    async with bench(tmp_path) as it:
        (tmp_path / "attempts" / "1.1").write_text("a file where the folder should be")
        outcome = await it.run("true")
        assert (outcome.end, outcome.engine_fault) == (EndReason.LAUNCH_FAILED, True)
        assert "Not a directory" in outcome.detail
        (tmp_path / "attempts" / "1.1").unlink()
        await it.engine.take_back(1, 1)
        it.seen.clear()
        assert (await it.run("true")).end is EndReason.SUCCEEDED  # the number was not used up


@scenario
async def test_handing_over_again_starts_nothing_again(tmp_path):
    """Every call is idempotent by (workload, attempt)."""
    async with bench(tmp_path) as it:
        for _ in range(3):
            await it.hand_over("sh", "-c", "echo once >> lines")
        await it.end()
        await it.hand_over("sh", "-c", "echo once >> lines")
        await it.engine.take_back(1, 1)
        await it.hand_over("sh", "-c", "echo once >> lines")
        await until(lambda: it.engine.inventory()[1].stage is Stage.GONE)
        assert (it.work / "lines").read_text() == "once\n"


@scenario
async def test_an_order_before_the_start_starts_nothing(tmp_path):
    """An attempt that is called off in time never runs, and a preemption of it counts as one that was noticed."""
    async with bench(tmp_path) as it:
        os.kill(it.engine.launcher_pid, 19)  # SIGSTOP: the start message lies unread
        await it.hand_over("touch", "ran")
        await it.order(grace=10)
        outcome = await it.end()
        os.kill(it.engine.launcher_pid, 18)
        await it.hand_over("true", workload=2)  # read after the first message
        await it.end(2)
        assert outcome.noticed
        assert "before it began" in outcome.detail
        assert not (it.work / "ran").exists()


@scenario
async def test_what_is_taken_back_before_the_start_never_starts(tmp_path):
    """Taking back closes the door by the started mark, so a late launcher finds it shut."""
    async with bench(tmp_path) as it:
        os.kill(it.engine.launcher_pid, 19)
        await it.hand_over("touch", "ran")
        await it.engine.take_back(1, 1)
        assert 1 not in it.engine.inventory()
        os.kill(it.engine.launcher_pid, 18)
        await it.hand_over("true", workload=2)
        await it.end(2)
        assert not (it.work / "ran").exists()


@scenario
async def test_what_was_called_off_may_begin_later_under_the_same_number(tmp_path):
    """The number rises at the start, not at the grant; an old word of the first start starts neither."""
    async with bench(tmp_path) as it:
        for round_ in (1, 2):
            os.kill(it.engine.launcher_pid, 19)
            await it.hand_over("sh", "-c", f"echo {round_} >> lines")
            await (it.order(grace=10) if round_ == 1 else it.engine.take_back(1, 1))
            await it.engine.take_back(1, 1)
            os.kill(it.engine.launcher_pid, 18)
        await it.anew()
        await it.run("sh", "-c", "echo 3 >> lines; echo said")
        assert (it.work / "lines").read_text() == "3\n"
        assert it.log() == b"said\n"
        await it.anew()
        assert it.engine.inventory()[1].outcome.exit_code == 0


@scenario
async def test_a_broker_killed_while_it_called_off_leaves_no_lost_attempt(tmp_path):
    """The mark alone says that nothing was started."""
    async with bench(tmp_path) as it:
        os.kill(it.engine.launcher_pid, 19)
        await it.hand_over("touch", "ran")
        files.make_mark(str(it.engine.folder_of(1, 1)), {"called_off": True})
        os.kill(it.engine.launcher_pid, 18)
        await it.anew()
        outcome = await it.end()
        assert outcome.noticed
        assert it.engine.inventory()[1].holder is None
        assert not (it.work / "ran").exists()


@scenario
async def test_taking_back_what_runs_ends_it_first(tmp_path):
    """No workload, no process: what nobody wants any more is ended, and then forgotten."""
    async with bench(tmp_path) as it:
        await it.hand_over("bash", "-c", "echo pid $$; exec sleep 600")
        [pid] = await it.pids(1)
        await it.engine.take_back(1, 1)
        await until(lambda: 1 not in it.engine.inventory())
        assert not lives(pid)
        assert it.log()


@scenario
async def test_the_environment_is_not_kept(tmp_path):
    """What a user's variables hold lies nowhere once the job has begun."""
    async with bench(tmp_path) as it:
        await it.run("true", environment={"PATH": os.environ["PATH"], "TOKEN": "hush-hush"})
        kept = b"".join(path.read_bytes() for path in it.engine.folder_of(1, 1).iterdir())
        assert b"hush-hush" not in kept


@pytest.mark.parametrize(
    "poison",
    [
        {"checkpoint_dir": "base64:a"},
        {"checkpoint_dir": "a\0b"},
        {"folder": "/tmp\0"},
        {"script_index": 7, "script_copy": "/nowhere"},
        {"script_index": 0, "script_copy": "a\0b"},
        {"environment": {"A\0": "1", "PATH": "/bin"}},
    ],
)
@scenario
async def test_what_cannot_be_meant_is_the_commands_own_fault_and_nobody_elses(tmp_path, poison):
    """An outcome, not an exception; it counts against the job, so it is not tried for ever."""
    async with bench(tmp_path) as it:
        outcome = await it.run("true", **poison)
        assert (outcome.end, outcome.engine_fault) == (EndReason.LAUNCH_FAILED, False)
        assert (await it.run("true", workload=2)).end is EndReason.SUCCEEDED


@scenario
async def test_whatever_fails_while_a_start_is_prepared_becomes_an_outcome(tmp_path, monkeypatch):
    """A fault of ours is told as ours; a folder that cannot be read now is handed over again later."""
    async with bench(tmp_path) as it:
        monkeypatch.setattr(it.engine._spool, "write", lambda *_, **__: {}["no such key"])
        outcome = await it.run("true")
        assert (outcome.end, outcome.engine_fault) == (EndReason.LAUNCH_FAILED, True)
        monkeypatch.undo()

        def fail(*_):
            raise OSError(24, "Too many open files")

        monkeypatch.setattr(it.engine._spool, "folder_to_start_in", fail)
        await it.hand_over("true", workload=2)
        assert 2 not in it.engine.inventory()
        monkeypatch.undo()
        assert (await it.run("true", workload=2)).end is EndReason.SUCCEEDED


@scenario
async def test_nobody_looks_around_among_the_attempts(tmp_path):
    """Who passes through to a notice sees neither the launcher's log nor which attempts there are."""
    (tmp_path / "attempts" / "live").mkdir(parents=True)
    (tmp_path / "attempts" / "launcher.log").touch(mode=0o644)
    async with bench(tmp_path) as it:
        await it.run("true")
        modes = [stat.S_IMODE((tmp_path / "attempts" / name).stat().st_mode) for name in ("", "live", "launcher.log")]
        assert modes == [0o711, 0o700, 0o600]
