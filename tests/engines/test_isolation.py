"""A job cannot open the device nodes of others, everything else works as before, and a probe says which of both holds.

The nodes are harmless devices under other names, the users and the layers are real.
"""

import contextlib
import ctypes
import os
import shutil
import struct
from pathlib import Path

import pytest

from jupyter_gpu.broker.engines import bpf, guard
from jupyter_gpu.broker.engines.base import Stage
from jupyter_gpu.broker.engines.local import LocalEngine
from jupyter_gpu.broker.reconcile import attempt_for
from jupyter_gpu.model import EndReason, IsolationView
from tests.engines.bench import bench, lives, scenario, until
from tests.engines.fences import LAYERS, NOBODY, TRY, Broker, made_up_nodes, need, open_folder
from tests.world import Play, a_device, a_mig_device

#: What a training needs of the machine beside its GPU.
COMMON = """
echo x > /dev/null && head -c1 /dev/urandom | wc -c
echo shm > /dev/shm/jg-$$ && cat /dev/shm/jg-$$ && rm /dev/shm/jg-$$
script -qec "echo on a terminal" /dev/null 2>&1 | tr -d '\\r'
mkdir a b && echo moved > a/x && ln a/x b/y && mv a/x b/x && cat b/x b/y && rm -r a b
echo new > new && cat new && rm new
mkfifo pipe && (echo piped > pipe & cat pipe) && rm pipe
pwd; echo "$ODD"; umask; ulimit -c; env | cut -d= -f1 | sort | tr '\\n' ' '
echo '{"step":1}' > "$JUPYTER_GPU_PROGRESS_FILE"
readlink /proc/self/fd/0; cat /proc/1/comm
"""


@pytest.fixture
def nodes():
    """Three made-up GPUs."""
    with made_up_nodes() as made:
        yield made


@pytest.fixture
def place():
    """A bench's folder that other users reach."""
    with open_folder() as folder:
        yield folder


@contextlib.asynccontextmanager
async def fenced(place, layer, nodes, monkeypatch, wanted=None):
    """A bench whose jobs are kept apart by this layer, as its probe has found."""
    need(layer)
    monkeypatch.setitem(guard.LAYERS, LAYERS[layer], (layer,))
    async with bench(place, LAYERS[layer]) as it:
        it.work.chmod(0o777)
        it.engine.keep_apart(wanted or nodes.all)
        await until(lambda: it.engine.isolation.detail != "not probed yet")
        yield it


@pytest.mark.parametrize("layer", LAYERS)
@scenario
async def test_a_job_opens_its_own_node_and_no_other(place, nodes, monkeypatch, layer):
    """And neither do its children, in sessions of their own or twice forked; the probe says so."""
    script = f"{TRY} t own {nodes.own}; t other {nodes.other}; t third {nodes.third};"
    script += f"sh -c '{TRY} t child {nodes.other}'; setsid sh -c '{TRY} t session {nodes.other}';"
    script += f"(setsid sh -c '{TRY} sleep 0.1; t orphan {nodes.other}' &); sleep 0.5"
    async with fenced(place, layer, nodes, monkeypatch) as it:
        view = it.engine.isolation
        assert (view.enforced, view.by) == (True, layer), view
        outcome = await it.run("sh", "-c", script, account="nobody", withheld=nodes.others)
        assert outcome.end is EndReason.SUCCEEDED, outcome
        words = ["own open", "other refused", "third refused", "child refused", "session refused", "orphan refused"]
        assert it.log().decode().splitlines() == words
        assert it.file("outcome.json")["isolation"] == {"by": layer, "why": "", "opened": [], "missing": []}
        assert it.engine.isolation.enforced


@pytest.mark.parametrize("layer", LAYERS)
@scenario
async def test_everything_else_is_as_without(place, nodes, monkeypatch, layer):
    """Terminals, shared memory, files moved between folders, the environment byte for byte, the exit code."""
    words = {"environment": {"PATH": os.environ["PATH"], "ODD": "base64:" + "b2Rk/w=="}, "account": "nobody"}
    said = []
    async with fenced(place, layer, nodes, monkeypatch) as it:
        for number, withheld in enumerate([(), nodes.others], 1):
            outcome = await it.run("sh", "-c", COMMON + "exit 7", workload=number, withheld=withheld, **words)
            assert outcome.exit_code == 7
            said.append(it.log(number))
            assert bool(it.file("outcome.json", number)["isolation"]) == bool(withheld)
            assert it.file("progress.json", number)["step"] == 1
    assert said[1] == said[0]
    assert b"moved\nmoved\nnew\npiped\n" in said[0]
    assert b"odd\xff\n" in said[0]


