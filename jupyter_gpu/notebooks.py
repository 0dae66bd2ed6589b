"""From a notebook to a job, for every face: the command that runs it, and what to tell before it is queued.

The notebook is copied, so that an edit does not change a queued job, and runs by `notebook_job` in its own folder. Its
results go into a new notebook beside it; no file is ever written over.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import os
import re
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from itertools import count
from keyword import iskeyword
from pathlib import Path, PurePath
from typing import Any

import msgspec

from .cli.script import MOST_SCRIPT_BYTES, Command, make_command, pack, read_file
from .errors import Conflict, InvalidAsk, LimitExceeded
from .model import Script
from .units import format_bytes

SUFFIX = ".ipynb"
RUNNER = "jupyter_gpu.notebook_job"
#: Its option that puts the number of the job into the name of the results.
BY_JOB = "--by-job"
#: The tag of the cell whose names are the parameters, and of what papermill puts below it.
PARAMETERS_TAG = "parameters"
INJECTED_TAG = "injected-parameters"
#: The entry point of our provisioner, the group that it stands in, and the variable that makes one the default.
PROVISIONER = "jupyter-gpu"
PROVISIONER_GROUP = "jupyter_client.kernel_provisioners"
PROVISIONER_WORD = "JUPYTER_DEFAULT_PROVISIONER_NAME"
#: What a member of an array has in place of it.
INDEX = "{index}"
#: What Linux takes for the name of a file.
LONGEST_NAME_BYTES = 255
_LONGEST_QUOTE = 60


class Parameter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A name that the parameters cell of a notebook sets."""

    name: str
    #: Its value as the cell writes it.
    default: str
    type: str = ""
    help: str = ""


class Notebook:
    """What matters here of a notebook: its cells' text and tags, and which kernel it wants."""

    def __init__(self, name: str, content: bytes) -> None:
        try:
            found = msgspec.json.decode(content, type=_Notebook)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidAsk(
                f"{name!r} is no notebook of today's format: {error}.", hint="Open it in JupyterLab and save it."
            ) from None
        self.name = name
        self.content = content
        #: The place and the text of each cell of code.
        self.code = [(place, it.text) for place, it in enumerate(found.cells) if it.cell_type == "code"]
        self.tagged = [place for place, it in enumerate(found.cells) if PARAMETERS_TAG in it.tags]
        self.injected = [place for place, it in enumerate(found.cells) if INJECTED_TAG in it.tags]
        self._metadata = found.metadata

    @property
    def kernel(self) -> str | None:
        """The kernel that it names."""
        it = self._metadata.kernelspec
        return None if it is None else it.name or None

    @property
    def parameters_cell(self) -> str | None:
        """The text of the cell whose names are the parameters: of several that are tagged, the first."""
        return next((text for place, text in self.code if place in self.tagged[:1]), None)

    def notes(self, names: Sequence[str]) -> Iterator[str]:
        """Tell what of the parameters will not be as it was meant (nteract/papermill#637, #245)."""
        if len(self.tagged) > 1:
            yield (
                f"{len(self.tagged)} cells of {self.name} are tagged `{PARAMETERS_TAG}`, and the first of them counts: "
                "the values are put below that one"
            )
        if names and not self.tagged:
            yield (
                f"no cell of {self.name} is tagged `{PARAMETERS_TAG}`, so the values are put on top of all cells: "
                "tag the cell that sets the defaults, in JupyterLab under Property Inspector, Common Tools"
            )
        for name in names:
            word = re.compile(rf"(?<![\w.]){re.escape(name)}(?!\w)")
            if not any(word.search(text) for place, text in self.code if place not in self.injected):
                yield f"no cell of {self.name} uses {name}"
                continue
            lost = next(self._sets_again(name, word), None)
            if lost is not None:
                yield f"{self.name} sets {name} again below the value that is given, so that is lost: {lost}"

    def _sets_again(self, name: str, word: re.Pattern[str]) -> Iterator[str]:
        """Find the lines that set a name anew after the values were put in, from nothing that was there."""
        line = re.compile(rf"^{re.escape(name)}[ \t]*(?::[^=\n]+)?(?:=(?!=)|<-)(.*)$", re.MULTILINE)
        first = self.tagged[0] if self.tagged else -1
        for place, text in self.code:
            for found in line.finditer(text) if place > first and place not in self.injected else ():
                if not word.search(found[1]):
                    yield found[0].strip()[:_LONGEST_QUOTE]


