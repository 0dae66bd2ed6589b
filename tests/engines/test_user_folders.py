"""What a job's start and end touch in a user's folders is touched as that user: it leads nowhere that they may not go.

Two real accounts, the second with a group of its own; homes are private, and hold what a user might put there.
"""

from __future__ import annotations

import contextlib
import grp
import json
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpu.checkpoints import newest_name
from jupyter_gpu.model import EndReason, Outcome
from tests.accounts import two_accounts
from tests.engines.bench import Bench, bench, scenario
from tests.engines.fences import ROOT, open_folder

#: A broker without root's power over files, as on a file system that squashes root; two jobs, one after the other.
SQUASHED = """
import asyncio, json, os, sys
from pathlib import Path
from tests.engines.bench import bench
place, work, user, script = sys.argv[1:]
async def main():
    async with bench(Path(place)) as it:
        for number in (1, 2):
            outcome = await it.run("sh", "-c", script, workload=number, account=user, folder=work,
                checkpoint_dir="kept", environment={"PATH": "/usr/bin:/bin"})
            print(json.dumps({"is_kept_out": not os.access(work, os.X_OK), "end": outcome.end.value,
                "log": it.log(number).decode(), "progressed": outcome.progressed}))
asyncio.run(main())
"""
WORDS = {"environment": {"PATH": "/usr/bin:/bin", "HOME": "/root", "USER": "root", "LOGNAME": "root", "SHELL": "x"}}


@pytest.fixture(scope="module")
def users() -> Iterator[tuple[str, str]]:
    """Two accounts."""
    with two_accounts() as names:
        yield names


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that other users reach."""
    with open_folder() as folder:
        yield folder


def private(folder: Path, account: str) -> Path:
    """A home as many are: nobody but its owner looks in."""
    who = pwd.getpwnam(account)
    folder.mkdir()
    os.chown(folder, who.pw_uid, who.pw_gid)
    folder.chmod(0o700)
    return folder


@contextlib.contextmanager
def member(user: str, other: str) -> Iterator[None]:
    """A user in another's group."""
    group = grp.getgrgid(pwd.getpwnam(other).pw_gid).gr_name
    subprocess.run(["gpasswd", "-a", user, group], check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["gpasswd", "-d", user, group], check=True, capture_output=True)


@contextlib.contextmanager
def masked(mask: int) -> Iterator[None]:
    """The umask of a broker."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


async def run(it: Bench, account: str, home: Path, script: str, **more: object) -> Outcome:
    """A job of this user, submitted from there."""
    return await it.run("sh", "-c", script, account=account, folder=str(home), **(WORDS | more))


@scenario
async def test_a_job_has_its_users_groups_home_and_a_plain_umask(place, users):
    """Every group that the name service knows, root's none; and what a login would set, whatever was sent."""
    user, other = users
    home = private(place / "home", user)
    who = pwd.getpwnam(user)
    with member(user, other), masked(0o077):
        async with bench(place) as it:
            outcome = await run(it, user, home, "id -u; id -g; id -G; umask; pwd; echo $HOME:$USER:$LOGNAME:$SHELL")
            said = it.log().decode().splitlines()
    assert outcome.end is EndReason.SUCCEEDED, outcome
    both = {who.pw_gid, pwd.getpwnam(other).pw_gid}
    assert said[:2] == [str(who.pw_uid), str(who.pw_gid)]
    assert set(map(int, said[2].split())) == both
    assert said[3:] == ["0022", str(home), f"{who.pw_dir}:{user}:{user}:{who.pw_shell}"]


@scenario
async def test_a_private_folder_is_entered_and_a_strangers_is_not(place, users):
    """Also where the folder was another when it was looked at, and a link leads to somebody else's now."""
    user, other = users
    home, theirs = private(place / "home", user), private(place / "theirs", other)
    async with bench(place) as it:
        assert (await run(it, user, home, "echo mine > mine")).end is EndReason.SUCCEEDED
        refused = await run(it, user, theirs, "true", workload=2)
        (place / "swapped").symlink_to(theirs)
        swapped = await run(it, user, place / "swapped", "true", workload=3)
    for outcome in (refused, swapped):
        assert outcome.end is EndReason.LAUNCH_FAILED
        assert "enter the folder" in outcome.detail
        assert "Permission denied" in outcome.detail
    assert (home / "mine").stat().st_uid == pwd.getpwnam(user).pw_uid
    assert list(theirs.iterdir()) == []


