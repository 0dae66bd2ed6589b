"""The only place outside the engines that starts processes: a short command with a deadline, and the broker itself.

The broker is started detached: a session of its own, no terminal, nothing of the caller's but its environment without
kernel marks and secrets. It tells on a pipe when it answers, or in one line why it does not, so nobody polls and
nobody guesses.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple, NoReturn, cast

from . import paths
from .environment import stays_out
from .errors import TREE, BrokerUnavailable, GpuError
from .hearing import hear_out

READY_WITHIN_SECONDS = 30.0
NOT_FOUND = 127
_TAIL_BYTES = 2_000
# The brokers that this process started; each is reaped when the next one is due, if it has ended by then.
_started: set[int] = set()


class User(NamedTuple):
    """Whom a command runs as, where we may say so."""

    uid: int
    gid: int
    groups: tuple[int, ...]


class Finished(NamedTuple):
    """How a short command went. `exit_code` is None where it was over its deadline and had to be ended."""

    exit_code: int | None
    output: str
    errors: str


class Caught(NamedTuple):
    """What a command wrote, as bytes and no more than asked for. `exit_code` as in Finished, None also when cut."""

    exit_code: int | None
    output: bytes
    is_cut: bool
    #: The beginning of what it complained about.
    errors: str


def run(
    argv: Sequence[str],
    timeout_seconds: float,
    *,
    text: str = "",
    cwd: str | None = None,
    environ: Mapping[str, str] | None = None,
    user: User | None = None,
) -> Finished:
    """Run a short command to its end, and to no more than its deadline, with all that it started. Raises nothing.

    Whatever interrupts the waiting ends the command too. Of what it writes no more is kept than `hearing` says.
    """
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            cwd=cwd,
            env=None if environ is None else dict(environ),
            user=None if user is None else user.uid,
            group=None if user is None else user.gid,
            extra_groups=None if user is None else user.groups,
        )
    except (OSError, ValueError) as error:
        return Finished(NOT_FOUND, "", str(error))
    deadline = time.monotonic() + timeout_seconds
    code: int | None = None
    with process:
        try:
            output, errors, why = hear_out((process.stdin, process.stdout, process.stderr), text.encode(), deadline)
            if not why:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    code = process.wait(max(0.0, deadline - time.monotonic()))
        finally:
            # Also at Ctrl-C: it goes to us alone, since the command has a session of its own.
            if code is None:
                _kill_group(process.pid)
    if why and time.monotonic() < deadline:
        # Whatever it says itself: its pipe may have been closed a moment before it was ended.
        code, errors = -signal.SIGKILL, errors + f"\nit {why} and was ended".encode()
    return Finished(code, output.decode("utf-8", "replace"), errors.decode("utf-8", "replace"))


def catch(
    argv: Sequence[str],
    timeout_seconds: float,
    *,
    most_bytes: int,
    cwd: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Caught:
    """Run a short command for its output, byte for byte; one that writes too much or too long is ended. Raises nothing.

    What it complains about is kept in a file meanwhile, so that neither pipe can hold up the other.
    """
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
                cwd=cwd,
                env=None if environ is None else dict(environ),
            )
        except (OSError, ValueError) as error:
            return Caught(NOT_FOUND, b"", is_cut=False, errors=str(error))
        deadline = time.monotonic() + timeout_seconds
        code: int | None = None
        with process:
            try:
                output, is_whole = _read_until(cast("IO[bytes]", process.stdout).fileno(), deadline, most_bytes)
                if is_whole:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        code = process.wait(max(0.0, deadline - time.monotonic()))
            finally:
                if process.returncode is None:
                    _kill_group(process.pid)
        errors.seek(0)
        said = errors.read(_TAIL_BYTES).decode("utf-8", "replace")
    return Caught(code, output[:most_bytes], is_cut=len(output) > most_bytes, errors=said)


def _read_until(fd: int, deadline: float, most_bytes: int) -> tuple[bytes, bool]:
    """Read to the end of a pipe, a deadline or one byte more than wanted; and say whether its end was reached."""
    parts = bytearray()
    while len(parts) <= most_bytes:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([fd], [], [], left)[0]:
            return bytes(parts), False
        part = os.read(fd, 1 << 16)
        if not part:
            return bytes(parts), True
        parts += part
    return bytes(parts), False


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def become(argv: Sequence[str], environ: Mapping[str, str]) -> NoReturn:
    """Let a command take this process's place: the pid stays, and with it what is leased to it."""
    # Python ignores these, and what is ignored stays so over exec: `yes | head` would never end.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.execvpe(argv[0], list(argv), dict(environ))


