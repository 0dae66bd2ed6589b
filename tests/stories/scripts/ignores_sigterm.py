"""A training that ignores SIGTERM and looks for no notice; only SIGKILL ends it before its time.

It saves its state after every step (sync, rename), so a SIGKILL costs at most the step under way, and only
then logs that step. The state carries the log: what a kill kept out of the file (`--log`), the next start
appends.

What it proves: the end of the grace is enforced by SIGKILL, the device comes back, the job is requeued and
resumes. The step log names every step exactly once, in order, and the result equals that of an undisturbed
training bit for bit. `--ran`, written when a step runs, may repeat one step per kill: the work that was lost,
never more.
"""

import argparse
import hashlib
import json
import os
import random
import signal
import time
from pathlib import Path

JOB = os.environ.get("JUPYTER_GPU_JOB", "local")
ATTEMPT = int(os.environ.get("JUPYTER_GPU_ATTEMPT") or 0)


class Walk:
    """A value that each step changes by a random number; every step counts for its last bit."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.value = 1.0
        self.history: list[int] = []  # the attempt that ran each step

    def step(self) -> None:
        """Do one step."""
        self.value = self.value * 0.9 + self.rng.gauss(0, 1)
        self.history.append(ATTEMPT)

    def save(self, path: Path) -> None:
        """Replace the state file by a newer one, whole and durable."""
        state = {"value": self.value, "history": self.history, "rng": self.rng.getstate()}
        draft = path.with_name(path.name + ".tmp")
        with draft.open("w") as file:
            json.dump(state, file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)

    def load(self, path: Path) -> None:
        """Go on from the state file."""
        state = json.loads(path.read_text())
        self.value, self.history = state["value"], state["history"]
        version, numbers, gauss = state["rng"]
        self.rng.setstate((version, tuple(numbers), gauss))

    def result(self) -> str:
        """Give the exact result and its digest."""
        exact = self.value.hex()
        return json.dumps({"weights": exact, "sha256": hashlib.sha256(exact.encode()).hexdigest()}) + "\n"


def line(step: int, attempt: int) -> str:
    """Word one line of a step log."""
    return json.dumps({"job": JOB, "attempt": attempt, "step": step}) + "\n"


def append(path: Path | None, text: str) -> None:
    """Add to a log, if there is one."""
    if path is not None and text:
        with path.open("a") as file:
            file.write(text)


def catch_up(path: Path | None, history: list[int]) -> None:
    """Append the durable steps that the step log lacks."""
    if path is None:
        return
    there = path.read_text().splitlines() if path.exists() else []
    known = sum(1 for text in there if json.loads(text)["job"] == JOB)
    append(path, "".join(line(step, history[step - 1]) for step in range(known + 1, len(history) + 1)))


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--step-seconds", type=float, default=0.0, help="make each step last so long")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--state", type=Path, default=Path("ignores_sigterm.state.json"))
    parser.add_argument("--log", type=Path, help="step log: one JSON line per durable step")
    parser.add_argument("--ran", type=Path, help="one JSON line per step at the moment it ran")
    parser.add_argument("--out", type=Path, default=Path("ignores_sigterm.json"), help="the result")
    return parser.parse_args()


def main() -> None:
    """Train, log what is durable, and leave when asked to."""
    args = arguments()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    model = Walk(args.seed)
    if args.state.exists():
        model.load(args.state)
    catch_up(args.log, model.history)
    print(f"attempt {ATTEMPT} starts at step {len(model.history)}", flush=True)

    while len(model.history) < args.steps:
        model.step()
        append(args.ran, line(len(model.history), ATTEMPT))
        time.sleep(args.step_seconds)  # before the save: so a kill loses this step
        model.save(args.state)
        append(args.log, line(len(model.history), ATTEMPT))

    args.out.write_text(model.result())
    print(f"attempt {ATTEMPT} finished: {model.result()}", end="", flush=True)


if __name__ == "__main__":
    main()