class _CellMetadata(msgspec.Struct):
    tags: Any = ()


class _Cell(msgspec.Struct):
    """A cell as it lies in the file. Its metadata may lack everything."""

    cell_type: str = ""
    source: str | list[str] = ""
    metadata: _CellMetadata = msgspec.field(default_factory=_CellMetadata)

    @property
    def text(self) -> str:
        return self.source if isinstance(self.source, str) else "".join(self.source)

    @property
    def tags(self) -> Sequence[Any]:
        return self.metadata.tags if isinstance(self.metadata.tags, list) else ()


class _Kernel(msgspec.Struct):
    name: str | None = None


class _Metadata(msgspec.Struct):
    kernelspec: _Kernel | None = None


class _Notebook(msgspec.Struct):
    """What tells a notebook from any other JSON."""

    cells: list[_Cell]
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


def is_notebook(argv: Sequence[str]) -> bool:
    """Whether a command line only names a notebook, with the name of its results or without."""
    return len(argv) in (1, 2) and all(word.endswith(SUFFIX) for word in argv)


def refuse_no_notebook(argv: Sequence[str]) -> None:
    """Refuse what begins as a notebook does and goes on otherwise: no command is called so."""
    if not argv or not argv[0].endswith(SUFFIX) or is_notebook(argv):
        return
    name, word = argv[0], argv[1]
    if word.startswith("-"):
        raise InvalidAsk(
            f"{word!r} stands behind the notebook {name!r}, where only the name of its results may.",
            hint=f"Options stand before it: `submit {word} ... {name}`; parameters are options too: -p NAME=VALUE.",
        )
    raise InvalidAsk(
        f"The results of {name!r} go into one notebook, and {' '.join(argv[1:])[:200]!r} is none.",
        hint=f"Name it, such as {os.path.join(word, PurePath(name).name)!r}, or leave it out.",  # noqa: PTH118
    )


def make_notebook_command(
    path: str,
    *,
    parameters: Mapping[str, Any] | None = None,
    array: Sequence[str] = (),
    kernel: str | None = None,
    output: str | None = None,
    folder: str | None = None,
    environ: Mapping[str, str],
    wanted: Sequence[str] = (),
    key: str | None = None,
    recurs: bool = False,
    in_image: bool = False,
    **more: Any,
) -> Command:
    """Make the command that runs a notebook, with what the person who submits should know of it.

    `array` are the names that an array gives values to. It runs in the notebook's own folder, or in `folder`, from
    which `path` and `output` are then seen. Without `output` the results get a new name beside the notebook, which the
    same `key` makes the same, and which has `{index}` in it for an array. What `recurs` has the job's number in the
    name of its results each time. `more` is as in `make_command`.
    """
    here = os.path.abspath(os.path.expanduser(folder or "."))  # noqa: PTH100, PTH111
    place = Path(os.path.normpath(os.path.join(here, path)))  # noqa: PTH118
    names = list(dict.fromkeys([*(parameters or ()), *array]))
    _check_names(names)
    notebook = Notebook(place.name, _read(place))
    where = os.fspath(place.parent) if folder is None else here
    named = None if output is None else os.path.normpath(os.path.join(here, output))  # noqa: PTH118
    results = _results(place, named, key, is_array=bool(array))
    options = [] if in_image and kernel is None else ["--kernel", _kernel(notebook, kernel, in_image=in_image)]
    options += [BY_JOB] if recurs else []
    argv = [*_runner(in_image=in_image), *options, "--", place.name, _seen_from(where, results)]
    # The kernel keeps the GPUs of its attempt in any case; with our provisioner it says so to who looks.
    ours = [] if in_image or find_provisioner(PROVISIONER) is None else [f"{PROVISIONER_WORD}={PROVISIONER}"]
    command = make_command(
        argv, folder=where, environ=environ, wanted=[*ours, *wanted], parameters=parameters, in_image=in_image, **more
    )
    spec = msgspec.structs.replace(
        command.spec,
        script_index=len(argv) - 2,
        recorded=command.spec.recorded | {"output_notebook": pack(_seen_from(where, results))},
    )
    return command._replace(
        spec=spec,
        script=Script(name=pack(place.name), content=notebook.content),
        notes=(*notebook.notes(names), *command.notes),
    )


