"""Faces ask, the broker acts, the core decides. No arrow points back, and none leaves the core."""

from pathlib import Path

import pytest

import jupyter_gpu
from tests.house.doors import FUNCTION_LINES, MODULE_LINES, faults

HOUSE = Path(jupyter_gpu.__file__).parent
MODULES = sorted(str(path.relative_to(HOUSE)) for path in HOUSE.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES)
def test_every_module_keeps_its_doors_shut(path):
    """A module imports only what its room may, and stays small enough to see."""
    found = faults(path, (HOUSE / path).read_text(encoding="utf-8"))

    assert found == [], "\n".join(found)


def test_the_check_sees_the_house():
    """The modules are really found: an empty list of them would pass for ever."""
    assert {"errors.py", "units.py", "core/__init__.py", "broker/__init__.py"} <= set(MODULES)


LONG_FUNCTION = "def long():\n" + "    pass\n" * FUNCTION_LINES
LONG_HANDLER = "class Jobs:\n    async def get(self):\n" + "        pass\n" * 11
EDGE_HANDLER = 'class Jobs:\n    async def get(self):\n        """Say it."""\n' + "        pass\n" * 10


@pytest.mark.parametrize(
    ("path", "source", "said"),
    [
        ("core/decide.py", "import time", "no clock"),
        ("core/decide.py", "from random import choice", "no randomness"),
        ("core/decide.py", "import os.path", "no I/O"),
        ("core/decide.py", "def f():\n    import asyncio", "imports asyncio"),
        ("core/decide.py", "import httpx", "imports httpx"),
        ("core/decide.py", "from ..client import Client", "imports jupyter_gpu.client.Client"),
        ("core/decide.py", "from .. import broker", "imports jupyter_gpu.broker"),
        ("core/decide.py", "from datetime import datetime\nx = datetime.now()", "reads a clock"),
        ("core/decide.py", "import datetime\nx = datetime.date.today()", "reads a clock"),
        ("core/decide.py", "print(1)", "print() is I/O"),
        ("core/sub/deep.py", "from ...broker.loop import Loop", "imports jupyter_gpu.broker.loop.Loop"),
        ("model/world.py", "from ..core.decide import decide", "import nobody here"),
        ("errors.py", "from . import client", "import nobody here"),
        ("cli.py", "from .broker.app import main", "a face asks"),
        ("cli.py", "if TYPE_CHECKING:\n    from jupyter_gpu.broker import loop", "a face asks"),
        ("jupyter/server.py", "import jupyter_gpu.broker.app", "a face asks"),
        ("spawn.py", "from .broker import app", "a face asks"),
        ("broker/loop.py", "from ..client import Client", "knows no face"),
        ("broker/loop.py", "import pynvml", "imports pynvml"),
        ("broker/health.py", "from pynvml import nvmlInit", "imports pynvml"),
        ("broker/loop.py", "import sqlite3", "imports sqlite3"),
        ("broker/api/routes.py", "from sqlite_utils import Database", "imports sqlite_utils"),
        ("broker/storekeeper.py", "import sqlite3", "imports sqlite3"),
        ("broker/loop.py", "import subprocess", "imports subprocess"),
        ("client.py", "from subprocess import run", "imports subprocess"),
        ("cli.py", "import os\nos.system('true')", "starts a process"),
        ("cli.py", "import os\nos.execvp('true', [])", "starts a process"),
        ("broker/loop.py", "import asyncio\nasyncio.create_subprocess_exec('true')", "starts a process"),
        ("broker/loop.py", "import signal", "imports signal"),
        ("training.py", "import msgspec", "only the standard library"),
        ("training.py", "from .errors import GpuError", "only the standard library"),
        ("cli.py", LONG_FUNCTION, "long has 51 lines"),
        ("cli.py", "x = 1\n" * (MODULE_LINES + 1), "has 401 lines"),
        ("broker/api/routes.py", LONG_HANDLER, "handler get has 11 lines"),
    ],
)
def test_the_check_can_fail(path, source, said):
    """A bad module is caught and named; a check that never fails guards nothing."""
    found = faults(path, source)

    assert len(found) == 1
    assert said in found[0]
    assert found[0].startswith(f"{path}:")


@pytest.mark.parametrize(
    ("path", "source"),
    [
        (
            "core/decide.py",
            "from ..errors import Conflict\nfrom ..model import World\nfrom .planner import plan",
        ),
        (
            "core/decide.py",
            "from .. import errors\nimport math\nfrom datetime import timedelta\nimport msgspec",
        ),
        ("core/decide.py", "def decide(world, command, now):\n    return command.now"),
        ("model/world.py", "from .nouns import Device\nfrom ..errors import Conflict"),
        ("broker/telemetry/sampler.py", "import pynvml"),
        ("broker/store/history.py", "import sqlite3\nimport sqlite_utils"),
        ("broker/engines/local.py", "import subprocess, signal, os\nos.fork()"),
        ("broker/app.py", "import signal\nfrom ..spawn import run"),
        ("spawn.py", "import subprocess"),
        ("training.py", "import signal, json, os\nfrom .checkpoints import save"),
        ("cli.py", "from .client import Client\nimport click"),
        ("broker/api/routes.py", EDGE_HANDLER),
        ("broker/loop.py", LONG_HANDLER),
    ],
)
def test_the_check_lets_the_house_work(path, source):
    """What the rooms are for passes, so that nobody is driven to work around the check."""
    assert faults(path, source) == []
