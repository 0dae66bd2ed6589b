"""The folders of the local engine's attempts: where each lies, what is written into it, which are not yet taken back.

    FOLDER/12.1/       attempt 1 of workload 12: spec, started mark, log, order, notice, outcome; what it reported, and
                       while it runs the pipe for that
    FOLDER/12.1-2/     the same, after a first hand-over was called off before it began
    FOLDER/live/12.1   it is not yet taken back
    FOLDER/probe.9-1/  a start that only tries what it could open
    FOLDER/launcher.log

A job's user may pass through to its notice, its pipe and its script's runner, and reads nothing else.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import zlib
from pathlib import Path
from typing import Any

from ...model import unpack_bytes
from . import cgroup, command, container_plan, errand, files, isolation, reach
from .accounts import Account
from .base import Attempt

_AS_IT_LIES = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LINE_BYTES = 4096
#: How the folders of probes are called.
PROBE = "probe."


def cgroup_name(root: Path | str) -> str:
    """How the cgroups of the attempts of one broker begin: several brokers may make some on one machine."""
    return f"jupyter-gpu-{zlib.crc32(os.fsencode(root)):08x}"


class Spool:
    """All that is on disk of the attempts of one broker."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._place = str(root)
        self._live = root / "live"
        self._cgroups: list[str] = []
        self._name = cgroup_name(root)

    def open(self) -> None:
        """Make what is missing."""
        self._cgroups = cgroup.parents()
        self._clear_errands()
        self._live.mkdir(parents=True, exist_ok=True)
        self._live.chmod(0o700)
        self.root.chmod(0o711)

    @property
    def has_cgroup_2(self) -> bool:
        """Whether attempts get a cgroup of version 2."""
        return any(os.path.exists(f"{parent}/cgroup.controllers") for parent in self._cgroups)  # noqa: PTH110

    def left_probes(self) -> list[str]:
        """The folders of probes of an earlier broker."""
        return [f"{self._place}/{name}" for name in os.listdir(self._place) if name.startswith(PROBE)]  # noqa: PTH208

    def live(self) -> list[tuple[int, int]]:
        """The attempts that are not yet taken back, as (workload, attempt)."""
        split = (name.partition(".") for name in os.listdir(self._live))  # noqa: PTH208 - names, not paths
        return sorted((int(one), int(two)) for one, _, two in split if one.isdecimal() and two.isdecimal())

    def forget(self, workload: int, attempt: int) -> None:
        """It is taken back; its folder stays."""
        os.unlink(f"{self._live}/{workload}.{attempt}")  # noqa: PTH108

    def highest_workload(self) -> int:
        """The highest number that a folder here bears: it must name no other workload, even after a lost store."""
        with contextlib.suppress(FileNotFoundError):
            names = (name.partition(".")[0] for name in os.listdir(self.root))  # noqa: PTH208 - names, not paths
            return max((int(name) for name in names if name.isdecimal()), default=0)
        return 0

    def folder(self, workload: int, attempt: int) -> Path:
        """Where an attempt lies."""
        return self._folders(workload, attempt)[-1]

    def folder_to_start_in(self, workload: int, attempt: int) -> tuple[str, bool]:
        """The same, or another where it was called off before it began; and whether it is yet to be made.

        The old one's mark stays for ever, and shuts out whoever still has a word of the start that was called off.
        """
        first = f"{self._place}/{workload}.{attempt}"
        if not os.path.lexists(first):
            return first, True
        *earlier, folder = self._folders(workload, attempt)
        if (files.read(f"{folder}/{files.MARK}") or {}).get("called_off"):
            return f"{first}-{len(earlier) + 2}", True
        return str(folder), False

    def write(self, attempt: Attempt, folder: str, account: Account, job: reach.Job, *, fresh: bool) -> None:
        """Write all that a supervisor needs to start it; `fresh`: nobody can know of the folder yet."""
        spec = attempt.spec
        runner = f"{folder}/run_copy.py"
        argv, runs_copy = command.argument_list(spec, runner, _first_line(attempt))
        if runs_copy:
            shutil.copyfile(Path(__file__).with_name("run_copy.py"), runner)
            os.chmod(runner, 0o644)  # noqa: PTH101
        content = {
            "workload": attempt.workload,
            "attempt": attempt.attempt,
            "argv": argv,
            "folder": command.text(spec.folder),
            "account": attempt.account,
            "uid": account.uid,
            "gid": account.gid,
            "groups": list(account.groups),
            "checkpoint_dir": command.checkpoint_dir(attempt),
            "own_checkpoint_dir": spec.checkpoint_dir is None,
            "log_limit_bytes": spec.log_limit_bytes,
            "core_dumps": spec.core_dumps,
            "leftover_seconds": spec.leftover_seconds,
            "cgroups": self._cgroups_for(f"{attempt.workload}.{attempt.attempt}", job.fence),
            "isolation": job.fence,
            "nodes": list(job.nodes),
        }
        environment = command.environment(
            attempt, f"{folder}/{files.NOTICE}", f"{folder}/{files.PROGRESS_PIPE}", account
        )
        name = f"{self._name}-{os.path.basename(folder)}"  # noqa: PTH119
        if container := container_plan.plan(attempt, folder, name, account, environment):
            content["container"] = container
        with contextlib.suppress(FileExistsError):
            files.reserve_order(folder)
        files.write_spec(folder, content, environment, fresh=fresh)
        with contextlib.suppress(FileExistsError):  # a name more for a file that stays: cheaper than one of its own
            os.link(f"{folder}/{files.ORDER}", f"{self._live}/{attempt.workload}.{attempt.attempt}")

    def spec_of_a_probe(self, folder: str, fence: dict[str, Any]) -> dict[str, Any]:
        """What a supervisor needs to start a probe; who it is to be comes to it."""
        return {
            "workload": 0, "attempt": 0, "argv": None, "folder": "/", "checkpoint_dir": f"{folder}/none",
            "own_checkpoint_dir": True, "log_limit_bytes": _LINE_BYTES, "core_dumps": False, "leftover_seconds": 0,
            "cgroups": self._cgroups_for(os.path.basename(folder), fence), "isolation": fence,  # noqa: PTH119
        }  # fmt: skip

    def for_errands(self, fence: dict[str, Any] | None) -> dict[str, Any]:
        """What errands are run in: how their cgroups begin, and what keeps them from devices."""
        return {"cgroups": self._cgroups_for(errand.MARK.removeprefix("-"), fence), "isolation": fence}

    def _clear_errands(self) -> None:
        """End what the errands of an earlier broker have left."""
        begin = f"{self._name}{errand.MARK}"
        parents = {os.path.dirname(it) for it in self._cgroups_for("", {"by": isolation.CGROUP_1})}  # noqa: PTH120
        for parent in parents:
            with contextlib.suppress(OSError):
                left = [f"{parent}/{it}" for it in os.listdir(parent) if it.startswith(begin)]  # noqa: PTH208
                cgroup.kill(left)
                cgroup.remove(left)

    def _cgroups_for(self, name: str, fence: dict[str, Any] | None) -> list[str]:
        parents = self._cgroups
        if fence and fence["by"] == isolation.CGROUP_1:
            parents = [*parents, *filter(None, [cgroup.parent_for_devices()])]
        return [f"{parent}/{self._name}-{name}" for parent in parents]

    def _folders(self, workload: int, attempt: int) -> list[Path]:
        folders = [self.root / f"{workload}.{attempt}"]
        while (later := self.root / f"{workload}.{attempt}-{len(folders) + 1}").exists():
            folders.append(later)
        return folders


def make_folder(folder: str) -> bool:
    """Make an attempt's folder, such that its job reaches its notice whatever the umask says; False if it was there."""
    try:
        os.mkdir(folder)  # noqa: PTH102 - the hot path
    except FileExistsError:
        return False
    os.chmod(folder, 0o711)  # noqa: PTH101, S103
    return True


def number_of(folder: str) -> tuple[int, int]:
    """The (workload, attempt) that a folder is of."""
    workload, _, attempt = os.path.basename(folder).partition("-")[0].partition(".")  # noqa: PTH119
    return int(workload), int(attempt)


def _first_line(attempt: Attempt) -> str:
    """The copied script's first line, where the script is itself the command; empty where it is not a plain file.

    The copy is its user's: a pipe in its place must not make us wait, and a link must not make us read.
    """
    if attempt.spec.script_copy is None or attempt.spec.script_index != 0:
        return ""
    try:
        file = os.open(unpack_bytes(attempt.spec.script_copy), _AS_IT_LIES)
    except OSError:
        return ""
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return ""
        return os.fsdecode(os.read(file, _LINE_BYTES).partition(b"\n")[0])
    except OSError:
        return ""
    finally:
        os.close(file)
