"""A real JupyterHub with its proxy, aside from everything of the machine: its users, their servers and kernels."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

from jupyter_gpu.client import Client
from jupyter_gpu.errors import GpuError
from tests.stories.scene import until

#: Team -> its members.
TEAMS = {"vision": ("ana", "ben"), "speech": ("cho", "dov")}
CONTRACTOR, OPERATOR, STRANGER = "eve", "olga", "zoe"
PASSWORD = "let me in"
#: So soon the hub's word on somebody counts: what is kept of it is forgotten after so long.
CACHE_SECONDS = 2
#: What a loaded machine may take to start a hub or a server.
START_SECONDS = 60.0

PROFILES = [
    {"name": "none", "title": "No GPU", "devices": 0},
    {"name": "one", "title": "One GPU", "devices": 1, "duration_seconds": "1h"},
    {"name": "two", "title": "Two GPUs", "devices": 2, "duration_seconds": "1h"},
    {"name": "vision", "title": "One GPU of vision", "devices": 1, "teams": ["vision"]},
]
POLICY = {
    "quotas": [{"user": "*", "devices": 2}],
    "team_groups": sorted(TEAMS),
    # Short enough that a test can wait for each.
    "queues": [
        {"name": "interactive", "priority": 100, "kinds": ["reservation"], "may_borrow": False},
        {"name": "training", "priority": 50, "kinds": ["job"], "preemptible": True, "protected_seconds": 0,
         "grace_seconds": 20},
    ],
    "kill_after_seconds": 5,
}  # fmt: skip

_CONFIG = """\
import sys
c = get_config()
c.JupyterHub.bind_url = {public!r}
c.JupyterHub.hub_bind_url = {inner!r}
c.ConfigurableHTTPProxy.api_url = {proxy_api!r}
c.ConfigurableHTTPProxy.command = [{proxy!r}]
c.JupyterHub.authenticator_class = "jupyterhub.auth.DummyAuthenticator"
c.DummyAuthenticator.password = {password!r}
c.Authenticator.allow_all = True
c.Authenticator.admin_users = {{"root"}}
c.JupyterHub.load_groups = {groups!r}
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = {homes!r}
c.Spawner.args = ["--allow-root"]
c.Spawner.poll_interval = 2
c.Spawner.http_timeout = c.Spawner.start_timeout = 60
c.Spawner.environment = {environment!r}
c.JupyterHub.allow_named_servers = True
c.JupyterHub.cleanup_servers = False
c.JupyterHub.services = [{{"name": "tests", "api_token": {api_token!r}}}]
c.JupyterHub.load_roles = [{{
    "name": "tests", "services": ["tests"],
    "scopes": ["admin:users", "admin:servers", "tokens", "groups", "admin:groups", "read:hub", "shutdown"],
}}]
{more}
from jupyter_gpu.jupyter.service import setup_hub
setup_hub(
    c, profiles={profiles!r}, policy={policy!r}, port={port}, operators=[{operator!r}],
    researchers={{"groups": {teams!r}}}, contractors=[{contractor!r}], broker={broker!r},
)
"""


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Hub:
    """One hub; it may be stopped, killed and started again."""

    root: Path
    base: str = "/"
    devices: int = 4
    policy: Mapping[str, Any] = field(default_factory=lambda: POLICY)
    single_user_app: str = "jupyter_server.serverapp.ServerApp"
    more: str = ""
    api_token: str = field(default_factory=lambda: uuid.uuid4().hex)
    _process: subprocess.Popen[bytes] | None = None
    _tokens: dict[str, str] = field(default_factory=dict)
    _open: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.port, inner, proxy_api, self.service_port = (free_port() for _ in range(4))
        # Where somebody has no account, jobs run as this one; for root it must be said.
        account = pwd.getpwuid(os.geteuid()).pw_name
        (self.root / "homes").mkdir(parents=True)
        self.config = self.root / "jupyterhub_config.py"
        self.config.write_text(
            _CONFIG.format(
                public=f"http://127.0.0.1:{self.port}{self.base}",
                inner=f"http://127.0.0.1:{inner}",
                proxy_api=f"http://127.0.0.1:{proxy_api}",
                proxy=str(Path(sys.executable).parent / "configurable-http-proxy"),
                password=PASSWORD,
                groups={name: {"users": list(members)} for name, members in TEAMS.items()},
                homes=str(self.root / "homes" / "{username}"),
                environment={"JUPYTERHUB_SINGLEUSER_APP": self.single_user_app},
                api_token=self.api_token,
                profiles=PROFILES,
                policy=dict(self.policy),
                port=self.service_port,
                operator=OPERATOR,
                contractor=CONTRACTOR,
                teams=sorted(TEAMS),
                broker={
                    "simulated_devices": self.devices, "hub_cache_seconds": CACHE_SECONDS, "system": False,
                    "account_of_user": {"*": account},
                },
                more=self.more,
            )
        )  # fmt: skip
        self.api = self._client(f"{self.url}hub/api", self.api_token)

    @property
    def url(self) -> str:
        """What people type, with a slash at its end."""
        return f"http://127.0.0.1:{self.port}{self.base}"

    @property
    def log(self) -> Path:
        """What the hub and its service said."""
        return self.root / "hub.log"

    @property
    def environment(self) -> dict[str, str]:
        """Of the hub's process: nothing of the machine's own broker or of the caller's Jupyter."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER", "CUDA_", "XDG_"))}
        return kept | {
            "JUPYTER_GPU_RUNTIME_DIR": str(self.root / "run"),
            "JUPYTER_GPU_STATE_DIR": str(self.root / "state"),
            "HOME": str(self.root / "homes"),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }

    def _client(self, base: str, token: str) -> httpx.Client:
        client = httpx.Client(
            base_url=base, headers={"Authorization": f"token {token}"}, timeout=START_SECONDS, trust_env=False
        )
        self._open.append(client)
        return client

    # -- its life

    def start(self) -> None:
        """Start it, and wait until it and its service answer."""
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "jupyterhub", "-f", str(self.config)],
                cwd=self.root, env=self.environment, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        until(lambda: self._ended() or self._answers(), "the hub and its service answer", seconds=START_SECONDS)
        assert not self._ended(), self.said()

    def _ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def _answers(self) -> bool:
        with contextlib.suppress(httpx.TransportError):
            if self.api.get("/").is_success:
                return self.broker_of(OPERATOR, wait=False) is not None
        return False

    def said(self, characters: int = 4000) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-characters:]

    def stop(self) -> None:
        """As a service manager does: servers and jobs live on."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """As the kernel does when memory is short: no hook, no clean-up."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(60)
            self._process = None

    def end(self) -> None:
        """Stop it with all that it started."""
        with contextlib.suppress(httpx.HTTPError):
            for user in self.api.get("/users?state=active").json():
                for name in user["servers"]:
                    self.stop_server(user["name"], name)
        self.stop()
        for client in self._open:
            client.close()

    # -- its people

    def token_of(self, user: str) -> str:
        """A token with all that its owner may do."""
        if user not in self._tokens:
            name = quote(user, safe="")
            self.api.post(f"/users/{name}")  # who is there already stays
            answer = self.api.post(f"/users/{name}/tokens", json={"note": "tests"})
            answer.raise_for_status()
            self._tokens[user] = answer.json()["token"]
        return self._tokens[user]

    def broker_of(self, user: str, *, wait: bool = True) -> Client | None:
        """The GPU service as this person sees it, through the proxy; None where it does not answer yet."""
        client = Client(f"{self.url}services/jupyter-gpu", token=self.token_of(user))
        if not wait:
            try:
                client.broker()
            except GpuError:  # the proxy answers before the service does
                client.close()
                return None
        self._open.append(client)
        return client

    def as_(self, user: str) -> Client:
        """The GPU service for this person."""
        client = self.broker_of(user)
        assert client is not None
        return client

    def raw(self, token: str) -> httpx.Client:
        """The GPU service for who shows this token, without our client."""
        return self._client(f"{self.url}services/jupyter-gpu/api/v1", token)

    def join(self, user: str, group: str) -> None:
        """Put somebody into a group."""
        self.api.post(f"/groups/{group}/users", json={"users": [user]}).raise_for_status()

    def leave(self, user: str, group: str) -> None:
        """Take somebody out of a group."""
        self.api.request("DELETE", f"/groups/{group}/users", json={"users": [user]}).raise_for_status()

    # -- their servers

    def spawn(self, user: str, server: str = "", **options: Any) -> httpx.Response:
        """Start a server and wait until it runs, or was refused; the hub's first answer."""
        self.token_of(user)
        answer = self.api.post(_server_path(user, server), json={"user_options": options})
        if answer.status_code == httpx.codes.ACCEPTED:
            until(lambda: not self.server(user, server).get("pending"), f"{user}/{server} runs", seconds=START_SECONDS)
        return answer

    def server(self, user: str, server: str = "") -> dict[str, Any]:
        """What the hub says of a server; empty where there is none."""
        found = self.api.get(f"/users/{quote(user, safe='')}").json()
        return dict(found["servers"].get(server, {}))

    def stop_server(self, user: str, server: str = "") -> None:
        """Stop it and wait until it is gone."""
        self.api.delete(_server_path(user, server))
        until(lambda: not self.server(user, server).get("ready"), f"{user}/{server} stopped", seconds=START_SECONDS)

    def pid_of(self, user: str, server: str = "") -> int:
        """The process of a server, as the hub keeps it."""
        state = self.api.get(f"/users/{quote(user, safe='')}").json()["servers"][server]["state"]
        return int(state["pid"])

    def at(self, user: str, server: str = "") -> httpx.Client:
        """A server, for its owner."""
        return self._client(f"{self.url}user/{quote(user, safe='')}/{server}".rstrip("/"), self.token_of(user))

    def kernel(self, user: str, server: str = "") -> Kernel:
        """Start a kernel in a server."""
        client = self.at(user, server)
        answer = client.post("/api/kernels", json={})
        answer.raise_for_status()
        return Kernel(client, answer.json()["id"], self.token_of(user))


