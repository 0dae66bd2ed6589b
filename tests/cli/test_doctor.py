"""`doctor`: each finding is a line, and each that is not ok says what helps."""

import msgspec
import pytest

from jupyter_gpu.cli import doctor, doctor_machine
from jupyter_gpu.errors import BrokerUnavailable, NotAllowed
from jupyter_gpu.model import Condition
from tests.cli.fake import GIB, NOW, FakeClient, lab


def found(gpu) -> dict[str, doctor.Check]:
    """Give the findings by name."""
    checks = msgspec.json.decode(gpu("doctor", "--json").out, type=doctor.Checkup).checks
    return {check.name: check for check in checks}


def test_a_sound_lab_is_all_ok(gpu):
    """Where nothing is wrong every line is ok."""
    devices = tuple(msgspec.structs.replace(it, condition=None) for it in lab().devices)
    gpu.client.lab = msgspec.structs.replace(lab(), devices=devices)

    checks = found(gpu)

    assert {name for name, check in checks.items() if check.state == "fail"} == set()
    assert {"broker", "driver", "devices", "isolation", "disk", "clock", "survival", "socket"} <= set(checks)
    assert checks["isolation"].text.startswith("advisory")


def test_it_looks_without_a_broker(gpu):
    """No broker is a finding with a remedy; it is not started, and the rest is looked at."""
    gpu.client.errors["broker"] = BrokerUnavailable("No broker runs.")

    checks = found(gpu)

    assert checks["broker"].state == "warn"
    assert "broker start" in checks["broker"].remedy
    assert {"disk", "clock", "socket"} <= set(checks)


def test_a_broker_that_refuses_is_a_failure(gpu):
    """Exit 1 where something fails."""
    gpu.client.errors["broker"] = NotAllowed("user 7 holds the lock")

    assert gpu("doctor").code == 1
    assert found(gpu)["broker"].state == "fail"


def test_what_the_broker_warns_of_is_passed_on(gpu):
    """A store on a network file system is the broker's to know, and is said once."""
    gpu.client.lab = msgspec.structs.replace(lab(), warnings=("the store lies on a network file system (nfs4)",))

    result = gpu("doctor")

    assert result.out.count("network file system") == 1
    assert "warn" in result.out


def test_a_shared_disk_is_said_once(gpu, monkeypatch):
    """What we see ourselves is said with its remedy, and the broker's warning of the same is left out."""
    monkeypatch.setattr(doctor_machine.disks, "network_file_system", lambda _: "nfs4")
    gpu.client.lab = msgspec.structs.replace(lab(), warnings=("the store lies on a network file system (nfs4)", "more"))

    out = " ".join(gpu("doctor").out.split())

    assert out.count("network file system") == 1
    assert "JUPYTER_GPU_STATE_DIR" in out
    assert "broker says more" in out


def test_devices_that_get_no_work_are_named(gpu):
    """A cordoned and a faulty GPU each have a line with what gives them back."""
    first, second, *rest = lab().devices
    gpu.client.lab = msgspec.structs.replace(
        lab(),
        devices=(
            msgspec.structs.replace(first, cordoned=True),
            msgspec.structs.replace(second, condition=Condition.NOT_CLEAR, condition_detail="pid 7"),
            *rest,
        ),
    )

    checks = found(gpu)

    assert (checks["GPU 0"].state, checks["GPU 0"].text) == ("warn", "cordoned by an operator")
    assert checks["GPU 1"].text == "not clear: pid 7"
    assert "comes back by itself" in checks["GPU 1"].remedy


def test_every_finding_says_what_helps(gpu):
    """What is not ok has a remedy, unless the broker's own warning has it in its words."""
    gpu.client.lab = msgspec.structs.replace(lab(), devices=(), warnings=("no driver",))

    for name, check in found(gpu).items():
        assert check.state == "ok" or check.remedy or name == "broker says"


@pytest.mark.parametrize(("free", "state"), [(2 * GIB, "ok"), (GIB // 2, "warn"), (0, "fail")])
def test_a_full_disk(tmp_path, monkeypatch, free, state):
    """Little space is a warning, none is a failure; a folder that is not there yet lies where its parent does."""
    monkeypatch.setattr(doctor_machine.shutil, "disk_usage", lambda _: type("Usage", (), {"free": free}))

    assert doctor_machine.disk_check(tmp_path / "not" / "there").state == state


@pytest.mark.parametrize(
    ("here", "there", "state"),
    [(NOW, NOW + 1, "ok"), (NOW, None, "ok"), (NOW, NOW + 60, "warn"), (NOW, NOW - 60, "warn"), (1000.0, None, "fail")],
)
def test_clocks(here, there, state):
    """Ends of leases are instants, so both clocks must agree."""
    assert doctor_machine.clock_check(here, there).state == state


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        ("0::/system.slice/jupyter-ada.service", "Jupyter server"),
        ("0::/system.slice/jupyter-gpu.service", None),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice", None),
        ("0::/user.slice/user-1000.slice/session-3.scope", None),
        ("12:memory:/docker/0123", "a container"),
        ("0::/kubepods.slice/kubepods-burstable.slice", "a container"),
        ("0::/system.slice/slurmstepd.scope/job_7/step_0", "a batch job"),
    ],
)
def test_what_the_queue_would_end_with(tmp_path, groups, said):
    """A broker in the unit of a Jupyter server, a container or a batch job may end with it; its own unit is fine."""
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(groups)

    check = doctor_machine.survival_check(7, tmp_path)

    assert (check.state, said is None or said in check.text) == ("ok" if said is None else "warn", True)


def test_another_version_is_a_failure():
    """A broker too far from this client is named with both versions."""
    view = msgspec.structs.replace(FakeClient().broker(), version="3.1.0")

    assert doctor.broker_check(view).state == "fail"
    assert "3.1.0" in doctor.broker_check(view).text


def test_a_broker_elsewhere_is_not_looked_at_here(gpu, monkeypatch):
    """Disk, processes and sockets of this machine say nothing about a broker on another one."""
    monkeypatch.setattr(doctor.platform, "node", lambda: "elsewhere")
    view = msgspec.structs.replace(gpu.client.broker(), node="box")
    monkeypatch.setattr(gpu.client, "broker", lambda: view)

    assert not {"disk", "survival", "socket"} & set(found(gpu))
