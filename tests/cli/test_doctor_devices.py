"""`doctor` on the GPUs: by what they are read, who may open them, how each is and what helps."""

import os
import subprocess
import sys

import msgspec
import pytest

from jupyter_gpu import own_reach, pins
from jupyter_gpu.cli import doctor_devices as devices
from jupyter_gpu.errors import BrokerUnavailable
from jupyter_gpu.model import AlertView, CardView, Condition, DriverView, IsolationView, UseKind, UseView
from jupyter_gpu.own_reach import find_out
from tests.cli.fake import GIB, NOW, FakeClient, device, lab
from tests.cli.test_doctor import found

LOADED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 01:44:30 UTC 2024\nGCC version: 12\n"


@pytest.fixture
def root(tmp_path):
    """Give a machine whose driver is loaded, with nothing else in it."""
    folder = tmp_path / "proc/driver/nvidia"
    folder.mkdir(parents=True)
    (folder / "version").write_text(LOADED)
    (tmp_path / "dev").mkdir()
    return tmp_path


def with_library(root, version):
    """Put the driver's library where it belongs, with the links that it has."""
    folder = root / "usr/lib/x86_64-linux-gnu"
    folder.mkdir(parents=True)
    (folder / f"libnvidia-ml.so.{version}").touch()
    (folder / "libnvidia-ml.so.1").symlink_to(f"libnvidia-ml.so.{version}")
    return folder / "libnvidia-ml.so.1"


# -- driver, library, bindings


def test_no_driver_and_no_device(tmp_path, root):
    """Without devices the kernel's module decides; a broker that sees none of a loaded driver is a failure."""
    empty = msgspec.structs.replace(lab(), devices=())
    bare = tmp_path / "bare"

    assert devices.driver_check(None, empty, bare).state == "fail"
    assert "no NVIDIA driver" in devices.driver_check(None, None, bare).text
    assert "550.54.14" in devices.driver_check(None, empty, root).text
    assert devices.driver_check(None, empty, root).state == "fail"
    assert devices.driver_check(None, None, root).state == "ok"
    simulated = tuple(msgspec.structs.replace(it, simulated=True) for it in lab().devices)
    assert "simulated" in devices.driver_check(None, msgspec.structs.replace(lab(), devices=simulated), bare).text


def test_the_broker_says_what_reads_the_gpus(gpu, monkeypatch):
    """The module file and its version are named, and the library's (rossumai/nvgpu#29)."""
    driver = DriverView(
        driver="550.54.14", nvml="12.550.54.14", cuda="12.4", bindings="/env/pynvml.py (nvidia-ml-py 12.560.30)"
    )
    view = msgspec.structs.replace(gpu.client.broker(), driver=driver)
    monkeypatch.setattr(gpu.client, "broker", lambda: view)

    checks = found(gpu)

    assert checks["driver"].text == (
        "driver 550.54.14, NVML 12.550.54.14, CUDA up to 12.4, read by /env/pynvml.py (nvidia-ml-py 12.560.30)"
    )
    assert "bindings" not in checks  # those of this environment read nothing
    gpu.client.lab = msgspec.structs.replace(lab(), devices=())
    assert found(gpu)["bindings"].text == driver.bindings


