"""Commands as a terminal runs them, with a lab of documents behind."""

import io
import time
from dataclasses import dataclass, field

import pytest
from rich.console import Console

from jupyter_gpu.cli import run
from jupyter_gpu.cli.base import Face
from tests.cli.fake import FakeClient, fixed_time


@dataclass
class Result:
    """What a command answered."""

    code: int
    out: str
    err: str
    raw: bytes


@dataclass
class Terminal:
    """A terminal of 80 columns without colours; `tty` makes it one that people sit at."""

    client: FakeClient = field(default_factory=FakeClient)
    tty: bool = False
    width: int = 80
    colours: bool = False
    environ: dict[str, str] | None = None
    holder: object = None

    def __call__(self, *args: str) -> Result:
        """Run one command line."""
        raw, errors = io.BytesIO(), io.StringIO()
        out = io.TextIOWrapper(raw, encoding="utf-8", newline="")
        kind = {
            "width": self.width,
            "force_terminal": self.tty,
            "color_system": "standard" if self.colours else None,
            "no_color": not self.colours,
            "markup": False,
            "highlight": False,
            "emoji": False,
        }
        face = Face(
            client=self.client,
            console=Console(file=out, **kind),
            errors=Console(file=errors, **kind),
            holder=self.holder,
            now=fixed_time,
            environ=self.environ,
        )
        code = run(args, face=face)
        out.flush()
        return Result(code, raw.getvalue().decode("utf-8", "replace"), errors.getvalue(), raw.getvalue())


@pytest.fixture(autouse=True)
def _utc(monkeypatch):
    """Set the clock on the wall, so that texts are the same everywhere."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def gpu():
    """Give a terminal: `gpu("status")` runs `jupyter gpu status`."""
    return Terminal()
