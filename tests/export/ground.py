"""Jobs as the record has them, hard ones among them, and what proves that a command arrives as it was."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from jupyter_gpu.export import Work, work_of
from jupyter_gpu.model import Ask, JobSpec, Kind, Member, State, WorkloadView, pack_bytes

#: Words that shells, Slurm, Kubernetes and Docker each would read as something else.
HOSTILE = (
    "a b", "", "it's", '"quoted"', "$HOME", "$(touch sprung)", "`touch sprung`", "${x:-y}", "$$", "a$", "*", "~", "!x",
    "new\nline", "tab\there", "\\", "\\n", "trailing\\", "; exit 3", "&& false", "|", "#comment", "-n", "--", "é",
    "日本", "%j", "{lr}", "\x1b[31m", "#SBATCH --time=1", "EOF", "<<EOF", "\r", "a=b", "$(JOB)", "$$(JOB)", "]", '","',
    "'''",
)  # fmt: skip


def a_job(*argv: str | bytes, number: int = 12, name: str = "digits", **more: Any) -> WorkloadView:
    """A job of the caller's; what is no field of a view is one of its spec."""
    ask = more.pop("ask", Ask(devices=2, duration_seconds=8 * 3600, cpus=4, host_memory_bytes=16 << 30))
    view = {name: more.pop(name) for name in ("member", "after") if name in more}
    words = tuple(pack_bytes(word if isinstance(word, bytes) else word.encode()) for word in argv)
    more.setdefault("folder", "/tmp")
    return WorkloadView(
        id=number,
        kind=Kind.JOB,
        state=State.ENDED,
        owner="ada",
        team="vision",
        queue="training",
        name=name,
        ask=ask,
        submitted_at=1.0,
        priority=0,
        is_mine=True,
        spec=JobSpec(argv=words or ("python", "train.py"), **more),
        **view,
    )


def an_array(count: int, *argv: str, at_most: int | None = None, **more: Any) -> list[WorkloadView]:
    """All jobs of an array, in whose words {index} is the place of each."""
    return [
        a_job(
            *(word.replace("{index}", str(index)) for word in argv),
            number=11 + index,
            member=Member(array=12, index=index, of=count, at_most=at_most, parameters={"lr": str(index)}),
            parameters={"lr": index},
            **more,
        )
        for index in range(1, count + 1)
    ]


def work(*views: WorkloadView, packages: bytes = b"") -> Work:
    """What is exported of them."""
    return work_of(views, packages)


def teller(folder: Path) -> list[str]:
    """The beginning of a command that tells its words and variables, as `told` reads them."""
    program = folder / "tell.py"
    program.write_text(
        "import json, os, sys\n"
        "words = [word.hex() for word in map(os.fsencode, sys.argv[1:])]\n"
        "variables = {name.hex(): value.hex() for name, value in os.environb.items()}\n"
        "print(json.dumps([words, variables, os.fsencode(os.getcwd()).hex()]))\n"
    )
    return [sys.executable, str(program)]


class Told(msgspec.Struct):
    """What a teller said."""

    words: list[bytes]
    variables: dict[bytes, bytes]
    folder: bytes


def told(text: str) -> Told:
    """Read what a teller said in its last line."""
    words, variables, folder = json.loads(text.splitlines()[-1])
    unhexed = {bytes.fromhex(name): bytes.fromhex(value) for name, value in variables.items()}
    return Told([bytes.fromhex(word) for word in words], unhexed, bytes.fromhex(folder))


def run(argv: list[str], folder: Path, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run something to its end."""
    return subprocess.run(argv, cwd=folder, env=environ, check=False, capture_output=True, text=True, timeout=50)
