"""What a submission must bring, and what is kept of it."""

import asyncio
import base64
import os
import stat
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from jupyter_gpu.broker.api.account import Account, Looks, account_of
from jupyter_gpu.broker.api.scripts import LARGEST_BYTES, Scripts, safe_name
from jupyter_gpu.broker.api.submit import look_at
from jupyter_gpu.errors import InvalidAsk, LimitExceeded, NotAllowed
from jupyter_gpu.model import Script, unpack_bytes
from tests.conftest import Places

from .api_ground import ME, an_api, job, play

T = TypeVar("T")
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user; run the tests as root")
US = Account(ME, os.geteuid(), os.getegid())
NOBODY = Account("nobody", 65534, 65534)


def as_account(account: Account, look: Callable[[], T]) -> T | None:
    """Look as somebody."""
    return asyncio.run(Looks().look(account, look, look))


def script(content: bytes, name: str = "train.py") -> dict[str, str]:
    """A script as it is sent."""
    return {"name": name, "content": base64.b64encode(content).decode()}


def test_a_script_is_kept_as_it_was(tmp_runtime: Places) -> None:
    """Byte for byte, for its account alone, at a place named by its content: again costs nothing."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            body = job("python3", "train.py", spec={"script_index": 1}, script=script(b"\xff\0print()"))
            for _ in range(2):
                assert (await broker.as_("ada").post("/workloads", json=body)).is_success
            copies = {it.spec.script_copy for it in broker.loop.world.workloads.values() if it.spec}
            assert len(copies) == 1
            copy = Path(copies.pop() or "")
            assert copy.read_bytes() == b"\xff\0print()"
            assert copy.is_relative_to(broker.state / "scripts")
            assert (stat.S_IMODE(copy.stat().st_mode), stat.S_IMODE(copy.parent.stat().st_mode)) == (0o400, 0o711)
            assert [path.name for path in (broker.state / "scripts").iterdir()] == [copy.parent.name]

    play(story)


def test_a_caller_cannot_name_the_copy(tmp_runtime: Places) -> None:
    """The engine opens the copy, so its place is never the caller's word; without a script there is none."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            body = job("sh", spec={"script_copy": "/etc/shadow", "script_index": 0})
            assert (await broker.as_("ada").post("/workloads", json=body)).is_success
            spec = broker.loop.world.workloads[1].spec
            assert spec is not None
            assert (spec.script_copy, spec.script_index) == (None, None)

    play(story)


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("train.py", "train.py"),
        ("../../etc/passwd", "passwd"),
        ("/abs/x.sh", "x.sh"),
        ("..", "script"),
        ("", "script"),
        (".hidden", "hidden"),
        ("-rf", "rf"),
        ("a b\n\x1b[2J;rm é.py", "a_b___2J_rm__.py"),
        ("c:\\windows\\x.py", "x.py"),
        ("a/", "a"),
        ("x" * 300 + ".py", "x" * 97 + ".py"),
        ("\0", "_"),
    ],
)
def test_a_script_name_is_only_a_name(name: str, kept: str) -> None:
    """No path, no sign that a shell or a terminal would obey, never empty, its ending kept."""
    assert safe_name(name) == kept


def a_script(content: bytes) -> Script:
    """A script of some content."""
    return Script(name="x.py", content=content)


def test_a_copy_that_was_changed_is_made_anew(tmp_path: Path) -> None:
    """Its owner can write what they like into it; the next submission runs what was submitted."""
    scripts = Scripts(tmp_path, set)
    first = scripts.keep(a_script(b"1"), US)
    first.chmod(0o600)
    first.write_bytes(b"2")
    assert scripts.keep(a_script(b"1"), US).read_bytes() == b"1"
    first.unlink()
    first.symlink_to("/etc/passwd")
    assert scripts.keep(a_script(b"1"), US).read_bytes() == b"1"
    assert not first.is_symlink()
    assert [path.name for path in (tmp_path / "scripts").iterdir()] == [first.parent.name]
    assert [path.name for path in first.parent.iterdir()] == ["x.py"]


