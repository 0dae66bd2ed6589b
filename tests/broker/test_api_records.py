"""What is kept of a job beside its script, who may read it, and how a job is submitted again as it was."""

import base64
import os
from pathlib import Path

import pytest

from jupyter_gpu.broker.api.account import Account
from jupyter_gpu.broker.api.scripts import MOST_RECORD_BYTES, Scripts, copies_of, read_copy
from jupyter_gpu.model import Cancel, JobSpec, Script, unpack_bytes
from tests.conftest import Places

from .api_ground import DESCRIPTION, ME, Served, an_api, job, play

US = Account(ME, os.geteuid(), os.getegid())
DIFF = b"--- a/x\n+++ b/x\n+\xff<script>alert(1)</script>\n"


def part(name: str, content: bytes) -> dict[str, str]:
    """A part of a record, as it is sent."""
    return {"name": name, "content": base64.b64encode(content).decode()}


def a_job(*arguments: str, script: bytes | None = b"print(1)", record: bool = True, **more) -> dict:
    """The body of a job with a script and a record."""
    body = job("python3", "train.py", *arguments, spec={"script_index": 1}, **more)
    if script is not None:
        body["script"] = part("train.py", script)
    if record:
        body["record"] = [part("diff", DIFF), part("packages", b"torch==2.3.1\n")]
    return body


def spec_of(broker: Served, number: int) -> JobSpec:
    """What a job runs."""
    spec = broker.loop.world.workloads[number].spec
    assert spec is not None
    return spec


async def end(broker: Served, number: int) -> None:
    """Let a job be over."""
    await broker.loop.handle(Cancel(workload=number, by="ada"))


# -- kept and given back


def test_the_record_is_given_back_byte_for_byte(tmp_runtime: Places) -> None:
    """With the script, by name; as a file to be saved, that no browser takes for a page."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            assert (await broker.as_("ada").post("/workloads", json=a_job())).is_success
            assert sorted(spec_of(broker, 1).kept) == ["diff", "packages"]
            for name, content in (("diff", DIFF), ("packages", b"torch==2.3.1\n"), ("script", b"print(1)")):
                answer = await broker.as_("ada").get(f"/workloads/1/record/{name}")
                assert answer.content == content
                assert answer.headers["Content-Type"] == "text/plain"
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                assert answer.headers["Content-Disposition"].startswith("attachment; ")

    play(story)


def test_the_description_names_each_part_of_a_path_once() -> None:
    """Else a client that is made from it has one word for the job and for the part of its record."""
    for path, verbs in DESCRIPTION["paths"].items():
        names = [it["name"] for it in verbs.get("parameters", ())]
        assert len(names) == len(set(names)) == path.count("{")


def test_a_record_is_its_owners_and_operators(tmp_runtime: Places) -> None:
    """To others it is refused, and a name that nothing was kept under is not found."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            await broker.as_("ada").post("/workloads", json=a_job())
            for name, status in (("ada", 200), ("oper", 200), ("grace", 403), ("logreader", 403)):
                assert (await broker.as_(name).get("/workloads/1/record/diff")).status_code == status
            answer = await broker.as_("ada").get("/workloads/1/record/spec")
            assert answer.status_code == 404
            assert answer.json()["hint"] == "Kept of it: script, diff, packages."
            assert (await broker.as_("ada").get("/workloads/2/record/diff")).status_code == 404

    play(story)


def test_a_copy_that_was_changed_is_not_given_for_what_was_submitted(tmp_runtime: Places) -> None:
    """Its owner can write into it; what is told of a job is what it was."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            await broker.as_("ada").post("/workloads", json=a_job())
            copy = Path(spec_of(broker, 1).kept["diff"])
            copy.chmod(0o600)
            copy.write_bytes(b"nothing differs")
            answer = await broker.as_("ada").get("/workloads/1/record/diff")
            assert (answer.status_code, "90 days" in answer.json()["hint"]) == (404, True)

    play(story)


def test_a_caller_cannot_say_where_a_record_lies(tmp_runtime: Places) -> None:
    """Else any file that the broker can read could be read through it."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            body = job("true", spec={"kept": {"diff": "/etc/shadow"}})
            assert (await broker.as_("ada").post("/workloads", json=body)).is_success
            assert spec_of(broker, 1).kept == {}

    play(story)


