"""How a job's command is put into docker, podman or apptainer: the words, byte for byte, and which variables go in.

The engine is run as the job's own user, as that user would run it: nothing that a container can reach is more than its
user can reach without us, whatever it mounts. So docker is only for those whom its daemon lets in, which makes them
root; podman and apptainer need no daemon and make nobody root. Values of variables never stand in argv, which everybody
sees: only their names do, and the engine takes them from its own environment. Pure; the launcher imports it.
"""

from __future__ import annotations

import os
import re

from ... import pins

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

DOCKER, PODMAN, APPTAINER = "docker", "podman", "apptainer"
ENGINES = (PODMAN, DOCKER, APPTAINER)
#: Where docker's daemon of this machine listens; a context of the user's might name one elsewhere.
DOCKER_SOCKET = "unix:///var/run/docker.sock"
#: What these engines would read as more than a path: a mount's fields, a volume's parts, a list of binds.
NO_PATH = re.compile(rb"[,:\"\\\x00-\x1f\x7f]")
#: Of the client's own variables, those that its later calls need too; none of them is a secret.
CLIENTS = (
    "PATH", "HOME", "USER", "LOGNAME", "XDG_RUNTIME_DIR", "DOCKER_HOST", "DOCKER_CONFIG", "CONTAINERS_CONF",
    "CONTAINERS_STORAGE_CONF",
)  # fmt: skip

