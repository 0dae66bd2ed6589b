"""What another system must be told of a job, taken out of its record."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..cli.text import safe
from ..environment import looks_secret
from ..errors import InvalidAsk
from ..model import Ask, Dependency, JobSpec, WorkloadView, readable

#: What a job gets between the word that it must yield and its end, where it says nothing of it.
GRACE_SECONDS = 120
#: Where things lie on this machine: what an image, and what no other machine at all has there.
_IMAGES_OWN = ("PATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "LIBRARY_PATH", "PYTHONHOME", "PYTHONUSERBASE", "MODULEPATH")
_IMAGES_OWN_PREFIXES = ("CONDA_", "MAMBA_", "PIXI_", "CUDA_", "XDG_", "LOADEDMODULES", "R_HOME")
_THIS_MACHINES = re.compile(
    r"JUPYTER_(PATH|(CONFIG|DATA|RUNTIME)_(DIR|PATH)|PLATFORM_DIRS)|(NIX_)?SSL_CERT_(FILE|DIR)"
    r"|PIP_CERT|(REQUESTS|CURL|AWS)_CA_BUNDLE|GIT_SSL_CAINFO|NODE_EXTRA_CA_CERTS|TMPDIR|SSH_AUTH_SOCK"
)
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class One(NamedTuple):
    """One job, or one of an array: its command and variables, as the operating system takes them."""

    number: int
    argv: tuple[str, ...]
    environment: dict[str, str]


class Work(NamedTuple):
    """A job, or all jobs of an array, which differ in commands and variables and in nothing else."""

    id: int
    title: str
    name: str
    ask: Ask
    spec: JobSpec
    folder: str
    #: None is left to whoever runs it.
    checkpoint_dir: str | None
    jobs: tuple[One, ...]
    at_most: int | None
    after: tuple[Dependency, ...]
    #: Names of variables whose values are nobody's to write into a file.
    withheld: tuple[str, ...]
    #: Names of variables that say where something lies on this machine alone.
    left_out: tuple[str, ...]
    packages: tuple[str, ...]

    @property
    def is_array(self) -> bool:
        """Whether it is several."""
        return len(self.jobs) > 1

    @property
    def grace_seconds(self) -> int:
        """From the word that it must yield until its end."""
        return self.spec.grace_seconds or GRACE_SECONDS

    def common(self) -> dict[str, str]:
        """The variables that all of its jobs have alike."""
        first = self.jobs[0].environment
        return {
            name: value for name, value in first.items() if all(it.environment.get(name) == value for it in self.jobs)
        }

    def own(self, it: One) -> dict[str, str]:
        """The variables that only this one has so."""
        common = self.common()
        return {name: value for name, value in it.environment.items() if name not in common}


def work_of(views: Sequence[WorkloadView], packages: bytes = b"") -> Work:
    """Read what was recorded of a job, or of all jobs of an array in their order."""
    it = views[0]
    if it.spec is None:
        raise InvalidAsk(f"Workload {it.id} runs nothing that could be written down.", hint="Name a job of yours.")
    folder = text(it.spec.folder)
    jobs, withheld = [], set()
    for view in views:
        one, kept_back = _one(view)
        jobs.append(one)
        withheld |= kept_back
    checkpoints = it.spec.checkpoint_dir
    return Work(
        id=it.id,
        title=safe(f"job {it.id}" + (f" ({it.name})" if it.name else "")),
        name=_plain_name(it.name or "", it.id),
        ask=it.ask,
        spec=it.spec,
        folder=folder,
        checkpoint_dir=None if checkpoints is None else _below(folder, text(checkpoints)),
        jobs=tuple(jobs),
        at_most=None if it.member is None or len(views) == 1 else it.member.at_most,
        after=it.after,
        withheld=tuple(sorted(withheld)),
        left_out=tuple(sorted(name for name in map(text, it.spec.environment) if _THIS_MACHINES.fullmatch(name))),
        packages=tuple(line for line in packages.decode("utf-8", "replace").splitlines() if not line.startswith("#")),
    )


def _one(view: WorkloadView) -> tuple[One, set[str]]:
    spec = view.spec
    if spec is None:
        raise InvalidAsk(f"Workload {view.id} runs nothing that could be written down.", hint="Name a job of yours.")
    variables = {text(name): text(value) for name, value in spec.environment.items()}
    withheld = {name for name, value in variables.items() if looks_secret(name, value)}
    kept = {
        name: value
        for name, value in variables.items()
        if name not in withheld and _THIS_MACHINES.fullmatch(name) is None
    }
    if spec.parameters:
        kept["JUPYTER_GPU_PARAMETERS"] = json.dumps(spec.parameters)
    number = 1 if view.member is None else view.member.index
    if view.member is not None:
        kept["JUPYTER_GPU_ARRAY_INDEX"] = str(view.member.index)
        kept["JUPYTER_GPU_ARRAY_COUNT"] = str(view.member.of)
    return One(number, tuple(text(word) for word in spec.argv), kept), withheld


def is_of_this_machine(name: str) -> bool:
    """Whether a variable says where things lie on this machine: an image has its own places."""
    return name in _IMAGES_OWN or name.startswith(_IMAGES_OWN_PREFIXES)


def text(packed: str) -> str:
    """Undo the packing of the model; bytes that are no UTF-8 become surrogates, as in os.fsdecode."""
    return readable(packed)


def _below(folder: str, place: str) -> str:
    return place if place.startswith("/") else f"{folder.rstrip('/')}/{place}"


def _plain_name(name: str, number: int) -> str:
    """A name that every system takes: a label of DNS, with the number of the job."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower())[:40].strip("-")
    return f"{plain}-{number}" if plain and plain[0].isalpha() else f"job-{number}"


