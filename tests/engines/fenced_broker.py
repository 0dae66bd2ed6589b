"""A broker of one job, to be run as whom we like, to be killed, and to be started again.

    python fenced_broker.py FOLDER ISOLATION NODES WITHHELD SCRIPT

NODES and WITHHELD are device nodes with commas between. Says in JSON, one line each: how jobs are kept apart once that
is known; that the job runs; its outcome and its log.
"""

import asyncio
import json
import sys
from pathlib import Path

import msgspec

from jupyter_gpu.broker.engines.base import Attempt, Stage
from jupyter_gpu.broker.engines.local import LocalEngine
from jupyter_gpu.model import JobSpec


async def main(folder: Path, isolation: str, nodes: list[str], withheld: list[str], script: str) -> None:
    """Until the job is over."""
    engine = LocalEngine(folder / "attempts", isolation)
    await engine.start(lambda _: None)
    engine.keep_apart(nodes)
    while engine.isolation.detail == "not probed yet":
        await asyncio.sleep(0.01)
    tell(msgspec.to_builtins(engine.isolation))
    spec = JobSpec(argv=("sh", "-c", script), folder=str(folder), environment={"PATH": "/usr/bin:/bin"})
    await engine.hand_over(
        Attempt(
            workload=1, attempt=1, name="", owner="anna", account="", spec=spec, devices=(), withheld=tuple(withheld)
        )
    )
    while not (seen := engine.inventory()[1]).holder and seen.stage is not Stage.GONE:
        await asyncio.sleep(0.01)
    tell({"supervisor": seen.holder and seen.holder.pid})
    while engine.inventory()[1].stage is not Stage.GONE:
        await asyncio.sleep(0.01)
    outcome = json.loads((engine.folder_of(1, 1) / "outcome.json").read_bytes())
    tell({"outcome": outcome, "log": engine.log_path(1, 1).read_text(errors="replace")})
    await engine.take_back(1, 1)
    await engine.close()


def tell(what: object) -> None:
    """One line to whoever started us."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3].split(","), sys.argv[4].split(","), sys.argv[5]))
