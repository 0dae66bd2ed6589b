"""Whose account work runs as: nobody's by chance, root's never by a mere name, and never two people's as one."""

from __future__ import annotations

import asyncio
import os
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_gpu.broker.hub import accounts
from jupyter_gpu.broker.hub.accounts import Accounts, RunsAs
from jupyter_gpu.broker.hub.place import read_place
from jupyter_gpu.core.names import is_of
from jupyter_gpu.errors import InvalidAsk
from jupyter_gpu.model import Caller, Policy, Use, UseKind, World
from tests.conftest import Places

from .fake_hub import CONTRACTOR, FakeHub
from .ground import a_service, play

#: What the name service of the tests knows.
PEOPLE = {"ana": 1001, "grace": 1002, "root": 0, "toor": 0, "postgres": 108, "nobody": 65534, "LAB\\ana": 60001}


@pytest.fixture(autouse=True)
def name_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that ignores case, as some do."""

    def getpwnam(name: str) -> Any:
        if "\0" in name:
            raise ValueError("embedded null byte")
        found = next((known for known in PEOPLE if known.lower() == name.lower()), None)
        if found is None:
            raise KeyError(name)
        return SimpleNamespace(pw_name=found, pw_uid=PEOPLE[found], pw_gid=PEOPLE[found])

    monkeypatch.setattr(accounts, "pwd", SimpleNamespace(getpwnam=getpwnam))
    monkeypatch.setattr(accounts, "account_name", lambda uid: {0: "root", 990: "jupyterhub"}[uid])


def runs_as(rule: Any, user: str, uid: int = 0) -> RunsAs:
    """Whose account a user's work runs as."""
    return asyncio.run(Accounts(rule, uid=uid).of(user))


@pytest.mark.parametrize(
    ("user", "account"),
    [
        ("ana", "ana"),
        ("LAB\\ana", "LAB\\ana"),
        # Two spellings are two users of the hub; one account is one person's.
        ("Ana", ""),
        ("lab\\ANA", ""),
        ("ana.b@uni.example", ""),
        ("анна", ""),
        ("a\0b", ""),
        ("", ""),
        ("0", ""),
        # People choose their names on many hubs.
        ("root", ""),
        ("toor", ""),
        ("ROOT", ""),
        ("postgres", ""),
        ("nobody", ""),
    ],
)
def test_a_name_is_an_account_only_where_it_is_just_that_persons(user: str, account: str) -> None:
    """As root and without a rule: the account of the same name, if it is a person's."""
    assert runs_as("", user) == runs_as("same", user) == RunsAs(account)


def test_a_service_without_roots_power_runs_all_as_itself() -> None:
    """And says that it is shared, so that an account tells nothing about whose a process is."""
    assert runs_as("", "ana", uid=990) == runs_as("service", "root", uid=990) == RunsAs("jupyterhub", is_shared=True)
    # As root, its own account is root's: nobody's.
    assert runs_as("service", "ana").account == ""


def test_an_admin_names_accounts_one_by_one() -> None:
    """Root's too, by that name alone; who is not named has what is usual, or what `*` says."""
    rule = {"boss": "root", "ana.b@uni.example": "ana", "x": "shared", "y": "shared", "none": ""}
    assert runs_as(rule, "boss") == RunsAs("root")
    assert runs_as(rule, "ana.b@uni.example") == RunsAs("ana")
    assert runs_as(rule, "x") == RunsAs("shared", is_shared=True)
    assert runs_as(rule, "none").account == ""
    assert runs_as(rule, "grace") == RunsAs("grace")
    assert runs_as(rule, "root").account == ""
    assert runs_as({"*": "students"}, "anybody") == RunsAs("students", is_shared=True)
    assert runs_as({"ana": "students", "*": "students"}, "ana") == RunsAs("students", is_shared=True)
    assert runs_as({"*": "same"}, "grace", uid=990) == RunsAs("grace")


def test_an_account_that_is_named_for_somebody_is_not_had_by_choosing_its_name() -> None:
    """Ana of the university works as `ana`; who calls themselves ana at the hub has no part of that."""
    rule = {"ana.b@uni.example": "ana", "*": "same"}
    assert runs_as(rule, "ana").account == ""
    assert Accounts(rule, uid=0).owner_of("ana") == "ana.b@uni.example"
    # Who is named so for themselves has it.
    assert runs_as({"ana": "ana", "*": "same"}, "ana") == RunsAs("ana")


OWNERS: list[tuple[Any, str, int, str | None]] = [
    ("same", "ana", 1001, "ana"),
    ("same", "root", 0, None),
    ("same", "postgres", 108, None),
    ("service", "jupyterhub", 990, None),
    ({"*": "students"}, "students", 1001, None),
    ({"a@uni": "ana"}, "ana", 1001, "a@uni"),
    ({"a@uni": "ana", "b@uni": "ana"}, "ana", 1001, None),
    ({"a@uni": "ana", "*": "ana"}, "ana", 1001, None),
    # Ana works as somebody else, so the account of her name is not hers.
    ({"ana": "gpu1"}, "ana", 1001, None),
    # An admin who means it says so.
    ({"boss": "root"}, "root", 0, "boss"),
]