@pytest.mark.parametrize("layer", ["cgroup v2", "cgroup v1"])
@scenario
async def test_a_job_cannot_leave_its_cgroup(place, nodes, monkeypatch, layer):
    """Not to the root, not to one beside it; whoever it starts cannot either."""
    script = TRY + "for f in $(find /sys/fs/cgroup -maxdepth 3 -name cgroup.procs -o -maxdepth 3 -name tasks); do"
    script += " echo $$ > $f && echo left by $f; done 2>/dev/null; "
    async with fenced(place, layer, nodes, monkeypatch) as it:
        await it.run("sh", "-c", f"{script} t other {nodes.other}", account="nobody", withheld=nodes.others)
        assert it.log() == b"other refused\n"


@pytest.mark.parametrize("layer", ["landlock", "bubblewrap"])
def test_a_broker_without_rights_keeps_its_jobs_apart(nodes, place, layer):
    """As any user, by Landlock or bubblewrap; a namespace that the job makes itself opens nothing either."""
    need(layer)
    os.chown(place, NOBODY.pw_uid, NOBODY.pw_gid)
    script = f"{TRY} t own {nodes.own}; t other {nodes.other}; id -u; grep NoNewPrivs /proc/self/status;"
    script += f"unshare -Urm sh -c '{TRY} umount {nodes.other}; t inner {nodes.other}; t p /proc/1/root{nodes.other}"
    script += f"; for p in /proc/[0-9]*; do t look $p/root{nodes.other}; done | sort -u' 2>/dev/null"
    broker = Broker(place, layer, nodes, script, as_nobody=True)
    assert broker.hear()["enforced"] is True
    assert "supervisor" in broker.hear()
    said = broker.hear()
    lines = said["log"].split("\n")
    assert lines[:4] == ["own open", "other refused", str(NOBODY.pw_uid), "NoNewPrivs:\t1"]
    assert not [line for line in lines[4:] if line.endswith("open")], lines
    assert said["outcome"]["isolation"]["opened"] == []
    broker.close()


def test_of_its_own_accord_a_broker_without_rights_takes_landlock(nodes, place):
    """It says why it did not take what only root can have."""
    need("landlock")
    os.chown(place, NOBODY.pw_uid, NOBODY.pw_gid)
    broker = Broker(place, "auto", nodes, "true", as_nobody=True)
    assert broker.hear()["by"] == "landlock"
    assert broker.hear()
    assert broker.hear()
    broker.close()
    broker = Broker(place / "other", "cgroup", nodes, f"{TRY} t other {nodes.other}", as_nobody=True)
    view = broker.hear()
    assert not view["enforced"]
    assert view["detail"] == "cgroup v2 and cgroup v1: only root may set the rules of a cgroup"
    broker.hear()
    said = broker.hear()
    assert (said["outcome"]["end"], said["log"]) == ("succeeded", "other open\n")
    broker.close()


@scenario
async def test_root_can_leave_and_is_never_called_kept(place, nodes, monkeypatch):
    """While a job runs as root isolation is advisory, also for a broker that adopts it."""
    async with fenced(place, "cgroup v2", nodes, monkeypatch) as it:
        await it.hand_over("sh", "-c", "echo on; sleep 600", withheld=nodes.others)
        await it.says(b"on")
        told = "job 1 runs as root, and root can leave every layer"
        assert it.engine.isolation == IsolationView(enforced=False, by="cgroup v2", detail=told)
        await it.anew()
        it.engine.keep_apart(nodes.all)
        await until(lambda: it.engine.isolation.detail != "not probed yet")
        assert it.engine.isolation.detail == told
        await it.order(0, 0)
        await it.end()
        assert it.engine.isolation.enforced


@scenario
async def test_a_layer_that_lets_something_through_is_not_called_enforced(place, nodes, monkeypatch):
    """What has no device number no cgroup can withhold: the probe opens it, and its name is told."""
    plain = nodes.folder / "plain"
    plain.touch()
    plain.chmod(0o666)
    async with fenced(place, "cgroup v2", nodes, monkeypatch, wanted=[*nodes.all, str(plain)]) as it:
        told = f"cgroup v2: the probe could open {plain}"
        assert it.engine.isolation == IsolationView(enforced=False, by="cgroup v2", detail=told)


