"""A nightly job: it comes by the clock, it comes once after a night without a broker, and two servers make it one."""

from __future__ import annotations

import concurrent.futures
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import httpx
import pytest

from jupyter_gpu.broker.engines import procs
from jupyter_gpu.model import Ask, Kind, RecurringView, SubmitBody
from jupyter_gpu.spawn import start_broker
from tests.ports import free_port

from .moved_clock import MovedClock
from .scene import Broker, a_broker, this_process, until

pytestmark = [pytest.mark.story, pytest.mark.timeout(180)]

ZONE = ZoneInfo("Europe/Amsterdam")
APPEND = ("sh", "-c", "echo $JUPYTER_GPU_JOB >> ran")


def night(after: int) -> float:
    """02:30 in Amsterdam, so many nights after the next one."""
    now = datetime.now(ZONE)
    tonight = now.replace(hour=2, minute=30, second=0, microsecond=0)
    return (tonight + timedelta(days=after + (tonight <= now))).timestamp()


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MovedClock:
    """The clock of the brokers of a test."""
    return MovedClock(tmp_path, monkeypatch)


def ran(folder: Path) -> list[str]:
    """The jobs that have run, in their order."""
    path = folder / "ran"
    return path.read_text().split() if path.exists() else []


def the_one(broker: Broker) -> RecurringView:
    """The only recurring job there is."""
    (it,) = broker.client.recurring()
    return it


def kill(broker: Broker) -> None:
    """The power goes, for the broker."""
    process = procs.find(broker.pid)
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    until(lambda: (found := procs.find(process.pid)) is None or found.zombie, "the broker is gone")


def came(broker: Broker, times: int) -> int:
    """Wait until it came so often, and the job of that has ended; gives that job."""
    until(lambda: the_one(broker).times == times, f"it came {times} times")
    job = the_one(broker).last_workload
    assert job is not None
    assert broker.client.wait(job, timeout_seconds=60).end == "succeeded"
    return job


def test_a_nightly_job_lives_through_a_night_without_a_broker(tmp_path: Path, clock: MovedClock) -> None:
    """It comes on time, then late and once; nobody who starts the broker again brings it once more."""
    with a_broker(tmp_path / "lab", devices=1, policy={}) as broker:
        said = broker.cli(
            "recurring", "add", "--cron", "30 2 * * *", "--zone", "Europe/Amsterdam", "--name", "nightly",
            "--folder", str(tmp_path), "--no-record", "--", *APPEND,
        )  # fmt: skip
        assert "Recurring job 1 (nightly)" in said
        assert the_one(broker).next_at == night(0)

        clock.show(night(0) - 2)
        first = came(broker, 1)
        assert (the_one(broker).last_detail, the_one(broker).next_at) == ("", night(1))

        kill(broker)
        clock.show(night(2) + 3600)
        start_broker([], environ=broker.environment)
        second = came(broker, 2)
        assert the_one(broker).last_detail.startswith("1d1h late; 1 more time was missed meanwhile")
        assert the_one(broker).next_at == night(3)

        kill(broker)
        start_broker([], environ=broker.environment)
        clock.show(night(3) - 60)
        third = broker.client.fire(1).id
        assert came(broker, 3) == third
        assert ran(tmp_path) == [str(first), str(second), str(third)]
        listed = broker.cli("recurring")
        assert "nightly" in listed
        assert f"job {third} succeeded" in listed
        broker.cli("recurring", "remove", "1")


# -- two servers of one user with one data directory: jupyter-server/jupyter-scheduler#476


