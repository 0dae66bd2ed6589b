"""Jobs in real containers of docker and podman, where these can be had: what Debian brings of both will do.

Their argv is in test_containers; here counts what comes of it: who runs what, where, and how it is brought to its end.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpu.broker.engines import files, outside, procs
from jupyter_gpu.broker.engines.base import Stage
from tests.accounts import two_accounts
from tests.engines.bench import bench, kill, lives, scenario, until
from tests.engines.container_ground import IMAGE, House, houses
from tests.engines.fences import made_up_nodes, open_folder


@pytest.fixture(scope="module", params=["docker", "podman"])
def house(request: pytest.FixtureRequest) -> Iterator[House]:
    """An engine that works."""
    with houses(request.param) as made:
        yield made


@pytest.fixture(scope="module")
def docker() -> Iterator[House]:
    """The engine whose processes are not below us, and that lets in whoever is allowed to its socket."""
    with houses("docker") as made:
        yield made


def within(house: House, **more: object) -> dict[str, object]:
    """What a job asks for to run in the house."""
    return {"image": IMAGE, "container_engine": house.engine, "environment": house.environment | {"WORD": "a b"}} | more


#: A training as a shell can be one: it says that it runs, and saves at SIGTERM.
TRAINS = 'trap "echo noticed; cat $JUPYTER_GPU_NOTICE_FILE; exit 0" TERM; echo runs; while true; do sleep 0.1; done'
STUBBORN = 'trap "" TERM; echo runs; while true; do sleep 0.1; done'


def waiting(name: str, variables: dict[str, str]) -> subprocess.Popen[bytes]:
    """A process of somebody else's that does nothing, with these variables."""
    return subprocess.Popen(["/bin/sleep", "600"], env=variables, user=name, cwd="/")


def inside(it) -> set[int]:
    """The shells of attempt 1.1 by the variables that they were given, without what they are just forking."""
    spec = {"workload": 1, "attempt": 1}
    found = procs.tagged(outside.tags(str(it.engine.folder_of(1, 1)), spec))
    shells = {pid for pid in found if procs.argv(pid)[:1] == ["sh"]}
    return {pid for pid in shells if found[pid].parent not in shells}


@scenario
async def test_a_command_runs_in_the_image_as_it_was_asked(tmp_path, house):
    """In the folder of submission, with each word and variable as it is, and with its exit code; nothing is left."""
    async with bench(tmp_path) as it:
        script = 'pwd; printf "<%s>" "$@"; echo; echo "$WORD"; echo $PATH; echo $HOME; touch made; exit 7'
        spec = within(house)
        spec["environment"] = spec["environment"] | {"PATH": f"{os.environ['PATH']}:/opt/of-outside"}
        outcome = await it.run("sh", "-c", script, "x", "", "two words", "a\nb", 'q"q', **spec)
        assert (outcome.end, outcome.exit_code) == ("failed", 7)
        said = it.log().decode().splitlines()
        assert said[0] == str(it.work)
        assert "\n".join(said[1:3]) == '<><two words><a\nb><q"q>'
        assert said[3] == "a b"
        assert "/opt/of-outside" not in said[4]
        assert said[5] == "/tmp"
        assert (it.work / "made").exists()
        assert house.containers() == []


@scenario
async def test_values_of_variables_are_seen_by_nobody_else(tmp_path, house):
    """Everybody reads command lines: a secret that was given by name is in none, and yet arrives."""
    async with bench(tmp_path) as it:
        spec = within(house)
        spec["environment"] = spec["environment"] | {"HF_TOKEN": "hf_secret"}
        await it.hand_over("sh", "-c", 'echo "got $HF_TOKEN"; ' + TRAINS, **spec)
        await it.says(b"runs")
        assert b"got hf_secret" in it.log()
        assert not [pid for pid in procs.everyone() if "hf_secret" in " ".join(procs.argv(pid))]


