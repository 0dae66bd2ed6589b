"""For tests of isolation: made-up device nodes, who can have which layer here, and a broker of another user."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pwd
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu.broker.engines import bpf, landlock

ROOT = Path(__file__).parents[2]
IS_ROOT = os.geteuid() == 0
NOBODY = pwd.getpwnam("nobody")
LAYERS = {
    "cgroup v2": "cgroup",
    "cgroup v1": "cgroup",
    "landlock": "landlock",
    "bubblewrap": "bubblewrap",
}  # fmt: skip
#: Says of a node by what name we like whether it can be opened: `t NAME NODE`.
TRY = 't() { if (exec 3<>"$2") 2>/dev/null; then echo "$1 open"; else echo "$1 refused"; fi; }; '


def why_missing(layer: str) -> str:
    """Why this machine cannot have a layer, found out by other means than the broker's."""
    mounts = Path("/proc/mounts").read_text(encoding="utf-8")
    if layer == "landlock":
        return landlock.why_not()
    if layer == "bubblewrap":
        if shutil.which("bwrap") is None:
            return "bubblewrap is not installed; on Debian and Ubuntu: apt-get install bubblewrap"
        who = {"user": NOBODY.pw_uid, "group": NOBODY.pw_gid, "extra_groups": ()} if IS_ROOT else {}
        words = ["bwrap", "--dev-bind", "/", "/", "--", "true"]
        if subprocess.run(words, capture_output=True, check=False, cwd="/", **who).returncode:
            return "this machine lets bubblewrap make no namespaces"
        with contextlib.suppress(OSError):
            subprocess.run(["/usr/bin/python3", "-c", ""], check=True, cwd="/", **who)
            return ""
        return "there is no /usr/bin/python3 that any user may run"
    if not IS_ROOT:
        return "only root may set the rules of a cgroup"
    kind = " cgroup2 rw" if layer == "cgroup v2" else "/devices cgroup rw"
    return "" if kind in mounts else f"there is no {layer} here that may be written to"


def need(layer: str) -> None:
    """Skip where this machine cannot have it."""
    why = why_missing(layer)
    if why:
        pytest.skip(why)


class Nodes:
    """Three harmless devices under the names of GPUs: random, zero and full."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.own, self.other, self.third = (str(folder / f"gpu{number}") for number in range(3))
        for path, minor in ((self.own, 9), (self.other, 5), (self.third, 7)):
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, minor))
            os.chmod(path, 0o666)  # noqa: PTH101 - whatever the umask says
        self.all = (self.own, self.other, self.third)
        self.others = (self.other, self.third)


@contextlib.contextmanager
def open_folder(above: str | None = None) -> Iterator[Path]:
    """A folder that other users reach, unlike pytest's."""
    folder = Path(tempfile.mkdtemp(prefix="jg-", dir=above))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def made_up_nodes() -> Iterator[Nodes]:
    """Them; a skip where they cannot be made or opened."""
    if not IS_ROOT:
        pytest.skip("only root may make device nodes")
    with open_folder() as folder:
        try:
            nodes = Nodes(folder)
            os.close(os.open(nodes.other, os.O_RDWR))
        except OSError as error:
            pytest.skip(f"device nodes cannot be made or opened in {folder.parent}: {error.strerror}")
        yield nodes


class Broker:
    """A `fenced_broker` of its own, as root or as nobody."""

    def __init__(
        self, root: Path, isolation: str, nodes: Nodes, script: str, *, as_nobody: bool, withheld: tuple[str, ...] = ()
    ) -> None:
        words = [
            sys.executable, str(Path(__file__).with_name("fenced_broker.py")), str(root), isolation,
            ",".join(nodes.all), ",".join(withheld or nodes.others), script,
        ]  # fmt: skip
        environment = {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "PATH": os.environ["PATH"]}
        self._process = subprocess.Popen(
            as_user(words) if as_nobody else words, stdout=subprocess.PIPE, env=environment
        )

    def hear(self) -> Any:
        """Its next line."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the broker has ended"
        return json.loads(line)

    def kill(self) -> None:
        """The hard way."""
        self._process.kill()
        self.close()

    def close(self) -> None:
        """Wait for its end."""
        assert self._process.stdout is not None
        self._process.wait()
        self._process.stdout.close()


def as_user(words: list[str], who: pwd.struct_passwd = NOBODY) -> list[str]:
    """The same, run by a user without rights, who may see our Python and our code wherever they lie."""
    for program in ("unshare", "setpriv", "mount"):
        if shutil.which(program) is None:
            pytest.skip(f"the program {program} is not there")
    lines = ["set -e"]
    shown: dict[Path, set[Path]] = {}
    for path in {Path(sys.base_prefix), Path(sys.prefix), ROOT}:
        way = [*reversed(path.parents), path]
        for folder, child in itertools.pairwise(way):
            if not folder.stat().st_mode & stat.S_IXOTH:
                shown.setdefault(folder, set()).add(child)
                break
    for folder, children in shown.items():
        lines += ["stage=$(mktemp -d)", 'mount -t tmpfs -o mode=755 stage "$stage"']
        for child in children:
            lines += [f'mkdir "$stage"/{shlex.quote(child.name)}']
            lines += [f'mount --bind {shlex.quote(str(child))} "$stage"/{shlex.quote(child.name)}']
        lines += [f'mount --rbind "$stage" {shlex.quote(str(folder))}']
    lines += [
        f"exec setpriv --reuid={who.pw_uid} --regid={who.pw_gid} --clear-groups -- " + shlex.join(words),
    ]
    return ["unshare", "--mount", "sh", "-c", "\n".join(lines)]


@contextlib.contextmanager
def unit_of(layer: str, *minors: int) -> Iterator[Path]:
    """A cgroup as systemd makes one of a unit with a DeviceAllow: of the memory devices these alone, and null.

    In it is whoever is written into its `cgroup.procs`.
    """
    need(layer)
    mounts = [line.split() for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()]
    kind = "cgroup2" if layer == "cgroup v2" else "devices"
    root = next(Path(it[1]) for it in mounts if kind in (it[2], Path(it[1]).name))
    folder = root / f"jg-unit-{os.getpid()}.service"
    folder.mkdir()
    try:
        if layer == "cgroup v2":
            bpf.deny(str(folder), [], [(1, [3, *minors])])
        else:
            (folder / "devices.deny").write_text("a", encoding="ascii")
            for minor in (3, *minors):
                (folder / "devices.allow").write_text(f"c 1:{minor} rw", encoding="ascii")
        yield folder
    finally:
        folder.rmdir()
