"""The story of work that was done twice: the report says of it what the job says, to the person and to the lab."""

import asyncio
from pathlib import Path

import pytest

from jupyter_gpu.cli.text import took
from jupyter_gpu.client import AsyncClient
from jupyter_gpu.model import Ask, JobSpec, Kind, ReportOf, ReportView, SubmitBody, WorkloadView

from .preempt_and_resume import POLICY
from .scene import Broker, a_broker, this_process, until

pytestmark = [pytest.mark.story, pytest.mark.timeout(120)]

#: It saves nothing: what its first attempt did in a second and more, the second has to do again.
UNSAVED = "sleep 1; touch up; test $JUPYTER_GPU_ATTEMPT = 2 || sleep 60"


def submitted(broker: Broker, folder: Path) -> WorkloadView:
    """A job that has worked for a second."""
    folder.mkdir()
    spec = JobSpec(argv=("sh", "-c", UNSAVED), folder=str(folder), environment={"PATH": "/usr/bin:/bin"})
    it = broker.client.submit(SubmitBody(kind=Kind.JOB, name="digits", spec=spec))
    until((folder / "up").exists, "the job works")
    return it


def test_the_report_says_the_repeated_seconds_that_the_job_says(tmp_path: Path) -> None:
    """Two jobs hold both GPUs, a person takes one of them for a moment, and one job begins anew."""
    with a_broker(tmp_path / "b", devices=2, policy=POLICY) as broker:
        client = broker.client
        jobs = [submitted(broker, tmp_path / name) for name in ("one", "other")]
        ask = SubmitBody(kind=Kind.RESERVATION, ask=Ask(devices=1, duration_seconds=300), holder=this_process())
        reservation = client.wait(client.submit(ask).id, until="active", timeout_seconds=60)
        (victim,) = [it for it in map(client.workload, (job.id for job in jobs)) if it.preemptions]
        client.release(reservation.id)
        victim = client.wait(victim.id, until="ended", timeout_seconds=60)
        (left,) = [job for job in jobs if job.id != victim.id]
        client.cancel(left.id)
        client.wait(left.id, until="ended", timeout_seconds=60)

        found = client.report(since_seconds=3600, by="end")
        shown, printed = broker.cli("show", str(victim.id)), broker.cli("report", "--since", "1h")
        own = asyncio.run(asked_for_own(broker))

    assert victim.repeated_seconds >= 1
    assert found.spent.repeated_seconds == pytest.approx(victim.repeated_seconds, abs=0.002)
    assert found.spent.repeated_device_seconds == found.spent.repeated_seconds
    assert 0 < (found.spent.repeated_share or 0) < 1
    assert found.longest_loss is not None
    assert found.longest_loss.workload == victim.id
    assert (found.of, found.job_ends) == (ReportOf.ALL, {"cancelled": 1, "succeeded": 1})
    assert (found.spent.preemptions, found.failures) == (1, {})
    assert 0 < found.device_time.leased_seconds <= found.device_time.there_seconds
    assert f"{took(victim.repeated_seconds)} of work done again" in shown
    assert f"done again    {took(found.spent.repeated_seconds)}: " in printed
    assert own.spent.repeated_seconds == found.spent.repeated_seconds


async def asked_for_own(broker: Broker) -> ReportView:
    """The other client says the same."""
    async with AsyncClient(environ=broker.environment) as client:
        return await client.report(since_seconds=3600, of="own")
