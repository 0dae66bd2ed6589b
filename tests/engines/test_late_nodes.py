"""Nodes that come to be after a job began, and nodes that stand at a second path: kept from it, or not said to be."""

import contextlib
import os
import stat
import subprocess
from pathlib import Path

import msgspec
import pytest

from jupyter_gpu.broker.engines import bpf, files, guard, reach
from jupyter_gpu.model import Card, Device
from tests.engines.bench import bench, scenario, until
from tests.engines.fences import LAYERS, TRY, made_up_nodes, need, open_folder

WAITS = f"{TRY} echo on; while ! test -e go; do sleep 0.02; done;"


@pytest.fixture
def nodes():
    """Two made-up GPUs; the third is made later."""
    with made_up_nodes() as made:
        Path(made.third).unlink()
        yield made


@pytest.fixture
def place():
    """A bench's folder that other users reach."""
    with open_folder() as folder:
        yield folder


@pytest.fixture
def driver(monkeypatch):
    """The kernel's driver of the made-up nodes is NVIDIA's, and its nodes null and zero are everybody's."""
    monkeypatch.setattr(reach, "DRIVERS", {"mem": (3, 8)})


@contextlib.asynccontextmanager
async def fenced(place, layer, nodes, monkeypatch):
    """A bench whose jobs are kept apart by this layer."""
    need(layer)
    monkeypatch.setitem(guard.LAYERS, LAYERS[layer], (layer,))
    async with bench(place, LAYERS[layer]) as it:
        it.work.chmod(0o777)
        await probed(it, nodes)
        yield it


async def probed(it, nodes):
    """Tell of these nodes and wait until they have been tried."""
    it.engine.keep_apart(nodes)
    await until(lambda: it.engine.isolation.detail != "not probed yet")


def make(path, minor):
    """A node that all may open."""
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, minor))
    os.chmod(path, 0o666)  # noqa: PTH101 - whatever the umask says
    return str(path)


