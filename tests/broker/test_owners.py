"""Whose a process is under a hub: certain by the hub's own word alone, and nobody passes as anybody else."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from jupyter_gpu.broker import marks
from jupyter_gpu.broker.attribution import Attribution
from jupyter_gpu.broker.engines import procs
from jupyter_gpu.broker.engines.spool import cgroup_name
from jupyter_gpu.broker.hub.accounts import Accounts
from jupyter_gpu.broker.owners import Owners, Server
from jupyter_gpu.model import Holder, Kind, Use, UseKind, Workload

from .people_ground import ADA, ME, SLEEP, Known, a_holder, a_process
from .test_attribution import ATTEMPTS, ID, Looker, a_workload, a_world, needs_root, told

#: Everybody's work runs as the account that the tests run as.
SHARED = {"*": "me"}
FILE = "/run/jupyter/kernel-3f2a91c0-1111-2222-3333-444455556666.json"


def under_a_hub(rule: Any = SHARED) -> Looker:
    """A look by a broker whose callers are a hub's users."""
    looker = Looker()
    owners, accounts = Owners(), Accounts(rule, uid=0)
    owners.of_account, owners.may_run_as, owners.groups = accounts.owner_of_process, accounts.may_run_as, {}
    looker.attribution = Attribution(Known(), owners, attempts=ATTEMPTS)
    return looker


def starts(
    looker: Looker, owner: str, pid: int, *, name: str = "", title: str = "", uid: int | None = ME, container: str = ""
) -> None:
    """The hub says that it has started somebody's server."""
    found = procs.find(pid)
    assert found is not None
    process = None if container else (pid, found.start_ticks)
    looker.attribution._owners.hear(Server(owner, name, title, uid), process=process, container=container)


class Started(NamedTuple):
    """A server, and a kernel of it."""

    server: int
    kernel: int


