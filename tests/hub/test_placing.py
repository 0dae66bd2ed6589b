"""Where each spawner wants its devices: what is set, what of the admin's stays, and what gives way."""

import asyncio
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any

import batchspawner
import dockerspawner
import jupyterhub.spawner as hub_spawners
import kubespawner
import pytest
import systemdspawner
import wrapspawner

from jupyter_gpu.errors import InvalidAsk
from jupyter_gpu.jupyter.placing import Lines, Share, Where, fits_container, place, resource_of, wanted, where
from jupyter_gpu.jupyter.spawner import with_gpus
from jupyter_gpu.model import DeviceView

NONE = Share()
SHUT = Share(kernels_reserve=False)


def a_device(index: int, **more: Any) -> DeviceView:
    """A whole GPU, whose driver's number is not the one of its node."""
    words = {
        "uuid": f"GPU-{index}",
        "index": index,
        "number": str(index),
        "name": "Test GPU",
        "device_class": "a100-80gb",
        "pool": "local",
        "simulated": False,
        "cordoned": False,
        "nodes": (f"/dev/nvidia{index + 4}",),
    }
    return DeviceView(**words | more)


MIG = a_device(
    9, uuid="MIG-9", number="0:1", device_class="mig-3g.40gb", nodes=("/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap21")
)
TWO = Share((a_device(0), a_device(1)), reservation=7)
#: What every process with GPUs opens beside its own.
COMMON = ["/dev/nvidiactl rw", "/dev/nvidia-uvm rw", "/dev/nvidia-uvm-tools rw", "/dev/nvidia-modeset rw"]


def traits(kind: Where, share: Share, now: Mapping[str, Any], **words: Any) -> dict[str, Any]:
    """What is set, without the variables."""
    return {name: it for name, it in place(kind, now, share, **words).traits.items() if name != "environment"}


def environment(kind: Where, share: Share, **before: str) -> dict[str, str]:
    """The variables that are set."""
    return place(kind, {"environment": before}, share).traits["environment"]


@pytest.mark.parametrize(
    ("cls", "kind"),
    [
        (hub_spawners.LocalProcessSpawner, Where.LOCAL),
        (hub_spawners.SimpleLocalProcessSpawner, Where.LOCAL),
        (systemdspawner.SystemdSpawner, Where.SYSTEMD),
        (dockerspawner.DockerSpawner, Where.DOCKER),
        (dockerspawner.SystemUserSpawner, Where.DOCKER),
        (dockerspawner.SwarmSpawner, Where.SWARM),
        (kubespawner.KubeSpawner, Where.KUBERNETES),
        (batchspawner.SlurmSpawner, Where.SLURM),
        (batchspawner.MultiSlurmSpawner, Where.SLURM),
        (batchspawner.PBSSpawner, Where.PBS),
        (batchspawner.MoabSpawner, Where.TORQUE),
        (batchspawner.GridengineSpawner, Where.GRID_ENGINE),
        (batchspawner.CondorSpawner, Where.CONDOR),
        (batchspawner.LsfSpawner, Where.LSF),
        (wrapspawner.WrapSpawner, Where.OTHER),
    ],
)
def test_a_spawner_is_known_by_its_family(cls, kind):
    """An admin's own subclass, and the class with our leases around it, are what their ancestors are."""
    assert where(cls) is kind
    assert where(type("Ours", (cls,), {})) is kind
    assert where(with_gpus(cls)) is kind


@pytest.mark.parametrize("kind", [Where.LOCAL, Where.SYSTEMD, Where.DOCKER, Where.SWARM, Where.OTHER])
def test_on_the_brokers_machine_a_server_sees_its_devices_by_uuid(kind):
    """The pin, and the reservation that its kernels then know of; the admin's own variables stay."""
    assert environment(kind, TWO, LANG="C") == {
        "LANG": "C",
        "CUDA_VISIBLE_DEVICES": "GPU-0,GPU-1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "NVIDIA_VISIBLE_DEVICES": "GPU-0,GPU-1",
        "JUPYTER_GPU_RESERVATION": "7",
    }


