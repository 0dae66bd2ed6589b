"""Three lines in a hub's configuration: what they add, what they leave, and what stops the hub's start."""

import asyncio
import hashlib
import inspect
import json
import pprint
import re
from pathlib import Path
from unittest import mock

import pytest
from jupyterhub.app import JupyterHub
from jupyterhub.spawner import LocalProcessSpawner, SimpleLocalProcessSpawner
from traitlets.config import Config

from jupyter_gpu.broker.app import GpuBroker
from jupyter_gpu.broker.settings import settings_of
from jupyter_gpu.jupyter.service import DIGEST, Secret, setup_hub
from jupyter_gpu.jupyter.spawner import GpuSpawner
from jupyter_gpu.model import Profile
from jupyter_gpu.policies import read_policy

from .spawn_ground import Hall

SAMPLES = Path(__file__).parents[2] / "etc" / "jupyterhub"
CUSTOM = "custom:jupyter-gpu:"
ACCESS = "access:services!service=jupyter-gpu"
RESEARCHER = {f"{CUSTOM}read", f"{CUSTOM}metrics", f"{CUSTOM}reserve", f"{CUSTOM}submit", ACCESS}
ONE = {"name": "one"}


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Read a configuration as `jupyterhub -f FILE` does."""
    monkeypatch.setenv("GPU_API_TOKEN", "a" * 32)
    monkeypatch.setenv("GPU_SPAWNER_TOKEN", "b" * 32)

    def read(text_or_path):
        path = text_or_path
        if isinstance(text_or_path, str):
            path = tmp_path / "jupyterhub_config.py"
            path.write_text("from jupyter_gpu.jupyter.service import setup_hub\nc = get_config()\n" + text_or_path)
        app = JupyterHub()
        app.load_config_file(str(path))
        return app

    return read


def service_of(app):
    """The GPU service of a hub."""
    (found,) = (it for it in app.services if it["name"] == "jupyter-gpu")
    return found


def roles_of(app):
    """The roles by name."""
    return {it["name"]: it for it in app.load_roles}


# -- samples

WHERE = {
    "local": ("GpuLocalProcessSpawner", "http://127.0.0.1:8790/services/jupyter-gpu"),
    "systemd": ("GpuSystemdSpawner", "http://127.0.0.1:8790/services/jupyter-gpu"),
    "docker": ("GpuDockerSpawner", "http://172.17.0.1:8000/services/jupyter-gpu"),
    "kubernetes": ("GpuKubeSpawner", "http://gpu-node:8790/services/jupyter-gpu"),
    "batch": ("GpuSlurmSpawner", "http://head.example:8000/services/jupyter-gpu"),
}


def test_every_sample_is_known_here():
    """A sample that nobody loads is wrong some day."""
    assert {path.stem for path in SAMPLES.glob("*.py")} == set(WHERE)


@pytest.mark.parametrize("name", WHERE)
def test_a_sample_is_a_whole_configuration(load, name, tmp_path, monkeypatch):
    """The hub takes it, its spawner can be made and knows its profiles, and the broker takes its policy."""
    monkeypatch.setattr("kubespawner.spawner.load_config", lambda **_: None)
    monkeypatch.setattr("kubespawner.spawner.shared_client", lambda _: None)
    class_name, reached = WHERE[name]

    app = load(SAMPLES / f"{name}.py")

    hall = Hall(tmp_path, app.spawner_class, "")
    hall.config = app.config
    spawner = hall.spawner("ana")
    assert type(spawner).__name__ == class_name
    assert isinstance(spawner, GpuSpawner)
    assert [it.name for it in spawner.gpu_profiles][:2] in (["none", "one"], ["cpu", "one"])
    assert spawner.gpu_server_url == reached
    assert spawner.gpu_page == "/services/jupyter-gpu/"
    assert spawner.gpu_scope == "custom:jupyter-gpu:reserve"
    assert set(spawner.server_token_scopes) == {"users:activity!user", "access:servers!server"} | RESEARCHER
    assert set(app.extra_user_scopes) == RESEARCHER
    service = service_of(app)
    if name == "kubernetes":
        assert (service["api_token"], spawner.gpu_token, "command" in service) == ("a" * 32, "b" * 32, False)
        return
    settings = settings_of(service["environment"], GpuBroker.class_trait_names(config=True))
    assert settings["hub"] is True
    assert [it.name for it in read_policy(settings["policy"]).profiles] == [it.name for it in spawner.gpu_profiles]


def test_the_local_sample_keeps_what_else_is_in_it(load):
    """Its idle culler, with its own role, and the people of its roles."""
    app = load(SAMPLES / "local.py")

    assert [it["name"] for it in app.services] == ["idle-culler", "jupyter-gpu"]
    assert roles_of(app)["idle-culler"]["services"] == ["idle-culler"]
    assert roles_of(app)["jupyter-gpu-operator"]["users"] == ["grace"]
    assert "users" not in roles_of(app)["jupyter-gpu-researcher"]


# -- what is added, and what stays


def test_nothing_but_the_call_is_needed(load):
    """A hub with no settings at all: its own defaults, and the GPUs."""
    app = load("setup_hub(c)")

    assert issubclass(app.spawner_class, LocalProcessSpawner)
    assert app.spawner_class.__name__ == "GpuLocalProcessSpawner"
    assert service_of(app)["url"] == "http://127.0.0.1:8790"
    assert service_of(app)["oauth_no_confirm"] is True
    assert set(app.custom_scopes) == {
        f"{CUSTOM}{it}" for it in ("read", "logs", "metrics", "reserve", "submit", "operate", "admin")
    }


OURS = {"jupyter-gpu-researcher", "jupyter-gpu-contractor", "jupyter-gpu-operator", "jupyter-gpu-admin"}


SET = """\
c.JupyterHub.services = ({'name': 'x', 'api_token': 'y' * 32},)
c.JupyterHub.load_roles = ({'name': 'x', 'scopes': ['list:users']},)
c.JupyterHub.custom_scopes = {'custom:x': {'description': 'X'}}
c.JupyterHub.extra_user_scopes = {'custom:x'}
"""
ADDED = """\
c.JupyterHub.services.append({'name': 'x', 'api_token': 'y' * 32})
c.JupyterHub.load_roles.append({'name': 'x', 'scopes': ['list:users']})
c.JupyterHub.custom_scopes.update({'custom:x': {'description': 'X'}})
c.JupyterHub.extra_user_scopes.add('custom:x')
"""


@pytest.mark.parametrize("own", [SET, ADDED])
def test_what_is_there_stays(load, own):
    """Whether an admin set a list or added to one that is not made yet."""
    app = load(own + "setup_hub(c)")

    assert [it["name"] for it in app.services] == ["x", "jupyter-gpu"]
    assert set(roles_of(app)) == {"x", "jupyter-gpu-service", *OURS}
    assert "custom:x" in app.custom_scopes
    assert set(app.extra_user_scopes) == {"custom:x"} | RESEARCHER


@pytest.mark.parametrize(
    ("told", "cls"),
    [
        ("'simple'", SimpleLocalProcessSpawner),
        ("'Simple'", SimpleLocalProcessSpawner),
        ("'jupyterhub.spawner.SimpleLocalProcessSpawner'", SimpleLocalProcessSpawner),
        ("__import__('jupyterhub.spawner').spawner.SimpleLocalProcessSpawner", SimpleLocalProcessSpawner),
    ],
)
def test_the_spawner_is_the_one_that_the_hub_has(load, told, cls):
    """By the name of an entry point, by its address, or the class itself."""
    app = load(f"c.JupyterHub.spawner_class = {told}\nsetup_hub(c)")

    assert issubclass(app.spawner_class, GpuSpawner)
    assert (
        next(it for it in app.spawner_class.__mro__ if it.__module__ == cls.__module__ and it.__name__[:3] != "Gpu")
        is cls
    )


def test_a_role_user_that_was_written_anew_gets_the_scopes_too(load):
    """The hub ignores extra scopes of users where their role is written anew, and everybody would be shut out."""
    app = load("c.JupyterHub.load_roles = [{'name': 'user', 'scopes': ['self']}]\nsetup_hub(c)")

    assert set(roles_of(app)["user"]["scopes"]) == {"self"} | RESEARCHER
    assert app.extra_user_scopes == set()


USUAL = {"users:activity!user", "access:servers!server"}


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ("", USUAL | RESEARCHER),
        ("c.Spawner.server_token_scopes = ['users:activity!user']", {"users:activity!user"} | RESEARCHER),
        ("c.SimpleLocalProcessSpawner.server_token_scopes = ['read:users!user']", {"read:users!user"} | RESEARCHER),
        ("c.JupyterHub.load_roles = [{'name': 'server', 'scopes': ['read:self']}]", {"read:self"} | RESEARCHER),
        ("c.Spawner.server_token_scopes = lambda spawner: [spawner.name]", {"ana"} | RESEARCHER),
        ("async def told(spawner):\n    return []\nc.Spawner.server_token_scopes = told", USUAL | RESEARCHER),
    ],
)
def test_a_servers_token_keeps_what_it_had(load, own, expected):
    """Where nothing is said that is what the hub gives without us; a function of the admin's is still asked."""
    app = load(f"c.JupyterHub.spawner_class = 'simple'\n{own}\nsetup_hub(c)")

    class Spawner:
        name = "ana"

    section = app.config.SimpleLocalProcessSpawner
    told = section.get("server_token_scopes") or app.config.Spawner.server_token_scopes
    assert set(asyncio.run(told(Spawner)) if callable(told) else told) == expected


