"""To ask the hub: whose a token is, and whatever else our service may.

An answer is kept for some seconds, so that a page with many requests asks once, and no longer: who was taken out of a
group, or whose token was revoked, is treated so soon after. A hub that does not answer is no refusal: callers hear that
it is away, and nothing ends by that.
"""

from __future__ import annotations

import asyncio
import hashlib
import http
import json
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import aiohttp
from jupyterhub.httpclient import JupyterHubHTTPClient, fetch
from jupyterhub.services.auth import HubOAuth
from jupyterhub.utils import make_ssl_context

from ...errors import BrokerUnavailable, NotAllowed
from .place import Place

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
        super().__init__(
            api_url=place.api_url,
            api_token=place.token,
            oauth_client_id=place.client_id,
            base_url=f"{place.prefix}/",
            hub_prefix=f"{place.base}/hub/",
        )
        tls = place.tls
        self._tls = {} if tls is None else {"ssl": make_ssl_context(tls.key, tls.certificate, cafile=tls.authority)}
        self.cache_seconds = cache_seconds
        #: Called whenever somebody could not be recognised because the hub is away.
        self.on_away: Callable[[], None] = lambda: None
        #: By the sha256 of a token: when it was answered, and what.
        self._known: OrderedDict[str, tuple[float, Known | None]] = OrderedDict()
        self._asking: dict[str, asyncio.Task[Known | None]] = {}
        self._turn = asyncio.Semaphore(MOST_AT_ONCE)
        self._away: tuple[float, str] = (float("-inf"), "")

    @property
    def cookie_secret(self) -> bytes:
        """What signs our cookies where nothing more lasting can be kept: it lasts as long as the hub's token for us."""
        return hashlib.sha256(b"cookies of jupyter_gpu " + self.api_token.encode()).digest()

    async def whois(self, token: str, *, bears_seconds: float = 0.0) -> Known | None:
        """Whom the hub knows by a token; None where nobody. Raises BrokerUnavailable where it is away.

        Who bears an older answer than usual gets it, if the token was somebody's then.
        """
        if not is_token(token):
            return None
        key = hashlib.sha256(token.encode()).hexdigest()
        at, kept = self._known.get(key, (float("-inf"), None))
        if time.monotonic() <= at + (self.cache_seconds if kept is None else max(self.cache_seconds, bears_seconds)):
            return kept
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.ensure_future(self._ask(key, token))
            task.add_done_callback(lambda done: self._forget(key, done))
        return await asyncio.shield(task)

    def _forget(self, key: str, done: asyncio.Task[Known | None]) -> None:
        self._asking.pop(key, None)
        if not done.cancelled():
            done.exception()  # somebody has looked: whoever asked may have gone away meanwhile

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

    async def request(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """Ask the hub's API as our service. BrokerUnavailable: it is away; NotAllowed: it may not be; None: refused."""
        data = None if body is None else json.dumps(body).encode()
        status, found = await self._fetch(method, path, self.api_token, data=data, headers=headers)
        if status == http.HTTPStatus.FORBIDDEN:
            raise NotAllowed(f"The hub lets its service not {method} {path.partition('?')[0]}.")
        return found if status < http.HTTPStatus.BAD_REQUEST else None

    async def close(self) -> None:
        """Ask no more."""
        for task in self._asking.values():
            task.cancel()
        await JupyterHubHTTPClient.loop_instance().close()

    async def _model_of(self, token: str) -> dict[str, Any] | None:
        known = await self.whois(token)
        return None if known is None else known.model

    async def _ask(self, key: str, token: str) -> Known | None:
        async with self._turn:
            self._must_be_here()
            status, model = await self._fetch("GET", "user", token)
        if status not in (http.HTTPStatus.OK, http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN):
            raise self._is_away(f"it answers {status} at {self.api_url}/user, where it should say who somebody is.")
        is_known = status == http.HTTPStatus.OK and isinstance(model, dict) and isinstance(model.get("name"), str)
        known = Known(model, time.time()) if is_known else None
        self._known[key] = (time.monotonic(), known)
        self._known.move_to_end(key)
        while len(self._known) > MOST_KEPT:
            self._known.popitem(last=False)
        return known

    async def _fetch(self, method: str, path: str, token: str, **words: Any) -> tuple[int, Any]:
        """The status of an answer and what it holds; BrokerUnavailable where there is none."""
        headers = {"Authorization": f"token {token}", **words.pop("headers", {})}
        try:
            async with asyncio.timeout(ANSWERS_WITHIN_SECONDS):
                answer = await fetch(
                    f"{self.api_url}/{path}",
                    method=method,
                    raise_for_status=False,
                    headers=headers,
                    **self._tls,
                    **words,
                )
                text = await answer.text()
        except TimeoutError:
            raise self._is_away(f"it did not answer within {ANSWERS_WITHIN_SECONDS:.0f} s.") from None
        except (aiohttp.ClientError, OSError) as error:
            raise self._is_away(f"it does not answer at {self.api_url} ({error}).") from None
        if answer.status >= http.HTTPStatus.INTERNAL_SERVER_ERROR:
            raise self._is_away(f"it answers {answer.status}, which is trouble of its own.")
        try:
            return answer.status, json.loads(text) if text else None
        except ValueError:
            return answer.status, None

    def _must_be_here(self) -> None:
        if time.monotonic() < self._away[0] + AWAY_SECONDS:
            raise self._is_away(self._away[1], again=True)

    def _is_away(self, why: str, *, again: bool = False) -> BrokerUnavailable:
        if not again:
            self._away = (time.monotonic(), why)
        self.on_away()
        return BrokerUnavailable(
            f"JupyterHub cannot be asked: {why}",
            hint="What runs or waits goes on. Try again when the hub answers; an admin finds more in its log.",
        )


def is_token(text: str) -> bool:
    """Whether the hub need be asked: a token is one word of ASCII."""
    return 0 < len(text) <= LONGEST_TOKEN and text.isascii() and text.isprintable() and " " not in text
