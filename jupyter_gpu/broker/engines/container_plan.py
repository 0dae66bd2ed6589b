"""What a supervisor must know to run an attempt in a container: drawn up by the broker, and part of the spec."""

from __future__ import annotations

import os
from typing import Any

from ...model import JobSpec
from . import command, containers
from .accounts import Account
from .base import Attempt


def engine_of(spec: JobSpec) -> str:
    """By which engine a job runs; empty for none."""
    return "" if spec.image is None else spec.container_engine or ""


def plan(
    attempt: Attempt, folder: str, name: str, account: Account, environment: dict[str, str]
) -> dict[str, Any] | None:
    """Draw it up; None where the job wants no container.

    Where what is inside stands is where it stands outside: the working folder, the copy of the script, and the folder
    of the attempt with the notice (which is written anew beside its old name, so the file alone could not be shown).
    """
    spec = attempt.spec
    if spec.image is None:
        return None
    engine = engine_of(spec)
    working = command.text(spec.folder)
    shown = [folder] if spec.script_copy is None else [folder, command.text(spec.script_copy)]
    mounts = [list(containers.parsed(command.text(mount))) for mount in spec.mounts]
    uid, gid = (os.geteuid(), os.getegid()) if account.uid is None else (account.uid, account.gid)
    return {
        "engine": engine,
        "image": spec.image,
        "name": name,
        "user": f"{uid}:{gid}",
        "groups": [group for group in _groups(account) if group != gid],
        "folder": working,
        "binds": [[working, working, False], *([place, place, True] for place in shown), *mounts],
        # A simulated one is no device of this machine.
        "devices": [device.uuid for device in attempt.devices if not device.simulated],
        "shared_bytes": _shared_bytes(),
        "core_dumps": spec.core_dumps,
        "client": containers.clients(engine, environment | {"PATH": search_path()}),
    }


def search_path() -> str:
    """Where engines are found: where the broker's own programs are, for a job's PATH may lead to anything."""
    return os.environ.get("PATH") or os.defpath


def _groups(account: Account) -> list[int]:
    return sorted(os.getgroups() if account.uid is None else account.groups)


def _shared_bytes() -> int:
    """What /dev/shm may come to: half of the memory, as on the machine itself; it is taken only as it is filled.

    Docker's 64 MiB are too few for the workers of one data loader (pytorch/pytorch#5040); to share the machine's own
    would show a job what others keep there.
    """
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
