"""Between fork and exec: the process that becomes the job.

It enters the cgroup, gives up the devices that are not its own, drops to the submitting user, looks up the newest
complete checkpoint as that user, makes the environment whole and execs the argument list as it is, without a shell.
What it finds or fails at goes to the supervisor through a pipe that closes itself on exec: JSON lines of findings, and
one of failure if there is any. From the fork on it dies with its supervisor: between fork and exec it carries no mark
by which a later broker could find it. Standard library only: the launcher imports it.
"""

from __future__ import annotations

import _socket  # the lean half of `socket`, whose enums are many
import contextlib
import ctypes
import functools
import os
import resource
import signal

from ...checkpoints import newest_name
from . import cgroup, containers, inside, isolation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_libc = ctypes.CDLL(None, use_errno=True)
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


def become(spec: dict[str, Any], parent: int, output: int, report: int) -> NoReturn:
    """Become the job, or say why not; never returns."""
    step = "prepare"
    try:
        os.setsid()
        cgroup.enter(spec["cgroups"])
        signals_as_new(spec)
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        for source, target in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(source, target)
        os.umask(0o022)
        isolation.give_up(spec)  # with all rights that we have: then nothing else has to be given up with it
        step = f"become user {spec['account']}"
        drop(spec)
        die_with(parent)  # only now: the kernel forgets it when the user changes
        step = f"enter the folder {spec['folder']}"
        os.chdir(os.fsencode(spec["folder"]))
        step = "prepare"
        found: dict[str, Any] = {"environment": {}}
        if spec["argv"] is not None:
            found = _environment(spec)
            inside.say(report, {name: value for name, value in found.items() if name != "environment"})
            _put_in_a_container(spec, found)
            step = f"start {spec['argv'][0]}"
        isolation.become(spec, found["environment"], report)
    except BaseException as error:  # noqa: BLE001 - nothing may return into the supervisor's code
        inside.say_failed(report, step, error)
    os._exit(127)


def drop(spec: dict[str, Any]) -> None:
    """Become the submitting user for good, where we are root."""
    if spec["uid"] is not None:
        os.setgroups(spec["groups"])
        os.setresgid(spec["gid"], spec["gid"], spec["gid"])
        os.setresuid(spec["uid"], spec["uid"], spec["uid"])


def signals_as_new(spec: dict[str, Any]) -> None:
    """Undo what Python and whoever started the broker have ignored or blocked; no core dump unless asked."""
    for number in changed_signals():
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    most = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (most if spec["core_dumps"] else 0, most))


@functools.cache
def changed_signals() -> tuple[int, ...]:
    """What is not as in a new process; the launcher asks first, and all that supervisors change it has changed too."""
    return tuple(n for n in sorted(signal.valid_signals()) if signal.getsignal(n) is not signal.SIG_DFL)


def _environment(spec: dict[str, Any]) -> dict[str, Any]:
    """The whole environment of the job, with what only now is known; and what was found on the way."""
    given = dict(spec["environment"])
    given.setdefault("PATH", _DEFAULT_PATH)
    given.setdefault("MASTER_PORT", str(_free_port()))
    home = spec["checkpoint_dir"]
    newest: str | None = None
    skipped: list[str] = []
    # A folder that nobody may write to is no reason not to start: a job need not save anything.
    with contextlib.suppress(OSError, ValueError):
        _make_folders(home)
    with contextlib.suppress(OSError, ValueError):
        newest, skipped = newest_name(home)
    resume_from = os.path.join(home, newest) if newest else None  # noqa: PTH118
    if resume_from:
        given["JUPYTER_GPU_RESUME_FROM"] = resume_from
    return {"environment": given, "resume_from": resume_from, "skipped": skipped}


def _put_in_a_container(spec: dict[str, Any], found: dict[str, Any]) -> None:
    """Let the engine be started in place of the command, where there is one; only now all variables are known."""
    plan, home = spec.get("container"), spec["checkpoint_dir"]
    if not plan:
        return
    beside = not home.startswith(plan["folder"].rstrip("/") + "/") and os.path.isdir(home)  # noqa: PTH112
    folders = [home] if beside else []
    spec["argv"], found["environment"] = containers.wrapped(plan, spec["argv"], found["environment"], folders)


def _make_folders(home: str) -> None:
    with contextlib.suppress(FileNotFoundError, FileExistsError):
        os.mkdir(home)  # noqa: PTH102 - so it mostly is: the parent is there
        return
    for _ in range(3):  # another job of the same folder may just be removing the parent, because it is empty
        with contextlib.suppress(FileNotFoundError):
            os.makedirs(home, exist_ok=True)  # noqa: PTH103
            return


def _free_port() -> int:
    """A port that is free now; nobody can promise more."""
    probe = _socket.socket()
    probe.bind(("", 0))
    port: int = probe.getsockname()[1]
    probe.close()
    return port


def die_with(parent: int) -> None:
    """Die when our parent does, and let nobody look into us or hold us up before the exec, not even our own user."""
    _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:  # it has died before we could ask
        os._exit(127)