def test_without_a_broker_the_bindings_are_looked_at_and_not_loaded():
    """The module file and version are named by who finds them; no NVML call is made, not even an import."""
    code = (
        "import sys; from jupyter_gpu.cli.doctor_devices import bindings_check; "
        "print(bindings_check().text, 'pynvml' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout

    assert "pynvml.py (nvidia-ml-py " in said
    assert said.split()[-1] == "False"


def test_an_older_package_of_the_same_name_is_found_out(tmp_path, monkeypatch):
    """What stands before the official bindings is named, and how to be rid of it (dask/distributed#7563)."""
    (tmp_path / "pynvml.py").touch()
    info = tmp_path / "pynvml-8.0.4.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pynvml\nVersion: 8.0.4\n")
    (info / "RECORD").write_text("pynvml.py,,\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)

    check = devices.bindings_check()

    assert check.state == "warn"
    assert check.text.startswith(f"{tmp_path / 'pynvml.py'} (pynvml 8.0.4)")
    assert "pip uninstall pynvml" in check.remedy


def test_a_library_of_another_driver_is_named(root):
    """After an update that waits for a restart both versions are told (lyulyul/shine-cluster#30)."""
    with_library(root, "550.90.07")

    (check,) = devices.library_checks({}, root)

    assert check.state == "fail"
    assert "550.90.07" in check.text
    assert "550.54.14" in check.text
    assert "restart the machine" in check.remedy


def test_a_library_that_fits_and_one_that_is_missing(root, tmp_path):
    """In a container without the capability `utility` the driver is there and its library is not."""
    (missing,) = devices.library_checks({}, root)
    library = with_library(root, "550.54.14")
    (fits,) = devices.library_checks({}, root)

    assert (missing.state, fits.state, fits.text) == ("fail", "ok", str(library))
    assert "utility" in missing.remedy
    assert list(devices.library_checks({}, tmp_path / "bare")) == []


def test_the_library_that_programs_are_told_of_counts(root, tmp_path):
    """LD_LIBRARY_PATH stands first, as for the loader."""
    with_library(root, "550.54.14")
    other = with_library(tmp_path / "told", "535.1.2")

    (check,) = devices.library_checks({"LD_LIBRARY_PATH": f"relative:{other.parent}"}, root)

    assert str(other) in check.text
    assert "535.1.2" in check.text


# -- who may open them


def nodes(root, *names, mode=0o666):
    """Make plain files that stand for device nodes."""
    for name in names:
        (root / "dev" / name).touch()
        (root / "dev" / name).chmod(mode)


def test_nodes_that_the_caller_may_open(root):
    """All of them are counted, and only those that every CUDA program opens."""
    nodes(root, "nvidia0", "nvidia12", "nvidiactl", "nvidia-uvm")
    nodes(root, "nvidia-caps-imex-channels", "nvidia-modeset", mode=0)

    (check,) = devices.permission_checks(root)

    assert (check.state, check.text) == ("ok", "you may open all 4 of /dev/nvidia*")


def test_nodes_that_are_not_there(root):
    """A driver without nodes, and one without the node for memory, each have what makes them."""
    (none,) = devices.permission_checks(root)
    nodes(root, "nvidia0", "nvidiactl")
    (no_memory,) = devices.permission_checks(root)

    assert (none.state, no_memory.state) == ("fail", "warn")
    assert "nvidia-modprobe" in none.remedy
    assert "nvidia-modprobe" in no_memory.remedy
    assert "no CUDA program can start" in no_memory.text


def test_without_driver_and_nodes_there_is_nothing_to_open(tmp_path):
    """Then the driver's own line says enough."""
    assert list(devices.permission_checks(tmp_path)) == []


@pytest.mark.parametrize(
    ("mode", "helps"),
    [(0o660, "sudo usermod -aG"), (0o600, "NVreg_DeviceFileMode=0666")],
)
def test_nodes_that_are_closed_to_the_caller(root, monkeypatch, mode, helps):
    """They are named with mode, owner and group; where a group may, it is said how to come into it."""
    nodes(root, "nvidia0", "nvidia1", "nvidia2", "nvidiactl", "nvidia-uvm", mode=mode)
    monkeypatch.setattr(devices.os, "access", lambda *_: False)
    monkeypatch.setattr(devices, "is_closed_by_mode", lambda _: True)  # the tests may run as their owner
    monkeypatch.setattr(devices, "_group", lambda _: "video")

    (check,) = devices.permission_checks(root)

    assert check.state == "fail"
    assert check.text.endswith(" and 2 more")
    assert f"({'-rw-rw----' if mode == 0o660 else '-rw-------'} {devices._user(os.geteuid())}:video)" in check.text
    assert helps in check.remedy
    assert ("video" in check.remedy) is (mode == 0o660)


def test_nodes_that_are_withheld_are_no_fault_of_their_permissions(root, monkeypatch):
    """In the server of a hub the rules of its unit keep it from others' cards: nobody should chmod them."""
    nodes(root, "nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", mode=0o666)
    monkeypatch.setattr(devices.os, "access", lambda path, _: path.name != "nvidia1")

    (check,) = devices.permission_checks(root)

    assert (check.state, check.remedy) == ("ok", "")
    assert check.text == "1 of 4 of /dev/nvidia* withheld from here by more than their own permissions"


# -- isolation, visibility, conditions


@pytest.mark.parametrize(
    ("answer", "state", "said"),
    [
        ("refused", "ok", "enforced by systemd (a process of it tried"),
        ("opened", "warn", "advisory (it could open /dev/nvidia1, which is not its own)"),
    ],
)
def test_in_a_hubs_server_it_tries_whether_others_gpus_open(monkeypatch, answer, state, said):
    """Its own is not tried, and outside of such a server nothing is."""
    cards = [msgspec.structs.replace(it, nodes=(f"/dev/nvidia{n}",)) for n, it in enumerate(lab().devices[:2])]
    held = msgspec.structs.replace(lab().workloads[0], id=7, devices=(cards[0].uuid,))
    it = msgspec.structs.replace(lab(), simulated=False, devices=tuple(cards), workloads=(held,))
    environ = {"JUPYTERHUB_USER": "ada"} | pins.under(7, held.devices)
    tried = []
    monkeypatch.setattr(devices, "find_out", lambda asked: find_out(asked, lambda node: tried.append(node) or answer))
    monkeypatch.setattr(own_reach, "surroundings", lambda: own_reach.Surroundings(0, "0::/x.service", False))

    check = devices.own_check(it, environ)

    assert (check.name, check.state) == ("this server", state)
    assert check.text.startswith(said)
    assert "/dev/nvidia0" not in tried
    assert devices.own_check(it, pins.under(7, held.devices)) is None
    assert devices.own_check(None, environ) is None


@pytest.mark.parametrize(
    ("isolation", "state", "said"),
    [
        (
            IsolationView(enforced=True, by="landlock", detail="it opened 1 of 4."),
            "ok",
            "enforced by landlock (it opened",
        ),
        (
            IsolationView(enforced=False, detail="no Landlock here"),
            "warn",
            "nothing keeps it from the others (no Landlock",
        ),
        (
            IsolationView(enforced=False, by="cgroup v2", detail="job 3 runs as root"),
            "warn",
            "cgroup v2 withholds the GPUs of others from a job, but not surely (job 3 runs as root)",
        ),
        (None, "ok", "advisory"),
    ],
)
def test_isolation_is_told_as_the_probe_found_it(isolation, state, said):
    """By what it is enforced, or why not and what would."""
    check = devices.isolation_check(isolation, lab())

    assert (check.state, said in check.text) == (state, True)
    assert bool(check.remedy) is (state == "warn")
    for nothing in ({"simulated": True}, {"devices": ()}):
        assert devices.isolation_check(isolation, msgspec.structs.replace(lab(), **nothing)).state == "ok"


@pytest.mark.parametrize(
    ("environ", "state", "said"),
    [
        ({}, None, ""),
        ({pins.VISIBLE: "0"}, "warn", "uses them without a lease"),
        ({pins.VISIBLE: "9"}, "warn", "names none of this machine"),
        ({pins.VISIBLE: ""}, "ok", "sees none"),
        ({pins.VISIBLE: "none"}, "ok", "sees none"),
        ({pins.VISIBLE: "GPU-x", pins.RESERVATION: "7"}, "ok", "by reservation 7"),
        ({pins.VISIBLE: "GPU-x", pins.ATTEMPT: "1"}, "ok", "an attempt of a job"),
        ({pins.VISIBLE: "none", pins.KERNEL: "k"}, "ok", "a kernel of ours"),
    ],
)
def test_inherited_visibility(environ, state, said):
    """What somebody set by hand is found out; what we set is said to be ours."""
    check = devices.visible_check(environ, lab())

    assert (None if check is None else check.state) == state
    assert check is None or said in check.text


@pytest.mark.parametrize("condition", Condition)
def test_each_condition_has_its_remedy(gpu, condition):
    """It names the GPU as the tools do, and whether it comes back by itself or by an operator's word."""
    sick = device(1005, number="3:1", condition=condition, condition_detail="why")
    gpu.client.lab = msgspec.structs.replace(lab(), devices=(sick,))

    check = found(gpu)["GPU 3:1"]

    assert check.text.endswith(": why")
    assert ("comes back by itself" in check.remedy) is (condition is not Condition.FAULTY)
    assert ("uncordon 3:1" in check.remedy) is (condition is Condition.FAULTY)
    assert ("forget 3:1" in check.remedy) is (condition is Condition.LOST)
    assert "{" not in check.remedy
    assert "-i 3:1" not in check.remedy  # a card is reset, not a part of it


def test_a_card_in_mig_mode_without_mig_devices(gpu):
    """It is named, with both ways on; one that has some is not."""
    cards = (CardView(uuid="GPU-5", index=5, name="H100"), CardView(uuid="GPU-6", index=6, name="H100"))
    part = device(1000, uuid="MIG-1", number="6:0", card="GPU-6")
    gpu.client.lab = msgspec.structs.replace(lab(), devices=(part,), cards=cards)

    checks = found(gpu)

    assert "MIG mode without MIG devices" in checks["GPU 5"].text
    assert "-mig 0" in checks["GPU 5"].remedy
    assert "GPU 6" not in checks


def test_what_helps_is_told_once(gpu):
    """The broker says what helps in the sentences after the first; here it is told of the card, by its number."""
    detail = "the driver asks for a reset of it. Reset it with `nvidia-smi --gpu-reset` while nothing runs on it"
    lost = device(4, condition=Condition.LOST, condition_detail="The GPU is lost: no answer. Look into `dmesg`.")
    sick = device(3, condition=Condition.RESET_NEEDED, condition_detail=detail)
    gpu.client.lab = msgspec.structs.replace(lab(), devices=(sick, lost))

    checks = found(gpu)

    assert checks["GPU 3"].text == "needs a reset: the driver asks for a reset of it"
    assert checks["GPU 3"].remedy.count("--gpu-reset -i 3") == 1
    assert checks["GPU 4"].text == "lost: no answer"


@pytest.mark.parametrize("condition", [Condition.NOT_CLEAR, Condition.FOREIGN])
def test_what_has_ended_cannot_be_ended(gpu, condition):
    """Memory that the driver still counts for it is freed by a reset alone."""
    dead = UseView(pid=7, kind=UseKind.DEAD, foreign=True, memory_bytes=GIB)
    alive = UseView(pid=8, kind=UseKind.USER, foreign=True)
    gpu.client.lab = msgspec.structs.replace(
        lab(),
        devices=(
            device(0, condition=condition, condition_detail="why", uses=(dead,)),
            device(1, condition=condition, condition_detail="why", uses=(dead, alive)),
        ),
    )

    checks = found(gpu)

    assert "cannot be ended" in checks["GPU 0"].remedy
    assert "--gpu-reset -i 0" in checks["GPU 0"].remedy
    assert "--gpu-reset" not in checks["GPU 1"].remedy


def test_a_sick_gpu_that_is_cordoned_too_is_named_as_both(gpu):
    """Whoever mends it must know that it does not come back by itself."""
    hot = device(3, condition=Condition.HOT, condition_detail="97 °C", cordoned=True)
    faulty = device(4, condition=Condition.FAULTY, condition_detail="Xid 79", cordoned=True)
    gpu.client.lab = msgspec.structs.replace(lab(), devices=(hot, faulty))

    checks = found(gpu)

    assert checks["GPU 3"].text == "too hot: 97 °C; cordoned"
    assert [checks[it].remedy.count("jupyter gpu uncordon") for it in ("GPU 3", "GPU 4")] == [1, 1]


def test_gpus_are_named_in_their_order(gpu):
    """That of the lists: by card and slot."""
    cards = (CardView(uuid="GPU-1", index=1, name="H100"), CardView(uuid="GPU-2", index=2, name="H100"))
    part = device(1000, uuid="MIG-1", number="1:0", card="GPU-1", cordoned=True)
    gpu.client.lab = msgspec.structs.replace(lab(), devices=(device(3, cordoned=True), part), cards=cards)

    assert [name for name in found(gpu) if name.startswith("GPU ")] == ["GPU 1:0", "GPU 2", "GPU 3"]


def test_alerts_are_told_once(gpu):
    """One of a device that is named already is left out, and so is one that the broker warns of."""
    alerts = (
        AlertView(key="a", since=NOW, text="GPU 3 is lost", device=device(3).uuid),
        AlertView(key="b", since=NOW, text="job 12 runs outside its reservation", workload=12),
        AlertView(key="c", since=NOW, text="the disk is full"),
    )
    gpu.client.lab = msgspec.structs.replace(lab(), alerts=alerts, warnings=("the disk is full",))

    out = " ".join(gpu("doctor").out.split())

    assert "GPU 3 is lost" not in out
    assert out.count("job 12 runs outside its reservation") == 1
    assert out.count("the disk is full") == 1


def test_gpus_elsewhere_are_not_looked_for_here(gpu, monkeypatch):
    """Where the broker is on another machine, the nodes and libraries of this one say nothing."""
    view = msgspec.structs.replace(gpu.client.broker(), node="elsewhere")
    monkeypatch.setattr(gpu.client, "broker", lambda: view)
    for name in ("library_checks", "permission_checks"):
        monkeypatch.setattr(devices, name, lambda *_: pytest.fail("looked at this machine"))

    assert found(gpu)["driver"].state == "ok"


def test_everything_is_looked_at_without_a_broker(gpu):
    """Where none answers the files of this machine are, and each finding is a line."""
    gpu.client.errors["broker"] = BrokerUnavailable("No broker runs.")

    assert {"bindings", "driver", "isolation"} <= set(found(gpu))
    assert FakeClient().lab.devices  # the lab was there, and nobody asked it