@pytest.mark.parametrize("kind", list(Where))
def test_a_server_without_devices_sees_none(kind):
    """Explicitly: a variable that is not set shows all of them, and an image may bring one that says so."""
    found = environment(kind, NONE, NVIDIA_VISIBLE_DEVICES="all")

    assert found["CUDA_VISIBLE_DEVICES"] == found["NVIDIA_VISIBLE_DEVICES"] == "none"
    assert "JUPYTER_GPU_RESERVATION" not in found


def test_what_an_admin_said_of_gpus_gives_way_aloud():
    """The lease decides who sees what; that it did is a line in the hub's log."""
    notes = place(Where.LOCAL, {"environment": {"CUDA_VISIBLE_DEVICES": "0", "A": "b"}}, TWO).notes

    assert notes == ("environment: CUDA_VISIBLE_DEVICES is what the lease says",)


def test_what_is_placed_leaves_the_admins_values_alone():
    """A trait is set anew and never changed in place: configurations are shared by all servers."""
    before = {"environment": {"A": "b"}, "unit_extra_properties": {"DeviceAllow": ["/dev/fuse rw"]}}

    place(Where.SYSTEMD, before, TWO)

    assert before == {"environment": {"A": "b"}, "unit_extra_properties": {"DeviceAllow": ["/dev/fuse rw"]}}


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (Where.LOCAL, {"environment"}),
        (Where.DOCKER, {"environment", "extra_host_config"}),
        (Where.SYSTEMD, {"environment", "unit_extra_properties", "isolate_devices"}),
        (Where.KUBERNETES, {"environment", "extra_resource_limits", "extra_resource_guarantees"}),
    ],
)
def test_no_more_is_set_than_is_looked_at(kind, names):
    """So that all of it can be put back as it was."""
    assert set(wanted(kind)) == names
    assert set(place(kind, {}, TWO).traits) <= names


# -- systemd


def test_a_unit_may_open_the_cards_of_its_lease_alone():
    """By their nodes, which need not have the driver's numbers; MIG devices need their capabilities too."""
    found = traits(Where.SYSTEMD, Share((a_device(0), MIG), 7), {"unit_extra_properties": {"MemorySwapMax": "0"}})

    assert found["unit_extra_properties"] == {
        "MemorySwapMax": "0",
        "DeviceAllow": [*COMMON, "/dev/nvidia4 rw", "/dev/nvidia0 rw", "/dev/nvidia-caps/nvidia-cap21 rw"],
    }


@pytest.mark.parametrize("all_of_them", ["/dev/nvidia0 rw", "char-nvidia rw", "char-nvidia* rw", "char-nvidia-caps r"])
def test_an_admins_other_devices_stay_and_their_gpus_give_way(all_of_them):
    """Who let every server open every card now lets it open its own."""
    now = {"unit_extra_properties": {"DeviceAllow": ["/dev/fuse rw", all_of_them]}}
    placed = place(Where.SYSTEMD, now, TWO)

    assert placed.traits["unit_extra_properties"]["DeviceAllow"] == [
        "/dev/fuse rw",
        *COMMON,
        "/dev/nvidia4 rw",
        "/dev/nvidia5 rw",
    ]
    assert placed.notes == (f"unit_extra_properties: DeviceAllow={all_of_them} gives way to the lease",)


def test_a_unit_whose_kernels_reserve_later_is_not_fenced_in_and_one_whose_do_not_is():
    """Kernels run in the unit of their server: what it may not open, no reservation of theirs can."""
    assert traits(Where.SYSTEMD, NONE, {"unit_extra_properties": {"A": "b"}}) == {}
    assert traits(Where.SYSTEMD, SHUT, {"unit_extra_properties": {"A": "b", "DeviceAllow": "/dev/nvidia0 rw"}}) == {
        "unit_extra_properties": {"A": "b", "DevicePolicy": "closed"}
    }


