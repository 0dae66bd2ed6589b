"""A training that knows nothing of jupyter_gpu: it saves on SIGTERM, exits with 0, resumes from its own file.

It imports nothing of ours and looks for no notice file; it reads the job and the attempt from the environment
only to write them into the step log, which is the proof and not the training.

What it proves: the notice reaches a plain script as SIGTERM, its exit code 0 is not taken for success, and
the next attempt goes on where it stopped. The step log (`--log`) names every step exactly once, in order;
`--ran`, written at the moment a step runs, says the same; and the result equals that of an undisturbed
training bit for bit.
"""

import argparse
import hashlib
import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from types import FrameType

JOB = os.environ.get("JUPYTER_GPU_JOB", "local")
ATTEMPT = int(os.environ.get("JUPYTER_GPU_ATTEMPT") or 0)


class Stop:
    """Set by SIGTERM, read between steps."""

    asked = False

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        """Be the signal handler."""
        self.asked = True


class Line:
    """Learns y = 3x - 1 from noisy points, one point a step."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.slope, self.offset = 0.0, 0.0
        self.history: list[int] = []  # the attempt that ran each step

    def step(self) -> None:
        """Do one step."""
        x = self.rng.uniform(-1, 1)
        error = self.slope * x + self.offset - (3 * x - 1 + self.rng.gauss(0, 0.1))
        self.slope -= 0.1 * error * x
        self.offset -= 0.1 * error
        self.history.append(ATTEMPT)

    def save(self, path: Path) -> None:
        """Replace the state file by a newer one, whole and durable."""
        state = vars(self) | {"rng": self.rng.getstate()}
        draft = path.with_name(path.name + ".tmp")
        with draft.open("w") as file:
            json.dump(state, file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)

    def load(self, path: Path) -> None:
        """Go on from the state file."""
        state = json.loads(path.read_text())
        self.slope, self.offset, self.history = state["slope"], state["offset"], state["history"]
        version, numbers, gauss = state["rng"]
        self.rng.setstate((version, tuple(numbers), gauss))

    def result(self) -> str:
        """Give the exact result and its digest."""
        exact = json.dumps({"slope": self.slope.hex(), "offset": self.offset.hex()})
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
    parser.add_argument("--state", type=Path, default=Path("sigterm_only.state.json"))
    parser.add_argument("--log", type=Path, help="step log: one JSON line per durable step")
    parser.add_argument("--ran", type=Path, help="one JSON line per step at the moment it ran")
    parser.add_argument("--out", type=Path, default=Path("sigterm_only.json"), help="the result")
    return parser.parse_args()


def main() -> None:
    """Train, log what is durable, and leave when asked to."""
    args = arguments()
    stop = Stop()
    signal.signal(signal.SIGTERM, stop)
    model = Line(args.seed)
    if args.state.exists():
        model.load(args.state)
    catch_up(args.log, model.history)
    print(f"attempt {ATTEMPT} starts at step {len(model.history)}", flush=True)

    while len(model.history) < args.steps and not stop.asked:
        model.step()
        append(args.ran, line(len(model.history), ATTEMPT))
        until = time.monotonic() + args.step_seconds
        while (left := until - time.monotonic()) > 0 and not stop.asked:
            time.sleep(min(left, 0.02))

    model.save(args.state)
    catch_up(args.log, model.history)
    if len(model.history) < args.steps:
        print(f"attempt {ATTEMPT} saved step {len(model.history)}", flush=True)
        sys.exit(0)
    args.out.write_text(model.result())
    print(f"attempt {ATTEMPT} finished: {model.result()}", end="", flush=True)


if __name__ == "__main__":
    main()
