"""The story of what a job cannot open: from the board and its device nodes to what a user reads, in one piece.

Broker, users, layers and jobs are real; the cards are a stand-in for the driver's own library, and their nodes are
harmless devices in a folder that stands in for /dev.
"""

from __future__ import annotations

import itertools
import json
import os
import pwd
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu import pins
from jupyter_gpu.cli.doctor_devices import own_check
from jupyter_gpu.client import Client
from jupyter_gpu.model import Ask, EndReason, IsolationView, JobSpec, Kind, SubmitBody
from tests.accounts import as_account, two_accounts
from tests.engines.fences import IS_ROOT, TRY, as_user, need, open_folder, unit_of
from tests.nvml import boards
from tests.nvml.board import GIB, MIB, Board, data_centre_card, mig_device
from tests.nvml.library import needs_standin

from .house_of_nodes import House
from .scene import Broker, this_process, until

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
    with open_folder() as root:
        yield House(root)


def try_all(nodes: dict[str, str]) -> str:
    """A script that says who runs it, what it holds, and of each node whether it can be opened."""
    return (
        TRY
        + "id -un; echo $CUDA_VISIBLE_DEVICES; "
        + "; ".join(f"t {shlex.quote(name)} {shlex.quote(node)}" for name, node in nodes.items())
    )


def four_cards(house: House) -> tuple[Board, dict[str, str]]:
    """Four cards, and the node of each by its UUID."""
    board = boards.four_alike(house.root)
    return board, {card.uuid: house.node(f"nvidia{card.number}") for card in board.cards}


def opens_just_its_own(found: list[str], user: str, nodes: dict[str, str], count: int) -> bool:
    """Whether a job ran as this user, and opened the nodes of the cards that it held and no others."""
    who, held, *tried = found
    own = held.split(",")
    expected = [f"{card} {'open' if card in own else 'refused'}" for card in nodes]
    return (who, len(own), tried) == (user, count, expected)


def as_user_run(house: House, user: str, script: str, ask: Ask, name: str) -> None:
    """Let a user submit a job and wait for its end; it leaves what it says in a file of its name."""

    def submit() -> None:
        spec = JobSpec(
            argv=("sh", "-c", f"exec > {name}; {script}"), folder=str(house.work),
            environment={"PATH": "/usr/bin:/bin"},
        )  # fmt: skip
        with Client(str(house.root / "run" / "broker.sock"), start=False) as gpu:
            it = gpu.submit(SubmitBody(kind=Kind.JOB, ask=ask, spec=spec))
            assert gpu.wait(it.id, "ended", 60).end is EndReason.SUCCEEDED, it

    assert as_account(user, submit) == 0


def isolation(broker: Broker) -> IsolationView:
    """What the status says of it."""
    it = broker.client.status().isolation
    assert it is not None
    return it


