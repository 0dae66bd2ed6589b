"""What a submission says of a container: which engine it comes to, what is mounted, and what is refused at once."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu.broker.api.account import Looks, account_of
from jupyter_gpu.broker.api.containers import with_container
from jupyter_gpu.broker.auth import account_name
from jupyter_gpu.broker.engines import container_asks
from jupyter_gpu.model import ContainerRules, JobSpec, Policy, unpack_bytes
from tests.accounts import two_accounts
from tests.conftest import Places

from .api_ground import an_api, job, play

ANSWERS = {
    "docker": 'case "$1" in --version) echo Docker version 28;; *) echo \'["name=seccomp"]\';; esac',
    "docker of podman's": 'case "$1" in --version) echo podman version 4;; *) echo "[]";; esac',
    "docker without its daemon": (
        'case "$1" in --version) echo Docker version 28;; '
        '*) echo "Cannot connect to the Docker daemon" >&2; exit 1;; esac'
    ),
    "docker without root": 'case "$1" in --version) echo Docker version 28;; *) echo \'["name=rootless"]\';; esac',
    "podman": "echo crun",
    "podman that fails": "echo 'cannot find mappings for ada' >&2; exit 125",
    "apptainer": "echo apptainer version 1.3",
}


@pytest.fixture(autouse=True)
def _no_answers_of_other_tests() -> None:
    container_asks._kept.clear()


def path_with(folder: Path, *engines: str) -> str:
    """A PATH on which just these engines are."""
    place = folder / "bin"
    place.mkdir(parents=True, exist_ok=True)
    (place / "sh").symlink_to(shutil.which("sh") or "/bin/sh")
    for name in engines:
        program = place / name.split()[0]
        program.write_text(f"#!/bin/sh\n{ANSWERS[name]}\n")
        program.chmod(0o755)
    return str(place)


def submitted(
    places: Places, *engines: str, rules: ContainerRules | None = None, **spec: Any
) -> tuple[int, dict[str, Any], JobSpec | None]:
    """Ask for `python3 train.py` in an image: the status, the answer, and what the job is then."""
    found: list[tuple[int, dict[str, Any], JobSpec | None]] = []

    async def story() -> None:
        policy = Policy(containers=rules or ContainerRules())
        async with an_api(places.runtime_dir, policy=policy) as broker:
            given = {"image": "lab/torch:2", "environment": {"PATH": "/usr/bin:/bin"}} | spec
            answer = await broker.as_("ada").post("/workloads", json=job("python-of-the-image", "train.py", spec=given))
            kept = broker.loop.world.workloads.get(1)
            found.append((answer.status_code, answer.json(), None if kept is None else kept.spec))

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", path_with(places.runtime_dir, *engines))
        play(story)
    return found[0]


@pytest.mark.parametrize(
    ("engines", "order", "taken"),
    [
        (("docker", "podman", "apptainer"), None, "podman"),
        (("docker", "apptainer"), None, "docker"),
        (("docker", "podman"), ("docker", "podman"), "docker"),
        (("docker without its daemon", "apptainer"), None, "apptainer"),
        (("podman that fails", "docker"), None, "docker"),
        (("docker", "podman", "apptainer"), ("apptainer",), "apptainer"),
    ],
)
def test_the_first_that_can_be_used_is_taken(
    tmp_runtime: Places, engines: tuple[str, ...], order: tuple[Any, ...] | None, taken: str
) -> None:
    """In the admin's order; what was taken stays with the job. The command need not be on this machine."""
    status, _, spec = submitted(tmp_runtime, *engines, rules=None if order is None else ContainerRules(engines=order))
    assert status == 201
    assert spec is not None
    assert spec.container_engine == taken


@pytest.mark.parametrize(
    ("engines", "wanted", "says"),
    [
        ((), None, ["podman: not found", "docker: not found", "apptainer: not found"]),
        (("docker without its daemon",), None, ["Cannot connect to the Docker daemon"]),
        (("docker of podman's",), "docker", ["ask for podman"]),
        (("docker without root",), "docker", ["runs without root"]),
        (("podman that fails",), "podman", ["cannot find mappings"]),
        (
            ("podman",),
            "docker",
            ["docker cannot be used here (docker: not found on the broker's PATH), but podman can."],
        ),
        (("podman",), "lxc", ["none of those that may be used here: podman, docker, apptainer"]),
    ],
)
def test_without_an_engine_nothing_is_taken(
    tmp_runtime: Places, engines: tuple[str, ...], wanted: str | None, says: list[str]
) -> None:
    """Each that cannot be used is named with its own words, while somebody is there to read them."""
    status, answer, spec = submitted(tmp_runtime, *engines, container_engine=wanted)
    assert (status, answer["code"], spec) == (422, "invalid-ask", None)
    assert all(part in answer["message"] for part in says)
    assert answer["hint"]
    assert ("--container-engine podman" in answer["hint"]) == ("but podman can." in answer["message"])


