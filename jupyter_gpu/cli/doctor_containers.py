"""The part of `jupyter gpu doctor` that concerns container engines: which are here, and whether a job could use them.

It starts none of them unless it is to try: a socket is asked, files are read. Tests give other files.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from .. import spawn
from ..model import Status
from .doctor import Check
from .doctor_machine import slurp

_ANSWER_SECONDS = 2.0
_START_SECONDS = 30.0
_DOCKER_SOCKET = "/var/run/docker.sock"
_CDI_FOLDERS = ("etc/cdi", "var/run/cdi")
_INITS = (
    "usr/libexec/podman/catatonit", "usr/local/libexec/podman/catatonit", "usr/local/lib/podman/catatonit",
    "usr/lib/podman/catatonit",
)  # fmt: skip
_TOOLKIT = "Install the NVIDIA Container Toolkit"
_HOOKS = ("nvidia-container-runtime-hook", "nvidia-container-toolkit")


def engine_checks(
    environ: Mapping[str, str], status: Status | None, root: Path = Path("/"), *, tries: bool = False
) -> Iterator[Check]:
    """One line for each engine that is here; one that says so where there is none. `tries`: podman starts one."""
    path = environ.get("PATH", os.defpath)
    devices = () if status is None else status.devices
    uuids = tuple(it.uuid for it in devices if not it.simulated)
    found = [engine for engine in ("podman", "docker", "apptainer") if shutil.which(engine, path=path)]
    if "podman" in found:
        podman = _podman(path, uuids, root)
        yield podman if podman.state != "ok" or not tries else _started(environ, path, root)
    if "docker" in found:
        yield _docker(environ, path, bool(uuids))
    if "apptainer" in found:
        yield Check(name="apptainer", state="ok", text="here: it runs jobs as their user, without a daemon")
    if not found:
        yield Check(name="containers", state="ok", text="neither podman, docker nor apptainer: no job runs in an image")


def _podman(path: str, uuids: tuple[str, ...], root: Path) -> Check:
    wrong, remedies = [], []
    if shutil.which("catatonit", path=path) is None and not any((root / it).exists() for it in _INITS):
        wrong.append("catatonit is missing, by which it hands signals on")
        remedies.append("Install catatonit.")
    user = _user()
    if os.geteuid() != 0 and not all(_has_line(root / f"etc/{name}", user) for name in ("subuid", "subgid")):
        wrong.append(f"{user} has no ids of its own in /etc/subuid and /etc/subgid")
        remedies.append(f"`sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {user}`.")
    specs = [slurp(file) or "" for folder in _CDI_FOLDERS for file in _files(root / folder)]
    unnamed = [uuid for uuid in uuids if not any(uuid in spec for spec in specs)]
    if unnamed:
        what = "no CDI file names the GPUs" if len(unnamed) == len(uuids) else f"no CDI file names {unnamed[0]}"
        wrong.append(f"{what} by their UUIDs")
        remedies.append(f"{_TOOLKIT} 1.15 or newer, and `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`.")
    if wrong:
        return Check(name="podman", state="warn", text=f"here, but {'; '.join(wrong)}", remedy=" ".join(remedies))
    return Check(
        name="podman",
        state="ok",
        text="here, with what it needs; `jupyter gpu doctor --trial` has it start a container",
    )


def _started(environ: Mapping[str, str], path: str, root: Path) -> Check:
    """Have podman start a container of nothing but its own init, which needs no image and nobody elsewhere."""
    known = shutil.which("catatonit", path=path)
    init = next(it for it in ([Path(known)] if known else []) + [root / it for it in _INITS] if it.exists())
    with tempfile.TemporaryDirectory(prefix="jupyter-gpu-trial-") as folder:
        shutil.copy(init, f"{folder}/init")
        words = ["podman", "run", "--rm", "--network", "none", "--rootfs", folder, "/init", "--version"]
        done = spawn.run(words, _START_SECONDS, environ={**environ, "PATH": path})
    if done.exit_code == 0:
        return Check(name="podman", state="ok", text="it has started a container, as your user and without a daemon")
    said = (done.errors.strip().splitlines() or ["it did not end in time"])[-1]
    remedy = "Podman itself must run one before a job can: as it is, each job in an image fails at its start."
    if "setrlimit" in said:
        remedy = (
            "This machine does not let it raise limits: set those of `ulimit -Hn` and `ulimit -Hu` in containers.conf, "
            'as default_ulimits = ["nofile=N:N", "nproc=N:N"].'
        )
    return Check(name="podman", state="warn", text=f"here, but it starts no container: {said[:300]}", remedy=remedy)


def _docker(environ: Mapping[str, str], path: str, has_gpus: bool) -> Check:
    place = environ.get("DOCKER_HOST", f"unix://{_DOCKER_SOCKET}")
    said = _ping(place.removeprefix("unix://")) if place.startswith("unix://") else f"its daemon is elsewhere: {place}"
    if said:
        remedy = "Start it (`sudo systemctl start docker`), or use podman, which needs no daemon."
        if said.endswith(os.strerror(13)):
            remedy = "Only members of the group docker may use it, and they are as good as root: use podman instead."
        return Check(name="docker", state="warn", text=f"here, but {said}", remedy=remedy)
    places = f"{path}:/usr/bin:/usr/local/bin"
    if has_gpus and not any(shutil.which(hook, path=places) for hook in _HOOKS):
        return Check(
            name="docker",
            state="warn",
            text="its daemon answers, but nothing is here by which it gives GPUs to a container",
            remedy=f"{_TOOLKIT}, and `sudo nvidia-ctk runtime configure --runtime=docker`.",
        )
    return Check(name="docker", state="ok", text="its daemon answers; whom it lets in is as good as root")


def _ping(place: str) -> str:
    """What is wrong with the daemon that listens there; empty where it answers."""
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(_ANSWER_SECONDS)
            line.connect(place)
            line.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return "" if b" 200 " in line.recv(64) else f"what listens at {place} is no daemon of docker's"
    except TimeoutError:
        return f"its daemon at {place} does not answer"
    except OSError as error:
        return f"its daemon at {place} cannot be reached: {error.strerror}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a number without a name
        return str(os.geteuid())


def _has_line(file: Path, user: str) -> bool:
    return any(line.partition(":")[0] in (user, str(os.geteuid())) for line in (slurp(file) or "").splitlines())


def _files(folder: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return sorted(folder.iterdir())
    return []
