"""Whose a process is under a hub, from its spawner's word to what people read; and rules by the hub's groups."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from dockerspawner import DockerSpawner
from jupyterhub.spawner import SimpleLocalProcessSpawner

from jupyter_gpu.broker.attribution import Attribution, Rules
from jupyter_gpu.broker.engines import procs
from jupyter_gpu.broker.hub.groups import Groups
from jupyter_gpu.broker.owners import Server
from jupyter_gpu.holding import process_holder
from jupyter_gpu.jupyter.whereabouts import whereabouts
from jupyter_gpu.model import (
    AddRecurring,
    Ask,
    Fire,
    ForeignRule,
    Holder,
    JobSpec,
    Kind,
    PartRule,
    PauseRecurring,
    Policy,
    Reading,
    ServerBody,
    SharingRule,
    Submit,
    SubmitBody,
    Use,
    UseKind,
)
from tests.broker.people_ground import Known, a_process
from tests.conftest import Places

from .fake_hub import RESEARCHER, SERVICE_TOKEN
from .ground import Serving, a_service, play
from .spawn_ground import NONE, ONE, a_hall, client_of

ID = "0123456789abcdef" * 4
BY_TEAM = Policy(foreign_rules=(ForeignRule(team="students", use="end"),))


def a_body(pid: int | None = None, **more: Any) -> dict[str, Any]:
    """What a spawner says of a server whose first process is this."""
    holder = process_holder("server", "it", os.getpid() if pid is None else pid)
    return {"name": "big", "pid": holder.pid, "start_ticks": holder.start_ticks, "boot_id": holder.boot_id} | more


def server_here(serving: Serving) -> Server | None:
    """The server that our own process is the first of, as the broker knows it."""
    me = procs.find(os.getpid())
    assert me is not None
    return serving.loop.owners.of_line([(me.pid, me.start_ticks)])


# -- who may say it


def test_only_the_hubs_spawner_says_where_a_server_runs(tmp_runtime: Places) -> None:
    """A user's token could name another's process, and even an operator's is in that user's hands alone."""

    async def story() -> None:
        async with a_service(tmp_runtime.runtime_dir, socket_scopes=("reserve",)) as it:
            for token in (it.hub.add("ana", *RESEARCHER), it.hub.add("olga", "admin"), SERVICE_TOKEN):
                answer = await it.as_(token).post("/servers", json=a_body())
                assert answer.status_code == 403, token
            assert (await it.here().post("/servers", json=a_body())).status_code == 403
            assert server_here(it) is None

            answer = await it.spawner("ana").post("/servers", json=a_body(title="Big memory"))

            assert (answer.status_code, answer.json()) == (200, {"name": "big", "is_seen": True})
            assert server_here(it) == Server("ana", "big", "Big memory", os.geteuid())

    play(story)


@pytest.mark.parametrize(
    ("more", "seen"),
    [
        ({"start_ticks": 1}, False),
        ({"boot_id": "another"}, False),
        ({"pid": 2**22 + 1}, False),
        ({"pid": None}, False),
        ({"pid": None, "container": ID}, True),
    ],
)
def test_a_process_that_is_not_here_says_nothing(more: dict[str, Any], seen: bool, tmp_runtime: Places) -> None:
    """A hub in another machine or container numbers its processes as it likes; a container's id is the same for all."""

    async def story() -> None:
        async with a_service(tmp_runtime.runtime_dir) as it:
            answer = await it.spawner("ana").post("/servers", json=a_body() | more)
            assert answer.json() == {"name": "big", "is_seen": seen}
            assert server_here(it) is None
            assert (it.loop.owners.of_container(ID) is not None) == seen

    play(story)


@pytest.mark.parametrize("title", ["\x1b[2Jbig", "\u202egib", "x" * 255, "\n", "big \x00\ud800"])
def test_no_title_keeps_the_broker_from_hearing_where_a_server_runs(tmp_runtime: Places, title: str) -> None:
    """A user may give a server another one at each start, and what is in it would be nobody's."""
    spawner = SimpleNamespace(display_name=title)
    body = whereabouts(spawner, process_holder("server", "ana/big", os.getpid()))
    assert body is not None

    async def story() -> None:
        async with a_service(tmp_runtime.runtime_dir) as it, client_of(it, "ana") as client:
            await client.tell_server(body)
            found = server_here(it)
            assert found is not None
            assert (found.owner, found.name) == ("ana", "big")
            assert found.called.isprintable()

    play(story)


