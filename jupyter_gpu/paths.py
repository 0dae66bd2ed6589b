"""Where a broker keeps its socket, its lock and its state; the faces look in the same places.

JUPYTER_GPU_RUNTIME_DIR and JUPYTER_GPU_STATE_DIR move both aside, for tests, demos and pilots: then nothing else is
looked at, so a face under test never meets the machine's own broker. All answers depend only on the environment, the
user id and what stands on the disk, so a broker and a face of the same user always agree.
"""

from __future__ import annotations

import hashlib
import os
import socket
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from .errors import NotAllowed

SYSTEM_RUNTIME_DIR = Path("/run/jupyter-gpu")
SYSTEM_STATE_DIR = Path("/var/lib/jupyter-gpu")
SOCKET_NAME = "broker.sock"
#: sun_path has 108 bytes and ends in a zero.
LONGEST_SOCKET_BYTES = 107


def runtime_dir(environ: Mapping[str, str] = os.environ, uid: int | None = None) -> Path:
    """The folder of a user's socket: private, gone after a reboot."""
    if moved := environ.get("JUPYTER_GPU_RUNTIME_DIR"):
        return Path(moved).absolute()
    uid = os.geteuid() if uid is None else uid
    # `sudo` and `su` may leave XDG_RUNTIME_DIR pointing at somebody else's folder, and cron leaves it unset although
    # the folder is there: all sessions of one user must end up in the same place.
    for base in (environ.get("XDG_RUNTIME_DIR"), f"/run/user/{uid}"):
        if base and _is_own_folder(Path(base), uid):
            return Path(base) / "jupyter-gpu"
    return short_dir(uid)


def short_dir(uid: int | None = None) -> Path:
    """A private folder with a short path, where there is no runtime folder or its path is too long for a socket."""
    return _temp_dir() / f"jupyter-gpu-{os.geteuid() if uid is None else uid}"


def state_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of a user's store and attempts; one for each machine, since a home may be shared by several."""
    if moved := environ.get("JUPYTER_GPU_STATE_DIR"):
        return Path(moved).absolute()
    # Not before it is needed: jupyter_core is slow to import, and most faces only want a socket.
    from jupyter_core.paths import jupyter_data_dir  # noqa: PLC0415

    return Path(jupyter_data_dir()) / "gpu" / machine_id()


def user_socket(environ: Mapping[str, str] = os.environ, uid: int | None = None) -> Path:
    """The socket of this user's embedded broker."""
    return fitting(runtime_dir(environ, uid) / SOCKET_NAME, uid)


def system_socket(environ: Mapping[str, str] = os.environ) -> Path:
    """The socket of the machine's shared broker; aside like all others where a runtime folder is named."""
    if moved := environ.get("JUPYTER_GPU_RUNTIME_DIR"):
        return fitting(Path(moved).absolute() / SOCKET_NAME)
    return SYSTEM_RUNTIME_DIR / SOCKET_NAME


def fitting(path: Path, uid: int | None = None) -> Path:
    """The path itself, or, where the kernel would refuse its length, the short one that stands for it."""
    raw = os.fsencode(path)
    if len(raw) <= LONGEST_SOCKET_BYTES:
        return path
    return short_dir(uid) / f"{hashlib.sha256(raw).hexdigest()[:16]}.sock"


def machine_lock() -> Path:
    """The file that the one broker of this machine keeps locked.

    The same for every user, so it cannot depend on TMPDIR or on who asks: where only root may write to /run/lock,
    root too uses the temp folder.
    """
    folder = Path("/run/lock")
    try:
        open_to_all = bool(folder.stat().st_mode & stat.S_IWOTH)
    except OSError:
        open_to_all = False
    return (folder if open_to_all else _temp_dir()) / "jupyter-gpu.lock"


def machine_id() -> str:
    """Twelve hex digits that name this machine. Derived, since the machine's own id is meant to stay on it."""
    try:
        name = Path("/etc/machine-id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        name = ""
    return hashlib.sha256(b"jupyter-gpu " + (name or socket.gethostname()).encode()).hexdigest()[:12]


def make_private(folder: Path) -> Path:
    """Make a folder that only this user enters, or check that it is one; nobody plants a socket in it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise NotAllowed(
                f"{folder} is not a folder of user {os.geteuid()}, so a socket in it could be anybody's.",
                hint="Remove it, or name another folder in JUPYTER_GPU_RUNTIME_DIR.",
            ) from None
        if stat.S_IMODE(found.st_mode) & 0o077:
            folder.chmod(0o700)
    return folder


def _temp_dir() -> Path:
    # Not TMPDIR first: batch systems set it anew for each job, and two sessions would never meet.
    return Path("/tmp") if Path("/tmp").is_dir() else Path(tempfile.gettempdir())  # noqa: S108


def _is_own_folder(path: Path, uid: int) -> bool:
    try:
        found = path.stat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == uid
