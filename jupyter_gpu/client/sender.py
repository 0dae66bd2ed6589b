"""What both senders share: where the broker is, and what a failure to reach it means."""

from __future__ import annotations

import os
import ssl
import threading
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

import httpx

from ..errors import BrokerUnavailable, GpuError
from . import calls
from .calls import Call
from .find import Place, check_peer, find_broker

CONNECT_SECONDS = 10.0
#: A followed log is taken up again where it broke off, so often in a row without a byte between.
MOST_BREAKS = 5
BREAK_SECONDS = 0.5

#: In whose name a hub asks, and the groups that it knows them in: the broker believes its spawner's token only.
FOR = "X-Jupyter-Gpu-For"
GROUPS = "X-Jupyter-Gpu-Groups"


def on_behalf(name: str, groups: Iterable[str] = ()) -> dict[str, str]:
    """The headers that name somebody else, spelt so that any name fits a header (jupyterhub/jupyterhub#345)."""
    return {FOR: quote(name, safe=""), GROUPS: ",".join(quote(group, safe="") for group in groups)}


class Finder:
    """Finds the broker when it is first needed, and again when it is gone."""

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        start: bool = True,
        environ: Mapping[str, str] | None = None,
        for_user: str | None = None,
        groups: Iterable[str] = (),
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._url, self._token, self._start, self._tls = url, token, start, tls
        self._said = {} if for_user is None else on_behalf(for_user, groups)
        self._environ: Mapping[str, str] = os.environ if environ is None else environ
        self._place: Place | None = None
        # Many threads of a face may ask first at once; one of them looks.
        self._looking = threading.Lock()

    @property
    def place(self) -> Place | None:
        """Where the broker was found; None before the first call."""
        return self._place

    def find(self) -> Place:
        """Say where it is. Blocks while a broker is started."""
        with self._looking:
            if self._place is None:
                self._place = find_broker(self._url, token=self._token, environ=self._environ, start=self._start)
            return self._place

    def settings(self, place: Place, transport: type[Any]) -> dict[str, Any]:
        """For httpx. A proxy or a .netrc of the environment is never meant for a broker of this machine."""
        found: dict[str, Any] = {
            "base_url": place.url,
            "headers": calls.headers(place.token) | self._said,
            "timeout": httpx.Timeout(calls.ANSWER_SECONDS, connect=CONNECT_SECONDS),
            "trust_env": place.is_remote,
            "follow_redirects": False,
        }
        if not place.url.startswith("https:"):
            # To read the certificates of the world, for words without TLS, takes longer than most calls.
            found["verify"] = False
        elif self._tls is not None:
            found["verify"] = self._tls
        if place.uds is not None:
            found["transport"] = transport(uds=place.uds, verify=False)
        return found

    def trouble(self, error: httpx.HTTPError, place: Place, *, is_safe: bool, is_last: bool) -> GpuError | None:
        """What a failure to send means; None says to look for the broker and send again."""
        was_sent = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
        if not is_last and (is_safe or not was_sent) and not isinstance(error, httpx.TimeoutException):
            if place.is_found:
                self._place = None
            if place.is_found or was_sent:
                return None
        if isinstance(error, httpx.TimeoutException):
            return BrokerUnavailable(
                f"The broker at {place} did not answer in time.", hint="See its log; `jupyter gpu doctor` looks at it."
            )
        return BrokerUnavailable(f"No broker answers at {place}: {str(error) or type(error).__name__}.")


def request_of(call: Call[Any], place: Place, *, waits: bool = True) -> dict[str, Any]:
    """A call in the words of httpx; `waits` says whether its sender is the one that waits."""
    headers = dict(call.headers)
    if call.content is not None:
        headers["Content-Type"] = "application/json"
    request: dict[str, Any] = {
        "method": call.method,
        "url": call.path,
        "params": list(call.params) or None,
        "content": call.content if call.content is not None or call.method == "GET" else b"",
        "headers": headers,
        "timeout": httpx.Timeout(call.timeout_seconds, connect=CONNECT_SECONDS),
    }
    if place.is_found and place.uds is not None:
        request["extensions"] = {"trace": _look if waits else _look_async}
    return request


def _look(event: str, info: Mapping[str, Any]) -> None:
    """Called by httpx at each step of a request: once connected and before anything is sent, look who listens."""
    if event == "connection.connect_unix_socket.complete":
        sock = info["return_value"].get_extra_info("socket")
        try:
            check_peer(sock, "the broker's socket")
        except BaseException:
            sock.close()
            raise


async def _look_async(event: str, info: Mapping[str, Any]) -> None:
    """As `_look`."""
    if event == "connection.connect_unix_socket.complete":
        stream = info["return_value"]
        try:
            # What asyncio hands out is a view of the socket, which knows the option as well.
            check_peer(stream.get_extra_info("socket"), "the broker's socket")
        except BaseException:
            await stream.aclose()
            raise
