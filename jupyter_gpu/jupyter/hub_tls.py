"""Internal TLS of a hub (`c.JupyterHub.internal_ssl = True`), as far as the hub's own process is concerned."""

from __future__ import annotations

import functools
import ssl
from collections.abc import Mapping
from typing import Any

from jupyterhub.app import JupyterHub
from jupyterhub.utils import make_ssl_context


def shown_by_the_hub(settings: Mapping[str, Any]) -> ssl.SSLContext | None:
    """What the hub shows whom it asks, so that a service hears it; None without internal TLS."""
    files = (str(settings.get(f"internal_ssl_{name}") or "") for name in ("key", "cert", "ca"))
    return _context(*files)


@functools.lru_cache(maxsize=2)  # each server asks often, and the files stay as they are
def _context(key: str, certificate: str, authority: str) -> ssl.SSLContext | None:
    found: ssl.SSLContext | None = make_ssl_context(key, certificate, cafile=authority)
    return found


def let_the_hub_look_for_services() -> None:
    """JupyterHub 6.1 looks with a context for serving whether its services answer, never sees one, and ends.

    Given none, it makes the right one itself. A hub that looks with one for asking is left as it is.
    """
    looks = JupyterHub.start_service
    if hasattr(looks, "__wrapped__"):  # the configuration is read again
        return

    @functools.wraps(looks)
    async def start_service(
        self: JupyterHub, service_name: str, service: Any, ssl_context: ssl.SSLContext | None = None
    ) -> Any:
        is_for_serving = ssl_context is not None and ssl_context.protocol is ssl.PROTOCOL_TLS_SERVER
        return await looks(self, service_name, service, None if is_for_serving else ssl_context)

    JupyterHub.start_service = start_service
