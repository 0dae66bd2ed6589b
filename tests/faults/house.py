"""A house under attack: a broker's folders, the broker in a process of its own, means to ask and to kill it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import psutil

from jupyter_gpu.broker.engines import aftermath, files, procs
from jupyter_gpu.broker.store.rows import snapshot_of
from jupyter_gpu.broker.store.store import Store
from jupyter_gpu.model import Ask, JobSpec, Kind, Policy, QueuePolicy, Release, Submit, Workload, World
from jupyter_gpu.paths import machine_id

PYTHON = (sys.executable, "-I", "-S", "-c")
PATIENCE_SECONDS = 45.0  # less than a test may take, so that it says what it waited for

#: No protected time and a short grace: stories of seconds.
QUICK_QUEUES = (
    QueuePolicy(name="interactive", priority=100, kinds=(Kind.RESERVATION,), longest_seconds=12 * 3600),
    QueuePolicy(name="training", priority=50, kinds=(Kind.JOB,), preemptible=True, grace_seconds=20),
)
QUICK = {"queues": msgspec.to_builtins(QUICK_QUEUES), "kill_after_seconds": 1, "clear_seconds": 2}


class Died(Exception):  # noqa: N818 - what happened to the broker, and no error of the test
    """The broker is dead, or died before it answered."""


def _bare() -> dict[str, str]:
    """The environment of a new account."""
    strays = ("JUPYTER", "CUDA_", "NVIDIA_", "XDG_", "SLURM_")
    return {name: value for name, value in os.environ.items() if not name.startswith(strays)}


class Zygote:
    """Forks brokers; see `broker_child`."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.broker_child"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2], env=_bare(),
        )  # fmt: skip

    def fork(self, order: dict[str, Any]) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._turn:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()
            return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


