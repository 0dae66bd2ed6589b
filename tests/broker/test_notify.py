"""People are told of their jobs: by whom they name, at least once, whatever becomes of the broker in between."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import msgspec
import pytest

from jupyter_gpu import notifying, spawn
from jupyter_gpu.broker.api.views import show
from jupyter_gpu.broker.auth import account_name
from jupyter_gpu.broker.engines import errand as broker_errand
from jupyter_gpu.broker.loop import Loop
from jupyter_gpu.broker.notify import MARK, MARK_SECONDS, MOST_NEWS, OLD_SECONDS, Notifier
from jupyter_gpu.core.advice import advice
from jupyter_gpu.core.lifecycle import evolve
from jupyter_gpu.core.news import is_wanted, news_of
from jupyter_gpu.errors import InvalidAsk
from jupyter_gpu.hearing import KEPT_BYTES
from jupyter_gpu.model import (
    AddRecurring,
    Ask,
    Caller,
    Cancel,
    EndReason,
    Fire,
    Holder,
    JobSpec,
    Kind,
    Outcome,
    Scope,
    SeeExited,
    SeeStarted,
    Submit,
)
from jupyter_gpu.notifying import Errand, Message, News
from jupyter_gpu.units import format_when
from tests.world import CRASHED, SAVED, Play, a_spec

from .ground import Clock, a_loop, succeeded

NEWS = News(id="store:7", at=1.0, what="ended", workload=12, name="digits", owner="ada", text="job 12 succeeded.")
MESSAGE = Message(text=NEWS.text, news=(NEWS,))


def errand(to: str, environ: dict[str, str], message: Message = MESSAGE) -> spawn.Finished:
    """Do one errand as the broker has it done."""
    text = msgspec.json.encode(Errand(to=to, message=message)).decode()
    return spawn.run([sys.executable, "-m", "jupyter_gpu.notifying"], 60, text=text, environ=environ)


class Hook(HTTPServer):
    """A web hook that answers what it is told to, and keeps what it got."""

    def __init__(self, *statuses: int) -> None:
        self.statuses, self.got, self.goes_on = list(statuses), [], False
        super().__init__(("127.0.0.1", 0), _Handler)
        Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hooks/secret"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        hook = self.server
        hook.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(hook.statuses.pop(0) if hook.statuses else 200)
        self.end_headers()
        with contextlib.suppress(OSError):
            while hook.goes_on:
                self.wfile.write(bytes(1 << 16))

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A user whose home is empty."""
    return {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}


def write_file(environ: dict[str, str], text: str) -> None:
    """The user's own notify.toml."""
    place = notifying.file_of(environ)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text, encoding="utf-8")


# -- the process that tells


def test_a_command_gets_the_document_and_the_words(environ, tmp_path):
    """On its standard input, and for short scripts in variables; the command is no shell's."""
    out = tmp_path / "told; rm -rf x"
    program = tmp_path / "tell"
    program.write_text('#!/bin/sh\n(cat; echo "$JUPYTER_GPU_NEWS_TEXT/$JUPYTER_GPU_NEWS_WORKLOAD") > "$1"\n')
    program.chmod(0o755)

    done = errand(f"{program} '{out}'", environ)

    assert done == (0, "", "")
    document, words = out.read_text().splitlines()
    assert msgspec.json.decode(document, type=Message) == MESSAGE
    assert words == "job 12 succeeded./12"


def test_a_web_hook_gets_it_after_a_refusal_that_passes(environ):
    """A chat that is being restarted answers 503 for a moment."""
    hook = Hook(503)

    assert errand(hook.url, environ).exit_code == 0
    assert [it["text"] for it in hook.got] == ["job 12 succeeded."] * 2


def test_an_address_that_is_wrong_is_not_tried_again_and_its_secret_stays_out_of_the_log(environ):
    """404 is an answer: the hook was removed. What stands behind the name of the host may be a secret."""
    hook = Hook(404, 404, 404)

    done = errand(hook.url, environ)

    assert done.exit_code == 1
    assert done.errors == "127.0.0.1 answered 404\n"
    assert len(hook.got) == 1


def test_a_command_that_is_not_there_is_said_in_words_and_not_tried_again(environ):
    """Its log has one line of it, and no bare exit code."""
    assert errand("nosuchcmd foo", environ) == (1, "", "there is no command 'nosuchcmd'\n")