@pytest.mark.parametrize("more", [{"container": "docker"}, {"container": ID.upper()}, {"title": "\x1b[2J"}])
def test_what_is_no_container_and_no_name_is_refused(more: dict[str, Any], tmp_runtime: Places) -> None:
    """422, and nothing is known by it."""

    async def story() -> None:
        async with a_service(tmp_runtime.runtime_dir) as it:
            assert (await it.spawner("ana").post("/servers", json=a_body() | more)).status_code == 422

    play(story)


# -- what spawners say


async def known(serving: Serving, hall: Any, spawner: Any) -> Server | None:
    """The server in which a spawner's process is, as the broker knows it."""
    await spawner._gpu_lease.settle()
    found = procs.find(spawner.pid)
    assert found is not None
    return serving.loop.owners.of_line([(found.pid, found.start_ticks)])


@pytest.mark.parametrize("profile", [ONE.name, NONE.name])
def test_a_server_is_known_from_its_start_with_gpus_and_without(profile: str, tmp_runtime: Places) -> None:
    """By its user, its name, and what its user calls it."""

    async def story() -> None:
        async with a_hall(tmp_runtime.runtime_dir, SimpleLocalProcessSpawner) as (hall, serving):
            spawner = hall.spawner("ana", server="big", gpu_profile=profile)
            spawner.orm_spawner.display_name = "Big memory"
            await hall.user("ana").spawn("big", options={"gpu_profile": profile})
            found = await known(serving, hall, spawner)
            assert found is not None
            assert (found.owner, found.name, found.called) == ("ana", "big", "Big memory")

    play(story)


