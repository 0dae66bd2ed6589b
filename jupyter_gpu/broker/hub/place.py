"""Where a service stands and where its hub is, as the hub says in the environment. Knows no jupyterhub."""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from ...errors import InvalidAsk

SPAWNER_DIGEST = "JUPYTER_GPU_SPAWNER_DIGEST"
_HINT = (
    "A hub sets it for the services that it starts (docs/hub.md); for one that you start yourself, set it as in the "
    "hub's configuration."
)


class Tls(msgspec.Struct, frozen=True, kw_only=True):
    """The files of internal TLS."""

    key: str
    certificate: str
    authority: str


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """What the environment of one service says."""

    name: str
    api_url: str
    token: str
    host: str
    port: int
    #: What stands before our own routes, like /services/jupyter-gpu: without a slash at its end.
    prefix: str
    #: What stands before the hub's, like /lab or nothing.
    base: str
    client_id: str
    tls: Tls | None = None
    #: The sha256 of the token by which the hub's spawner asks for its users.
    spawner_digest: str = ""


def read_place(environ: Mapping[str, str]) -> Place:
    """Read the environment of a service. Raises InvalidAsk that names the variable which is missing or wrong."""
    name = environ.get("JUPYTERHUB_SERVICE_NAME") or "jupyter-gpu"
    base = "/" + environ.get("JUPYTERHUB_BASE_URL", "/").strip("/")
    prefix = environ.get("JUPYTERHUB_SERVICE_PREFIX") or f"{base.rstrip('/')}/services/{name}"
    url = _needed(environ, "JUPYTERHUB_SERVICE_URL")
    host, port = _address(url)
    return Place(
        name=name,
        api_url=_needed(environ, "JUPYTERHUB_API_URL").rstrip("/"),
        token=_needed(environ, "JUPYTERHUB_API_TOKEN"),
        host=host,
        port=port,
        prefix=_joined(prefix),
        base=_joined(base),
        client_id=environ.get("JUPYTERHUB_CLIENT_ID") or f"service-{name}",
        tls=_tls(environ, url),
        spawner_digest=environ.get(SPAWNER_DIGEST, ""),
    )


def _needed(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name, "").strip()
    if not value:
        raise InvalidAsk(f"GpuBroker.hub is set, but {name} is not.", hint=_HINT)
    return value


def _address(url: str) -> tuple[str, int]:
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        parts, port = urlsplit(""), 0
    if parts.scheme not in ("http", "https") or not parts.hostname or not port:
        raise InvalidAsk(
            f"JUPYTERHUB_SERVICE_URL is {url[:200]!r}, where this service cannot listen.",
            hint="Give the service a url like http://127.0.0.1:8790: setup_hub(..., port=8790).",
        )
    return parts.hostname, port


def _tls(environ: Mapping[str, str], url: str) -> Tls | None:
    if not url.startswith("https:"):
        return None
    key, certificate, authority = (
        _needed(environ, f"JUPYTERHUB_SSL_{name}") for name in ("KEYFILE", "CERTFILE", "CLIENT_CA")
    )
    for path in (key, certificate, authority):
        if not os.access(path, os.R_OK):
            raise InvalidAsk(f"The file {path} of internal TLS cannot be read.", hint=_HINT)
    return Tls(key=key, certificate=certificate, authority=authority)


def _joined(path: str) -> str:
    """The path with single slashes, one before and none after it."""
    return "".join(f"/{part}" for part in path.split("/") if part)
