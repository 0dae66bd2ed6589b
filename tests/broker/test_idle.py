"""Idle reservations: warned of after a while, then given back, unless kept; a cell that computes is never idle."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import msgspec
import pytest

from jupyter_gpu.broker.alerts import Alerts
from jupyter_gpu.broker.idle import BLIND_SECONDS, Idle
from jupyter_gpu.broker.watch import Watch
from jupyter_gpu.core.decide import decide
from jupyter_gpu.core.lifecycle import evolve
from jupyter_gpu.model import (
    Caller,
    Command,
    EvictionReason,
    Holder,
    Move,
    Policy,
    Reading,
    Sample,
    Scope,
    SeeDevices,
    SeeIdle,
    State,
    World,
)
from tests.conftest import Places

from .api_ground import an_api, job, play
from .ground import Clock, FakeTelemetry, a_job, a_loop, a_reservation, devices

GRACE = Caller(name="grace", account="grace", scopes=frozenset({Scope.READ}))
OPER = Caller(name="oper", account="oper", scopes=frozenset({Scope.OPERATE}))
KERNEL = Holder(kind="kernel", name="k1")
POLICY = Policy(idle_warn_seconds=1200, idle_release_seconds=600)


@dataclasses.dataclass
class Scene:
    """A world with two devices, and what looks at it once a second."""

    world: World
    clock: Clock = dataclasses.field(default_factory=Clock)
    busy: bool | None = False
    idle_since: float | None = None
    percent: int | None = 0
    due: list[SeeIdle] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self.alerts = Alerts(self.clock)
        self.idle = Idle(self.alerts)
        self.do(SeeDevices(pool="local", devices=devices(2)))

    def do(self, command: Command) -> int:
        """Decide it; the newest workload."""
        for event in decide(self.world, command, self.clock.now):
            evolve(self.world, event)
        return self.world.last_id

    def reserve(self, kind: str = "kernel", count: int = 1) -> int:
        """A reservation of grace's that is held."""
        return self.do(a_reservation(holder=Holder(kind=kind, name="k1"), devices=count))

    def pass_(self, seconds: float, *, step: float = 10.0) -> None:
        """Let time pass: the holder says each 10 s how it stands, and samples come."""
        end = self.clock.now + seconds
        while self.clock.now < end:
            self.clock.now = min(end, self.clock.now + step)
            for uuid in self.world.devices:
                percent = self.percent if uuid == "GPU-0" else 0
                self.world.readings[uuid] = Reading(uuid=uuid, at=self.clock.now, utilisation_percent=percent)
            for id_ in self.world.live:
                holder = self.world.workloads[id_].holder
                if holder is not None:
                    words = {"busy": self.busy, "idle_since": self.idle_since}
                    self.idle.hear(id_, holder.number, now=self.clock.now, **words)
            self.due = self.idle.look(self.world, self.clock.now)

    def texts(self) -> list[str]:
        """What the owner is told."""
        return [view.text for view in self.alerts.views(GRACE)]


@pytest.fixture
def scene() -> Scene:
    """Policy as it ships."""
    return Scene(World(POLICY))


# -- the warning and the end


def test_an_idle_kernel_is_warned_of_with_the_instant_and_the_remedy_and_then_given_back(scene: Scene) -> None:
    """Not a moment earlier than the policy says, and only its owner is told."""
    held = scene.reserve()
    scene.pass_(1200)
    assert (scene.texts(), scene.idle.told(held)) == ([], "")
    scene.pass_(10)
    told = scene.idle.told(held)
    assert told.startswith("It has been idle since ")
    assert f"unless you keep it: `jupyter gpu keep {held}`." in told
    assert scene.texts() == [f"{scene.world.workloads[held].title}: {told}"]
    assert scene.alerts.views(OPER) == ()
    scene.pass_(590)
    assert scene.due == []
    scene.pass_(10)
    assert [it.workload for it in scene.due] == [held]
    scene.do(scene.due[0])
    assert scene.world.workloads[held].eviction is EvictionReason.IDLE
    scene.pass_(10)
    assert (scene.due, scene.texts()) == ([], [])