def start_broker(
    arguments: Sequence[str] = (),
    *,
    environ: Mapping[str, str] | None = None,
    timeout_seconds: float = READY_WITHIN_SECONDS,
    is_there: Callable[[], bool] = lambda: False,
) -> None:
    """Start a broker of this user and return once it answers; raises the error it gives for not starting.

    Two at once start one: the second waits for the first, and then `is_there` tells it that nothing is left to do.
    """
    environ = os.environ if environ is None else environ
    state = paths.state_dir(environ)
    with _alone(paths.runtime_dir(environ), timeout_seconds):
        _reap()
        if is_there():
            return
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        log = state / "broker.log"
        listen, tell = os.pipe()
        try:
            _launch([*arguments, f"--ready-fd={tell}"], tell, log, environ)
        finally:
            os.close(tell)
        try:
            said = _hear(listen, timeout_seconds)
        finally:
            os.close(listen)
    if said != "ready":
        _reap()
        raise _why_not(said, log)


@contextlib.contextmanager
def _alone(folder: Path, timeout_seconds: float) -> Iterator[None]:
    """One starter of this user at a time; the kernel drops the lock with its process."""
    fd = os.open(
        paths.make_private(folder) / "start.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
    )
    deadline = time.monotonic() + timeout_seconds
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise BrokerUnavailable(
                        "Somebody else of this account has been starting the broker for long."
                    ) from None
                time.sleep(0.02)  # flock(2) has no deadline of its own
        yield
    finally:
        os.close(fd)


def _launch(arguments: list[str], tell: int, log: Path, environ: Mapping[str, str]) -> None:
    kept = {name: value for name, value in environ.items() if name.startswith(_OUR_WORDS) or not stays_out(name, value)}
    with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyter_gpu.broker.app", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            pass_fds=(tell,),
            start_new_session=True,
            # The caller's folder would come first on sys.path, and could not be unmounted while the broker lives.
            cwd="/",
            env=kept,
        )
    _started.add(process.pid)
    # It is meant to outlive us: without this Python would warn of a child that is forgotten while it runs.
    process.returncode = 0


def _reap() -> None:
    for pid in list(_started):
        try:
            has_ended = os.waitpid(pid, os.WNOHANG)[0] == pid
        except ChildProcessError:  # reaped by somebody else, or a child of the process that forked us
            has_ended = True
        if has_ended:
            _started.discard(pid)


#: What moves a broker aside or configures it goes on to it.
_OUR_WORDS = ("JUPYTER_GPU_RUNTIME_DIR", "JUPYTER_GPU_STATE_DIR", "JUPYTER_CONFIG_PATH", "JUPYTER_GPU_NVML")


def _hear(fd: int, timeout_seconds: float) -> str | None:
    """The one line that a starting broker says; "" where it died without a word, None where it says nothing."""
    deadline, said = time.monotonic() + timeout_seconds, b""
    while b"\n" not in said:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([fd], [], [], left)[0]:
            return None
        part = os.read(fd, 4096)
        if not part:
            break
        said += part
    return said.decode("utf-8", "replace").split("\n", maxsplit=1)[0].strip()


def _why_not(said: str | None, log: Path) -> GpuError:
    """The error that a broker gave for not starting: its code, message and hint, with tabs between."""
    if said is None:
        return BrokerUnavailable("The broker was started and does not answer.", hint=f"Its log may say why: {log}")
    code, tab, rest = said.partition("\t")
    message, _, hint = rest.partition("\t")
    if tab and message:
        kinds = {kind.code: kind for kind in TREE}
        return kinds.get(code, BrokerUnavailable)(message, hint=hint or None)
    return BrokerUnavailable(
        f"The broker ended at once: {said or _tail(log) or 'it said nothing.'}", hint=f"All of its log: {log}"
    )


def _tail(log: Path) -> str:
    """The last words of a log, in one line."""
    with contextlib.suppress(OSError):
        lines = log.read_bytes()[-_TAIL_BYTES:].decode("utf-8", "replace").split("\n")
        return " ".join(line.strip() for line in lines[-4:]).strip()
    return ""
