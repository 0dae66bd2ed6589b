"""`make demo`: the story of preemption and resumption, played with real processes and told as it happens.

With an NVIDIA driver it uses the real GPUs; without, four simulated ones, labelled wherever they are shown. `--check`
prints a line for each step and the verdict, and leaves the pictures out.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from jupyter_gpu.errors import GpuError

from .preempt_and_resume import EVENTS, POLICY, Tell, play, problems
from .scene import DIGITS, a_broker

SIMULATED = 4
STEPS = 60
#: The clock before each step.
INDENT = 9
MOST_COLUMNS = 100


def main() -> int:
    """Play it, print the proofs, and say what did not come true."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only a line for each step, and the verdict")
    is_check = parser.parse_args().check
    console = Console(highlight=False)
    begun = time.monotonic()

    def tell(text: str) -> None:
        first, *rest = [text] if is_check else wrapped(text, console.width - INDENT)
        console.print(f"[dim]{time.monotonic() - begun:5.1f} s[/]  ", end="", soft_wrap=True)
        for line in (first, *(" " * INDENT + line for line in rest)):
            console.print(line, markup=False, soft_wrap=True)

    # Pictures and proofs are for who watches; what a check wants to know is whether they hold.
    pictures = Console(highlight=False, quiet=is_check)
    with tempfile.TemporaryDirectory(prefix="jg-demo-") as scratch:
        try:
            found = _tell_the_story(pictures, tell, Path(scratch))
        except (GpuError, AssertionError) as error:
            found = [str(error)]
    for problem in found:
        console.print(f"[red]not true:[/] {problem}")
    console.print("[red]The story did not come true.[/]" if found else "[green]Every step of the story came true.[/]")
    return 1 if found else 0


def wrapped(text: str, width: int) -> list[str]:
    """Break a sentence into lines, and never within a command: it is meant to be copied."""
    lines = [""]
    for word in re.findall(r"`[^`]*`\S*|\S+", text):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return lines


def _tell_the_story(console: Console, tell: Tell, scratch: Path) -> list[str]:
    devices = SIMULATED if _real_devices() == 0 else None
    with a_broker(scratch / "broker", devices=devices, policy=POLICY) as broker:
        count = len(broker.client.devices().items)
        kind = "simulated GPUs: this machine has no NVIDIA driver" if devices else "real GPUs"
        console.print(f"A broker with {count} {kind}.\n")

        broker.environment["COLUMNS"] = str(min(console.width, MOST_COLUMNS))

        def show_status() -> None:
            console.print("\n[bold]jupyter gpu status[/]")
            console.print(broker.cli("status"), markup=False, soft_wrap=True)

        played = play(broker, scratch, DIGITS, devices=count, steps=STEPS, tell=tell, while_held=show_status)
        console.print()
        console.print(f"[bold]jupyter gpu events {played.training.id}[/]")
        console.print(broker.cli("events", str(played.training.id)), markup=False, soft_wrap=True)
        console.print("[bold]What proves it[/]")
        console.print(
            f"  steps that ran exactly once: {len(played.durable_steps())} of {STEPS}, none twice", soft_wrap=True
        )
        console.print(f"  weights undisturbed: {played.undisturbed}", soft_wrap=True)
        console.print(f"  weights preempted:   {played.disturbed}", soft_wrap=True)
        console.print(
            f"  the events are {'those' if played.events == EVENTS else 'NOT those'} of the test\n", soft_wrap=True
        )
        return problems(played, steps=STEPS)


def _real_devices() -> int:
    """How many GPUs the driver shows; 0 without one."""
    from jupyter_gpu.broker.telemetry.nvml import NvmlSource

    return len(NvmlSource().devices() or ())


if __name__ == "__main__":
    sys.exit(main())
