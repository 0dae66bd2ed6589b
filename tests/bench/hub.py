"""A hub with 200 users and their servers: what the hook adds to a start, what the service costs, what it asks the hub.

The service is a process of its own behind its hub's gate; 64 simulated GPUs, a fifth of one for each server. See
`hub_ground` for what is real in it.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from jupyter_gpu.broker.hub.auth import KEEPS_SECONDS
from jupyter_gpu.model import Kind, State
from tests.hub.spawn_ground import Hall

from .ground import median, row
from .hub_ground import NAMES, OPERATOR, USERS, Lab, a_lab
from .hub_listeners import listening
from .listeners import more_files

#: So many spawns with the hook and without, in turns.
ROUNDS = 40
REST_SECONDS = 60.0
#: A hub lets no more start at a time.
AT_ONCE = 100
#: As a Jupyter server renews its lease.
RENEW_SECONDS = 20.0
#: As a hub looks whether a server lives.
POLL_SECONDS = 30.0
CHOSEN = {"gpu_profile": "fifth"}


def run() -> list[dict[str, Any]]:
    """All on one service, from the first start to the last stop."""
    for name in (
        "alembic.runtime.migration",
        "jupyterhub",
        "tornado.application",
    ):  # each user and each start would be told of
        logging.getLogger(name).setLevel(logging.ERROR)
    with more_files(4096), tempfile.TemporaryDirectory(prefix="jg-bench-") as folder:
        return asyncio.run(_run(Path(folder)))


async def _run(folder: Path) -> list[dict[str, Any]]:
    async with a_lab(folder) as lab:
        empty = lab.resident()
        rows = [await _spawning(lab), await _morning(lab), await _pages(lab), await _polls(lab)]
        rows += [*await _resting(lab, empty), *await listening(lab)]
        await _evening(lab)
        return rows


# -- starts


async def _spawning(lab: Lab) -> dict[str, Any]:
    times: dict[str, list[float]] = {"with": [], "without": []}
    await _one(lab, lab.hall, NAMES[0])  # what is imported once
    await _one(lab, lab.bare, NAMES[0])
    for name in NAMES[:ROUNDS]:
        times["with"].append(await _one(lab, lab.hall, name))
        times["without"].append(await _one(lab, lab.bare, name))
    ours, plain = sorted(times["with"]), sorted(times["without"])
    slowest = f"99 %: {_late(plain):.3g}, {_late(ours):.3g}"
    added = [a - b for a, b in zip(times["with"], times["without"], strict=True)]
    return row(
        "what the hook adds to the start of a server, with its lease",
        median(added),
        "ms",
        reach="under 50 (median)",
        beside=f"without {median(plain):.3g} ms, with {median(ours):.3g} ms; {slowest}",
    )


async def _one(lab: Lab, hall: Hall, name: str) -> float:
    begun = time.perf_counter()
    await _start(lab, hall, name)
    taken = (time.perf_counter() - begun) * 1000
    await _stop(lab, hall, name)
    return taken


async def _start(lab: Lab, hall: Hall, name: str) -> float:
    begun = time.perf_counter()
    if hall is lab.hall:
        lab.hub.people[name].servers[""] = "spawn"
    await hall.user(name).spawn("", options=CHOSEN if hall is lab.hall else {})
    if hall is lab.hall:
        lab.hub.people[name].servers[""] = None
    return time.perf_counter() - begun


async def _stop(lab: Lab, hall: Hall, name: str) -> None:
    await hall.user(name).stop()
    if hall is lab.hall:
        lab.hub.people[name].servers.pop("")


async def _morning(lab: Lab) -> dict[str, Any]:
    """Everybody comes at once; first where there is no hook."""
    bare = await _all(lab, lab.bare)
    await _together(_stop(lab, lab.bare, name) for name in NAMES)
    cpu = lab.cpu_seconds()
    ours = await _all(lab, lab.hall)
    cpu = lab.cpu_seconds() - cpu
    return row(
        f"{USERS} starts, {AT_ONCE} at a time, until the last runs",
        ours.seconds,
        "s",
        beside=f"without the hook {bare.seconds:.3g} s; a start: median {median(ours.each):.3g} s, slowest "
        f"{max(ours.each):.3g} s, without {median(bare.each):.3g} and {max(bare.each):.3g} s; the service used "
        f"{cpu:.2g} s",
    )


class Together(NamedTuple):
    """What all of something took, and each of it."""

    seconds: float
    each: list[float]


async def _all(lab: Lab, hall: Hall) -> Together:
    begun = time.perf_counter()
    slots = asyncio.Semaphore(AT_ONCE)

    async def in_turn(name: str) -> float:
        async with slots:
            return await _start(lab, hall, name)

    each = await _together(in_turn(name) for name in NAMES)
    return Together(time.perf_counter() - begun, each)


async def _together(work: Iterable[Awaitable[Any]]) -> list[Any]:
    return list(await asyncio.gather(*work))


async def _pages(lab: Lab) -> dict[str, Any]:
    """Everybody opens the page of choices; all GPUs are held in parts, so there is much to say."""
    cpu, begun = lab.cpu_seconds(), time.process_time()
    forms = [await lab.hall.user(name).spawners[""].get_options_form() for name in NAMES]
    spent, ours = lab.cpu_seconds() - cpu, time.process_time() - begun
    assert all("free now" in form for form in forms)
    return row(
        f"a page of choices, at the service ({USERS} servers run)",
        spent / USERS * 1000,
        "ms of CPU",
        beside=f"at the hub {ours / USERS * 1000:.2g} ms",
    )


# -- rest


async def _resting(lab: Lab, empty: float) -> list[dict[str, Any]]:
    """Servers renew, the hub polls them, and the service looks at the hub; nobody asks for anything."""
    numbers = await _numbers(lab)
    # The hub has been asked about all of them.
    await _together(_renew_once(lab, name, *numbers[name]) for name in NAMES)
    work = [asyncio.create_task(_renew(lab, n, name, *numbers[name])) for n, name in enumerate(NAMES)]
    work += [asyncio.create_task(_poll_for_ever(lab, n, name)) for n, name in enumerate(NAMES)]
    lab.hub.asked.clear()
    cpu, begun = lab.cpu_seconds(), time.perf_counter()
    await asyncio.sleep(REST_SECONDS)
    seconds = time.perf_counter() - begun
    share = (lab.cpu_seconds() - cpu) / seconds
    asked = Counter(_kind(it) for it in lab.hub.asked)
    for task in work:
        task.cancel()
    await asyncio.gather(*work, return_exceptions=True)
    asked["whose a token is"] += round(USERS * seconds / KEEPS_SECONDS)  # none of which was due in this minute
    per_minute = asked.total() / seconds * 60
    kinds = ", ".join(f"{count / seconds * 60:.0f} {kind}" for kind, count in asked.most_common())
    return [
        row(
            f"the service at rest, {USERS} servers that renew", share * 100, "% of a core", reach="under 10",
            beside=f"{USERS * 60 / RENEW_SECONDS + USERS * 60 / POLL_SECONDS:.0f} requests a minute",
        ),
        row(
            f"what the service asks its hub, {USERS} servers that compute", per_minute, "requests a minute",
            reach="under 2 for each", beside=kinds,
        ),
        row(f"memory of the service with {USERS} servers", lab.resident(), "MiB", beside=f"empty: {empty:.0f} MiB"),
    ]  # fmt: skip


def _kind(asked: str) -> str:
    """Without whom it is about."""
    parts = asked.split("/")
    return "activity" if parts[-1] == "activity" else "whose a token is" if parts[-1] == "user" else "lists of servers"


async def _numbers(lab: Lab) -> dict[str, tuple[int, int]]:
    """Who holds which reservation, as which holder."""
    async with lab.client(OPERATOR) as client:
        held = [it async for it in client.workloads(kind=Kind.RESERVATION, state=State.ACTIVE)]
    found = {it.owner: (it.id, it.holder.number) for it in held if it.owner and it.holder}
    assert len(found) == USERS, f"{len(found)} of {USERS} hold something"
    return found


async def _renew_once(lab: Lab, name: str, workload: int, number: int) -> None:
    async with lab.client(name) as client:
        await client.renew(workload, number, busy=True)


async def _renew(lab: Lab, place: int, name: str, workload: int, number: int) -> None:
    """As a server does which was started with GPUs and computes."""
    await asyncio.sleep(RENEW_SECONDS * place / USERS)
    async with lab.client(name) as client:
        while True:
            begun = time.monotonic()
            await client.renew(workload, number, busy=True)
            await asyncio.sleep(begun + RENEW_SECONDS - time.monotonic())


async def _polls(lab: Lab) -> dict[str, Any]:
    """The hub's CPU time for one look at each."""
    begun = time.process_time()
    for name in NAMES:
        await _poll(lab, name)
    spent = time.process_time() - begun
    return row(
        "a look of the hub whether a server lives, with the hook",
        spent / USERS * 1000,
        "ms of CPU",
        beside=f"{spent / POLL_SECONDS * 100:.2g} % of a core for {USERS}, each polled every {POLL_SECONDS:.0f} s",
    )


async def _poll(lab: Lab, name: str) -> None:
    spawner: Any = lab.hall.user(name).spawners[""]
    assert await spawner.poll() is None
    await spawner._gpu_lease.settle()


async def _poll_for_ever(lab: Lab, place: int, name: str) -> None:
    await asyncio.sleep(POLL_SECONDS * place / USERS)
    while True:
        await _poll(lab, name)
        await asyncio.sleep(POLL_SECONDS)


# -- the end


async def _evening(lab: Lab) -> None:
    """All stop, and everything is free."""
    await _together(_stop(lab, lab.hall, name) for name in NAMES)
    async with asyncio.timeout(30), lab.client(OPERATOR) as client:
        while any([it async for it in client.workloads()]):
            await asyncio.sleep(0.1)


def _late(ordered: list[float]) -> float:
    return ordered[int(len(ordered) * 0.99)]
