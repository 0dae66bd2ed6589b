"""The hub's side in three lines of jupyterhub_config.py, after the hub's own settings.

    from jupyter_gpu.jupyter.service import setup_hub

    setup_hub(c, profiles=[{"name": "one", "title": "One GPU", "devices": 1, "duration_seconds": "8h"}])

It adds the service that owns the GPUs, our scopes and roles, and the leasing around the spawner that the hub has. What
is there stays; what cannot be meant stops the hub's start, with the line and what to do.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import sys
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec
from jupyterhub.roles import get_default_roles
from jupyterhub.spawner import SimpleLocalProcessSpawner
from traitlets.config import Config

from ..errors import GpuError, InvalidAsk
from ..model import Kind, Policy, Profile, Scope
from ..policies import read_policy
from . import adding
from .config_lines import Caller, caller
from .hub_tls import let_the_hub_look_for_services
from .roles import PREFIX, RESEARCHER, VISITOR, Roles, custom_scopes, read_people, scopes_of
from .spawner import with_gpus

NAME = "jupyter-gpu"
PORT = 8790
DIGEST = "JUPYTER_GPU_SPAWNER_DIGEST"
SETTINGS = "JUPYTER_GPU_SETTINGS"

#: What of the hub's surroundings the service needs; a hub hands on almost nothing by itself.
_HANDED_ON = (
    "HOME", "XDG_RUNTIME_DIR", "LD_LIBRARY_PATH", "JUPYTER_CONFIG_DIR", "JUPYTER_CONFIG_PATH", "JUPYTER_DATA_DIR",
    "JUPYTER_GPU_RUNTIME_DIR", "JUPYTER_GPU_STATE_DIR",
)  # fmt: skip
#: Linux takes 128 KiB for one variable.
_MOST_SETTINGS_BYTES = 120_000
#: Servers of these do not see the hub's 127.0.0.1.
_ELSEWHERE = ("DockerSpawner", "SwarmSpawner", "KubeSpawner", "BatchSpawnerBase")
_HINT = "docs/hub.md describes every argument of setup_hub, docs/admin.md every setting of the policy."


class Secret(str):
    """A token that is not shown where the configuration is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'(secret)'"


class Tokens(NamedTuple):
    """What the service shows the hub, and what the hub's spawner shows the service."""

    #: Empty where the hub starts the service and makes it one.
    api: str
    spawner: Secret


class Place(NamedTuple):
    """Where the service stands, without a slash at the end."""

    name: str
    #: What the hub's proxy sends its callers to.
    origin: str
    #: What comes after it, like /services/jupyter-gpu.
    prefix: str
    #: Where servers reach it.
    reached: str


def setup_hub(
    c: Config,
    *,
    profiles: Iterable[Mapping[str, Any] | Profile] = (),
    policy: Mapping[str, Any] | None = None,
    researchers: Any = None,
    contractors: Any = (),
    operators: Any = (),
    admins: Any = (),
    broker: Mapping[str, Any] | None = None,
    name: str = NAME,
    ip: str = "127.0.0.1",
    port: int = PORT,
    url: str = "",
    api_token: str = "",
    spawner_token: str = "",
) -> None:
    """Add GPUs to a hub: call it once, after everything else was set.

    `profiles` and `policy` are those of docs/admin.md. People are names of users, or {"users": [...], "groups": [...]};
    `researchers` None is everybody. `broker` holds other settings of `GpuBroker`. The service listens on `ip` and
    `port`; `url` is where servers reach it if they do not run on the hub's machine. With `api_token` and
    `spawner_token` the hub starts no service: yours runs elsewhere and knows both.
    """
    called = caller()
    try:
        settings = _read_settings(_read_profiles(profiles), policy or {}, broker or {})
        roles = Roles(
            None if researchers is None else read_people(researchers, "researchers"),
            read_people(contractors, "contractors"),
            read_people(operators, "operators"),
            read_people(admins, "admins"),
        )
        roles.check()
        spawner_class = adding.spawner_class_of(c)
        settings.setdefault("account_of_user", _usual_accounts(spawner_class))
        place = _read_place(c, spawner_class, name, ip=ip, port=port, url=url)
        tokens = _read_tokens(api_token, spawner_token)
    except GpuError as error:
        # An admin learns nothing from forty lines of how a hub reads its configuration.
        sys.exit(f"{_line_of(error, called)}: {error.message}\n{error.hint or _HINT}")
    if place.origin.startswith("https:"):
        let_the_hub_look_for_services()
    _add_service(c, place, tokens, settings)
    _add_roles(c, place.name, roles)
    _add_spawner(c, place, tokens, spawner_class, settings["policy"])