@pytest.mark.parametrize(
    ("now", "allowed"),
    [
        ({"DeviceAllow": ["/dev/fuse rw"]}, ["/dev/fuse rw", "char-nvidia* rw"]),
        ({"DeviceAllow": "/dev/nvidia0 rw"}, ["/dev/nvidia0 rw", "char-nvidia* rw"]),
        ({"DeviceAllow": ["char-nvidia* rw"]}, ["char-nvidia* rw"]),
        ({"DevicePolicy": "closed"}, ["char-nvidia* rw"]),
    ],
)
def test_a_unit_that_allows_an_admins_devices_alone_lets_kernels_open_what_they_reserve(now, allowed):
    """A list for something else would close every GPU, and a kernel would hold a lease that it cannot use."""
    found = traits(Where.SYSTEMD, NONE, {"unit_extra_properties": now})

    assert found == {"unit_extra_properties": {**now, "DeviceAllow": allowed}}


@pytest.mark.parametrize(
    ("share", "now"),
    [
        (Share((a_device(0), MIG), 7), {}),
        (NONE, {"DeviceAllow": ["/dev/fuse rw"]}),
        (SHUT, {"DeviceAllow": "/dev/kvm r"}),
    ],
)
def test_systemd_reads_what_it_is_told(tmp_path, share, now):
    """By its own word: it says of each line that it cannot read that it ignores it."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not there; it comes with systemd")

    def said(properties: Mapping[str, Any]) -> str:
        lines = [(name, it) for name, its in properties.items() for it in ([its] if isinstance(its, str) else its)]
        unit = tmp_path / "server.service"
        unit.write_text("\n".join(["[Service]", "ExecStart=/bin/true", *(f"{name}={it}" for name, it in lines), ""]))
        words = ["systemd-analyze", "verify", "--man=no", str(unit)]
        return subprocess.run(words, capture_output=True, text=True, check=False).stderr

    assert "ignoring" not in said(traits(Where.SYSTEMD, share, {"unit_extra_properties": now})["unit_extra_properties"])
    assert "ignoring" in said({"DeviceAllow": ["/dev/nvidia0 read"], "DevicePolicy": "shut"})


def test_simulated_devices_have_nothing_to_open():
    """A demo fences nobody in."""
    assert traits(Where.SYSTEMD, Share((a_device(0, nodes=(), simulated=True),), 7), {}) == {}


def test_a_unit_without_any_device_is_refused_gpus_with_what_to_do():
    """Else the server would hold a lease and see no GPU; one that wants none starts as the admin has it."""
    now = {"isolate_devices": True}
    with pytest.raises(InvalidAsk, match="isolate_devices") as caught:
        place(Where.SYSTEMD, now, TWO)
    assert "DeviceAllow" in str(caught.value.hint)
    assert traits(Where.SYSTEMD, NONE, now) == {}


def test_several_entries_survive_what_systemdspawner_does_to_texts():
    """It fills in {USERNAME} in each value as if it were a text, also where it takes a list."""
    assert Lines(["/dev/{USERNAME} rw", "b"]).format(USERNAME="ana") == ["/dev/ana rw", "b"]


# -- docker


@pytest.mark.parametrize(
    "theirs",
    [
        {"driver": "nvidia", "count": -1},
        {"Driver": "", "Count": -1, "Capabilities": [["gpu"]]},
        {"driver": "cdi", "device_ids": ["nvidia.com/gpu=all"]},
    ],
)
def test_a_container_asks_for_its_devices_by_uuid_and_the_admins_request_of_all_gives_way(theirs):
    """Other devices, and all else of the host's configuration, stay."""
    fpga = {"driver": "fpga", "count": 1, "capabilities": [["compute"]]}
    now = {"extra_host_config": {"runtime": "nvidia", "device_requests": [fpga, theirs]}}
    ours = {"driver": "nvidia", "device_ids": ["GPU-0", "GPU-1"], "capabilities": [["gpu"]]}

    placed = place(Where.DOCKER, now, TWO)

    assert placed.traits["extra_host_config"] == {"runtime": "nvidia", "device_requests": [fpga, ours]}
    assert placed.notes == ("extra_host_config: its own request of GPUs gives way to the lease",)


