"""Where the servers of a hub run, by the word of the hub itself: so that a process in one is known to be its owner's.

It decides whom a process blames and whom it spares, so nobody else may say it: a server could name the process of
somebody else's, or somebody else's server its own.
"""

from __future__ import annotations

import asyncio
import re

from ...errors import InvalidAsk
from ...model import Caller, ServerBody, ServerView
from ..engines import procs
from ..owners import Owners, ProcessKey, Server
from .bounds import check_word

_CONTAINER = re.compile(r"[0-9a-f]{64}")


async def hear_server(owners: Owners, caller: Caller, body: ServerBody) -> ServerView:
    """Take where a server of the caller's runs, for whom the hub's spawner asks."""
    check_word("name", body.name)
    check_word("title", body.title)
    if body.container and not _CONTAINER.fullmatch(body.container):
        raise InvalidAsk("container: that is no container's id.", hint="Give the 64 hex digits of it, or leave it out.")
    process, uid = await asyncio.to_thread(_process_of, body)
    server = Server(owner=caller.name, name=body.name, title=body.title, uid=uid)
    owners.hear(server, process=process, container=body.container)
    return ServerView(name=body.name, is_seen=process is not None or bool(body.container))


def _process_of(body: ServerBody) -> tuple[ProcessKey | None, int | None]:
    """Its first process and the user of that, where it is one of this machine."""
    if body.pid is None or body.start_ticks is None or body.boot_id != procs.boot_id():
        return None, None
    try:
        found = procs.find(body.pid)
        uids = procs.users_of(body.pid)
    except OSError:
        return None, None
    if found is None or found.zombie or found.start_ticks != body.start_ticks:
        return None, None
    return (found.pid, found.start_ticks), uids.pop() if len(uids) == 1 else None
