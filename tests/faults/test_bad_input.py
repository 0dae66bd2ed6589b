"""What cannot be meant, asked of a real broker by the real faces: a clear word, an exit code, and nothing is lost."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu.client import Client
from jupyter_gpu.errors import GpuError, InvalidAsk, LimitExceeded
from jupyter_gpu.model import Ask, EndReason, JobSpec, Kind, SubmitBody
from tests.faults.house import House, job, until

UNTIL_GO = ("sh", "-c", "while [ ! -e go ]; do sleep 0.02; done")


@pytest.fixture
def served(make_house: Callable[..., House]) -> House:
    """A broker with two devices and something that runs."""
    house = make_house(devices=2)
    house.start()
    (id_,) = house.submit(job(house, UNTIL_GO))
    house.wait("started", id_)
    return house


@pytest.fixture
def gpu(served: House) -> Iterator[Client]:
    """Its client."""
    with Client(str(served.root / "run" / "broker.sock"), start=False) as client:
        yield client


def body(house: House, *argv: str, **more: Any) -> SubmitBody:
    """A job as faces send it."""
    folder = more.pop("folder", str(house.work))
    return SubmitBody(kind=Kind.JOB, spec=JobSpec(argv=argv or ("true",), folder=folder), **more)


def asked(**ask: Any) -> SubmitBody:
    """A reservation of that."""
    return SubmitBody(kind=Kind.RESERVATION, ask=Ask(**ask))


REFUSED: dict[str, tuple[SubmitBody, type[GpuError]]] = {
    "no such class": (asked(device_class="h9000"), InvalidAsk),
    "more than there are": (asked(devices=3), LimitExceeded),
    "zero": (asked(devices=0), InvalidAsk),
    "negative": (asked(devices=-1), InvalidAsk),
    "a huge number": (asked(devices=2**60), InvalidAsk),
    "no time": (asked(duration_seconds=0), InvalidAsk),
    "a negative time": (asked(duration_seconds=-5), InvalidAsk),
    "a million years": (asked(duration_seconds=2**45), InvalidAsk),
    "too long": (asked(duration_seconds=3 * 365 * 86_400), LimitExceeded),
    "no memory": (asked(memory_bytes=0), InvalidAsk),
    "no such queue": (SubmitBody(kind=Kind.RESERVATION, queue="fast lane"), InvalidAsk),
    "no such profile": (SubmitBody(kind=Kind.RESERVATION, profile="small"), InvalidAsk),
    "a name that moves the cursor": (SubmitBody(kind=Kind.RESERVATION, name="\x1b[2J"), InvalidAsk),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_meant_is_refused_and_changes_nothing(served: House, gpu: Client, what: str) -> None:
    """The right kind of error with a sentence, no event, and what runs is not touched."""
    wrong, kind = REFUSED[what]
    before = served.world()["revision"]
    with pytest.raises(kind) as refused:
        gpu.submit(wrong)
    assert len(str(refused.value)) > 20
    assert served.world()["revision"] == before


def test_a_command_or_folder_that_is_not_there_is_refused_at_submission(served: House, gpu: Client) -> None:
    """Told while somebody is there to read it, by name."""
    with pytest.raises(InvalidAsk, match="no-such-program"):
        gpu.submit(body(served, "no-such-program"))
    with pytest.raises(InvalidAsk, match="nowhere"):
        gpu.submit(body(served, folder=str(served.work / "nowhere")))


def test_a_folder_that_goes_between_submission_and_start_ends_the_job_with_its_name(served: House, gpu: Client) -> None:
    """It fails once, at the start, for the reason that is so, and the device is free for the next."""
    folder = served.work / "soon gone"
    folder.mkdir()
    fill = gpu.submit(body(served, *UNTIL_GO))
    waits = gpu.submit(body(served, folder=str(folder)))
    folder.rmdir()
    (served.work / "go").touch()
    gpu.wait(fill.id, "ended", 20)
    it = gpu.wait(waits.id, "ended", 20)
    assert it.end is EndReason.LAUNCH_FAILED
    assert "No such file or directory" in it.detail
    served.wait("ended", 1)
    assert served.world()["leases"] == {}


NAMES = ["two words", 'it\'s "quoted"', "größe-数-🚀", "a/b/../c", "-rf", "%s{x}$HOME;`id`", "a" * 200]


@pytest.mark.parametrize("name", NAMES)
def test_odd_names_and_folders_come_back_as_they_were(served: House, gpu: Client, name: str) -> None:
    """Spaces, quotes, slashes, other alphabets: a name is only shown, a folder is only entered."""
    folder = served.work / name.replace("/", "_")
    folder.mkdir()
    it = gpu.submit(body(served, "sh", "-c", "pwd > here", name=name, folder=str(folder)))
    it = gpu.wait(it.id, "ended", 20)
    assert (it.end, it.name) == (EndReason.SUCCEEDED, name)
    assert (folder / "here").read_text() == f"{folder}\n"


def cli(house: House, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """`jupyter gpu` as a person runs it."""
    places = {"JUPYTER_GPU_RUNTIME_DIR": str(house.root / "run"), "JUPYTER_GPU_STATE_DIR": str(house.state)}
    return subprocess.run(
        [sys.executable, "-m", "jupyter_gpu.cli", *words], env={**os.environ, **places}, cwd=cwd or house.work,
        check=False, capture_output=True, text=True, timeout=30,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("reserve", "0"), 2),
        (("reserve", "1", "--for", "soon"), 2),
        (("submit", "--", "no-such-program"), 2),
        (("cancel", "4711"), 4),
        (("release", "1"), 5),
    ],
)
def test_the_command_line_says_it_in_a_sentence_and_a_code(served: House, words: tuple[str, ...], code: int) -> None:
    """No traceback, the documented exit code, and --json gives the same as a document."""
    said = cli(served, *words)
    assert said.returncode == code, said.stderr
    assert "Traceback" not in said.stderr
    assert len(said.stderr) > 20


def test_a_job_by_the_command_line_runs_where_it_was_submitted(served: House) -> None:
    """The smallest way through all the rooms: submit, wait, log."""
    folder = served.work / "it's 数"
    folder.mkdir()
    said = cli(served, "submit", "--json", "--", "sh", "-c", "pwd", cwd=folder)
    assert said.returncode == 0, said.stderr
    id_ = json.loads(said.stdout)["id"]
    served.wait("ended", id_)
    log = (served.attempt(id_) / "log").read_text()
    assert log == f"{folder}\n"


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # httpcore forgets a socket whose connect is refused
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_client_is_told_of_a_broker_that_was_killed(served: House, gpu: Client) -> None:
    """Between two words the broker dies: said, with how to start one, and the next broker answers the same client."""
    assert gpu.status().devices
    served.kill()
    with pytest.raises(GpuError, match="broker"):
        gpu.status()
    served.start()
    assert until(lambda: gpu.status().devices, "it answers again")
    gc.collect()
