"""Which driver, library and bindings read the GPUs: what a report about a strange figure begins with."""

from __future__ import annotations

import contextlib
from importlib import metadata
from pathlib import Path
from typing import Any

from ...model import DriverView
from .calls import Calls, CardGoneError
from .names import clean_name

#: Distributions that bring a module of the same name; an older one may shadow the official one (rossumai/nvgpu#29).
_DISTRIBUTIONS = ("nvidia-ml-py", "nvidia-ml-py3", "pynvml")


def bindings_of(nvml: Any) -> str:
    """The file of the bindings, and the distribution and version that it belongs to where that is known."""
    file = getattr(nvml, "__file__", None)
    if not isinstance(file, str):
        return ""
    for name in _DISTRIBUTIONS:
        with contextlib.suppress(metadata.PackageNotFoundError, OSError):
            found = metadata.distribution(name)
            if any(Path(str(found.locate_file(it))) == Path(file) for it in found.files or ()):
                return f"{file} ({name} {found.version})"
    return file


def driver_of(calls: Calls, bindings: str) -> DriverView:
    """Ask an open NVML."""
    cuda = _ask(calls, "nvmlSystemGetCudaDriverVersion_v2") or _ask(calls, "nvmlSystemGetCudaDriverVersion")
    return DriverView(
        driver=_version(_ask(calls, "nvmlSystemGetDriverVersion")),
        nvml=_version(_ask(calls, "nvmlSystemGetNVMLVersion")),
        cuda=None if not cuda else f"{int(cuda) // 1000}.{int(cuda) % 1000 // 10}",
        bindings=bindings,
    )


def _ask(calls: Calls, name: str) -> Any:
    with contextlib.suppress(CardGoneError):  # it is about no card
        return calls.ask(name)
    return None


def _version(raw: Any) -> str | None:
    return None if raw is None else clean_name(raw)
