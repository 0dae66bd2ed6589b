"""The story of the programs of users that run beside their jobs: whom a job tells, and what an engine is made of."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from jupyter_gpu.client import Client
from jupyter_gpu.errors import InvalidAsk
from jupyter_gpu.model import Ask, EndReason, JobSpec, Kind, SubmitBody
from tests.accounts import as_account, two_accounts
from tests.engines.fences import IS_ROOT, LAYERS, need, open_folder
from tests.nvml.library import needs_standin

from .house_of_nodes import House
from .scene import until
from .test_isolation import four_cards, isolation, try_all

pytestmark = [needs_standin, pytest.mark.story, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def users() -> Iterator[tuple[str, str]]:
    """Two real users without rights."""
    with two_accounts() as names:
        yield names


@pytest.fixture
def house() -> Iterator[House]:
    """A house for one test."""
    if not IS_ROOT:
        pytest.skip("only root may make device nodes")
    need("cgroup v2")
    with open_folder() as root:
        yield House(root)


def program(path: Path, text: str) -> str:
    """A program that anybody may run."""
    path.parent.mkdir(exist_ok=True)
    path.parent.chmod(0o755)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def bold(house: House, nodes: dict[str, str], said: str) -> str:
    """A script that tries every node, leaves a child in a session of its own, and writes down what came of it."""
    place = shlex.quote(str(house.work / said))
    child = f"setsid sh -c 'echo $$ >> {place}.left; exec sleep 1000' > /dev/null 2>&1 &"
    wait = f"while ! [ -s {place}.left ]; do :; done"
    return f"({try_all(nodes)}; cat /proc/self/cgroup) >> {place} 2>&1; {child} {wait}"


def may_run(user: str, path: str) -> bool:
    """Whether this user may execute a file."""
    return as_account(user, lambda: os._exit(not os.access(path, os.X_OK))) == 0


def all_refused(house: House, nodes: dict[str, str], said: str) -> bool:
    """Whether it was begun, and opened none of them."""
    found = house.result(said)
    return all(f"{card} refused" in found and f"{card} open" not in found for card in nodes)


def nothing_left(house: House, said: str) -> bool:
    """Whether nothing of what it started lives; a supervisor may not have taken note of its end yet."""
    pids = (house.work / f"{said}.left").read_text().split()
    return not [pid for pid in pids if psutil.pid_exists(int(pid)) and psutil.Process(int(pid)).status() != "zombie"]


@pytest.mark.parametrize("layer", ["cgroup v2", "landlock"])
def test_whom_a_job_tells_opens_no_device_and_leaves_nothing_behind(
    house: House, users: tuple[str, str], layer: str
) -> None:
    """The command is its user's own, and runs when the job and its lease may be over."""
    need(layer)
    # Where this interpreter is root's alone the process that tells can be nobody else's.
    user = users[0] if may_run(users[0], sys.executable) else "root"
    board, nodes = four_cards(house)
    teller = program(house.root / "told" / "tell", bold(house, nodes, "told"))
    with house.broker(board, system=True, isolation=LAYERS[layer]) as broker:
        until(lambda: isolation(broker).enforced, "the probe has been refused everywhere")

        def submit() -> None:
            with Client(str(house.root / "run" / "broker.sock"), start=False) as gpu:
                spec = JobSpec(
                    argv=("true",), folder=str(house.work), environment={"PATH": "/usr/bin:/bin"},
                    notify=(teller,), notify_on=("ended",),
                )  # fmt: skip
                it = gpu.submit(SubmitBody(kind=Kind.JOB, ask=Ask(devices=1), spec=spec))
                assert gpu.wait(it.id, "ended", 60).end is EndReason.SUCCEEDED

        assert as_account(user, submit) == 0
        until(lambda: (house.work / "told.left").exists() and nothing_left(house, "told"), "it was told and ended")
    assert all_refused(house, nodes, "told"), house.result("told")
    assert house.result("told")[0] == user


def submit_in_image(house: House, user: str, environment: dict[str, str]) -> str:
    """Submit a job in an image as this user, and wait for its end if it is taken; why it is not."""
    out = house.work / "refused"

    def submit() -> None:
        with Client(str(house.root / "run" / "broker.sock"), start=False) as gpu:
            spec = JobSpec(
                argv=("true",), folder=str(house.work), environment=environment, image="python:3",
                container_engine="podman",
            )  # fmt: skip
            try:
                it = gpu.submit(SubmitBody(kind=Kind.JOB, ask=Ask(devices=1), spec=spec))
            except InvalidAsk as error:
                out.write_text(str(error))
            else:
                gpu.wait(it.id, "ended", 60)

    assert as_account(user, submit) == 0
    return out.read_text() if out.exists() else ""


def test_what_a_job_calls_podman_is_no_engine(
    house: House, users: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker looks where its own programs are; a program of a user's PATH is never run by it."""
    board, nodes = four_cards(house)
    program(house.root / "theirs" / "podman", bold(house, nodes, "fake"))
    bare = house.root / "bare"
    bare.mkdir()
    for name in ("sh", "true"):
        (bare / name).symlink_to(f"/bin/{name}")
    board.environment()  # made while there is a compiler to be found
    monkeypatch.setenv("PATH", str(bare))
    with house.broker(board, system=True):
        why = submit_in_image(house, users[0], {"PATH": f"{house.root}/theirs:/usr/bin:/bin"})
    assert "podman: not found" in why
    assert not (house.work / "fake").exists()


def test_what_an_engine_is_made_of_opens_no_device_and_leaves_nothing_behind(
    house: House, users: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Podman runs what its user's files name; so it does when it is only asked, before a job and after it."""
    board, nodes = four_cards(house)
    runtime = program(house.root / "theirs" / "runtime", bold(house, nodes, "asked"))
    program(house.root / "ours" / "podman", f'echo "$1" >> {house.work}/words; [ "$1" = run ] || "$CONTAINERS_CONF"')
    monkeypatch.setenv("PATH", f"{house.root}/ours:{os.environ['PATH']}")
    with house.broker(board, system=True) as broker:
        until(lambda: isolation(broker).enforced, "the probe has been refused everywhere")
        submit_in_image(house, users[0], {"PATH": "/usr/bin:/bin", "CONTAINERS_CONF": runtime})
    words = (house.work / "words").read_text().split()
    assert words[0] == "info"
    assert set(words) == {"info", "run", "inspect", "rm"}
    assert all_refused(house, nodes, "asked"), house.result("asked")
    assert nothing_left(house, "asked")
