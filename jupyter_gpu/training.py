"""What a training imports: a checkpoint folder, should_stop, report. Standard library only, no network.

    found = training.latest()
    if found: ...load(found)...
    for step in range(training.step_of(found), steps):
        ...train one step...
        stop = training.should_stop()
        if stop or (step + 1) % 100 == 0:
            with training.checkpoint(step + 1) as folder:
                ...save(folder)...
        if stop:
            training.yield_now()
    training.finished()

Outside of a job it is a plain local helper: checkpoints lie in `./.jupyter-gpu/local/`, and only SIGTERM asks
to stop. In the checkpoint folder it also writes `progress.<attempt>.jsonl` and `finished.<attempt>`; how
checkpoints lie there, `checkpoints.py` says. What is reported in a job goes to the broker as well. Of several
processes of one training only one (rank 0) saves, reports and finishes.
"""

import atexit
import contextlib
import json
import math
import os
import signal
import sys
import threading
import time
from contextlib import AbstractContextManager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from .checkpoints import StaleAttempt, Writer, fault, newest_complete, step_of, warn

__all__ = [
    "EXIT_DO_NOT_RETRY",
    "EXIT_REQUEUE",
    "StaleAttempt",
    "checkpoint",
    "checkpoint_dir",
    "finished",
    "latest",
    "parameters",
    "report",
    "should_stop",
    "step_of",
    "time_left",
    "yield_now",
]

EXIT_REQUEUE = 75  # asks to be requeued
EXIT_DO_NOT_RETRY = 93  # asks not to be retried

_LOOK_EVERY = 0.2  # seconds between two looks for the notice file: it may lie on a slow shared disk
_REPORT_EVERY = 1.0
_MESSAGE_BYTES = 4096  # what is written to a pipe at once is never mixed with what others write


# --- checkpoints ----------------------------------------------------------------------------------


def _attempt() -> int:
    value = os.environ.get("JUPYTER_GPU_ATTEMPT", "")
    return int(value) if value.isdecimal() else 0


def checkpoint_dir() -> Path:
    """The folder of this job's checkpoints; it exists when this returns."""
    given = os.environ.get("JUPYTER_GPU_CHECKPOINT_DIR")
    ours = Path.cwd() / ".jupyter-gpu"
    folder = Path(given) if given else ours / "local"
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        if not given:
            with contextlib.suppress(OSError):  # checkpoints do not belong into anybody's git history
                (ours / ".gitignore").write_text("*\n")
    return folder


def latest() -> Path | None:
    """The newest complete checkpoint; half-written ones are skipped and named on stderr.

    Where this job has none of its own yet, the one in JUPYTER_GPU_RESUME_FROM.
    """
    home = checkpoint_dir()
    if _attempt():  # we build on what lies there now, so an earlier attempt must not add to it any more
        with contextlib.suppress(OSError):
            Writer(home, _attempt()).claim()
    found, skipped = newest_complete(home)
    for text in skipped:
        warn(f"skipped a half-written checkpoint in {home}: {text}")
    given = os.environ.get("JUPYTER_GPU_RESUME_FROM")
    if found is not None or not given:
        return found
    wrong = fault(Path(given))
    if wrong is None:
        return Path(given)
    warn(f"skipped the checkpoint to resume from, {given}: {wrong}")
    return None


def checkpoint(
    step: int, *, keep: int | None = 2, keep_every: int | None = None, max_age_seconds: float | None = None
) -> AbstractContextManager[Path]:
    """Save: write what you need into the folder this gives; after the block it is complete and durable.

    `step` is the number of steps done. The last `keep` complete ones stay (None: all of them), and each whose step is
    a multiple of `keep_every`. Of these, what is older than `max_age_seconds` goes. The newest always stays.
    """
    writer = Writer(checkpoint_dir(), _attempt())
    return writer.checkpoint(step, keep, keep_every=keep_every, max_age_seconds=max_age_seconds)


def parameters() -> dict[str, Any]:
    """What this job was submitted with: of a notebook its parameters, of an array's member what tells it apart.

    `parameters().get("lr", 0.01)` works outside of a job too, where there are none.
    """
    found = json.loads(os.environ.get("JUPYTER_GPU_PARAMETERS") or "{}")
    return dict(found)


# --- stopping -------------------------------------------------------------------------------------


class _Watch:
    """What this process knows about its notice."""

    stopping = False
    look_at = 0.0
    installed = False
    previous: Any = signal.SIG_DFL

    def __init__(self) -> None:
        self.fork = threading.local()

    def look(self) -> bool:
        self.look_at = time.monotonic() + _LOOK_EVERY
        if not self.installed and threading.current_thread() is threading.main_thread():
            # None would be a handler that Python did not set; it can neither be called nor restored.
            self.previous = signal.getsignal(signal.SIGTERM) or signal.SIG_DFL
            self.installed = True
            signal.signal(signal.SIGTERM, self.on_sigterm)
        path = os.environ.get("JUPYTER_GPU_NOTICE_FILE")
        if path and Path(path).exists():
            self.stopping = True
        return self.stopping

    def on_sigterm(self, number: int, frame: FrameType | None) -> None:
        self.stopping = True
        if callable(self.previous):
            self.previous(number, frame)

    # A forked data-loader worker must die of SIGTERM as it always did, or closing its pool would hang; also
    # when the signal arrives before the child has its old handler back, hence the blocking.

    def before_fork(self) -> None:
        self.fork.mask = None
        if self.installed:
            self.fork.mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])

    def after_fork(self) -> None:
        if self.fork.mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, self.fork.mask)

    def after_fork_in_child(self) -> None:
        if self.installed:
            self.installed = False
            self.look_at = 0.0
            if signal.getsignal(signal.SIGTERM) == self.on_sigterm:
                signal.signal(signal.SIGTERM, self.previous)
        self.after_fork()