def test_a_server_is_told_of_again_to_a_broker_that_was_started_anew(
    tmp_runtime: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a poll, a minute after it was told; a hub that was started anew tells of it at its first."""

    async def story() -> None:
        async with a_hall(tmp_runtime.runtime_dir, SimpleLocalProcessSpawner) as (hall, serving):
            spawner = hall.spawner("ana", gpu_profile=NONE.name)
            await hall.user("ana").spawn("", options={"gpu_profile": NONE.name})
            assert await known(serving, hall, spawner) is not None
            serving.loop.owners.keep_only({})
            await spawner.poll()
            assert await known(serving, hall, spawner) is None
            monkeypatch.setattr("jupyter_gpu.jupyter.server_lease.AGAIN_SECONDS", 0.0)
            await spawner.poll()
            assert await known(serving, hall, spawner) is not None

            serving.loop.owners.keep_only({})
            spawner.orm_spawner.state = spawner.get_state()
            hall.db.commit()
            hall.restarted()
            again = hall.spawner("ana")
            again.load_state(again.orm_spawner.state)
            await again.poll()
            assert await known(serving, hall, again) is not None
            # Its parent is still this process, and nobody else can see it end.
            again.proc = spawner.proc

    play(story)


def test_a_container_is_known_by_its_id() -> None:
    """The same on the hub's side and in the cgroup of each process in it; its pid there is none of ours."""
    spawner = DockerSpawner()
    spawner.object_id = ID
    holder = Holder(kind="server", name="ana/big")
    assert whereabouts(spawner, holder) == ServerBody(name="big", container=ID)
    assert whereabouts(SimpleNamespace(child_spawner=spawner), holder) == ServerBody(name="big", container=ID)
    spawner.object_id = ""
    assert whereabouts(spawner, holder) is None


# -- by group


class Lab:
    """A broker that sees a stranger's process on GPU 0, without a card: the look at it and the hub are real."""

    def __init__(self, serving: Serving) -> None:
        self.it, self.groups = serving, serving.service._groups
        assert isinstance(self.groups, Groups)

    async def sees(self, use: Use) -> None:
        """It is on the device, and the hub is asked what there is to ask."""
        self.it.loop.world.uses["GPU-0"] = (use,)
        self.it.loop.world.groups = self.it.loop.owners.groups
        assert self.groups is not None
        await self.groups.look()

    def asked(self) -> int:
        """How often the hub was asked about ana."""
        return self.it.hub.asked.count("GET /hub/api/users/ana")


@contextlib.asynccontextmanager
async def a_lab(places: Places, policy: Policy = BY_TEAM, **words: Any) -> AsyncIterator[Lab]:
    """Ana is a student."""
    async with a_service(places.runtime_dir, policy=policy, **words) as it:
        it.hub.add("ana", *RESEARCHER, groups=("students", "chess"))
        yield Lab(it)


ANAS = Use(pid=4711, kind=UseKind.KERNEL, owner="ana", start_ticks=1, name="python")


def test_the_hub_is_asked_for_the_groups_of_whom_it_concerns_alone(tmp_runtime: Places) -> None:
    """Who has never come to the service is in groups too; and what is kept of them goes when they do."""

    async def story() -> None:
        async with a_lab(tmp_runtime) as lab:
            world = lab.it.loop.world
            await lab.sees(ANAS)
            assert world.teams_of("ana") == ("chess", "students")
            assert world.policy.treatment_of(world.teams_of("ana")).rule == "the rule for team students"
            assert world.teams_of("ben") is None
            world.uses.clear()
            await lab.groups.look()
            assert world.teams_of("ana") is None
            assert lab.asked() == 1

    play(story)


@pytest.mark.parametrize(
    "use",
    [
        Use(pid=4711, kind=UseKind.USER, owner=None, user="lab", claim="ana"),
        Use(pid=4711, kind=UseKind.HOLDER, owner="ana"),
    ],
)
def test_the_hub_is_asked_about_nobody_by_a_processs_own_word(use: Use, tmp_runtime: Places) -> None:
    """Nor about who has a lease of what they use."""

    async def story() -> None:
        async with a_lab(tmp_runtime) as lab:
            await lab.sees(use)
            assert lab.asked() == 0

    play(story)


def test_without_rules_by_team_nobody_is_asked_about(tmp_runtime: Places) -> None:
    """The plain rule is everybody's."""

    async def story() -> None:
        async with a_lab(tmp_runtime, Policy(foreign_use="end")) as lab:
            await lab.sees(ANAS)
            assert lab.asked() == 0
            world = lab.it.loop.world
            assert world.policy.treatment_of(world.teams_of("ana")).ends_after_seconds == 60

    play(story)


def test_who_is_above_their_part_is_asked_about_where_that_differs_by_team(tmp_runtime: Places) -> None:
    """A holder is certain, and so is its owner."""
    rule = SharingRule(by_team=(PartRule(team="students", evict_after_seconds=30),))

    async def story() -> None:
        async with a_lab(tmp_runtime, Policy(sharing=(rule,))) as lab:
            async with client_of(lab.it, "ana") as client:
                await client.submit(SubmitBody(kind=Kind.RESERVATION, ask=Ask(devices=1, memory_bytes=1 << 30)))
            (device,) = lab.it.loop.world.devices
            lab.it.loop.world.uses[device] = (Use(pid=1, kind=UseKind.HOLDER, workload=1, memory_bytes=4 << 30),)
            await lab.groups.look()
            assert lab.groups.known == {"ana": ("chess", "students")}

    play(story)


def test_whose_job_comes_soon_is_asked_about_so_that_it_counts_for_no_group_that_they_have_left(
    tmp_runtime: Places,
) -> None:
    """Their word of the day on which they added it may be months old; long before it comes nobody is asked."""

    async def story() -> None:
        async with a_lab(tmp_runtime, Policy()) as lab:
            loop, spec = lab.it.loop, JobSpec(argv=("true",), folder="/")
            job = Submit(kind=Kind.JOB, owner="ana", groups=("students",), team="students", ask=Ask(), spec=spec)
            far = loop.now() + 3600
            added = AddRecurring(cron="0 0 1 1 *", timezone="UTC", submit=job, next_at=far)
            id_ = (await loop.handle(added)).workload or 0
            await lab.groups.look()
            assert lab.asked() == 0

            lab.it.hub.people["ana"].groups = ("chess",)
            soon = PauseRecurring(recurring=id_, by="ana", paused=False, next_at=loop.now() + 30)
            await loop.handle(soon)
            await lab.groups.look()
            assert lab.groups.known == {"ana": ("chess",)}
            loop.world.groups = lab.groups.known
            due_at = loop.now()
            await loop.handle(msgspec.structs.replace(soon, next_at=due_at))
            await loop.handle(Fire(recurring=id_, due_at=due_at, next_at=due_at + 3600))
            assert loop.world.recurring[id_].last_detail == "refused: ana is not in the team 'students'"

    play(story)


def test_a_change_of_groups_counts_after_what_is_kept_is_too_old(tmp_runtime: Places) -> None:
    """As with tokens; meanwhile the hub is not asked again."""

    async def story() -> None:
        async with a_lab(tmp_runtime, cache_seconds=3600.0) as lab:
            await lab.sees(ANAS)
            await lab.groups.look()
            assert lab.asked() == 1
            lab.it.hub.people["ana"].groups = ("staff",)
            lab.groups._hub.cache_seconds = 0.0
            await lab.groups.look()
            assert lab.it.loop.world.teams_of("ana") == ("staff",)

    play(story)


def test_a_hub_that_is_away_or_says_nothing_leaves_it_unknown(tmp_runtime: Places) -> None:
    """So nobody is ended; that it says nothing is told to operators, with what to give the service."""

    async def story() -> None:
        async with a_lab(tmp_runtime) as lab:
            await lab.sees(ANAS)
            lab.it.hub.service_scopes.discard("read:users:groups")
            await lab.groups.look()
            assert lab.it.loop.world.teams_of("ana") is None
            client = lab.it.as_(lab.it.hub.add("olga", "operate", "read"))
            (told,) = (await client.get("/status")).json()["alerts"]
            assert "read:users:groups" in told["text"]
            lab.it.hub.service_scopes.add("read:users:groups")
            await lab.groups.look()
            assert lab.it.loop.world.teams_of("ana") == ("chess", "students")
            assert "alerts" not in (await client.get("/status")).json()
            lab.it.hub.trouble = 500
            await lab.groups.look()
            assert lab.it.loop.world.teams_of("ana") is None

    play(story)


@pytest.mark.parametrize("owner", ["services/idle", "local/root", "carl"])
def test_who_is_no_user_of_the_hub_is_in_no_group(owner: str, tmp_runtime: Places) -> None:
    """A service, root, an account of the machine: the plain rule is theirs."""

    async def story() -> None:
        async with a_lab(tmp_runtime) as lab:
            await lab.sees(Use(pid=1, kind=UseKind.USER, owner=owner, user="it"))
            assert lab.it.loop.world.teams_of(owner) == ("everyone",)

    play(story)


# -- all of it


def test_whose_a_process_is_is_shown_to_whom_it_concerns(tmp_runtime: Places) -> None:
    """All work runs as one account: ana's process in her named server is hers to see, and ben sees no more than who."""

    async def story() -> None:
        everybody = {"*": "me"}
        async with a_service(tmp_runtime.runtime_dir, accounts=everybody, policy=Policy(names_are_public=False)) as it:
            with a_process() as server:
                await it.spawner("ana").post("/servers", json=a_body(server.pid))
                look = Attribution(Known(), it.loop.owners)
                (device,) = it.loop.world.devices
                reading = Reading(uuid=device, at=1.0, processes=((server.pid, 1 << 30),))
                it.loop.world.uses[device] = look.attribute(it.loop.world, reading, Rules(has_local_pids=True))
                seen = {}
                for name, scopes in (("ana", RESEARCHER), ("ben", RESEARCHER), ("olga", ("operate", "read"))):
                    answer = await it.as_(it.hub.add(name, *scopes)).get("/devices")
                    (use,) = answer.json()["items"][0]["uses"]
                    seen[name] = (use.get("owner"), use.get("server"), use.get("name", "") != "")
                assert seen == {"ana": ("ana", "big", True), "ben": (None, None, False), "olga": ("ana", "big", True)}

    play(story)
