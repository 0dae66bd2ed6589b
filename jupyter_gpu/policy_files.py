"""A policy from a file that no broker has loaded: the admin's `jupyter_gpu_config.py`, or the policy alone as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from traceback import extract_tb
from typing import Any

from .errors import InvalidAsk, NotFound
from .model import Policy
from .policies import read_policy
from .policy_lines import where_in

#: What may be set of a broker: the traits of `broker.app.GpuBroker`, which no face imports. A test compares both.
SETTINGS = (
    "account_of_user", "alert_command", "answer_yes", "config_file", "devices_folder", "generate_config", "hosts",
    "hub", "hub_cache_seconds", "hub_socket_scopes", "idle_seconds", "isolation", "listen", "lock_file", "log_datefmt",
    "log_format", "log_level", "logging_config", "notify_command", "policy", "ready_fd", "runtime_dir", "show_config",
    "show_config_json", "simulated_devices", "simulated_memory", "state_dir", "system", "tokens",
)  # fmt: skip
_HINT = "Give a jupyter_gpu_config.py, or a JSON object of the settings of `c.GpuBroker.policy`."


def policy_of_file(name: str) -> Policy:
    """Read it. Raises NotFound where there is none, InvalidAsk where it cannot be meant."""
    path = Path(name)
    if not path.is_file():
        raise NotFound(f"There is no policy file {name!r}.", hint=_HINT)
    found = _of_json(path) if path.suffix == ".json" else _of_config(path)
    return read_policy(found, where_in([path]))


def _of_json(path: Path) -> dict[str, Any]:
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InvalidAsk(f"{str(path)!r} is no JSON: {error}", hint=_HINT) from None
    if not isinstance(settings, dict):
        raise InvalidAsk(f"{str(path)!r} is no JSON object.", hint=_HINT)
    if not isinstance(settings.get("GpuBroker"), dict):
        return settings
    return _policy_in(path, settings["GpuBroker"])


def _of_config(path: Path) -> dict[str, Any]:
    """What the file sets, as the broker would see it; the file is Python, and is run."""
    from traitlets.config.loader import PyFileConfigLoader  # noqa: PLC0415 - a command that reads none does not pay

    try:
        found = PyFileConfigLoader(path.name, path=str(path.parent)).load_config()
    except (Exception, SystemExit) as error:  # any Python may stand in a config file
        said = f"{path.name}{_line_of(error, path)} cannot be read: {type(error).__name__}: {error}"
        raise InvalidAsk(said, hint=_HINT) from error
    return _policy_in(path, dict(found.GpuBroker))


def _line_of(error: BaseException, path: Path) -> str:
    """Like ", line 12": where in the file it went wrong."""
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return f", line {error.lineno}"
    its = [frame.lineno for frame in extract_tb(error.__traceback__) if Path(frame.filename).name == path.name]
    return f", line {its[-1]}" if its else ""


def _policy_in(path: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The policy of all settings of a broker, which refuses what it does not know."""
    for name in settings:
        if name not in SETTINGS:
            near = get_close_matches(name, SETTINGS, n=1)
            meant = f" Did you mean {near[0]}?" if near else ""
            raise InvalidAsk(f"{path.name}: GpuBroker has no setting {name!r}.{meant}", hint=_HINT)
    policy = settings.get("policy", {})
    if not isinstance(policy, Mapping):
        kind = type(policy).__name__
        raise InvalidAsk(f"{path.name}: c.GpuBroker.policy is a {kind}, and must be a dictionary", hint=_HINT)
    return dict(policy)
