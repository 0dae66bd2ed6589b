"""A real training for the stories: a small network learns scikit-learn's digits, stops on notice, resumes.

What it proves: however often it is stopped, the step log names every step exactly once, in order, and the
final weights equal those of an undisturbed training bit for bit.

A step counts once it is durable, so the log of steps travels inside the checkpoint and the file (`--log`)
follows it: after each save, and at each start, what the file lacks is appended. Steps that a kill without
notice undid are run again and counted once. `--ran` appends each step at the moment it runs, durable or not:
the difference of the two files is repeated work, and with notice there is none.
"""

import argparse
import contextlib
import hashlib
import itertools
import json
import os
import time
from pathlib import Path

# Sums in another order differ in the last bit, so one thread. It counts only before numpy is imported.
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

from jupyter_gpu import training  # noqa: E402

training.should_stop()  # from here on a SIGTERM waits for us; the imports below take a while

import numpy as np  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402

JOB = os.environ.get("JUPYTER_GPU_JOB", "local")
ATTEMPT = int(os.environ.get("JUPYTER_GPU_ATTEMPT") or 0)
SIZES = (64, 32, 10)
Weights = dict[str, np.ndarray]


class Net:
    """Two layers, stochastic gradient descent with momentum; all of its state goes into a checkpoint."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.Generator(np.random.PCG64(seed))
        self.weights: Weights = {}
        for i, (n, m) in enumerate(itertools.pairwise(SIZES)):
            self.weights[f"w{i}"] = self.rng.normal(0, (2 / n) ** 0.5, (n, m))
            self.weights[f"b{i}"] = np.zeros(m)
        self.speed = {name: np.zeros_like(value) for name, value in self.weights.items()}
        self.history: list[int] = []  # the attempt that ran each step

    def forward(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Give the hidden layer and the odds of the ten digits."""
        w = self.weights
        hidden = np.maximum(x @ w["w0"] + w["b0"], 0)
        scores = hidden @ w["w1"] + w["b1"]
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        return hidden, odds / odds.sum(axis=1, keepdims=True)

    def step(self, images: np.ndarray, labels: np.ndarray) -> float:
        """Learn from one batch; the answer is its loss."""
        chosen = self.rng.choice(len(images), 128, replace=False)
        x, y = images[chosen], np.eye(SIZES[-1])[labels[chosen]]
        hidden, odds = self.forward(x)
        out = (odds - y) / len(x)
        back = (out @ self.weights["w1"].T) * (hidden > 0)
        slopes = {"w1": hidden.T @ out, "b1": out.sum(axis=0), "w0": x.T @ back, "b0": back.sum(axis=0)}
        for name, slope in slopes.items():
            self.speed[name] = 0.9 * self.speed[name] - 0.1 * slope
            self.weights[name] = self.weights[name] + self.speed[name]
        self.history.append(ATTEMPT)
        return float(-np.log((odds * y).sum(axis=1)).mean())

    def save(self, folder: Path) -> None:
        """Write everything that the next step depends on."""
        np.savez(folder / "weights.npz", **self.weights)
        np.savez(folder / "speed.npz", **self.speed)
        rest = {"rng": self.rng.bit_generator.state, "history": self.history}
        (folder / "rest.json").write_text(json.dumps(rest))

    def load(self, folder: Path) -> None:
        """Go on from a checkpoint."""
        with np.load(folder / "weights.npz") as weights, np.load(folder / "speed.npz") as speed:
            self.weights, self.speed = dict(weights), dict(speed)
        rest = json.loads((folder / "rest.json").read_text())
        self.rng.bit_generator.state = rest["rng"]
        self.history = rest["history"]

    def sha256(self) -> str:
        """A digest of the numbers, not of the file around them."""
        digest = hashlib.sha256()
        for name in sorted(self.weights):
            digest.update(name.encode() + self.weights[name].tobytes())
        return digest.hexdigest()


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


def pace(seconds: float) -> None:
    """Wait as if the step took longer, and stop waiting at a notice."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0 and not training.should_stop():
        time.sleep(min(left, 0.02))


def save_result(net: Net, out: Path) -> None:
    """The weights and, beside them, their digest; whole or not at all."""
    with contextlib.ExitStack() as undo:
        draft = out.with_name(f".{out.name}.{os.getpid()}")
        undo.callback(draft.unlink, missing_ok=True)
        with draft.open("wb") as file:
            np.savez(file, **net.weights)
        draft.replace(out)
    out.with_name(out.name + ".sha256").write_text(net.sha256() + "\n")


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--every", type=int, default=10, help="steps between two checkpoints")
    parser.add_argument("--step-seconds", type=float, default=0.0, help="least length of a step")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path, help="step log: one JSON line per durable step")
    parser.add_argument("--ran", type=Path, help="one JSON line per step at the moment it ran")
    parser.add_argument("--out", type=Path, default=Path("weights.npz"), help="final weights, and .sha256")
    parser.add_argument("--folder", type=Path, help="where these three lie, under their usual names")
    args = parser.parse_args()
    if args.folder:
        args.folder.mkdir(parents=True, exist_ok=True)
        names = {"log": "steps.jsonl", "ran": "ran.jsonl", "out": "weights.npz"}
        vars(args).update({name: args.folder / file for name, file in names.items()})
    return args


def main() -> None:
    """Train, log what is durable, and leave when asked to."""
    args = arguments()
    digits = load_digits()
    images, labels = digits.data / 16, digits.target
    net = Net(args.seed)
    found = training.latest()
    if found:
        net.load(found)
    catch_up(args.log, net.history)
    print(f"attempt {ATTEMPT} starts at step {len(net.history)}", flush=True)

    for step in range(training.step_of(found) + 1, args.steps + 1):
        loss = net.step(images, labels)
        append(args.ran, line(step, ATTEMPT))
        training.report(step, of=args.steps, loss=loss)
        pace(args.step_seconds)
        stop = training.should_stop()
        if stop or step % args.every == 0 or step == args.steps:
            with training.checkpoint(step) as folder:
                net.save(folder)
            catch_up(args.log, net.history)
        if stop and step < args.steps:
            print(f"attempt {ATTEMPT} saved step {step} and yields", flush=True)
            training.yield_now()

    save_result(net, args.out)
    right = float((net.forward(images)[1].argmax(axis=1) == labels).mean())
    print(f"attempt {ATTEMPT} finished: sha256 {net.sha256()} accuracy {right:.3f}", flush=True)
    training.finished()


if __name__ == "__main__":
    main()
