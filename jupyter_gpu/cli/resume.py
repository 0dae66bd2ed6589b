"""Where a job that is submitted again goes on from: the newest complete checkpoint of the other one, in a new folder.

Both write into folders of their own: two jobs in one folder would take each other for late attempts. The files of a
complete checkpoint never change, so they are linked where the disk can, and copied where it cannot.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

from ..checkpoints import newest_complete
from ..errors import BrokerUnavailable, GpuError, InvalidAsk, StoreUnavailable

#: Of the number of a step.
_DIGITS = 12
_OURS = ".jupyter-gpu"


def checkpoints_of(folder: str, named: str | None, workload: int) -> Path:
    """Where the checkpoints of a job lie: in the folder that it named, else in its own one."""
    return Path(folder, f"{_OURS}/job-{workload}" if named is None else named)


def newest_of(home: Path, workload: int) -> Path:
    """The newest complete checkpoint of a job, or a refusal."""
    newest, _ = newest_complete(home)
    if newest is None:
        raise InvalidAsk(
            f"Job {workload} has no complete checkpoint in {os.fspath(home)!r}.",
            hint="Leave --resume out to begin anew.",
        )
    return newest


def name_for(workload: int, key: str | None) -> str:
    """What the new folder is called as seen from the job's; with a key always the same, so that it stays one job."""
    mark = uuid.uuid4().hex[:8] if key is None else hashlib.sha256(os.fsencode(key)).hexdigest()[:8]
    return f"{_OURS}/from-{workload}-{mark}"


@contextlib.contextmanager
def taken_over(home: Path, folder: str, name: str, workload: int) -> Iterator[None]:
    """Bring the newest complete checkpoint into the folder of this name; it goes again if its job is refused."""
    own = Path(folder, name)
    is_new = not os.path.lexists(own)
    try:
        _take_over(newest_of(home, workload), own, workload)
        yield
    except (BrokerUnavailable, StoreUnavailable):  # the job may be there all the same
        raise
    except GpuError:
        if is_new:
            shutil.rmtree(own, ignore_errors=True)
        raise


def _take_over(newest: Path, own: Path, workload: int) -> None:
    # Not by its own name, which may be that of one whose successor did not arrive.
    place = own / f"step-{newest.name[-_DIGITS:]}"
    draft = own / f".{place.name}.{uuid.uuid4().hex[:8]}"
    try:
        _refuse_links_of_others(own)
        own.mkdir(parents=True, exist_ok=True)
        _refuse_anothers(newest, own)
        if not place.is_dir():
            shutil.copytree(newest, draft, symlinks=True, copy_function=_link)
            draft.rename(place)
    except (OSError, shutil.Error) as error:
        shutil.rmtree(draft, ignore_errors=True)
        raise InvalidAsk(
            f"The checkpoint {newest.name} of job {workload} cannot be taken over: {error}.",
            hint=f"Where job {workload} still runs, it may have removed it: try again.",
        ) from None


def _refuse_links_of_others(own: Path) -> None:
    """Nothing is written to where somebody else's link leads."""
    for place in (own.parent, own):
        if place.is_symlink() and place.lstat().st_uid != os.geteuid():
            raise InvalidAsk(f"{os.fspath(place)!r} is a link of another account's.", hint="Remove it first.")


def _refuse_anothers(newest: Path, own: Path) -> None:
    """Only what this account wrote is linked and copied. Compared with what it makes: a disk may rename owners."""
    mine = own.stat().st_uid
    if {newest.lstat().st_uid, newest.stat().st_uid} != {mine}:
        raise InvalidAsk(
            f"The checkpoint {os.fspath(newest)!r} belongs to another account.",
            hint="Copy it into a folder of yours and name that with --checkpoint-dir, without --resume.",
        )


def _link(source: str, target: str) -> str:
    """Links are made anew as links by whoever calls; what became one meanwhile is not followed either."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)
    return target