@AS_ROOT
def test_a_copy_belongs_to_who_runs_it_and_its_folder_to_us(tmp_path: Path) -> None:
    """The account reads its file and can put nothing beside or in place of it; nobody else reads or lists anything."""
    scripts = Scripts(tmp_path, set)
    copy = scripts.keep(a_script(b"1"), NOBODY)
    assert (copy.stat().st_uid, stat.S_IMODE(copy.stat().st_mode)) == (65534, 0o400)
    for folder in (copy.parent, copy.parent.parent):
        assert (folder.stat().st_uid, stat.S_IMODE(folder.stat().st_mode)) == (0, 0o711)
    tmp_path.chmod(0o711)
    for folder in tmp_path.parents:
        if folder.stat().st_uid == 0 and folder != Path("/tmp"):
            folder.chmod(stat.S_IMODE(folder.stat().st_mode) | 0o011)
    assert as_account(NOBODY, copy.read_bytes) == b"1"
    for attempt in (
        copy.unlink,
        lambda: copy.rename(copy.parent / "other"),
        (copy.parent / "deep").mkdir,
        lambda: list(copy.parent.iterdir()),
        lambda: os.utime(copy.parent, (0, 0)),
    ):
        with pytest.raises(PermissionError):
            as_account(NOBODY, attempt)
    with pytest.raises(PermissionError):
        as_account(Account("daemon", 1, 65534), copy.read_bytes)
    assert scripts.keep(a_script(b"1"), US) != copy


def aged(*copies: Path) -> None:
    """Make copies look as if they had been kept long ago."""
    for copy in copies:
        os.utime(copy.parent, (0, 0))


def test_copies_that_no_job_needs_are_forgotten(tmp_path: Path) -> None:
    """What a job needs stays, what a submission is just using, and what is young."""
    needed: set[str] = set()
    scripts = Scripts(tmp_path, lambda: needed)
    old, kept, used, young = (scripts.keep(a_script(text), US) for text in (b"1", b"2", b"3", b"4"))
    needed.add(str(kept))
    for copy in (old, kept, young):
        scripts.done((copy,), may_go=False)
    aged(old, kept, used)
    assert scripts.sweep(older_than_seconds=3600) == 1
    assert [copy.exists() for copy in (old, kept, used, young)] == [False, True, True, True]
    assert Scripts(tmp_path / "none", set).sweep(older_than_seconds=0) == 0


def test_what_stands_in_the_way_of_tidiness_is_passed_by(tmp_path: Path) -> None:
    """However deep a tree somebody left: it is told and left, and the other copies go."""
    scripts = Scripts(tmp_path, set)
    old, other = (scripts.keep(a_script(text), US) for text in (b"1", b"2"))
    for copy in (old, other):
        scripts.done((copy,), may_go=False)
    before = Path.cwd()
    try:
        os.chdir(old.parent)
        for _ in range(1200):
            Path("d").mkdir()
            os.chdir("d")
    finally:
        os.chdir(before)
    aged(old, other)
    assert scripts.sweep(older_than_seconds=3600) == 1
    assert (old.parent.exists(), other.parent.exists()) == (True, False)
    subprocess.run(["rm", "-rf", str(old.parent)], check=True)


