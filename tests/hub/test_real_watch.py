"""Who is on a GPU without a lease under a real hub that runs as root: named as the hub knows them, ended by its groups.

The driver is the stand-in of `tests/nvml`; the hub, its servers and kernels, the accounts and the processes are real.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from jupyter_gpu.model import AlertView, DeviceView, UseKind, UseView
from tests.accounts import two_accounts
from tests.nvml import boards
from tests.nvml.board import GIB, Board, Card
from tests.nvml.library import needs_standin

from .hub import OPERATOR, POLICY, Hub, Kernel, until

pytestmark = [needs_standin, pytest.mark.story, pytest.mark.timeout(180)]

RULES = {
    "foreign_use": "warn",
    # Long enough for the hub's word on groups, and for a look at what is told before.
    "foreign_rules": [{"team": "vision", "use": "end", "after_seconds": 5}],
}

#: What a kernel starts, which says that it is somebody else's.
A_WORKER = (
    "import os, subprocess; print(subprocess.Popen(['sleep', '600'], env=os.environ | {'JUPYTERHUB_USER': 'dov'}).pid)"
)


@pytest.fixture(scope="module")
def accounts() -> Iterator[tuple[str, str]]:
    """Those of ana, who is in vision, and of cho, who is not."""
    with two_accounts() as names:
        yield names


@pytest.fixture(scope="module")
def board() -> Iterator[Board]:
    """Two cards."""
    with tempfile.TemporaryDirectory() as folder:
        found = boards.four_alike(Path(folder))
        del found.cards[2:]
        found.write()
        yield found


@pytest.fixture(scope="module")
def hub(accounts: tuple[str, str], board: Board) -> Iterator[Hub]:
    """Two have accounts of their own; the servers of all others are of one account."""
    with tempfile.TemporaryDirectory(prefix="jgh-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)
        made = Hub(Path(folder) / "hub", board=board, policy=POLICY | RULES)
        text = made.config.read_text()
        rule = f"'account_of_user': {{'ana': {accounts[0]!r}, 'cho': {accounts[1]!r}, "
        made.config.write_text(text.replace("'account_of_user': {", rule).replace("'system': False", "'system': True"))
        try:
            made.start()
            yield made
        finally:
            made.end()


@contextlib.contextmanager
def a_process(user: str) -> Iterator[subprocess.Popen[bytes]]:
    """Of an account, outside all servers."""
    process = subprocess.Popen(["sleep", "600"], user=user)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def on(board: Board, card: Card, *pids: int) -> Iterator[None]:
    """These are on a card."""
    for pid in pids:
        card.hold(pid, 6 * GIB)
    board.write()
    try:
        yield
    finally:
        card.processes.clear()
        board.write()


def a_notebook(hub: Hub, user: str, server: str, path: str) -> Kernel:
    """A notebook of somebody's, opened in a server."""
    client = hub.at(user, server)
    body = {"path": path, "name": Path(path).name, "type": "notebook", "kernel": {"name": "python3"}}
    answer = client.post("/api/sessions", json=body)
    answer.raise_for_status()
    return Kernel(client, answer.json()["kernel"]["id"], hub.token_of(user))


def device(hub: Hub, user: str, card: Card) -> DeviceView:
    """One card as somebody sees it."""
    return next(it for it in hub.as_(user).devices().items if it.uuid == card.uuid)


def use_of(hub: Hub, user: str, card: Card, pid: int) -> UseView | None:
    """A process there, as somebody sees it."""
    return next((it for it in device(hub, user, card).uses if it.pid == pid), None)


def told(hub: Hub, user: str, group: str = "foreign") -> list[AlertView]:
    """What somebody is told of strangers."""
    return [it for it in hub.as_(user).status().alerts if it.key.startswith(f"{group}:")]


def test_a_kernel_in_a_server_without_gpus_is_named_by_user_server_and_notebook(hub: Hub, board: Board) -> None:
    """Of two users whose servers are of one account; each is told their own, and others no more than who it is."""
    card = board.cards[0]
    assert hub.spawn("ben", "big", gpu_profile="none").status_code in (httpx.codes.CREATED, httpx.codes.ACCEPTED)
    kernel = a_notebook(hub, "ben", "big", "work/train.ipynb")
    pid = int(kernel.run(A_WORKER))

    with on(board, card, pid):
        until(lambda: told(hub, OPERATOR), "it is told")
        use = use_of(hub, OPERATOR, card, pid)
        assert use is not None
        assert (use.kind, use.owner, use.server, use.notebook) == (UseKind.KERNEL, "ben", "big", "train.ipynb")
        assert "of ben, server 'big', notebook train.ipynb, since " in told(hub, OPERATOR)[0].text
        # It is root's process, whatever the rule of its user's groups, which the hub says meanwhile.
        until(lambda: "It is left alone: it is the machine's own." in told(hub, "ben")[0].text, "its groups are known")
        (own,) = told(hub, "ben")
        assert own.text.startswith(f"Your process {pid} (")
        assert "server 'big', notebook train.ipynb, is on GPU 0 without a lease" in own.text
        assert told(hub, "dov") == told(hub, "cho") == []
        seen = use_of(hub, "dov", card, pid)
        assert seen is not None
        assert (seen.owner, seen.server, seen.notebook) == ("ben", None, "")
    until(lambda: not told(hub, "ben"), "it is over")


def test_a_process_is_ended_by_the_groups_that_its_user_is_in_now(
    hub: Hub, board: Board, accounts: tuple[str, str]
) -> None:
    """Neither has ever come to the service: the hub is asked. The one in vision is ended, and told by which rule."""
    card = board.cards[1]
    with a_process(accounts[0]) as anas, a_process(accounts[1]) as chos, on(board, card, anas.pid, chos.pid):
        until(lambda: "It is ended at" in "".join(it.text for it in told(hub, "ana")), "ana is told")
        assert "by the rule for team vision." in told(hub, "ana")[0].text
        assert "Let its user end it" in told(hub, "cho")[0].text
        assert {it.pid: it.owner for it in device(hub, OPERATOR, card).uses} == {anas.pid: "ana", chos.pid: "cho"}
        assert anas.wait(30) == -signal.SIGTERM
        until(lambda: told(hub, "ana", "ended"), "it is told that it was ended")
        assert "it had no lease of GPU 1 (the rule for team vision)" in told(hub, "ana", "ended")[0].text
        assert told(hub, "cho", "ended") == []
        assert chos.poll() is None


def test_who_joins_a_group_is_treated_by_its_rule_without_a_new_login(
    hub: Hub, board: Board, accounts: tuple[str, str]
) -> None:
    """And is told before (2i2c-org/infrastructure#8154)."""
    card = board.cards[1]
    with a_process(accounts[1]) as chos, on(board, card, chos.pid):
        until(lambda: "Let its user end it" in "".join(it.text for it in told(hub, "cho")), "cho is only told")
        hub.join("cho", "vision")
        try:
            until(lambda: "by the rule for team vision" in "".join(it.text for it in told(hub, "cho")), "it counts")
            assert chos.wait(30) == -signal.SIGTERM
        finally:
            hub.leave("cho", "vision")