@pytest.mark.parametrize(
    ("names", "content"),
    [
        (["../x"], b""),
        (["script"], b""),
        (["diff", "diff"], b""),
        ([""], b""),
        (["Diff"], b""),
        ([f"part{n}" for n in range(9)], b""),
        (["diff"], b"x" * (MOST_RECORD_BYTES + 1)),
    ],
)
def test_a_record_that_no_face_sends_is_refused(tmp_runtime: Places, names: list[str], content: bytes) -> None:
    """Odd names, one name twice, too many parts, too much of them; nothing of it is kept."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            body = job("true", record=[part(name, content) for name in names])
            assert (await broker.as_("ada").post("/workloads", json=body)).status_code == 422
            assert not broker.loop.world.workloads
            assert not (broker.state / "scripts").exists()

    play(story)


def test_a_record_that_finds_no_room_refuses_no_job(tmp_path: Path) -> None:
    """A job can run without; what was left out is told. A script that finds none refuses it."""
    scripts = Scripts(tmp_path, set, most_bytes=10)
    kept = scripts.keep_all(Script(name="x.py", content=b"1234"), [Script(name="diff", content=b"x" * 20)], US)
    assert (kept.script is not None, kept.record, kept.left_out) == (True, {}, ("diff",))


def test_a_refused_submission_leaves_nothing_of_its_record(tmp_runtime: Places) -> None:
    """And what an earlier job left stays, although that job is over."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            copies = broker.state / "scripts"
            refused = a_job(script=b"print(2)") | {"queue": "no-such-queue"}
            assert not (await broker.as_("ada").post("/workloads", json=refused)).is_success
            assert list(copies.iterdir()) == []
            await broker.as_("ada").post("/workloads", json=a_job())
            await end(broker, 1)
            assert not (await broker.as_("ada").post("/workloads", json=a_job() | {"queue": "no-such"})).is_success
            assert len(list(copies.iterdir())) == 3

    play(story)


# -- how long


def test_copies_of_what_is_over_stay_for_a_while_and_so_many_bytes(tmp_path: Path) -> None:
    """Their age counts from the last look at which a job needed them; of too many the oldest go."""
    needed: set[str] = set()
    scripts = Scripts(tmp_path, lambda: needed)
    copies = [scripts.keep(Script(name="x.py", content=str(n).encode() * 4), US) for n in range(4)]
    scripts.done(copies, may_go=False)
    needed.add(str(copies[0]))
    for n, copy in enumerate(copies):
        os.utime(copy.parent, (1000 + n, 1000 + n))
    assert scripts.sweep(older_than_seconds=1e9 * 2, most_bytes=8) == 1
    assert [copy.exists() for copy in copies] == [True, False, True, True]
    needed.clear()
    assert scripts.sweep(older_than_seconds=3600) == 2
    assert [copy.exists() for copy in copies] == [True, False, False, False]


def test_a_record_is_needed_for_as_long_as_its_job_is_not_over() -> None:
    """All of its copies: what clears away asks for them by this one list."""
    spec = JobSpec(argv=("true",), folder="/w", script_copy="/s/1/x.py", kept={"diff": "/s/2/diff"})
    assert copies_of(spec) == ("/s/1/x.py", "/s/2/diff")
    assert copies_of(None) == ()


def test_a_copy_is_read_only_where_it_is_one(tmp_path: Path) -> None:
    """A link or a pipe in its place is none."""
    scripts = Scripts(tmp_path, set)
    copy = scripts.keep(Script(name="x.py", content=b"1"), US)
    assert read_copy(str(copy)) == Script(name="x.py", content=b"1")
    copy.unlink()
    assert read_copy(str(copy)) is None
    os.mkfifo(copy)
    assert read_copy(str(copy)) is None
    copy.unlink()
    copy.symlink_to("/etc/passwd")
    assert read_copy(str(copy)) is None