def test_idle_time_begins_at_the_end_of_a_cell(scene: Scene) -> None:
    """Not at its start, and no output has to tell that it computes: jupyter/notebook#3896."""
    held = scene.reserve()
    scene.busy = True
    scene.pass_(7200)
    assert (scene.texts(), scene.due) == ([], [])
    # Between two words of it: nobody has heard it busy to its very end.
    scene.busy, scene.idle_since = False, scene.clock.now + 8
    scene.pass_(1200)
    assert scene.idle.told(held) == ""
    scene.pass_(10)
    assert scene.idle.told(held)


def test_short_cells_between_two_words_are_use(scene: Scene) -> None:
    """The holder is never heard busy, but says since when it is idle."""
    scene.reserve()
    for _ in range(8):
        scene.idle_since = scene.clock.now - 1
        scene.pass_(600)
    assert scene.texts() == []


def test_a_holder_that_computes_again_is_no_longer_warned_and_not_released(scene: Scene) -> None:
    """Also when it says so only after the time was over: the last word before it is no proof."""
    held = scene.reserve()
    scene.pass_(1210 + 590)
    assert scene.idle.told(held)
    scene.clock.now += 12
    assert scene.idle.look(scene.world, scene.clock.now) == []
    scene.busy = True
    scene.pass_(10)
    assert (scene.due, scene.texts(), scene.idle.told(held)) == ([], [], "")


def test_to_keep_it_restarts_the_clock(scene: Scene) -> None:
    """And who is idle again afterwards is told again."""
    held = scene.reserve()
    scene.pass_(1500)
    assert scene.texts()
    scene.idle.keep(held, scene.clock.now)
    assert (scene.texts(), scene.idle.told(held)) == ([], "")
    scene.pass_(1190)
    assert scene.texts() == []
    scene.pass_(10)
    assert [view.since for view in scene.alerts.views(GRACE)] == [scene.clock.now]
    assert scene.due == []


# -- what is no idleness


@pytest.mark.parametrize("percent", [3, 100, None])
def test_a_device_that_works_or_cannot_be_read_is_not_idle(scene: Scene, percent: int | None) -> None:
    """Any one of those that it holds."""
    scene.percent = percent
    held = scene.reserve(count=2)
    scene.pass_(4000)
    assert scene.texts() == []
    scene.percent = 2
    scene.pass_(1200)
    assert scene.idle.told(held)


@pytest.mark.parametrize("kind", ["shell", "command"])
def test_shells_and_commands_are_never_released(scene: Scene, kind: str) -> None:
    """What they do beside the GPU is not seen, whatever they say."""
    scene.reserve(kind)
    scene.pass_(8000)
    assert (scene.texts(), scene.due) == ([], [])


@pytest.mark.parametrize("kind", ["kernel", "server"])
def test_who_says_nothing_of_it_is_not_released(scene: Scene, kind: str) -> None:
    """A holder that cannot say whether it computes may compute."""
    scene.busy = None
    scene.reserve(kind)
    scene.pass_(8000)
    assert (scene.texts(), scene.due) == ([], [])


def test_an_old_word_is_none(scene: Scene) -> None:
    """A server that renews no more says nothing of its kernels, and what its kernel did before does not count."""
    held = scene.reserve()
    scene.pass_(1300)
    assert scene.idle.told(held)
    scene.busy = None
    scene.pass_(100)
    assert scene.idle.told(held) == ""
    scene.busy = False
    scene.pass_(10)
    assert scene.idle.told(held) == ""  # it may have computed meanwhile
    scene.pass_(1200)
    assert scene.idle.told(held)


def test_the_word_of_a_holder_before_says_nothing_of_the_next(scene: Scene) -> None:
    """A kernel that was restarted is another process."""
    held = scene.reserve()
    scene.pass_(1300)
    scene.do(Move(workload=held, by="grace", holder=Holder(kind="kernel", name="k1")))
    assert scene.idle.look(scene.world, scene.clock.now) == []
    assert scene.texts() == []


def test_none_never_warns_and_a_stricter_policy_warns_before_it_takes(scene: Scene) -> None:
    """Who was idle for long under the old one has the whole time after the warning."""
    scene.world.policy = Policy(idle_warn_seconds=None)
    held = scene.reserve()
    scene.pass_(6000)
    assert scene.texts() == []
    scene.world.policy = POLICY
    scene.pass_(590)
    assert scene.idle.told(held)
    assert scene.due == []
    scene.pass_(20)
    assert [it.workload for it in scene.due] == [held]


