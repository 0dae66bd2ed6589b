"""Which Python a command will run, and what is installed for it: read from its files, without starting it.

What a folder of packages holds stands in the names of its *.dist-info folders, so a list of hundreds is one look at
that folder; it is kept for as long as the folder stays as it was.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import NamedTuple

from .recording_git import without_secrets
from .spawn import catch

MOST_PACKAGES = 5_000
#: For the sources of packages that were installed from elsewhere: on a slow disk each costs a look.
MOST_SECONDS = 1.0
_MOST_SOURCE_BYTES = 16 << 10
_MOST_KEPT = 32

_PYTHON = re.compile(r"(python|pypy)[\d.]*t?")
_VERSIONED = re.compile(r"python(\d+\.\d+t?)")
_WRAPPERS = ("nohup", "exec", "nice", "time")
_RUNNERS = {"uv": ".venv", "pdm": ".venv", "pixi": ".pixi/envs/default"}
_DIST = re.compile(r"(?P<name>.+?)-(?P<version>[^-]+?)(-py[\d.]+)?\.(?:dist|egg)-info")
_CONDA = re.compile(r"(?P<name>.+)-(?P<version>[^-]+)-(?P<build>[^-]+)\.json")


class Interpreter(NamedTuple):
    """One Python: where it is called, what it is (None where its files do not say), and where its packages lie."""

    path: str
    version: str | None
    prefix: str
    places: tuple[str, ...]


def find(folder: str, argv: Sequence[str], environ: Mapping[str, str]) -> Interpreter | None:
    """The Python that a command runs, by its first word, its script's first line or the environment that is active."""
    path = _path_of(folder, argv, environ)
    return None if path is None else describe(path, environ)


def _path_of(folder: str, argv: Sequence[str], environ: Mapping[str, str]) -> str | None:
    words = _without_wrappers(argv)
    if not words:
        return None
    name = PurePath(words[0]).name
    program = _which(words[0], folder, environ)
    if program is None or _PYTHON.fullmatch(name):
        return program
    if name in _RUNNERS:
        own = os.path.join(folder, _RUNNERS[name], "bin/python")  # noqa: PTH118 - the text may be no UTF-8
        return own if os.access(own, os.X_OK) else None
    line = _first_line(program)
    if line is None:
        return None  # a program of its own
    named = _named_in(line, folder, environ)
    # A script for another interpreter (a shell, say) finds the one that is active here.
    return named or _which("python", folder, environ) or _which("python3", folder, environ)


def _without_wrappers(argv: Sequence[str]) -> Sequence[str]:
    place = 0
    while place < len(argv):
        name = PurePath(argv[place]).name
        if name == "env":
            place += 1
            while place < len(argv) and "=" in argv[place] and not argv[place].startswith("-"):
                place += 1
        elif name in _WRAPPERS:
            place += 1
        else:
            break
    return argv[place:]


def _which(program: str, folder: str, environ: Mapping[str, str]) -> str | None:
    if "/" in program:
        found = os.path.normpath(os.path.join(folder, program))  # noqa: PTH118
        return found if os.access(found, os.X_OK) else None
    found_there = shutil.which(program, path=environ.get("PATH"))
    return None if found_there is None else os.path.abspath(found_there)  # noqa: PTH100