def test_a_container_without_devices_asks_for_none():
    """Also where the admin's configuration gives all of them to everybody."""
    now = {"extra_host_config": {"device_requests": [{"driver": "nvidia", "count": -1}], "shm_size": "1g"}}

    assert traits(Where.DOCKER, NONE, now) == {"extra_host_config": {"shm_size": "1g"}}


@pytest.mark.parametrize("is_async", [False, True])
def test_a_function_of_the_admins_is_still_asked(is_async):
    """There may be a function in the place of the dict, and it may be asynchronous."""

    def later(spawner: str) -> Any:
        found = {"shm_size": spawner, "device_requests": [{"driver": "nvidia", "count": -1}]}

        async def waits() -> dict[str, Any]:
            return found

        return waits() if is_async else found

    merged = traits(Where.DOCKER, TWO, {"extra_host_config": later})["extra_host_config"]

    found = asyncio.run(merged("1g"))
    assert found["shm_size"] == "1g"
    assert [it["device_ids"] for it in found["device_requests"]] == [["GPU-0", "GPU-1"]]


def test_a_container_that_was_made_with_other_gpus_does_not_fit():
    """Docker gives a container that is started again what it was made with, whatever is asked then."""
    made = {"HostConfig": {"DeviceRequests": [{"Driver": "nvidia", "DeviceIDs": ["GPU-1", "GPU-0"]}]}}
    of_all = {"HostConfig": {"DeviceRequests": [{"Driver": "nvidia", "Count": -1, "DeviceIDs": None}]}}
    of_none = {"HostConfig": {"DeviceRequests": None}}

    assert fits_container(made, TWO)
    assert not fits_container(made, NONE)
    assert not fits_container(of_all, TWO)
    assert fits_container(of_none, NONE)


# -- kubernetes


def test_a_pod_gets_a_limit_and_counts_its_gpus_from_0():
    """Which cards it gets, the cluster says; a guarantee of another number would be refused there."""
    now = {
        "environment": {},
        "extra_resource_limits": {"nvidia.com/gpu": "4", "smarter-devices/fuse": "1"},
        "extra_resource_guarantees": {"nvidia.com/gpu": "1", "ephemeral-storage": "1Gi"},
    }
    placed = place(Where.KUBERNETES, now, TWO)

    assert placed.traits["extra_resource_limits"] == {"smarter-devices/fuse": "1", "nvidia.com/gpu": "2"}
    assert placed.traits["extra_resource_guarantees"] == {"ephemeral-storage": "1Gi"}
    assert placed.traits["environment"] == {
        "CUDA_VISIBLE_DEVICES": "0,1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "JUPYTER_GPU_RESERVATION": "7",
    }
    assert len(placed.notes) == 2


@pytest.mark.parametrize(
    ("device_class", "names", "resource"),
    [
        ("a100-80gb", {}, "nvidia.com/gpu"),
        ("mig-3g.40gb", {}, "nvidia.com/mig-3g.40gb"),
        ("mig-3g.40gb", {"mig-3g.40gb": "nvidia.com/gpu"}, "nvidia.com/gpu"),
        ("mi300", {"mi300": "amd.com/gpu"}, "amd.com/gpu"),
    ],
)
def test_a_device_class_has_the_clusters_name(device_class, names, resource):
    """NVIDIA's plugin has a name for each MIG profile, unless it was told to have one for all."""
    share = Share((a_device(0, device_class=device_class),), 7)

    assert resource_of(device_class, names) == resource
    assert traits(Where.KUBERNETES, share, {}, names=names)["extra_resource_limits"] == {resource: "1"}