def test_jobs_are_none_of_this(scene: Scene) -> None:
    """A job ends when it ends."""
    scene.do(a_job())
    scene.pass_(8000)
    assert scene.due == []


# -- what is forgotten


def test_after_a_time_without_looks_the_clock_begins_anew(scene: Scene) -> None:
    """The machine slept, or its devices could not be read: nobody knows what was done."""
    held = scene.reserve()
    scene.pass_(1300)
    assert scene.idle.told(held)
    scene.clock.now += BLIND_SECONDS + 1
    scene.pass_(1200)
    assert scene.idle.told(held) == ""
    scene.pass_(20)
    assert scene.idle.told(held)


def test_a_broker_that_starts_begins_anew(scene: Scene) -> None:
    """Whatever the holder says of the time before: nobody was there to warn it."""
    held = scene.reserve()
    scene.pass_(1300)
    scene.idle_since = scene.clock.now - 1300
    scene.idle = Idle(scene.alerts)
    scene.pass_(1200)
    assert scene.idle.told(held) == ""
    scene.pass_(20)
    assert scene.idle.told(held)


# -- in the broker


def test_the_watch_warns_by_renewals_and_has_it_evicted_with_the_usual_grace(tmp_path: Path) -> None:
    """Commands are decided like all others; given back, it ended as released."""
    clock = Clock()
    policy = msgspec.structs.replace(POLICY, idle_warn_seconds=20, idle_release_seconds=10)

    async def story() -> None:
        async with a_loop(tmp_path, policy=policy, clock=clock) as (loop, _):
            telemetry = FakeTelemetry(inventory_is=devices(1), shows={"utilisation_percent": 0})
            watch = Watch(loop, telemetry)  # type: ignore[arg-type]
            await watch.start()
            held = (await loop.handle(a_reservation(holder=KERNEL))).workload or 0
            told = []
            for _ in range(36):
                told.append(loop.renew(held, 1, busy=False, idle_since=clock.now - 500).told)
                watch.on_sample(Sample(at=clock.now, readings=(telemetry.reading("GPU-0"),)))
                while watch._tasks:
                    await asyncio.sleep(0)
                clock.now += 1
            assert told[:21] == [""] * 21
            assert all("unless you keep it" in text for text in told[21:31])
            it = loop.world.workloads[held]
            assert (it.state, it.eviction) == (State.YIELDING, EvictionReason.IDLE)
            assert it.yield_by == pytest.approx(clock.now - 6 + policy.reservation_grace_seconds, abs=1)
            notice = loop.renew(held, 1).notice
            assert notice is not None
            assert notice.reason == "idle"
            clock.now += 100
            await watch.close()

    asyncio.run(story())


def test_its_owner_and_operators_may_keep_it_and_what_cannot_be_kept_is_refused(tmp_runtime: Places) -> None:
    """It is no event, and the answer is the workload."""
    clock = Clock()

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir, count=1, clock=clock) as served:
            ada, grace, oper = (served.as_(name) for name in ("ada", "grace", "oper"))
            body = {"kind": "reservation", "holder": {"kind": "kernel", "name": "k1"}}
            assert (await ada.post("/workloads", json=body)).status_code == 201
            waiting = (await ada.post("/workloads", json=body)).json()["id"]
            idle, before = served.loop.idle, served.loop.world.revision
            renewal = {"holder_number": 1, "busy": False, "idle_since": clock.now}
            assert (await ada.post("/workloads/1/renew", json=renewal)).status_code == 200
            for caller in (ada, oper):
                clock.now += 60
                answer = await caller.post("/workloads/1/keep")
                assert (answer.status_code, answer.json()["id"], answer.json()["state"]) == (200, 1, "active")
                assert idle._used_at[1] == clock.now
            assert served.loop.world.revision == before
            assert (await grace.post("/workloads/1/keep")).status_code == 403
            queued = (await ada.post("/workloads", json=job())).json()["id"]
            for number, why in ((waiting, "waits in line"), (queued, "is a job")):
                refused = await ada.post(f"/workloads/{number}/keep")
                assert (refused.status_code, why in refused.json()["message"]) == (409, True)
            await ada.post("/workloads/1/release", json={})
            assert (await ada.post("/workloads/1/keep")).status_code == 409

    play(story)