@pytest.mark.parametrize("stream", ["1", "2"])
def test_a_command_that_writes_into_the_pipes_of_who_tells_fills_nobody(environ, stream):
    """It is the same user's, so it can; the broker is not the one who keeps it."""
    code, output, errors = broker_errand.run(
        [sys.executable, "-m", "jupyter_gpu.notifying"],
        environ,
        60,
        text=msgspec.json.encode(
            Errand(to=f"sh -c 'head -c 100000000 /dev/zero > /proc/$PPID/fd/{stream}'", message=MESSAGE)
        ).decode(),
        is_heard=False,
    )
    assert code in (0, -signal.SIGKILL)
    assert len(output) + len(errors) < 2 * KEPT_BYTES


def test_a_command_that_hangs_is_not_tried_again(monkeypatch):
    """It holds up what else its owner is told, and may have told somebody already."""
    monkeypatch.setattr(notifying, "TRY_SECONDS", 0.2)
    assert notifying._tell("sleep 1000", MESSAGE) == ("sleep did not end in time", True)
    assert notifying._tell("false", MESSAGE) == ("false ended with 1: ", False)


def test_the_words_are_cut_where_a_variable_cannot_hold_them(environ, tmp_path):
    """Fifty pieces of news may be long; the document is whole all the same."""
    out, program = tmp_path / "told", tmp_path / "tell"
    program.write_text(f'#!/bin/sh\ncat > {out}; printf %s "$JUPYTER_GPU_NEWS_TEXT" | wc -c >> {out}\n')
    program.chmod(0o755)
    long = Message(text="é" * 100_000, news=(NEWS,))

    assert errand(str(program), environ, long) == (0, "", "")
    document, length = out.read_text().splitlines()
    assert msgspec.json.decode(document, type=Message) == long
    assert int(length) == notifying.LONGEST_VARIABLE_BYTES


def test_an_answer_without_end_is_not_read(environ):
    """A hook says it was told, and what else it says concerns nobody."""
    hook = Hook()
    hook.goes_on = True

    assert errand(hook.url, environ).exit_code == 0


def test_a_name_means_what_the_users_file_says(environ):
    """The address stands in the user's own file and nowhere else."""
    hook = Hook()
    write_file(environ, f'default = ["chat"]\non = ["ended"]\n[targets]\nchat = "{hook.url}"\n')

    assert errand("chat", environ).exit_code == 0
    assert len(hook.got) == 1
    assert notifying.wishes(environ) == notifying.Wishes(to=("chat",), on=("ended",))


def test_who_has_no_file_is_told_nothing_by_default(environ):
    """A file is nobody's duty."""
    assert notifying.wishes(environ) == notifying.Wishes()


@pytest.mark.parametrize("text", ["default = 3", "targets = {", 'default = ["chat"]\non = ["finished"]', "x" * 5])
def test_a_file_that_cannot_be_meant_is_said(environ, text):
    """At the submission, while somebody is there to mend it."""
    write_file(environ, text)

    with pytest.raises(InvalidAsk):
        notifying.wishes(environ)


@pytest.mark.parametrize(
    ("to", "on"),
    [
        (["https://ada:secret@example.org/"], []),
        (["http://"], []),
        (["http://[::1"], []),
        (["mail 'ada"], []),
        ([" "], []),
        (["mail\nrm"], []),
        (["x" * 3000], []),
        (["chat"] * 6, []),
        (["chat"], ["never"]),
    ],
)
def test_whom_nobody_can_be_told_by_is_refused_at_submission(to, on):
    """At night nobody would hear that nobody hears."""
    with pytest.raises(InvalidAsk):
        notifying.check(to, on)


# -- what is news


def texts(play: Play, id_: int, on: tuple[str, ...] = ()) -> list[str]:
    """What somebody is told of a job whose whole life is over, if they asked for these moments."""
    world = Play(policy=play.world.policy).world
    found = []
    for event in play.events:
        evolve(world, event)
        it = world.workloads.get(id_)
        told = news_of(world, it, event) if it is not None and getattr(event, "workload", None) == id_ else None
        if told is not None and is_wanted(told, on):
            found.append(told.text)
    return found


