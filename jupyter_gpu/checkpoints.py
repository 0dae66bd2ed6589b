"""Checkpoint folders on disk: what a training writes and what the supervisor reads. Standard library only.

`step-000000000042/` is complete when its marker `COMPLETE` is valid: JSON with step, attempt, at, and the
size of every file, so that a truncated one is found. `.tmp-*` is never a checkpoint, save a replaced one
whose successor did not arrive (`newest_complete` knows). `.fence` holds the number of the newest attempt
that writes here.

A save is: write into a draft, sync each file, the marker, the folder; rename; sync the parent; only then
remove what is older. So a kill or a power cut at any moment leaves the old newest one or the new one, and
nothing between. One process writes at a time; a reader may look at any moment.

The engine keeps this module in memory beside every job, so what only a writer needs is imported when one writes.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import operator
import os
import re
import stat
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

MARKER = "COMPLETE"
FENCE = ".fence"

_STEP = re.compile(r"(?:\.tmp-replaced-)?step-(\d{12})")
# kind, step, attempt, pid, start time of the writer, serial, node: enough to know whether it still lives
_DRAFT = re.compile(r"\.tmp-(step|file)-(\d{12})\.(\d+)\.(\d+)\.(\d+)\.\d+\.(.+)")
DAMAGED = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
#: What lies here is a user's, and the engine reads it: so much of it, and says so much of it, at most.
_LARGEST_MARKER = 2**20  # bytes
_MOST_NAMES = 100_000
_MOST_LOOKED_AT = 1000
_MOST_SKIPPED = 20
_LONGEST_REASON = 200
_serial = itertools.count()
_warned: set[str] = set()


class StaleAttempt(RuntimeError):  # noqa: N818 - our errors are named for what is wrong
    """A later attempt of this job writes here now; this one is late and must change nothing."""


def warn(text: str) -> None:
    """Say it on stderr, once."""
    if text not in _warned:
        _warned.add(text)
        with contextlib.suppress(Exception):
            sys.stderr.write(f"jupyter_gpu.training: {text}\n")


# --- reading --------------------------------------------------------------------------------------


def step_of(found: Path | None) -> int:
    """The step of a checkpoint folder; 0 for None, so that a loop may start from it."""
    return 0 if found is None else step_in(str(found))


def step_in(path: str) -> int:
    """The same of a path."""
    match = _STEP.fullmatch(os.path.basename(path))  # noqa: PTH119
    if match is None:
        raise ValueError(f"{path} is no checkpoint folder (they are called step-000000000042)")
    return int(match[1])


def newest_complete(home: Path) -> tuple[Path | None, list[str]]:
    """The highest step whose marker is valid, and what was skipped on the way to it. Changes nothing."""
    name, skipped = newest_name(home)
    return home / name if name else None, skipped


def newest_name(home: str | Path) -> tuple[str | None, list[str]]:
    """The same, by its name."""
    names, fence = _names_to_look_at(home), 0
    if not names:
        return None, []
    with contextlib.suppress(OSError):  # a reader can do without it
        fence = fence_of(home)
    drafts = [name for name in names if name.startswith(".tmp-step-")][:_MOST_LOOKED_AT]
    skipped = [f"{name}: its writer died before it was complete" for name in drafts if _is_dead(name, fence, "step")]
    # A kill between the two renames of a replacement leaves the old one under its replaced name: it still
    # counts. At the same step the plain name sorts behind ".tmp-", so reversed it comes first.
    steps = sorted((name for name in names if _STEP.fullmatch(name)), key=lambda name: (name[-12:], name), reverse=True)
    newest = None
    for name in steps[:_MOST_LOOKED_AT]:
        wrong = fault(os.path.join(home, name))  # noqa: PTH118
        if wrong is None:
            newest = name
            break
        skipped.append(f"{name}: {wrong}")
    return newest, _bounded(skipped)


def _names_to_look_at(home: str | Path) -> list[str]:
    """The names in a folder, however many somebody has put there."""
    try:
        with os.scandir(home) as entries:
            return sorted(entry.name for entry in itertools.islice(entries, _MOST_NAMES))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _bounded(skipped: list[str]) -> list[str]:
    told = [text[:_LONGEST_REASON] for text in skipped[:_MOST_SKIPPED]]
    return [*told, f"and {len(skipped) - len(told)} more"] if len(skipped) > len(told) else told


def fault(path: str | Path) -> str | None:
    """Why this is not a complete checkpoint, or None."""
    try:
        marker = load(os.path.join(path, MARKER))  # noqa: PTH118
        if type(marker["step"]) is not int:
            return f"its {MARKER} marker names no step"
        if marker["step"] != step_in(os.fspath(path)):
            return f"its {MARKER} marker is of step {marker['step']}"
        for name, size in marker["files"].items():
            there = os.lstat(os.path.join(path, name)).st_size  # noqa: PTH118
            if there != size:
                return f"{name} has {there} of {size} bytes"
    except FileNotFoundError as error:
        missing = os.path.relpath(os.fsdecode(error.filename), path)
        return f"it has no {MARKER} marker" if missing == MARKER else f"{missing} is missing"
    except OSError as error:
        return f"it cannot be read: {error}"
    except DAMAGED:
        return f"its {MARKER} marker cannot be read"
    return None


def fence_of(home: str | Path) -> int:
    """The newest attempt that has written here, 0 for none."""
    try:
        return int(load(os.path.join(home, FENCE))["attempt"])  # noqa: PTH118
    except (FileNotFoundError, NotADirectoryError, *DAMAGED):
        return 0


def load(path: str) -> Any:
    """Read a small JSON file. What lies there is the user's: a pipe or a link must not make the engine wait."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(file, "rb") as content:
        raw = content.read(_LARGEST_MARKER + 1)
    if len(raw) > _LARGEST_MARKER:
        raise ValueError("too large to be ours")
    return json.loads(raw)


