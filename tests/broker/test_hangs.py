"""Jobs that stand still: told after a while, started anew where a time was stated, and nobody by mistake."""

from __future__ import annotations

import dataclasses

import pytest

from jupyter_gpu.broker.alerts import Alerts
from jupyter_gpu.broker.hangs import GAP_SECONDS, Hangs, Sign
from jupyter_gpu.core.decide import decide
from jupyter_gpu.core.lifecycle import evolve
from jupyter_gpu.model import (
    Ask,
    Caller,
    Command,
    EvictionReason,
    Holder,
    JobSpec,
    Kind,
    Policy,
    Reading,
    Scope,
    SeeDevices,
    SeeHung,
    SeeStarted,
    State,
    Submit,
    World,
)

from .ground import Clock, devices

ADA = Caller(name="ada", account="ada", scopes=frozenset({Scope.READ}))
BOB = Caller(name="bob", account="bob", scopes=frozenset({Scope.READ}))
OPER = Caller(name="oper", account="oper", scopes=frozenset({Scope.OPERATE}))


@dataclasses.dataclass
class Scene:
    """A world with two devices, a job of ada's on the first, and what looks at it."""

    policy: Policy = dataclasses.field(default_factory=Policy)
    hang_seconds: int | None = None
    count: int = 1
    percent: int | None = 0
    at_work: bool | None = None
    mark: int = 0
    #: Readings come, and the folder can be read.
    reads: bool = True
    clock: Clock = dataclasses.field(default_factory=Clock)
    due: list[SeeHung] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self.world = World(self.policy)
        self.alerts = Alerts(self.clock)
        self.hangs = Hangs(self.alerts)
        self.do(SeeDevices(pool="local", devices=devices(2)))
        spec = JobSpec(argv=("train",), folder="/", hang_seconds=self.hang_seconds)
        self.job = self.do(Submit(kind=Kind.JOB, owner="ada", ask=Ask(devices=self.count), spec=spec))
        self.start(1)

    def do(self, command: Command) -> int:
        """Decide it; the newest workload."""
        for event in decide(self.world, command, self.clock.now):
            evolve(self.world, event)
        return self.world.last_id

    def start(self, attempt: int) -> None:
        """The mark of its next attempt is seen."""
        self.attempt = attempt
        self.do(SeeStarted(workload=self.job, attempt=attempt, holder=Holder(kind="attempt", name="x", number=attempt)))

    def look(self) -> None:
        """Once, now."""
        if self.reads:
            for uuid in self.world.devices:
                self.world.readings[uuid] = Reading(uuid=uuid, at=self.clock.now, utilisation_percent=self.percent)
        signs = {self.job: Sign(self.attempt, self.mark, self.at_work)}
        self.due += self.hangs.look(self.world, self.clock.now, signs)

    def pass_(self, seconds: float, step: float = 5.0) -> None:
        """Let time pass with a look each few seconds."""
        end = self.clock.now + seconds
        while self.clock.now < end:
            self.clock.now = min(end, self.clock.now + step)
            self.look()

    def told(self, caller: Caller = ADA) -> list[str]:
        """What a caller sees of it."""
        return [it.text for it in self.alerts.views(caller)]


def test_after_half_an_hour_its_owner_and_the_operators_are_told_and_nothing_is_ended():
    """So it is unless somebody states a time; the words say what was seen and what to do."""
    scene = Scene()
    scene.look()
    scene.pass_(1795)
    assert scene.told() == []
    scene.pass_(5)
    (text,) = scene.told()
    assert "it has reported nothing, printed nothing and left its GPUs idle since" in text
    assert "`jupyter gpu log 1` shows its last words, `jupyter gpu cancel 1` ends it" in text
    assert scene.told(OPER) != []
    assert scene.told(BOB) == []
    scene.pass_(20_000)
    assert scene.due == []
    assert len(scene.told()) == 1


def test_a_job_that_states_a_time_is_told_at_half_of_it_and_started_anew_at_its_end():
    """With the sentence, and a grace to save in."""
    scene = Scene(hang_seconds=600)
    scene.look()
    scene.pass_(300)
    (text,) = scene.told()
    assert "It is started anew from its newest checkpoint at" in text
    assert scene.due == []
    scene.pass_(300)
    (hung,) = scene.due
    assert (hung.workload, hung.attempt) == (scene.job, 1)
    assert hung.detail.endswith("(10m)")
    scene.do(hung)
    it = scene.world.workloads[scene.job]
    assert (it.state, it.eviction, it.detail) == (State.YIELDING, EvictionReason.HUNG, hung.detail)
    scene.look()
    assert scene.told() == []


