"""`doctor` on container engines: what is here, and what a job would miss."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from jupyter_gpu.cli import doctor_containers
from jupyter_gpu.cli.doctor import Check
from jupyter_gpu.model import Status
from tests.cli.fake import lab

REAL = msgspec.structs.replace(
    lab(), devices=tuple(msgspec.structs.replace(it, simulated=False) for it in lab().devices)
)


def checks(
    root: Path, *programs: str, status: Status | None = REAL, tries: bool = False, **environ: str
) -> dict[str, Check]:
    """Give the findings by name, on a machine with these programs."""
    place = root / "bin"
    place.mkdir(exist_ok=True)
    for name in programs:
        (place / name).touch(mode=0o755)
    found = doctor_containers.engine_checks({"PATH": str(place)} | environ, status, root, tries=tries)
    return {check.name: check for check in found}


def test_no_engine_is_nothing_wrong(tmp_path: Path) -> None:
    """Most labs need none; it is said, since jobs in images are refused then."""
    found = checks(tmp_path)
    assert list(found) == ["containers"]
    assert found["containers"].state == "ok"


def test_podman_is_ready_where_all_it_needs_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its init, ids of the user's own, and a CDI file that names each GPU by its UUID."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(doctor_containers, "_user", lambda: "ada")
    found = checks(tmp_path, "podman")["podman"]
    assert found.state == "warn"
    for part in ("catatonit", "/etc/subuid", "CDI"):
        assert part in found.text
    for part in ("catatonit", "usermod", "nvidia-ctk cdi generate"):
        assert part in found.remedy

    (tmp_path / "etc/cdi").mkdir(parents=True)
    names = "\n".join(f"- name: {it.uuid}" for it in REAL.devices)
    (tmp_path / "etc/cdi/nvidia.yaml").write_text(f"kind: nvidia.com/gpu\n{names}\n")
    for name in ("subuid", "subgid"):
        (tmp_path / "etc" / name).write_text("ada:100000:65536\n")
    assert checks(tmp_path, "podman", "catatonit")["podman"].state == "ok"


@pytest.mark.parametrize(
    ("does", "state", "says", "helps"),
    [
        ("exit 0", "ok", "it has started a container", ""),
        (
            "echo 'Error: crun: setrlimit RLIMIT_NOFILE: Operation not permitted' >&2; exit 126",
            "warn",
            "starts no container: Error: crun: setrlimit RLIMIT_NOFILE",
            "default_ulimits",
        ),
        ("echo 'Error: no cgroups' >&2; exit 125", "warn", "starts no container: Error: no cgroups", "fails at its"),
    ],
)
def test_a_trial_says_whether_podman_starts_anything(  # noqa: PLR0917 - one case
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str, state: str, says: str, helps: str
) -> None:
    """That all its files are there proves nothing: a machine that is a container itself may forbid it."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    place = tmp_path / "bin"
    place.mkdir()
    (place / "podman").write_text(f"#!/bin/sh\n{does}\n")
    (place / "podman").chmod(0o755)
    found = checks(tmp_path, "catatonit", status=None, tries=True)["podman"]
    assert found.state == state
    assert says in found.text
    assert helps in found.remedy
    assert "--trial" in checks(tmp_path, "catatonit", status=None)["podman"].text


def test_of_simulated_gpus_no_engine_need_know(tmp_path: Path) -> None:
    """They are no devices of this machine."""
    simulated = msgspec.structs.replace(
        REAL, devices=tuple(msgspec.structs.replace(it, simulated=True) for it in REAL.devices)
    )
    assert "CDI" not in checks(tmp_path, "podman", status=simulated)["podman"].text


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[str]:
    """Give the address of what answers like docker's daemon."""
    place = tmp_path / "d.sock"
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(place))
        door.listen()

        def answer() -> None:
            line, _ = door.accept()
            with line:
                line.recv(1024)
                line.sendall(b"HTTP/1.0 200 OK\r\n\r\nOK")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"unix://{place}"


def test_docker_is_ready_where_its_daemon_answers_and_can_give_gpus(tmp_path: Path, daemon: str) -> None:
    """And it is said what being let in means."""
    found = checks(tmp_path, "docker", "nvidia-container-runtime-hook", DOCKER_HOST=daemon)["docker"]
    assert (found.state, "as good as root" in found.text) == ("ok", True)


def test_docker_without_nvidias_toolkit(tmp_path: Path, daemon: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job would fail at its start, so it is said before."""
    monkeypatch.setattr(doctor_containers, "_HOOKS", ("no-such-hook",))
    found = checks(tmp_path, "docker", DOCKER_HOST=daemon)["docker"]
    assert found.state == "warn"
    assert "nvidia-ctk runtime configure" in found.remedy


@pytest.mark.parametrize("host", ["unix:///nowhere/d.sock", "tcp://other:2375"])
def test_docker_without_a_daemon_here(tmp_path: Path, host: str) -> None:
    """The client alone runs nothing."""
    found = checks(tmp_path, "docker", DOCKER_HOST=host)["docker"]
    assert found.state == "warn"
    assert "podman" in found.remedy


def test_apptainer_needs_nothing(tmp_path: Path) -> None:
    """It brings the driver's libraries in by itself."""
    assert checks(tmp_path, "apptainer")["apptainer"].state == "ok"