class House:
    """The folders of one broker, and the broker."""

    def __init__(
        self, zygote: Zygote, *, devices: int = 1, policy: dict[str, Any] | None = None, **traits: Any
    ) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="jg-"))
        self.state = self.root / "state"
        self.work = self.root / "work"
        self.config = self.root / "config.py"
        self.work.mkdir()
        self.root.chmod(0o755)
        self.work.chmod(0o777)
        self.traits: dict[str, Any] = {
            "simulated_devices": devices,
            "state_dir": str(self.state),
            "runtime_dir": str(self.root / "run"),
            "policy": QUICK if policy is None else policy,
            "idle_seconds": 0,
            **traits,
        }
        self._zygote = zygote
        self._pidfd: int | None = None
        self._line: Any = None
        self.pid = 0
        #: How often a broker was started.
        self.starts = 0
        #: How often it looks at the clock where nothing is due; None as ever.
        self.tick_seconds: float | None = None

    # -- the broker

    def start(self, kill: str | None = None, *, seconds: float = PATIENCE_SECONDS, **how: Any) -> str:
        """Start a broker and wait until it answers or is dead; what it said of itself, "" where it said nothing."""
        self._forget_process()
        ready = self.root / f"ready.{self.starts}"
        os.mkfifo(ready)
        hears = os.open(ready, os.O_RDONLY | os.O_NONBLOCK)
        self.starts += 1
        self.configure()
        order = {
            "argv": [f"--config={self.config}"], "log": str(self.root / "broker.log"), "ready": str(ready),
            "control": str(self.root / "control"), "kill": kill, "tick_seconds": self.tick_seconds, **how,
        }  # fmt: skip
        self.pid = self._zygote.fork(order)
        try:
            self._pidfd = os.pidfd_open(self.pid)
            return _first_line(hears, self._pidfd, seconds)
        except ProcessLookupError:
            return _first_line(hears, None, 0)
        finally:
            os.close(hears)

    def configure(self, **changes: Any) -> None:
        """Write the config file."""
        self.traits |= changes
        self.config.write_text("".join(f"c.GpuBroker.{name} = {value!r}\n" for name, value in self.traits.items()))

    @property
    def is_alive(self) -> bool:
        """Whether the broker runs."""
        return self._pidfd is not None and not select.select([self._pidfd], [], [], 0)[0]

    def wait_dead(self, seconds: float = PATIENCE_SECONDS) -> bool:
        """Wait for the end of the broker."""
        return self._pidfd is None or bool(select.select([self._pidfd], [], [], seconds)[0])

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Signal the broker and wait until it is gone."""
        if self.is_alive:
            os.kill(self.pid, number)
            assert self.wait_dead()

    def log(self) -> str:
        """What the brokers have said."""
        path = self.root / "broker.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _hang_up(self) -> None:
        if self._line is not None:
            with contextlib.suppress(OSError):  # what was not sent yet is lost with the broker
                self._line.close()
            self._line = None

    def _forget_process(self) -> None:
        self._hang_up()
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None

    # -- questions

    def ask(self, do: str, **request: Any) -> Any:
        """Ask the broker; Died where it does not live to answer."""
        try:
            if self._line is None:
                with socket.socket(socket.AF_UNIX) as line:
                    line.connect(str(self.root / "control"))
                    self._line = line.makefile("rwb")
            self._line.write(json.dumps({"do": do, **request}).encode() + b"\n")
            self._line.flush()
            said = self._line.readline()
        except OSError as error:
            self._hang_up()
            raise Died from error
        if not said:
            self._hang_up()
            raise Died
        answer = json.loads(said)
        if isinstance(answer, dict) and "error" in answer:
            raise AssertionError(answer)
        return answer

    def sure(self, do: str, **request: Any) -> Any:
        """Ask until a broker lives long enough to answer; a dead one is followed by one that nobody kills."""
        for _ in range(5):
            with contextlib.suppress(Died):
                return self.ask(do, **request)
            self.wait_dead()
            self.start()
        raise AssertionError("no broker lives: " + self.log()[-2000:])

    def commands(self, *commands: Any) -> list[dict[str, Any]]:
        """Have commands decided in one go, whatever happens to the broker meanwhile."""
        return list(self.sure("commands", commands=[msgspec.to_builtins(command) for command in commands]))

    def submit(self, *commands: Submit) -> list[int]:
        """Submit, and give the ids."""
        answers = self.commands(*commands)
        assert all("workload" in it for it in answers), answers
        return [it["workload"] for it in answers]

    def release(self, workload: int) -> None:
        """Give a reservation back."""
        self.commands(Release(workload=workload, by="ada"))

    def wait(self, until: str, *workloads: int, seconds: float = PATIENCE_SECONDS) -> list[Workload]:
        """Wait until all are as wished, or ended."""
        found = self.sure("wait", workloads=list(workloads), until=until, seconds=seconds)
        return [msgspec.convert(it, Workload) for it in found]

    def look(self, workload: int) -> Workload:
        """One workload as it stands."""
        return self.wait("queued", workload, seconds=0)[0]

    def world(self) -> dict[str, Any]:
        """The broker's own view."""
        return dict(self.sure("world"))

    # -- what is on the disk

    def stored(self) -> World:
        """The world that a dead broker has left, both ways to it being one."""
        assert not self.is_alive
        store = Store.open(self.state, machine_id=machine_id(), now=time.time(), make=False)
        try:
            loaded, replayed = store.load(Policy()), store.replay(Policy())
        finally:
            store.close()
        assert facts(loaded) == facts(replayed)
        assert loaded.check() == []
        return loaded

    def events(self, workload: int | None = None) -> list[Any]:
        """The events of one workload, or all; the store may be in use."""
        store = Store.open(self.state, machine_id=machine_id(), now=time.time(), make=False)
        try:
            found = store.events_since(0, -1) if workload is None else store.events_of(workload, 0, -1)
        finally:
            store.close()
        return [record.event for record in found]

    def story_of(self, workload: int) -> list[str]:
        """The names of the events of one workload, as `jupyter gpu events` prints them."""
        return [type(event).__struct_config__.tag for event in self.events(workload)]

    def attempt(self, workload: int, attempt: int = 1) -> Path:
        """The folder of an attempt."""
        return self.state / "attempts" / f"{workload}.{attempt}"

    def mark(self, workload: int, attempt: int = 1) -> dict[str, Any]:
        """The started mark."""
        return files.read(str(self.attempt(workload, attempt) / files.MARK)) or {}

    def lines(self, name: str = "out") -> list[str]:
        """What jobs have appended to a file of the working folder."""
        path = self.work / name
        return path.read_text().splitlines() if path.exists() else []

    def wait_line(self, line: str, name: str = "out") -> None:
        """Wait until a job has written it."""
        until(lambda: line in self.lines(name), f"{line!r} in {name}")

    # -- the end

    def close(self) -> None:
        """End everything, also what a test has left running."""
        self.kill()
        self._forget_process()
        self.forget_jobs()
        shutil.rmtree(self.root, ignore_errors=True)

    def forget_jobs(self) -> None:
        """End what runs."""
        for folder in (self.state / "attempts").glob("[0-9]*.[0-9]*"):
            mark, spec = (files.read(str(folder / name)) for name in (files.MARK, files.SPEC))
            if mark and spec and mark.get("pid"):
                proc = procs.find(mark["pid"])
                if proc and proc.start_ticks == mark["start_ticks"]:
                    procs.send(proc, signal.SIGKILL)
                aftermath.clear(str(folder), spec, mark)


