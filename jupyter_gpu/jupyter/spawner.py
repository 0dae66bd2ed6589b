"""Servers of a hub with the GPUs of their profile, whatever the hub starts them with.

`with_gpus(SomeSpawner)` is that spawner with a lease around it: taken before the start, put where that spawner wants
devices (`placing`), kept in the hub's state, given back at the end. The spawner's own hooks, form and options stay as
they are. A server that needs no GPU asks nobody, so it starts whether the broker answers or not; and no stop waits
longer for the broker than `gpu_deadline_seconds`.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import time
from collections.abc import AsyncGenerator, Coroutine, Mapping
from inspect import isawaitable
from typing import Any
from weakref import WeakSet

import msgspec
from jupyterhub.spawner import Spawner
from traitlets import Dict, Float, HasTraits, Integer, List, TraitError, Unicode, validate
from traitlets.utils.importstring import import_item

from ..errors import BrokerUnavailable, GpuError, InvalidAsk
from ..holding import process_holder
from ..model import Holder, Profile, State, WaitingReason
from . import offers, prospects
from .offers import Choice, Seen
from .placing import Share, Where, fits_container, place, wanted, where
from .refusals import Refused, no_answer, refused, said
from .server_lease import ServerLease
from .spawn_options import SpawnOptions
from .whereabouts import whereabouts

#: Starts that wait in line now, in all of the hub.
_IN_LINE: WeakSet[GpuSpawner] = WeakSet()


class GpuSpawner(SpawnOptions, Spawner):
    """Takes a lease before the start of what it is mixed into, and gives it back at the end: see `with_gpus`."""

    gpu_profiles: Any = List(config=True, help="What is offered, as in the policy: Profiles, or dicts of their fields.")
    gpu_teams: Any = Dict(config=True, help="Team -> its members, as in the policy; groups of the hub are teams too.")
    gpu_team_groups: Any = List(
        default_value=None, allow_none=True, config=True, help="Which of the hub's groups are teams; None takes all."
    )
    gpu_url = Unicode(config=True, help="Where the hub reaches the broker: a URL, or the path of its socket.")
    gpu_token = Unicode(config=True, help="By which the broker lets the hub ask in the name of its users.")
    gpu_server_url = Unicode(
        config=True,
        help="""Where servers and their kernels reach the broker, by their own token, where that is not `gpu_url`: from
        a container 127.0.0.1 is another machine. It is handed to them as JUPYTER_GPU_URL.""",
    )
    gpu_page = Unicode(
        config=True,
        help="The path of the service's page for people, /services/jupyter-gpu/; empty where it has none.",
    )
    gpu_scope = Unicode(
        config=True, help="The hub's scope without which nobody is offered GPUs; empty offers them to everybody."
    )
    gpu_deadline_seconds = Float(10.0, config=True, help="No start and no stop waits longer for one answer.")
    gpu_patience_seconds = Float(
        5.0, config=True, help="How long a start that does not wait in line waits for a device that is being cleared."
    )
    gpu_wait_seconds = Integer(
        3600,
        config=True,
        help="The longest that a start waits in line; for so much longer than `start_timeout` the hub waits for it.",
    )
    gpu_names = Dict(
        config=True,
        help="""Device class -> what the cluster calls it: the resource of Kubernetes ("nvidia.com/gpu" and, of MIG
        devices, "nvidia.com/mig-3g.40gb" where nothing is said), the type of GPU of Slurm ("a100").""",
    )

    #: Between the beginning of `start` and its end; and from the moment in it when the wrapped spawner starts.
    _gpu_starting = False
    _gpu_inner = False
    #: It has started, so that a server which is not there any more has ended.
    _gpu_up = False
    _gpu_ending = False
    _gpu_kept: ServerLease | None = None
    #: The traits that were set for a lease, as they were before, and whose they are.
    _gpu_before: tuple[HasTraits, dict[str, Any]] | None = None

    @validate("gpu_profiles")
    def _gpu_profiles_of(self, proposal: Any) -> list[Profile]:
        try:
            return [it if isinstance(it, Profile) else msgspec.convert(it, Profile) for it in proposal["value"]]
        except msgspec.ValidationError as error:
            raise TraitError(f"gpu_profiles: {error}") from None

    @property
    def _gpu_lease(self) -> ServerLease:
        if self._gpu_kept is None:
            self._gpu_kept = ServerLease(self._gpu_client, self.log, self.gpu_deadline_seconds)
        return self._gpu_kept

    # -- a start

    def start(self) -> Coroutine[Any, Any, Any]:
        """Take the lease, then start. The hub waits as long as a place in line may take."""
        choice = self._gpu_choice or self._gpu_choose(self.user_options or {}, self._gpu_known())
        self._gpu_lease.begin()
        self._gpu_starting, self._gpu_inner, self._gpu_up, self._gpu_ending = True, False, False, False
        before = int(self.start_timeout)  # type: ignore[has-type] # a trait
        if choice.profile.devices:
            self.start_timeout = before + int(self._gpu_patience(choice) + self.gpu_deadline_seconds) + 1
        return self._gpu_start(choice, before)

    def _gpu_patience(self, choice: Choice) -> float:
        return self.gpu_wait_seconds if choice.waits else self.gpu_patience_seconds

    async def _gpu_start(self, choice: Choice, start_timeout: int) -> Any:
        try:
            share = await self._gpu_take(choice)
            self.start_timeout = start_timeout  # the hub has read it; some spawners do too
            await self._gpu_place(share)
            self._gpu_inner = True
            started = super().start()
            url = await started if isawaitable(started) else started
            await self._gpu_name_process()
        except asyncio.CancelledError:
            self._gpu_lease.give_back_later()  # whoever cancels a start does not wait for it
            raise
        except BaseException:
            await self._gpu_lease.give_back()
            raise
        finally:
            self._gpu_starting, self._gpu_choice, self.start_timeout = False, None, start_timeout
        self._gpu_up = True
        return url

    async def _gpu_take(self, choice: Choice) -> Share:
        profile, lease = choice.profile, self._gpu_lease
        if profile.devices == 0:
            lease.nothing_to_take()
            return Share(kernels_reserve=profile.for_kernels and self._gpu_has_role)
        try:
            await self._gpu_check(choice)
            it, devices = await lease.take(
                profile,
                self._gpu_holder().name,
                waits=choice.waits,
                longest_seconds=self._gpu_patience(choice),
                team=choice.team,
                join_line=self._gpu_join_line,
            )
        except (BrokerUnavailable, TimeoutError, OSError) as error:
            self.log.warning("The broker cannot be asked for %s: %s", profile.name, said(error))
            raise no_answer() from error
        except GpuError as error:
            seen = await self._gpu_offers(choice.team)
            raise refused(error, ways=() if seen is None else prospects.instead(choice, seen)) from error
        finally:
            _IN_LINE.discard(self)
        if it.state is State.ACTIVE:
            return Share(devices, it.id, profile.for_kernels)
        await lease.give_back()
        if it.state is State.QUEUED:
            seen = await self._gpu_offers(choice.team)
            raise self._gpu_not_now(choice, seen, self.gpu_wait_seconds if choice.waits else None)
        raise Refused(
            f"You are not in line for “{offers.title_of(profile)}” any more, so your server was not started: "
            f"{it.detail or it.end or 'it was given up'}.",
            ("start it again",),
            reason="gpu_capacity",
            status_code=409,
        )

    async def _gpu_check(self, choice: Choice) -> None:
        """Who does not wait in line must not even ask: a job would make room, and for nobody.

        Nor need anybody wait for what a quota forbids for good.
        """
        seen = await self._gpu_offers(choice.team, profile=choice.profile.name)
        it = None if seen is None else seen.offer(choice)
        if it is None or it.waiting is None:
            return
        comes_soon = it.waiting is WaitingReason.CLEARING and not it.yielding
        if it.never or not (choice.waits or comes_soon):
            # Only who is refused reads what else there is.
            raise self._gpu_not_now(choice, await self._gpu_offers(choice.team) or seen, None)
        if choice.waits:
            self._gpu_join_line()

    def _gpu_join_line(self) -> None:
        """Wait, if that leaves the hub room for the starts of others: it counts a start that waits as one under way.

        With `concurrent_spawn_limit` of these nobody's server would start, with a GPU or without.
        """
        others = _IN_LINE - {self}
        mine = next((it for it in others if it.user.name == self.user.name), None)
        limit = self.user.settings.get("concurrent_spawn_limit", 0)
        if mine is not None:
            called = f"Your server “{mine.name}”" if mine.name else "Your usual server"
            raise _no_place(f"{called} waits in line for a GPU already, and one at a time may.", "stop that one")
        if limit and len(others) >= max(1, limit // 2):
            raise _no_place(f"As many servers wait in line for a GPU as may: {len(others)}.", "try later")
        _IN_LINE.add(self)

    @staticmethod
    def _gpu_not_now(choice: Choice, seen: Seen | None, waited_seconds: int | None) -> Refused:
        now = time.time()
        it = None if seen is None else seen.offer(choice)
        at = None if it is None else it.expected_start_at
        message, ways = prospects.not_now(choice, seen, now, waited_seconds)
        after = None if at is None else at - now
        return Refused(message, ways, reason="gpu_capacity", status_code=409, retry_after_seconds=after)

    async def _gpu_place(self, share: Share) -> None:
        """Set what the spawner that really starts the server must be told."""
        target = self._gpu_target()
        kind = where(type(target))
        now = {name: getattr(target, name) for name in wanted(kind) if target.has_trait(name)}
        try:
            placed = place(kind, now, share, self.gpu_names)
        except GpuError as error:
            raise refused(error) from error
        for note in placed.notes:
            self.log.warning("%s: %s", type(target).__name__, note)
        self._gpu_before = (target, {name: now[name] for name in placed.traits if name in now})
        environment = placed.traits["environment"] | self._gpu_address(kind, placed.traits["environment"])
        for name, value in (placed.traits | {"environment": environment}).items():
            setattr(target, name, value)
        if placed.settled:
            target.user_options = {name: it for name, it in target.user_options.items() if name not in placed.settled}
        if kind is Where.DOCKER and not target.remove:
            await self._gpu_check_container(target, share)
        if self._gpu_ending:
            raise Refused("It was stopped before it started.", reason="gpu_stopped", status_code=409)

    def _gpu_target(self) -> Any:
        """Who starts the server: this spawner, or whom a wrapspawner has chosen."""
        target: Any = self
        while hasattr(target, "construct_child"):
            target.construct_child()
            target = target.child_spawner
        return target

    def _gpu_address(self, kind: Where, environment: Mapping[str, Any]) -> dict[str, str]:
        """Where the server's kernels reserve; a URL of this machine means nothing in a container or on a node."""
        near = self.gpu_url if kind in (Where.LOCAL, Where.SYSTEMD) else ""
        url = self.gpu_server_url or near
        return {"JUPYTER_GPU_URL": url} if url and "JUPYTER_GPU_URL" not in environment else {}

    async def _gpu_check_container(self, target: Any, share: Share) -> None:
        """A container that is kept between starts keeps the devices that it was made with."""
        found = await target.get_object()
        if found and not fits_container(found, share):
            raise Refused(
                f"The container {target.object_name} is kept between starts and was made with other GPUs. An admin "
                "removes it, or sets c.DockerSpawner.remove = True so that each start makes it anew.",
                reason="gpu_container",
                status_code=409,
            )

    async def _gpu_name_process(self) -> None:
        """A process of this machine is watched by the broker itself, so that it is not missed while the hub is down."""
        holder = self._gpu_holder()
        self._gpu_tell_whereabouts(holder)
        if holder.pid is not None:
            await self._gpu_lease.move(holder)

    def _gpu_tell_whereabouts(self, holder: Holder) -> None:
        """With GPUs or without: what is in the server is its user's, and the broker knows it by that."""
        body = whereabouts(self, holder)
        if body is not None:
            self._gpu_lease.tell_later(body)

    def _gpu_holder(self, server_name: str | None = None) -> Holder:
        """How the broker and the hub name a server to each other, and its process where it is one of this machine."""
        name = f"{self.user.name}/{self.name if server_name is None else server_name}"
        pid = getattr(getattr(self, "child_spawner", None) or self, "pid", None)
        if isinstance(pid, int) and pid > 0:
            with contextlib.suppress(ProcessLookupError, OSError):  # it has ended: the hub will see
                return process_holder("server", name, pid)
        return Holder(kind="server", name=name)

    def _gpu_unplace(self) -> None:
        if self._gpu_before is not None:
            target, before = self._gpu_before
            self._gpu_before = None
            for name, value in before.items():
                setattr(target, name, value)

    async def progress(self) -> AsyncGenerator[dict[str, Any], None]:
        """The place in line, who is ahead and the expected start; then what the spawner tells."""
        async with contextlib.aclosing(self._gpu_lease.news()) as news:
            async for event in news:
                yield event
        try:
            theirs = super().progress()
        except RuntimeError:  # a wrapspawner that has chosen nobody yet
            return
        async with contextlib.aclosing(theirs) as events:
            async for event in events:
                yield event

    # -- while it runs, and its end

    async def poll(self) -> Any:
        """Whether it runs, as the spawner says; while it waits in line it does."""
        if self._gpu_starting and not self._gpu_inner:
            return 0 if self._gpu_ending else None
        found = super().poll()
        status = await found if isawaitable(found) else found
        if status is None and not (self._gpu_starting or self._gpu_ending):
            self._gpu_tell_whereabouts(self._gpu_holder())
        if self._gpu_up and status is None and not self._gpu_ending and self._gpu_lease.id is not None:
            self._gpu_lease.later(self._gpu_hear())
        elif self._gpu_up and status is not None:
            self._gpu_lease.give_back_later()
        return status

    async def _gpu_hear(self) -> None:
        """End the server when its time is over: what it holds has been promised to somebody else."""
        reason = await self._gpu_lease.hear()
        if reason and not self._gpu_ending:
            self._gpu_ending = True
            self.log.warning("Ending the server of %s: %s", self._log_name, reason)
            try:
                await _done(super().stop())
            except Exception:
                self.log.exception("The server of %s cannot be ended; the next poll tries again", self._log_name)
            finally:
                self._gpu_ending = False

    async def stop(self, now: bool = False) -> None:  # noqa: FBT001, FBT002 - as the hub calls it
        """Stop, then give back. A start that waits in line leaves it: nothing has been started yet."""
        waiting, self._gpu_ending = self._gpu_starting and not self._gpu_inner, True
        try:
            if not waiting:
                await _done(super().stop(now))
        finally:
            await self._gpu_lease.give_back()

    async def rename(self, old_name: str, new_name: str) -> None:
        """The broker knows servers by name: a server that runs on keeps its lease under the new one."""
        await super().rename(old_name, new_name)
        await self._gpu_lease.move(self._gpu_holder(new_name))

    # -- what the hub keeps

    def get_state(self) -> dict[str, Any]:
        """With the lease, for a hub that starts anew."""
        state: dict[str, Any] = super().get_state()
        kept = self._gpu_lease.to_keep()
        return state if kept is None else state | {"gpu_lease": kept}

    def load_state(self, state: dict[str, Any]) -> None:
        """A server that ran before this hub did."""
        super().load_state(state)
        if self._gpu_lease.go_on_with(state.get("gpu_lease")):
            self._gpu_up = True

    def clear_state(self) -> None:
        """The server is over, however it came to that: what it held is given back."""
        super().clear_state()
        if not self._gpu_starting:  # batchspawner forgets in the midst of a start, which then fails by itself
            self._gpu_up = False
            self._gpu_unplace()
            self._gpu_lease.give_back_later()


