"""What a holder is told while it works, in the log of its process: that it uses more than its part, say.

A Python process that holds GPUs need not renew, since the broker sees it end; it renews to hear.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..errors import GpuError, LeaseLost, NotFound
from ..model import Policy, WorkloadView

if TYPE_CHECKING:
    from .sync import Client

#: As often as a renewal is due where the broker has the policy that ships.
LISTEN_SECONDS = float(Policy().renew_seconds)
#: The end of the block does not wait for an answer that does not come.
_PATIENCE_SECONDS = 1.0

_log = logging.getLogger("jupyter_gpu")


@contextlib.contextmanager
def heard(client: Client, it: WorkloadView, *, every_seconds: float = LISTEN_SECONDS) -> Iterator[None]:
    """Let what the broker tells the holder be heard for the length of a block; what lasts is said once."""
    over = threading.Event()
    number = 1 if it.holder is None else it.holder.number

    def listen() -> None:
        before = ""
        while not over.wait(every_seconds):
            try:
                told = client.renew(it.id, number).told
            except (LeaseLost, NotFound):
                return
            except GpuError:  # the broker is away for a while; what it has to say it says again
                continue
            if told and not before:  # figures in it may change from one time to the next
                _log.warning("Reservation %d: %s", it.id, told)
            before = told

    listener = threading.Thread(target=listen, name=f"jupyter-gpu-heard-{it.id}", daemon=True)
    listener.start()
    try:
        yield
    finally:
        over.set()
        listener.join(_PATIENCE_SECONDS)