def facts(world: World) -> dict[str, Any]:
    """All that a world knows for good. Whose use was summed first is no part of it."""
    snapshot = snapshot_of(world)
    return msgspec.structs.asdict(snapshot) | {"usage": dict(snapshot.usage)}


def _first_line(hears: int, pidfd: int | None, seconds: float) -> str:
    """The line on a fifo; what is there when the writer has died."""
    said = b""
    deadline = time.monotonic() + seconds
    fds = [hears] + ([] if pidfd is None else [pidfd])
    while b"\n" not in said:
        readable = select.select(fds, [], [], max(0.0, deadline - time.monotonic()))[0]
        if not readable:
            break
        try:
            part = os.read(hears, 4096)
        except BlockingIOError:
            part = b""
        said += part
        if not part and pidfd in readable:
            break
        if not part:
            time.sleep(0.002)  # nobody has opened the other end yet, which select takes for readable
    return said.decode().strip()


def until(is_so: Callable[[], Any], what: str, seconds: float = PATIENCE_SECONDS) -> Any:
    """Look again and again until it is so; for what sends no word."""
    deadline = time.monotonic() + seconds
    while not (answer := is_so()):
        assert time.monotonic() < deadline, f"waited {seconds} s in vain: {what}"
        time.sleep(0.01)
    return answer


def job(house: House, argv: Sequence[str], *, key: str | None = None, owner: str = "ada", **more: Any) -> Submit:
    """A job of one device in the house's working folder."""
    ask = more.pop("ask", Ask(devices=1))
    spec = JobSpec(argv=tuple(argv), folder=more.pop("folder", str(house.work)), **more.pop("spec", {}))
    return Submit(
        kind=Kind.JOB, owner=owner, account=more.pop("account", me()), ask=ask, spec=spec, idempotency_key=key, **more
    )


def reservation(*, key: str | None = None, owner: str = "grace", devices: int = 1, **more: Any) -> Submit:
    """A reservation that nobody has attached to yet."""
    return Submit(kind=Kind.RESERVATION, owner=owner, ask=Ask(devices=devices), idempotency_key=key, **more)


def me() -> str:
    """The account that the tests run as."""
    import pwd

    return pwd.getpwuid(os.geteuid()).pw_name


def cpu_seconds(pid: int, *, over: float) -> float:
    """How much processor time a process takes in so long a time."""
    before = sum(psutil.Process(pid).cpu_times()[:2])
    time.sleep(over)
    return sum(psutil.Process(pid).cpu_times()[:2]) - before


def twice(lines: Sequence[str]) -> list[str]:
    """What stands there more than once."""
    return [line for line, count in Counter(lines).items() if count > 1]


@contextlib.contextmanager
def opened(zygote: Zygote, **settings: Any) -> Iterator[House]:
    """A house that is torn down at the end."""
    house = House(zygote, **settings)
    try:
        yield house
    finally:
        house.close()