def test_a_life_with_a_preemption_is_told_in_sentences():
    """Who closed the laptop knows from them where the job stands, and that nothing has to be done."""
    play = Play(1)
    job = play.running(name="digits")
    play.later(3600)
    play.reservation()
    by = format_when(play[job].yield_by, play.now)
    play.exit(job, SAVED)

    assert texts(play, job) == [
        "job 1 (digits) has started, 0s after it was submitted.",
        (
            f"job 1 (digits) must yield by {by}. Makes room for reservation 2: queue interactive goes first. "
            "It goes on by itself when there is room."
        ),
    ]
    assert texts(play, job, ("ended", "failed")) == []


def test_an_attempt_that_is_repeated_and_the_last_one_are_failures():
    """Each says what becomes of the job."""
    play = Play(1)
    job = play.running(spec=a_spec(retries=1))
    play.exit(job, CRASHED)
    play.later(3600)
    play.start(job)
    play.exit(job, Outcome(end=EndReason.GPU_OOM, exit_code=1, detail="exit code 1; it asked for 20.00 MiB"))

    assert texts(play, job, ("failed",)) == [
        "Attempt 1 of job 1 failed: Failed. It is tried again.",
        "job 1 is over: gpu-oom. Exit code 1; it asked for 20.00 MiB. " + advice(play.world, play[job]),
    ]


def test_who_cancels_is_told_of_the_end_and_of_no_failure():
    """They know."""
    play = Play(1)
    job = play.running()
    play.do(Cancel(workload=job, by="ada"))
    play.exit(job, SAVED)

    assert texts(play, job, ("failed",)) == []
    assert texts(play, job, ("ended",)) == ["job 1 is over: cancelled. Cancelled by ada."]


# -- the broker


def a_job(command: str = "", on: tuple[str, ...] = (), **words: object) -> Submit:
    """A job of this account, which tells by a command."""
    spec = JobSpec(argv=("train",), folder="/", notify=(command,) if command else (), notify_on=on)
    return Submit(kind=Kind.JOB, owner="ada", account=account_name(os.geteuid()), ask=Ask(), spec=spec, **words)  # type: ignore[arg-type]


async def run(loop: Loop, job: Submit) -> int:
    """Let a job run and end well; its number."""
    id_ = (await loop.handle(job)).workload
    assert id_ is not None
    await loop.handle(SeeStarted(workload=id_, attempt=1, holder=Holder(kind="attempt", name=f"{id_}.1")))
    await loop.handle(SeeExited(workload=id_, attempt=1, outcome=succeeded(), clear=True))
    return id_


@pytest.fixture
def teller(tmp_path: Path) -> tuple[str, Callable[[], list[dict]]]:
    """A command that keeps what it is told, one document a line; and what it has been told so far."""
    out, program = tmp_path / "told", tmp_path / "tell"
    program.write_text(f"#!/bin/sh\ncat >> '{out}'\n")
    program.chmod(0o755)

    def told() -> list[dict]:
        return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []

    return str(program), told


async def settled(notifier: Notifier) -> None:
    """Wait until all that can be told now was told."""
    if notifier._looking_back is not None:
        await notifier._looking_back
    while notifier._running:
        await asyncio.gather(*notifier._running)


def test_an_owner_is_told_what_they_asked_for(tmp_path, teller):
    """And nobody of a job that names nobody."""
    command, told = teller

    async def story() -> None:
        async with a_loop(tmp_path / "state") as (loop, _):
            notifier = Notifier(loop)
            await notifier.start()
            await run(loop, a_job(command, ("ended",)))
            await run(loop, a_job())
            await settled(notifier)
            await notifier.close()

    asyncio.run(story())
    assert [[news["what"] for news in it["news"]] for it in told()] == [["ended"]]
    assert told()[0]["news"][0]["owner"] == "ada"


def test_who_could_not_be_told_sees_it_at_the_job_until_they_can(tmp_path, teller, caplog):
    """And the log has one sentence of it."""
    command, _ = teller

    async def story() -> list[str]:
        async with a_loop(tmp_path / "state") as (loop, _):
            notifier = Notifier(loop)
            await notifier.start()
            await run(loop, a_job("nosuchcmd --token 5ecret", ("ended",)))
            await settled(notifier)
            callers = [Caller(name=name, account=name, scopes=frozenset({Scope.READ})) for name in ("ada", "grace")]
            found = [show(loop, loop.world.workloads[1], caller).untold for caller in callers]
            await run(loop, a_job(command, ("ended",)))
            await settled(notifier)
            await notifier.close()
            return [*found, *loop.untold.values()]

    why = "by nosuchcmd: there is no command 'nosuchcmd'"
    assert asyncio.run(story()) == [why, "", why]
    assert "ada was not told by nosuchcmd: there is no command 'nosuchcmd'. It was: job 1" in caplog.text
    assert "5ecret" not in caplog.text