def _first_line(program: str) -> str | None:
    """The first line of a script; None for a program that is none. A shell is taken for one: it runs scripts."""
    if PurePath(program).name in ("sh", "bash", "dash", "zsh", "ksh"):
        return ""
    try:
        with open(os.open(program, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123
            first = file.readline(4096)
            # As pip writes it where the path of the interpreter is too long for the kernel.
            second = file.readline(4096) if first == b"#!/bin/sh\n" else b""
    except OSError:
        return None
    if second.startswith(b"'''exec' "):
        return os.fsdecode(second.removeprefix(b"'''exec' ")).replace('"', "").strip()
    return os.fsdecode(first[2:]).strip() if first.startswith(b"#!") else None


def _named_in(line: str, folder: str, environ: Mapping[str, str]) -> str | None:
    words = [word for word in line.split() if word != "-S"]
    named = next((word for word in _without_wrappers(words) if _PYTHON.fullmatch(PurePath(word).name)), None)
    return None if named is None else _which(named, folder, environ)


# -- what it is


def describe(path: str, environ: Mapping[str, str]) -> Interpreter:
    """What the files around an interpreter say of it. It is found as it finds itself: by pyvenv.cfg beside it."""
    bin_ = os.path.dirname(path)  # noqa: PTH120 - as above
    for prefix in (bin_, os.path.dirname(bin_)):  # noqa: PTH120
        settings = _pyvenv(prefix)
        if settings is not None:
            return _of_environment(path, prefix, settings, environ)
    real = os.path.realpath(path)
    prefix = os.path.dirname(os.path.dirname(real))  # noqa: PTH120
    version = _by_conda(prefix) or _as_ours(real) or _by_asking(real)
    minor = _minor(version) or _minor_of_name(real)
    return Interpreter(
        path, version, prefix, (*_path_entries(environ), *_user_site(minor, environ), *_of(prefix, minor))
    )


def _of_environment(path: str, prefix: str, settings: Mapping[str, str], environ: Mapping[str, str]) -> Interpreter:
    version = settings.get("version_info") or settings.get("version")
    if version is not None:
        version = ".".join(version.split(".")[:3])
    minor = _minor(version)
    places = [*_path_entries(environ), *_of(prefix, minor)]
    if settings.get("include-system-site-packages") == "true" and (home := settings.get("home")):
        base = os.path.dirname(os.path.realpath(os.path.join(home, os.path.basename(path))))  # noqa: PTH118, PTH119, PTH120
        places += [*_user_site(minor, environ), *_of(os.path.dirname(base), minor)]  # noqa: PTH120
    return Interpreter(path, version, prefix, tuple(places))


def _pyvenv(prefix: str) -> dict[str, str] | None:
    try:
        text = Path(prefix, "pyvenv.cfg").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
    pairs = (line.partition("=") for line in text[:_MOST_SOURCE_BYTES].splitlines() if "=" in line)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _by_conda(prefix: str) -> str | None:
    found = (_CONDA.fullmatch(name) for name in _names(os.path.join(prefix, "conda-meta")))  # noqa: PTH118
    return next((match["version"] for match in found if match is not None and match["name"] == "python"), None)


def _as_ours(real: str) -> str | None:
    mine = os.path.realpath(sys.executable)
    return ".".join(map(str, sys.version_info[:3])) if real == mine else None


def _by_asking(real: str) -> str | None:
    """-V answers before anything is imported. A script in its place (a shim) is not run."""
    try:
        with open(os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123
            is_program = file.read(4) == b"\x7fELF"
    except OSError:
        return None
    if not is_program:
        return None
    said = catch([real, "-V"], MOST_SECONDS, most_bytes=200, cwd="/", environ={"LC_ALL": "C"})
    match = re.fullmatch(rb"Python (\d+\.\d+\.\d+\S*)\s*", said.output)
    return None if match is None else match[1].decode("ascii", "replace")


def _minor(version: str | None) -> str | None:
    return None if version is None else ".".join(version.split(".")[:2])


def _minor_of_name(real: str) -> str | None:
    match = _VERSIONED.fullmatch(PurePath(real).name)
    return None if match is None else match[1]


# -- what is installed for it


def _path_entries(environ: Mapping[str, str]) -> Iterator[str]:
    yield from (place for place in environ.get("PYTHONPATH", "").split(":") if place.startswith("/"))


def _user_site(minor: str | None, environ: Mapping[str, str]) -> Iterator[str]:
    if minor is None or environ.get("PYTHONNOUSERSITE"):
        return
    base = environ.get("PYTHONUSERBASE") or os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".local")  # noqa: PTH111, PTH118
    yield os.path.join(base, f"lib/python{minor}/site-packages")  # noqa: PTH118


def _of(prefix: str, minor: str | None) -> Iterator[str]:
    """Where packages lie below a prefix, as pip and as Debian have it."""
    lib = os.path.join(prefix, "lib")  # noqa: PTH118
    minors = [minor] if minor else [name.removeprefix("python") for name in _names(lib) if _VERSIONED.fullmatch(name)]
    for it in minors:
        yield os.path.join(lib, f"python{it}", "site-packages")  # noqa: PTH118
        if prefix == "/usr":
            yield f"/usr/local/lib/python{it}/dist-packages"
    if prefix == "/usr":
        yield "/usr/lib/python3/dist-packages"


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - the names are what is wanted
    except OSError:
        return []


_kept: dict[tuple[str, int, int], dict[str, str]] = {}


def packages(it: Interpreter) -> list[str]:
    """Every package that it finds, as pip would list it; of two with one name the one that comes first on its path."""
    found: dict[str, str] = {}
    for place in dict.fromkeys(it.places):
        found = _installed(place) | found
    found = _of_conda(it.prefix) | found
    return [found[name] for name in sorted(found)][:MOST_PACKAGES]


def _installed(place: str) -> dict[str, str]:
    try:
        stat = os.stat(place)  # noqa: PTH116 - as above
    except OSError:
        return {}
    key = (place, stat.st_mtime_ns, stat.st_ino)
    if key not in _kept:
        if len(_kept) >= _MOST_KEPT:
            _kept.clear()
        _kept[key] = _read(place)
    return _kept[key]


def _read(place: str) -> dict[str, str]:
    found: dict[str, str] = {}
    deadline = time.monotonic() + MOST_SECONDS
    for entry in _names(place):
        match = _DIST.fullmatch(entry)
        if match is not None:
            source = _source(place, entry) if time.monotonic() < deadline else ""
            plain = _normal(match["name"])
            found[plain] = f"{plain} @ {source}" if source else f"{plain}=={match['version']}"
    return found


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _source(place: str, entry: str) -> str:
    """Where a package came from that is of no index: a folder that is being worked in, a repository, a file."""
    try:
        with open(os.path.join(place, entry, "direct_url.json"), "rb") as file:  # noqa: PTH118, PTH123
            said = json.loads(file.read(_MOST_SOURCE_BYTES))
        url = without_secrets(str(said["url"]))
        vcs = said.get("vcs_info") or {}
        if vcs:
            return f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
        return url + (" (editable)" if (said.get("dir_info") or {}).get("editable") else "")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ""


def _of_conda(prefix: str) -> dict[str, str]:
    """What conda installed, that is no Python package or has its list there too."""
    place = os.path.join(prefix, "conda-meta")  # noqa: PTH118
    found = (_CONDA.fullmatch(name) for name in _names(place))
    return {_normal(it["name"]): f"{it['name']}={it['version']}={it['build']}" for it in found if it is not None}