def names_in(home: str | Path) -> list[str]:
    """All names in a folder, in order; none where it is not there."""
    try:
        return sorted(os.listdir(home))  # noqa: PTH208 - names, not paths
    except (FileNotFoundError, NotADirectoryError):
        return []


def _started(pid: int) -> int:
    """The start time of a process, in ticks since boot; with the pid it names the process for good."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def _is_dead(name: str, fence: int, *kinds: str) -> bool:
    """Whether a draft of one of these kinds has lost its writer."""
    match = _DRAFT.fullmatch(name)
    if match is None or match[1] not in kinds:
        return False
    if int(match[3]) < fence:
        return True
    return match[6] == os.uname().nodename and _started(int(match[4])) != int(match[5])


# --- writing --------------------------------------------------------------------------------------


class Writer:
    """One attempt's right to write into one checkpoint folder."""

    def __init__(self, home: Path, attempt: int) -> None:
        # Now: where a save fails of too many open files they could not be found.
        import shutil  # noqa: F401, PLC0415

        from . import training_pruning  # noqa: PLC0415

        self.home = home
        self.attempt = attempt
        self._pruning = training_pruning

    @contextlib.contextmanager
    def checkpoint(
        self, step: int, keep: int | None, *, keep_every: int | None = None, max_age_seconds: float | None = None
    ) -> Iterator[Path]:
        """Give a draft to write into; after the block it is a complete checkpoint, or gone."""
        step = operator.index(step)
        if not 0 <= step < 10**12:
            raise ValueError(f"step must be 0 or more and of at most twelve digits, not {step}")
        rules = self._pruning.Rules(keep, keep_every, max_age_seconds)
        rules.check()
        self.claim()
        self.tidy()
        draft = self._draft("step", step)
        try:
            draft.mkdir()
            yield draft
            self._seal(draft, step)
            self.claim()  # again: writing took its time, and a later attempt may have begun since
            _publish(draft, self._final(step))
        except BaseException as error:
            with contextlib.suppress(OSError):
                discard(draft)
            if isinstance(error, Exception) and not isinstance(error, StaleAttempt):
                with contextlib.suppress(OSError):
                    error.add_note(self._explain(error, step))
            raise
        with contextlib.suppress(OSError):  # the save has succeeded: nothing after it may fail it
            self._pruning.prune(self.home, step, rules)

    def claim(self) -> None:
        """Refuse a writer of an earlier attempt; record ours where it is the newest."""
        recorded = fence_of(self.home)
        if recorded > self.attempt:
            me = f"attempt {self.attempt}" if self.attempt else "a process outside of any attempt"
            raise StaleAttempt(
                f"Attempt {recorded} of this job writes to {self.home} now, so {me} may not save there. "
                "Nothing was changed. End this process; to go on from these checkpoints, copy them elsewhere."
            )
        if recorded < self.attempt:
            self.write_whole(FENCE, {"attempt": self.attempt, "at": time.time()})

    def tidy(self) -> None:
        """Clear away what writers that died have left."""
        for name in names_in(self.home):
            path = self.home / name
            with contextlib.suppress(OSError):
                if name.startswith(".tmp-replaced-"):
                    final = self.home / name.removeprefix(".tmp-replaced-")
                    if fault(final) is None or fault(path) is not None:
                        discard(path)
                    else:
                        discard(final)
                        path.rename(final)
                elif _is_dead(name, self.attempt, "step", "file"):
                    discard(path)

    def write_whole(self, name: str, content: dict[str, Any]) -> None:
        """Write a small file such that a reader sees all of it or none."""
        draft = self._draft("file")
        try:
            _write(draft, json.dumps(content).encode())
            draft.replace(self.home / name)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        _sync_folder(self.home)

    def _draft(self, kind: str, step: int = 0) -> Path:
        pid, node = os.getpid(), os.uname().nodename
        writer = f"{self.attempt}.{pid}.{_started(pid)}.{next(_serial)}.{node}"
        return self.home / f".tmp-{kind}-{step:012d}.{writer}"

    def _final(self, step: int) -> Path:
        return self.home / f"step-{step:012d}"

    def _seal(self, draft: Path, step: int) -> None:
        """Make every file durable, then the marker that says so."""
        if os.path.lexists(draft / MARKER):
            raise ValueError(f"{MARKER} is the marker of a complete checkpoint: use another file name")
        sizes: dict[str, int] = {}
        for root, _, names in os.walk(draft, topdown=False):
            for path in (os.path.join(root, name) for name in names):  # noqa: PTH118
                if stat.S_ISREG(os.lstat(path).st_mode):
                    sizes[os.path.relpath(path, draft)] = _sync(path)
            _sync_folder(root)
        if not sizes:
            raise ValueError("nothing was written into the checkpoint folder before the end of its block")
        marker = json.dumps({"step": step, "attempt": self.attempt, "at": time.time(), "files": sizes}).encode()
        if len(marker) > _LARGEST_MARKER:
            raise ValueError(f"{len(sizes)} files are too many for one checkpoint: put them into fewer")
        _write(draft / MARKER, marker)
        _sync_folder(draft)

    def _explain(self, error: Exception, step: int) -> str:
        import shutil  # noqa: PLC0415

        before = newest_complete(self.home)[0]
        text = f"The checkpoint of step {step} was not saved. "
        text += f"The newest complete one is intact: {before}." if before else "There is none yet."
        text += f" Free on that disk: {shutil.disk_usage(self.home).free / 2**30:.2f} GiB."
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            full = "The disk is full" if error.errno == errno.ENOSPC else "Your quota on that disk is used up"
            text += f" {full}: free some space, keep fewer checkpoints (keep=1), or save less in each."
        return text


def _publish(draft: Path, final: Path) -> None:
    """The one moment in which the checkpoint begins to exist."""
    aside = final.with_name(f".tmp-replaced-{final.name}")
    replacing = os.path.lexists(final)
    if replacing:
        final.rename(aside)
    try:
        draft.rename(final)
    except BaseException:
        if replacing and not os.path.lexists(final):
            aside.rename(final)
        raise
    _sync_folder(final.parent)  # before anything older is removed
    if replacing:
        with contextlib.suppress(OSError):
            discard(aside)


def discard(path: Path) -> None:
    """Remove it, whatever it is."""
    if path.is_dir() and not path.is_symlink():
        import shutil  # noqa: PLC0415

        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _write(path: Path, content: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        while content:
            content = content[os.write(file, content) :]
        os.fsync(file)
    finally:
        os.close(file)


def _sync(path: str | Path) -> int:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
        return os.fstat(file).st_size
    finally:
        os.close(file)


def _sync_folder(path: str | Path) -> None:
    try:
        _sync(path)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network disks cannot sync a folder
            raise