@scenario
async def test_the_next_layer_is_taken_where_one_does_not_hold(place, nodes):
    """Which layer is taken is decided by the probes and not by what the machine claims to have."""
    need("cgroup v2")
    need("landlock")
    plain = nodes.folder / "plain"
    plain.touch()
    plain.chmod(0o666)
    async with bench(place) as it:
        it.engine.keep_apart(nodes.all)
        await until(lambda: it.engine.isolation.enforced)
        assert it.engine.isolation.by == "cgroup v2"
        it.engine.keep_apart([*nodes.all, str(plain)])  # the set has changed: all is tried anew
        assert not it.engine.isolation.enforced
        await until(lambda: it.engine.isolation.enforced)
        assert it.engine.isolation.by == "landlock"


@scenario
async def test_what_a_job_could_open_makes_it_advisory_at_once(place, nodes, monkeypatch):
    """Its own probe is told while it runs, and stands in its outcome."""
    plain = nodes.folder / "plain"
    plain.touch()
    plain.chmod(0o666)
    async with fenced(place, "cgroup v2", nodes, monkeypatch) as it:
        assert it.engine.isolation.enforced
        withheld = (*nodes.others, str(plain))
        await it.hand_over("sh", "-c", "echo on; sleep 600", account="nobody", withheld=withheld)
        await until(lambda: not it.engine.isolation.enforced)
        assert it.engine.isolation.detail == f"job 1 could open {plain} in spite of it"
        assert it.engine.inventory()[1].stage is Stage.STARTED
        await it.order(0, 0)
        await it.end()
        assert it.file("outcome.json")["isolation"]["opened"] == [str(plain)]


@scenario
async def test_a_node_that_is_not_there_was_not_tried(place, nodes):
    """Enforced means that each was tried: what a driver makes later may be open. It is told once, and of no layer."""
    gone = f"{nodes.folder}/gpu9"
    told = f"it could not be tried where there is no such file: {gone}"
    async with bench(place) as it:
        it.engine.keep_apart([*nodes.all, gone])
        await until(lambda: it.engine.isolation.detail != "not probed yet")
        assert it.engine.isolation == IsolationView(enforced=False, by=it.engine.isolation.by, detail=told)


@scenario
async def test_nodes_that_go_and_come_back_are_tried_anew(place, nodes, monkeypatch):
    """A driver that is loaded anew makes others under the old names; nobody has to start the broker again for that."""
    async with fenced(place, "cgroup v2", nodes, monkeypatch) as it:
        assert it.engine.isolation.enforced
        Path(nodes.other).unlink()
        await until(lambda: nodes.other in it.engine.isolation.detail)
        assert not it.engine.isolation.enforced
        os.mknod(nodes.other, 0o20666, os.makedev(1, 8))
        await until(lambda: it.engine.isolation.enforced)
        script = f"{TRY} t other {nodes.other}"
        await it.run("sh", "-c", script, account="nobody", withheld=nodes.others)
        assert it.log() == b"other refused\n"


@pytest.mark.parametrize("layer", ["cgroup v2", "cgroup v1", "landlock", "bubblewrap"])
@scenario
async def test_what_is_made_after_a_job_began_is_not_called_kept_from_it(place, nodes, monkeypatch, layer):
    """Only Landlock withholds what was not there; for the others it is advisory as long as that job runs."""
    Path(nodes.third).unlink()
    script = f"{TRY} echo on; while ! test -e go; do sleep 0.02; done; t third {nodes.third}; sleep 600"
    async with fenced(place, layer, nodes, monkeypatch) as it:
        await it.hand_over("sh", "-c", script, account="nobody", withheld=nodes.others)
        await it.says(b"on")
        os.mknod(nodes.third, 0o20666, os.makedev(1, 7))
        os.chmod(nodes.third, 0o666)  # noqa: PTH101 - whatever the umask says
        holds = layer == "landlock"
        told = f"job 1 began before {nodes.third} came to be"
        await until(lambda: it.engine.isolation.enforced if holds else it.engine.isolation.detail == told)
        (it.work / "go").touch()
        await it.says(b"third refused" if holds else b"third open")
        await it.order(0, 0)
        await it.end()
        await until(lambda: it.engine.isolation.enforced)


