"""What a server that was started with GPUs says of itself: whether it computes, so that idle GPUs can go back.

Its spawner holds the reservation from outside and sees a process at best. Who says nothing is never given back for
idleness, and so it is with a server in which a terminal is open: what runs there is not seen.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import pins
from ..errors import NotAllowed, NotFound
from .following import RENEW_PART, RENEW_SECONDS
from .keeper import Kept
from .standing import word_of

if TYPE_CHECKING:
    from ..client import AsyncClient
    from ..model import WorkloadView
    from .kernels import Kernels


async def say_for_ever(serverapp: Any, kernels: Kernels, client_of: Callable[[], AsyncClient]) -> None:
    """Renew the server's reservation with its word, as long as it has one."""
    text, began_at = os.environ.get(pins.RESERVATION, ""), time.time()
    number: int | None = None
    while text.isdecimal():
        wait = RENEW_SECONDS
        try:
            client = client_of()
            if number is None and (number := _number(await client.workload(int(text)))) is None:
                return
            renewal = await client.renew(int(text), number, **_word(serverapp, kernels, began_at))
            wait = min(RENEW_SECONDS, max(0.2, (renewal.renew_by - time.time()) * RENEW_PART))
        except (NotAllowed, NotFound):
            return
        except Exception as error:  # noqa: BLE001 - a broker that is away comes back; what has moved is seen at the next
            number = None
            serverapp.log.debug("jupyter_gpu: the server's reservation %s: %s", text, error)
        await asyncio.sleep(wait)


def _number(it: WorkloadView) -> int | None:
    """The number of its holder, where that is this server: within a shell's or a command's it is only a part."""
    is_over = it.end is not None or it.outcome is not None
    return None if is_over or it.holder is None or it.holder.kind != "server" else it.holder.number


def _word(serverapp: Any, kernels: Kernels, began_at: float) -> dict[str, Any]:
    """Busy where any kernel is; idle since the last of them is, and nothing where that is not known of all."""
    terminals = serverapp.web_app.settings.get("terminal_manager")
    manager = serverapp.kernel_manager
    words = [
        word_of(kernels.kernels.get(id_) or Kept(id_), manager.get_kernel(id_)) for id_ in manager.list_kernel_ids()
    ]
    if any(word.get("busy") for word in words):
        return {"busy": True}
    if not all(words) or (terminals is not None and terminals.list()):
        return {}
    return {"busy": False, "idle_since": max([began_at, *(word["idle_since"] or began_at for word in words)])}