def test_what_code_of_users_reads_is_never_more_than_a_researchers(load):
    """Every kernel sees its server's token, and a server's owner what its visitors show: operators' rights stay out."""
    app = load("setup_hub(c, operators=['grace'], admins=['grace'])")

    for scopes in (app.config.Spawner.server_token_scopes, app.config.Spawner.oauth_client_allowed_scopes):
        assert not {f"{CUSTOM}{it}" for it in ("operate", "admin", "logs")} & set(scopes)


def test_who_visits_a_server_of_somebody_else_only_looks_there(load):
    """What they show to it would let whoever runs it submit in their name, and so run anything as them."""
    spawner = load("setup_hub(c)").config.Spawner

    ours = {it.removeprefix(CUSTOM) for it in spawner.oauth_client_allowed_scopes if it.startswith(CUSTOM)}
    assert ours == {"read", "metrics"}


def test_the_service_may_no_more_than_it_needs(load):
    """To list servers, and to say that one is in use: not to read, start or stop what is somebody's."""
    app = load("setup_hub(c)")

    assert roles_of(app)["jupyter-gpu-service"] == {
        "name": "jupyter-gpu-service",
        "description": "What the GPU service asks the hub",
        "scopes": ["list:users", "read:servers", "read:users:groups", "users:activity"],
        "services": ["jupyter-gpu"],
    }
    assert "admin" not in service_of(app)


