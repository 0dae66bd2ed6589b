"""Which broker a face asks, and whom it does not believe."""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import httpx
import pytest

from jupyter_gpu.client import AsyncClient, Client
from jupyter_gpu.client.calls import Call, read
from jupyter_gpu.client.find import find_broker, read_url, running_broker
from jupyter_gpu.client.sender import Finder
from jupyter_gpu.errors import BrokerUnavailable, Conflict, GpuError, InvalidAsk, NotAllowed, NotFound
from jupyter_gpu.versions import misfit
from tests.conftest import Places


@pytest.mark.parametrize(
    ("text", "url", "uds"),
    [
        ("http://127.0.0.1:8790", "http://127.0.0.1:8790/api/v1", None),
        ("https://hub.example/services/gpu/", "https://hub.example/services/gpu/api/v1", None),
        ("https://hub.example/api/v1", "https://hub.example/api/v1", None),
        ("http://[::1]:8790", "http://[::1]:8790/api/v1", None),
        ("unix:///run/x%20y.sock", "http://broker/api/v1", "/run/x y.sock"),
        ("/run/x.sock", "http://broker/api/v1", "/run/x.sock"),
    ],
)
def test_a_url_is_read(text, url, uds):
    """A host with or without a prefix, a socket by path or by unix:."""
    place = read_url(text, "t")
    assert (place.url, place.uds, place.token) == (url, uds, "t")
    assert "t" not in str(place).split("/")


@pytest.mark.parametrize(
    "text", ["x", "ftp://x", "http://", "http://a:b@host", "http://x:99999", "unix://x", "http://x?token=1"]
)
def test_what_is_no_url_is_refused(text):
    """With how to write one; a token in it too, since URLs are logged."""
    with pytest.raises(InvalidAsk, match="URL"):
        read_url(text)


SECRET = "hunter2"


@pytest.mark.parametrize(
    "text",
    [
        f"http://ada:{SECRET}@host:8790",
        f"http://{SECRET}@host",
        f"http://:{SECRET}@host:8790",
        f"http://host:8790/?token={SECRET}",
        f"http://host:99999/?token={SECRET}",
        f"http://[{SECRET}",
        f"ftp://ada:{SECRET}@host",
        f"ada:{SECRET}@host",
        f"unix:{SECRET}",
    ],
)
def test_a_secret_in_a_url_is_told_to_nobody(text):
    """Errors reach pages and logs."""
    with pytest.raises(InvalidAsk) as caught:
        read_url(text)
    assert SECRET not in str(caught.value)
    assert "URL" in str(caught.value)


def test_a_place_is_shown_by_scheme_host_and_port():
    """The prefix and the fragment may hold a secret as well; who fails to reach it is told no more."""
    place = read_url(f"https://host:1/{SECRET}/#{SECRET}", SECRET)
    assert str(place) == "https://host:1"
    for error in (httpx.ReadTimeout("slow"), httpx.ConnectError("no")):
        told = Finder(environ={}).trouble(error, place, is_safe=False, is_last=True)
        assert SECRET not in str(told)
        assert "https://host:1" in str(told)


def test_a_named_broker_is_the_one(tmp_runtime: Places):
    """An argument stands before JUPYTER_GPU_URL; neither looks further, and JUPYTER_GPU_TOKEN goes along."""
    environ = {"JUPYTER_GPU_URL": "http://a:1", "JUPYTER_GPU_TOKEN": "t"}
    assert find_broker(environ=environ, start=False)[:3] == ("http://a:1/api/v1", None, "t")
    assert find_broker("http://b:2", token="u", environ=environ)[:3] == ("http://b:2/api/v1", None, "u")


def test_no_broker_is_said_with_how_to_start_one(tmp_runtime: Places):
    """Without a start there is a place where it was looked for, and a hint."""
    with pytest.raises(BrokerUnavailable, match=str(tmp_runtime.runtime_dir)) as caught:
        find_broker(start=False)
    assert caught.value.hint == BrokerUnavailable.hint