@scenario
async def test_switched_off_is_off(place, nodes):
    """Nothing is tried, nothing is withheld, and both are said."""
    async with bench(place, "off") as it:
        it.engine.keep_apart(nodes.all)
        assert it.engine.isolation == IsolationView(
            enforced=False, detail="it is switched off by the broker's configuration"
        )
        await it.run("sh", "-c", f"{TRY} t other {nodes.other}", account="nobody", withheld=nodes.others)
        assert (it.log(), it.file("outcome.json")["isolation"]) == (b"other open\n", None)


@scenario
async def test_where_there_are_no_nodes_there_is_nothing_to_keep_apart(tmp_path):
    """Simulated devices have none."""
    async with bench(tmp_path) as it:
        it.engine.keep_apart([])
        assert it.engine.isolation == IsolationView(enforced=False, detail="there are no device nodes to keep apart")
        await it.run("true")
        assert it.file("outcome.json")["isolation"] is None


@scenario
async def test_without_the_program_there_is_no_bubblewrap(tmp_path, monkeypatch):
    """A choice that cannot be had says why, and stops no job."""
    monkeypatch.setenv("PATH", str(tmp_path))
    async with bench(tmp_path, "bubblewrap") as it:
        it.engine.keep_apart(["/dev/null"])
        await until(lambda: "not there" in it.engine.isolation.detail)
        assert it.engine.isolation.detail == "bubblewrap: the program bwrap is not there"
        outcome = await it.run("/bin/true", withheld=("/dev/full",), environment={"PATH": "/bin"})
        assert outcome.end is EndReason.SUCCEEDED


def test_a_choice_that_there_is_not(tmp_path):
    """A word that means nothing is refused, with those that mean something."""
    with pytest.raises(ValueError, match="one of auto, cgroup, landlock, bubblewrap, off, not 'selinux'"):
        LocalEngine(tmp_path, "selinux")


