"""What the stories are played with: a real broker aside from the machine's own, real scripts, and their proofs."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from jupyter_gpu.broker.engines import procs
from jupyter_gpu.client import Client
from jupyter_gpu.errors import Conflict
from jupyter_gpu.model import Holder
from jupyter_gpu.spawn import start_broker
from tests.nvml.board import Board

SCRIPTS = Path(__file__).parent / "scripts"
#: Long enough for a busy machine; nothing waits for it unless something is wrong.
PATIENCE_SECONDS = 45


@dataclass(frozen=True)
class Script:
    """A training and how its proofs are read."""

    name: str
    #: Where the digest of the final weights stands, and how it is read.
    out: str
    digest: Callable[[Path], str]
    arguments: tuple[str, ...] = ()

    def argv(self, folder: Path, *, steps: int, step_seconds: float, seed: int = 0) -> list[str]:
        """Its command line, with everything it writes in `folder`."""
        return [
            sys.executable, str(SCRIPTS / self.name), "--steps", str(steps), "--step-seconds", str(step_seconds),
            "--seed", str(seed), "--log", str(folder / "steps.jsonl"), "--ran", str(folder / "ran.jsonl"),
            "--out", str(folder / self.out), *self.arguments,
        ]  # fmt: skip

    def result(self, folder: Path) -> str:
        """The digest of the final weights."""
        return self.digest(folder / self.out)


def _digest_beside(out: Path) -> str:
    return out.with_name(out.name + ".sha256").read_text().strip()


def _digest_inside(out: Path) -> str:
    return str(json.loads(out.read_text())["sha256"])


DIGITS = Script("train_digits.py", "weights.npz", _digest_beside, ("--every", "5"))
SIGTERM_ONLY = Script("sigterm_only.py", "result.json", _digest_inside)
IGNORES_SIGTERM = Script("ignores_sigterm.py", "result.json", _digest_inside)


def steps_in(path: Path) -> list[tuple[int, int]]:
    """The (attempt, step) pairs of a step log, in the order written."""
    if not path.exists():
        return []
    rows = [json.loads(text) for text in path.read_text().splitlines()]
    return [(row["attempt"], row["step"]) for row in rows]


def until(condition: Callable[[], object], what: str, *, seconds: float = PATIENCE_SECONDS) -> None:
    """Wait for something that nobody tells of; say what did not come true.

    What takes long to ask is asked less often: else the asking takes the processors from what is waited for.
    """
    asked = time.monotonic()
    deadline = asked + seconds
    while not condition():
        now = time.monotonic()
        assert now < deadline, f"not within {seconds} s: {what}"
        time.sleep(min(max(0.02, 3 * (now - asked)), 0.5))
        asked = time.monotonic()


def this_process() -> Holder:
    """The holder of a reservation that the story itself uses: a person at a shell, whom nobody ends."""
    me = procs.find(os.getpid())
    assert me is not None
    return Holder(kind="shell", name="story", pid=me.pid, start_ticks=me.start_ticks, boot_id=procs.boot_id())


@dataclass
class Broker:
    """A running broker of a story, with folders of its own."""

    client: Client
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def pid(self) -> int:
        """Its process."""
        return self.client.broker().pid

    def cli(self, *args: str) -> str:
        """What `jupyter gpu ARGS` prints."""
        argv = [sys.executable, "-m", "jupyter_gpu.cli", *args]
        done = subprocess.run(argv, env=self.environment, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


@contextlib.contextmanager
def a_broker(
    root: Path, *, devices: int | None, policy: dict[str, object], board: Board | None = None
) -> Iterator[Broker]:
    """Start the real broker aside from the machine's own, with so many simulated devices (None: the real ones).

    A `board` stands in for the real ones; then the machine's lock is not this broker's to take. At the end whatever
    still runs is cancelled and the broker is stopped.
    """
    config = root / "config"
    config.mkdir(parents=True, exist_ok=True)
    simulated = "" if devices is None else f"c.GpuBroker.simulated_devices = {devices}\n"
    lock = "" if board is None else f"c.GpuBroker.lock_file = {str(root / 'lock')!r}\n"
    (config / "jupyter_gpu_config.py").write_text(f"c.GpuBroker.policy = {policy!r}\n{simulated}{lock}")
    seen = {} if board is None else board.environment()
    environment = (
        os.environ
        | seen
        | {
            "JUPYTER_GPU_RUNTIME_DIR": str(root / "run"),
            "JUPYTER_GPU_STATE_DIR": str(root / "state"),
            # Whoever starts it again starts the same.
            "JUPYTER_CONFIG_PATH": str(config),
            "COLUMNS": "100",
        }
    )
    start_broker([], environ=environment)
    with Client(environ=environment) as client:
        try:
            yield Broker(client, environment)
        finally:
            _end(client)


def _end(client: Client) -> None:
    """Cancel what still runs or waits, and stop the broker whatever comes of that."""
    try:
        for it in client.workloads(mine=True, ended=False):
            with contextlib.suppress(Conflict):  # it has ended meanwhile
                client.cancel(it.id)
            client.wait(it.id, until="ended", timeout_seconds=60)
    finally:
        client.stop_broker()
