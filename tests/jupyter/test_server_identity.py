"""In whose name the broker is asked: the account of the server, or under a hub the person at the browser."""

from __future__ import annotations

import getpass
import time
from types import SimpleNamespace
from typing import Any

import pytest
from jupyter_server.auth import User
from jupyter_server.auth.identity import IdentityProvider
from tornado.httpclient import HTTPClientError

from jupyter_gpu.errors import NotAllowed
from jupyter_gpu.jupyter import identity
from jupyter_gpu.jupyter.identity import Clients, Identity, identity_of, own_identity
from jupyter_gpu.model import Ask, Kind, SubmitBody
from tests.broker.api_ground import an_api
from tests.jupyter.server_ground import a_broker, a_server, body, error_of, play

A_RESERVATION = body(SubmitBody(kind=Kind.RESERVATION, ask=Ask(duration_seconds=600)))


class HubAuth:
    """As jupyterhub's: the token of the person at the browser, from the header or from their login."""

    def get_token(self, handler: Any) -> str | None:
        """Who calls; nobody in a test that says so."""
        return handler.request.headers.get("X-Test-Hub-Token")


class JupyterHubIdentityProvider(IdentityProvider):
    """As jupyterhub's, by name and by what is used of it."""

    hub_auth = HubAuth()

    def get_user(self, handler: Any) -> User | None:
        """The person, as the hub names them."""
        name = handler.request.headers.get("X-Test-Hub-User")
        return User(username=name) if name else None

    def is_token_authenticated(self, _handler: Any) -> bool:
        """As programs are."""
        return True


def person(name: str) -> dict[str, str]:
    """What makes a request one of this person's."""
    return {"X-Test-Hub-User": name, "X-Test-Hub-Token": f"token-of-{name}"}


def test_two_people_on_one_server_are_two(tmp_path, tmp_runtime, monkeypatch):
    """Under a hub everybody is themselves on a shared server, with a stream of their own; only its owner acts there."""

    async def story():
        words = {"identity_provider_class": JupyterHubIdentityProvider}
        async with an_api(tmp_runtime.runtime_dir, count=4) as broker:
            monkeypatch.setenv("JUPYTER_GPU_URL", broker.url)
            monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "token-of-ada")
            monkeypatch.setenv("JUPYTERHUB_USER", "ada")
            async with a_server(tmp_path, **words) as server:
                ada, reader = server.nobody(headers=person("ada")), server.nobody(headers=person("reader"))
                assert (await ada.get("jupyter-gpu/hello")).json()["caller"] == "ada"
                made = await ada.post("jupyter-gpu/api/v1/workloads", content=A_RESERVATION)
                assert (made.status_code, made.json()["owner"]) == (201, "ada")
                refused = await reader.post("jupyter-gpu/api/v1/workloads", content=A_RESERVATION)
                assert (refused.status_code, error_of(refused)["code"]) == (403, "not-allowed")
                assert "somebody else's server" in error_of(refused)["message"]
                assert (await reader.get("jupyter-gpu/api/v1/status")).json()["caller"] == "reader"

                streams = [await server.listen(headers=person(name)) for name in ("ada", "ada", "reader")]
                statuses = [await stream.status() for stream in streams]
                assert [it.caller for it in statuses] == ["ada", "ada", "reader"]
                assert [it.workloads[0].is_mine for it in statuses] == [True, True, False]
                assert broker.loop.publisher.listeners == 1
                assert len(list(server.extension.upstreams._streams)) == 2

    play(story)


def test_a_visitor_who_may_see_nothing_is_told_where_they_can(tmp_path, tmp_runtime, monkeypatch):
    """A contractor, whose right to reserve they cannot give to another's server: no admin is to give it a scope."""

    async def story():
        words = {"identity_provider_class": JupyterHubIdentityProvider}
        async with an_api(tmp_runtime.runtime_dir) as broker:
            monkeypatch.setenv("JUPYTER_GPU_URL", broker.url)
            monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "token-of-ada")
            monkeypatch.setenv("JUPYTERHUB_USER", "ada")
            async with a_server(tmp_path, **words) as server:
                visitor = server.nobody(headers=person("nothing"))
                for path in ("hello", "api/v1/status"):
                    answer = await visitor.get(f"jupyter-gpu/{path}")
                    assert (answer.status_code, error_of(answer)["code"]) == (403, "not-allowed")
                    assert "somebody else's server" in error_of(answer)["message"]
                    assert "your own server" in error_of(answer)["hint"]

    play(story)


def test_a_person_without_a_token_is_told(tmp_path, tmp_runtime, monkeypatch):
    """The hub's login has run out: never in somebody else's name instead."""

    async def story():
        words = {"identity_provider_class": JupyterHubIdentityProvider}
        async with an_api(tmp_runtime.runtime_dir) as broker:
            monkeypatch.setenv("JUPYTER_GPU_URL", broker.url)
            monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "token-of-oper")
            async with a_server(tmp_path, **words) as server:
                answer = await server.nobody(headers={"X-Test-Hub-User": "ada"}).get("jupyter-gpu/api/v1/status")
                assert (answer.status_code, error_of(answer)["code"]) == (403, "not-allowed")
                assert "hub" in error_of(answer)["hint"]
                with pytest.raises(HTTPClientError, match="403"):
                    await server.listen(headers={"X-Test-Hub-User": "ada"})

    play(story)