def test_many_at_once_are_one_message(tmp_path, teller):
    """While one is being told the others gather."""
    command, told = teller

    async def story() -> None:
        async with a_loop(tmp_path / "state") as (loop, _):
            notifier = Notifier(loop)
            await notifier.start()
            for _ in range(MOST_NEWS + 20):
                await run(loop, a_job(command, ("ended",)))
            await settled(notifier)
            await notifier.close()

    asyncio.run(story())
    assert len({news["workload"] for it in told() for news in it["news"]}) >= MOST_NEWS
    assert len(told()) < MOST_NEWS


def test_what_a_broker_did_not_tell_the_next_one_tells(tmp_path, teller):
    """A kill between the commit and the message loses nothing; what was told is not told again."""
    command, told = teller

    async def killed() -> None:
        async with a_loop(tmp_path / "state") as (loop, _):
            notifier = Notifier(loop)
            await notifier.start()
            await run(loop, a_job(command, ("ended",)))
            await settled(notifier)
            await notifier.close()
            await run(loop, a_job(command, ("ended",)))  # nobody hears of this one

    async def next_one() -> None:
        async with a_loop(tmp_path / "state") as (loop, _):
            notifier = Notifier(loop)
            await notifier.start()
            await settled(notifier)
            await notifier.close()
            assert await loop.read(lambda store: store.mark(MARK)) == loop.world.revision

    asyncio.run(killed())
    asyncio.run(next_one())
    asyncio.run(next_one())
    assert [it["news"][0]["workload"] for it in told()] == [1, 2]
    assert len({it["news"][0]["id"] for it in told()}) == 2


def test_old_news_is_no_news(tmp_path, teller):
    """A broker that was down for a week does not wake anybody for it."""
    command, told = teller
    clock = Clock()

    async def story(begin: Callable[[Notifier, Loop], object]) -> None:
        async with a_loop(tmp_path / "state", clock=clock) as (loop, _):
            notifier = Notifier(loop)
            await begin(notifier, loop)
            await settled(notifier)
            await notifier.close()

    async def unheard(notifier: Notifier, loop: Loop) -> None:
        await notifier.start()
        await notifier.close()
        await run(loop, a_job(command, ("ended",)))

    asyncio.run(story(unheard))
    clock.now += 2 * OLD_SECONDS
    asyncio.run(story(lambda notifier, _: notifier.start()))
    assert told() == []


def test_a_target_that_fails_keeps_nobody_else(tmp_path, teller, caplog):
    """The next message is told, and the failure stands in the broker's log."""
    command, told = teller

    async def story() -> None:
        async with a_loop(tmp_path / "state") as (loop, _):
            notifier = Notifier(loop)
            await notifier.start()
            await run(loop, a_job("/nowhere/at-all", ("ended",)))
            await run(loop, a_job(command, ("ended",)))
            await settled(notifier)
            await notifier.close()

    asyncio.run(story())
    assert len(told()) == 1
    assert "ada was not told by /nowhere/at-all: there is no command" in caplog.text


def test_who_hangs_keeps_nobody_elses_news(tmp_path, teller):
    """Another owner is told while twenty targets of this one do not answer, of which one is tried."""
    command, told = teller
    pids = tmp_path / "pids"
    program = tmp_path / "hang"
    program.write_text(f"#!/bin/sh\necho $$ >> {pids}\nexec sleep 1000\n")
    program.chmod(0o755)

    async def story() -> None:
        async with a_loop(tmp_path / "state") as (loop, _):
            notifier = Notifier(loop)
            await notifier.start()
            for number in range(20):
                await run(loop, a_job(f"{program} {number}", ("ended",)))
            await run(loop, msgspec.structs.replace(a_job(command, ("ended",)), owner="grace"))
            while not (told() and pids.exists()):
                await asyncio.sleep(0.01)
            await notifier.close()

    asyncio.run(story())
    (pid,) = pids.read_text().split()
    assert told()[0]["news"][0]["owner"] == "grace"
    with contextlib.suppress(ProcessLookupError):  # the process that tells is gone, and nobody is left to end it
        os.kill(int(pid), signal.SIGKILL)