# -- reading


def _line_of(error: GpuError, called: Caller) -> Caller:
    number = re.search(r"\bprofiles\[(\d+)\]", error.message)
    return called.item("profiles", int(number[1])) if number else called


def _read_profiles(told: Any) -> tuple[Mapping[str, Any] | Profile, ...]:
    if isinstance(told, Mapping | str) or not isinstance(told, Iterable):
        raise InvalidAsk(f"profiles: a {type(told).__name__} is no list of profiles.", hint="Write profiles=[{...}].")
    return tuple(told)


def _read_settings(
    profiles: tuple[Mapping[str, Any] | Profile, ...], policy: Mapping[str, Any], broker: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings of the broker, with the policy as it will read it."""
    for wrong, hint in (("policy", "setup_hub(..., policy={...})"), ("hub", "nothing: setup_hub sets it")):
        if wrong in broker:
            raise InvalidAsk(f"broker: {wrong!r} does not belong there.", hint=f"Write {hint}.")
    if "profiles" in policy and profiles:
        raise InvalidAsk("Profiles are given twice.", hint="Leave them out of the policy.")
    asked = dict(policy)
    if profiles:
        asked["profiles"] = [_plain(it) for it in profiles]
    try:
        read = read_policy(asked)
    except InvalidAsk as error:
        raise InvalidAsk(error.message, hint=f"Mend it there; {_HINT}") from None
    _check_for_servers(read)
    # Work runs as its owner only where the hub may become anybody.
    usual = {"system": os.geteuid() == 0}
    return {**usual, **broker, "hub": True, "policy": {**asked, "profiles": [_plain(it) for it in read.profiles]}}


def _usual_accounts(spawner_class: type) -> str:
    """Whose accounts jobs run as where nobody says it.

    A hub that is not root can start jobs as itself alone, and a job could read all of its secrets. That gives nothing
    away only where servers run as that account too.
    """
    as_the_hub = os.geteuid() != 0 and issubclass(spawner_class, SimpleLocalProcessSpawner)
    return "service" if as_the_hub else "same"


def _plain(profile: Any) -> Any:
    return msgspec.to_builtins(profile) if isinstance(profile, Profile) else profile


def _check_for_servers(policy: Policy) -> None:
    """A server holds its devices for as long as it runs: that is a reservation."""
    for number, profile in enumerate(policy.profiles):
        queue = policy.queue(profile.queue) if profile.queue else None
        if profile.for_servers and queue and Kind.RESERVATION not in queue.kinds:
            raise InvalidAsk(
                f"profiles[{number}]: {profile.name!r} is for servers, and its queue {queue.name} takes only jobs.",
                hint='Give it another queue, or "for_servers": False.',
            )


def _read_place(c: Config, spawner_class: type, name: str, *, ip: str, port: Any, url: str) -> Place:
    if any(it.get("name") == name for it in adding.items_of(c.JupyterHub, "services")):
        raise InvalidAsk(f"There is a service {name!r} already.", hint="Call setup_hub once.")
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name):
        raise InvalidAsk(f"name: {name!r} is no name of a service.", hint="Use small letters, digits and hyphens.")
    if not isinstance(port, int) or not 0 < port < 1 << 16:
        raise InvalidAsk(f"port: {port!r} is no port.", hint="Give a number from 1 to 65535 that nothing else uses.")
    prefix = f"{adding.base_of(c)}services/{name}"
    with_tls = adding.is_set(c.JupyterHub, "internal_ssl") and c.JupyterHub.internal_ssl
    origin = f"{'https' if with_tls else 'http'}://{f'[{ip}]' if ':' in ip else ip}:{port}"
    public = str(c.JupyterHub.public_url).rstrip("/") if adding.is_set(c.JupyterHub, "public_url") else ""
    if not url and public:
        url = f"{public}{prefix.removeprefix(urlsplit(public).path)}"
    elsewhere = next((it.__name__ for it in spawner_class.__mro__ if it.__name__ in _ELSEWHERE), None)
    if not url and (elsewhere or with_tls):
        why = "internal TLS lets only the hub's own parts in" if with_tls else f"{elsewhere} starts servers elsewhere"
        raise InvalidAsk(
            f"Servers cannot reach the service at {origin}: {why}.",
            hint=f'Name the way through the hub\'s proxy: setup_hub(..., url="https://hub.example{prefix}").',
        )
    if url and (urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname):
        raise InvalidAsk(f"url: {url!r} is none.", hint=f"Write it like https://hub.example{prefix}.")
    return Place(name, origin, prefix, url.rstrip("/") or origin + prefix)


def _read_tokens(api_token: str, spawner_token: str) -> Tokens:
    if bool(api_token) != bool(spawner_token):
        raise InvalidAsk(
            "api_token and spawner_token belong together: they are of a service that you start yourself.",
            hint="Give both, or none, and the hub starts the service.",
        )
    # Of a service that the hub starts, this one lives as long as the hub does, in its memory only: a new hub starts a
    # new service, which hears of a new token.
    return Tokens(api_token, Secret(spawner_token or secrets.token_urlsafe(32)))


# -- adding


def _add_service(c: Config, place: Place, tokens: Tokens, settings: dict[str, Any]) -> None:
    service: dict[str, Any] = {
        "name": place.name,
        "url": place.origin,
        # What the page may do for who looks at it: never more than they may themselves.
        "oauth_client_allowed_scopes": [*custom_scopes()],
        "oauth_no_confirm": True,
    }
    if tokens.api:
        service["api_token"] = tokens.api
    else:
        service["command"] = [sys.executable, "-m", "jupyter_gpu.broker.app"]
        service["environment"] = {
            **{name: os.environ[name] for name in _HANDED_ON if name in os.environ},
            SETTINGS: _packed(settings),
            # Who reads the environment of the service learns the token of nobody.
            DIGEST: hashlib.sha256(tokens.spawner.encode()).hexdigest(),
        }
    adding.add_items(c.JupyterHub, "services", [service])


def _packed(settings: dict[str, Any]) -> str:
    text = json.dumps(settings, sort_keys=True)
    if len(text) > _MOST_SETTINGS_BYTES:
        sys.exit(
            f"setup_hub: the policy has {len(text)} bytes, more than a process can be told.\n"
            "Let groups of the hub be the teams instead of naming every member: docs/hub.md."
        )
    return text


def _add_roles(c: Config, service: str, roles: Roles) -> None:
    hub = c.JupyterHub
    adding.add_entries(hub, "custom_scopes", custom_scopes())
    adding.add_items(hub, "load_roles", roles.specs(service))
    if roles.researchers is not None:
        return
    everybody = scopes_of(RESEARCHER, service)
    if _scopes_of_role(hub, "user") is None:
        adding.add_members(hub, "extra_user_scopes", everybody)
    else:  # an admin wrote that role anew, and then the hub ignores extra_user_scopes
        hub.load_roles = [
            it | {"scopes": [*it["scopes"], *everybody]} if it.get("name") == "user" else it
            for it in adding.items_of(hub, "load_roles")
        ]


def _scopes_of_role(hub: Config, name: str) -> list[str] | None:
    """What an admin gave one of the hub's own roles; None where it is as it comes."""
    roles = adding.items_of(hub, "load_roles")
    return next((it["scopes"] for it in roles if it.get("name") == name and "scopes" in it), None)


def _add_spawner(c: Config, place: Place, tokens: Tokens, spawner_class: type, policy: dict[str, Any]) -> None:
    usual = _scopes_of_role(c.JupyterHub, "server") or next(
        it["scopes"] for it in get_default_roles() if it["name"] == "server"
    )
    # Code of users reads the server's token, so that is no more than a researcher's, whoever it is: operators act on
    # the service's own page. And who owns a server has what its visitors show to it, which only looks.
    for name, ours, there in (
        ("server_token_scopes", RESEARCHER, usual),
        ("oauth_client_allowed_scopes", VISITOR, ()),
    ):
        for section in adding.sections_of(c, spawner_class, name):
            adding.add_scopes(section, name, scopes_of(ours, place.name), there)
    c.JupyterHub.spawner_class = with_gpus(spawner_class)
    section = c.GpuSpawner
    section.gpu_profiles = policy["profiles"]
    section.gpu_teams, section.gpu_team_groups = policy.get("teams", {}), policy.get("team_groups")
    section.gpu_url, section.gpu_server_url = place.origin + place.prefix, place.reached
    section.gpu_page = f"{place.prefix}/"
    section.gpu_scope = f"{PREFIX}{Scope.RESERVE}"
    section.gpu_token = tokens.spawner