@pytest.mark.parametrize(
    "what", ["link to root's", "link to another's", "pipe", "file", "link to itself", "unreadable"]
)
@scenario
async def test_what_stands_in_the_place_of_checkpoints_is_no_way_for_anybody(place, users, what):
    """The job runs, what is not its user's stays as it was, and nobody waits."""
    user, other = users
    home, theirs = private(place / "home", user), private(place / "theirs", other)
    roots = place / "roots"
    roots.mkdir(mode=0o700)
    at = home / ".jupyter-gpu"
    if what == "pipe":
        os.mkfifo(at)
    elif what == "file":
        at.write_text("mine")
    elif what == "unreadable":
        at.mkdir(mode=0)
    else:
        at.symlink_to({"link to root's": roots, "link to another's": theirs, "link to itself": at}[what])
    async with bench(place) as it:
        outcome = await run(it, user, home, "echo ran; echo x > $JUPYTER_GPU_CHECKPOINT_DIR/x || echo nowhere")
        assert outcome.end is EndReason.SUCCEEDED, outcome
        assert it.log().splitlines()[::2] == [b"ran", b"nowhere"]
    assert list(roots.iterdir()) == list(theirs.iterdir()) == []
    assert os.path.lexists(at)


@pytest.mark.parametrize("what", ["link", "link above", "pipe", "huge", "device"])
@scenario
async def test_a_marker_that_leads_elsewhere_is_no_checkpoint(place, users, what):
    """Root's own, whose content would do, is not read for a user; nor is anything without an end."""
    user, _ = users
    home = private(place / "home", user)
    secret = place / "secret"
    secret.mkdir(mode=0o700)
    (secret / "COMPLETE").write_text(json.dumps({"step": 7, "files": {}}))
    step = home / "mine" / "step-000000000007"
    step.mkdir(parents=True)
    marker = step / "COMPLETE"
    if what == "link":
        marker.symlink_to(secret / "COMPLETE")
    elif what == "link above":
        step.rmdir()
        step.symlink_to(secret)
    elif what == "pipe":
        os.mkfifo(marker)
    elif what == "device":
        marker.symlink_to("/dev/zero")
    else:
        with marker.open("wb") as file:
            file.truncate(1 << 40)
    os.chown(home / "mine", pwd.getpwnam(user).pw_uid, -1)
    assert newest_name(home / "mine")[0] == (step.name if what == "link above" else None)  # with root's eyes
    async with bench(place) as it:
        outcome = await run(it, user, home, "echo ${JUPYTER_GPU_RESUME_FROM:-anew}", checkpoint_dir="mine")
        assert outcome.end is EndReason.SUCCEEDED, outcome
        assert it.log() == b"anew\n"
        assert not outcome.progressed


@pytest.mark.parametrize("saves", [True, False])
def test_where_root_may_do_nothing_the_user_still_may(place, users, saves):
    """A home on a server that takes root for nobody: entered, written to, resumed from and looked into all the same."""
    if shutil.which("setpriv") is None:
        pytest.skip("the program setpriv is not there")
    user, _ = users
    home = private(place / "home", user)
    work = private(home / "work", user)
    script = "d=$JUPYTER_GPU_CHECKPOINT_DIR/step-000000000003; echo ${JUPYTER_GPU_RESUME_FROM:-anew}; cat secret; "
    script += 'mkdir -p $d; echo \'{"step": 3, "files": {}}\' > $d/COMPLETE; ' if saves else ""
    (work / "secret").write_text("mine\n")
    os.chown(work / "secret", pwd.getpwnam(user).pw_uid, -1)
    (work / "secret").chmod(0o600)
    words = [
        "setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner,-chown", sys.executable, "-c", SQUASHED,
        str(place), str(work), user, script,
    ]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stderr
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    kept = f"{work}/kept/step-000000000003\n"
    assert first == {"is_kept_out": True, "end": "succeeded", "log": "anew\nmine\n", "progressed": saves}
    assert second["log"] == (kept if saves else "anew\n") + "mine\n"