@scenario
async def test_a_bubblewrap_that_fails_is_no_fault_of_the_job(place, nodes, monkeypatch):
    """It is told as the engine's, with bubblewrap's own words; one that always does is not used."""
    need("bubblewrap")
    program = place / "bwrap"
    broken = place / "broken"
    real = shutil.which("bwrap")
    program.write_text(f'#!/bin/sh\ntest -e {broken} && echo "bwrap: no" >&2 && exit 1\nexec {real} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    async with fenced(place, "bubblewrap", nodes, monkeypatch) as it:
        assert it.engine.isolation.enforced
        broken.touch()
        outcome = await it.run("true", account="nobody", withheld=nodes.others)
        assert (outcome.end, outcome.engine_fault) == (EndReason.LAUNCH_FAILED, True)
        assert outcome.detail == "could not start it in bubblewrap: bwrap: no"
        it.engine.keep_apart(nodes.others)
        await until(lambda: "bwrap: no" in it.engine.isolation.detail)
        outcome = await it.run("true", account="nobody", withheld=nodes.others, workload=2)
        assert outcome.end is EndReason.SUCCEEDED


@scenario
async def test_in_bubblewrap_the_notice_reaches_the_training_and_a_failed_start_is_told(place, nodes, monkeypatch):
    """It is a wrapper and nothing more."""
    async with fenced(place, "bubblewrap", nodes, monkeypatch) as it:
        outcome = await it.run("no-such-program", account="nobody", withheld=nodes.others)
        assert (outcome.end, outcome.engine_fault) == (EndReason.LAUNCH_FAILED, False)
        assert outcome.detail.startswith("could not start no-such-program: No such file or directory")
        script = "trap 'echo saved; exit 0' TERM; echo on; while :; do sleep 0.05; done"
        await it.hand_over("sh", "-c", script, account="nobody", withheld=nodes.others, workload=2)
        await it.says(b"on", 2)
        await it.order(grace=10, workload=2)
        outcome = await it.end(2)
        assert (outcome.end, outcome.noticed) == (EndReason.SUCCEEDED, True)
        assert b"saved" in it.log(2)


@pytest.mark.parametrize("layer", ["cgroup v2", "cgroup v1"])
@scenario
async def test_cgroups_and_programs_go_with_the_attempt(place, nodes, monkeypatch, layer):
    """Nothing of a hundred jobs may be left in the kernel."""
    async with fenced(place, layer, nodes, monkeypatch) as it:
        await until(lambda: not our_cgroups(it))
        await it.hand_over("sh", "-c", "echo on; sleep 600", account="nobody", withheld=nodes.others)
        await it.says(b"on")
        assert our_cgroups(it)
        programs = [number for cgroup in our_cgroups(it) for number in programs_of(cgroup)]
        assert len(programs) == (layer == "cgroup v2")
        assert all(is_in_the_kernel(number) for number in programs)
        await it.order(0, 0)
        await it.end()
        await until(lambda: not our_cgroups(it) and not any(is_in_the_kernel(number) for number in programs))


def our_cgroups(it):
    """The cgroups of this bench's attempts and probes; those of others come and go meanwhile."""
    begin = f"{it.engine._spool._name}-"
    return [
        Path(above, name) for above, names, _ in os.walk("/sys/fs/cgroup") for name in names if name.startswith(begin)
    ]


def programs_of(cgroup):
    """The device programs that hold in it by itself."""
    if not (cgroup / "cgroup.controllers").exists():
        return []
    folder, numbers = os.open(cgroup, os.O_RDONLY), ctypes.create_string_buffer(4 * 8)
    try:
        asked = struct.pack("=IIIIQI4x", folder, bpf._ATTACH_CGROUP_DEVICE, 0, 0, ctypes.addressof(numbers), 8)
        room = ctypes.create_string_buffer(asked, len(asked))
        kernel(16, room)
    finally:
        os.close(folder)
    count = struct.unpack_from("=I", room.raw, 24)[0]
    return struct.unpack_from(f"={count}I", numbers.raw)


def is_in_the_kernel(number):
    """Whether the program of that number still is."""
    with contextlib.suppress(FileNotFoundError):
        os.close(kernel(13, ctypes.create_string_buffer(struct.pack("=III", number, 0, 0), 12)))
        return True
    return False


def kernel(command, room):
    """Call bpf(2)."""
    answer = bpf._libc.syscall(bpf._CALL[os.uname().machine], command, room, len(room))
    if answer < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return answer


@pytest.mark.parametrize(("layer", "as_nobody"), [("cgroup v2", False), ("landlock", True), ("bubblewrap", True)])
def test_a_broker_that_was_killed_finds_its_jobs_still_kept(nodes, place, layer, as_nobody):
    """The layer is the job's and not the broker's; its end is seen by the next one."""
    need(layer)
    os.chown(place, NOBODY.pw_uid if as_nobody else 0, 0)
    script = f"echo on; while ! test -e go; do sleep 0.05; done; {TRY} t own {nodes.own}; t other {nodes.other}"
    first = Broker(place, LAYERS[layer], nodes, script, as_nobody=as_nobody)
    assert first.hear()["enforced"]
    supervisor = first.hear()["supervisor"]
    first.kill()
    assert lives(supervisor)
    second = Broker(place, LAYERS[layer], nodes, script, as_nobody=as_nobody)
    assert (view := second.hear())["by"] == layer
    assert view["enforced"] is as_nobody  # the other's job runs as root
    assert second.hear()["supervisor"] == supervisor
    (place / "go").touch()
    said = second.hear()
    assert said["log"] == "on\nown open\nother refused\n"
    assert said["outcome"]["isolation"]["opened"] == []
    second.close()
    assert not [path for path in (place / "attempts").iterdir() if path.name.startswith("probe.")]


def test_what_is_withheld_is_every_others_node_and_none_of_its_own():
    """MIG devices of one card share its node, so of a sibling only what it has beside that is withheld."""
    play = Play(
        [
            a_mig_device(0, nodes=("/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap30")),
            a_mig_device(1, nodes=("/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap39")),
            a_device(1, nodes=("/dev/nvidia1",)),
        ]
    )
    whole, part, none = play.job(device_class="a100"), play.job(device_class="mig-3g.40gb"), play.job(devices=0)
    caps = ("/dev/nvidia-caps/nvidia-cap30", "/dev/nvidia-caps/nvidia-cap39")
    sibling = caps[1] if play[part].lease.devices == ("mig-0:0",) else caps[0]
    assert attempt_for(play.world, play[whole]).withheld == (*caps, "/dev/nvidia0")
    assert attempt_for(play.world, play[part]).withheld == (sibling, "/dev/nvidia1")
    assert attempt_for(play.world, play[none]).withheld == (*caps, "/dev/nvidia0", "/dev/nvidia1")