def test_a_token_for_elsewhere_is_not_shown_here(tmp_runtime: Places):
    """JUPYTER_GPU_TOKEN goes with JUPYTER_GPU_URL alone."""
    path = tmp_runtime.runtime_dir / "broker.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        environ = {"JUPYTER_GPU_TOKEN": "t", "JUPYTER_GPU_RUNTIME_DIR": str(tmp_runtime.runtime_dir)}
        assert find_broker(environ=environ, start=False).token is None
        assert find_broker(token="u", environ=environ, start=False).token == "u"


def test_a_socket_whose_broker_was_killed_is_no_broker(tmp_runtime: Places):
    """The file outlives its process; nobody answers there."""
    path = tmp_runtime.runtime_dir / "broker.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    assert running_broker(os.environ) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to plant a socket as another user; run the tests as root")
def test_a_planted_socket_is_not_believed(tmp_runtime: Places):
    """In a folder that others may write to, a socket counts only if it is ours or root's: it would hear everything."""
    path = tmp_runtime.runtime_dir / "broker.sock"
    with socket.socket(socket.AF_UNIX) as planted:
        planted.bind(str(path))
        planted.listen()
        os.chown(path, 65534, 65534)
        with pytest.raises(NotAllowed, match="65534"):
            find_broker(start=False)
        os.chown(path, 0, 0)
        os.chown(path.parent, 65534, 65534)
        with pytest.raises(NotAllowed):
            find_broker(start=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to link as another user; run the tests as root")
def test_a_link_of_another_user_is_not_followed(tmp_runtime: Places, monkeypatch: pytest.MonkeyPatch):
    """It may lead to a socket of root now, and to its maker's a moment later; a link of our own is our own affair."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_runtime.runtime_dir / "broker.sock"))
        listening.listen()
        link = tmp_runtime.runtime_dir.parent / "link"
        link.symlink_to(tmp_runtime.runtime_dir)
        monkeypatch.setenv("JUPYTER_GPU_RUNTIME_DIR", str(link))
        assert find_broker(start=False).is_found
        os.chown(link, 65534, 65534, follow_symlinks=False)
        with pytest.raises(NotAllowed, match="65534"):
            find_broker(start=False)


@contextlib.contextmanager
def led_astray(path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A socket that looks like root's, at which another user listens; what they hear comes on stdout."""
    code = (
        "import os, socket, sys\n"
        "s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); os.setuid(65534); s.listen()\n"
        "print('listening', flush=True)\n"
        "while True:\n"
        "    c, _ = s.accept()\n"
        "    print(c.recv(1000), flush=True)\n"
        "    c.close()\n"
    )
    with subprocess.Popen([sys.executable, "-I", "-c", code, str(path)], stdout=subprocess.PIPE) as stranger:
        assert stranger.stdout is not None
        assert stranger.stdout.readline() == b"listening\n"
        yield stranger
        stranger.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to listen as another user; run the tests as root")
def test_nothing_is_sent_before_the_kernel_says_who_listens(tmp_runtime: Places, monkeypatch: pytest.MonkeyPatch):
    """A path that passed every look may lead elsewhere when it is used: both clients ask the kernel once connected."""
    path = tmp_runtime.runtime_dir / "broker.sock"
    with led_astray(path) as stranger:
        with pytest.raises(NotAllowed, match="65534"):
            find_broker(start=False)
        monkeypatch.setattr("jupyter_gpu.client.find.answers", lambda _: True)
        with Client(start=False) as client, pytest.raises(NotAllowed, match="65534"):
            client.status()

        async def story() -> None:
            async with AsyncClient(start=False) as client:
                with pytest.raises(NotAllowed, match="65534"):
                    await client.status()

        asyncio.run(story())
        stranger.kill()
        assert stranger.stdout is not None
        assert set(stranger.stdout.read().splitlines()) <= {b"b''"}


def test_what_is_no_socket_is_not_believed(tmp_runtime: Places):
    """A file of that name is no broker."""
    (tmp_runtime.runtime_dir / "broker.sock").write_text("")
    with pytest.raises(NotAllowed):
        find_broker(start=False)


@pytest.mark.parametrize(
    ("theirs", "ours", "expected"),
    [
        (None, "0.1.0", False),
        ("0.1.0", "0.1.0", False),
        ("0.2.7", "0.1.0", False),
        ("0.1.0", "0.2.0.dev1", False),
        ("0.3.0", "0.1.0", True),
        ("1.0.0", "0.9.0", True),
        ("", "0.1.0", True),
        ("nonsense", "0.1.0", True),
    ],
)
def test_neighbours_understand_each_other(theirs, ours, expected):
    """One minor version apart, within one major version."""
    assert misfit(theirs, ours) is expected


CALL: Call[bytes] = Call("GET", "/x", lambda body, _: body)


@pytest.mark.parametrize(
    ("status", "body", "kind", "said"),
    [
        (404, b'{"code":"not-found","message":"m","hint":"h"}', NotFound, "m"),
        (409, b"", Conflict, "409"),
        (502, b"<html>Bad gateway</html>", BrokerUnavailable, "502"),
        (302, b"", GpuError, "302"),
        (500, b"\xff", GpuError, "500"),
        (422, b'{"code":"of-the-future","message":"m"}', InvalidAsk, "m"),
    ],
)
def test_every_refusal_is_one_of_ours(status, body, kind, said):
    """Whatever stands between a client and a broker may answer; it becomes an error of the tree."""
    with pytest.raises(kind, match=said):
        read(CALL, status, {}, body)


def test_an_answer_that_is_none_of_ours_is_not_believed():
    """A page with status 200 is no broker; nor is one of another age."""
    from jupyter_gpu.client import calls

    with pytest.raises(BrokerUnavailable, match="no broker"):
        read(calls.status(), 200, {}, b"<html>")
    with pytest.raises(BrokerUnavailable, match="version 7"):
        read(CALL, 200, {"X-Jupyter-GPU-Version": "7.0"}, b"")


def test_a_client_that_finds_nobody_says_so(tmp_runtime: Places):
    """Refused and unreachable alike; and a proxy of the environment is not asked for what is here."""
    environ = {"JUPYTER_GPU_URL": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:1"}
    with Client(environ=environ) as client, pytest.raises(BrokerUnavailable, match=r"127\.0\.0\.1:9"):
        client.status()


def test_in_a_hubs_server_its_own_token_goes_to_the_service_that_the_environment_names(tmp_runtime: Places):
    """The hub's token is shown to the service of JUPYTER_GPU_URL alone: to no socket, and to no URL that is typed."""
    environ = {"JUPYTER_GPU_URL": "http://hub:1/services/gpu", "JUPYTERHUB_API_TOKEN": "h"}
    assert find_broker(environ=environ)[:3] == ("http://hub:1/services/gpu/api/v1", None, "h")
    assert find_broker(environ=environ | {"JUPYTER_GPU_TOKEN": "t"}).token == "t"
    assert find_broker("http://elsewhere:1", environ=environ).token is None
    assert find_broker(environ=environ | {"JUPYTER_GPU_URL": "unix:///run/b.sock"}).token is None


@pytest.mark.parametrize("name", ["ana.b@uni.example", r"LAB\ana", "ana~1", "ana b", "a,b", "анна", "user (test)"])
def test_a_hub_asks_in_the_name_of_anybody_whatever_they_are_called(name):
    """Any name and any group travels in a header, and no two of them look alike there (jupyterhub/jupyterhub#345)."""
    place = find_broker("http://hub:1", token="spawner")
    said = Finder(for_user=name, groups=(name, "b")).settings(place, httpx.HTTPTransport)["headers"]

    assert said["X-Jupyter-Gpu-For"].isascii()
    assert unquote(said["X-Jupyter-Gpu-For"]) == name
    assert [unquote(it) for it in said["X-Jupyter-Gpu-Groups"].split(",")] == [name, "b"]
    assert said["Authorization"] == "Bearer spawner"
    assert "X-Jupyter-Gpu-For" not in Finder().settings(place, httpx.HTTPTransport)["headers"]
