"""`doctor` on the machine: where the store lies, and what a container sees."""

import types
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from jupyter_gpu.cli import doctor_machine as machine
from tests.cli.fake import GIB


class Mount(NamedTuple):
    """What psutil says of a mount, as far as we look at it."""

    mountpoint: str
    fstype: str


@pytest.mark.parametrize(
    ("kind", "state"), [("ext4", "ok"), ("nfs4", "warn"), ("cifs", "warn"), ("lustre", "warn"), ("fuse.sshfs", "warn")]
)
def test_a_shared_home_is_found_out(tmp_path, monkeypatch, kind, state):
    """A state folder on a network file system is named with its type, before there is a broker to warn of it."""
    monkeypatch.setattr(psutil, "disk_partitions", lambda **_: [Mount("/", kind)])

    check = machine.store_check(tmp_path / "not" / "there")

    assert (check.state, kind in check.text) == (state, True)
    assert ("JUPYTER_GPU_STATE_DIR" in check.remedy) is (state == "warn")


@pytest.fixture
def container(tmp_path):
    """Give the root of a container with pids of its own."""
    (tmp_path / ".dockerenv").touch()
    (tmp_path / "proc/self/ns").mkdir(parents=True)
    (tmp_path / "proc/self/ns/pid").symlink_to("pid:[4026532999]")
    (tmp_path / "proc/self/cgroup").write_text("0::/\n")
    (tmp_path / "dev/shm").mkdir(parents=True)
    return tmp_path


def checks(environ, root) -> dict[str, machine.Check]:
    """Give the findings by name."""
    return {check.name: check for check in machine.container_checks(environ, root)}


def shared(monkeypatch, total):
    """Let /dev/shm have this size."""
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda _: types.SimpleNamespace(total=total))


def test_pids_of_its_own(container, monkeypatch):
    """What the driver says of processes is the machine's, so nobody is known in there (wookayin/gpustat#117)."""
    shared(monkeypatch, 8 * GIB)

    assert checks({}, container)["container"].state == "warn"
    assert "--pid=host" in checks({}, container)["container"].remedy
    (container / "proc/self/ns/pid").unlink()
    (container / "proc/self/ns/pid").symlink_to("pid:[4026531836]")
    assert checks({}, container)["container"].state == "ok"


@pytest.mark.parametrize(("total", "state"), [(64 << 20, "warn"), (GIB, "ok")])
def test_shared_memory(container, monkeypatch, total, state):
    """Docker's 64 MiB are too few for the workers of one data loader (pytorch/pytorch#5040)."""
    shared(monkeypatch, total)

    check = checks({}, container)["shared memory"]

    assert (check.state, "--shm-size" in check.remedy) == (state, state == "warn")


@pytest.mark.parametrize(
    ("environ", "name", "state"),
    [
        ({"NVIDIA_VISIBLE_DEVICES": "void"}, "given GPUs", "warn"),
        ({"NVIDIA_VISIBLE_DEVICES": ""}, "given GPUs", "warn"),
        ({"NVIDIA_VISIBLE_DEVICES": "all"}, "given GPUs", "ok"),
        ({}, "given GPUs", None),
        ({"NVIDIA_DRIVER_CAPABILITIES": "compute"}, "capabilities", "fail"),
        ({"NVIDIA_DRIVER_CAPABILITIES": "compute, utility"}, "capabilities", None),
        ({"NVIDIA_DRIVER_CAPABILITIES": "all"}, "capabilities", None),
    ],
)
def test_what_the_container_was_given(container, monkeypatch, environ, name, state):
    """None given, and no NVML given, each have what to start the container with."""
    shared(monkeypatch, 8 * GIB)

    check = checks(environ, container).get(name)

    assert (None if check is None else check.state) == state
    assert check is None or state == "ok" or check.remedy


@pytest.mark.parametrize(
    ("mark", "environ", "groups", "is_one"),
    [
        (None, {}, "0::/user.slice", False),
        (".dockerenv", {}, "0::/", True),
        ("run/.containerenv", {}, "0::/", True),
        (None, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "0::/", True),
        (None, {"container": "podman"}, "0::/", True),
        (None, {}, "0::/kubepods.slice/x", True),
    ],
)
def test_the_inside_of_a_container_is_known(tmp_path, mark, environ, groups, is_one):
    """By the marks of Docker and Podman, by Kubernetes' variables, by its cgroup; nothing is said outside of one."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(groups)
    if mark is not None:
        (tmp_path / mark).parent.mkdir(exist_ok=True)
        (tmp_path / mark).touch()

    assert machine.is_in_container(environ, tmp_path) is is_one
    assert bool(checks(environ, tmp_path)) is is_one


def test_a_machine_that_shows_nothing(tmp_path):
    """Where /proc cannot be read nothing is claimed."""
    assert machine.is_in_container({}, tmp_path / "bare") is False
    assert machine.slurp(Path("/no/such/file")) is None
