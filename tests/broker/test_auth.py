"""Who calls: the kernel's word on a Unix socket, a token anywhere, nobody else."""

import asyncio
import hashlib
import os
import subprocess
import sys

import pytest

from jupyter_gpu.broker import auth, visits
from jupyter_gpu.broker.auth import Gate, Peer, read_tokens
from jupyter_gpu.errors import InvalidAsk, NotAllowed
from jupyter_gpu.model import Policy, Scope
from tests.conftest import Places

from .api_ground import ME, an_api, play

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user; run the tests as root")
ASK = """
import os, socket, sys
os.setgroups([]); os.setgid({uid}); os.setuid({uid})
s = socket.socket(socket.AF_UNIX); s.connect({path!r})
s.sendall(b"GET /api/v1/status HTTP/1.1\\r\\nHost: x\\r\\n{more}Connection: close\\r\\n\\r\\n")
print(b"".join(iter(lambda: s.recv(65536), b"")).decode())
"""


async def ask_as(uid: int, path: object, more: str = "") -> str:
    """What a process of another user is answered."""
    code = ASK.format(uid=uid, path=str(path), more=more)
    child = await asyncio.create_subprocess_exec(sys.executable, "-I", "-c", code, stdout=subprocess.PIPE)
    return (await child.communicate())[0].decode()


def test_the_user_of_the_socket_may_do_everything(tmp_runtime: Places) -> None:
    """An embedded broker serves one user, who is its operator."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            status = await broker.here().get("/status")
            assert (status.status_code, status.json()["caller"]) == (200, ME)
            assert (await broker.here().post("/devices/0/cordon")).status_code == 200

    play(story)


@AS_ROOT
def test_a_user_socket_admits_its_user_alone(tmp_runtime: Places) -> None:
    """Another user's process gets 403, even where the file system would let it through."""

    async def story() -> None:
        tmp_runtime.runtime_dir.parent.chmod(0o755)
        tmp_runtime.runtime_dir.chmod(0o755)
        async with an_api(tmp_runtime.runtime_dir) as broker:
            answer = await ask_as(65534, broker.uds)
            assert answer.startswith("HTTP/1.1 403")
            assert '"code":"not-allowed"' in answer

    play(story)


@AS_ROOT
def test_a_shared_socket_admits_everybody_as_themselves(tmp_runtime: Places) -> None:
    """Known by the kernel, without a password; a user, unless the policy names them an operator."""

    async def story(operators: tuple[str, ...], scopes: frozenset[Scope]) -> None:
        tmp_runtime.runtime_dir.parent.chmod(0o755)
        tmp_runtime.runtime_dir.chmod(0o755)
        gate = Gate(system=True)
        peer = Peer(pid=os.getpid(), uid=65534)
        caller = await gate._account(peer, operators)
        assert (caller.name, caller.account, caller.scopes) == ("nobody", "nobody", scopes)
        async with an_api(tmp_runtime.runtime_dir, system=True, policy=Policy(operators=operators)) as broker:
            answer = await ask_as(65534, broker.uds)
            assert answer.startswith("HTTP/1.1 200")
            assert '"caller":"nobody"' in answer

    for operators, scopes in (((), auth.USER_SCOPES), (("nobody",), auth.ALL_SCOPES)):
        asyncio.run(story(operators, scopes))


UNSHARE = "import ctypes; print(ctypes.CDLL(None).unshare(0x10000000), flush=True); input()"  # CLONE_NEWUSER


def test_another_user_namespace_is_a_stranger() -> None:
    """Root of a container is not our root: whoever counts users otherwise needs a token; so does who is gone."""
    assert visits.shares_our_users(os.getpid())
    with subprocess.Popen(
        [sys.executable, "-I", "-c", UNSHARE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        if child.stdout.readline().strip() != "0":
            pytest.skip("this machine allows no user namespaces; set kernel.unprivileged_userns_clone=1")
        assert not visits.shares_our_users(child.pid)
        with pytest.raises(NotAllowed, match="namespace"):
            asyncio.run(Gate(system=True)._account(Peer(pid=child.pid, uid=0), ()))
        child.communicate("\n")
    assert not visits.shares_our_users(child.pid)


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer wrong", "token wrong", "Basic YWRhOmFkYQ==", "token-of-ada", "Bearer \xff", "é"],
)
def test_a_wrong_token_is_refused(tmp_runtime: Places, header: str) -> None:
    """403, on TCP and on the socket alike: who shows a token is judged by it."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            raw = [(b"Authorization", header.encode("latin-1"))]
            for client in (broker.bare(), broker.here()):
                answer = await client.get("/status", headers=raw)
                assert (answer.status_code, answer.json()["code"]) == (403, "not-allowed")
                assert "Authorization" in answer.json()["hint"] or "revoked" in answer.json()["hint"]

    play(story)


def test_a_token_works_in_both_spellings_and_everywhere(tmp_runtime: Places) -> None:
    """`Bearer` as the world has it, `token` as Jupyter has it; on the socket it stands before the peer."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            for scheme in ("Bearer", "token", "bearer", "TOKEN"):
                for client in (broker.bare(), broker.here()):
                    answer = await client.get("/status", headers={"Authorization": f"{scheme} token-of-ada"})
                    assert answer.json()["caller"] == "ada"
            assert (await broker.bare().get("/status")).status_code == 403

    play(story)


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:8790"},
        {"Host": "127.0.0.1.evil.example"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://[bad"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
    ids=str,
)
def test_a_web_page_cannot_reach_us(tmp_runtime: Places, headers: dict[str, str]) -> None:
    """A name of its own (DNS rebinding), another origin, another site: refused over TCP, token or not."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            for client in (broker.bare(), broker.as_("oper")):
                answer = await client.get("/status", headers=headers)
                assert answer.status_code == 403
                assert "Access-Control-Allow-Origin" not in answer.headers
            assert (await broker.as_("oper").options("/status")).status_code == 405

    play(story)


def test_tokens_stand_nowhere_in_the_clear() -> None:
    """The configuration has their sha256; what is no sha256, or names no scope we know, is named by its beginning."""
    digest = hashlib.sha256(b"t").hexdigest()
    assert read_tokens({digest.upper(): {"name": "x", "scopes": ["read", "metrics"]}})[digest].name == "x"
    for tokens in (
        {"plain-token": {"name": "x"}},
        {digest: {"name": "x", "scopes": ["root"]}},
        {digest: {"scopes": ["read"]}},
        {digest: "x"},
        {digest: {"name": "x", "scope": "read"}},
    ):
        with pytest.raises(InvalidAsk) as caught:
            read_tokens(tokens)
        assert "plain-token" not in str(caught.value)
        assert digest[:8] in str(caught.value) or "plain-to" in str(caught.value)


def test_a_user_socket_refuses_other_users_whatever_its_mode() -> None:
    """The mode of the socket is the first lock, this is the second."""
    with pytest.raises(NotAllowed, match="belongs to user 1000"):
        asyncio.run(Gate(system=False, uid=1000)._account(Peer(pid=os.getpid(), uid=1001), ()))