def test_who_sees_only_their_own_is_named_beside_who_sees_all(load):
    """A contractor may reserve and submit; what others do is not among their scopes."""
    app = load("setup_hub(c, researchers={'groups': ['lab']}, contractors={'users': ['joan'], 'groups': ['guests']})")

    assert set(roles_of(app)["jupyter-gpu-contractor"]["scopes"]) == {f"{CUSTOM}reserve", f"{CUSTOM}submit", ACCESS}
    assert roles_of(app)["jupyter-gpu-contractor"]["users"] == ["joan"]
    assert roles_of(app)["jupyter-gpu-contractor"]["groups"] == ["guests"]
    assert roles_of(app)["jupyter-gpu-researcher"]["groups"] == ["lab"]
    assert app.extra_user_scopes == set()


# -- places


@pytest.mark.parametrize(
    ("own", "reached", "hub_reaches"),
    [
        ("c.JupyterHub.base_url = '/lab'", "http://127.0.0.1:8790/lab/services/jupyter-gpu", None),
        ("c.JupyterHub.bind_url = 'http://:8000/a/b/'", "http://127.0.0.1:8790/a/b/services/jupyter-gpu", None),
        (
            "c.JupyterHub.public_url = 'https://hub.example/lab/'\nc.JupyterHub.base_url = '/lab/'",
            "https://hub.example/lab/services/jupyter-gpu",
            "http://127.0.0.1:8790/lab/services/jupyter-gpu",
        ),
        (
            "c.JupyterHub.public_url = 'https://hub.example'\nc.JupyterHub.internal_ssl = True",
            "https://hub.example/services/jupyter-gpu",
            "https://127.0.0.1:8790/services/jupyter-gpu",
        ),
    ],
)
def test_a_sub_path_is_part_of_every_address(load, own, reached, hub_reaches):
    """A hub behind others' addresses has ours below it too (jupyterhub/jupyterhub-deploy-docker#76)."""
    app = load(f"{own}\nsetup_hub(c)")

    assert app.config.GpuSpawner.gpu_server_url == reached
    assert app.config.GpuSpawner.gpu_url == (hub_reaches or reached)