def test_what_a_users_path_calls_an_engine_is_none(tmp_runtime: Places) -> None:
    """The broker would run it, whatever it is; engines are where the broker's own programs are."""
    theirs = {"PATH": path_with(tmp_runtime.runtime_dir / "theirs", "podman", "docker", "apptainer")}
    status, answer, _ = submitted(tmp_runtime, environment=theirs)
    assert status == 422
    assert all(f"{it}: not found on the broker's PATH" in answer["message"] for it in ("podman", "docker", "apptainer"))


def test_an_engine_that_hangs_is_asked_once_by_an_account_and_keeps_nobody_elses_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many jobs it brings at once, with whatever variables."""
    asked: list[str] = []
    go_on = threading.Event()

    def ask(*_: object, **__: object) -> tuple[int | None, str, str]:
        asked.append("podman")
        go_on.wait()
        return None, "", ""

    monkeypatch.setenv("PATH", path_with(tmp_path, "podman"))
    monkeypatch.setattr("jupyter_gpu.broker.engines.errand.run", ask)

    async def story() -> None:
        looks, account = Looks(), account_of(account_name(os.geteuid()))
        specs = [
            JobSpec(
                argv=("x",), folder="/tmp", image="a", container_engine="podman",
                environment={"PATH": "/bin", "XDG_RUNTIME_DIR": f"/run/{n}"},
            )
            for n in range(30)
        ]  # fmt: skip
        all_of_them = asyncio.gather(
            *(with_container(looks, account, spec, ContainerRules()) for spec in specs), return_exceptions=True
        )
        while not asked:
            await asyncio.sleep(0)
        # The threads that all share are free.
        assert await asyncio.gather(*(asyncio.to_thread(abs, n) for n in range(40))) == list(range(40))
        go_on.set()
        assert {"it did not answer within 4 s" in str(why) for why in await all_of_them} == {True}

    asyncio.run(story())
    assert asked == ["podman"]


def test_a_daemon_elsewhere_is_refused(tmp_runtime: Places) -> None:
    """The GPUs are here."""
    environment = {"PATH": "/usr/bin:/bin", "DOCKER_HOST": "tcp://other:2375"}
    status, answer, _ = submitted(tmp_runtime, "docker", environment=environment, container_engine="docker")
    assert status == 422
    assert "tcp://other:2375" in answer["message"]


@pytest.mark.parametrize(
    "image", ["--privileged", "-v/:/x", "a b", "a\nb", "", "x" * 401, "naïve", "/images/../x.sif", "oci:/images/../x"]
)
def test_what_is_no_image_is_refused(tmp_runtime: Places, image: str) -> None:
    """What begins with a dash would be an option of the engine's, and a way up would pass by the admin's patterns."""
    status, answer, _ = submitted(tmp_runtime, "podman", image=image)
    assert (status, "no name of an image" in answer["message"]) == (422, True)


def test_the_admin_says_which_images_may_run(tmp_runtime: Places) -> None:
    """And whether any may."""
    rules = ContainerRules(images=("registry.lab/*",))
    assert submitted(tmp_runtime, "podman", rules=rules)[0] == 403
    shutil.rmtree(tmp_runtime.runtime_dir)
    tmp_runtime.runtime_dir.mkdir()
    assert submitted(tmp_runtime, "podman", rules=rules, image="registry.lab/torch:2")[0] == 201
    shutil.rmtree(tmp_runtime.runtime_dir)
    tmp_runtime.runtime_dir.mkdir()
    status, answer, _ = submitted(tmp_runtime, "podman", rules=ContainerRules(engines=()))
    assert (status, answer["message"]) == (403, "Jobs do not run in containers here.")


def _mounted(source: Path) -> list[str]:
    return [f"{source}:/data:ro"]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda it: [f"{it}/none:/data"], "No such file"),
        (lambda _: ["data:/data"], "no whole path"),
        (lambda it: [f"{it}:/data:exec"], "write SOURCE:TARGET"),
        (lambda it: [f"{it}:/"], "nothing can be mounted at /"),
        (lambda it: [f"{it}:/dev/shm"], "nothing can be mounted at /dev/shm"),
        (lambda it: [f"{it}:/tmp"], "mounted twice"),
        (lambda it: [f"{it}:/a", f"{it}:/a"], "mounted twice"),
        (lambda _: ["/:/host"], "devices"),
        (lambda _: ["/dev:/d"], "devices"),
        (lambda _: ["/proc/self:/d"], "devices"),
        (lambda _: ["/run:/d"], "services"),
        (lambda it: [f"{it}/link:/d"], "devices"),
        (lambda it: [f"{it}/pipe:/d"], "no folder and no file"),
    ],
)  # fmt: skip
def test_what_cannot_be_mounted_is_refused(
    tmp_runtime: Places, tmp_path: Path, make: Callable[[Path], list[str]], says: str
) -> None:
    """Devices and the doors of services are nobody's data, whatever link leads there."""
    (tmp_path / "link").symlink_to("/dev")
    os.mkfifo(tmp_path / "pipe")
    status, answer, _ = submitted(tmp_runtime, "podman", mounts=make(tmp_path))
    assert status == 422
    assert says in answer["message"]


