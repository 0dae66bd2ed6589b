"""Real container engines for tests: a daemon of docker's of our own, and podman with a store of its own.

They run as root in folders of the test, with nothing of the machine's: no network, no store, no daemon of the user's.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import resource
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu.broker.engines import procs

IMAGE = "jupyter-gpu-test:1"
_APPLETS = (
    "sh",
    "sleep",
    "cat",
    "echo",
    "id",
    "env",
    "pwd",
    "ls",
    "touch",
    "kill",
    "df",
    "true",
    "printf",
    "stat",
    "dd",
)
_PATIENCE_SECONDS = 30.0
#: What brings all that is needed, where there is apt.
_HOW = "apt-get install docker.io podman runc catatonit uidmap busybox-static"


class House:
    """One engine that works, with an image of busybox; as root, or as the account whose store it is."""

    def __init__(self, engine: str, environment: dict[str, str], account: str = "") -> None:
        self.engine, self.account = engine, account
        #: What a job's environment needs to find it.
        self.environment = {"PATH": os.environ["PATH"], **environment}

    @property
    def daemon(self) -> int:
        """The pid of docker's daemon."""
        return int((Path(self.environment["DOCKER_HOST"].removeprefix("unix://")).with_name("d.pid")).read_text())

    def ask(self, *words: str) -> str:
        """What the engine answers."""
        done = self.run(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Ask it, whether or not it can answer."""
        who: dict[str, Any] = {}
        if self.account:
            entry = pwd.getpwnam(self.account)
            who = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": ()}
        return subprocess.run(
            [self.engine, *words], env=self.environment, capture_output=True, text=True, check=False, timeout=60,
            cwd="/", **who,
        )  # fmt: skip

    def containers(self) -> list[str]:
        """All containers that there are, running or not."""
        return self.ask("ps", "--all", "--format", "{{.Names}}").split()


@contextlib.contextmanager
def houses(engine: str, account: str = "") -> Iterator[House]:
    """A house of this engine; a skip where it cannot be had, with what would bring it. With an account: podman's."""
    missing = [program for program in _programs(engine) if shutil.which(program, path=_path()) is None]
    if os.geteuid() != 0 or missing:
        what = f"without {', '.join(missing)}" if missing else "without root"
        pytest.skip(f"{what} no real {engine} can be tried; `{_HOW}` helps")
    # Short: it holds sockets.
    root = Path(tempfile.mkdtemp(prefix="jgc"))
    root.chmod(0o755)
    try:
        with _docker(root) if engine == "docker" else _podman(root, account) as house:
            house.ask("import", str(_rootfs(root)), IMAGE)
            done = house.run("run", "--rm", IMAGE, "true")
            if done.returncode != 0:
                pytest.skip(f"{engine} runs no container here: {done.stderr[-500:]}")
            yield house
    finally:
        _unmount(root)
        shutil.rmtree(root, ignore_errors=True)


def _unmount(root: Path) -> None:
    """What engines leave mounted below a folder that goes: their stores are bound to themselves."""
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    points = [line.split()[4] for line in lines if line.split()[4].startswith(f"{root}/")]
    for point in sorted(points, reverse=True):
        subprocess.run(["umount", "--lazy", point], check=False, capture_output=True)


def _path() -> str:
    return f"{os.environ['PATH']}:/usr/sbin:/sbin"


def _programs(engine: str) -> tuple[str, ...]:
    return ("busybox", engine, "runc", *(("dockerd", "containerd") if engine == "docker" else ("catatonit",)))


def _rootfs(root: Path) -> Path:
    path = root / "image.tar"
    busybox = str(shutil.which("busybox", path=_path()))
    with tarfile.open(path, "w") as tar:
        for name in ("bin", "tmp", "etc", "proc", "dev", "sys"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            tar.addfile(folder)
        tar.add(os.path.realpath(busybox), "bin/busybox")
        for name in _APPLETS:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    return path


@contextlib.contextmanager
def _docker(root: Path) -> Iterator[House]:
    socket = root / "d.sock"
    words = [
        "dockerd", "--data-root", str(root / "data"), "--exec-root", str(root / "exec"), "--host", f"unix://{socket}",
        "--pidfile", str(root / "d.pid"), "--storage-driver", "vfs", "--bridge", "none", "--iptables=false",
    ]  # fmt: skip
    log = root / "dockerd.log"
    with log.open("wb") as out:
        environment = os.environ | {"PATH": _path()}
        daemon = subprocess.Popen(words, stdout=out, stderr=out, env=environment, start_new_session=True)
    house = House("docker", {"DOCKER_HOST": f"unix://{socket}"})
    try:
        by = time.monotonic() + _PATIENCE_SECONDS
        while house.run("version").returncode:
            if daemon.poll() is not None or time.monotonic() > by:
                pytest.skip(f"docker's daemon does not run here: {log.read_text(errors='replace')[-500:]}")
            time.sleep(0.05)
        socket.chmod(0o666)
        yield house
    finally:
        daemon.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            daemon.wait(_PATIENCE_SECONDS)
        daemon.kill()
        daemon.wait()
        for pid in procs.everyone():  # what it has left, if it was killed
            if str(root) in " ".join(procs.argv(pid)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def _podman(root: Path, account: str) -> Iterator[House]:
    # As a machine's admin would write it where root may raise no limits: podman's usual ones are beyond.
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    (root / "containers.conf").write_text(
        f'[containers]\ndefault_ulimits = ["nofile=1024:{files}", "nproc=4096:4096"]\nnetns = "none"\n'
        '[engine]\nruntime = "runc"\nevents_logger = "file"\ncgroup_manager = "cgroupfs"\n',
        encoding="utf-8",
    )
    store = root / "store"
    store.mkdir()
    if account:
        shutil.chown(store, account)
    (root / "storage.conf").write_text(
        f'[storage]\ndriver = "vfs"\nrunroot = "{store}/run"\n'
        f'{"rootless_storage_path" if account else "graphroot"} = "{store}/data"\n',
        encoding="utf-8",
    )
    house = House(
        "podman",
        {
            "CONTAINERS_CONF": str(root / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(root / "storage.conf"),
            **({"XDG_RUNTIME_DIR": str(store), "HOME": pwd.getpwnam(account).pw_dir} if account else {}),
        },
        account,
    )
    done = house.run("info")
    if done.returncode != 0:
        pytest.skip(f"podman does not run here: {done.stderr[-500:]}")
    try:
        yield house
    finally:
        # What it has mounted and mapped for its user is removed by itself alone.
        house.run("system", "reset", "--force")
