"""A stand-in of a hub's API: the routes that our service asks, with the answers of JupyterHub 6 as read from its code.

`GET /user` is 403 for who is unknown, and shows the scopes of the token; a user's model has no `servers` without the
scope read:servers; lists come in pages where the Accept header asks for pages; activity of a server that is not there
is 400. What it does not check is not shown by tests that use it: a real hub is in test_real_hub.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, HTTPError, RequestHandler

SERVICE_TOKEN = "token-of-the-service"
OURS = "custom:jupyter-gpu:"
RESEARCHER = ("read", "metrics", "reserve", "submit")
CONTRACTOR = ("reserve", "submit")


@dataclass
class Person:
    """A user, or a service, of the hub."""

    name: str
    scopes: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    kind: str = "user"
    #: Server name -> what it is about to do, or None where it runs.
    servers: dict[str, str | None] = field(default_factory=dict)

    def model(self) -> dict[str, Any]:
        """As GET /user shows it."""
        if self.kind == "service":
            return {"kind": "service", "name": self.name, "admin": False}
        return {"kind": "user", "name": self.name, "admin": False, "groups": list(self.groups)}

    def listed(self) -> dict[str, Any]:
        """As GET /users shows it to who has read:servers."""
        servers = {
            name: {"name": name, "full_name": f"{self.name}/{name}", "pending": pending, "ready": pending is None}
            for name, pending in self.servers.items()
        }
        return {"kind": "user", "name": self.name, "servers": servers}


@dataclass
class FakeHub:
    """What the hub knows; a test changes it as it likes."""

    people: dict[str, Person] = field(default_factory=dict)
    #: Token -> whose it is, and its scopes where it has fewer than they.
    tokens: dict[str, tuple[str, tuple[str, ...] | None]] = field(default_factory=dict)
    codes: dict[str, str] = field(default_factory=dict)
    activity: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    #: "method path" of all that was asked.
    asked: list[str] = field(default_factory=list)
    #: Scopes of our service.
    service_scopes: set[str] = field(
        default_factory=lambda: {"list:users", "read:servers", "read:users:groups", "users:activity"}
    )
    #: Answer all with this status instead; 0 never answers.
    trouble: int | None = None
    page_users: int = 200
    url: str = ""
    _server: HTTPServer | None = None
    _port: int = 0

    def add(self, name: str, *scopes: str, groups: tuple[str, ...] = (), kind: str = "user", token: str = "") -> str:
        """Somebody with our scopes, and a token of theirs."""
        self.people[name] = Person(name, tuple(f"{OURS}{it}" for it in scopes), groups, kind)
        token = token or f"token-{len(self.tokens)}"
        self.tokens[token] = (name, None)
        return token

    def scopes_of(self, token: str) -> list[str]:
        """What GET /user says that a token may."""
        name, fewer = self.tokens[token]
        mine = self.people[name].scopes
        return sorted(mine if fewer is None else set(fewer) & set(mine))

    def open(self) -> None:
        """Answer from now on, at the same port as before."""
        self._server = HTTPServer(Application(_ROUTES, hub=self))
        sockets = bind_sockets(self._port, "127.0.0.1", family=socket.AF_INET)
        self._server.add_sockets(sockets)
        self._port = sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"

    async def close(self) -> None:
        """Be away: nobody listens any more."""
        if self._server is not None:
            self._server.stop()
            await self._server.close_all_connections()
            self._server = None

    def environ(self, port: int, *, base: str = "", name: str = "jupyter-gpu", **more: str) -> dict[str, str]:
        """What a hub says to the service that it starts."""
        return {
            "JUPYTERHUB_API_TOKEN": SERVICE_TOKEN,
            "JUPYTERHUB_API_URL": f"{self.url}/hub/api",
            "JUPYTERHUB_BASE_URL": f"{base}/",
            "JUPYTERHUB_SERVICE_NAME": name,
            "JUPYTERHUB_SERVICE_PREFIX": f"{base}/services/{name}/",
            "JUPYTERHUB_SERVICE_URL": f"http://127.0.0.1:{port}",
            "JUPYTERHUB_CLIENT_ID": f"service-{name}",
            "JUPYTERHUB_OAUTH_CALLBACK_URL": f"{base}/services/{name}/oauth_callback",
            **more,
        }


class _Base(RequestHandler):
    @property
    def hub(self) -> FakeHub:
        return self.settings["hub"]

    async def prepare(self) -> None:
        self.hub.asked.append(f"{self.request.method} {self.request.path}")
        if self.hub.trouble == 0:
            await asyncio.Event().wait()
        if self.hub.trouble is not None:
            raise HTTPError(self.hub.trouble)

    def token(self) -> str:
        scheme, _, token = self.request.headers.get("Authorization", "").partition(" ")
        return token if scheme in ("token", "Bearer") else ""

    def must_be_service(self, scope: str) -> None:
        if self.token() != SERVICE_TOKEN or scope not in self.hub.service_scopes:
            raise HTTPError(403)

    def write_error(self, status_code: int, **_: Any) -> None:
        self.finish({"status": status_code, "message": self._reason})


class _Self(_Base):
    def get(self) -> None:
        token = self.token()
        if token not in self.hub.tokens:
            raise HTTPError(403)
        name, _ = self.hub.tokens[token]
        more = {"token_id": f"a{len(token)}", "session_id": None, "scopes": self.hub.scopes_of(token)}
        self.finish(self.hub.people[name].model() | more)


class _Users(_Base):
    def get(self) -> None:
        self.must_be_service("list:users")
        assert self.get_argument("state") == "active"
        offset = int(self.get_argument("offset", "0"))
        limit = min(int(self.get_argument("limit", "200")), self.hub.page_users)
        active = [it.listed() for it in self.hub.people.values() if it.servers]
        if "read:servers" not in self.hub.service_scopes:
            active = [{key: value for key, value in it.items() if key != "servers"} for it in active]
        found = active[offset : offset + limit]
        self.set_header("Content-Type", "application/json")
        if "pagination" not in self.request.headers.get("Accept", ""):
            self.finish(json.dumps(found))
            return
        more = offset + limit < len(active)
        following = {"offset": offset + limit, "limit": limit, "url": "..."} if more else None
        page = {"offset": offset, "limit": limit, "total": len(active), "next": following}
        self.finish(json.dumps({"items": found, "_pagination": page}))


class _User(_Base):
    def get(self, name: str) -> None:
        self.must_be_service("read:users:groups")
        if name not in self.hub.people:
            raise HTTPError(404)
        self.finish({key: it for key, it in self.hub.people[name].model().items() if key != "admin"})


class _Activity(_Base):
    def post(self, name: str) -> None:
        self.must_be_service("users:activity")
        body = json.loads(self.request.body)
        if name not in self.hub.people:
            raise HTTPError(404)
        if not set(body["servers"]) <= set(self.hub.people[name].servers):
            raise HTTPError(400)
        self.hub.activity.append((name, body["servers"]))


class _Authorize(_Base):
    """Signs the person of the header X-Person in at once, as a hub does whose visitor has its cookie."""

    def get(self) -> None:
        name = self.request.headers["X-Person"]
        code = f"code-{len(self.hub.codes)}"
        self.hub.codes[code] = name
        back = {"code": code, "state": self.get_argument("state")}
        self.redirect(f"{self.get_argument('redirect_uri')}?{urlencode(back)}")


class _Token(_Base):
    def post(self) -> None:
        if self.get_argument("client_secret") != SERVICE_TOKEN:
            raise HTTPError(403)
        name = self.hub.codes.pop(self.get_argument("code"))
        token = f"oauth-{name.encode().hex()}-{len(self.hub.tokens)}"
        self.hub.tokens[token] = (name, None)
        self.finish({"access_token": token, "token_type": "Bearer"})


_ROUTES = [
    ("/hub/api/user", _Self),
    ("/hub/api/users", _Users),
    ("/hub/api/users/([^/]+)", _User),
    ("/hub/api/users/([^/]+)/activity", _Activity),
    ("/.*hub/api/oauth2/authorize", _Authorize),
    ("/hub/api/oauth2/token", _Token),
]


@contextlib.asynccontextmanager
async def a_hub() -> AsyncIterator[FakeHub]:
    """A hub that answers."""
    hub = FakeHub()
    hub.open()
    try:
        yield hub
    finally:
        await hub.close()