_watch = _Watch()
os.register_at_fork(
    before=_watch.before_fork,
    after_in_parent=_watch.after_fork,
    after_in_child=_watch.after_fork_in_child,
)


def should_stop() -> bool:
    """True once notice was given or SIGTERM came: save, then `yield_now()`. Cheap enough for every step.

    The first call in the main thread takes over SIGTERM; a handler that was there before still runs.
    """
    if _watch.stopping:
        return True
    if time.monotonic() < _watch.look_at:
        return False
    return _watch.look()


def time_left() -> float | None:
    """Seconds until the notice's deadline or the job's, whichever is sooner; None where there is neither."""
    found: list[float] = []
    with contextlib.suppress(ValueError):
        found.append(float(os.environ.get("JUPYTER_GPU_DEADLINE", "")))
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        notice = Path(os.environ["JUPYTER_GPU_NOTICE_FILE"]).read_bytes()
        found.append(float(json.loads(notice)["deadline"]))
    return max(0.0, min(found) - time.time()) if found else None


def yield_now() -> NoReturn:
    """Leave, and ask to be requeued. Save first."""
    _reports.flush()
    sys.exit(EXIT_REQUEUE)


def finished() -> None:
    """The work is done and its results are saved: a preemption that comes now does not requeue."""
    _reports.flush()
    try:
        Writer(checkpoint_dir(), _attempt()).write_whole(f"finished.{_attempt()}", {"at": time.time()})
    except OSError as error:  # harmless: at worst another attempt resumes at the end and finishes at once
        warn(f"could not mark the job as finished: {error}")


# --- progress -------------------------------------------------------------------------------------


class _Reports:
    """Progress lines, at most one a second; the last one is written at the end."""

    next_at = 0.0
    waiting: dict[str, Any] | None = None
    hooked = False

    def add(self, step: int, of: int | None, numbers: dict[str, Any]) -> None:
        if not self.hooked:
            self.hooked = True
            atexit.register(self.flush)
        line = {"at": round(time.time(), 3), "attempt": _attempt(), "step": step, "of": of}
        if time.monotonic() < self.next_at and (of is None or step < of):
            # A tensor kept here would keep its graph, and reading it waits for the GPU: plain numbers only.
            self.waiting = line | {"numbers": {k: v for k, v in numbers.items() if type(v) in (int, float)}}
            return
        self.next_at = time.monotonic() + _REPORT_EVERY
        self.waiting = line | {"numbers": numbers}
        self.flush()

    def flush(self) -> None:
        line, self.waiting = self.waiting, None
        if line is None:
            return
        try:
            line["step"], line["of"] = int(line["step"]), None if line["of"] is None else int(line["of"])
            line["numbers"] = {name: _plain(value) for name, value in line["numbers"].items()}
            _tell(line)
            path = checkpoint_dir() / f"progress.{line['attempt']}.jsonl"
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            try:
                os.write(file, json.dumps(line).encode() + b"\n")
            finally:
                os.close(file)
        except Exception as error:  # noqa: BLE001 - a progress line must never end a training
            warn(f"could not report progress: {error}")

    def after_fork(self) -> None:
        self.waiting = None


def _tell(line: dict[str, Any]) -> None:
    """Let the broker know, where this is a job. Nothing waits for it: what it does not take now is dropped."""
    path = os.environ.get("JUPYTER_GPU_PROGRESS_FILE")
    if not path:
        return
    raw = json.dumps(line).encode() + b"\n"
    if len(raw) > _MESSAGE_BYTES:
        raw = json.dumps(line | {"numbers": {}}).encode() + b"\n"
    with contextlib.suppress(OSError):
        file = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(file, raw)
        finally:
            os.close(file)


def _plain(value: Any) -> int | float | None:
    """A number for JSON, from any library's scalar; null for one that is not finite."""
    # item() first: PyTorch warns of float() where a loss still has its graph.
    number = value if isinstance(value, int) else float(value.item() if hasattr(value, "item") else value)
    return number if math.isfinite(number) else None


_reports = _Reports()
os.register_at_fork(after_in_child=_reports.after_fork)


def report(step: int, of: int | None = None, **numbers: Any) -> None:
    """Tell how far the training is: `report(120, of=1000, loss=0.3)`. Call it each step; it never raises."""
    try:
        _reports.add(step, of, numbers)
    except Exception as error:  # noqa: BLE001 - a progress line must never end a training
        warn(f"could not report progress: {error}")
