"""Shares and quotas with a real broker: a share comes back, hours are spent, a quota is lowered under what runs."""

from __future__ import annotations

import getpass
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_gpu.model import Ask, JobSpec, Kind, State, SubmitBody, WorkloadView

from .scene import Broker, a_broker, this_process, until

pytestmark = [pytest.mark.story, pytest.mark.timeout(180)]

ME = getpass.getuser()
QUEUES: list[dict[str, object]] = [
    {"name": "interactive", "priority": 100, "kinds": ["reservation"], "may_borrow": False},
    {"name": "training", "priority": 50, "kinds": ["job"], "preemptible": True, "protected_seconds": 0},
]
#: It leaves at its notice, as a training that has saved.
YIELDS = ("sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done")


def submitted(broker: Broker, folder: Path, team: str | None = None) -> WorkloadView:
    """A job that runs until it is told to leave."""
    spec = JobSpec(argv=YIELDS, folder=str(folder))
    return broker.client.submit(SubmitBody(kind=Kind.JOB, ask=Ask(), spec=spec, team=team))


def running(broker: Broker, folder: Path, team: str | None = None) -> int:
    """The same, once it has started."""
    id_ = submitted(broker, folder, team).id
    until(lambda: broker.client.workload(id_).started_at is not None, f"job {id_} has started")
    return id_


def state(broker: Broker, id_: int) -> State:
    """Where it stands."""
    return broker.client.workload(id_).state


def test_a_team_gets_its_share_back(tmp_path: Path) -> None:
    """One of two that another team runs on it makes room, says for whom, and does not take it back."""
    policy: dict[str, object] = {
        "queues": QUEUES,
        "teams": {"speech": [ME], "vision": [ME]},
        "quotas": [{"team": "speech", "share_devices": 1}, {"team": "vision", "share_devices": 1}],
    }
    with a_broker(tmp_path / "lab", devices=2, policy=policy) as broker:
        borrowers = [running(broker, tmp_path, "speech") for _ in range(2)]

        mine = running(broker, tmp_path, "vision")

        states = sorted(str(state(broker, id_)) for id_ in borrowers)
        assert states == ["active", "queued"]
        (moved,) = [id_ for id_ in borrowers if state(broker, id_) is State.QUEUED]
        evicted = next(event for event in broker.client.events(moved) if event.event == "evicted")
        assert f"makes room for job {mine}" in evicted.detail
        assert f"for {mine}" in broker.cli("show", str(moved))
        assert "guaranteed to your team vision" in broker.cli("quota")


def test_hours_that_are_spent_say_when_there_are_more(tmp_path: Path) -> None:
    """A reservation is charged whole; who waits for the window is told until when, and starts once some come back."""
    policy: dict[str, object] = {"queues": QUEUES, "quotas": [{"user": "*", "gpu_hours": 1, "window_seconds": "1d"}]}
    with a_broker(tmp_path / "lab", devices=2, policy=policy) as broker:
        ask = Ask(duration_seconds=3600)
        held = broker.client.submit(SubmitBody(kind=Kind.RESERVATION, ask=ask, holder=this_process()))
        assert held.state is State.ACTIVE
        waits = submitted(broker, tmp_path)
        assert (waits.state, waits.waiting) == (State.QUEUED, "budget")

        assert "Some are available again" in broker.cli("show", str(waits.id))
        assert re.search(r"1 of 1 GPU-hour in 1d\s+none until ", broker.cli("quota"))
        (bound,) = broker.client.status().quotas
        assert bound.available_again_at is not None

        broker.client.release(held.id)
        until(lambda: state(broker, waits.id) is State.ACTIVE, "what was not used comes back")


def test_a_quota_that_is_lowered_evicts_nobody_and_says_so_before(tmp_path: Path) -> None:
    """The check says whom it concerns, the reload tells it too, and what runs goes on; a slip has its line."""
    with a_broker(tmp_path / "lab", devices=3, policy={"queues": QUEUES}) as broker:
        jobs = [running(broker, tmp_path) for _ in range(2)]
        file = Path(broker.environment["JUPYTER_CONFIG_PATH"]) / "jupyter_gpu_config.py"
        lower = {"queues": QUEUES, "quotas": [{"user": "*", "devices": 1}]}
        file.write_text(f"c.GpuBroker.policy = {lower!r}\nc.GpuBroker.simulated_devices = 3\n")

        said = broker.cli("policy", "check", str(file))
        for job in jobs:
            assert f"Job {job} of {ME} is beyond a quota then and counts as borrowed: evicted nobody now" in said
        assert f"Each user: GPUs at once unbounded, then 1 (less); concerns {ME}." in said
        before = broker.client.broker().policy_digest

        os.kill(broker.pid, signal.SIGHUP)
        until(lambda: broker.client.broker().policy_digest != before, "the policy is loaded")
        assert [state(broker, job) for job in jobs] == [State.ACTIVE, State.ACTIVE]
        alerts = broker.client.status().alerts
        assert any("affects work that is here" in alert.text for alert in alerts)
        assert submitted(broker, tmp_path).waiting == "quota"
        assert json.loads(broker.cli("policy", "show", "--json"))["policy"]["quotas"] == [{"user": "*", "devices": 1}]
        assert "nothing changes" in broker.cli("policy", "check", str(file))

        file.write_text(f"c.GpuBroker.policy = {lower!r}\nc.GpuBroker.policy['failures'] = -1\n")
        argv = [sys.executable, "-m", "jupyter_gpu.cli", "policy", "check", str(file)]
        done = subprocess.run(argv, env=broker.environment, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 2
        assert "jupyter_gpu_config.py, line 2: failures: -1 must be 0 or more" in done.stderr
