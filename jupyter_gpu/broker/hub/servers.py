"""The hub's word on its servers: a reservation of a server ends when the hub lists the server no more.

A server may run where this machine sees no process of it, and the hooks that give its devices back are missed whenever
the hub is down (jupyterhub/jupyterhub#4519). So the list is the truth: a reservation whose server is on it is renewed
by that, and one whose server is missing from every list for a minute is given back. What cannot be asked ends nothing,
and a hub that was away is given the minute anew.

The other way round the hub hears from us: a server whose owner holds devices that are used is no idle server, so it is
not culled. A job does not count, for it outlives the server.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ...errors import BrokerUnavailable, GpuError, NotAllowed
from ...model import Kind, SeeHolderGone, State, Workload
from ..alerts import Alert
from ..looking import Looking
from .asking import Hub
from .auth import escaped

if TYPE_CHECKING:
    from ..loop import Loop

log = logging.getLogger(__name__)

LOOK_SECONDS = 30.0
GONE_SECONDS = 60.0
ACTIVITY_SECONDS = 60.0
#: As many as a hub hands out at once, unless its admin says otherwise.
PAGE_USERS = 200
_PAGED = "application/jupyterhub-pagination+json"

Listed = Mapping[str, frozenset[str]]
"""User -> the names of their servers that run, start or stop; the default server's is empty."""


class Servers(Looking):
    """Looks at the hub's list every half minute, beginning at once."""

    what = "the hub's servers"

    def __init__(self, loop: Loop, hub: Hub) -> None:
        super().__init__()
        self._loop, self._hub = loop, hub
        #: Reservation -> since when its server is missing from the lists.
        self._missing: dict[int, float] = {}
        self._told_at = float("-inf")
        #: Trouble with it is told once.
        self._is_heard = True

    def pause_seconds(self) -> float:
        """Where holders have to renew sooner, sooner: a look renews for them."""
        return min(LOOK_SECONDS, self._loop.world.policy.lapse_seconds / 3)

    async def look(self) -> None:
        """Ask once, and act on the answer."""
        try:
            listed = await self._listed()
        except BrokerUnavailable as error:
            self._is_unknown("away", f"{error.message} Nobody new is recognised until it answers; nothing ends by it.")
        except NotAllowed as error:
            self._is_unknown(
                "refuses",
                f"{error.message} So servers that ended are not noticed by their absence: give the service's role the "
                "scopes list:users and read:servers, as setup_hub does.",
            )
        else:
            self._loop.alerts.settle("hub", {})
            self._loop.owners.keep_only(listed)
            await self._sweep(listed)
            await self._tell(listed)

    def _is_unknown(self, key: str, text: str) -> None:
        """Nothing is known of servers now: nobody could renew, and whatever was missing may be there."""
        self._missing.clear()
        self._loop.count_renewals_anew()
        self._loop.alerts.settle("hub", {f"hub:{key}": Alert(text=text)})

    async def _listed(self) -> Listed:
        found: dict[str, frozenset[str]] = {}
        offset: int | None = 0
        while offset is not None:
            page = await self._hub.request(
                "GET", f"users?state=active&offset={offset}&limit={PAGE_USERS}", Accept=_PAGED
            )
            if not isinstance(page, dict) or not isinstance(page.get("items"), list):
                raise NotAllowed("The hub does not list its users.")
            for user in page["items"]:
                if "servers" not in user:
                    raise NotAllowed("The hub does not show the servers of its users.")
                found[user["name"]] = frozenset(user["servers"])
            offset = ((page.get("_pagination") or {}).get("next") or {}).get("offset")
        return found

    # -- what ends

    async def _sweep(self, listed: Listed) -> None:
        now = self._loop.now()
        newest: dict[tuple[str, str], int] = {}
        held = list(self._of_servers())
        for it, server in held:
            newest[it.owner, server] = max(it.id, newest.get((it.owner, server), 0))
        missing = {
            it.id: self._missing.get(it.id, now)
            for it, server in held
            # Of two for one server the older is of a start that is over, whose end nobody told.
            if server not in listed.get(it.owner, ()) or newest[it.owner, server] != it.id
        }
        self._missing = missing
        for it, _ in held:
            if it.id not in missing:
                self._renew(it)
            elif now >= missing[it.id] + GONE_SECONDS and it.holder is not None:
                detail = f"the hub lists the server {it.holder.name} no more"
                with contextlib.suppress(GpuError):  # seen again with the next list
                    await self._loop.handle(
                        SeeHolderGone(workload=it.id, holder_number=it.holder.number, detail=detail)
                    )

    def _of_servers(self) -> Iterable[tuple[Workload, str]]:
        """The reservations of the hub's servers, waiting ones too, each with the name of its server."""
        for it in (*self._loop.world.queued(), *self._loop.world.holders()):
            server = server_of(it)
            if server is not None and it.outcome is None:
                yield it, server

    def _renew(self, it: Workload) -> None:
        if it.holder is not None:
            with contextlib.suppress(GpuError):  # over by now
                self._loop.renew(it.id, it.holder.number)

    # -- what the hub hears

    async def _tell(self, listed: Listed) -> None:
        """Say of servers whose owners use devices that they are in use."""
        now = self._loop.now()
        active: dict[str, set[str]] = defaultdict(set)
        for it in self._loop.world.holders():
            if it.kind is not Kind.RESERVATION or it.state is not State.ACTIVE or self._is_idle(it, now):
                continue
            theirs, server = listed.get(it.owner, frozenset()), server_of(it)
            # A kernel or a shell does not say in which of its owner's servers it lives.
            active[it.owner] |= theirs if server is None else theirs & {server}
        # Where holders have to renew sooner, everything is looked at sooner.
        if now < self._told_at + min(ACTIVITY_SECONDS, self._loop.world.policy.lapse_seconds * 2 / 3):
            return
        self._told_at = now
        at = dt.datetime.fromtimestamp(now, dt.UTC).isoformat()
        for user, servers in active.items():
            if servers:
                body = {"servers": {server: {"last_activity": at} for server in sorted(servers)}}
                if not await self._post(user, body):
                    return  # to try it with hundreds of others would keep the next look at the list waiting

    async def _post(self, user: str, body: Any) -> bool:
        """Say it; False where the hub does not answer."""
        try:
            await self._hub.request("POST", f"users/{escaped(user)}/activity", body)
            self._is_heard = True
        except GpuError as error:
            if self._is_heard:
                log.warning(
                    "the hub cannot be told that servers are in use, so it may cull them: %s The service's role needs "
                    "the scope users:activity.",
                    error.message,
                )
            self._is_heard = False
            return not isinstance(error, BrokerUnavailable)
        return True

    def _is_idle(self, it: Workload, now: float) -> bool:
        """Whether its devices, and its holder as far as it says, have done nothing for as long as the policy bears."""
        bears, used_at = self._loop.world.policy.idle_warn_seconds, self._loop.idle.used_at(self._loop.world, it, now)
        return bears is not None and now > used_at + bears


def server_of(it: Workload) -> str | None:
    """The server of its owner that a reservation is for; None where it is for something else."""
    if it.kind is not Kind.RESERVATION or it.holder is None or it.holder.kind != "server":
        return None
    user, slash, server = it.holder.name.partition("/")
    return server if slash and user == it.owner else None