# -- again


def test_a_job_is_submitted_again_from_what_was_kept(tmp_runtime: Places) -> None:
    """With its script and its record, whatever became of the file; also when it is over."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            await broker.as_("ada").post("/workloads", json=a_job())
            await end(broker, 1)
            body = a_job("--lr", "0.01", script=None, record=False, again=1)
            assert (await broker.as_("ada").post("/workloads", json=body)).is_success
            first, second = spec_of(broker, 1), spec_of(broker, 2)
            assert (second.script_copy, second.kept) == (first.script_copy, first.kept)
            assert unpack_bytes(second.argv[-1]) == b"0.01"
            assert second.script_index == 1

    play(story)


def test_what_comes_with_the_ask_goes_before_what_was_kept(tmp_runtime: Places) -> None:
    """The folder may be another commit's by now: the record is then of what will run."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            await broker.as_("ada").post("/workloads", json=a_job())
            body = a_job(script=None, record=False, again=1)
            body["record"] = [part("packages", b"torch==2.4\n")]
            assert (await broker.as_("ada").post("/workloads", json=body)).is_success
            assert sorted(spec_of(broker, 2).kept) == ["packages"]
            answer = await broker.as_("ada").get("/workloads/2/record/packages")
            assert answer.content == b"torch==2.4\n"

    play(story)


def test_only_ones_own_job_is_submitted_again(tmp_runtime: Places) -> None:
    """An operator sees others' scripts and runs none of them as their own; what is not there is not found."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            await broker.as_("ada").post("/workloads", json=a_job())
            for name, again, status in (("oper", 1, 403), ("grace", 1, 403), ("ada", 7, 404)):
                body = a_job(script=None, record=False, again=again)
                assert (await broker.as_(name).post("/workloads", json=body)).status_code == status
            assert list(broker.loop.world.workloads) == [1]

    play(story)


def test_a_script_that_was_cleared_away_cannot_run_again(tmp_runtime: Places) -> None:
    """It is said, with what helps; a record that is gone is only missing."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            await broker.as_("ada").post("/workloads", json=a_job())
            await end(broker, 1)
            Path(spec_of(broker, 1).kept["diff"]).unlink()
            body = a_job(script=None, record=False, again=1)
            assert (await broker.as_("ada").post("/workloads", json=body)).is_success
            assert sorted(spec_of(broker, 2).kept) == ["packages"]
            await end(broker, 2)
            Path(spec_of(broker, 1).script_copy or "").unlink()
            answer = await broker.as_("ada").post("/workloads", json=body)
            assert answer.status_code == 409
            assert "cleared away" in answer.json()["message"]
            assert answer.json()["hint"].startswith("Submit the file anew.")

    play(story)


def test_again_with_a_key_is_one_job_however_often_it_is_sent(tmp_runtime: Places) -> None:
    """And the copies of both are the same ones."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            await broker.as_("ada").post("/workloads", json=a_job())
            await end(broker, 1)
            body = a_job(script=None, record=False, again=1)
            for _ in range(3):
                answer = await broker.as_("ada").post("/workloads", json=body, headers={"Idempotency-Key": "k"})
                assert answer.json()["id"] == 2
            assert len(list((broker.state / "scripts").iterdir())) == 3

    play(story)


def test_a_reservation_is_not_made_again_by_this(tmp_runtime: Places) -> None:
    """It runs nothing, so there is nothing to take of it."""

    async def story() -> None:
        async with an_api(tmp_runtime.runtime_dir) as broker:
            await broker.as_("ada").post("/workloads", json={"kind": "reservation"})
            for body in (a_job(script=None, record=False, again=1), {"kind": "reservation", "again": 1}):
                assert (await broker.as_("ada").post("/workloads", json=body)).status_code == 422
            assert list(broker.loop.world.workloads) == [1]

    play(story)
