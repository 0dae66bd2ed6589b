"""The stories as they are played in JupyterLab: the same telling for `make demo CHECK=1` and for the tests."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import Error as BrowserError

from .lab import Lab
from .preempt_and_resume import EVENTS

Tell = Callable[[str], None]

#: All cells together: trainings that are preempted and resume among them.
NOTEBOOK_MS = 240_000
_EVENT = re.compile(r"\b(?:submitted|granted|released|requeued|(?:started|evicted|ended) \([a-z0-9-]+\))")


def play_the_notebook(lab: Lab, tell: Tell = lambda _: None) -> list[str]:
    """Run the getting-started notebook from top to bottom; what of it did not come true, a sentence each."""
    lab.wait_for_kernel()
    lab.command("gpu:open-panel")
    lab.part("device").first.wait_for()
    count = lab.part("device").count()
    tell(f"JupyterLab is open; the panel shows {count} GPUs.")
    before = lab.part("device-memory").all_inner_texts()
    try:
        lab.run_all(timeout_ms=NOTEBOOK_MS)
    except (AssertionError, BrowserError) as error:
        return [f"a cell failed: {error}"]
    outputs = lab.outputs()
    tell("The notebook ran to its end: a GPU reserved and given back, trainings preempted and resumed.")
    found = _of_the_outputs(outputs)
    tell(outputs[-1].strip())
    if lab.part("device-memory").all_inner_texts() == before and not lab.part("device").count():
        found.append("the panel shows no GPU any more")
    found += [f"the browser's console says: {fault}" for fault in lab.faults]
    return found


def _of_the_outputs(outputs: list[str]) -> list[str]:
    found = []
    saw = next((text for text in outputs if text.startswith("This kernel sees")), "")
    if not re.search(r"sees GPU-[\w-]+$", saw.strip()):
        found.append(f"the kernel was not pinned to one GPU: {saw!r}")
    events = next(([*_EVENT.findall(text)] for text in outputs if "evicted (preempted)" in text), [])
    if events != EVENTS:
        found.append(f"the events were {events}, not {EVENTS}")
    if "each exactly once, in 2 attempts" not in outputs[-1]:
        found.append(f"the proof says {outputs[-1]!r}")
    return found