# -- secrets


def test_the_spawners_token_is_nowhere_to_be_read(load):
    """The service knows its digest; no command line, no environment and no printed configuration has it."""
    app = load("setup_hub(c, profiles=[{'name': 'one'}])")
    token, service = app.config.GpuSpawner.gpu_token, service_of(app)

    assert len(token) > 40
    assert isinstance(token, Secret)
    assert service["environment"][DIGEST] == hashlib.sha256(token.encode()).hexdigest()
    assert token not in json.dumps(service)
    assert token not in pprint.pformat(app.config) + repr(app.config)


def test_every_start_of_a_hub_has_a_token_of_its_own(load):
    """Nothing is kept on disk: a new hub starts a new service, which hears of the new token."""
    assert load("setup_hub(c)").config.GpuSpawner.gpu_token != load("setup_hub(c)").config.GpuSpawner.gpu_token


def test_the_service_is_told_where_things_stand(load, monkeypatch):
    """A hub hands on almost nothing of its own environment, so what finds stores and drivers is named."""
    monkeypatch.setenv("JUPYTER_GPU_STATE_DIR", "/srv/gpu")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")

    environment = service_of(load("setup_hub(c)"))["environment"]

    assert environment["JUPYTER_GPU_STATE_DIR"] == "/srv/gpu"
    assert "AWS_SECRET_ACCESS_KEY" not in environment


@pytest.mark.parametrize(
    ("uid", "spawner", "more", "rule"),
    [
        (0, "default", "", "same"),
        (0, "simple", "", "same"),
        (990, "simple", "", "service"),
        (990, "default", "", "same"),
        (990, "docker", "", "same"),
        (990, "docker", ", broker={'account_of_user': 'service'}", "service"),
    ],
)
def test_jobs_run_as_the_hubs_account_only_where_servers_do(load, uid, spawner, more, rule):
    """A job as the account of a hub that is not root reads its database and secrets; from a container nobody could."""
    with mock.patch("os.geteuid", return_value=uid):
        app = load(f"c.JupyterHub.spawner_class = {spawner!r}\nsetup_hub(c, url='https://h.example/x'{more})")

    settings = settings_of(service_of(app)["environment"], GpuBroker.class_trait_names(config=True))
    assert settings["account_of_user"] == rule


# -- what cannot be meant

BAD = """\
PROFILES = [
    {{"name": "one"}},
    {},
]
setup_hub(
    c,
    profiles={},
)
"""


