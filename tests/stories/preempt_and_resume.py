"""The story of the house: trainings fill the devices, a reservation of higher right comes, nothing is lost.

The same telling serves `make demo`, which prints it as it happens, and the test, which asserts each step of it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jupyter_gpu
from jupyter_gpu.model import Ask, EventView, JobSpec, Kind, SubmitBody, WorkloadView

from .scene import Broker, Script, steps_in, this_process, until

Tell = Callable[[str], None]

#: What `jupyter gpu events ID` prints for a training that made room once. Nothing of others stands there.
EVENTS = [
    "submitted",
    "granted",
    "started (1)",
    "evicted (preempted)",
    "released",
    "requeued",
    "granted",
    "started (2)",
    "released",
    "ended (succeeded)",
]

POLICY: dict[str, object] = {
    "queues": [
        {"name": "interactive", "priority": 100, "kinds": ["reservation"]},
        {
            "name": "training",
            "priority": 50,
            "kinds": ["job"],
            "preemptible": True,
            "protected_seconds": 0,
            "grace_seconds": "30s",
        },
    ],
    "kill_after_seconds": 5,
}


@dataclass(frozen=True)
class Played:
    """How it went: everything that the proofs need."""

    training: WorkloadView
    reservation: WorkloadView
    history: list[EventView]
    folder: Path
    undisturbed: str
    disturbed: str

    @property
    def events(self) -> list[str]:
        """The names of what happened to the training."""
        return [named(event) for event in self.history]

    def durable_steps(self) -> list[int]:
        """The steps of the log, in order."""
        return [step for _, step in steps_in(self.folder / "steps.jsonl")]

    def attempts(self) -> set[int]:
        """The attempts that ran steps."""
        return {attempt for attempt, _ in steps_in(self.folder / "ran.jsonl")}

    def repeated_steps(self) -> int:
        """How many steps were run again."""
        ran = [step for _, step in steps_in(self.folder / "ran.jsonl")]
        return len(ran) - len(set(ran))


def play(
    broker: Broker,
    root: Path,
    script: Script,
    *,
    devices: int,
    steps: int = 40,
    step_seconds: float = 0.05,
    grace_seconds: int | None = None,
    tell: Tell = lambda _: None,
    while_held: Callable[[], None] = lambda: None,
) -> Played:
    """Fill `devices` with trainings, reserve one for a person, and follow the one that had to yield to its end."""
    client = broker.client
    undisturbed = _run_undisturbed(root / "undisturbed", script, steps)
    tell(f"Undisturbed, {script.name} ends with the weights {undisturbed[:16]}...")
    folders = [root / f"training-{number}" for number in range(devices)]
    jobs = [
        _submit(broker, folder, script.argv(folder, steps=steps, step_seconds=step_seconds), grace_seconds)
        for folder in folders
    ]
    for folder, job in zip(folders, jobs, strict=True):
        tell(f"Job {job.id} trains in the background.")
        until(lambda folder=folder: len(steps_in(folder / "ran.jsonl")) >= 3, "the training makes steps")
    tell(f"All {devices} GPUs are busy. Now a person asks for one: `jupyter gpu reserve 1 --for 5m`.")
    ask = SubmitBody(kind=Kind.RESERVATION, ask=Ask(devices=1, duration_seconds=300), holder=this_process())
    reservation = client.submit(ask)
    tell(f"Reservation {reservation.id} waits: {client.workload(reservation.id).reason}")
    reservation = client.wait(reservation.id, until="active", timeout_seconds=60)
    victim = next(job for job in jobs if client.workload(job.id).preemptions)
    folder = folders[jobs.index(victim)]
    tell(f"Job {victim.id} saved and yielded at step {len(steps_in(folder / 'ran.jsonl'))} of {steps}.")
    tell(f"Reservation {reservation.id} holds {', '.join(reservation.devices)}; the person works.")
    while_held()
    tell(f"The person gives it back: `jupyter gpu release {reservation.id}`.")
    client.release(reservation.id)
    reservation = client.wait(reservation.id, until="ended", timeout_seconds=60)
    training = client.wait(victim.id, until="ended", timeout_seconds=120)
    tell(f"Job {training.id} resumed by itself as attempt {training.attempt} and ended: {training.end}.")
    for job in jobs:
        client.wait(job.id, until="ended", timeout_seconds=120)
    return Played(
        training=training,
        reservation=reservation,
        history=list(client.events(training.id)),
        folder=folder,
        undisturbed=undisturbed,
        disturbed=script.result(folder),
    )


def named(event: EventView) -> str:
    """One event as `jupyter gpu events` names it."""
    return f"{event.event} ({event.note})" if event.note else event.event


def _submit(broker: Broker, folder: Path, argv: list[str], grace_seconds: int | None) -> WorkloadView:
    folder.mkdir(parents=True)
    spec = JobSpec(
        argv=tuple(argv),
        folder=str(folder),
        environment={"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(jupyter_gpu.__file__).parent.parent)},
        grace_seconds=grace_seconds,
    )
    return broker.client.submit(SubmitBody(kind=Kind.JOB, name="digits", spec=spec))


def _run_undisturbed(folder: Path, script: Script, steps: int) -> str:
    folder.mkdir(parents=True)
    argv = script.argv(folder, steps=steps, step_seconds=0)
    subprocess.run(argv, cwd=folder, check=True, capture_output=True, timeout=120)
    return script.result(folder)


def problems(played: Played, *, repeated_at_most: int = 0, steps: int = 40) -> list[str]:
    """What of the story did not come true, a sentence each."""
    found = []
    if played.events != EVENTS:
        found.append(f"the events were {played.events}, not {EVENTS}")
    if played.durable_steps() != list(range(1, steps + 1)):
        found.append(f"the step log does not name every step exactly once: {played.durable_steps()}")
    if played.repeated_steps() > repeated_at_most:
        found.append(f"{played.repeated_steps()} steps were run again, more than {repeated_at_most}")
    if played.attempts() != {1, 2}:
        found.append(f"steps were run by the attempts {sorted(played.attempts())}, not by 1 and 2")
    if played.disturbed != played.undisturbed:
        found.append(f"the weights are {played.disturbed}, not {played.undisturbed}")
    return found
