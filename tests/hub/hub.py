"""A real JupyterHub with its proxy, aside from everything of the machine: its users, their servers and kernels."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pwd
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import psutil
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

from jupyter_gpu.client import Client
from jupyter_gpu.errors import GpuError
from tests.nvml.board import Board
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
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
import ctypes
ctypes.CDLL(None).prctl(1, 15)  # tests that are killed leave no hub behind
c = get_config()
c.JupyterHub.bind_url = {public!r}
c.JupyterHub.hub_bind_url = {inner!r}
c.ConfigurableHTTPProxy.api_url = {proxy_api!r}
c.ConfigurableHTTPProxy.command = [*{proxy!r}, "--proxy-timeout", "120000"]
c.JupyterHub.internal_ssl = {tls!r}
c.JupyterHub.internal_certs_location = {certificates!r}
c.JupyterHub.authenticator_class = "jupyterhub.auth.DummyAuthenticator"
c.DummyAuthenticator.password = {password!r}
c.Authenticator.allow_all = True
c.Authenticator.admin_users = {{"root"}}
c.JupyterHub.load_groups = {groups!r}
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = {homes!r}
c.Spawner.args = ["--allow-root", {lab!r}]
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
    c, profiles={profiles!r}, policy={policy!r}, port={port}, url={reached!r}, operators=[{operator!r}],
    researchers={{"groups": {teams!r}}}, contractors=[{contractor!r}], broker={broker!r},
)
c.JupyterHub.services[-1]["environment"].update({seen!r})
"""
_LAB = "--LabApp.expose_app_in_browser=True"
_NO_LAB = '--ServerApp.jpserver_extensions={"jupyterlab": False, "jupyter_lsp": False, "notebook_shim": False}'


