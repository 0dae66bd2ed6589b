"""Whose an account is, and which of a hub's servers a process is in: the names under which people are known here.

Without a hub an owner is an account. Under one an account may be that of many users, of one, or of nobody's (`hub.
accounts`), and a container's users are none of this machine. What tells them apart then is which server a process is
in, and that is certain only by the word of the hub, which started it: its first process by pid and start, or its
container. A server's own word, in its environment or by its token, counts for nothing here: whoever runs code in one
could claim a process of somebody else's, or pass as them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

#: A pid and when its process began, in ticks since boot.
ProcessKey = tuple[int, int]
#: So many servers are known at most; the hub tells of each again and again.
MOST_SERVERS = 20_000


class Server(NamedTuple):
    """A server of a hub that runs on this machine."""

    owner: str
    #: Empty is its owner's usual one.
    name: str
    #: What people call it, where that is something else.
    title: str = ""
    #: The user whom its first process runs as.
    uid: int | None = None

    @property
    def called(self) -> str:
        """What people call it."""
        return self.title or self.name


class Owners:
    """What a hub has said, or that there is none."""

    def __init__(self) -> None:
        #: Whose an account is, of the number and the name of a user, if it is one owner's alone.
        self.of_account: Callable[[str, int], str | None] = lambda account, uid: account  # noqa: ARG005
        #: Whether the work of somebody may run as an account, so that a process of that may be theirs.
        self.may_run_as: Callable[[str, str], bool] = lambda owner, account: owner == account
        #: Owner -> their groups, of those whom the hub was asked about; None without a hub.
        self.groups: Mapping[str, tuple[str, ...]] | None = None
        self._processes: dict[ProcessKey, Server] = {}
        self._containers: dict[str, Server] = {}

    @property
    def has_hub(self) -> bool:
        """Whether owners are users of a hub."""
        return self.groups is not None

    def hear(self, server: Server, *, process: ProcessKey | None, container: str) -> None:
        """The hub says where a server runs; what it said of that server before is over."""
        self._processes = {key: it for key, it in self._processes.items() if it[:2] != server[:2]}
        self._containers = {key: it for key, it in self._containers.items() if it[:2] != server[:2]}
        if process is not None and len(self._processes) < MOST_SERVERS:
            self._processes[process] = server
        if container and len(self._containers) < MOST_SERVERS:
            self._containers[container] = server

    def keep_only(self, listed: Mapping[str, Collection[str]]) -> None:
        """Forget servers that the hub lists no more: it says user -> their servers."""
        self._processes = {key: it for key, it in self._processes.items() if it.name in listed.get(it.owner, ())}
        self._containers = {key: it for key, it in self._containers.items() if it.name in listed.get(it.owner, ())}

    def of_line(self, line: Iterable[ProcessKey]) -> Server | None:
        """The server that a process descends from, by its line, nearest first."""
        return next((self._processes[key] for key in line if key in self._processes), None)

    def of_container(self, id_: str) -> Server | None:
        """The server that a container is."""
        return self._containers.get(id_)
