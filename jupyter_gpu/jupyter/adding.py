"""How setup_hub adds to a hub's configuration: what the admin wrote stays, wherever they wrote it.

A setting of traitlets may be a value, a value that is not made yet (`c.JupyterHub.services.append(...)` before anything
was set), or, for some, a function of the spawner. Each is added to as what it is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from importlib.metadata import entry_points
from inspect import isawaitable
from typing import Any
from urllib.parse import urlsplit

from jupyterhub.spawner import LocalProcessSpawner, Spawner
from traitlets.config import Config
from traitlets.config.loader import LazyConfigValue
from traitlets.utils.importstring import import_item

from ..errors import InvalidAsk


def is_set(section: Config, name: str) -> bool:
    """Whether somebody gave it a value; to have looked at it is not enough."""
    return name in section and not isinstance(section[name], LazyConfigValue)


def items_of(section: Config, name: str) -> list[Any]:
    """What stands in a list so far, also where it was only added to."""
    there = section[name]
    return there.to_dict().get("extend", []) if isinstance(there, LazyConfigValue) else list(there)


def add_items(section: Config, name: str, items: Iterable[Any]) -> None:
    """Put items at the end of a list."""
    there = section[name]  # never None: where nothing is, a lazy value is made
    if isinstance(there, LazyConfigValue):
        there.extend(list(items))
    else:
        section[name] = [*there, *items]


def add_members(section: Config, name: str, members: Iterable[str]) -> None:
    """Put members into a set."""
    there = section[name]
    if isinstance(there, LazyConfigValue):
        there.update(set(members))
    else:
        section[name] = {*there, *members}


def add_entries(section: Config, name: str, entries: Mapping[str, Any]) -> None:
    """Put entries into a dict; what stands there already stays."""
    there = section[name]
    if isinstance(there, LazyConfigValue):
        told = there.to_dict().get("update", {})
        there.update({key: value for key, value in entries.items() if key not in told})
    else:
        section[name] = {**entries, **there}


def add_scopes(section: Config, name: str, scopes: tuple[str, ...], usual: Iterable[str]) -> None:
    """Put scopes into a list, or behind a function of the spawner; `usual` holds where nothing was set."""
    there = section.get(name)
    if callable(there):
        section[name] = _with_scopes(there, scopes, tuple(usual))
    elif isinstance(there, LazyConfigValue):
        there.extend([*usual, *scopes])
    else:
        section[name] = [*dict.fromkeys((*(there or usual), *scopes))]


def _with_scopes(
    theirs: Callable[[Any], Any], scopes: tuple[str, ...], usual: tuple[str, ...]
) -> Callable[[Any], Awaitable[list[str]]]:
    async def both(spawner: Any) -> list[str]:
        told = theirs(spawner)
        if isawaitable(told):
            told = await told
        return [*dict.fromkeys((*(told or usual), *scopes))]

    return both


def sections_of(c: Config, spawner_class: type, name: str) -> list[Config]:
    """Where a trait of the spawner is set: the nearest class would hide the others; `c.Spawner` where nowhere."""
    found = [c[it.__name__] for it in spawner_class.__mro__ if it.__name__ in c and name in c[it.__name__]]
    return found or [c.Spawner]


def spawner_class_of(c: Config) -> type:
    """The class that servers are started by, as the hub would read it: a class, its address, or an entry point."""
    told: Any = c.JupyterHub.spawner_class if is_set(c.JupyterHub, "spawner_class") else LocalProcessSpawner
    if isinstance(told, str):
        told = _loaded(told)
    if not (isinstance(told, type) and issubclass(told, Spawner)):
        raise InvalidAsk(f"c.JupyterHub.spawner_class is {told!r}, which is no Spawner.")
    return told


def _loaded(name: str) -> Any:
    known = {it.name.lower(): it for it in entry_points(group="jupyterhub.spawners")}
    try:
        return known[name.lower()].load() if name.lower() in known else import_item(name)
    except Exception as error:  # what is imported may raise anything
        raise InvalidAsk(
            f"c.JupyterHub.spawner_class is {name!r}, which cannot be imported: {type(error).__name__}: {error}",
            hint=f"Install its package, or use one of: {', '.join(sorted(known))}.",
        ) from error


def base_of(c: Config) -> str:
    """What stands before the hub's own addresses, with a slash at both ends."""
    hub = c.JupyterHub
    told = hub.base_url if is_set(hub, "base_url") else urlsplit(hub.bind_url).path if is_set(hub, "bind_url") else ""
    return "".join(f"/{part}" for part in str(told).split("/") if part) + "/"