def must_be_text(what: str, *words: str) -> None:
    """Refuse what a document of UTF-8 cannot say."""
    for word in words:
        if not word.isascii():
            try:
                word.encode()
            except UnicodeEncodeError:
                raise InvalidAsk(
                    f"{safe(word)[:200]!r} is no UTF-8, and {what} can say nothing else.",
                    hint="Rename it; `--to slurm` says every byte.",
                ) from None


def heading(it: Work, *more: str) -> Iterator[str]:
    """What stands at the head of each file: what it is, and where the rest of what ran can be had."""
    yield from (f"# {safe(line)}" for line in (*_said(it), *more))


def _said(it: Work) -> Iterator[str]:
    what = it.title if not it.is_array else f"{it.title}, an array of {len(it.jobs)}"
    yield f"What {what} ran, as it was recorded when it was submitted."
    recorded = {name: safe(text(value)) for name, value in it.spec.recorded.items()}
    if commit := recorded.get("git_commit"):
        branch = f" of branch {recorded['git_branch']}" if "git_branch" in recorded else ""
        where = f", {recorded['git_remote']}" if "git_remote" in recorded else ""
        yield f"Commit {commit}{branch}{where}."
        if recorded.get("git_dirty", "no") != "no":
            yield f"Not all was committed ({recorded['git_dirty']}): `jupyter gpu show {it.id} --diff`."
    if it.spec.script_index is not None:
        yield f"The script is what lies in the folder now; what ran then prints `jupyter gpu show {it.id} --script`."
    for dependency in it.after:
        yield f"It came after job {dependency.workload}" + (", if that succeeded." if dependency.ok else ".")
    if it.ask.memory_bytes is not None:
        yield "It had a part of a shared GPU; here it gets a whole one."
    if it.left_out:
        yield f"Left out, since they say where something lies on this machine: {', '.join(map(safe, it.left_out))}."


def case_of(it: Work, variable: str, first: int) -> str:
    """A line for a POSIX shell that becomes the one of the jobs whose number a variable says, counted from `first`."""
    lines = [f'case "${variable}" in']
    for place, one in enumerate(it.jobs, first):
        must_be_text("this file", *one.argv, *one.environment.values())
        words = [*(f"{name}={value}" for name, value in it.own(one).items()), *one.argv]
        lines.append(f"{place}) exec env {shlex.join(words)} ;;")
    return "\n".join([*lines, f'*) echo "there is no job ${variable}" >&2; exit 2 ;;', "esac"])