def test_a_refused_submission_leaves_no_copy(tmp_runtime: Places) -> None:
    """Unless another job runs the same; what was accepted keeps its own."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            body = job("python3", "x.py", spec={"script_index": 1}, script=script(b"1", "x.py"))
            copies = broker.state / "scripts"
            answer = await broker.as_("ada").post("/workloads", json=body | {"queue": "no-such-queue"})
            assert (answer.is_success, list(copies.iterdir())) == (False, [])
            assert (await broker.as_("ada").post("/workloads", json=body)).is_success
            assert not (await broker.as_("ada").post("/workloads", json=body | {"queue": "no-such-queue"})).is_success
            assert len(list(copies.iterdir())) == 1

    play(story)


def test_the_copies_of_one_account_are_bounded(tmp_path: Path) -> None:
    """What jobs need counts, what they need no more goes first, and a broker that was restarted counts the same."""
    needed: set[str] = set()
    scripts = Scripts(tmp_path, lambda: needed, most_bytes=10)
    first, second = (scripts.keep(a_script(text * 4), US) for text in (b"1", b"2"))
    needed.add(str(first))
    for copy in (first, second):
        scripts.done((copy,), may_go=False)
    third = scripts.keep(a_script(b"3333"), US)
    assert (first.exists(), second.exists(), third.exists()) == (True, False, True)
    for ours in (scripts, Scripts(tmp_path, lambda: {str(first), str(third)}, most_bytes=10)):
        with pytest.raises(LimitExceeded, match="8 bytes"):
            ours.keep(a_script(b"4444"), US)
    assert scripts.keep(a_script(b"1111"), US) == first


def test_a_script_too_large_is_refused(tmp_path: Path) -> None:
    """With its size, and what to do instead."""
    with pytest.raises(InvalidAsk, match=str(LARGEST_BYTES + 1)):
        Scripts(tmp_path, set).keep(a_script(b"x" * (LARGEST_BYTES + 1)), US)


def test_a_submission_that_could_not_start_is_refused(tmp_runtime: Places) -> None:
    """A folder that is gone, a command that is not found, one that may not be run: now, by name, not later."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            plain = tmp_runtime.state_dir / "plain.txt"
            plain.write_text("x")
            plain.chmod(0o644)
            for spec, said in (
                ({"folder": "/nowhere/at/all"}, "/nowhere/at/all"),
                ({"folder": "/etc/passwd"}, "/etc/passwd"),
                ({"argv": ["no-such-command-xyz"]}, "no-such-command-xyz"),
                ({"argv": ["true"], "environment": {"PATH": "/nowhere"}}, "'true'"),
                ({"argv": ["./true"]}, "./true"),
                ({"argv": [str(plain)]}, str(plain)),
                ({"argv": ["/tmp"]}, "/tmp"),
                ({"argv": ["true", "x" * 131_072]}, "131072"),
            ):
                answer = await broker.as_("ada").post("/workloads", json=job(spec=spec))
                assert (answer.status_code, said in answer.json()["message"]) == (422, True), answer.text
            assert not broker.loop.world.workloads

    play(story)


def test_argv_arrives_byte_for_byte(tmp_runtime: Places) -> None:
    """Signs that shells obey, empty words, bytes that are no text: all as they were (Nukesor/pueue#182)."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            words = ["bash", "-c", "sleep 1 && echo yo", "*", "$HOME", "a b", "", "\n", ";rm x", "base64:/w=="]
            await broker.as_("ada").post("/workloads", json=job(*words, name="run(c=1,2)#1 'é'"))
            it = broker.loop.world.workloads[1]
            assert it.spec is not None
            assert [unpack_bytes(word) for word in it.spec.argv] == [*(w.encode() for w in words[:-1]), b"\xff"]
            assert it.name == "run(c=1,2)#1 'é'"

    play(story)


def test_kernel_marks_and_secrets_stay_out_of_the_store(tmp_runtime: Places) -> None:
    """What leaks from a kernel is dropped and named; what the user gave by name passes (PmagPy/PmagPy#919)."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            environment = {
                "MPLBACKEND": "module://matplotlib_inline.backend_inline",
                "CUDA_VISIBLE_DEVICES": "0",
                "JUPYTERHUB_API_TOKEN": "s3cret",
                "JPY_PARENT_PID": "7",
                "HF_TOKEN": "given",
                "WANDB_API_KEY": "s3cret",
                "OMP_NUM_THREADS": "4",
            }
            answer = await broker.as_("ada").post(
                "/workloads?keep=HF_TOKEN", json=job(spec={"environment": environment})
            )
            spec = answer.json()["spec"]
            assert {name for name in spec["environment"] if name != "PATH"} == {"HF_TOKEN", "OMP_NUM_THREADS"}
            assert set(spec["recorded"]["environment_dropped"].split()) == {
                "MPLBACKEND", "CUDA_VISIBLE_DEVICES", "JUPYTERHUB_API_TOKEN", "JPY_PARENT_PID", "WANDB_API_KEY",
            }  # fmt: skip
            assert b"s3cret" not in b"".join(path.read_bytes() for path in broker.state.iterdir() if path.is_file())

    play(story)