class Server:
    """A Jupyter server of the user's, in a process of its own."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        folder.mkdir()
        self._port = free_port("127.0.0.1")
        words = [f"--ServerApp.port={self._port}", "--ServerApp.ip=127.0.0.1", "--IdentityProvider.token=t"]
        more = [
            "--allow-root",
            f"--ServerApp.root_dir={folder}",
            "--ServerApp.jpserver_extensions={'jupyter_gpu':True}",
        ]
        self._log = (folder / "log").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "jupyter_server", "--no-browser", "--allow-root", *words, *more],
            env=environment, cwd=folder, stdin=subprocess.DEVNULL, stderr=self._log,
        )  # fmt: skip

    def ask(self, method: str, path: str, body: object = None, *, key: str | None = None) -> Any:
        """What a page asks the broker by this server."""
        headers = {"Authorization": "token t"} | ({} if key is None else {"Idempotency-Key": key})
        url = f"http://127.0.0.1:{self._port}/jupyter-gpu{path}"
        content = None if body is None else json.dumps(body)
        answer = httpx.request(method, url, headers=headers, content=content, timeout=60, trust_env=False)
        assert answer.is_success, answer.text
        return answer.json()

    def answers(self) -> bool:
        """Whether it is up."""
        try:
            self.ask("GET", "/hello")
        except httpx.HTTPError:
            return False
        return True

    def kill(self) -> None:
        """Its user pulls the plug."""
        self.process.kill()
        self.process.wait()
        self._log.close()


@pytest.fixture
def servers(tmp_path: Path, clock: MovedClock) -> Iterator[tuple[Broker, list[Server]]]:
    """Two servers, started at once; the broker is not there yet."""
    with a_broker(tmp_path / "lab", devices=1, policy={}) as broker:
        broker.client.stop_broker()
        both = [Server(tmp_path / name, broker.environment) for name in ("one", "two")]
        try:
            for server in both:
                until(server.answers, "the server answers")
            yield broker, both
        finally:
            for server in both:
                server.kill()


def at_once(servers: list[Server], ask: Callable[[Server], Any]) -> list[Any]:
    """Both ask the same at the same moment."""
    with concurrent.futures.ThreadPoolExecutor(len(servers)) as threads:
        return list(threads.map(ask, servers))


def test_two_servers_of_one_user_make_one_job_of_what_both_submit(
    tmp_path: Path, servers: tuple[Broker, list[Server]], clock: MovedClock
) -> None:
    """Both start the broker and submit at once: one broker, one plain job, one calendar, and each runs once."""
    broker, both = servers
    job = {"kind": "job", "spec": {"argv": APPEND, "folder": str(tmp_path)}}
    nightly = {"cron": "30 2 * * *", "timezone": "Europe/Amsterdam", "job": job}

    plain = {it["id"] for it in at_once(both, lambda it: it.ask("POST", "/api/v1/workloads", job, key="plain"))}
    added = {it["id"] for it in at_once(both, lambda it: it.ask("POST", "/api/v1/recurring", nightly, key="night"))}
    assert (len(plain), len(added)) == (1, 1)
    (plain_id,) = plain
    assert broker.client.wait(plain_id, timeout_seconds=60).end == "succeeded"

    clock.show(night(0) - 1)
    first = came(broker, 1)
    assert [it.ask("GET", "/api/v1/recurring")["items"][0]["last_workload"] for it in both] == [first, first]
    assert ran(tmp_path) == [str(plain_id), str(first)]


def test_what_a_killed_server_has_submitted_runs_once_all_the_same(
    tmp_path: Path, servers: tuple[Broker, list[Server]], clock: MovedClock
) -> None:
    """The job waits for the device, the calendar for the night; the server that wrote them is gone before both."""
    broker, (one, two) = servers
    job = {"kind": "job", "spec": {"argv": APPEND, "folder": str(tmp_path)}}
    body = SubmitBody(kind=Kind.RESERVATION, ask=Ask(duration_seconds=600), holder=this_process())
    one.ask("GET", "/api/v1/status")  # starts the broker
    held = broker.client.submit(body)
    waiting = one.ask("POST", "/api/v1/workloads", job, key="plain")
    one.ask("POST", "/api/v1/recurring", {"cron": "30 2 * * *", "timezone": "Europe/Amsterdam", "job": job})
    assert waiting["state"] == "queued"

    one.kill()
    assert two.ask("POST", "/api/v1/workloads", job, key="plain")["id"] == waiting["id"]
    broker.client.release(held.id)
    assert broker.client.wait(waiting["id"], timeout_seconds=60).end == "succeeded"
    clock.show(night(0) - 1)
    first = came(broker, 1)

    assert ran(tmp_path) == [str(waiting["id"]), str(first)]