def test_a_socket_knows_the_account(tmp_path, tmp_runtime):
    """Under a hub with a broker on a socket it is the account, as for all that runs in the server's terminals."""

    async def story():
        words = {"identity_provider_class": JupyterHubIdentityProvider}
        async with a_broker(tmp_runtime.runtime_dir), a_server(tmp_path, **words) as server:
            said = (await server.nobody(headers=person("ada")).get("jupyter-gpu/hello")).json()
            assert said["caller"] == getpass.getuser()

    play(story)


class Handler:
    """A request at a server, without a hub unless it gives a token."""

    current_user = User(username="a1b2c3")

    def __init__(self, *tokens: str | None) -> None:
        hub_auth = SimpleNamespace(get_token=lambda _handler: tokens[0])
        self.identity_provider = SimpleNamespace(**({"hub_auth": hub_auth} if tokens else {}))


ME = Identity("own", getpass.getuser())


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, ME),
        ({"JUPYTERHUB_API_TOKEN": "t"}, ME),
        ({"JUPYTER_GPU_URL": "unix:///x", "JUPYTERHUB_API_TOKEN": "t"}, ME),
        ({"JUPYTER_GPU_URL": "http://h:1", "JUPYTER_GPU_TOKEN": "g", "JUPYTERHUB_API_TOKEN": "t"}, ME),
        ({"JUPYTER_GPU_URL": "no url", "JUPYTERHUB_API_TOKEN": "t"}, ME),
    ],
)  # fmt: skip
def test_a_random_username_is_nobody(environ, expected):
    """Standalone it is the account, whatever name jupyter_server made up for the browser."""
    assert own_identity(environ) == expected
    assert identity_of(Handler(), environ) == expected


def test_the_server_itself_under_a_hub():
    """What the server does without a page it does as its owner, by the token that the hub gave it."""
    environ = {"JUPYTER_GPU_URL": "http://h:1", "JUPYTERHUB_API_TOKEN": "secret", "JUPYTERHUB_USER": "ada"}

    who = own_identity(environ)

    assert (who.name, who.token) == ("ada", "secret")
    assert "secret" not in who.key


@pytest.mark.parametrize(
    ("user", "kind", "expected"),
    [
        ("ada", "user", ("ada", "of the server", False)),
        ("grace", "user", ("grace", "shown", True)),
        ("ada", "service", ("ada", "shown", True)),
    ],
)
def test_the_owner_asks_by_the_servers_token_and_a_visitor_by_what_they_showed(user, kind, expected):
    """A visitor's token is in the hands of whoever runs the server, so it allows little; the owner needs none."""
    environ = {
        "JUPYTER_GPU_URL": "https://h", "JUPYTERHUB_API_TOKEN": "of the server", "JUPYTERHUB_USER": "ada",
    }  # fmt: skip
    handler = Handler("shown")
    handler.current_user = SimpleNamespace(username=user, hub_user={"name": user, "kind": kind})

    who = identity_of(handler, environ)

    assert (who.name, who.token, who.is_visitor) == expected


def test_one_client_for_each(tmp_runtime):
    """The same client for the same identity, another for who may start no broker; the trait decides for all."""

    async def story():
        clients = Clients(start=True)
        ada, grace = Identity("a", "ada", "t"), Identity("g", "grace", "u")
        assert clients.of(ada) is clients.of(ada)
        assert len({id(clients.of(who, start=start)) for who in (ada, grace) for start in (True, False)}) == 4
        assert [clients.of(ada, start=start)._start for start in (True, False)] == [True, False]
        assert not Clients(start=False).of(ada)._start
        await clients.close()

    play(story)


def test_connections_that_nobody_uses_are_closed(tmp_runtime, monkeypatch):
    """Not under somebody who waits for an answer; and a client that was kept opens them again."""

    async def story():
        async with a_broker(tmp_runtime.runtime_dir, count=1) as broker:
            clients = Clients(start=False)
            client = clients.of()
            await client.status()
            await clients.tidy()
            assert client._http is not None

            monkeypatch.setattr(identity, "CLOSE_AFTER_SECONDS", 0.0)
            monkeypatch.setattr(identity.time, "monotonic", lambda: time.perf_counter() + 1e6)
            stream = client.stream()
            await anext(stream)
            await clients.tidy()
            assert client._http is not None, "somebody listens"
            await stream.aclose()
            client.used_at = 0.0
            await clients.tidy()
            assert client._http is None
            assert clients.of() is not client, "it was forgotten"

            assert (await client.status()).store_id == broker.loop.broker_view().store_id
            await client.close()
            await clients.close()

    play(story)


def test_two_tokens_are_two_identities():
    """Of one person too: what one may, the other may not."""
    handlers = []
    for token in ("one", "two"):
        handler = Handler()
        handler.identity_provider = type(
            "Provider", (), {"hub_auth": type("Auth", (), {"get_token": lambda _, __, t=token: t})()}
        )()
        handlers.append(identity_of(handler, {"JUPYTER_GPU_URL": "https://h"}))

    assert len({it.key for it in handlers}) == 2


def test_a_hub_that_gives_no_token_is_an_error():
    """Never the server's own name instead."""
    with pytest.raises(NotAllowed, match="no token"):
        identity_of(Handler(None), {"JUPYTER_GPU_URL": "https://h", "JUPYTERHUB_API_TOKEN": "t"})