def until(condition: Callable[[], object], what: str, *, seconds: float = 30) -> None:
    """Wait for what is learnt by asking; each question costs the hub something."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.2)


@dataclass
class Hub:
    """One hub; it may be stopped, killed and started again."""

    root: Path
    base: str = "/"
    devices: int = 4
    #: Real devices to all that our code can see, instead of simulated ones.
    board: Board | None = None
    #: Whether its parts talk to each other by internal TLS; people come without.
    tls: bool = False
    #: Whether people's servers have JupyterLab, which is half of their start.
    lab: bool = False
    policy: Mapping[str, Any] = field(default_factory=lambda: POLICY)
    single_user_app: str = "jupyter_server.serverapp.ServerApp"
    more: str = ""
    api_token: str = field(default_factory=lambda: uuid.uuid4().hex)
    _process: subprocess.Popen[bytes] | None = None
    _tokens: dict[str, str] = field(default_factory=dict)
    _clients: dict[str, Client] = field(default_factory=dict)
    _open: list[httpx.Client] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.port, inner, proxy_api, self.service_port = (free_port() for _ in range(4))
        #: The hub itself, past its proxy: the one in Python holds each answer back until it is whole, so it streams
        #: nothing.
        scheme = "https" if self.tls else "http"
        plain = [f"{Path(sys.executable).parent}/configurable-http-proxy"]
        proxy = [sys.executable, "-m", "tests.hub.tls_proxy"] if self.tls else plain
        self.direct = f"{scheme}://127.0.0.1:{inner}{self.base}"
        devices = {"simulated_devices": self.devices} if self.board is None else {"lock_file": str(self.root / "lock")}
        # Where somebody has no account, jobs run as this one; for root it must be said.
        account = pwd.getpwuid(os.geteuid()).pw_name
        (self.root / "homes").mkdir(parents=True)
        self.config = self.root / "jupyterhub_config.py"
        self.config.write_text(
            _CONFIG.format(
                public=f"http://127.0.0.1:{self.port}{self.base}",
                inner=f"{scheme}://127.0.0.1:{inner}",
                proxy_api=f"{scheme}://127.0.0.1:{proxy_api}",
                proxy=proxy,
                tls=self.tls,
                certificates=str(self.certificates),
                reached=f"{self.url}services/jupyter-gpu" if self.tls else "",
                password=PASSWORD,
                groups={name: {"users": list(members)} for name, members in TEAMS.items()},
                lab=_LAB if self.lab else _NO_LAB,
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
                    "hub_cache_seconds": CACHE_SECONDS, "system": False, "account_of_user": {"*": account},
                    **devices,
                },
                seen={} if self.board is None else self.board.environment(),
                more=self.more,
            )
        )  # fmt: skip
        self.api = self._client(f"{self.url}hub/api", self.api_token)

    @property
    def url(self) -> str:
        """What people type, with a slash at its end."""
        return f"http://127.0.0.1:{self.port}{self.base}"

    @property
    def certificates(self) -> Path:
        """Where those of internal TLS stand, from one start to the next."""
        return self.root / "internal-ssl"

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
            # Its proxy may be one of ours.
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
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
        runs = self._runs()
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "jupyterhub", "-f", str(self.config)],
                cwd=self.root, env=self.environment, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        # After a kill the old proxy goes on answering until it is replaced, so its answers mean nothing yet.
        until(lambda: self._ended() or self._runs() > runs, "the hub runs", seconds=START_SECONDS)
        until(lambda: self._ended() or self._answers(), "its service answers", seconds=START_SECONDS)
        assert not self._ended(), self.said()

    def _runs(self) -> int:
        return self.log.read_bytes().count(b"JupyterHub is now running") if self.log.exists() else 0

    def _ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def _answers(self) -> bool:
        # The proxy answers before the hub does, and the hub before its service.
        with contextlib.suppress(httpx.TransportError, GpuError):
            return self.api.get("/").is_success and bool(self.as_(OPERATOR).broker())
        return False

    def said(self, lines: int = 60) -> str:
        """The end of its log, without the proxy's lines."""
        text = self.log.read_text(errors="replace").splitlines()
        return "\n".join(
            [it for it in text if "configurable_http_proxy" not in it and "tornado.access" not in it][-lines:]
        )

    def stop(self) -> None:
        """As a service manager does: servers and jobs live on."""
        self._end(signal.SIGTERM)

    def stop_all_of_it(self) -> None:
        """As a service manager does that signals the hub's whole group."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGTERM)
            self._process.wait(60)
            self._process = None

    def kill(self) -> None:
        """As the kernel does when memory is short: no hook, no clean-up."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(60)
            self._process = None

    def upgrade_db(self) -> None:
        """As an admin does while it is down: its configuration, ours in it, is read, and nothing is started."""
        words = [sys.executable, "-m", "jupyterhub", "upgrade-db", "-f", str(self.config)]
        subprocess.run(words, cwd=self.root, env=self.environment, check=True, capture_output=True)

    def clear(self) -> None:
        """Stop all servers and end all work, so that the next test begins as the first."""
        for user in self.api.get("/users?state=active").json():
            for name in user["servers"]:
                self.stop_server(user["name"], name)
        # Also those that end by themselves: while one is on its way out, no other starts in its place.
        until(lambda: not any(user["servers"] for user in self.api.get("/users").json()), "no server is left")
        operator = self.as_(OPERATOR)
        for it in operator.workloads(ended=False):
            with contextlib.suppress(GpuError):  # it has ended by itself
                operator.cancel(it.id)
        until(lambda: not list(operator.workloads(ended=False)), "everything has ended")

    def end(self) -> None:
        """Stop it with all that it started."""
        with contextlib.suppress(httpx.HTTPError, ValueError):  # it may be down, or never have come up
            for user in self.api.get("/users?state=active").json():
                for name in user["servers"]:
                    self.stop_server(user["name"], name)
        self.stop()
        for client in (*self._open, *self._clients.values()):
            client.close()
        for process in psutil.process_iter(["pid"]):
            with contextlib.suppress(psutil.Error):
                # What a hub that was killed left behind: its proxy, and what servers that were killed had started.
                if str(self.root) in " ".join(process.cmdline()) or process.cwd().startswith(str(self.root)):
                    process.kill()

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

    def as_(self, user: str) -> Client:
        """The GPU service as this person sees it, through the proxy."""
        if user not in self._clients:
            self._clients[user] = Client(f"{self.url}services/jupyter-gpu", token=self.token_of(user))
        return self._clients[user]

    def raw(self, token: str) -> httpx.Client:
        """The GPU service for who shows this token, without our client."""
        return self._client(f"{self.url}services/jupyter-gpu/api/v1", token)

    def browser(self, user: str) -> httpx.Client:
        """A browser without scripts, after the login; how it came is told by the proxy in front."""
        browser = httpx.Client(
            base_url=self.url, headers={"X-Forwarded-Proto": "http"}, follow_redirects=True, timeout=START_SECONDS,
            trust_env=False,
        )  # fmt: skip
        self._open.append(browser)
        browser.get("hub/login")
        token = browser.cookies.get("_xsrf", path=f"{self.base}hub/")
        browser.post("hub/login", data={"username": user, "password": PASSWORD, "_xsrf": token}).raise_for_status()
        return browser

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

        def is_gone() -> bool:
            left = self.server(user, server)
            return not (left.get("ready") or left.get("pending"))

        until(is_gone, f"{user}/{server} stopped", seconds=START_SECONDS)

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
        return asyncio.run(self._run(code, "idle"))

    def begin(self, code: str) -> None:
        """Run code, and look away as soon as it computes."""
        asyncio.run(self._run(code, "busy"))

    async def _run(self, code: str, until_it_is: str) -> str:
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
                    if heard["msg_type"] == "status" and told["execution_state"] == until_it_is:
                        break
        finally:
            socket_.close()
            while await socket_.read_message() is not None:  # until the other end has said good-bye
                pass
        return said.strip()


@contextlib.contextmanager
def a_hub(root: Path, **words: Any) -> Iterator[Hub]:
    """Start a hub, and end it with all that it started."""
    hub = Hub(root, **words)
    try:
        hub.start()
        yield hub
    finally:
        hub.end()