def look_at(path: str) -> tuple[Notebook, tuple[Parameter, ...]]:
    """Read a notebook and its parameters with their defaults, as a form shows them: of Python, and of no other."""
    notebook = Notebook(Path(path).name, _read(Path(path)))
    return notebook, tuple(_defaults(notebook.parameters_cell or ""))


def _defaults(text: str) -> Iterator[Parameter]:
    """Find what a cell of Python sets, with what stands behind it as a comment."""
    lines = ["" if line.lstrip().startswith(("%", "!")) else line for line in text.split("\n")]
    source = "\n".join(lines)
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError):  # another language, or half written
        return
    for node in body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        behind = lines[(node.end_lineno or node.lineno) - 1].encode()[node.end_col_offset or 0 :].decode().strip()
        written = ast.get_source_segment(source, node.value) or "\n"
        for target in targets:
            if isinstance(target, ast.Name):
                yield Parameter(
                    name=target.id,
                    default=written if "\n" not in written else ast.unparse(node.value),
                    type=ast.unparse(node.annotation) if isinstance(node, ast.AnnAssign) else "",
                    help=behind.removeprefix("#").strip() if behind.startswith("#") else "",
                )


def find_provisioner(name: str) -> EntryPoint | None:
    """A provisioner as it is registered: to name one that is missing would hide every kernel."""
    return next(iter(entry_points(group=PROVISIONER_GROUP, name=name)), None)


def _check_names(names: Iterable[str]) -> None:
    """They are written into a cell, so they must be names there. R has dots in them."""
    for name in names:
        if not name.replace(".", "_").isidentifier() or iskeyword(name):
            raise InvalidAsk(
                f"{name[:99]!r} cannot be the name of a parameter of a notebook.", hint="Use letters, digits and _."
            )


def _runner(*, in_image: bool) -> list[str]:
    """What runs notebooks: of this Python, or of the one in the image."""
    if not in_image and importlib.util.find_spec("papermill") is None:
        raise InvalidAsk("papermill, which runs notebooks, is not installed here.", hint="`pip install papermill`.")
    # What lies in the folder must not be taken for a module of ours, or of the standard library: hence -P.
    return ["python3" if in_image else sys.executable, "-P", "-m", RUNNER]


def _read(place: Path) -> bytes:
    try:
        content = read_file(os.fspath(place), MOST_SCRIPT_BYTES)
    except FileNotFoundError:
        raise InvalidAsk(f"There is no notebook {os.fspath(place)!r}.", hint="Check the spelling.") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise InvalidAsk(f"{place.name!r} cannot be read: {why}.", hint="The job could not read it either.") from None
    if len(content) > MOST_SCRIPT_BYTES:
        raise LimitExceeded(
            f"{place.name!r} is larger than {format_bytes(MOST_SCRIPT_BYTES)}, the most that is copied of a notebook.",
            hint="Clear its outputs and save it.",
        )
    return content


