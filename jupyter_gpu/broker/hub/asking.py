"""To ask the hub: whose a token is, and whatever else our service may.

An answer is kept for some seconds, so that a page with many requests asks once, and no longer: who was taken out of a
group, or whose token was revoked, is treated so soon after. A hub that does not answer is no refusal: callers hear that
it is away, and nothing ends by that.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from jupyterhub.services.auth import HubOAuth
from tornado.web import HTTPError

from ...errors import BrokerUnavailable
from .place import Place

log = logging.getLogger(__name__)

#: The hub answers within so long, or is away.
ANSWERS_WITHIN_SECONDS = 8.0
#: So long nobody else is asked after it did not.
AWAY_SECONDS = 1.0
#: So many tokens are remembered, known or not, and so many questions are under way.
MOST_KEPT = 4096
MOST_AT_ONCE = 16
LONGEST_TOKEN = 4096


class Known(NamedTuple):
    """Whom the hub knows by a token, and when it said so."""

    model: dict[str, Any]
    at: float


class Hub(HubOAuth):
    """Our end of the hub: jupyterhub's own, with a bounded memory and words for when it is away."""

    def __init__(self, place: Place, *, cache_seconds: float) -> None:
        files = {} if place.tls is None else _files(place)
        super().__init__(
            api_url=place.api_url,
            api_token=place.token,
            oauth_client_id=place.client_id,
            base_url=f"{place.prefix}/",
            hub_prefix=f"{place.base}/hub/",
            **files,
        )
        self.cache_seconds = cache_seconds
        #: Called whenever somebody could not be recognised because the hub is away.
        self.on_away: Callable[[], None] = lambda: None
        self._known: OrderedDict[str, tuple[float, Known | None]] = OrderedDict()
        self._asking: dict[str, asyncio.Task[Known | None]] = {}
        self._turn = asyncio.Semaphore(MOST_AT_ONCE)
        self._away: tuple[float, str] = (float("-inf"), "")

    async def whois(self, token: str) -> Known | None:
        """Whom the hub knows by a token; None where nobody. Raises BrokerUnavailable where it is away."""
        if not is_token(token):
            return None
        key = hashlib.sha256(token.encode()).hexdigest()
        kept = self._known.get(key)
        if kept is not None and time.monotonic() <= kept[0]:
            return kept[1]
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.ensure_future(self._ask(key, token))
            task.add_done_callback(lambda _: self._asking.pop(key, None))
        return await asyncio.shield(task)

    def user_for_token(
        self,
        token: str,
        use_cache: bool = True,  # noqa: FBT001, FBT002 - as in HubAuth
        session_id: str = "",
        *,
        sync: bool = True,
    ) -> Awaitable[dict[str, Any] | None]:
        """As HubAuth has it, by our memory; never while the loop waits."""
        del use_cache, session_id
        if sync:
            raise RuntimeError("the hub is asked without waiting: await get_user(handler, sync=False) first")
        return self._model_of(token)

    async def request(self, method: str, path: str, *, query: str = "", **words: Any) -> Any:
        """Ask the hub's API as our service. Raises BrokerUnavailable where it is away, HTTPError where it refuses."""
        return await self._in_time(self._api_request(method, f"{self.api_url}/{path}{query}", **words))

    async def _model_of(self, token: str) -> dict[str, Any] | None:
        known = await self.whois(token)
        return None if known is None else known.model

    async def _ask(self, key: str, token: str) -> Known | None:
        headers = {"Authorization": f"token {token}"}
        async with self._turn:
            self._must_be_here()
            model = await self._in_time(
                self._api_request("GET", f"{self.api_url}/user", headers=headers, allow_403=True)
            )
        known = None if model is None else Known(model, time.time())
        self._known[key] = (time.monotonic() + self.cache_seconds, known)
        while len(self._known) > MOST_KEPT:
            self._known.popitem(last=False)
        return known

    async def _in_time(self, asking: Awaitable[Any]) -> Any:
        try:
            return await asyncio.wait_for(asking, ANSWERS_WITHIN_SECONDS)
        except TimeoutError:
            why = f"it did not answer within {ANSWERS_WITHIN_SECONDS:.0f} s"
        except HTTPError as error:
            why = str(error.log_message or error.reason or error)
        self._away = (time.monotonic(), why)
        raise self._is_away()

    def _must_be_here(self) -> None:
        if time.monotonic() < self._away[0] + AWAY_SECONDS:
            raise self._is_away()

    def _is_away(self) -> BrokerUnavailable:
        self.on_away()
        return BrokerUnavailable(
            f"JupyterHub cannot say who calls: {self._away[1]}",
            hint="What runs or waits goes on. Try again when the hub answers; an admin finds more in its log.",
        )


def is_token(text: str) -> bool:
    """Whether the hub need be asked: a token is one word of ASCII."""
    return 0 < len(text) <= LONGEST_TOKEN and text.isascii() and text.isprintable() and " " not in text


def _files(place: Place) -> dict[str, str]:
    if place.tls is None:
        return {}
    return {"keyfile": place.tls.key, "certfile": place.tls.certificate, "client_ca": place.tls.authority}