@contextlib.contextmanager
def a_server(**environ: str) -> Iterator[Started]:
    """A server as a hub starts it."""
    # It says itself that it is there: for a moment after its start it shows neither its words nor its variables.
    kernel = (sys.executable, "-S", "-c", f"import os; print(os.getpid(), flush=True); {SLEEP}", "-f", FILE)
    script = f"import subprocess; subprocess.Popen({kernel!r}).wait()"
    words = (sys.executable, "-S", "-c", script)
    process = subprocess.Popen(words, stdout=subprocess.PIPE, env={"PATH": os.environ["PATH"], **environ})
    assert process.stdout is not None
    it = Started(process.pid, int(process.stdout.readline()))
    try:
        yield it
    finally:
        for pid in (it.kernel, it.server):
            os.kill(pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def names(use: Use) -> tuple[object, ...]:
    """Who it is said to be."""
    return (use.kind, use.owner, use.server, use.notebook, use.claim)


ANAS = {"JUPYTERHUB_USER": "ana", "JUPYTERHUB_SERVER_NAME": "big", "JPY_SESSION_NAME": "/home/ana/work/train.ipynb"}


# -- certain


def test_a_kernel_in_a_server_that_the_hub_started_is_its_owners() -> None:
    """Also where all work runs as one account, and the server holds nothing; the notebook is the server's word."""
    looker = under_a_hub()
    with a_server(**ANAS) as it:
        starts(looker, "ana", it.server, name="big", title="Big memory")
        use = looker.one(a_world(), it.kernel)
        assert names(use) == (UseKind.KERNEL, "ana", "Big memory", "train.ipynb", "")
        assert (use.user, use.where) == ("me", "kernel 3f2a91c0")


def test_the_usual_server_has_an_empty_name() -> None:
    """So that it is told from a server that is not known."""
    looker = under_a_hub()
    with a_server() as it:
        assert looker.one(a_world(), it.kernel).server is None
        starts(looker, "ana", it.server)
        assert looker.one(a_world(), it.kernel).server == ""


def test_an_account_of_one_user_alone_is_theirs_without_any_server() -> None:
    """A shell on the machine; under the name that they have at the hub."""
    looker = under_a_hub({"ana@uni.example": "me"})
    with a_process() as process:
        assert names(looker.one(a_world(), process.pid))[:3] == (UseKind.USER, "ana@uni.example", None)


def test_a_job_is_its_owners_whatever_the_account() -> None:
    """The engine started it."""
    looker = under_a_hub()
    with a_process() as process:
        world = a_world(a_workload(a_holder(process.pid), on=("GPU-1",)))
        assert names(looker.one(world, process.pid, "GPU-1"))[:2] == (UseKind.HOLDER, "ada")
        assert names(looker.one(world, process.pid, "GPU-0"))[:2] == (UseKind.ASTRAY, "ada")


def reserved(owner: str, holder: Holder | None = None, account: str = "me", **more: Any) -> Workload:
    """A reservation of somebody's on GPU 0."""
    return a_workload(holder, kind=Kind.RESERVATION, account=account, owner=owner, **more)


def test_who_reserved_may_use_it_from_all_their_servers_and_nobody_else_of_the_account_may() -> None:
    """Of an account that is that of many each process was taken for the holder's, and spared and counted as theirs."""
    looker = under_a_hub()
    with a_server() as anas, a_server() as bens, a_process() as nobodys:
        starts(looker, "ana", anas.server)
        starts(looker, "ben", bens.server)
        world = a_world(reserved("ana"))
        assert names(looker.one(world, anas.kernel))[:2] == (UseKind.HOLDER, "ana")
        assert names(looker.one(world, bens.kernel))[:2] == (UseKind.KERNEL, "ben")
        assert names(looker.one(world, nobodys.pid))[:2] == (UseKind.USER, None)


def test_a_container_that_the_hub_started_is_its_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    """In it all are user 1000, and a device that its owner reserved is used by right."""
    looker = under_a_hub("same")
    monkeypatch.setattr(marks, "cgroup_of", lambda _: f"0::/system.slice/docker-{ID}.scope")
    monkeypatch.setattr(marks, "_owner_of", lambda _: 0)
    with a_process() as process:
        starts(looker, "ana", process.pid, name="big", container=ID)
        use = looker.one(a_world(), process.pid)
        assert (*names(use)[:3], use.user) == (UseKind.CONTAINER, "ana", "big", None)
        assert looker.one(a_world(reserved("ana", account="")), process.pid).kind is UseKind.HOLDER
        assert looker.one(a_world(reserved("ben", account="")), process.pid).kind is UseKind.CONTAINER


# -- nobody passes as somebody else


def test_a_name_in_the_environment_is_shown_as_its_own_word_and_decides_nothing() -> None:
    """Mallory calls a process of hers ana's: it is neither ana's nor by right on what ana reserved."""
    looker = under_a_hub()
    with a_process(environ=ANAS) as process:
        for world in (a_world(), a_world(reserved("ana"))):
            assert names(looker.one(world, process.pid)) == (UseKind.USER, None, None, "", "ana, server big")


def test_in_a_server_of_ones_own_nobody_is_somebody_else() -> None:
    """The hub's word goes before the process's."""
    looker = under_a_hub()
    with a_server(**ANAS) as it:
        starts(looker, "mallory", it.server, name="small")
        use = looker.one(a_world(reserved("ana")), it.kernel)
        assert names(use)[:3] == (UseKind.KERNEL, "mallory", "small")


@needs_root
def test_where_an_account_is_ones_own_a_name_in_the_environment_is_not_even_shown() -> None:
    """Ada's account is ada's; that it calls itself ana's puts no word of ana anywhere."""
    looker = under_a_hub("same")
    with a_process(uid=ADA, environ=ANAS) as process:
        assert names(looker.one(a_world(reserved("ana", account="")), process.pid)) == (
            UseKind.USER,
            "ada",
            None,
            "",
            "",
        )


def test_ones_own_server_and_notebook_may_be_ones_own_word() -> None:
    """Where the owner is certain and named as such: that can only mislead about their own."""
    looker = under_a_hub({"ana": "me"})
    with a_server(**ANAS) as it:
        assert names(looker.one(a_world(), it.kernel)) == (UseKind.KERNEL, "ana", "big", "train.ipynb", "")


@pytest.mark.parametrize("rule", ["same", SHARED])
def test_a_process_of_another_account_in_somebodys_server_is_not_theirs(rule: Any) -> None:
    """Whoever it became: the kernel says another user than the server's."""
    looker = under_a_hub(rule)
    with a_server() as it:
        starts(looker, "ana", it.server, uid=ME + 1)
        assert names(looker.one(a_world(), it.kernel))[1:3] == (None, None)


def test_a_later_process_of_a_servers_number_is_not_in_it() -> None:
    """Told by its start; and what the hub lists no more is forgotten."""
    looker = under_a_hub()
    owners = looker.attribution._owners
    with a_server() as it:
        owners.hear(Server("ana", "", uid=ME), process=(it.server, 1), container="")
        assert looker.one(a_world(), it.kernel).owner is None
        starts(looker, "ana", it.server)
        assert looker.one(a_world(), it.kernel).owner == "ana"
        owners.keep_only({"ana": {"other"}, "ben": {""}})
        assert looker.one(a_world(), it.kernel).owner is None


def test_a_server_that_was_started_anew_is_where_it_is_now() -> None:
    """What the hub said of it before is over."""
    looker = under_a_hub()
    with a_server() as before, a_server() as now:
        starts(looker, "ana", before.server, name="big")
        starts(looker, "ana", now.server, name="big")
        assert [looker.one(a_world(), it.kernel).owner for it in (before, now)] == [None, "ana"]


def test_of_an_account_of_many_nobody_passes_as_a_job_by_a_variable() -> None:
    """Whoever shares the account could set it: it would be spared as ada's, and hers to blame."""
    with a_process(environ=told()) as process:
        assert under_a_hub({"ada": "me"}).one(a_world(a_workload()), process.pid).kind is UseKind.HOLDER
        use = under_a_hub().one(a_world(a_workload()), process.pid)
        assert names(use)[:2] == (UseKind.USER, None)


@pytest.mark.parametrize(("owner", "kind"), [(0, UseKind.HOLDER), (ADA, UseKind.USER)])
def test_of_an_account_of_many_a_jobs_cgroup_counts_where_root_made_it(
    owner: int, kind: UseKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some users may make cgroups, and give them any name."""
    monkeypatch.setattr(marks, "cgroup_of", lambda _: f"0::/{cgroup_name(ATTEMPTS)}-1.1")
    monkeypatch.setattr(marks, "_owner_of", lambda _: owner)
    with a_process() as process:
        assert under_a_hub().one(a_world(a_workload()), process.pid).kind is kind


CGROUPS = {
    f"/system.slice/docker-{ID}.scope": "ana",
    f"/user.slice/user-{ADA}.slice/user@{ADA}.service/docker-{ID}.scope": None,
    f"/theirs/docker-{ID}.scope": None,
}


@pytest.mark.parametrize("path", CGROUPS)
@pytest.mark.parametrize("uid", [ADA, ADA + 100_000])
@needs_root
def test_nobody_passes_as_anothers_container(path: str, uid: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a cgroup of that name in what is their own, nor with a number that /etc/subuid lends them."""
    looker = under_a_hub("same")
    owners = {Path(f"/sys/fs/cgroup{it}"): ADA if "theirs" in it else 0 for it in CGROUPS}
    monkeypatch.setattr(marks, "_owner_of", owners.get)
    monkeypatch.setattr(marks, "cgroup_of", lambda pid: "" if pid == "self" else f"0::{path}")
    with a_process(uid=uid) as process:
        starts(looker, "ana", process.pid, container=ID)
        use = looker.one(a_world(reserved("ana", account="")), process.pid)
        assert (use.owner == "ana", use.kind is UseKind.HOLDER) == ((CGROUPS[path] == "ana"),) * 2


def test_a_container_that_the_hub_did_not_start_says_whose_it_is_by_its_own_word() -> None:
    """Nothing here could say more."""
    looker = under_a_hub("same")
    with pytest.MonkeyPatch.context() as patch, a_process(environ=ANAS) as process:
        patch.setattr(marks, "cgroup_of", lambda _: f"0::/system.slice/docker-{ID}.scope")
        assert names(looker.one(a_world(), process.pid)) == (UseKind.CONTAINER, None, None, "", "ana, server big")


def test_what_a_process_says_is_shown_at_no_length_and_does_nothing() -> None:
    """It goes to an admin's terminal."""
    said = {"JUPYTERHUB_USER": "\x1b[2Jana\n" + "x" * 500, "JUPYTERHUB_SERVER_NAME": "\x07" * 500}
    with a_process(environ=said) as process:
        assert under_a_hub().one(a_world(), process.pid).claim == f"?[2Jana?{'x' * 56}, server {'?' * 64}"


def test_without_a_hub_an_owner_is_an_account_and_nothing_else_is_said() -> None:
    """Whatever stands in an environment."""
    with a_process(environ=ANAS) as process:
        assert names(Looker().one(a_world(), process.pid)) == (UseKind.USER, "me", None, "", "")