@scenario
async def test_only_what_was_named_is_seen(tmp_path, house):
    """A mount for reading only cannot be written to, and nothing else of the machine is there."""
    data, other = tmp_path / "data", tmp_path / "other"
    for folder in (data, other):
        folder.mkdir()
        (folder / "file").write_text("content")
    async with bench(tmp_path) as it:
        script = f"cat /data/file; touch /data/more; ls {other}; echo more > /out/more; df -m /dev/shm"
        mounts = (f"{data}:/data:ro", f"{data}:/out")
        await it.run("sh", "-c", script, **within(house, mounts=mounts))
        said = it.log()
        assert b"content" in said  # of what goes to stdout and what to stderr docker does not keep the order
        assert b"Read-only file system" in said
        assert b"No such file" in said
        assert (data / "more").read_text() == "more\n"
        mebibytes = next(int(line.split()[1]) for line in said.splitlines() if line.endswith(b"/dev/shm"))
        assert mebibytes >= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**21 - 1


@scenario
async def test_the_notice_reaches_the_training_and_nothing_around_it(tmp_path, house):
    """Neither the client nor the container's init: the training, once, with the notice file; it saves and ends."""
    async with bench(tmp_path) as it:
        await it.hand_over("sh", "-c", TRAINS, **within(house))
        await it.says(b"runs")
        await it.order(30)
        outcome = await it.end()
        assert outcome.exit_code == 0
        assert outcome.noticed
        assert [name.split()[0] for name in it.file(files.OUTCOME)["noticed_processes"]] == ["sh"]
        assert it.log().count(b"noticed") == 1
        assert b'"reason": "preempted"' in it.log()
        assert outcome.forced == ()
        assert house.containers() == []


@scenario
async def test_who_ignores_sigterm_is_killed_container_and_all(tmp_path, house):
    """And is gone only when nothing of it lives."""
    async with bench(tmp_path) as it:
        await it.hand_over("sh", "-c", STUBBORN, **within(house))
        await it.says(b"runs")
        assert inside(it)
        await it.order(0, kill_after=0)
        outcome = await it.end()
        assert any(name.startswith("sh ") for name in outcome.forced)
        assert not inside(it)
        assert house.containers() == []


@scenario
async def test_a_job_outlives_its_client_and_is_not_over_before_it_is(tmp_path, docker):
    """Docker's daemon runs on without the client that we watch: so the devices are not given on meanwhile."""
    async with bench(tmp_path) as it:
        await it.hand_over("sh", "-c", STUBBORN, leftover_seconds=1, **within(docker))
        await it.says(b"runs")
        (pid,) = inside(it)
        holder = (await it.sighting(Stage.STARTED)).holder
        client = next(iter(procs.descendants(holder.pid)))
        kill(client)
        exited = await it.sighting(Stage.EXITED)
        assert exited.outcome.signal == 9
        await it.end()
        assert not lives(pid)
        assert docker.containers() == []


@pytest.mark.parametrize("is_away", [False, True])
@scenario
async def test_what_a_dead_supervisor_leaves_is_ended(tmp_path, house, is_away):
    """Whether the broker sees it, or a later one finds it at its start."""
    async with bench(tmp_path) as it:
        await it.hand_over("sh", "-c", STUBBORN, **within(house))
        await it.says(b"runs")
        (pid,) = inside(it)
        holder = (await it.sighting(Stage.STARTED)).holder
        if is_away:
            await it.engine.close()
        kill(holder.pid)
        await until(lambda: not lives(holder.pid))
        if is_away:
            assert lives(pid)
            await it.anew()
        outcome = await it.end()
        assert outcome.end == "lost"
        assert not lives(pid)
        assert house.containers() == []


@scenario
async def test_a_program_that_the_image_lacks_is_not_tried_again(tmp_path, house):
    """It is the ask that is wrong, and the engine's own words say how."""
    async with bench(tmp_path) as it:
        outcome = await it.run("python3", "train.py", **within(house))
        assert (outcome.end, outcome.engine_fault) == ("launch-failed", False)
        assert "python3" in outcome.detail
        assert IMAGE in outcome.detail
        assert house.containers() == []


@pytest.mark.parametrize("code", [125, 126, 127])
@scenario
async def test_the_numbers_by_which_engines_tell_their_faults_may_be_the_jobs_own(tmp_path, house, code):
    """A job that began and ends with one of them has failed; nothing was wrong with its start."""
    async with bench(tmp_path) as it:
        outcome = await it.run("sh", "-c", f"exit {code}", **within(house))
        assert (outcome.end, outcome.exit_code) == ("failed", code)