# What finds programs and libraries of this machine, or speaks to an engine; the image has its own.
_STAYS_OUT = re.compile(
    r"PATH|LD_.*|LIBRARY_PATH|SHELL|TERM|HOSTNAME|PWD|OLDPWD|VIRTUAL_ENV|(CONDA|MAMBA|PIXI|DBUS)_.*|PYTHON(HOME|USERBASE)"
    r"|PYTHONNOUSERSITE|CUDA_(HOME|PATH)|R_(HOME|LIBS|LIBS_USER)|MODULEPATH|LOADEDMODULES|NVIDIA_VISIBLE_DEVICES"
    r"|(DOCKER|CONTAINERS?|PODMAN|APPTAINER|APPTAINERENV|SINGULARITY|SINGULARITYENV)_.*"
    r"|JUPYTER_(PATH|DATA_DIR|CONFIG_DIR|PLATFORM_DIRS)"
)
# What says a place, and is of use only where that place is seen from inside.
_PLACES = re.compile(r"HOME|TMPDIR|PYTHONPATH|XDG_.*|[A-Z0-9]+_HOME|JULIA_.*|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: To NVIDIA's runtime and hook: leave this container alone.
_NONE = "void"
#: A home that everybody may write to; the user's own is not there, unless it is mounted.
_NO_HOME = "/tmp"  # noqa: S108 - inside the container it is nobody else's


def wrapped(
    plan: dict[str, Any], argv: list[str], environment: dict[str, str], folders: Iterable[str] = ()
) -> tuple[list[str], dict[str, str]]:
    """The words and the environment of the engine that runs this command; `folders` are to be seen inside as well."""
    binds = [*([folder, folder, False] for folder in folders), *plan["binds"]]
    inside = _inside(environment, [target for _, target, _ in binds])
    if plan["engine"] in (DOCKER, PODMAN):
        # The client keeps its own home, where its store is: so what is another one inside is said with its value.
        names = [name if environment.get(name) == value else f"{name}={value}" for name, value in inside.items()]
        words = _docker(plan, binds, names) if plan["engine"] == DOCKER else _podman(plan, binds, names)
        return words + argv, _client(plan, environment)
    given = {f"APPTAINERENV_{name}": value for name, value in inside.items()}
    return _apptainer(plan, binds) + argv, _client(plan, environment) | given


def _docker(plan: dict[str, Any], binds: list[list[Any]], names: Iterable[str]) -> list[str]:
    words = [*_run(plan), "--userns", "host"]
    for group in plan["groups"]:
        words += ["--group-add", str(group)]
    if plan["devices"]:
        # The quotes are docker's: without them the comma would begin another field.
        words += ["--gpus", f'"device={",".join(plan["devices"])}"']
    # Images of CUDA say "all" in it, and where NVIDIA's runtime is the usual one that would be what they get.
    words += ["--env", f"{pins.CONTAINERS}={','.join(plan['devices']) or _NONE}"]
    if not plan["core_dumps"]:
        words += ["--ulimit", "core=0"]  # else the daemon's; podman's is our own
    return words + _rest(plan, binds, names)


def _podman(plan: dict[str, Any], binds: list[list[Any]], names: Iterable[str]) -> list[str]:
    words = _run(plan)
    if not plan["user"].startswith("0:"):  # root's podman keeps all ids as they are
        words += ["--userns", "keep-id", "--group-add", "keep-groups"]
    for device in plan["devices"]:
        words += ["--device", f"nvidia.com/gpu={device}"]
    words += ["--env", f"{pins.CONTAINERS}={_NONE}"]  # CDI gives them, and an older hook beside it would give all
    return words + _rest(plan, binds, names)


def _run(plan: dict[str, Any]) -> list[str]:
    return [
        # Not --rm: what its end was, and whether it ran out of memory, is asked before it is removed.
        plan["engine"], "run", "--name", plan["name"], "--init", "--user", plan["user"],
        "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--security-opt", "label=disable",
        "--shm-size", str(plan["shared_bytes"]), "--log-driver", "none",
    ]  # fmt: skip


def _rest(plan: dict[str, Any], binds: list[list[Any]], names: Iterable[str]) -> list[str]:
    words = []
    for source, target, is_read_only in binds:
        words += ["--mount", f"type=bind,source={source},target={target}" + (",readonly" if is_read_only else "")]
    words += ["--workdir", plan["folder"]]
    for name in names:
        words += ["--env", name]
    # Without the image's own entry point: what was asked for is what runs, with each of the engines.
    return [*words, "--entrypoint", "", plan["image"]]


def _apptainer(plan: dict[str, Any], binds: list[list[Any]]) -> list[str]:
    words = [APPTAINER, "exec", "--cleanenv", "--no-home", *(["--nv"] if plan["devices"] else [])]
    for source, target, is_read_only in sorted(binds, key=lambda it: len(it[1])):  # a folder before what is in it
        words += ["--bind", f"{source}:{target}:{'ro' if is_read_only else 'rw'}"]
    image = plan["image"]
    return [*words, "--pwd", plan["folder"], image if is_file(image) or _says_where(image) else f"docker://{image}"]


def is_file(image: str) -> bool:
    """Whether an image is a file of this machine and no name in a registry."""
    return image.startswith("/")


def _says_where(image: str) -> bool:
    """Whether it names its kind: "library://x" and "docker-archive:/x.tar" do, "python:3.12" does not."""
    return image.partition(":")[2].startswith("/")


def _client(plan: dict[str, Any], environment: dict[str, str]) -> dict[str, str]:
    """The engine's own environment: that of a command of this user's, but for where it and its daemon are."""
    ours = ("PATH", "DOCKER_HOST") if plan["engine"] == DOCKER else ("PATH",)
    return environment | {name: plan["client"][name] for name in ours if name in plan["client"]}


def clients(engine: str, environment: dict[str, str]) -> dict[str, str]:
    """Of a job's environment, what a call of the engine needs: found, and answered by the same one."""
    found = {name: environment[name] for name in CLIENTS if name in environment}
    if engine == DOCKER:
        found.setdefault("DOCKER_HOST", DOCKER_SOCKET)
    return found


def _inside(environment: dict[str, str], targets: list[str]) -> dict[str, str]:
    """The variables that mean the same inside."""
    found = {}
    for name, value in environment.items():
        if not _NAME.fullmatch(name) or _STAYS_OUT.fullmatch(name):
            continue
        if _PLACES.fullmatch(name) and not all(_is_seen(place, targets) for place in value.split(":")):
            continue
        found[name] = value
    found.setdefault("HOME", _NO_HOME)
    return found


def _is_seen(place: str, targets: list[str]) -> bool:
    return any(place == target or place.startswith(target.rstrip("/") + "/") for target in targets)


def parsed(mount: str) -> tuple[str, str, bool]:
    """Source, target and whether it is for reading only, of "SOURCE:TARGET[:ro]"; ValueError says what is wrong."""
    parts = mount.split(":")
    is_read_only = parts[2:] == ["ro"]
    if len(parts) not in (2, 3) or (parts[2:] and not is_read_only and parts[2:] != ["rw"]):
        raise ValueError("write SOURCE:TARGET, or SOURCE:TARGET:ro to read only")
    source, target = parts[0], parts[1]
    for path in (source, target):
        if not path.startswith("/"):
            raise ValueError(f"{path!r} is no whole path")
        if NO_PATH.search(os.fsencode(path)):
            raise ValueError("a path with commas, quotes or control characters cannot be given to a container engine")
    return source, os.path.normpath(target), is_read_only