def _server_path(user: str, server: str) -> str:
    name = quote(user, safe="")
    return f"/users/{name}/servers/{server}" if server else f"/users/{name}/server"


@dataclass
class Kernel:
    """A kernel of somebody's server."""

    server: httpx.Client
    id: str
    token: str

    def run(self, code: str) -> str:
        """Run code; what it printed, or the error that it raised."""
        return asyncio.run(self._run(code))

    async def _run(self, code: str) -> str:
        url = f"{str(self.server.base_url).rstrip('/').replace('http', 'ws', 1)}/api/kernels/{self.id}/channels"
        asked = uuid.uuid4().hex
        socket_ = await websocket_connect(HTTPRequest(url, headers={"Authorization": f"token {self.token}"}))
        header = {"msg_id": asked, "msg_type": "execute_request", "username": "", "session": asked, "version": "5.3"}
        content = {"code": code, "silent": False, "store_history": False, "allow_stdin": False, "stop_on_error": True}
        message = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
        await socket_.write_message(json.dumps(message))
        said = ""
        try:
            async with asyncio.timeout(START_SECONDS):
                while (text := await socket_.read_message()) is not None:
                    heard = json.loads(text)
                    if heard["parent_header"].get("msg_id") != asked:
                        continue
                    told = heard["content"]
                    said += told.get("text", "") if heard["msg_type"] == "stream" else ""
                    said += f"{told['ename']}: {told['evalue']}" if heard["msg_type"] == "error" else ""
                    if heard["msg_type"] == "status" and told["execution_state"] == "idle":
                        break
        finally:
            socket_.close()
        return said.strip()


@contextlib.contextmanager
def a_hub(root: Path, **words: Any) -> Iterator[Hub]:
    """Start a hub, and end it with all that it started."""
    hub = Hub(root, **words)
    hub.start()
    try:
        yield hub
    finally:
        hub.end()