def test_a_pod_without_devices_has_no_limit_and_sees_none():
    """On a node whose usual runtime is NVIDIA's, a pod without a request sees all GPUs otherwise."""
    placed = place(Where.KUBERNETES, {"extra_resource_limits": {"nvidia.com/gpu": "1"}}, NONE)

    assert placed.traits["extra_resource_limits"] == {}
    assert placed.traits["environment"]["NVIDIA_VISIBLE_DEVICES"] == "none"


# -- batch systems


@pytest.mark.parametrize(
    ("before", "names", "gres"),
    [
        ("", {}, "gpu:2"),
        ("gpu:a100:1,craynetwork:1", {}, "craynetwork:1,gpu:a100:2"),
        ("gpu:8", {"a100-80gb": "a100"}, "gpu:a100:2"),
        ("gpu", {}, "gpu:2"),
    ],
)
def test_slurm_gets_generic_resources(before, names, gres):
    """The number is the lease's; other resources, and the type that the admin gave, stay."""
    now = {"batch_script": batchspawner.SlurmSpawner.batch_script.default_value, "req_gres": before}

    assert traits(Where.SLURM, TWO, now, names=names) == {"req_gres": gres}
    # Slurm says itself which it gave, on a machine whose cards have other UUIDs.
    assert place(Where.SLURM, now, TWO).traits["environment"] == {"JUPYTER_GPU_RESERVATION": "7"}


def test_slurm_gets_none_where_none_is_leased():
    """An admin's own gres would be a GPU beside every lease."""
    now = {"batch_script": "#SBATCH --gres={gres}", "req_gres": "gpu:1,craynetwork:1"}

    assert traits(Where.SLURM, NONE, now) == {"req_gres": "craynetwork:1"}


@pytest.mark.parametrize(
    ("kind", "script", "before", "found"),
    [
        (Where.BATCH, "#X gpus={ngpus}", {}, {"req_ngpus": "2"}),
        (Where.TORQUE, "#PBS -l nodes=1:ppn={nprocs}", {"req_nprocs": "4"}, {"req_nprocs": "4:gpus=2"}),
        (Where.PBS, "#PBS -l select=1:ncpus={{nprocs}}", {}, {"req_nprocs": "1:ngpus=2"}),
        (Where.GRID_ENGINE, "#$ {options}", {"req_options": "-q x"}, {"req_options": "-q x -l gpu=2"}),
        (Where.CONDOR, "{options}\nQueue", {"req_options": "A = 1"}, {"req_options": "A = 1\nrequest_gpus = 2"}),
        (Where.LSF, "#BSUB {options}", {}, {"req_options": '-gpu "num=2"'}),
        (Where.SLURM, "#SBATCH {options}", {}, {"req_options": "--gres=gpu:2"}),
    ],
)
def test_a_batch_system_is_told_where_its_template_has_a_place(kind, script, before, found):
    """A place for GPUs goes before the other options; what is there already stays."""
    assert traits(kind, TWO, {"batch_script": script, **before}) == found


def test_what_is_settled_no_option_of_a_user_may_say_anew():
    """The options of a user go into the template of a batchspawner before ours."""
    placed = place(Where.GRID_ENGINE, {"batch_script": "#$ {options}"}, TWO)

    assert placed.settled == {"gres", "ngpus", "options"}
    assert place(Where.SLURM, {"batch_script": "{options}"}, NONE).settled == {"gres", "ngpus"}


def test_a_template_without_a_place_for_gpus_is_refused_with_what_to_do():
    """Else the server would hold a lease and get no GPU."""
    with pytest.raises(InvalidAsk, match="has no place for GPUs") as caught:
        place(Where.LSF, {"batch_script": batchspawner.LsfSpawner.batch_script.default_value}, TWO)
    assert "{ngpus}" in str(caught.value.hint)
