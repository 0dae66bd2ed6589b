"""A policy from a file that no broker has loaded: the admin's `jupyter_gpu_config.py`, or the policy alone as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .errors import InvalidAsk, NotFound
from .model import Policy
from .policies import read_policy

_HINT = "Give a jupyter_gpu_config.py, or a JSON object of the settings of `c.GpuBroker.policy`."


def policy_of_file(name: str) -> Policy:
    """Read it. Raises NotFound where there is none, InvalidAsk where it cannot be meant."""
    path = Path(name)
    if not path.is_file():
        raise NotFound(f"There is no policy file {name!r}.", hint=_HINT)
    return read_policy(_of_json(path) if path.suffix == ".json" else _of_config(path))


def _of_json(path: Path) -> dict[str, Any]:
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InvalidAsk(f"{str(path)!r} is no JSON: {error}", hint=_HINT) from None
    if not isinstance(settings, dict):
        raise InvalidAsk(f"{str(path)!r} is no JSON object.", hint=_HINT)
    return settings


def _of_config(path: Path) -> dict[str, Any]:
    """What the file sets, as the broker would see it; the file is Python, and is run."""
    from traitlets.config.loader import PyFileConfigLoader  # noqa: PLC0415 - a command that reads none does not pay

    try:
        found = PyFileConfigLoader(path.name, path=str(path.parent)).load_config()
        policy = found.GpuBroker.policy if "policy" in found.GpuBroker else {}
    except Exception as error:  # any Python may stand in a config file
        raise InvalidAsk(f"{str(path)!r} cannot be read: {type(error).__name__}: {error}", hint=_HINT) from error
    return dict(policy)
