"""Two accounts of the machine want the last card at the same moment, two hundred times: one has it, never both."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Iterator

import msgspec
import pytest

from jupyter_gpu.client import Client
from jupyter_gpu.core.lifecycle import evolve
from jupyter_gpu.errors import NotAllowed, NotFound
from jupyter_gpu.model import Ask, EndReason, JobSpec, Kind, State, SubmitBody, World
from tests.accounts import as_account, become, two_accounts
from tests.faults.house import House, reservation, until

ROUNDS = 200
RESERVE = SubmitBody(kind=Kind.RESERVATION, ask=Ask(devices=1, duration_seconds=600))


@pytest.fixture(scope="module")
def accounts() -> Iterator[tuple[str, str]]:
    """Two real accounts, removed afterwards."""
    with two_accounts() as names:
        yield names


class Rival:
    """A process of another account that reserves when told to, and says which workload it got in which state."""

    def __init__(self, account: str, socket: str) -> None:
        told, self._tell = os.pipe()
        self._hear, said = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            try:
                os.close(self._tell)
                os.close(self._hear)
                _be(account, socket, told, said)
            except BaseException:  # noqa: BLE001 - the parent reads the end of the pipe
                traceback.print_exc()
            os._exit(0)
        os.close(told)
        os.close(said)

    def go(self) -> None:
        """Reserve now."""
        os.write(self._tell, b"r")

    def give_back(self) -> None:
        """Release or cancel what it got."""
        os.write(self._tell, b"b")

    def hear(self) -> list[str]:
        """Its answer."""
        return os.read(self._hear, 100).decode().split()

    def close(self) -> None:
        """It leaves."""
        os.close(self._tell)
        os.close(self._hear)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def _be(account: str, socket: str, told: int, said: int) -> None:
    become(account)
    with Client(socket, start=False) as gpu:
        mine = 0
        while order := os.read(told, 1):
            it = gpu.submit(RESERVE) if order == b"r" else gpu.release(mine)
            mine = it.id
            if order == b"b":  # the card is free when it is clear
                it = gpu.wait(mine, "ended", 20)
            os.write(said, f"{it.id} {it.state} {it.owner}\n".encode())


@pytest.fixture
def shared(make_house: Callable[..., House]) -> House:
    """The machine's broker, with one device."""
    house = make_house(system=True)
    house.start()
    return house


def test_two_users_race_for_the_last_card(shared: House, accounts: tuple[str, str]) -> None:
    """Check and lease are one step: russellb/canhazgpu#30, jaylfc/taOS#1705."""
    socket = str(shared.root / "run" / "broker.sock")
    rivals = [Rival(account, socket) for account in accounts]
    try:
        wins = [_race(rivals, accounts, n) for n in range(ROUNDS)]
    finally:
        for rival in reversed(rivals):  # the later one was born with the earlier one's pipes
            rival.close()
    assert len(wins) == ROUNDS
    assert set(wins) == set(accounts)
    world = World()
    for event in shared.events():
        evolve(world, event)
        assert world.check() == []
        assert all(len(holders) == 1 for holders in world.leases.values())
    assert sum(it.end is EndReason.RELEASED for it in world.workloads.values()) >= ROUNDS
    assert shared.world()["leases"] == {}


def _race(rivals: list[Rival], accounts: tuple[str, str], n: int) -> str:
    """One round; the winner."""
    first, second = rivals if n % 2 else reversed(rivals)
    first.go()
    second.go()
    said = [rival.hear() for rival in rivals]
    assert [owner for _, _, owner in said] == list(accounts)
    assert sorted(state for _, state, _ in said) == ["active", "queued"], said
    winner = next(n for n, (_, state, _) in enumerate(said) if state == "active")
    for rival in (rivals[1 - winner], rivals[winner]):
        rival.give_back()
        rival.hear()
    return accounts[winner]


def test_jobs_run_as_who_submits_them_and_only_they_read_and_end_them(shared: House, accounts: tuple[str, str]) -> None:
    """On the machine's socket the kernel says who calls; another user's job is not theirs to touch."""
    socket = str(shared.root / "run" / "broker.sock")
    job = SubmitBody(
        kind=Kind.JOB,
        ask=Ask(devices=1),
        spec=JobSpec(argv=("sh", "-c", 'id -un > "who.$(id -un)"'), folder=str(shared.work)),
    )
    for account in accounts:
        code = as_account(account, lambda: _submit_and_wait(socket, job))
        assert code == 0
    assert [shared.lines(f"who.{account}") for account in accounts] == [[account] for account in accounts]


def _submit_and_wait(socket: str, body: SubmitBody) -> None:
    with Client(socket, start=False) as gpu:
        it = gpu.wait(gpu.submit(body).id, "ended", 20)
        assert it.end is EndReason.SUCCEEDED
        for id_ in range(1, it.id):
            with pytest.raises((NotFound, NotAllowed)):
                gpu.cancel(id_)
            with pytest.raises((NotFound, NotAllowed)):
                gpu.log(id_)


def test_two_clients_of_one_user_race_for_the_last_card(house: House) -> None:
    """The same where nobody may make accounts: two commands in one instant, one lease."""
    house.start()
    command = msgspec.to_builtins(reservation())
    for _ in range(ROUNDS // 4):
        answers = house.ask("commands", commands=[command, command])
        ids = [it["workload"] for it in answers]
        states = [it.state for it in house.wait("queued", *ids, seconds=0)]
        assert sorted(states) == [State.ACTIVE, State.QUEUED]
        for id_ in reversed(ids):
            house.release(id_)
        until(lambda wanted=ids: all(it.state is State.ENDED for it in house.wait("ended", *wanted)), "both are over")