def _results(place: Path, output: str | None, key: str | None, *, is_array: bool) -> str:
    """The path of the notebook with the results."""
    if output is None:
        found = os.fspath(place.with_name(_new_name(place, key, f"-{INDEX}" * is_array)))
    else:
        stem, suffix = os.path.splitext(output)  # noqa: PTH122
        found = f"{stem}-{INDEX}{suffix}" if is_array and INDEX not in output else output
        if os.path.lexists(found):
            raise Conflict(f"There is a file {found!r} already.", hint="Name another: no file is written over.")
    home = Path(found).parent
    if not home.is_dir():
        raise InvalidAsk(
            f"There is no folder {os.fspath(home)!r} for the results.", hint=f"Make it first: `mkdir -p {home}`."
        )
    if not os.access(home, os.W_OK):
        raise InvalidAsk(
            f"The folder {os.fspath(home)!r} cannot be written to, and a notebook's results go into one there.",
            hint="Copy the notebook to a folder of yours, or name another place for its results.",
        )
    return found


def _seen_from(folder: str, path: str) -> str:
    """Only the name where it lies in the folder that the job runs in."""
    home, name = os.path.split(path)
    return name if home == folder else path


def _kernel(notebook: Notebook, wanted: str | None, *, in_image: bool) -> str:
    """The kernel that is asked for, else the notebook's own, else Python's; one that would not be found is refused."""
    # Here alone, so that a command line that names no notebook does not load it.
    from jupyter_client.kernelspec import NATIVE_KERNEL_NAME, KernelSpecManager  # noqa: PLC0415

    name = wanted or notebook.kernel or NATIVE_KERNEL_NAME
    if in_image or name.lower() in KernelSpecManager().find_kernel_specs():
        return name
    raise InvalidAsk(
        f"{notebook.name!r} wants the kernel {name[:99]!r}, which is not installed where papermill looks."
        if wanted is None
        else f"There is no kernel {name[:99]!r} where papermill looks.",
        hint="Choose another kernel for it and save it; `jupyter kernelspec list` names them.",
    )


class Names:
    """Gives names that nothing has and that nobody was given before: a job that waits has no file yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._given: set[str] = set()
        self._stamp = ""

    def beside(self, place: Path, now: float | None = None, *, end: str = "") -> str:
        """A name beside the file, with the time of submission, and a number where that is not enough."""
        stamp = time.strftime("%Y-%m-%d-%H-%M-%S", time.localtime(now))
        with self._lock:
            if stamp != self._stamp:
                self._stamp, self._given = stamp, set()
            for number in count(1):
                tail = f"-{stamp}{'' if number == 1 else f'-{number}'}{end}{place.suffix}"
                name = _fitting(place.stem, tail)
                path = os.fspath(place.with_name(name))
                if path not in self._given and not os.path.lexists(path):
                    self._given.add(path)
                    return name
        raise AssertionError  # one of them is free


NAMES = Names()


def with_new_results(argv: Sequence[str], folder: str, *, key: str | None) -> list[str]:
    """Let the command of a notebook write new results; any other stays as it is."""
    if RUNNER not in argv:
        return list(argv)
    place = Path(folder, argv[-2])
    return [*argv[:-1], os.fspath(Path(argv[-1]).with_name(_new_name(place, key)))]


def numbered(output: str, number: str) -> str:
    """The name of results that a calendar makes again and again: no time takes the place of another."""
    place = Path(output)
    return os.fspath(place.with_name(f"{place.stem}-{number}{place.suffix}")) if number else output


def _new_name(place: Path, key: str | None, end: str = "") -> str:
    """A new name beside the file, or the one that is the same whenever the key is."""
    if key is None:
        return NAMES.beside(place, end=end)
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
    return _fitting(place.stem, f"-{digest[:8]}{end}{place.suffix}")


def _fitting(stem: str, end: str) -> str:
    """A file's name that the file system takes."""
    return os.fsencode(stem)[: LONGEST_NAME_BYTES - len(end)].decode("utf-8", "ignore") + end
