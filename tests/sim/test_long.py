"""Random lives at length, and a busy week on a virtual clock."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from jupyter_gpu.model import Kind, Policy, QuotaRule, Release, State, WaitingReason
from tests.core.faults import FAULTS
from tests.core.machine import Lives, Wrong
from tests.core.test_promises import Promises
from tests.world import DAY, DONE, HOUR, SAVED, Play, a_job, a_reservation, differences, refolded

pytestmark = [pytest.mark.sim, pytest.mark.slow, pytest.mark.timeout(600)]


LONG = settings(
    max_examples=500,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    # The shortest form of a failure takes longer to find than the failure.
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
#: Until the first failure. Always the same lives: whether a fault is found must not be a matter of luck.
UNTIL_CAUGHT = settings(
    LONG, max_examples=4000, stateful_step_count=30, phases=(Phase.generate,), derandomize=True, database=None
)


@pytest.mark.parametrize("lives", [Lives, Promises], ids=["of all", "of holds and reservations for later"])
def test_many_random_lives_keep_all_promises(lives):
    """The machines of the core, for as long as patience goes."""
    run_state_machine_as_test(lives, settings=LONG)


@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found_by_chance(plant, monkeypatch):
    """What random lives never find may as well not be looked for."""
    plant(monkeypatch)

    with pytest.raises(Wrong):
        run_state_machine_as_test(Lives, settings=UNTIL_CAUGHT)


class Lab(Play):
    """A lab that goes on by itself: jobs start, run as long as they like, save when they must, and leave."""

    def __init__(self, devices: int, policy: Policy, seed: int) -> None:
        super().__init__(devices, policy)
        self.draw = random.Random(seed)
        #: How long a job really runs, whatever its owner said.
        self.needs: dict[int, float] = {}
        self.waited: dict[int, float] = {}

    def minute(self) -> None:
        """One minute of everybody's life."""
        self.later(60)
        for it in list(self.world.holders()):
            if it.state is State.YIELDING:
                self._leave(it.id)
            elif it.kind is Kind.JOB and it.started_at is None:
                self.start(it.id)
                self.waited.setdefault(it.id, self.now - it.submitted_at)
            elif it.kind is Kind.JOB and self.now - it.started_at >= self.needs.setdefault(it.id, HOUR):
                self.exit(it.id, DONE)
            elif it.kind is Kind.RESERVATION and self.draw.random() < 1 / 90:
                self.do(_release(it.id))

    def _leave(self, id_: int) -> None:
        it = self[id_]
        if it.kind is Kind.JOB and it.outcome is None:
            self.needs[id_] = max(60.0, self.needs.get(id_, HOUR) - (self.now - (it.started_at or self.now)))
            self.exit(id_, SAVED)
        elif it.outcome is None:
            self.do(_release(id_))
        else:
            self.clear(id_)


def _release(id_: int):
    return Release(workload=id_, by="op")


@pytest.mark.parametrize("seed", range(3))
def test_a_busy_week(seed):
    """More is asked for than there is: the devices are busy, what is held back for wide work aside, and all has run."""
    teams = {"vision": ("ada", "bob"), "speech": ("cleo", "dan")}
    quotas = (
        QuotaRule(team="vision", share_devices=4),
        QuotaRule(team="speech", share_devices=2),
        QuotaRule(user="*", devices=6),
    )
    lab = Lab(8, Policy(teams=teams, quotas=quotas), seed)
    busy = asked = 0
    for minute in range(3 * 24 * 60):
        if lab.draw.random() < 1 / 20:
            owner = lab.draw.choice(("ada", "bob", "cleo", "dan"))
            devices = lab.draw.choice((1, 1, 1, 2, 4))
            queue = lab.draw.choice((None, None, "deferred"))
            id_ = lab.submit(a_job(owner, devices, lab.draw.choice((None, 6 * HOUR)), queue=queue))
            lab.needs[id_] = lab.draw.choice((0.2, 1, 2, 4)) * HOUR
        if lab.draw.random() < 1 / 120:
            lab.submit(a_reservation(lab.draw.choice(("ada", "cleo", "eve"))))
        lab.minute()
        waits = any(it.waiting is WaitingReason.DEVICES and it.ask.devices == 1 for it in lab.world.queued())
        if minute > 600 and waits:
            asked += 8
            busy += sum(len(it.lease.devices) for it in lab.world.holders())

    assert busy >= 0.8 * asked
    for _ in range(5 * 24 * 60):
        if not lab.world.line and not lab.world.live:
            break
        lab.minute()
    assert lab.world.line == []
    assert differences(lab.world, refolded(lab)) == []


def test_a_wide_training_gets_its_devices_though_narrow_work_never_stops():
    """No workload waits for ever behind later ones."""
    lab = Lab(8, Policy(), 1)
    for _ in range(8):
        lab.needs[lab.submit(a_job("bob", seconds=2 * HOUR))] = HOUR
    wide = lab.submit(a_job("ada", 8, 2 * HOUR))
    for _ in range(3 * 24 * 60):
        while len(lab.world.line) < 6:
            lab.needs[lab.submit(a_job("bob", seconds=2 * HOUR))] = lab.draw.choice((0.5, 1, 1.9)) * HOUR
        lab.minute()
        if lab.state(wide) is not State.QUEUED:
            break

    assert lab.state(wide) is not State.QUEUED
    assert lab.now - lab[wide].submitted_at < 2 * DAY