@pytest.mark.parametrize(
    ("profile", "said"),
    [
        ('{"name": "big", "device_clas": "a100"}', "unknown field `device_clas`.*did you mean device_class"),
        ('{"name": "big", "devices": -1}', "'big' asks for -1 devices"),
        ('{"name": "one"}', "'one' has the name of another"),
        ('{"name": "big", "memory_bytes": "a lot"}', "memory_bytes"),
        ('{"name": "big", "queue": "fast"}', "names the queue 'fast', which does not exist"),
        ('{"name": "big", "queue": "training"}', "is for servers, and its queue training takes only jobs"),
        ('"big"', r"Expected `object`, got `str`"),
    ],
)
@pytest.mark.parametrize(("written", "line"), [("PROFILES", 5), ('[{"name": "one"},\n{}]', 10)])
def test_a_profile_that_cannot_be_meant_stops_the_hub(load, profile, said, written, line):
    """With the line where it stands and what to do, and without forty lines of how a hub reads its configuration."""
    if written == "PROFILES":
        text = BAD.format(profile, written)
    else:
        text = BAD.format('{"name": "two"}', written.replace("{}", profile))

    with pytest.raises(SystemExit, match=said) as stopped:
        load(text)

    assert re.match(rf".*/jupyterhub_config\.py, line {line}: ", str(stopped.value)), stopped.value
    assert "docs/" in str(stopped.value) or "for_servers" in str(stopped.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("setup_hub(c, contractors=['joan'])", "everybody is a researcher.*\n.*researchers="),
        ("setup_hub(c, researchers=['ana'], contractors=['ana'])", "'ana' has another role too"),
        ("setup_hub(c, operators='grace')", r"operators: 'grace' is no list of names.*\n.*operators=\[\"ana\"\]"),
        ("setup_hub(c, operators={'group': ['x']})", "operators: there is no 'group'"),
        ("setup_hub(c, operators=[''])", "operators: '' is no name"),
        ("c.JupyterHub.spawner_class = 'dockr'\nsetup_hub(c)", "spawner_class is 'dockr', which cannot be imported"),
        ("c.JupyterHub.spawner_class = dict\nsetup_hub(c)", "which is no Spawner"),
        ("c.JupyterHub.spawner_class = 'docker'\nsetup_hub(c)", "DockerSpawner starts servers elsewhere.*\n.*url="),
        ("c.JupyterHub.internal_ssl = True\nsetup_hub(c)", "internal TLS lets only the hub's own parts in.*\n.*url="),
        ("setup_hub(c, url='hub.example')", "url: 'hub.example' is none"),
        ("setup_hub(c, name='GPU service')", "no name of a service"),
        ("setup_hub(c, port=0)", "port: 0 is no port"),
        ("setup_hub(c, port='8790')", "port: '8790' is no port"),
        ("setup_hub(c, profiles={'name': 'one'})", "profiles: a dict is no list of profiles"),
        ("setup_hub(c)\nsetup_hub(c)", "line 4: There is a service 'jupyter-gpu' already.\nCall setup_hub once"),
        ("setup_hub(c, policy={'failurs': 1})", "did you mean failures"),
        ("setup_hub(c, profiles=[{'name': 'a'}], policy={'profiles': []})", "Profiles are given twice"),
        ("setup_hub(c, broker={'policy': {}})", "'policy' does not belong there"),
        ("setup_hub(c, api_token='x')", "belong together"),
        ("setup_hub(c, policy={'teams': {'t': ['x' * 100] * 2000}})", "more than a process can be told"),
    ],
)
def test_what_cannot_be_meant_stops_the_hub(load, text, said):
    """Each with what to write instead."""
    with pytest.raises(SystemExit, match=said):
        load(text)


HUB_PAGE = (Path(__file__).parents[2] / "docs" / "hub.md").read_text(encoding="utf-8")


def test_every_argument_is_described():
    """An argument that the admin's guide does not have is known to nobody."""
    table = {
        word for row in re.findall(r"^\| (`[^|]*) \|", HUB_PAGE, re.MULTILINE) for word in re.findall(r"`(\w+)`", row)
    }

    assert set(inspect.signature(setup_hub).parameters) - {"c"} <= table
    assert set(Profile.__struct_fields__) <= table


def test_the_guide_gives_each_role_its_scopes(load):
    """What the table says is what the hub is told."""
    roles = roles_of(load("setup_hub(c)"))
    table = HUB_PAGE.partition("## Who may what\n")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| (researcher|contractor|operator|admin) \|.*\| ([^|]+) \|$", table, re.MULTILINE))
    told = {name: set(re.findall(r"`([a-z]+)`", text)) for name, text in rows.items()}
    told["operator"] |= told["researcher"]

    for name, scopes in told.items():
        assert set(roles[f"jupyter-gpu-{name}"]["scopes"]) == {f"{CUSTOM}{it}" for it in scopes} | {ACCESS}


def test_every_link_of_the_guide_leads_somewhere():
    """To a file that is there, and in this page to a heading."""
    headings = {
        re.sub(r"[^a-z -]", "", it.lower()).replace(" ", "-") for it in re.findall(r"^#+ (.*)$", HUB_PAGE, re.MULTILINE)
    }
    docs = Path(__file__).parents[2] / "docs"

    for file, place in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", HUB_PAGE):
        assert (docs / file).exists()
        assert file or place in headings, place


def test_it_is_called_with_any_configuration():
    """A plain Config, as tests of others make one, with no file behind it."""
    c = Config()
    with pytest.raises(SystemExit, match=r"test_setup\.py, line \d+: "):
        setup_hub(c, profiles=[ONE, ONE])

    setup_hub(c, profiles=[ONE])

    assert c.GpuSpawner.gpu_profiles == [ONE]
