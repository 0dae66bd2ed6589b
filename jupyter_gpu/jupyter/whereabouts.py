"""Where a server of a hub runs, as its spawner knows it: by that the broker knows whose a process on a GPU is."""

from __future__ import annotations

import re
from typing import Any

from ..model import Holder, ServerBody
from .placing import Where, where

#: So often a server is told of anew: the broker keeps it in memory, and may have been started since.
AGAIN_SECONDS = 60.0
_MOST_SHOWN = 100
_CONTAINER = re.compile(r"[0-9a-f]{64}")


def whereabouts(spawner: Any, holder: Holder) -> ServerBody | None:
    """Its first process or its container; None where neither is of this machine, as far as its spawner says.

    `holder` is how the hub names the server, with its process where there is one.
    """
    target = getattr(spawner, "child_spawner", None) or spawner
    id_ = str(getattr(target, "object_id", "") or "") if where(type(target)) is Where.DOCKER else ""
    container = id_ if _CONTAINER.fullmatch(id_) else ""
    if holder.pid is None and not container:
        return None
    name = holder.name.partition("/")[2]
    title = _shown(str(getattr(spawner, "display_name", "") or ""))
    return ServerBody(
        name=name,
        title="" if title == name else title,
        pid=holder.pid,
        start_ticks=holder.start_ticks,
        boot_id=holder.boot_id,
        container=container,
    )


def _shown(title: str) -> str:
    """As it may be shown. Its owner may change it at each start, and must not thereby keep the broker from hearing."""
    return "".join(sign for sign in title if sign.isprintable())[:_MOST_SHOWN].strip()
