"""Where a job that is submitted again goes on from: the newest complete checkpoint of the other one, in a new folder.

Both write into folders of their own: two jobs in one folder would take each other for late attempts. The files of a
complete checkpoint never change, so they are linked where the disk can, and copied where it cannot.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import uuid
from pathlib import Path

from ..checkpoints import newest_complete
from ..errors import InvalidAsk

#: Of the number of a step.
_DIGITS = 12


def checkpoints_of(folder: str, named: str | None, workload: int) -> Path:
    """Where the checkpoints of a job lie: in the folder that it named, else in its own one."""
    return Path(folder, f".jupyter-gpu/job-{workload}" if named is None else named)


def newest_of(home: Path, workload: int) -> Path:
    """The newest complete checkpoint of a job, or a refusal."""
    newest, _ = newest_complete(home)
    if newest is None:
        raise InvalidAsk(
            f"Job {workload} has no complete checkpoint in {os.fspath(home)!r}.",
            hint="Leave --resume out to begin anew.",
        )
    return newest


def take_over(home: Path, folder: str, workload: int, key: str | None) -> str:
    """Bring the newest complete checkpoint into a new folder, and give its name as seen from `folder`."""
    newest = newest_of(home, workload)
    mark = uuid.uuid4().hex[:8] if key is None else hashlib.sha256(os.fsencode(key)).hexdigest()[:8]
    name = f".jupyter-gpu/from-{workload}-{mark}"
    # Not by its own name, which may be that of one whose successor did not arrive.
    place = Path(folder, name, f"step-{newest.name[-_DIGITS:]}")
    if not place.is_dir():
        draft = place.with_name(f".{place.name}.{uuid.uuid4().hex[:8]}")
        try:
            shutil.copytree(newest, draft, copy_function=_link)
            draft.rename(place)
        except (OSError, shutil.Error) as error:
            shutil.rmtree(draft, ignore_errors=True)
            raise InvalidAsk(
                f"The checkpoint {newest.name} of job {workload} cannot be taken over: {error}.",
                hint=f"Where job {workload} still runs, it may have removed it: try again.",
            ) from None
    return name


def _link(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target
