"""Servers of a hub with GPUs, for real: the hub's own users and spawners, small processes, a broker behind its gate."""

import asyncio
import contextlib
import getpass
import os
import re
import signal
import time
from types import SimpleNamespace
from typing import Any

import pytest
from jupyterhub import roles
from jupyterhub.scopes import define_custom_scopes
from jupyterhub.spawner import SimpleLocalProcessSpawner, SpawnException
from tornado import web

from jupyter_gpu.jupyter.offers import Choice
from jupyter_gpu.jupyter.placing import Share
from jupyter_gpu.jupyter.roles import custom_scopes
from jupyter_gpu.jupyter.server_lease import ServerLease
from jupyter_gpu.jupyter.spawner import with_gpus
from jupyter_gpu.model import EndReason, LoadPolicy, Policy, Profile, QuotaRule, State
from tests.ports import free_port

from .ground import a_service, play
from .spawn_ground import NONE, ONE, TWO, Hall, a_hall, client_of, leave, occupy, reservations

GONE = (State.YIELDING, State.ENDED)


def closed_port() -> str:
    """Where nobody listens."""
    return f"http://127.0.0.1:{free_port()}"


@contextlib.asynccontextmanager
async def a_silent_broker() -> Any:
    """One that takes every connection and never says a word."""
    over = asyncio.Event()

    async def never(_reader: Any, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        writer.close()

    server = await asyncio.start_server(never, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        over.set()
        server.close()
        await server.wait_closed()


async def until(condition: Any, seconds: float = 20.0) -> None:
    """Look again and again."""
    end = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < end, "it did not come to pass"
        await asyncio.sleep(0.05)


def reap(spawner: Any) -> asyncio.Future[int]:
    """A hub that is gone has no children: take the exit of one as init would."""
    return asyncio.ensure_future(asyncio.to_thread(spawner.proc.wait))


# -- a whole life


def test_a_server_gets_its_profiles_devices_and_gives_them_back_when_it_stops(tmp_runtime):
    """Leased before the start, seen by UUID and no others, kept in the hub's state, given back before the stop is."""

    async def story():
        async with a_hall(tmp_runtime.runtime_dir) as (hall, serving):
            user = hall.user("ana.b@uni.example")
            await user.spawn("", options={"gpu_profile": "one"})

            (held,) = await reservations(serving, user.name)
            seen = hall.environment()
            assert held.state is State.ACTIVE
            assert held.owner == user.name
            assert (held.holder.kind, held.holder.name) == ("server", "ana.b@uni.example/")
            assert seen["CUDA_VISIBLE_DEVICES"] == seen["NVIDIA_VISIBLE_DEVICES"] == held.devices[0]
            assert seen["JUPYTER_GPU_RESERVATION"] == str(held.id)
            assert seen["JUPYTER_GPU_URL"] == serving.root + serving.prefix
            assert user.spawners[""].orm_spawner.state["gpu_lease"]["id"] == held.id

            await user.stop("")

            (over,) = await reservations(serving, user.name, ended=True)
            assert over.state in GONE
            assert over.outcome.end is EndReason.RELEASED

    play(story)


def test_the_broker_knows_the_process_of_a_server_on_its_machine(tmp_runtime):
    """So that it sees by itself when that ends, also while the hub is down (jupyterhub/jupyterhub#4519)."""

    async def story():
        async with a_hall(tmp_runtime.runtime_dir, accounts={"ana": getpass.getuser()}) as (hall, serving):
            await hall.user("ana").spawn("", options={"gpu_profile": "one"})

            (held,) = await reservations(serving, "ana")
            spawner = hall.user("ana").spawners[""]
            assert held.holder.pid == spawner.pid
            assert spawner.get_state()["gpu_lease"]["number"] == held.holder.number

    play(story)


def test_a_server_that_needs_no_gpu_asks_nobody(tmp_runtime):
    """It starts while the broker is away, sees none, and tells its kernels where to reserve later."""

    async def story():
        url = closed_port()
        async with a_hall(tmp_runtime.runtime_dir, gpu_url=url) as (hall, _):
            await hall.user("ana").spawn("", options={"gpu_profile": "none"})

            assert hall.environment()["CUDA_VISIBLE_DEVICES"] == "none"
            assert hall.environment()["JUPYTER_GPU_URL"] == url
            assert "JUPYTER_GPU_RESERVATION" not in hall.environment()
            await hall.user("ana").stop("")

    play(story)


def test_a_killed_server_gives_back_at_the_next_poll(tmp_runtime):
    """A crash has no stop: the hub sees it by polling, and so do we."""

    async def story():
        async with a_hall(tmp_runtime.runtime_dir) as (hall, serving):
            await hall.user("ana").spawn("", options={"gpu_profile": "one"})
            spawner = hall.user("ana").spawners[""]
            os.kill(spawner.pid, signal.SIGKILL)
            await asyncio.to_thread(spawner.proc.wait)

            assert await spawner.poll() is not None
            await spawner._gpu_lease.settle()

            assert (await reservations(serving, "ana", ended=True))[0].state in GONE

    play(story)


def test_a_start_that_fails_gives_back(tmp_runtime):
    """A command that is not there, say: the hub is told of that, and nothing stays leased."""

    async def story():
        async with a_hall(tmp_runtime.runtime_dir) as (hall, serving):
            hall.config.Spawner.cmd = ["/no/such/command"]
            with pytest.raises(FileNotFoundError):
                await hall.user("ana").spawn("", options={"gpu_profile": "one"})

            assert (await reservations(serving, "ana", ended=True))[0].state in GONE
            assert hall.user("ana").spawners[""].pending is None

    play(story)


# -- the hub is restarted


def test_a_server_that_outlives_the_hub_keeps_its_lease(tmp_runtime):
    """What the hub kept is enough to go on, and to give back at the end."""

    async def story():
        async with a_hall(tmp_runtime.runtime_dir) as (hall, serving):
            await hall.user("ana").spawn("", options={"gpu_profile": "one"})
            before = hall.user("ana").spawners[""]
            hall.restarted()
            spawner = hall.user("ana").spawners[""]

            assert spawner is not before
            assert await spawner.poll() is None
            await spawner._gpu_lease.settle()
            assert [it.state for it in await reservations(serving, "ana")] == [State.ACTIVE]

            reaping = reap(before)
            await hall.user("ana").stop("")
            await reaping
            assert (await reservations(serving, "ana", ended=True))[0].state in GONE

    play(story)


def test_a_server_that_ended_while_the_hub_was_down_gives_back_when_it_is_up_again(tmp_runtime):
    """No stop hook is called for it: the first look of the new hub is enough (jupyterhub/jupyterhub#4519)."""

    async def story():
        async with a_hall(tmp_runtime.runtime_dir) as (hall, serving):
            await hall.user("ana").spawn("", options={"gpu_profile": "one"})
            old = hall.user("ana").spawners[""]
            os.kill(old.pid, signal.SIGKILL)
            await asyncio.to_thread(old.proc.wait)
            hall.restarted()
            spawner = hall.user("ana").spawners[""]

            assert await spawner.poll() is not None
            await spawner._gpu_lease.settle()

            assert (await reservations(serving, "ana", ended=True))[0].state in GONE

    play(story)


def test_what_is_kept_of_a_lease_means_nothing_in_another_store(tmp_runtime):
    """With the state folder lost, its number is some other reservation of the same person: that one is left alone."""

    async def story():
        folder = tmp_runtime.runtime_dir
        async with a_hall(folder / "before") as (hall, _):
            await hall.user("ana").spawn("", options={"gpu_profile": "one"})
            before = hall.user("ana").spawners[""]
            async with a_service(folder / "after", count=2) as serving:
                other = await occupy(serving, "ana", devices=1)
                assert other.id == before._gpu_lease.id
                hall.config.GpuSpawner.gpu_url = serving.root + serving.prefix
                hall.restarted()
                spawner = hall.user("ana").spawners[""]

                assert await spawner.poll() is None
                await spawner._gpu_lease.settle()
                await spawner.rename("", "")
                assert [it.holder for it in await reservations(serving, "ana")] == [other.holder]

                reaping = reap(before)
                await hall.user("ana").stop("")
                await reaping
                assert [it.state for it in await reservations(serving, "ana")] == [State.ACTIVE]

    play(story)


def test_what_a_former_version_kept_of_a_lease_is_gone_on_with(tmp_runtime):
    """It did not keep in which store the lease is."""

    async def story():
        async with a_hall(tmp_runtime.runtime_dir) as (hall, serving):
            await hall.user("ana").spawn("", options={"gpu_profile": "one"})
            before = hall.user("ana").spawners[""]
            kept = dict(before.orm_spawner.state["gpu_lease"])
            assert kept.pop("store") == serving.loop.store_id
            before.orm_spawner.state = before.orm_spawner.state | {"gpu_lease": kept}
            hall.restarted()

            reaping = reap(before)
            await hall.user("ana").stop("")
            await reaping

            assert (await reservations(serving, "ana", ended=True))[0].state in GONE

    play(story)


# -- named servers


def test_each_server_of_a_user_has_its_own_lease_by_its_name(tmp_runtime):
    """All are counted as the user's, and the end of one is the end of its lease alone (jupyterhub/jupyterhub#4926)."""

    async def story():
        async with a_hall(tmp_runtime.runtime_dir, count=3) as (hall, serving):
            user = hall.user("ana")
            for name in ("", "train", "b-c"):
                await user.spawn(name, options={"gpu_profile": "one"})

            held = await reservations(serving, "ana")
            assert sorted(it.holder.name for it in held) == ["ana/", "ana/b-c", "ana/train"]
            assert len({uuid for it in held for uuid in it.devices}) == 3

            await user.stop("train")

            after = {it.holder.name: it.state for it in await reservations(serving, "ana") if it.outcome is None}
            assert after == {"ana/": State.ACTIVE, "ana/b-c": State.ACTIVE}
            for name in ("", "b-c"):
                await user.stop(name)
            assert all(it.outcome for it in await reservations(serving, "ana", ended=True))

    play(story)


def test_a_server_that_is_renamed_keeps_its_lease_under_the_new_name(tmp_runtime):
    """The broker asks the hub which servers there are, by their names."""

    async def story():
        async with a_hall(tmp_runtime.runtime_dir) as (hall, serving):
            await hall.user("ana").spawn("train", options={"gpu_profile": "one"})
            spawner = hall.user("ana").spawners["train"]

            await spawner.rename("train", "learn")

            assert [it.holder.name for it in await reservations(serving, "ana")] == ["ana/learn"]

    play(story)


# -- none is free


def test_who_does_not_want_to_wait_is_told_at_once_why_and_what_else_there_is(tmp_runtime):
    """What happened, why, when, and only what would really help now: each once, and nothing was asked for."""

    async def story():
        async with a_hall(tmp_runtime.runtime_dir) as (hall, serving):
            await occupy(serving, devices=1)
            last = serving.loop.world.last_id
            with pytest.raises(SpawnException) as caught:
                await hall.user("ana").spawn("", options={"gpu_profile": "two"})

            said = caught.value
            assert (said.status_code, said.reason) == (409, "gpu_capacity")
            (when,) = re.findall(r"(?:tomorrow )?at about \d\d:\d\d", said.message)
            assert said.message == (
                "“Two GPUs” is not free now, so your server was not started. "
                "1 of the 2 GPUs it wants is free: GPU 0 is reserved by grace. "
                f"Expected {when}. "
                "What you can do now: tick “Wait in line if none is free” and start again: your server then starts by "
                "itself; or choose “One GPU” (1 GPU, for 1h), which starts at once; "
                "or choose “No GPU”, which starts at once."
            )
            assert serving.loop.world.last_id == last, "a training would have made room for nobody"
            assert hall.user("ana").spawners[""].pending is None

    play(story)


def test_a_refusal_is_text_for_programs_and_a_list_for_people(tmp_runtime):
    """A hub shows people what an exception says for it alone; programs find a word and a time in the headers."""
    evil = Profile(name="evil", title="<b>&", devices=1)

    async def story():
        async with a_hall(tmp_runtime.runtime_dir, gpu_profiles=[evil]) as (hall, serving):
            await serving.loop.handle(LoadPolicy(policy=Policy(profiles=(evil, NONE))))
            await occupy(serving)
            with pytest.raises(SpawnException) as caught:
                await hall.user("ana").spawn("", options={"gpu_profile": "evil"})

            said = caught.value
            assert said.headers["X-Jupyter-Gpu-Refused"] == "gpu_capacity"
            assert 0 < int(said.headers["Retry-After"]) <= 3660
            assert said.jupyterhub_message == said.message
            assert said.message.startswith("“<b>&” is not free now")
            assert said.jupyterhub_html_message.startswith("“&lt;b&gt;&amp;” is not free now")
            assert "<li>Choose “No GPU”, which starts at once.</li>" in said.jupyterhub_html_message

    play(story)


@pytest.mark.parametrize(
    ("quota", "held", "profile", "waits", "said", "ways"),
    [
        (1, 1, "one", False, "You hold 1 of the 1 GPU allowed at once, and this takes 1.", "give something"),
        (1, 0, "two", False, "2 GPUs are more than 1 GPU at once, the quota of user ana.", "choose “One"),
        (1, 0, "two", True, "2 GPUs are more than 1 GPU at once, the quota of user ana.", "choose “One"),
    ],
)  # fmt: skip
def test_a_quota_that_is_used_up_is_said_and_whether_waiting_would_help(  # noqa: PLR0917 - a table
    tmp_runtime, quota, held, profile, waits, said, ways
):
    """Free GPUs help nobody who may not have more; what is never allowed is refused to who waits too."""

    async def story():
        rules = (QuotaRule(user="ana", devices=quota),)
        async with a_hall(tmp_runtime.runtime_dir, quotas=rules) as (hall, serving):
            for _ in range(held):
                await occupy(serving, "ana", devices=1)
            with pytest.raises(SpawnException) as caught:
                await hall.user("ana").spawn("", options={"gpu_profile": profile, "gpu_wait": waits})

            message = caught.value.message
            assert f"{said} What" in message
            assert f"What you can do now: {ways}" in message
            assert "Wait in line" not in message

    play(story)


# -- the rules as they are now


def test_what_the_policy_offers_now_counts_and_not_what_it_did_at_the_hubs_start(tmp_runtime):
    """A policy that was read anew: its new profile may be chosen, in the form and by programs; what is gone may not."""
    new = Profile(name="new", title="New", devices=1)

    async def story():
        async with a_hall(tmp_runtime.runtime_dir) as (hall, serving):
            await serving.loop.handle(LoadPolicy(policy=Policy(profiles=(NONE, new))))
            spawner = hall.spawner("ana")

            form = await spawner.get_options_form()
            assert 'value="new"' in form
            assert 'value="one"' not in form
            options = await spawner.run_options_from_form({"gpu_profile": ["new"]})
            await hall.user("ana").spawn("", options=options)
            assert [len(it.devices) for it in await reservations(serving, "ana")] == [1]
            await hall.user("ana").stop("")
            with pytest.raises(SpawnException) as caught:
                await hall.user("ana").spawn("", options={"gpu_profile": "one"})
            assert "Choose one of: none, new." in caught.value.message

    play(story)


def test_a_server_counts_for_the_team_that_was_chosen_for_it(tmp_runtime):
    """The first by name unless another is named, and only one's own; the hub keeps the choice for the next start."""
    rules = (QuotaRule(team="speech", devices=0), QuotaRule(team="vision", devices=2))

    async def story():
        async with a_hall(tmp_runtime.runtime_dir, quotas=rules) as (hall, serving):
            user = hall.user("ana", "speech", "vision")
            with pytest.raises(SpawnException) as usual:
                await user.spawn("", options={"gpu_profile": "one"})
            assert "1 GPU is more than 0 GPUs at once, the quota of team speech" in usual.value.message

            options = await user.spawners[""].run_options_from_form({"gpu_profile": ["one"], "gpu_team": ["vision"]})
            assert options == {"gpu_profile": "one", "gpu_team": "vision"}
            await user.spawn("", options=options)
            assert [it.team for it in await reservations(serving, "ana")] == ["vision"]
            form = await user.spawners[""].get_options_form()
            assert '<option value="vision" selected>' in form

            with pytest.raises(SpawnException) as others:
                await user.spawn("second", options={"gpu_profile": "one", "gpu_team": "audio"})
            assert others.value.status_code == 403
            assert others.value.message == ("gpu_team: you are not in the team 'audio'. Your teams: speech, vision.")
            hall.join("ana", "audio")
            form = await hall.spawner("ana", gpu_profile="two", gpu_team="gone").get_options_form()
            assert '<option value="audio" selected>' in form, "a team that is left is forgotten, and only it"
            assert re.search(r'value="two"[^>]* checked', form)

    play(story)


# -- in line


def test_who_waits_in_line_sees_the_place_and_starts_when_it_is_their_turn(tmp_runtime):
    """The hub's progress tells the place, who is ahead and the expected start; then the server starts by itself."""

    async def story():
        async with a_hall(tmp_runtime.runtime_dir, gpu_wait_seconds=60) as (hall, serving):
            taken = await occupy(serving)
            user = hall.user("ana")
            starting = asyncio.ensure_future(user.spawn("", options={"gpu_profile": "one", "gpu_wait": True}))
            spawner = user.spawners[""]
            events: list[dict[str, Any]] = []

            async def look() -> None:
                async for event in spawner.progress():
                    events.append(event)  # noqa: PERF401 - looked at meanwhile

            looking = asyncio.ensure_future(look())

            async def is_waiting() -> bool:
                return bool(await reservations(serving, "ana"))

            async def is_told() -> bool:
                return any("Waiting in line" in it["message"] for it in events)

            await until(is_waiting)
            assert spawner.start_timeout > 60
            assert await spawner.poll() is None
            await until(is_told)
            async with contextlib.aclosing(spawner.progress()) as anew:
                assert await anext(anew) == events[-1], "a page that is loaded anew begins with how it stands"
            await leave(serving, taken)
            await starting
            await looking

            waits = next(it for it in events if "Waiting in line" in it["message"])
            assert re.fullmatch(
                "Waiting in line for “One GPU”. You are first in line. "
                "Expected to start (?:tomorrow )?at about \\d\\d:\\d\\d. "
                "No GPU is free: GPU 0 is reserved by grace, GPU 1 is reserved by grace. "
                "To leave the line, stop the server.",
                waits["message"],
            )
            assert any(it["message"].startswith("GPU 0 reserved until") for it in events)
            assert [it["progress"] for it in events] == sorted(it["progress"] for it in events)
            assert events[-1] == {"progress": 50, "message": "Spawning server..."}
            assert hall.environment()["CUDA_VISIBLE_DEVICES"] == "GPU-0"
            assert spawner.start_timeout == 60

    play(story)


@pytest.mark.parametrize("limit", [100, 2])
def test_starts_that_wait_leave_the_hub_room_for_others(tmp_runtime, limit):
    """It counts each as a start under way: one person with many named servers could keep everybody from starting."""

    async def story():
        async with a_hall(tmp_runtime.runtime_dir, gpu_wait_seconds=60) as (hall, serving):
            taken = await occupy(serving)
            waits = {"gpu_profile": "one", "gpu_wait": True}
            first, second = hall.user("ana"), hall.user("ana" if limit == 100 else "ben")
            second.settings["concurrent_spawn_limit"] = first.settings["concurrent_spawn_limit"] = limit
            starting = asyncio.ensure_future(first.spawn("", options=waits))

            async def is_waiting() -> bool:
                return any(it.state == "queued" for it in await reservations(serving, "ana"))

            await until(is_waiting)
            with pytest.raises(SpawnException) as refused:
                await second.spawn("more", options=waits)
            said = {
                100: "Your usual server waits in line for a GPU already, and one at a time may. So this one was not "
                "started. What you can do now: stop that one; or start without a GPU.",
                2: "As many servers wait in line for a GPU as may: 1. So this one was not started. What you "
                "can do now: try later; or start without a GPU.",
            }
            assert refused.value.jupyterhub_message == said[limit]
            await second.spawn("cpu", options={"gpu_profile": "none"})
            assert len(await reservations(serving, "ana")) == 1
            await leave(serving, taken)
            await starting
            await second.stop("cpu")
            await occupy(serving, devices=1)
            again = asyncio.ensure_future(first.spawn("again", options=waits))
            await until(is_waiting)
            again.cancel()
            with pytest.raises((asyncio.CancelledError, SpawnException)):
                await again

    play(story)


@pytest.mark.parametrize("how", ["cancelled", "stopped", "ended by somebody"])
def test_who_leaves_while_waiting_leaves_the_line(tmp_runtime, how):
    """The hub cancels a start that is interrupted, and stops it; an operator may end the reservation."""

    async def story():
        async with a_hall(tmp_runtime.runtime_dir) as (hall, serving):
            await occupy(serving)
            user = hall.user("ana")
            starting = asyncio.ensure_future(user.spawn("", options={"gpu_profile": "one", "gpu_wait": ["yes"]}))
            spawner = user.spawners[""]

            async def is_waiting() -> bool:
                return bool(await reservations(serving, "ana"))

            await until(is_waiting)
            if how == "cancelled":
                starting.cancel()
            elif how == "stopped":
                await spawner.stop()
            else:
                async with client_of(serving, "ana") as client:
                    await client.cancel((await reservations(serving, "ana"))[0].id)
            with pytest.raises((asyncio.CancelledError, SpawnException)):
                await starting
            await spawner._gpu_lease.settle()

            assert (await reservations(serving, "ana", ended=True))[0].state is State.ENDED
            assert not (hall.folder / "environment.json").exists()
            await user.stop("")
            assert spawner.pending is None

    play(story)


def test_a_wait_has_an_end(tmp_runtime):
    """After the longest wait it is given up with the reason, and the place in line too."""

    async def story():
        async with a_hall(tmp_runtime.runtime_dir, gpu_wait_seconds=1) as (hall, serving):
            await occupy(serving)
            with pytest.raises(SpawnException, match="was not free within") as caught:
                await hall.user("ana").spawn("", options={"gpu_profile": "one", "gpu_wait": True})

            assert caught.value.status_code == 409
            assert (await reservations(serving, "ana", ended=True))[0].state is State.ENDED

    play(story)


def test_a_wait_outlasts_a_broker_that_is_restarted(tmp_runtime, monkeypatch):
    """Who stands in line is not sent away because the service is new; the page says how it stands."""
    monkeypatch.setattr("jupyter_gpu.jupyter.server_lease.RETRY_SECONDS", 0.05)

    async def story():
        async with a_hall(tmp_runtime.runtime_dir) as (hall, serving):
            taken = await occupy(serving)
            user = hall.user("ana")
            starting = asyncio.ensure_future(user.spawn("", options={"gpu_profile": "one", "gpu_wait": True}))
            spawner = user.spawners[""]

            async def is_waiting() -> bool:
                return bool(await reservations(serving, "ana"))

            await until(is_waiting)
            lease, there = spawner._gpu_lease, spawner.gpu_url
            spawner.gpu_url = closed_port()
            lease._open = spawner._gpu_client
            await leave(serving, taken)
            spawner.gpu_url = there
            await starting

            assert hall.environment()["CUDA_VISIBLE_DEVICES"] == "GPU-0"

    play(story)


# -- a broker that is away


@pytest.mark.parametrize("kind", ["dead", "silent"])
def test_a_broker_that_is_away_is_said_in_time_and_the_hub_is_free(tmp_runtime, kind):
    """A start that needs a GPU fails with words, soon; that it does is no reason for anything to stay pending."""

    async def story():
        async with contextlib.AsyncExitStack() as stack:
            url = closed_port() if kind == "dead" else await stack.enter_async_context(a_silent_broker())
            more = {"gpu_url": url, "gpu_deadline_seconds": 0.3}
            hall, _ = await stack.enter_async_context(a_hall(tmp_runtime.runtime_dir, **more))
            began = time.monotonic()
            with pytest.raises(SpawnException) as caught:
                await hall.user("ana").spawn("", options={"gpu_profile": "one"})

            assert (caught.value.status_code, caught.value.reason) == (503, "gpu_broker")
            assert time.monotonic() < began + 10
            assert hall.user("ana").spawners[""].pending is None
            form = await hall.spawner("ana").get_options_form()
            assert "The GPU service does not answer now" in form

    play(story)


def test_no_stop_waits_for_a_broker(tmp_runtime):
    """The server ends at once; the lease is left to the broker, and the log says so."""
    said: list[str] = []

    async def story():
        async with a_hall(tmp_runtime.runtime_dir, gpu_deadline_seconds=5.0) as (hall, _), a_silent_broker() as url:
            await hall.user("ana").spawn("", options={"gpu_profile": "one"})
            spawner = hall.user("ana").spawners[""]
            spawner.gpu_url = url
            spawner._gpu_lease.deadline_seconds = 0.3
            spawner._gpu_lease._log = SimpleNamespace(warning=lambda text, *words: said.append(text % words))
            began = time.monotonic()
            await hall.user("ana").stop("")

            assert time.monotonic() < began + 10
            assert spawner.proc.poll() is not None

    play(story)
    assert ["is not given back; the broker sees to it" in it for it in said] == [True]


def test_what_was_asked_by_a_start_that_was_cancelled_meanwhile_is_taken_back(tmp_runtime, monkeypatch):
    """The answer comes when nobody waits for it any more: then it is given back at once."""
    may_go = asyncio.Event()
    send = ServerLease._send

    async def late(self: ServerLease, *words: Any) -> Any:
        it = await send(self, *words)
        await may_go.wait()
        return it

    monkeypatch.setattr(ServerLease, "_send", late)

    async def story():
        async with a_hall(tmp_runtime.runtime_dir) as (hall, serving):
            starting = asyncio.ensure_future(hall.user("ana").spawn("", options={"gpu_profile": "one"}))

            async def is_there() -> bool:
                return bool(await reservations(serving, "ana"))

            await until(is_there)
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting
            may_go.set()
            await hall.user("ana").spawners[""]._gpu_lease.settle()

            assert (await reservations(serving, "ana", ended=True))[0].state in GONE

    play(story)


# -- its time is over


def test_a_server_whose_lease_has_ended_is_ended(tmp_runtime):
    """What it holds was promised to others, and a container keeps what it was made with: the hub hears and stops it."""

    async def story():
        async with a_hall(tmp_runtime.runtime_dir) as (hall, serving):
            await hall.user("ana").spawn("", options={"gpu_profile": "one"})
            spawner = hall.user("ana").spawners[""]
            assert await spawner.poll() is None
            await spawner._gpu_lease.settle()
            async with client_of(serving, "ana") as client:
                await client.release(spawner._gpu_lease.id)

            await spawner.poll()
            await spawner._gpu_lease.settle()

            assert await spawner.poll() is not None

    play(story)


def test_a_lease_that_its_owner_passed_on_ends_no_server(tmp_runtime):
    """It has another number then; the next renewal knows it."""

    async def story():
        async with a_hall(tmp_runtime.runtime_dir) as (hall, serving):
            await hall.user("ana").spawn("", options={"gpu_profile": "one"})
            spawner = hall.user("ana").spawners[""]
            async with client_of(serving, "ana") as client:
                (held,) = await reservations(serving, "ana")
                await client.move(held.id, held.holder)

            for _ in range(2):
                assert await spawner.poll() is None
                await spawner._gpu_lease.settle()

            assert spawner._gpu_lease.number == held.holder.number + 1
            assert await spawner.poll() is None

    play(story)


# -- what the admin has set


def test_the_spawners_own_hooks_and_form_are_still_asked(tmp_runtime):
    """Wrapped, not replaced; and they see the options that they know."""
    called: list[str] = []

    def hook(name: str, result: Any = None) -> Any:
        def hooked(*_words: Any, **_more: Any) -> Any:
            called.append(name)
            return result

        return hooked

    async def story():
        async with a_hall(tmp_runtime.runtime_dir) as (hall, _):
            spawner = hall.config.Spawner
            spawner.pre_spawn_hook, spawner.post_stop_hook = hook("pre"), hook("post")
            spawner.options_form = '<input name="image">'
            spawner.options_from_form = lambda form: {"image": form["image"][0], "fields": sorted(form)}
            spawner.auth_state_hook = hook("auth")
            spawner.environment = {"OURS": lambda it: it.user.name}
            made = hall.spawner("ana")

            form = await made.get_options_form()
            options = await made.run_options_from_form({"image": ["x"], "gpu_profile": ["one"], "gpu_wait": ["yes"]})
            await hall.user("ana").spawn("", options=options)
            await hall.user("ana").stop("")

            assert form.index('name="gpu_profile"') < form.index('<input name="image">')
            assert options == {"image": "x", "fields": ["image"], "gpu_profile": "one", "gpu_wait": True}
            assert called == ["auth", "pre", "post"]
            assert hall.environment()["OURS"] == "ana"

    play(story)


def test_a_failing_hook_keeps_no_lease(tmp_runtime):
    """A hook before the start refuses it before anything is leased; one after the stop changes nothing."""

    def fails(_spawner: Any) -> None:
        raise RuntimeError("a hook of the admin's")

    async def story():
        async with a_hall(tmp_runtime.runtime_dir) as (hall, serving):
            hall.config.Spawner.pre_spawn_hook = fails
            with pytest.raises(RuntimeError, match="a hook of the admin's"):
                await hall.user("ana").spawn("", options={"gpu_profile": "one"})
            assert await reservations(serving, "ana", ended=True) == []

            hall.config.Spawner.pre_spawn_hook = None
            hall.config.Spawner.post_stop_hook = fails
            await hall.user("bob").spawn("", options={"gpu_profile": "one"})
            await hall.user("bob").stop("")
            assert (await reservations(serving, "bob", ended=True))[0].state in GONE

    play(story)


def test_all_is_as_the_admin_set_it_once_a_server_is_over(tmp_runtime):
    """A spawner that is used again carries nothing of an earlier lease."""

    async def story():
        async with a_hall(tmp_runtime.runtime_dir) as (hall, _):
            hall.config.Spawner.environment = {"A": "b"}
            await hall.user("ana").spawn("", options={"gpu_profile": "one"})
            spawner = hall.user("ana").spawners[""]
            assert spawner.environment["A"] == "b"
            assert "CUDA_VISIBLE_DEVICES" in spawner.environment
            await hall.user("ana").stop("")
            assert spawner.environment == {"A": "b"}

    play(story)


# -- what may be chosen


@pytest.mark.parametrize(
    ("options", "profile", "waits"),
    [
        ({}, "one", False),
        ({"gpus": ["1"]}, "one", False),
        ({"gpus": 1}, "one", False),
        ({"gpus": "2"}, "two", False),
        ({"gpus": 0}, "none", False),
        ({"profile": ["two"]}, "two", False),
        ({"profile": "two"}, "two", False),
        ({"gpu_profile": ["none"], "gpu_wait": ["on"]}, "none", True),
        ({"gpu_profile": "two", "gpu_wait": False}, "two", False),
        ({"gpu_profile": "", "gpu_wait": ""}, "one", False),
        ({"something": "else"}, "one", False),
    ],
)
def test_forms_and_programs_mean_the_same_and_nothing_means_the_usual(tmp_runtime, options, profile, waits):
    """A form sends lists of text, a program JSON, an admin's button nothing at all (jupyterhub/jupyterhub#1629)."""

    async def story():
        async with a_hall(tmp_runtime.runtime_dir) as (hall, _):
            spawner = hall.spawner("ana", **options)
            await spawner._run_apply_user_options(options)

            assert (spawner._gpu_choice.profile.name, spawner._gpu_choice.waits) == (profile, waits)

    play(story)


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        ({"profile": "gone"}, 400, "There is no profile 'gone'. Choose one of: one, two, none."),
        ({"gpu_profile": ["one", "two"]}, 400, "gpu_profile: only one can be chosen, not 2."),
        ({"gpu_profile": {"a": 1}}, 400, "gpu_profile: a dict cannot be meant"),
        ({"gpus": "many"}, 400, "gpus: 'many' is no number of GPUs. Choose one of: one, two, none."),
        ({"gpus": 64}, 400, "No profile of yours has 64 GPUs. Choose one of: one, two, none."),
        ({"gpus": float("inf")}, 400, "gpus: 'inf' is no number of GPUs."),
        ({"gpus": True}, 400, "gpus: 'True' is no number of GPUs."),
        ({"gpus": 1.5}, 400, "gpus: '1.5' is no number of GPUs."),
        ({"gpus": -1}, 400, "No profile of yours has -1 GPUs."),
        ({"gpus": "9" * 5000}, 400, f"gpus: '{'9' * 80}...' is no number of GPUs."),
        ({"gpu_profile": True}, 400, "gpu_profile: 'True' is no name. Give a name in quotes."),
        ({"gpu_profile": [["one"]]}, 400, "gpu_profile: a list cannot be meant. Give one word or number."),
        ({"gpu_profile": "x" * 100_000}, 400, f"There is no profile '{'x' * 80}...'."),
        ({"gpu_profile": "<b>"}, 400, "There is no profile '<b>'."),
        ({"gpu_profile": "one", "gpu_wait": 2}, 400, "gpu_wait: '2' is neither yes nor no. Give true or false."),
        ({"gpu_profile": "one", "gpu_team": 7}, 400, "gpu_team: '7' is no name."),
        ({"gpu_profile": "none", "gpu_team": "vision"}, 403, "you are not in the team 'vision'. Your teams: everyone."),
        ({"gpu_profile": "one", "gpu_wait": "perhaps"}, 400, "gpu_wait: 'perhaps' is neither yes nor no."),
        ({"gpu_profile": "vision"}, 403, "The profile 'vision' is not yours to start a server with."),
        ({"gpu_profile": "kernels"}, 403, "The profile 'kernels' is not yours to start a server with."),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_prepared(tmp_runtime, options, status, said):
    """With what may be chosen instead, through the form as through the API, and no server stays pending for it."""

    async def story():
        async with a_hall(tmp_runtime.runtime_dir) as (hall, serving):
            with pytest.raises(web.HTTPError) as caught:
                await hall.user("ana").spawn("", options=options)
            assert caught.value.status_code == status
            assert said in caught.value.message
            assert hall.user("ana").spawners[""].pending is None
            with pytest.raises(web.HTTPError) as by_form:
                await hall.spawner("ana").run_options_from_form(options)
            assert by_form.value.status_code == status
            assert await reservations(serving, "ana", ended=True) == []

    play(story)


def test_a_teams_profile_is_its_members_alone(tmp_runtime):
    """By the hub's groups, and by the teams of the policy; a group that is no team opens nothing."""

    async def story():
        async with a_hall(tmp_runtime.runtime_dir, gpu_teams={"vision": ["cleo"]}) as (hall, _):
            of = {
                name: [it.name for it in hall.spawner(name, *groups)._gpu_allowed]
                for name, groups in (("ana", ("vision",)), ("bob", ("speech",)), ("cleo", ()))
            }
            assert of == {
                "ana": ["one", "two", "none", "vision"],
                "bob": ["one", "two", "none"],
                "cleo": ["one", "two", "none", "vision"],
            }
            hall.config.GpuSpawner.gpu_team_groups = ["speech"]
            hall.restarted()
            assert "vision" not in [it.name for it in hall.spawner("ana")._gpu_allowed]

    play(story)


def test_the_groups_that_the_hub_knows_now_go_with_the_ask(tmp_runtime):
    """No new login is needed after a change: the hub's own database is asked anew (2i2c-org/infrastructure#8154)."""

    async def story():
        async with a_hall(tmp_runtime.runtime_dir) as (hall, _):
            spawner = hall.spawner("ana")
            assert spawner._gpu_client()._said["X-Jupyter-Gpu-Groups"] == ""
            hall.join("ana", "vision")
            assert spawner._gpu_client()._said["X-Jupyter-Gpu-Groups"] == "vision"
            assert "vision" in [it.name for it in spawner._gpu_allowed]

    play(story)


# -- the class


@pytest.mark.parametrize("name", ["simple", "jupyterhub.spawner.SimpleLocalProcessSpawner", SimpleLocalProcessSpawner])
def test_a_spawner_is_named_as_the_hubs_configuration_does(name):
    """A class, an entry point or a path; twice is once."""
    cls = with_gpus(name)

    assert issubclass(cls, SimpleLocalProcessSpawner)
    assert cls.__name__ == "GpuSimpleLocalProcessSpawner"
    assert with_gpus(cls) is cls


def test_a_hub_without_profiles_offers_none_and_leases_nothing(tmp_runtime):
    """The form is the spawner's own, and the server sees no GPU."""

    async def story():
        async with a_hall(tmp_runtime.runtime_dir, gpu_profiles=[]) as (hall, serving):
            assert await hall.spawner("ana").get_options_form() == ""
            await hall.user("ana").spawn("", options={})
            assert hall.environment()["CUDA_VISIBLE_DEVICES"] == "none"
            assert await reservations(serving, "ana", ended=True) == []

    play(story)


@pytest.mark.parametrize("profiles", [(NONE,), (Profile(name="theirs", devices=1, users=("grace",)),)])
def test_who_has_nothing_to_choose_is_asked_nothing(tmp_runtime, profiles):
    """Their server starts without a GPU at once; beside a form of the spawner's own it is said why."""

    async def story():
        async with a_hall(tmp_runtime.runtime_dir, gpu_profiles=list(profiles)) as (hall, serving):
            await serving.loop.handle(LoadPolicy(policy=Policy(profiles=profiles)))
            assert await hall.spawner("ana").get_options_form() == ""
            await hall.user("ana").spawn("", options={})
            assert hall.environment()["CUDA_VISIBLE_DEVICES"] == "none"
            await hall.user("ana").stop("")

            hall.config.Spawner.options_form = '<input name="image">'
            hall.restarted()
            form = await hall.spawner("ana", server="other").get_options_form()
            told = "Starts at once" if profiles == (NONE,) else "No GPU is offered to you here"
            assert form.index(told) < form.index('<input name="image">')

    play(story)


def test_profiles_may_be_written_as_dicts_and_a_slip_is_named(tmp_runtime):
    """As in the hub's configuration."""
    profiles = [{"name": "a", "devices": 1}, ONE, TWO, NONE]
    hall = Hall(tmp_runtime.runtime_dir, with_gpus("simple"), "http://127.0.0.1:1", gpu_profiles=profiles)
    assert [it.name for it in hall.spawner("ana").gpu_profiles] == ["a", "one", "two", "none"]

    hall.config.GpuSpawner.gpu_profiles = [{"name": "a", "device": 1}]
    with pytest.raises(Exception, match="gpu_profiles: Object contains unknown field `device`"):
        hall.spawner("bob")


@pytest.mark.parametrize("given", ["reserve", "reserve!user", "admin"])
def test_who_has_no_role_is_offered_no_gpu_and_gets_none(tmp_runtime, given):
    """The hub asks for its users by a token of its own, and that says nothing of what each of them may."""

    async def story():
        define_custom_scopes(custom_scopes())
        async with a_hall(tmp_runtime.runtime_dir, gpu_scope="custom:jupyter-gpu:reserve") as (hall, serving):
            roles.create_role(hall.db, {"name": "lab", "scopes": [f"custom:jupyter-gpu:{given}"]})
            spawner = hall.spawner("ana", gpu_profile="one")
            assert await spawner.get_options_form() == ""
            with pytest.raises(web.HTTPError) as caught:
                await hall.user("ana").spawn("", options={"gpu_profile": "one"})
            assert (caught.value.status_code, caught.value.reason) == (403, "gpu_not_allowed")
            for options in ({}, {"gpu_profile": "none"}):
                await hall.user("ana").spawn("", options=options)
                assert hall.environment()["CUDA_VISIBLE_DEVICES"] == "none"
                await hall.user("ana").stop("")
            assert await reservations(serving, "ana", ended=True) == []

            roles.grant_role(hall.db, hall.user("ana").orm_user, "lab")
            assert "One GPU" in await spawner.get_options_form()
            await hall.user("ana").spawn("", options={"gpu_profile": "one"})
            assert hall.environment()["CUDA_VISIBLE_DEVICES"].startswith("GPU-")

    play(story)


def test_a_server_of_who_has_no_role_is_told_to_open_no_gpu(tmp_runtime):
    """Its kernels cannot reserve either, whatever the profile allows: so no node is left open for them."""

    async def story():
        async with a_hall(tmp_runtime.runtime_dir, gpu_scope="custom:jupyter-gpu:reserve") as (hall, _):
            spawner = hall.spawner("ana")
            assert await spawner._gpu_take(Choice(NONE)) == Share(kernels_reserve=False)

    play(story)
