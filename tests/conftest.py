"""What every test may rely on: a clean environment, private folders, and Hypothesis without a stopwatch."""

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from jupyter_gpu import spawn

# Two shared cores are slow at odd moments: a deadline would test the machine. In CI the examples are the
# same in each run, so that a red build is about the change; on a developer's machine they keep wandering.
settings.register_profile("dev", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

# Words of the surroundings that would change what the code under test does.
_STRAYS = ("JUPYTER", "CUDA_", "NVIDIA_", "SLURM_", "XDG_", "IPYTHON", "MASTER_")


@dataclass(frozen=True)
class Places:
    """Where a broker under test keeps its socket and its state."""

    runtime_dir: Path
    state_dir: Path


def _make_places() -> tuple[Path, Places]:
    # Not tmp_path: the path of a Unix socket may have 107 bytes, and pytest's folders are long.
    root = Path(tempfile.mkdtemp(prefix="jg-"))
    places = Places(root / "run", root / "state")
    places.runtime_dir.mkdir(mode=0o700)
    places.state_dir.mkdir(mode=0o700)
    return root, places


#: One worker does all tests of files with such a word in their name, one after another: a JupyterLab with its browser
#: is heavy.
_TOGETHER = {"lab"}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Give each test to whichever worker is free, but for those that go together; the largest groups first."""

    @cache
    def shares(file: str) -> bool:
        return 'scope="module"' in (config.rootpath / file).read_text(encoding="utf-8")

    # Not by `xdist_group`: it writes the group into a test's name, and with pytest 9.2 that comes to nothing.
    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            words = Path(file).stem.split("_")
            # What a file's tests share, a hub say, would else be started by each worker, and again and again.
            return next((word for word in words if word in _TOGETHER), file if shares(file) else nodeid)

    return Scheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let what takes long begin first where several workers share the tests: else all would wait for it at the end."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(scope="session")
def _shared_places() -> Iterator[tuple[Path, Places]]:
    root, places = _make_places()
    yield root, places
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, _shared_places: tuple[Path, Places]) -> None:
    """Run each test as if on a new account: nothing of the caller's home, broker or cards leaks in."""
    root, places = _shared_places
    for name in list(os.environ):
        if name.startswith(_STRAYS):
            monkeypatch.delenv(name)
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "PYTHONUNBUFFERED"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")  # a dumb one is 80 columns wide, whatever it is told
    monkeypatch.setenv("HOME", str(root))
    monkeypatch.setenv("JUPYTER_GPU_RUNTIME_DIR", str(places.runtime_dir))
    monkeypatch.setenv("JUPYTER_GPU_STATE_DIR", str(places.state_dir))


@pytest.fixture(scope="module", autouse=True)
def _no_broker_is_left() -> Iterator[None]:
    """A broker outlives who started it: one that a file forgets would run on, and disturb who counts processes."""
    yield
    deadline = time.monotonic() + 20
    while spawn._started and time.monotonic() < deadline:
        spawn._reap()
        time.sleep(0.02)  # the end of a detached process cannot be awaited
    left = list(spawn._started)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    spawn._started.clear()
    assert not left, "these tests leave brokers behind"


@pytest.fixture
def tmp_runtime(monkeypatch: pytest.MonkeyPatch, clean_environment: None) -> Iterator[Places]:
    """Give one test a broker's folders of its own, with a path short enough for a socket."""
    root, places = _make_places()
    monkeypatch.setenv("JUPYTER_GPU_RUNTIME_DIR", str(places.runtime_dir))
    monkeypatch.setenv("JUPYTER_GPU_STATE_DIR", str(places.state_dir))
    yield places
    shutil.rmtree(root, ignore_errors=True)
