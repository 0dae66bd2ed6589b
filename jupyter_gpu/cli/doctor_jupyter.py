"""The part of `jupyter gpu doctor` that concerns Jupyter: what of ours this environment's server and pages will find.

It looks at files and entry points and starts nothing. Another environment may have another answer, so each says which
Python was looked at.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from .. import __version__
from .doctor import Check

EXTENSION = "jupyter_gpu"
LAB_EXTENSION = "jupyter-gpu"
PROVISIONER = "jupyter-gpu"
PROVISIONER_WORD = "JUPYTER_DEFAULT_PROVISIONER_NAME"
_AGAIN = f"Install it again into {sys.prefix}: `pip install --force-reinstall --no-deps jupyter-gpu`."


def jupyter_checks(environ: Mapping[str, str] = os.environ) -> Iterator[Check]:
    """Look at everything of ours in Jupyter."""
    from jupyter_core.paths import jupyter_config_path, jupyter_path

    configs = [Path(path) for path in jupyter_config_path()]
    yield server_check(_enabled(configs), _import_error("jupyter_gpu.jupyter.server"))
    yield lab_check([Path(path) for path in jupyter_path("labextensions")], [it / "labconfig" for it in configs])
    names = {entry.name for entry in entry_points(group="jupyter_client.kernel_provisioners")}
    yield provisioner_check(names, environ.get(PROVISIONER_WORD), _import_error("jupyter_gpu.jupyter.provisioner"))
    yield papermill_check(is_there=importlib.util.find_spec("papermill") is not None)


def server_check(enabled: bool | None, error: str | None) -> Check:
    """Whether a Jupyter server of this environment loads our extension."""
    name = "jupyter server"
    if error is not None:
        return Check(name=name, state="fail", text=f"the extension cannot be loaded: {error}", remedy=_AGAIN)
    if enabled:
        return Check(name=name, state="ok", text=f"the extension is enabled ({sys.prefix})")
    if enabled is None:
        return Check(
            name=name,
            state="warn",
            text=f"no configuration below {sys.prefix} enables the extension, so its pages show no GPU",
            remedy=f"`jupyter server extension enable {EXTENSION}`, or install it again.",
        )
    return Check(
        name=name,
        state="warn",
        text="the extension is disabled",
        remedy=f"`jupyter server extension enable {EXTENSION}`, then restart the server.",
    )


def lab_check(folders: Iterable[Path], configs: Iterable[Path]) -> Check:
    """Whether JupyterLab finds our pages, and whether they are of this version."""
    found = next((it for folder in folders if (it := folder / LAB_EXTENSION / "package.json").is_file()), None)
    if found is None:
        return Check(
            name="jupyterlab",
            state="warn",
            text=f"the JupyterLab extension is not installed below {sys.prefix}",
            remedy=_AGAIN,
        )
    if _is_disabled(configs):
        return Check(
            name="jupyterlab",
            state="warn",
            text="the JupyterLab extension is disabled",
            remedy=f"`jupyter labextension enable {LAB_EXTENSION}`, then reload the page.",
        )
    version = _read(found).get("version")
    if version != __version__:
        return Check(
            name="jupyterlab",
            state="warn",
            text=f"the JupyterLab extension is version {version}, and this is {__version__}",
            remedy=_AGAIN,
        )
    return Check(name="jupyterlab", state="ok", text=f"the extension is installed ({found.parent})")


def provisioner_check(names: Collection[str], chosen: str | None, error: str | None) -> Check:
    """Which provisioner starts kernels that no Jupyter server of ours starts, and whether ours can be had at all."""
    name = "provisioner"
    if chosen is not None and chosen not in names:
        return Check(
            name=name,
            state="fail",
            text=f"{PROVISIONER_WORD} names {chosen!r}, which is not installed here, so no kernel is found at all",
            remedy=f"`unset {PROVISIONER_WORD}`, or install jupyter-gpu into this environment.",
        )
    if PROVISIONER not in names or error is not None:
        return Check(
            name=name,
            state="fail",
            text=f"ours cannot be loaded: {error or 'it is not registered'}, so kernels reserve nothing",
            remedy=_AGAIN,
        )
    if chosen is None:
        text = f"registered; Jupyter servers use it, other programs where {PROVISIONER_WORD} says so"
        return Check(name=name, state="ok", text=text)
    if chosen == PROVISIONER:
        return Check(name=name, state="ok", text=f"registered, and the default of all programs ({PROVISIONER_WORD})")
    return Check(
        name=name,
        state="warn",
        text=f"{PROVISIONER_WORD} names {chosen!r}, so kernels started here see GPUs that nobody reserved",
        remedy=f"`unset {PROVISIONER_WORD}`, unless that is meant.",
    )


def papermill_check(*, is_there: bool) -> Check:
    """Whether notebooks can be sent to the queue."""
    if is_there:
        return Check(name="papermill", state="ok", text="there, so notebooks can be submitted")
    return Check(
        name="papermill",
        state="warn",
        text="missing, so no notebook can be submitted",
        remedy="`pip install papermill`.",
    )


def _enabled(configs: Iterable[Path]) -> bool | None:
    """What Jupyter's configuration says of our server extension; None where it says nothing."""
    from jupyter_server.extension.config import ExtensionConfigManager

    try:
        manager: Any = ExtensionConfigManager(read_config_path=[str(path) for path in configs])
        said = manager.get_jpserver_extensions().get(EXTENSION)
    except ValueError:  # a file that is no JSON: the server would not read it either
        return None
    return None if said is None else bool(said)


def _import_error(module: str) -> str | None:
    try:
        importlib.import_module(module)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
        return f"{type(error).__name__}: {error}"
    return None


def _is_disabled(configs: Iterable[Path]) -> bool:
    """The first that says something decides; it may be a list or a table."""
    for folder in configs:
        said = _read(folder / "page_config.json").get("disabledExtensions", {})
        if LAB_EXTENSION in said:
            return bool(said[LAB_EXTENSION]) if isinstance(said, dict) else True
    return False


def _read(path: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(path.read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else {}
    return {}
