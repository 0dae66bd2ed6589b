"""`make bench`: measure what the design promises, each beside a peer or a bound in the same run.

Every module of this folder with a `run()` gives rows; the table goes to the terminal and, with the machine it came
from, to docs/benchmarks.md. Nothing here is a test: a slow machine makes slow figures, not a red build.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

#: In the order in which a reader wants them.
MODULES = (
    "planner",
    "replay",
    "foresight",
    "starting",
    "throughput",
    "reserving",
    "kernel",
    "listeners",
    "pages",
    "panel",
    "sampling",
    "memory",
    "batches",
    "hub",
)
PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
COLUMNS = ("what", "value", "unit", "reach", "beside")

HEAD = """\
# Benchmarks

What `make bench` measured, each figure beside a peer or a bound from the same run. Figures of shared machines
wander: compare within a run, not between runs. *Reach* is what the design asks for.

"""


def main() -> None:
    """Run what was asked for and write the page when it was everything."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("only", nargs="*", help=f"some of: {', '.join(MODULES)}")
    only = parser.parse_args().only
    console = Console()
    rows: list[dict[str, Any]] = []
    for name in only or MODULES:
        console.print(f"[dim]{name} ...[/]")
        rows += importlib.import_module(f"{__package__}.{name}").run()
    table = Table(*COLUMNS)
    for row in rows:
        table.add_row(*(_text(row.get(column)) for column in COLUMNS))
    console.print(table)
    if not only:
        PAGE.write_text(HEAD + _machine() + _markdown(rows), encoding="utf-8")
        console.print(f"written to {PAGE}")


def _machine() -> str:
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    load = os.getloadavg()[0]
    return (
        f"Measured on {time.strftime('%Y-%m-%d')}: {os.cpu_count()} cores ({cpu}), {memory:.0f} GiB, "
        f"Linux {platform.release().split('-')[0]}, Python {platform.python_version()}, load {load:.1f} at the end.\n\n"
    )


def _markdown(rows: list[dict[str, Any]]) -> str:
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
    lines += ["| " + " | ".join(_text(row.get(column)) for column in COLUMNS) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _text(value: object) -> str:
    if value is None:
        return ""
    return (
        f"{value:.3g}"
        if isinstance(value, float) and abs(value) < 100
        else f"{value:.0f}"
        if isinstance(value, float)
        else str(value)
    )


if __name__ == "__main__":
    main()