def test_what_is_mounted_is_where_the_source_leads(tmp_runtime: Places, tmp_path: Path) -> None:
    """So a link that is turned later changes nothing of a queued job."""
    (tmp_path / "set").mkdir()
    (tmp_path / "newest").symlink_to("set")
    status, _, spec = submitted(tmp_runtime, "podman", mounts=_mounted(tmp_path / "newest"))
    assert status == 201
    assert spec is not None
    assert [unpack_bytes(mount).decode() for mount in spec.mounts] == [f"{tmp_path}/set:/data:ro"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user; run the tests as root")
def test_a_mount_is_looked_at_as_the_user(tmp_path: Path) -> None:
    """A broker that is root must not tell, nor mount, what only root may read."""
    import asyncio

    from jupyter_gpu.broker.api.account import Looks, account_of
    from jupyter_gpu.errors import InvalidAsk

    secret = tmp_path / "secret"
    secret.mkdir(mode=0o700)
    (secret / "file").touch()
    with two_accounts() as (name, _):
        for source in (secret, secret / "file", Path("/etc/shadow")):
            spec = JobSpec(argv=("true",), folder="/tmp", image="x", mounts=(f"{source}:/data:ro",))
            with pytest.raises(InvalidAsk, match=r"Permission denied|may not read|No such file"):
                asyncio.run(with_container(Looks(), account_of(name), spec, ContainerRules()))


@pytest.mark.parametrize(
    "spec", [{"image": None, "mounts": ["/tmp:/x"]}, {"image": None, "container_engine": "docker"}]
)
def test_mounts_and_engines_are_of_an_image(tmp_runtime: Places, spec: dict[str, Any]) -> None:
    """Else they would be passed by without a word."""
    status, answer, _ = submitted(tmp_runtime, "podman", **spec)
    assert (status, "without an image" in answer["message"]) == (422, True)


@pytest.mark.parametrize("folder", ["/", "/usr", "/proc/self", "/tmp/a,b"])
def test_the_working_folder_must_be_one_that_can_be_shown(tmp_runtime: Places, folder: str) -> None:
    """It stands in the container where it stands outside."""
    status, answer, _ = submitted(tmp_runtime, "podman", folder=folder)
    assert status == 422
    assert "container" in answer["message"]


@pytest.mark.parametrize(
    ("wanted", "name", "says"),
    [
        (None, "torch.sif", ""),
        ("podman", "torch.sif", "runs no image that is a file"),
        (None, "no.sif", "is not there"),
    ],
)
def test_an_image_that_is_a_file_is_apptainers(
    tmp_runtime: Places, tmp_path: Path, wanted: str | None, name: str, says: str
) -> None:
    """The others know names of images only."""
    (tmp_path / "torch.sif").touch()
    image = str(tmp_path / name)
    status, answer, spec = submitted(tmp_runtime, "podman", "apptainer", image=image, container_engine=wanted)
    if says:
        assert (status, says in answer["message"]) == (422, True)
    else:
        assert spec is not None
        assert spec.container_engine == "apptainer"
