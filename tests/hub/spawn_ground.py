"""What the tests of spawners share: users in a hub's database, real spawner classes, a broker behind its hub's gate."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from jupyterhub import orm, roles
from jupyterhub.objects import Hub
from jupyterhub.spawner import SimpleLocalProcessSpawner
from jupyterhub.user import User
from traitlets.config import Config

from jupyter_gpu.client import AsyncClient
from jupyter_gpu.jupyter.spawner import with_gpus
from jupyter_gpu.model import Ask, Kind, Policy, Profile, QuotaRule, SeeProbe, SubmitBody, WorkloadView

from .ground import SPAWNER_TOKEN, Serving, a_service

ONE = Profile(name="one", title="One GPU", description="For a <notebook>", devices=1, duration_seconds=3600)
TWO = Profile(name="two", title="Two GPUs", devices=2)
NONE = Profile(name="none", title="No GPU", devices=0)
VISION = Profile(name="vision", title="Vision's own", devices=1, teams=("vision",))
FOR_KERNELS = Profile(name="kernels", devices=1, for_servers=False)
PROFILES = (ONE, TWO, NONE, VISION, FOR_KERNELS)

#: A server that answers as long as it lives, and writes down what it was started with.
SERVER = """
import json, os, signal, sys, http.server
signal.signal(signal.SIGINT, signal.SIG_DFL)
from urllib.parse import urlsplit
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("X-JupyterHub-Version", {version!r})
        self.end_headers()
    def log_message(self, *words):
        pass
url = urlsplit(os.environ["JUPYTERHUB_SERVICE_URL"])
server = http.server.HTTPServer((url.hostname, url.port), Handler)
with open(sys.argv[1] + ".new", "w") as file:
    json.dump(dict(os.environ), file)
os.rename(sys.argv[1] + ".new", sys.argv[1])
server.serve_forever()
"""


class Hall:
    """A hub's users and their servers, without its web pages."""

    def __init__(self, folder: Path, spawner_class: type, url: str, **traits: Any) -> None:
        self.folder, self.spawner_class = folder, spawner_class
        self.db = orm.new_session_factory("sqlite:///:memory:")()
        self.db.add(orm.OAuthClient(identifier="jupyterhub", secret="", redirect_uri="", description=""))
        for role in roles.get_default_roles():
            roles.create_role(self.db, role)
        self.config = Config()
        self.config.GpuSpawner.gpu_profiles = list(PROFILES)
        self.config.GpuSpawner.gpu_url = url
        self.config.GpuSpawner.gpu_token = SPAWNER_TOKEN
        self.config.GpuSpawner.gpu_patience_seconds = 0.2
        self.config.GpuSpawner.update(traits)
        self.config.SimpleLocalProcessSpawner.home_dir_template = str(folder / "homes" / "{username}")
        self.config.Spawner.cmd = [sys.executable, "-S", "-c", SERVER.replace("{version!r}", repr(_version()))]
        self.config.Spawner.args = [str(folder / "environment.json")]
        self.users: dict[str, User] = {}

    def user(self, name: str, *groups: str) -> User:
        """Somebody, in these groups."""
        if name not in self.users:
            person = orm.User(name=name)
            self.db.add(person)
            self.db.commit()
            roles.assign_default_roles(self.db, person)
            self.users[name] = self._known(person)
            self.join(name, *groups)
        return self.users[name]

    def join(self, name: str, *groups: str) -> None:
        """Somebody comes into groups."""
        for group in groups:
            found = orm.Group.find(self.db, group)
            if found is None:
                found = orm.Group(name=group)
                self.db.add(found)
            found.users.append(self.users[name].orm_user)
        self.db.commit()

    def _known(self, person: orm.User) -> User:
        settings = {
            "hub": Hub(),
            "config": self.config,
            "spawner_class": self.spawner_class,
            "internal_ssl": False,
            "oauth_provider": None,
        }
        return User(person, settings, db=self.db)

    def spawner(self, name: str, *groups: str, server: str = "", **options: Any) -> Any:
        """A spawner of somebody's, about to start with these options."""
        user = self.user(name, *groups)
        found = user.get_or_create_spawner(server, server)
        found.user_options = options
        return found

    def restarted(self) -> None:
        """The hub is gone and comes back: all that is left of it is its database."""
        self.users = {name: self._known(user.orm_user) for name, user in self.users.items()}

    def environment(self) -> dict[str, str]:
        """What the server that started last was started with."""
        return json.loads((self.folder / "environment.json").read_text())


def _version() -> str:
    import jupyterhub

    return jupyterhub.__version__


@contextlib.asynccontextmanager
async def a_hall(
    folder: Path,
    spawner_class: type = SimpleLocalProcessSpawner,
    *,
    count: int = 2,
    quotas: tuple[QuotaRule, ...] = (),
    accounts: Any = "",
    **traits: Any,
) -> AsyncIterator[tuple[Hall, Serving]]:
    """A hub whose spawners ask a real broker, which knows them by their token."""
    policy = Policy(profiles=PROFILES, quotas=quotas)
    async with a_service(folder, count=count, policy=policy, cache_seconds=1.0, accounts=accounts) as serving:
        hall = Hall(folder, with_gpus(spawner_class), serving.root + serving.prefix, **traits)
        try:
            yield hall, serving
        finally:
            for user in hall.users.values():
                for name in list(user.spawners):
                    with contextlib.suppress(Exception):
                        await user.spawners[name].stop(now=True)
                    await user.spawners[name]._gpu_lease.settle()


def client_of(serving: Serving, name: str, *groups: str) -> AsyncClient:
    """Ask the broker for somebody, as the spawner does."""
    return AsyncClient(
        serving.root + serving.prefix, token=SPAWNER_TOKEN, start=False, for_user=name, groups=groups, environ={}
    )


async def reservations(serving: Serving, name: str, *, ended: bool = False) -> list[WorkloadView]:
    """Somebody's reservations as the broker has them, newest first."""
    async with client_of(serving, name) as client:
        return [it async for it in client.workloads(kind=Kind.RESERVATION, mine=True, ended=ended)]


async def occupy(serving: Serving, name: str = "grace", devices: int = 2) -> WorkloadView:
    """Let somebody else hold devices for an hour."""
    async with client_of(serving, name) as client:
        return await client.submit(SubmitBody(kind=Kind.RESERVATION, ask=Ask(devices=devices, duration_seconds=3600)))


def a_person(name: str = "ana", *groups: str) -> SimpleNamespace:
    """A user as spawners see one, where no database is needed."""
    return SimpleNamespace(
        name=name,
        id=7,
        url=f"/user/{name}",
        escaped_name=name,
        groups=[SimpleNamespace(name=group) for group in groups],
    )


async def leave(serving: Serving, it: WorkloadView, name: str = "grace") -> None:
    """Give back, and let the devices be seen clear."""
    async with client_of(serving, name) as client:
        await client.release(it.id)
    await serving.loop.handle(SeeProbe(workload=it.id))