@pytest.mark.parametrize(("rule", "account", "uid", "owner"), OWNERS)
def test_an_account_says_whose_a_process_is_only_where_it_is_one_users_alone(
    rule: Any, account: str, uid: int, owner: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the name service is not asked for it: this is looked at with every reading."""
    monkeypatch.setattr(accounts, "pwd", None)
    assert Accounts(rule, uid=990 if rule == "service" else 0).owner_of_process(account, uid) == owner


def test_a_user_may_run_as_the_account_that_the_rule_gives_them() -> None:
    """What a process says of itself is not even shown where this says that it cannot be."""
    mixed = Accounts({"ana": "gpu1", "*": "students"}, uid=0)
    assert mixed.may_run_as("ana", "gpu1")
    assert mixed.may_run_as("ben", "students")
    assert not mixed.may_run_as("ana", "students")
    assert not Accounts("same", uid=0).may_run_as("ana", "ben")
    assert Accounts("service", uid=990).may_run_as("anybody", "jupyterhub")


@pytest.mark.parametrize("rule", ["root", "Same", ["same"], {"ana": 0}, {1: "ana"}, None])
def test_a_rule_that_cannot_be_meant_is_refused(rule: object) -> None:
    """At the start, with what may be written."""
    with pytest.raises(InvalidAsk, match="account_of_user"):
        Accounts(rule, uid=0)


def test_a_shared_account_accuses_and_shows_nobody() -> None:
    """Whose a process is tells only the work that it belongs to."""
    world = World(Policy())
    use = Use(pid=1, kind=UseKind.USER, user="jupyterhub")
    assert is_of(world, use, Caller(name="ana", account="jupyterhub"))
    assert not is_of(world, use, Caller(name="ana", account="jupyterhub", shares_account=True))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, which runs work as others; run the tests as root")
def test_who_has_no_account_may_reserve_and_hears_why_no_job_starts(tmp_runtime: Places) -> None:
    """403 with the setting that an admin would write."""

    async def story() -> None:
        async with a_service(tmp_runtime.runtime_dir, accounts={"ghost": "no-such-account"}) as it:
            it.service.gate.accounts._uid = 0
            for name in ("root", "somebody@uni.example", "ghost"):
                client = it.as_(it.hub.add(name, *CONTRACTOR))
                job = {"kind": "job", "spec": {"argv": ["true"], "folder": "/tmp"}}
                answer = await client.post("/workloads", json=job)
                assert (answer.status_code, answer.json()["code"]) == (403, "not-allowed")
                assert "GpuBroker.account_of_user" in answer.json()["hint"]
                asked = await client.post("/workloads", json={"kind": "reservation"})
                assert asked.status_code in (201, 202)

    play(story)


# -- where it stands


def environ(**more: str) -> dict[str, str]:
    """What a hub says."""
    return {**FakeHub(url="http://127.0.0.1:8081").environ(8790), **more}


@pytest.mark.parametrize(
    ("prefix", "base", "meant"),
    [
        ("/services/jupyter-gpu/", "/", ("/services/jupyter-gpu", "")),
        ("/j/services/jupyter-gpu/", "/j/", ("/j/services/jupyter-gpu", "/j")),
        ("//j//services//jupyter-gpu", "j", ("/j/services/jupyter-gpu", "/j")),
        ("", "/a/b/", ("/a/b/services/jupyter-gpu", "/a/b")),
        ("", "", ("/services/jupyter-gpu", "")),
    ],
)
def test_a_prefix_is_read_however_it_is_written(prefix: str, base: str, meant: tuple[str, str]) -> None:
    """With or without slashes around it, and made of the name where the hub does not say it."""
    place = read_place(environ(JUPYTERHUB_SERVICE_PREFIX=prefix, JUPYTERHUB_BASE_URL=base))
    assert (place.prefix, place.base) == meant


@pytest.mark.parametrize(
    "url",
    ["127.0.0.1:8790", "http://", "http://127.0.0.1:notaport", "http+unix://%2Frun%2Fs", "http://[bad", "ftp://x:1"],
)
def test_a_place_where_nobody_can_listen_is_refused(url: str) -> None:
    """Named, with what would do."""
    with pytest.raises(InvalidAsk, match="JUPYTERHUB_SERVICE_URL") as refused:
        read_place(environ(JUPYTERHUB_SERVICE_URL=url))
    assert "port=8790" in (refused.value.hint or "")


def test_internal_tls_needs_its_files(tmp_path: Any) -> None:
    """Each is named where it is missing or cannot be read."""
    url = {"JUPYTERHUB_SERVICE_URL": "https://127.0.0.1:8790"}
    with pytest.raises(InvalidAsk, match="JUPYTERHUB_SSL_KEYFILE"):
        read_place(environ(**url))
    names = {f"JUPYTERHUB_SSL_{it}": str(tmp_path / it) for it in ("KEYFILE", "CERTFILE", "CLIENT_CA")}
    with pytest.raises(InvalidAsk, match="cannot be read"):
        read_place(environ(**url, **names))
