"""A short program of a user's beside the jobs: what becomes of it, of what it leaves behind, and what it can open."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from jupyter_gpu.broker.engines import errand
from jupyter_gpu.broker.engines.local import LocalEngine

from .fences import IS_ROOT, TRY, Nodes, need, open_folder

ENVIRONMENT = {"PATH": os.defpath, "WORD": "x y"}


def test_it_is_run_to_its_end() -> None:
    """With this environment and no other, and this on its standard input."""
    script = 'cat; echo "$WORD$HOME"; echo err >&2; exit 3'
    assert errand.run(["sh", "-c", script], ENVIRONMENT, 10, text="in ") == (3, "in x y\n", "err\n")
    assert errand.run(["sh", "-c", script], ENVIRONMENT, 10, is_heard=False)[1:] == ("", "err\n")


def test_one_that_cannot_be_begun_is_an_answer_too() -> None:
    """The same with a wall around it as without."""
    code, output, errors = errand.run(["no-such-command"], ENVIRONMENT, 10)
    assert (code, output) == (errand.NOT_BEGUN, "")
    assert "no-such-command" in errors


def test_one_that_hangs_is_ended_with_all_of_its_session(tmp_path: Path) -> None:
    """At its deadline, or when the broker leaves."""
    pids = tmp_path / "pids"
    hang = ["sh", "-c", f"sleep 1000 & echo $! >> {shlex.quote(str(pids))}; wait"]
    assert errand.run(hang, ENVIRONMENT, 0.5) == (None, "", "")

    ended: list[int | None] = []
    begun = tmp_path / "begun"
    os.mkfifo(begun)
    words = ["sh", "-c", f"echo > {shlex.quote(str(begun))}; exec sleep 1000"]
    thread = threading.Thread(target=lambda: ended.append(errand.run(words, ENVIRONMENT, 600)[0]))
    thread.start()
    begun.read_text()
    errand.end_all()
    thread.join()
    assert ended == [-signal.SIGKILL]
    left = int(pids.read_text())
    assert not psutil.pid_exists(left) or psutil.Process(left).status() == "zombie"  # nobody has asked for it yet


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    """Three device nodes that do no harm."""
    if not IS_ROOT:
        pytest.skip("only root may make device nodes")
    with open_folder() as folder:
        yield Nodes(folder)


@pytest.mark.parametrize(("layer", "choice"), [("cgroup v2", "cgroup"), ("landlock", "landlock")])
def test_it_opens_no_device_from_the_first_moment_on(nodes: Nodes, layer: str, choice: str) -> None:
    """Before the broker has looked for devices, those that it knew when it was stopped are withheld."""
    need(layer)
    script = TRY + "; ".join(f"t gpu{number} {node}" for number, node in enumerate(nodes.all))

    async def story() -> None:
        engine = LocalEngine(nodes.folder / "attempts", isolation=choice)
        await engine.start(lambda _: None)
        fence = engine.for_errands(nodes.all)
        found = await asyncio.to_thread(errand.run, ["sh", "-c", script], ENVIRONMENT, 30, fence=fence)
        await engine.close()
        assert found == (0, "gpu0 refused\ngpu1 refused\ngpu2 refused\n", "")
        assert not [it for begin in fence["cgroups"] for it in Path(begin).parent.glob(f"{Path(begin).name}*")]

    asyncio.run(story())