@scenario
async def test_without_a_daemon_the_start_is_tried_again_later(tmp_path, docker):
    """It is nothing that the job has done, and it says what to do."""
    async with bench(tmp_path) as it:
        environment = docker.environment | {"DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
        outcome = await it.run("true", **within(docker, environment=environment))
        assert (outcome.end, outcome.engine_fault) == ("launch-failed", True)
        assert "start docker's daemon" in outcome.detail


@scenario
async def test_a_job_is_its_own_user_inside_too_and_has_no_rights(tmp_path, docker):
    """What it writes is its user's, in the groups of the user; root it is not, and cannot become."""
    with two_accounts() as (name, _):
        who = pwd.getpwnam(name)
        for folder in (*reversed(tmp_path.parents), tmp_path):
            if folder.stat().st_mode & 0o055 != 0o055:
                folder.chmod(0o755)
        async with bench(tmp_path) as it:
            os.chown(it.work, who.pw_uid, who.pw_gid)
            script = "id; cat /proc/self/status; touch made; " + STUBBORN
            await it.hand_over("sh", "-c", script, account=name, **within(docker))
            await it.says(b"runs")
            assert f"uid={who.pw_uid} gid={who.pw_gid}".encode() in it.log()
            assert b"CapEff:\t0000000000000000" in it.log()
            assert b"NoNewPrivs:\t1" in it.log()
            assert (it.work / "made").stat().st_uid == who.pw_uid
            (pid,) = inside(it)
            await it.order(0, kill_after=0)
            await it.end()
            assert not lives(pid)
            assert docker.containers() == []


@scenario
async def test_a_user_whom_dockers_daemon_does_not_let_in_gets_nothing_through_us(tmp_path, docker):
    """The broker is root, and starts the client as the user: what a user may not do in a shell a job may not either."""
    with two_accounts() as (name, _):
        socket = Path(docker.environment["DOCKER_HOST"].removeprefix("unix://"))
        socket.chmod(0o660)
        try:
            async with bench(tmp_path) as it:
                outcome = await it.run("id", account=name, **within(docker, folder="/tmp"))
        finally:
            socket.chmod(0o666)
        assert outcome.end == "launch-failed"
        assert "only who is in the group docker may use docker" in outcome.detail


@scenario
async def test_reports_and_checkpoints_go_the_same_ways(tmp_path, house):
    """The pipe for progress and the folder for checkpoints are where the variables say, and can be written to."""
    async with bench(tmp_path) as it:
        beside = tmp_path / "beside"
        script = (
            'echo \'{"step": 5, "of": 10}\' > $JUPYTER_GPU_PROGRESS_FILE;'
            "echo saved > $JUPYTER_GPU_CHECKPOINT_DIR/file;" + TRAINS
        )
        await it.hand_over("sh", "-c", script, checkpoint_dir=str(beside), **within(house))
        await it.says(b"runs")
        assert (beside / "file").read_text() == "saved\n"
        await until(lambda: (it.file(files.PROGRESS) or {}).get("step") == 5)


@pytest.fixture
def rootless() -> Iterator[House]:
    """Podman of a user without rights, as most labs will have it."""
    with two_accounts() as (name, _):
        home = Path(pwd.getpwnam(name).pw_dir)
        home.mkdir()
        shutil.chown(home, name, name)
        try:
            with houses("podman", name) as made:
                yield made
        finally:
            shutil.rmtree(home)


@scenario
async def test_without_root_and_without_a_daemon_it_is_the_same(rootless):
    """The broker is root and the job's podman its user's: the notice, the kill, the files and the end are as ever."""
    who = pwd.getpwnam(rootless.account)
    with open_folder() as place:
        async with bench(place) as it:
            os.chown(it.work, who.pw_uid, who.pw_gid)
            given = within(rootless, account=rootless.account)
            await it.hand_over("sh", "-c", "id; touch made; " + TRAINS, **given)
            await it.says(b"runs")
            assert f"uid={who.pw_uid}".encode() in it.log()
            assert (it.work / "made").stat().st_uid == who.pw_uid
            await it.order(30)
            outcome = await it.end()
            assert (outcome.exit_code, outcome.noticed, outcome.forced) == (0, True, ())
            assert rootless.containers() == []

            await it.hand_over("sh", "-c", STUBBORN, workload=2, **given)
            await it.says(b"runs", workload=2)
            await it.order(0, kill_after=0, workload=2)
            assert any(name.startswith("sh ") for name in (await it.end(2)).forced)
            assert rootless.containers() == []


@scenario
async def test_after_a_restart_of_the_machine_no_container_is_kept(tmp_path, docker):
    """Its processes are gone, and what the daemon still keeps of it is removed."""
    async with bench(tmp_path) as it:
        await it.hand_over("sh", "-c", STUBBORN, **within(docker))
        await it.says(b"runs")
        holder = (await it.sighting(Stage.STARTED)).holder
        await it.engine.close()
        kill(holder.pid)
        await until(lambda: not lives(holder.pid))
        docker.ask("kill", *docker.containers())
        path = str(it.engine.folder_of(1, 1) / files.MARK)
        files.write_whole(path, files.read(path) | {"boot_id": "0" * 36})
        assert docker.containers()
        await it.anew()
        assert "restarted" in (await it.end()).detail
        assert docker.containers() == []


@scenario
async def test_of_a_job_in_a_container_it_is_not_said_that_it_was_tried(house):
    """It sees no node but its own. But nobody has tried that from inside, so isolation is advisory while it runs."""
    with made_up_nodes() as nodes, open_folder() as place:
        async with bench(place) as it:
            it.engine.keep_apart(nodes.all)
            await until(lambda: it.engine.isolation.detail != "not probed yet")
            if not it.engine.isolation.enforced:
                pytest.skip(f"no layer holds here: {it.engine.isolation.detail}")
            before = it.engine.isolation
            await it.hand_over("sh", "-c", f"ls {nodes.other}; {TRAINS}", withheld=nodes.others, **within(house))
            await it.says(b"runs")
            assert b"No such file" in it.log()
            view = it.engine.isolation
            assert not view.enforced
            assert (
                view.detail == f"job 1 is kept to its GPUs by its container ({house.engine}), and that was not probed"
            )
            await it.order(0)
            await it.end()
            assert it.engine.isolation == before
            assert it.file(files.OUTCOME)["isolation"] is None


@scenario
async def test_want_of_host_memory_is_known_from_the_engine(tmp_path, docker):
    """The kernel counts it in the container's own cgroup, which is gone when the job is."""
    async with bench(tmp_path) as it:
        script = "echo runs; while [ ! -e go ]; do sleep 0.1; done; dd if=/dev/zero of=/dev/null bs=300M count=1"
        await it.hand_over("sh", "-c", script, **within(docker))
        await it.says(b"runs")
        docker.ask("update", "--memory", "32m", "--memory-swap", "32m", *docker.containers())
        (it.work / "go").touch()
        outcome = await it.end()
        assert outcome.end == "host-oom"
        assert docker.containers() == []


@scenario
async def test_a_daemon_that_dies_is_no_fault_of_the_job(tmp_path):
    """Its containers run on without it: they are ended before the devices are given on, and the job is tried again."""
    with houses("docker") as house:
        async with bench(tmp_path) as it:
            await it.hand_over("sh", "-c", STUBBORN, leftover_seconds=0, **within(house))
            await it.says(b"runs")
            (pid,) = inside(it)
            kill(house.daemon)
            exited = await it.sighting(Stage.EXITED)
            assert (exited.outcome.end, exited.outcome.engine_fault) == ("launch-failed", True)
            await it.end()
            assert not lives(pid)


@scenario
async def test_nobody_else_can_keep_an_attempt_from_being_over(tmp_path, docker):
    """Not by giving a process of theirs the variables of somebody's job, and it is not ours to end."""
    with two_accounts() as (name, _):
        async with bench(tmp_path) as it:
            await it.hand_over("sh", "-c", TRAINS, **within(docker))
            await it.says(b"runs")
            variables = {"JUPYTER_GPU_JOB": "1", "JUPYTER_GPU_ATTEMPT": "1"}
            variables["JUPYTER_GPU_NOTICE_FILE"] = str(it.engine.folder_of(1, 1) / files.NOTICE)
            with waiting(name, variables) as other:
                await it.order(30)
                outcome = await it.end()
                assert (outcome.exit_code, outcome.forced) == (0, ())
                assert other.poll() is None
                other.kill()