@contextlib.contextmanager
def shown_at(folder, place):
    """The folder of the nodes, mounted in a second place as for a chroot."""
    place.mkdir(parents=True)
    if subprocess.run(["mount", "--bind", folder, place], check=False, capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


async def on(it, script, nodes, **more):
    """A job that has begun, as a user without rights."""
    await it.hand_over("sh", "-c", script, account="nobody", withheld=nodes, **more)
    await it.says(b"on")


async def ended(it):
    """Let it go on to its end."""
    (it.work / "go").touch()
    await it.end()
    return it.log().decode().splitlines()[1:]


@pytest.mark.usefixtures("driver")
@scenario
async def test_a_cgroup_refuses_the_cards_that_come_later_from_the_start(place, nodes, monkeypatch):
    """Of the driver's numbers a job has its own and what is everybody's: enforced stays true, and is."""
    async with fenced(place, "cgroup v2", (nodes.own, nodes.other), monkeypatch) as it:
        await on(it, f"{WAITS} t own {nodes.own}; t third {nodes.third}; t null /dev/null", (nodes.other,))
        make(nodes.third, 7)
        await probed(it, nodes.all)
        assert it.engine.isolation.enforced
        assert await ended(it) == ["own open", "third refused", "null open"]


@scenario
async def test_a_node_that_was_there_unknown_is_told_by_a_later_broker_too(place, nodes, monkeypatch):
    """Nobody withheld it, and so the job can open it, however long it has been there."""
    async with fenced(place, "cgroup v1", (nodes.own, nodes.other), monkeypatch) as it:
        make(nodes.third, 7)
        await on(it, f"{WAITS} t third {nodes.third}", (nodes.other,))
        await it.anew()
        await probed(it, nodes.all)
        assert it.engine.isolation.detail == f"job 1 began before {nodes.third} came to be"
        assert await ended(it) == ["third open"]


@pytest.mark.parametrize("layer", LAYERS)
@scenario
async def test_what_no_layer_foresees_is_told_while_that_job_runs(place, nodes, monkeypatch, layer):
    """Also by a broker that came after it; Landlock refuses whatever is made beside the others."""
    async with fenced(place, layer, (nodes.own, nodes.other), monkeypatch) as it:
        await on(it, f"{WAITS} t third {nodes.third}", (nodes.other,))
        assert it.engine.isolation.enforced
        make(nodes.third, 7)
        for broker in ("its own", "a later one"):
            await probed(it, nodes.all)
            view = it.engine.isolation
            assert view.enforced is (layer == "landlock"), (broker, view, it.engine.inventory(), it.log())
            assert layer == "landlock" or view.detail == f"job 1 began before {nodes.third} came to be"
            await it.anew()
        await probed(it, nodes.all)
        assert await ended(it) == ["third refused" if layer == "landlock" else "third open"]
        assert it.engine.isolation.enforced


@pytest.mark.parametrize("left", [{"isolation": None}, {}])
@scenario
async def test_a_job_of_which_is_not_on_record_what_it_is_kept_from_is_told(place, nodes, monkeypatch, left):
    """As one that an earlier version has started, which wrote down less: it may reach any."""
    async with fenced(place, "cgroup v2", (nodes.own, nodes.other), monkeypatch) as it:
        await on(it, WAITS, (nodes.other,))
        files.write_whole(str(it.engine.folder_of(1, 1) / files.SPEC), left)
        await it.anew()
        await probed(it, (nodes.own, nodes.other))
        assert it.engine.isolation.detail == "it is not on record what job 1 is kept from"
        await ended(it)
        assert it.engine.isolation.enforced


@scenario
async def test_what_came_later_is_known_by_the_record_and_not_by_times(place, nodes, monkeypatch):
    """A file's time is that of the kernel's last tick, and clocks are set: what is later may seem to be no younger."""
    async with fenced(place, "cgroup v1", (nodes.own, nodes.other), monkeypatch) as it:
        await on(it, WAITS, (nodes.other,))
        make(nodes.third, 7)
        in_an_hour = Path(nodes.third).stat().st_ctime + 3600
        os.utime(it.engine.folder_of(1, 1) / files.MARK, (in_an_hour, in_an_hour))
        await it.anew()
        await probed(it, nodes.all)
        assert it.engine.isolation.detail == f"job 1 began before {nodes.third} came to be"
        await ended(it)


@scenario
async def test_a_job_that_was_kept_from_nothing_is_told_of_too(place, nodes, monkeypatch):
    """It had all that there was, and then there was more."""
    async with fenced(place, "cgroup v2", (nodes.own,), monkeypatch) as it:
        await on(it, WAITS, ())
        make(nodes.third, 7)
        await probed(it, (nodes.own, nodes.third))
        assert it.engine.isolation.detail == f"job 1 began before {nodes.third} came to be"
        await ended(it)
        assert it.engine.isolation.enforced


@scenario
async def test_landlock_refuses_the_parts_of_a_card_that_is_split_later(place, nodes, monkeypatch):
    """Their nodes are made in a folder that is there before, and in which nothing is withheld yet."""
    caps = nodes.folder / reach.CAPS
    caps.mkdir(mode=0o755)
    make(caps / "nvidia-cap1", 8)
    late = str(caps / "nvidia-cap30")
    async with fenced(place, "landlock", (nodes.own, nodes.other), monkeypatch) as it:
        await on(it, f"{WAITS} t late {late}; t common {caps}/nvidia-cap1", (nodes.other,))
        make(late, 7)
        await probed(it, (nodes.own, nodes.other, late))
        assert it.engine.isolation.enforced
        assert await ended(it) == ["late refused", "common open"]


@pytest.mark.usefixtures("driver")
@scenario
async def test_no_job_is_kept_from_what_may_be_its_own(place, nodes, monkeypatch):
    """Where its own node is not there yet, or the driver does not tell which are, only the others' are refused."""
    card = Card(uuid="GPU-0", index=0, name="Test")
    part = Device(uuid="MIG-0", index=100, name="Test", device_class="test", card=card, slot=0, nodes=(nodes.own,))
    async with fenced(place, "cgroup v2", (nodes.own, nodes.other), monkeypatch) as it:
        await it.run("true", withheld=(nodes.other,))
        await it.run("true", withheld=(nodes.other,), devices=(part,), workload=2)
        await it.run("true", withheld=(nodes.other,), devices=(msgspec.structs.replace(part, nodes=()),), workload=3)
        await probed(it, (nodes.own, nodes.other, nodes.third))
        await it.run("true", withheld=(nodes.other,), workload=4)
        found = [it.file("spec.json", number)["isolation"]["whole"] for number in (1, 2, 3, 4)]
        assert found == [[[1, [3, 8, 9]]], [], [], []]


@scenario
async def test_landlock_is_not_called_enforced_where_a_mount_shows_the_nodes_again(place, nodes, monkeypatch):
    """It could close that only with all that is made later beside it: the next layer is tried, and else it is told."""
    async with fenced(place, "landlock", (nodes.own, nodes.other), monkeypatch) as it:
        assert it.engine.isolation.enforced
        with shown_at(nodes.folder, place / "chroot" / "dev") as there:
            await until(lambda: "could open" in it.engine.isolation.detail)
            assert str(there / "gpu1") in it.engine.isolation.detail
        await until(lambda: it.engine.isolation.enforced)


@scenario
async def test_bubblewrap_covers_every_place_where_a_node_is_shown(place, nodes, monkeypatch):
    """And the job's probe tries them there too."""
    with shown_at(nodes.folder, place / "chroot dir" / "dev") as there:
        async with fenced(place, "bubblewrap", (nodes.own, nodes.other), monkeypatch) as it:
            assert it.engine.isolation.enforced
            script = f"{TRY} t other {nodes.other}; t twin '{there}/gpu1'; t own '{there}/gpu0'"
            await it.run("sh", "-c", script, account="nobody", withheld=(nodes.other,))
            assert it.log().decode().splitlines() == ["other refused", "twin refused", "own open"]
            assert it.file("spec.json")["isolation"]["also"] == [f"{there}/gpu1"]


@pytest.mark.parametrize("layer", ["cgroup v2", "landlock", "bubblewrap"])
@scenario
async def test_a_mount_that_comes_later_is_seen(place, nodes, monkeypatch, layer):
    """To a cgroup a node's number is the same everywhere; what goes by paths does not hold there."""
    async with fenced(place, layer, (nodes.own, nodes.other), monkeypatch) as it:
        await on(it, WAITS, (nodes.other,))
        with shown_at(nodes.folder, place / "chroot" / "dev"):
            serial = it.engine._guard._serial
            await until(lambda: it.engine._guard._serial > serial)  # it is tried anew
            await until(lambda: it.engine.isolation.detail != "not probed yet")
            assert it.engine.isolation.enforced is (layer == "cgroup v2"), it.engine.isolation
        await ended(it)
        await until(lambda: it.engine.isolation.enforced)


MOUNTS = """\
20 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw
21 20 0:6 / /dev rw shared:2 - devtmpfs devtmpfs rw
22 21 0:22 / /dev/shm rw shared:3 - tmpfs tmpfs rw
30 20 0:6 / /srv/a\\040b/dev rw - devtmpfs devtmpfs rw
31 20 0:6 /nvidia1 /opt/one rw - devtmpfs devtmpfs rw
32 20 0:6 /nvidia-caps /opt/caps rw - devtmpfs devtmpfs rw
33 20 0:6 / /srv/hidden/dev rw - devtmpfs devtmpfs rw
34 33 0:40 / /srv/hidden/dev rw - tmpfs tmpfs rw
35 20 0:6 / /srv/below/dev rw - devtmpfs devtmpfs rw
36 20 0:41 / /srv/below rw - tmpfs tmpfs rw
40 20 0:50 / /home rw - nfs4 server:/home rw
"""


def test_second_paths_are_known_by_the_list_of_mounts_alone():
    """None is looked at: it may lie below a server that does not answer. What is hidden by another mount is none."""
    cards = ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap30", "/dev/shm/no"]
    assert reach.twins_of(cards, MOUNTS) == {
        "/dev/nvidia0": ("/srv/a b/dev/nvidia0",),
        "/dev/nvidia1": ("/opt/one", "/srv/a b/dev/nvidia1"),
        "/dev/nvidia-caps/nvidia-cap30": ("/opt/caps/nvidia-cap30", "/srv/a b/dev/nvidia-caps/nvidia-cap30"),
    }
    assert reach.twins_of(cards, "") == {}


def test_the_numbers_of_drivers_are_the_kernels():
    """By the names that it has for them, which the releases of the driver have changed."""
    assert reach.majors()["mem"] == 1
    own = ["/dev/null"]
    assert reach.whole_of(own, {"mem": 1}) == []
    assert reach.whole_of(own, {"nvidia": 1, "nvidia-caps": 240}) == [(1, [3, 254, 255]), (240, [1, 2])]
    assert reach.whole_of(own, {"nvidia-frontend": 195, "nvidia": 195}) == [(195, [254, 255])]


@pytest.mark.parametrize("whole", [[], [(195, [])], [(195, [0, 254, 255]), (511, [1, 2, 30])]])
@pytest.mark.parametrize("refused", [[], [(bpf.CHARACTER, 195, 1), (bpf.BLOCK, 7, 0)]])
def test_the_kernel_takes_each_such_program(refused, whole):
    """It takes none in which a step is never reached, or a jump leads out."""
    need("cgroup v2")
    os.close(bpf.load(refused, whole))