def doctor(broker: Broker) -> str:
    """What the doctor says of it."""
    done = subprocess.run(
        [sys.executable, "-m", "jupyter_gpu.cli", "doctor", "--json"],
        env=broker.environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return str(next(it["text"] for it in json.loads(done.stdout)["checks"] if it["name"] == "isolation"))


def test_a_job_that_helps_itself_to_another_card_is_refused(house: House, users: tuple[str, str]) -> None:
    """A script may set CUDA_VISIBLE_DEVICES to what it likes (justanhduc/task-spooler#73): the node does not open."""
    need("cgroup v2")
    board, nodes = four_cards(house)
    with house.broker(board, system=True) as broker:
        until(lambda: isolation(broker).enforced, "the probe has been refused everywhere")
        for user in users:
            as_user_run(house, user, try_all(nodes), Ask(devices=1), user)
            assert opens_just_its_own(house.result(user), user, nodes, 1), house.result(user)
        told = "a process like a job's tried all 4 device nodes, and each was refused"
        assert isolation(broker) == IsolationView(enforced=True, by="cgroup v2", detail=told)
        assert "isolation enforced (cgroup v2)" in broker.cli("status")
        assert doctor(broker) == f"enforced by cgroup v2 ({told})"

        for node in nodes.values():
            Path(node).unlink()
        until(lambda: not isolation(broker).enforced, "the nodes are seen to be gone")
        until(lambda: "no such file" in isolation(broker).detail, "they were tried")
        gone = ", ".join(sorted(nodes.values()))
        assert isolation(broker).detail == f"it could not be tried where there is no such file: {gone}"
        assert "isolation advisory" in broker.cli("status")
        assert doctor(broker).startswith(
            "advisory: cgroup v2 withholds the GPUs of others from a job, but not surely ("
        )


def in_slices(house: House) -> tuple[Board, dict[str, str], list[str]]:
    """Two cards, the first in two parts; the nodes by name; and what shows the kernel's list of capabilities."""
    cards = [data_centre_card(number, boards.A100, 40 * GIB) for number in range(2)]
    numbers = itertools.count(21)
    nodes, lines = {"gpu0": house.node("nvidia0"), "gpu1": house.node("nvidia1")}, ["mount -t tmpfs proc /proc/driver"]
    for slot, instance in enumerate((7, 8)):
        mig_device(cards[0], slot, "1g.5gb", memory_bytes=4864 * MIB, gpu_instance=instance)
        folder = f"/proc/driver/nvidia/capabilities/gpu0/mig/gi{instance}"
        lines += [f"mkdir -p {folder}/ci0"]
        for name, place in ((f"gi{slot}", "access"), (f"ci{slot}", "ci0/access")):
            number = next(numbers)
            nodes[name] = house.node(f"nvidia-caps/nvidia-cap{number}")
            lines += [f"printf 'DeviceFileMinor: {number}\\nDeviceFileMode: 292\\n' > {folder}/{place}"]
    return Board(house.root, *cards), nodes, lines


def test_parts_of_one_card_share_its_node_and_not_what_admits_to_each(house: House, users: tuple[str, str]) -> None:
    """Who holds one MIG device opens the card's node and the two nodes of that part; a sibling's two are refused."""
    need("cgroup v2")
    board, nodes, lines = in_slices(house)

    def with_capabilities(words: list[str]) -> list[str]:
        return ["unshare", "--mount", "sh", "-ec", "\n".join([*lines, f"exec {shlex.join(words)}"])]

    with house.broker(board, run=with_capabilities, system=True) as broker:
        until(lambda: isolation(broker).enforced, "the probe has been refused everywhere")
        assert isolation(broker).detail.startswith("a process like a job's tried all 6 device nodes")
        parts = {it.uuid: slot for slot, it in board.cards[0].slots.items()}
        for user in users:
            as_user_run(house, user, try_all(nodes), Ask(device_class="mig-1g.5gb"), user)
            _, held, *found = house.result(user)
            own, other = parts[held], 1 - parts[held]
            assert sorted(found) == sorted(
                ["gpu0 open", "gpu1 refused", f"gi{own} open", f"ci{own} open", f"gi{other} refused",
                 f"ci{other} refused"]
            )  # fmt: skip


def test_a_user_alone_is_kept_from_cards_that_they_do_not_hold(house: House, users: tuple[str, str]) -> None:
    """A broker of one's own, without any right: Landlock holds, and the badge says so."""
    need("landlock")
    user = pwd.getpwnam(users[0])
    for folder in (house.root, house.root / "home"):
        os.chown(folder, user.pw_uid, user.pw_gid)
    board, nodes = four_cards(house)
    with house.broker(board, run=lambda words: as_user(words, user)) as broker:
        until(lambda: status(broker, user)["isolation"]["enforced"], "the probe has been refused everywhere")
        as_user_run(house, user.pw_name, try_all(nodes), Ask(devices=2), "two")
        assert opens_just_its_own(house.result("two"), user.pw_name, nodes, 2), house.result("two")
        assert "isolation enforced (landlock)" in theirs(broker, user, "status")


@pytest.mark.parametrize(("is_fenced", "said"), [(True, "enforced by systemd ("), (False, "advisory (it could open ")])
def test_a_server_of_a_hub_finds_out_whether_its_unit_keeps_it(
    house: House, users: tuple[str, str], is_fenced: bool, said: str
) -> None:
    """From the board to what doctor says in a server: in a unit that allows the leased card alone, and in none."""
    need("cgroup v2")
    board, nodes = four_cards(house)
    with house.broker(board, system=True) as broker:
        body = SubmitBody(kind=Kind.RESERVATION, ask=Ask(devices=1), holder=this_process())
        held = broker.client.wait(broker.client.submit(body).id, "active", 60)
        now, own = broker.client.status(), nodes[held.devices[0]]

        def look() -> None:
            check = own_check(now, {"JUPYTERHUB_USER": users[0]} | pins.under(held.id, held.devices))
            assert check is not None
            (house.work / "said").write_text(f"{check.state}\n{check.text}\n")

        with unit_of("cgroup v2", os.minor(Path(own).stat().st_rdev)) as unit:
            assert as_account(users[0], look, unit if is_fenced else None) == 0
        state, text = house.result("said")
        assert (state, text.startswith(said)) == ("ok" if is_fenced else "warn", True), text
        assert ("3 device nodes of other GPUs: 3 refused" in text) is is_fenced
        assert own not in text
        broker.client.cancel(held.id)


def status(broker: Broker, user: pwd.struct_passwd) -> dict[str, Any]:
    """The status as this user gets it."""
    return dict(json.loads(theirs(broker, user, "status", "--json")))


def theirs(broker: Broker, user: pwd.struct_passwd, *words: str) -> str:
    """What `jupyter gpu WORDS` prints for this user."""
    argv = as_user([sys.executable, "-m", "jupyter_gpu.cli", *words], user)
    return subprocess.run(argv, env=broker.environment, check=True, capture_output=True, text=True, cwd="/").stdout
