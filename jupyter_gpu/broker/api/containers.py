"""What a job that wants a container must bring: an image and mounts that can be meant, and an engine that is there.

Mounts are looked at as the account, and what they come to is what is mounted. More need not be held against one who
puts a link in the place of a folder later: the engine runs as that account too, never as root, so it reaches what the
account may reach in a shell.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import stat
from collections.abc import Iterable

import msgspec

from ...environment import unpacked
from ...errors import InvalidAsk, LimitExceeded, NotAllowed
from ...model import ContainerRules, JobSpec, pack_bytes
from ..engines import container_asks, container_plan, containers
from .account import ASKED_WITHIN_SECONDS, Account, Looks

MOST_MOUNTS = 64
LONGEST_IMAGE = 400
# What begins with a dash would be an option.
_IMAGE = re.compile(r"[A-Za-z0-9][\w.:/@+-]*|/[^\x00-\x1f\x7f]+", re.ASCII)
#: Of the machine itself, and what its own services listen at: nobody's data.
_KERNELS = ("/dev", "/proc", "/sys")
_SERVICES = ("/run", "/var/run")
#: What the image brings: a folder of the machine in its place would leave it without programs.
_IMAGES_OWN = ("/bin", "/etc", "/lib", "/lib64", "/sbin", "/usr", "/usr/bin", "/usr/lib")


async def with_container(looks: Looks, account: Account, spec: JobSpec, rules: ContainerRules) -> JobSpec:
    """Check what a job says of its container, and settle which engine runs it; a job without one stays as it is."""
    if spec.image is None:
        if spec.mounts or spec.container_engine is not None:
            what = "mounts" if spec.mounts else "container_engine"
            raise InvalidAsk(f"{what} is given without an image.", hint="Name one: --image pytorch/pytorch:latest.")
        return spec
    _check_image(spec.image, rules)
    _check_folders(spec)
    mounts = tuple(_parsed(index, mount) for index, mount in enumerate(spec.mounts))
    _check_targets((target for _, target, _ in mounts), os.fsdecode(unpacked(spec.folder, "folder")))
    look = await looks.look(account, (spec.image, mounts), functools.partial(_looked_at, spec.image, mounts))
    engine = await _engine(looks, account, spec, rules)
    return msgspec.structs.replace(
        spec,
        container_engine=engine,
        mounts=tuple(
            pack_bytes(os.fsencode(f"{source}:{target}{':ro' if is_read_only else ''}"))
            for source, target, is_read_only in (mounts if look is None else look)
        ),
    )


# -- the image


def _check_image(image: str, rules: ContainerRules) -> None:
    # Nor does a way up belong into one: it would lead out of what a pattern of the admin's allows.
    if len(image) > LONGEST_IMAGE or not _IMAGE.fullmatch(image) or ".." in image.split("/"):
        raise InvalidAsk(
            f"image: {image[:60]!a} is no name of an image.", hint="Give one like python:3.12 or registry.lab/torch:2."
        )
    if not rules.engines:
        raise NotAllowed("Jobs do not run in containers here.", hint="An admin names engines in policy.containers.")
    if not rules.allows(image):
        allowed = ", ".join(rules.images[:10]) or "none"
        raise NotAllowed(f"The image {image} is not among those that may run here: {allowed}.", hint="Use one of them.")


# -- the folders


def _check_folders(spec: JobSpec) -> None:
    """The working folder stands inside where it stands outside, so it must be one that can."""
    for what, packed in (("folder", spec.folder), ("checkpoint_dir", spec.checkpoint_dir)):
        raw = b"" if packed is None else unpacked(packed, what)
        if containers.NO_PATH.search(raw):
            raise InvalidAsk(
                f"{what}: a path with commas, colons, quotes or control characters cannot be given to a container "
                "engine.",
                hint="Submit from another folder.",
            )
    folder = os.path.normpath(os.fsdecode(unpacked(spec.folder, "folder")))
    if folder == "/" or folder in _IMAGES_OWN or _is_below(folder, _KERNELS):
        raise InvalidAsk(
            f"The folder {folder} cannot be shown in a container: the image has its own there.",
            hint="Submit from a folder of yours.",
        )


def _parsed(index: int, packed: str) -> tuple[str, str, bool]:
    if index >= MOST_MOUNTS:
        raise LimitExceeded(f"{MOST_MOUNTS} mounts are the most.", hint="Mount the folder above them.")
    mount = os.fsdecode(unpacked(packed, f"mounts[{index}]"))
    try:
        return containers.parsed(mount)
    except ValueError as error:
        raise InvalidAsk(f"mounts[{index}]: {mount[:200]!a}: {error}.", hint="As in /data/set:/data:ro.") from None


def _check_targets(targets: Iterable[str], folder: str) -> None:
    seen = {os.path.normpath(folder)}
    for target in targets:
        if target == "/" or _is_below(target, _KERNELS):
            raise InvalidAsk(f"mounts: nothing can be mounted at {target}.", hint="Use another place, like /data.")
        if target in seen:
            raise InvalidAsk(
                f"mounts: {target} is mounted twice; the working folder is, without being named.", hint="Name it once."
            )
        seen.add(target)


def _looked_at(image: str, mounts: Iterable[tuple[str, str, bool]]) -> list[tuple[str, str, bool]]:
    """The same with what the sources come to, seen as the account; an image that is a file is there, too."""
    if containers.is_file(image) and not os.path.exists(image):  # noqa: PTH110
        raise InvalidAsk(f"image: {image[:200]} is not there, or not yours to read.", hint="Give its whole path.")
    found = []
    for source, target, is_read_only in mounts:
        real = _real(source)
        if real == "/" or _is_below(real, (*_KERNELS, *_SERVICES)):
            raise InvalidAsk(
                f"mounts: {source} is not mounted: it shows devices, or what services of this machine listen at.",
                hint="Mount a folder with data.",
            )
        _check_source(source, real)
        if containers.NO_PATH.search(os.fsencode(real)):
            raise InvalidAsk(f"mounts: {source} leads to {real!a}, which no engine takes.", hint="Use another name.")
        found.append((real, target, is_read_only))
    return found


def _real(source: str) -> str:
    try:
        real = os.path.realpath(source)
        os.stat(real)  # noqa: PTH116
    except OSError as error:
        raise InvalidAsk(
            f"mounts: {source} cannot be mounted: {error.strerror}.",
            hint="Name a folder that is there and yours to read.",
        ) from None
    return real


def _check_source(source: str, real: str) -> None:
    kind = os.stat(real).st_mode  # noqa: PTH116
    may_read = os.access(real, os.R_OK, effective_ids=os.access in os.supports_effective_ids)
    if not may_read or not (stat.S_ISDIR(kind) or stat.S_ISREG(kind)):
        why = "it is no folder and no file" if may_read else "you may not read it"
        raise InvalidAsk(
            f"mounts: {source} cannot be mounted: {why}.", hint="Name a folder or a file that is yours to read."
        )


def _is_below(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


# -- the engine


async def _engine(looks: Looks, account: Account, spec: JobSpec, rules: ContainerRules) -> str:
    """The one that is asked for, or the first of the admin's that can be used; with the reason of each that cannot."""
    wanted = spec.container_engine
    if containers.is_file(spec.image or ""):  # to the others an image is a name
        if wanted not in (None, containers.APPTAINER):
            raise InvalidAsk(f"{wanted} runs no image that is a file.", hint="Only apptainer does.")
        wanted = containers.APPTAINER
    if wanted is not None and wanted not in rules.engines:
        raise InvalidAsk(
            f"container_engine: {wanted[:40]!a} is none of those that may be used here: {', '.join(rules.engines)}.",
            hint="Use one of them, or leave it out.",
        )
    environment = {
        name: os.fsdecode(unpacked(value, name))
        for name, value in spec.environment.items()
        if name in containers.CLIENTS
    }
    who = container_asks.asker(account.name, account.uid, environment, looks.for_errands())
    said = []
    for engine in (wanted,) if wanted is not None else rules.engines:
        why = await _why_not(looks, account, engine, who)
        if not why:
            return engine
        said.append(f"{engine}: {why}")
    others = rules.engines if wanted is not None and not containers.is_file(spec.image or "") else ()
    for engine in others:
        if engine != wanted and not await _why_not(looks, account, engine, who):
            raise InvalidAsk(
                f"{wanted} cannot be used here ({'; '.join(said)}), but {engine} can.",
                hint=f"Use `--container-engine {engine}`, or leave it out.",
            )
    raise InvalidAsk(
        f"No container engine can be used here ({'; '.join(said)}), so nothing runs in an image.",
        hint="Run it without an image, or ask an admin to install podman: docs/containers.md.",
    )


async def _why_not(looks: Looks, account: Account, engine: str, who: container_asks.Asker) -> str:
    path = container_plan.search_path()
    there = await looks.look(account, (engine, path), functools.partial(_is_there, engine, path))
    if there is False:
        return "not found on the broker's PATH"
    try:
        return await looks.ask(
            account, (engine, who.environment), functools.partial(container_asks.why_not, engine, who)
        )
    except TimeoutError:
        return f"it did not answer within {ASKED_WITHIN_SECONDS:.0f} s"


def _is_there(engine: str, path: str) -> bool:
    return shutil.which(engine, path=path) is not None
