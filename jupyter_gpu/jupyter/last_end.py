"""Why a server was ended, for its owner at the next start: nobody looked at it when that happened."""

from __future__ import annotations

from html import escape

from ..client import AsyncClient
from ..model import EndReason, Kind, WorkloadView
from ..units import format_at

#: What was ended longer ago is no news.
NEWS_SECONDS = 86_400
#: These are always somebody else's doing.
_BY_OTHERS = frozenset({EndReason.EXPIRED, EndReason.CANCELLED, EndReason.DEVICE_LOST, EndReason.ABOVE_SHARE})


async def last_of(client: AsyncClient, holder: str) -> WorkloadView | None:
    """The newest reservation of a server, over or not."""
    async for it in client.workloads(kind=Kind.RESERVATION, mine=True, ended=True):
        if it.holder is not None and (it.holder.kind, it.holder.name) == ("server", holder):
            return it
    return None


def told(it: WorkloadView | None, now: float) -> str:
    """What there is to tell of its end; empty where its owner stopped it, or where that is long ago."""
    if it is None or it.ended_at is None or now > it.ended_at + NEWS_SECONDS:
        return ""
    if not it.detail or (it.end not in _BY_OTHERS and not it.detail.startswith("idle")):
        return ""
    return f"Your last server with GPUs was ended {format_at(it.ended_at, now)}: {it.detail.rstrip('.')}."


def notice(text: str) -> str:
    """The same for the page of the hub."""
    return f'<p class="alert alert-warning" role="status">{escape(text)}</p>\n' if text else ""