def test_the_jobs_own_time_goes_before_the_admins():
    """Which is for all that state none."""
    admins = Policy(hang_restart_seconds=600)
    stated, silent = Scene(policy=admins, hang_seconds=3600), Scene(policy=admins)
    for scene in (stated, silent):
        scene.look()
        scene.pass_(600)
    assert stated.due == []
    assert len(silent.due) == 1


def test_nobody_is_told_where_the_admin_says_so():
    """None never tells, and never ends."""
    scene = Scene(policy=Policy(hang_warn_seconds=None))
    scene.look()
    scene.pass_(20_000)
    assert (scene.told(), scene.due) == ([], [])


@pytest.mark.parametrize("sign", ["report", "percent", "attempt"])
def test_whatever_shows_that_it_goes_on_begins_the_time_anew(sign):
    """A line of its log or a report, a device at work, another attempt."""
    scene = Scene(hang_seconds=600)
    scene.look()
    scene.pass_(595)
    assert len(scene.told()) == 1
    if sign == "report":
        scene.mark += 1
    elif sign == "attempt":
        scene.attempt += 1
    else:
        scene.percent = 50
    scene.pass_(5)
    scene.percent = 0
    assert scene.told() == []
    scene.pass_(595)
    assert scene.due == []
    scene.pass_(10)
    assert len(scene.due) >= 1


@pytest.mark.parametrize("what", ["n/a", "old", "none"])
def test_a_device_that_cannot_be_read_is_not_idle(what):
    """No reading, one without the number, or one of long ago."""
    scene = Scene(hang_seconds=60)
    if what == "n/a":
        scene.percent = None
    else:
        scene.look() if what == "old" else None
        scene.reads = False
    scene.pass_(3600)
    assert (scene.told(), scene.due) == ([], [])


def test_every_device_that_it_holds_must_be_idle():
    """One of two at work is work."""
    scene = Scene(hang_seconds=60, count=2)
    scene.reads = False
    for _ in range(100):
        scene.clock.now += 5
        for uuid, percent in (("GPU-0", 0), ("GPU-1", 90)):
            scene.world.readings[uuid] = Reading(uuid=uuid, at=scene.clock.now, utilisation_percent=percent)
        scene.look()
    assert (scene.told(), scene.due) == ([], [])


@pytest.mark.parametrize(("at_work", "hangs"), [(True, False), (None, False), (False, True)])
def test_a_job_without_devices_hangs_when_its_processes_use_no_processor_time(at_work, hangs):
    """And where that is not known it does not."""
    scene = Scene(hang_seconds=60, count=0, at_work=at_work)
    scene.look()
    scene.pass_(120)
    assert bool(scene.due) is hangs
    assert all("used no processor time" in it.detail for it in scene.due)


@pytest.mark.parametrize("jump", [GAP_SECONDS + 1, 86_400.0, -86_400.0])
def test_a_machine_that_slept_or_a_clock_that_jumped_makes_nobody_hang(jump):
    """What passed between two looks far apart was not looked at, so it does not count."""
    scene = Scene(hang_seconds=600)
    scene.look()
    scene.pass_(200)
    scene.clock.now += jump
    scene.look()
    assert (scene.told(), scene.due) == ([], [])
    scene.pass_(395)
    assert scene.due == []


def test_a_folder_that_cannot_be_read_begins_the_time_anew():
    """Whether it printed meanwhile is not known."""
    scene = Scene(hang_seconds=60)
    scene.look()
    scene.pass_(55)
    scene.clock.now += 5
    scene.due += scene.hangs.look(scene.world, scene.clock.now, {})
    scene.pass_(55)
    assert scene.due == []


def test_what_stays_still_is_not_told_again_and_again():
    """The words stand as they are, so nobody is sent the same each second."""
    scene = Scene()
    scene.look()
    scene.pass_(1800)
    changes: list[None] = []
    scene.alerts.changed = lambda: changes.append(None)
    scene.pass_(3600)
    assert changes == []
