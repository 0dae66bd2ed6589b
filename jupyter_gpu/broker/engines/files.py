"""The small files of an attempt's folder: whole or not at all, and the started mark.

The folder is the record that broker and supervisor share; either may be killed at any moment. So every file
is written beside its name and then renamed, and the started mark comes into being by link(2), with its
content already inside: whoever makes it owns the attempt, everybody else sees EEXIST. Nothing here is synced
to disk save the outcome: a kill loses nothing, and after a power cut the boot id differs anyway.
Standard library only: the launcher imports it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time

from . import procs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: No room on the disk, for anybody or for this user.
FULL = (errno.ENOSPC, errno.EDQUOT)
SPEC = "spec.json"
MARK = "started"
ORDER = "order.json"
NOTICE = "notice.json"
OUTCOME = "outcome.json"
LOG = "log"
GAPS = "log.gaps"
#: Where its user reports progress to, and what of it is kept: the newest, and a curve.
PROGRESS_PIPE = "progress"
PROGRESS = "progress.json"
CURVE = "progress.curve.json"
_ORDER_BYTES = 1024
#: All but the spec are small; what is larger is not ours.
_MOST_BYTES = 2**20
#: So many entries of a list in an outcome, and so long a sentence.
MOST_NAMED = 100
LONGEST_DETAIL = 1000


def write_whole(path: str, content: Any, mode: int = 0o600) -> None:
    """Write JSON such that a reader sees all of it or what was there before."""
    _write_whole(path, json.dumps(content).encode(), mode)


def write_spec(folder: str, spec: Any, environment: dict[str, str], *, fresh: bool) -> None:
    """Write what an attempt starts from. Into a fresh folder, of which nobody knows yet, there is no hurry to be whole.

    The environment is the second line: what a user's variables hold is cut off as soon as it is read.
    """
    raw = f"{json.dumps(spec)}\n{json.dumps(environment)}\n".encode()
    if fresh:
        _write(f"{folder}/{SPEC}", raw, 0o600)
    else:
        _write_whole(f"{folder}/{SPEC}", raw, 0o600)


def read_spec(folder: str) -> dict[str, Any] | None:
    """Read the same, environment included; None where it is not there whole."""
    try:
        spec, environment = procs.slurp(f"{folder}/{SPEC}").splitlines()
        return {**json.loads(spec), "environment": json.loads(environment)}
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None


def forget_environment(folder: str) -> None:
    """Cut the environment off; what else a supervisor was told stays."""
    try:
        file = os.open(f"{folder}/{SPEC}", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        # By the open file: a broker that comes anew may just be putting another in its place.
        os.ftruncate(file, len(procs.read_all(file).partition(b"\n")[0]))
    finally:
        os.close(file)


def _write_whole(path: str, raw: bytes, mode: int) -> None:
    draft = f"{path}.{os.getpid()}"
    try:
        _write(draft, raw, mode)
        os.replace(draft, path)  # noqa: PTH105 - pathlib would double what the launcher has to import
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft)  # noqa: PTH108
        raise


def reserve_order(folder: str) -> None:
    """Take the room for an order, so that a job which has filled the disk can still be stopped."""
    _write(f"{folder}/{ORDER}", b" " * _ORDER_BYTES, 0o600, os.O_EXCL)


def write_order(folder: str, order: Any) -> None:
    """Write an order; on a full disk into the room that was taken for it."""
    path = f"{folder}/{ORDER}"
    try:
        write_whole(path, order)
    except OSError as error:
        if error.errno not in FULL:
            raise
        # Not a rename, so it could be read half-written: then it is no JSON, and is read again.
        with open(path, "r+b") as file:  # noqa: PTH123
            file.write(json.dumps(order).encode().ljust(_ORDER_BYTES))


def make_mark(folder: str, content: Any) -> bool:
    """Make the started mark; False where somebody else has made it. Never removed."""
    draft = f"{folder}/{MARK}.{os.getpid()}"
    try:
        _write(draft, json.dumps(content).encode(), 0o600)
        os.link(draft, f"{folder}/{MARK}")
    except FileExistsError:
        return False
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft)  # noqa: PTH108
    return True


def read(path: str) -> dict[str, Any] | None:
    """Read (the first line of) what one of the above has written; None where it is absent, damaged or too large."""
    try:
        raw = procs.slurp(path) if path.endswith(SPEC) else procs.slurp(path, _MOST_BYTES)
        content = json.loads(raw.partition(b"\n")[0].strip() or b"null")
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    except OSError as error:
        if error.errno != errno.EFBIG:
            raise
        return None
    return content if isinstance(content, dict) else None


def signature_of(path: str) -> tuple[int, int, int] | None:
    """What differs whenever the file was written anew; None where it is not there."""
    try:
        found = os.stat(path)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def never_started(detail: str) -> dict[str, Any]:
    """Make the outcome of an attempt called off in time: a preemption of it counts as one that was noticed."""
    return {"end": "cancelled", "detail": detail, "noticed": True, "gone": True, "ended_at": time.time()}


class Marks:
    """The started marks of one supervisor. They all say the same, so they are one file of many names."""

    def __init__(self, content: Any) -> None:
        self.content = content
        self._file = -1

    def make(self, folder: str) -> bool:
        """Make one more; False where somebody else has made it."""
        if self._file >= 0:
            try:
                # By the open file, not by an earlier name: what now has that name might be another's.
                os.link(f"/proc/self/fd/{self._file}", f"{folder}/{MARK}", src_dir_fd=self._file)
            except FileExistsError:
                return False
            except OSError:  # its folders were removed
                os.close(self._file)
                self._file = -1
            else:
                return True
        if not make_mark(folder, self.content):
            return False
        with contextlib.suppress(OSError):
            self._file = os.open(f"{folder}/{MARK}", os.O_RDONLY | os.O_CLOEXEC)
        return True


class Reserved:
    """A file whose room on the disk is taken now, so that a full disk later cannot keep it from being written."""

    def __init__(self, path: str, room_bytes: int = 4096) -> None:
        self._path, self._draft = path, f"{path}.{os.getpid()}"
        self._file = os.open(self._draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(self._file, 0, room_bytes)
        except OSError as error:  # some file systems cannot reserve; then it is as good as a plain file
            if error.errno in FULL:
                self.discard()
                raise

    def publish(self, content: Any) -> None:
        """Write it durably and give it its name. May be called again with other content after a failure."""
        raw = json.dumps(content).encode()
        os.pwrite(self._file, raw, 0)
        os.ftruncate(self._file, len(raw))
        os.fsync(self._file)
        os.replace(self._draft, self._path)  # noqa: PTH105

    def discard(self) -> None:
        """Give the room back unused."""
        os.unlink(self._draft)  # noqa: PTH108
        self.close()

    def close(self) -> None:
        """It is written for good."""
        os.close(self._file)


def _write(path: str, raw: bytes, mode: int, how: int = os.O_TRUNC) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | how, mode)
    try:
        if mode & 0o077:
            os.fchmod(file, mode)  # whatever the umask says
        if os.write(file, raw) < len(raw):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
    finally:
        os.close(file)