def with_gpus(spawner: type[Spawner] | str) -> type[Spawner]:
    """A spawner class with leases around it: a class, the name that the hub's configuration has for it, or a path."""
    cls = _class_of(spawner) if isinstance(spawner, str) else spawner
    if issubclass(cls, GpuSpawner):
        return cls
    more = {"__module__": cls.__module__, "__doc__": f"{cls.__name__} with the GPUs of a profile."}
    return type(f"Gpu{cls.__name__}", (GpuSpawner, cls), more)


def _class_of(name: str) -> type[Spawner]:
    """What the hub would take a name for: an entry point, else a path of a module."""
    found = [it for it in importlib.metadata.entry_points(group="jupyterhub.spawners") if it.name == name.lower()]
    cls = found[0].load() if found else import_item(name)
    if not (isinstance(cls, type) and issubclass(cls, Spawner)):
        raise InvalidAsk(f"spawner_class: {name!r} is no spawner.", hint="Name a class that the hub could start with.")
    return cls


def _no_place(why: str, instead: str) -> Refused:
    ways = (instead, "start without a GPU")
    return Refused(f"{why} So this one was not started.", ways, reason="gpu_capacity", status_code=409)


async def _done(work: Any) -> None:
    """Some spawners return what is to be awaited, and some have done it."""
    if isawaitable(work):
        await work
