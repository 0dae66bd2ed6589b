"""Jobs of a real hub that runs as root: each is its user's own, and carries nothing of the hub's or the service's.

The accounts are real, the homes private, and the service is started by the hub with all the secrets that hubs give.
"""

from __future__ import annotations

import os
import pwd
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from jupyter_gpu.errors import InvalidAsk, NotAllowed
from jupyter_gpu.model import Ask, JobSpec, Kind, SubmitBody, WorkloadView
from tests.accounts import two_accounts

from .hub import CONTRACTOR, OPERATOR, Hub

pytestmark = [pytest.mark.story, pytest.mark.timeout(180)]

#: What a program in a server has, and no job may.
OF_A_SERVER = {
    "JUPYTERHUB_API_TOKEN": "token-of-the-server",
    "JUPYTERHUB_USER": "ana",
    "JPY_API_TOKEN": "token-of-old",
    "CONFIGPROXY_AUTH_TOKEN": "token-of-the-proxy",
    "JUPYTER_GPU_TOKEN": "token-for-gpus",
    "JUPYTER_GPU_URL": "http://the-service.example:1",
    "HOME": "/root",
    "USER": "root",
}


@pytest.fixture(scope="module")
def accounts() -> Iterator[tuple[str, str]]:
    """Those of ana and of ben."""
    with two_accounts() as names:
        yield names


@pytest.fixture(scope="module")
def hub(accounts: tuple[str, str]) -> Iterator[Hub]:
    """A hub whose service runs work as these."""
    with tempfile.TemporaryDirectory(prefix="jgh-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)
        made = Hub(Path(folder) / "hub")
        text = made.config.read_text()
        rule = "{'ana': %r, 'ben': %r, 'cho': 'no-such-account'}" % accounts  # noqa: UP031 - braces of its own
        start, _, rest = text.partition("'account_of_user': {")
        text = f"{start}'account_of_user': {rule}{rest.partition('}')[2]}".replace("'system': False", "'system': True")
        made.config.write_text(text)
        try:
            made.start()
            yield made
        finally:
            made.end()


@pytest.fixture
def home(hub: Hub, accounts: tuple[str, str]) -> Iterator[Path]:
    """A private folder of ana's."""
    with tempfile.TemporaryDirectory(dir=hub.root.parent) as folder:
        who = pwd.getpwnam(accounts[0])
        os.chown(folder, who.pw_uid, who.pw_gid)
        yield Path(folder)


def submit(hub: Hub, user: str, folder: Path, script: str, **spec: object) -> WorkloadView:
    """A job of a line of shell."""
    body = JobSpec(argv=("sh", "-c", script), folder=str(folder), **({"environment": {"PATH": "/usr/bin:/bin"}} | spec))
    return hub.as_(user).submit(SubmitBody(kind=Kind.JOB, ask=Ask(devices=1), spec=body))


def said(hub: Hub, user: str, folder: Path, script: str, **spec: object) -> str:
    """What a job printed."""
    it = submit(hub, user, folder, script, **spec)
    ended = hub.as_(user).wait(it.id, timeout_seconds=60)
    assert ended.end == "succeeded", ended
    return hub.as_(user).log(it.id).decode()


def test_a_job_is_its_users_through_and_through(hub, accounts, home):
    """Its numbers, groups, home and names; the files it makes in its private folder are that user's."""
    who = pwd.getpwnam(accounts[0])
    lines = said(hub, "ana", home, "id -u; id -g; id -G; echo $HOME $USER $LOGNAME; umask; touch mine").splitlines()
    groups = " ".join(map(str, os.getgrouplist(who.pw_name, who.pw_gid)))
    assert lines == [str(who.pw_uid), str(who.pw_gid), groups, f"{who.pw_dir} {who.pw_name} {who.pw_name}", "0022"]
    assert (home / "mine").stat().st_uid == who.pw_uid


def test_a_jobs_limits_are_those_that_its_hub_was_started_with(hub, home):
    """All but core dumps, which it has to ask for; the service may open more files, and hands that on to nobody."""

    def told(text: str) -> list[str]:
        return [line for line in text.splitlines() if not line.startswith("Max core file size")]

    assert told(said(hub, "ana", home, "cat /proc/self/limits")) == told(Path("/proc/self/limits").read_text())


def test_a_job_has_nothing_of_what_the_hub_gave_to_its_service_or_to_a_server(hub, home):
    """Not in its environment, and not in that of any process which its user may look at."""
    given = psutil.Process(hub.as_(OPERATOR).broker().pid).environ()
    secrets = {name: it for name, it in given.items() if "TOKEN" in name or "DIGEST" in name or "SECRET" in name}
    assert {"JUPYTERHUB_API_TOKEN", "JUPYTER_GPU_SPAWNER_DIGEST"} <= set(secrets)
    own = said(hub, "ana", home, "env", environment={"PATH": "/usr/bin:/bin", "MINE": "1"} | OF_A_SERVER)
    around = said(hub, "ana", home, "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'; true")

    names = {line.partition("=")[0] for line in own.splitlines()}
    assert "MINE" in names
    assert not [name for name in names if name.startswith(("JUPYTERHUB_", "JPY_", "CONFIGPROXY_"))]
    for secret in (*secrets.values(), *(it for name, it in OF_A_SERVER.items() if name not in ("HOME", "USER"))):
        if len(secret) > len("ana"):
            assert secret not in own
            assert secret not in around


def test_nobody_reads_what_the_service_keeps(hub, home):
    """Its store, others' logs and scripts, the hub's cookie secret: of all that is the hub's only the way is open."""
    it = submit(hub, "ben", Path("/tmp"), "echo of ben")
    hub.as_("ben").wait(it.id, timeout_seconds=60)
    found = said(hub, "ana", home, f"find {hub.root}/state -type f -readable 2>/dev/null; true").splitlines()
    assert [line for line in found if not line.endswith(("/notice.json", "/run_copy.py"))] == []


def test_a_folder_is_seen_with_its_users_eyes(hub, home):
    """Before anything is kept: ana's private folder is nobody's to submit from but hers."""
    with pytest.raises(InvalidAsk, match=str(home)):
        submit(hub, "ben", home, "true")
    with pytest.raises(InvalidAsk, match="/root"):
        submit(hub, "ana", Path("/root"), "true")


def test_who_has_no_account_is_told_so(hub, home):
    """Whose account is not there, and who was given none; root's is nobody's."""
    for user in ("cho", CONTRACTOR):
        with pytest.raises(NotAllowed, match="account"):
            submit(hub, user, home, "true")
    assert said(hub, "ana", home, "id -un").strip() != "root"
