"""`make demo`: both stories in JupyterLab, on a getting-started notebook, with real processes.

With an NVIDIA driver it uses the real GPUs; without, four simulated ones, labelled wherever they are shown. `--check`
plays everything by itself, the story of preemption in the terminal and the notebook in a Chromium without a window, and
says what did not come true. `--terminal` plays the first of these for a person who watches.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import signal
import sys
import tempfile
import time
import webbrowser
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from jupyter_gpu.errors import GpuError

from .preempt_and_resume import EVENTS, POLICY, Tell, play, problems
from .scene import DIGITS, SCRIPTS, Broker, a_broker

SIMULATED = 4
STEPS = 60
#: The clock before each step.
INDENT = 9
MOST_COLUMNS = 100
NOTEBOOK = Path(__file__).parents[2] / "docs" / "getting-started.ipynb"
#: What the notebook reads beside it.
BESIDE = {NOTEBOOK.name: NOTEBOOK, "train_digits.py": SCRIPTS / "train_digits.py"}


def main() -> int:
    """Open the demo, or play it and say what did not come true."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="play all of it, headless, and say whether it came true")
    parser.add_argument("--terminal", action="store_true", help="play the story of preemption here")
    asked = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):  # a closed window, say: end as with Ctrl-C, and leave nothing
        signal.signal(number, signal.default_int_handler)
    console = Console(highlight=False)
    with tempfile.TemporaryDirectory(prefix="jg-demo-") as scratch:
        if not (asked.check or asked.terminal):
            return _open(console, Path(scratch))
        found = _tell(console, Path(scratch), is_check=asked.check)
        if asked.check:
            found += _play_in_the_browser(console, Path(scratch))
    for problem in found:
        console.print(f"[red]not true:[/] {problem}", soft_wrap=True)
    console.print("[red]The story did not come true.[/]" if found else "[green]Every step of the story came true.[/]")
    return 1 if found else 0


# -- in JupyterLab


def _open(console: Console, scratch: Path) -> int:
    """Serve JupyterLab until the person stops it."""
    from .lab import a_lab_server

    with _a_broker(console, scratch) as broker, a_lab_server(broker, scratch, notebooks=BESIDE) as server:
        address = server.address(NOTEBOOK.name)
        console.print("JupyterLab runs; Ctrl-C ends it and everything that it has started. Open:\n")
        console.print(f"  {address}\n", soft_wrap=True)
        with contextlib.suppress(webbrowser.Error):
            webbrowser.open(address)
        with contextlib.suppress(KeyboardInterrupt):
            return server.process.wait()
    return 0


def _play_in_the_browser(console: Console, scratch: Path) -> list[str]:
    """Run the notebook in Chromium, and look at the panel beside it."""
    from .in_lab import play_the_notebook
    from .lab import CHROMIUM, NO_CHROMIUM, a_browser, a_lab_server

    if CHROMIUM is None:
        return [f"the notebook was not played: it {NO_CHROMIUM}"]
    begun = time.monotonic()
    with (
        _a_broker(console, scratch / "lab") as broker,
        a_lab_server(broker, scratch, notebooks=BESIDE) as server,
        a_browser(server, broker.client, notebook=NOTEBOOK.name) as lab,
    ):
        return play_the_notebook(lab, _teller(console, begun, is_check=True))


# -- in the terminal


def _tell(console: Console, scratch: Path, *, is_check: bool) -> list[str]:
    tell = _teller(console, time.monotonic(), is_check=is_check)
    # Pictures and proofs are for who watches; what a check wants to know is whether they hold.
    pictures = Console(highlight=False, quiet=is_check)
    try:
        return _tell_the_story(pictures, tell, scratch)
    except (GpuError, AssertionError) as error:
        return [str(error)]


def _teller(console: Console, begun: float, *, is_check: bool) -> Tell:
    def tell(text: str) -> None:
        first, *rest = [text] if is_check else wrapped(text, console.width - INDENT)
        console.print(f"[dim]{time.monotonic() - begun:5.1f} s[/]  ", end="", soft_wrap=True)
        for line in (first, *(" " * INDENT + line for line in rest)):
            console.print(line, markup=False, soft_wrap=True)

    return tell


def wrapped(text: str, width: int) -> list[str]:
    """Break a sentence into lines, and never within a command: it is meant to be copied."""
    lines = [""]
    for word in re.findall(r"`[^`]*`\S*|\S+", text):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return lines


@contextlib.contextmanager
def _a_broker(console: Console, scratch: Path) -> Iterator[Broker]:
    devices = SIMULATED if _real_devices() == 0 else None
    with a_broker(scratch / "broker", devices=devices, policy=POLICY) as broker:
        count = len(broker.client.devices().items)
        kind = "simulated GPUs: this machine has no NVIDIA driver" if devices else "real GPUs"
        console.print(f"A broker with {count} {kind}.\n")
        yield broker


def _tell_the_story(console: Console, tell: Tell, scratch: Path) -> list[str]:
    with _a_broker(console, scratch) as broker:
        count = len(broker.client.devices().items)
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
