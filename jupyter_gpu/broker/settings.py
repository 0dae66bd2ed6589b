"""Settings by their names: those of files, and those that a hub hands to the service which it starts.

A hub hands them over in one variable, since it writes no files for others.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from ..errors import InvalidAsk

#: A JSON object of the traits of GpuBroker.
SETTINGS = "JUPYTER_GPU_SETTINGS"
_HINT = "setup_hub writes it, from `broker` and `policy` in jupyterhub_config.py: docs/hub.md."


def settings_of(environ: Mapping[str, str], known: Collection[str]) -> dict[str, Any]:
    """The settings that stand in the environment; InvalidAsk names what is none of the `known`."""
    text = environ.get(SETTINGS)
    if not text:
        return {}
    try:
        settings = json.loads(text)
    except ValueError as error:
        raise InvalidAsk(f"{SETTINGS} is no JSON: {error}", hint=_HINT) from None
    if not isinstance(settings, dict):
        raise InvalidAsk(f"{SETTINGS} is no JSON object.", hint=_HINT)
    refuse_unknown(settings, known, hint=_HINT)
    return settings


def refuse_unknown(names: Iterable[str], known: Collection[str], *, hint: str) -> None:
    """Raise InvalidAsk for a name that is no setting: a slip would else go on with what was not meant."""
    for name in names:
        if name not in known:
            near = get_close_matches(name, sorted(known), n=1)
            meant = f" Did you mean {near[0]}?" if near else ""
            raise InvalidAsk(f"GpuBroker has no setting {name!r}.{meant}", hint=hint)
