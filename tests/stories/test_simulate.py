"""What if: the past of a real broker, and small traces whose replay can be done by hand, under rules of an admin's."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu.model import Ask, JobSpec, Kind, PastJob, SubmitBody

from .scene import Broker, a_broker, until

pytestmark = [pytest.mark.story, pytest.mark.timeout(180)]

COLUMNS = "job_id,user,team_or_vc,submit_s,gpus,duration_s,queue\n"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A lab of two GPUs."""
    with a_broker(tmp_path_factory.mktemp("lab"), devices=2, policy={}) as it:
        yield it


def simulated(broker: Broker, *words: str) -> dict[tuple[str, int], dict[str, Any]]:
    """The runs of `jupyter gpu simulate`, by policy and number of GPUs."""
    view = json.loads(broker.cli("simulate", *words, "--json"))
    return {(run["policy"], run["devices"]): run for run in view["runs"]}


def waits(run: dict[str, Any]) -> tuple[float, ...]:
    """Mean, longest, and the time from the first submission to the last end."""
    return run["mean_wait_seconds"], run["longest_wait_seconds"], run["length_seconds"]


def first_come_first_served(past: tuple[PastJob, ...], devices: int) -> tuple[float, ...]:
    """The mean and the longest wait and the time of all, by hand: each wants one GPU, and gets what is free first."""
    free = [0] * devices
    found = []
    for it in sorted(past, key=lambda it: it.submitted_at):
        submitted, ran = round(it.submitted_at), round(it.duration_seconds)
        gpu = free.index(min(free))
        begin = max(submitted, free[gpu])
        free[gpu] = begin + ran
        found.append(begin - submitted)
    first = min(round(it.submitted_at) for it in past)
    return sum(found) / len(found), max(found), max(free) - first


def test_the_lab_s_own_past_with_fewer_gpus(broker: Broker, tmp_path: Path) -> None:
    """Three jobs that met at two GPUs, as they would have fared with one and with two: to the second, as by hand."""
    spec = JobSpec(argv=("sh", "-c", "while [ ! -e go ]; do sleep 0.05; done"), folder=str(tmp_path))
    jobs = [broker.client.submit(SubmitBody(kind=Kind.JOB, ask=Ask(), spec=spec)).id for _ in range(3)]
    until(lambda: sum(bool(broker.client.workload(id_).started_at) for id_ in jobs) == 2, "two of them run")
    begun = broker.client.status().at
    until(lambda: broker.client.status().at > begun + 2, "they have run for whole seconds")
    (tmp_path / "go").touch()
    for id_ in jobs:
        broker.client.wait(id_, until="ended", timeout_seconds=60)
    past = broker.client.past()
    assert [it.id for it in past] == jobs

    kept = tmp_path / "past.csv"
    words = ("--policies", "fifo", "--devices", "1,2", "--save", str(kept))
    runs = simulated(broker, "history", *words)

    for devices in (1, 2):
        run = runs["fifo", devices]
        assert run["jobs"] == 3
        assert waits(run) == pytest.approx(first_come_first_served(past, devices))
        held = sum(round(it.duration_seconds) for it in past)
        assert run["utilisation"] == pytest.approx(held / (devices * run["length_seconds"]))
    assert runs["fifo", 1]["mean_wait_seconds"] > runs["fifo", 2]["mean_wait_seconds"]
    assert simulated(broker, str(kept), "--policies", "fifo", "--devices", "1,2") == runs, "as it was kept"
    ours = broker.cli("simulate", "history", "--devices", "1,2")
    assert [line.split()[0] for line in ours.splitlines() if line.endswith("ours")] == ["1", "2"]


def test_what_a_quota_would_have_done(broker: Broker, tmp_path: Path) -> None:
    """By hand: whom the rule keeps out is counted and said, the others wait less; and the picture is drawn."""
    trace, rule, picture = (tmp_path / name for name in ("trace.csv", "rule.py", "waits.svg"))
    trace.write_text(COLUMNS + "1,ada,v,0,2,100,\n2,bob,w,10,2,50,\n3,ada,v,20,1,10,\n")
    rule.write_text("c.GpuBroker.policy = {'quotas': [{'user': 'bob', 'devices': 1}]}\n")
    words = ("--nodes", "1x2", "--policies", "fifo", "--policy", str(rule), "--picture", str(picture))
    runs = simulated(broker, str(trace), *words)

    # 0-100 the first, 100-150 the second, 150-160 the third: they wait for 0, 90 and 130 seconds.
    fifo = runs["fifo", 2]
    assert waits(fifo) == pytest.approx((220 / 3, 130, 160))
    assert fifo["utilisation"] == pytest.approx((2 * 100 + 2 * 50 + 10) / (2 * 160))
    assert (fifo["worst_team"], fifo["worst_stretch"]) == ("w", pytest.approx(140 / 50))
    shares = 110 / 240, 50 / 140
    assert fifo["jain"] == pytest.approx(sum(shares) ** 2 / (2 * sum(it * it for it in shares)))
    # Without the second the third begins at 100, and ends at 110.
    ruled = runs["rule.py", 2]
    assert waits(ruled) == (40, 80, 110)
    assert (ruled["jobs"], ruled["not_run"]) == (2, {"2 GPUs are more than 1 GPU at once, the quota of user bob": 1})
    assert ruled["utilisation"] == pytest.approx((2 * 100 + 10) / (2 * 110))
    assert ET.parse(picture).getroot().tag.endswith("svg")  # noqa: S314 - we have just drawn it


def test_what_trainings_that_never_yield_would_have_cost(broker: Broker, tmp_path: Path) -> None:
    """By hand: one that yields loses what it has not saved and what coming back costs; else the person waits."""
    trace, rule = tmp_path / "trace.csv", tmp_path / "firm.json"
    trace.write_text(COLUMNS + "1,ada,v,0,1,3600,training\n2,bob,w,1500,1,600,interactive\n")
    queues = [
        {"name": "interactive", "priority": 100, "kinds": ["reservation"]},
        {"name": "training", "priority": 50, "kinds": ["job"]},
    ]
    rule.write_text(json.dumps({"queues": queues}))
    words = (str(trace), "--nodes", "1", "--policies", "ours", "--policy", str(rule))
    runs = simulated(broker, *words)

    # It saved at 1200, yields from 1500 to 2100, starts for 60 seconds and has 2400 left: 960 seconds too late.
    ours = runs["ours", 1]
    assert waits(ours) == (480, 960, 4560)
    assert (ours["preemptions"], ours["lost_gpu_hours"]) == (1, pytest.approx(360 / 3600))
    firm = runs["firm.json", 1]
    assert waits(firm) == (1050, 2100, 4200)
    assert (firm["preemptions"], firm["lost_gpu_hours"]) == (0, 0)
    # One that never saves begins anew at 2100: 60 seconds to start and all its 3600 again.
    unsaved = simulated(broker, *words, "--checkpoint-every", "0s")["ours", 1]
    assert unsaved["lost_gpu_hours"] == pytest.approx(1560 / 3600)
    assert waits(unsaved) == (1080, 2160, 5760)