def test_how_far_all_was_told_is_written_also_where_nobody_is_told(tmp_path):
    """Else the next broker would read all of it again, and the one after that."""

    async def story() -> None:
        async with a_loop(tmp_path / "state") as (loop, _):
            notifier = Notifier(loop)
            await notifier.start()
            assert await loop.read(lambda store: store.mark(MARK)) == loop.world.revision
            await run(loop, a_job())
            await notifier.keep_up()
            before = await loop.read(lambda store: store.mark(MARK))
            notifier._marked_at -= MARK_SECONDS
            await notifier.keep_up()
            assert before < await loop.read(lambda store: store.mark(MARK)) == loop.world.revision
            await notifier.close()

    asyncio.run(story())


def test_nobody_waits_for_the_look_back(tmp_path, teller):
    """A broker that begins serves at once; what is to be told follows."""
    command, told = teller

    async def story(before: bool) -> None:
        async with a_loop(tmp_path / "state") as (loop, _):
            notifier = Notifier(loop)
            await notifier.start()
            if before:
                await notifier.close()
                loop.on_commit = lambda _: None
                for _ in range(3):
                    await run(loop, a_job(command, ("ended",)))
                return
            assert not told()
            assert await loop.read(lambda store: store.mark(MARK)) < loop.world.revision
            await run(loop, a_job(command, ("ended",)))
            await settled(notifier)
            assert await loop.read(lambda store: store.mark(MARK)) == loop.world.revision
            await notifier.close()

    asyncio.run(story(before=True))
    asyncio.run(story(before=False))
    assert sorted(news["workload"] for it in told() for news in it["news"]) == [1, 2, 3, 4]


def test_the_admins_command_is_told_of_everybodys_jobs(tmp_path, teller):
    """One document a call, as for alerts."""
    command, told = teller

    async def story() -> None:
        async with a_loop(tmp_path / "state") as (loop, _):
            notifier = Notifier(loop, command=[command])
            await notifier.start()
            await run(loop, a_job())
            await settled(notifier)
            await notifier.close()

    asyncio.run(story())
    assert [it["what"] for it in told()] == ["started", "ended"]


def test_who_waits_is_told_once_that_it_starts_soon(tmp_path, teller):
    """The one ahead has a time limit, so the start is expected; who has just come is not told."""
    command, told = teller
    clock = Clock()

    async def story() -> None:
        async with a_loop(tmp_path / "state", clock=clock) as (loop, _):
            notifier = Notifier(loop)
            await notifier.start()
            await loop.handle(msgspec.structs.replace(a_job(), ask=Ask(duration_seconds=500)))
            await loop.handle(a_job(command, ("starts-soon",)))
            notifier.look_ahead()
            assert not notifier._running
            clock.now += 100
            notifier.look_ahead()
            notifier.look_ahead()
            await settled(notifier)
            await notifier.close()

    asyncio.run(story())
    (only,) = told()
    assert only["text"].startswith("job 2 is expected to start by about")


def test_a_night_that_was_left_out_is_told(tmp_path, teller):
    """The last time's job was not over, so none came of this one: nobody would look for it."""
    command, told = teller
    clock = Clock()

    async def story() -> None:
        async with a_loop(tmp_path / "state", clock=clock) as (loop, _):
            notifier = Notifier(loop)
            await notifier.start()
            asked = a_job(command, ("left-out",), name="nightly")
            due_at = clock.now + 10
            await loop.handle(AddRecurring(cron="* * * * *", timezone="UTC", submit=asked, next_at=due_at))
            for _ in range(2):
                clock.now = due_at
                await loop.handle(Fire(recurring=1, due_at=due_at, next_at=due_at + 60))
                due_at += 60
            await settled(notifier)
            await notifier.close()

    asyncio.run(story())
    (only,) = told()
    assert only["text"] == (
        "recurring job 1 (nightly) did not run at its time: left out, since job 2 of the time before is not over."
    )