@AS_ROOT
def test_folders_are_looked_at_with_the_users_own_eyes(tmp_path: Path) -> None:
    """Root's eyes see into private homes: a caller learns only what they could see, and nothing else changes."""
    private = tmp_path / "private"
    (private / "inner").mkdir(parents=True)
    private.chmod(0o700)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and folder != Path("/tmp"):  # pytest's own folders are private too
            folder.chmod(stat.S_IMODE(folder.stat().st_mode) | 0o011)
    inner = os.fsencode(private / "inner")

    assert as_account(US, lambda: look_at(inner, None, b"/bin"))
    with pytest.raises(InvalidAsk, match="inner"):
        as_account(NOBODY, lambda: look_at(inner, None, b"/bin"))
    assert as_account(NOBODY, lambda: look_at(b"/tmp", b"true", b"/usr/bin:/bin"))
    (private / "inner" / "true").symlink_to("/bin/true")
    with pytest.raises(InvalidAsk, match="not found"):
        as_account(NOBODY, lambda: look_at(b"/tmp", b"true", inner))
    with pytest.raises(InvalidAsk, match="cannot be entered"):
        as_account(NOBODY, lambda: look_at(os.fsencode(private), None, b"/bin"))
    assert (private / "inner").is_dir()
    assert os.geteuid() == 0


def test_a_file_system_that_hangs_keeps_only_its_user_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a stated time they hear so; they have one look at a time, others look at once, and no more threads wait."""
    monkeypatch.setattr("jupyter_gpu.broker.api.account.ANSWERS_WITHIN_SECONDS", 0.2)
    monkeypatch.setattr(Account, "is_us", True)
    hangs, again = threading.Event(), []

    async def story() -> None:
        looks, before = Looks(), threading.active_count()
        slow = [looks.look(US, 0, hangs.wait), *(looks.look(US, n, lambda: again.append(1)) for n in range(1, 21))]
        gathering = asyncio.gather(*slow, return_exceptions=True)
        assert await looks.look(NOBODY, 0, lambda: "seen") == "seen"
        assert threading.active_count() <= before + 1
        told = await gathering
        assert ["did not answer" in str(it) for it in told] == [True] * 21
        assert not again
        hangs.set()
        assert await looks.look(US, 0, lambda: "seen") == "seen"
        with pytest.raises(NotAllowed):
            await looks.look(US, 0, lambda: account_of(""))

    asyncio.run(story())


def test_who_asks_for_the_same_at_once_shares_one_look() -> None:
    """As many jobs of one folder do; who goes away takes nothing from the others, and the next look is a new one."""
    looked: list[int] = []
    begun, go_on = threading.Event(), threading.Event()

    def look() -> int:
        looked.append(1)
        begun.set()
        go_on.wait()
        return len(looked)

    async def story() -> None:
        looks = Looks()
        same = [asyncio.create_task(looks.look(US, "folder", look)) for _ in range(20)]
        await asyncio.to_thread(begun.wait)
        same.pop(0).cancel()
        go_on.set()
        assert await asyncio.gather(*same) == [1] * 19
        assert await looks.look(US, "folder", look) == 2

    asyncio.run(story())


def test_a_long_path_is_searched_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """A PATH may name thousands of slow folders: the first are looked at, and beyond them a command gets its chance."""
    looked_at: list[bytes] = []
    monkeypatch.setattr("jupyter_gpu.broker.api.submit._is_program", lambda _, place: looked_at.append(place))
    assert look_at(b"/tmp", b"true", b":".join([b"/slow"] * 5000))
    assert len(looked_at) == 64
    with pytest.raises(InvalidAsk, match="not found"):
        look_at(b"/tmp", b"true", b":".join([b"/slow"] * 64))


def test_an_account_that_work_cannot_run_as_is_refused() -> None:
    """None at all, one that is not there, and whom this broker cannot become."""
    for name in ("", "no-such-user-xyz"):
        with pytest.raises(NotAllowed, match="account"):
            account_of(name)
    assert account_of(ME).is_us
