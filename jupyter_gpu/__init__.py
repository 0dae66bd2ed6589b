"""Share the GPUs of a lab: reserve one for a notebook, queue a training that yields and resumes.

The public names arrive on first use, so that a training which imports `jupyter_gpu.training` pays for
nothing else and needs none of our dependencies.
"""

TYPE_CHECKING = False  # `typing` itself would be the greatest part of what beside every job stays in memory
if TYPE_CHECKING:
    from typing import Any

    from .client import AsyncClient, Client, reserve, status, submit
    from .jupyter.widgets import GpuMonitor, JobView, QuotaBar

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "Client",
    "GpuMonitor",
    "JobView",
    "QuotaBar",
    "__version__",
    "reserve",
    "status",
    "submit",
]

# Each public name and the module that defines it.
_HOME = {
    "AsyncClient": "client",
    "Client": "client",
    "GpuMonitor": "jupyter.widgets",
    "JobView": "jupyter.widgets",
    "QuotaBar": "jupyter.widgets",
    "reserve": "client",
    "status": "client",
    "submit": "client",
}


def __getattr__(name: str) -> "Any":
    """Import a public name the first time somebody asks for it."""
    import importlib

    if name not in _HOME:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)


def load_ipython_extension(shell: "Any") -> None:
    """Give a notebook `%gpu` and `%%gpu`: what `%load_ext jupyter_gpu` calls, and our provisioner in Python kernels."""
    from .jupyter.magics import load

    load(shell)


def _jupyter_server_extension_points() -> "list[dict[str, Any]]":
    """Name the server extension, as jupyter_server asks for it."""
    from .jupyter.server import GpuExtension

    return [{"module": "jupyter_gpu", "app": GpuExtension}]


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    """Name the built Lab extension, as `jupyter-builder develop` asks for it."""
    return [{"src": "labextension", "dest": "jupyter-gpu"}]


def __dir__() -> list[str]:
    """Show the lazy names to completion as if they were here already."""
    return sorted({*globals(), *__all__})
