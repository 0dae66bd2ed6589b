"""Run a notebook as a job: `python -m jupyter_gpu.notebook_job IN OUT [--kernel NAME]`, by papermill.

The parameters come from JUPYTER_GPU_PARAMETERS. The results are saved after each cell, and while a cell takes long,
each time as a whole: whatever ends this process leaves a notebook that opens. The log has what the cells print as they
print it, a line for each cell, and what went wrong at its end. A cell may take as long as it wants; a kernel that dies
is noticed in a second.

On SIGTERM the kernel gets its notice too: SIGTERM where it waits for that (`training.should_stop` does), else what it
has started and waits for that, else an interrupt. No further cell begins, and the exit code asks to be requeued.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import Any, NoReturn, TextIO

import psutil
from jupyter_client.kernelspec import NATIVE_KERNEL_NAME, KernelSpecManager, NoSuchKernel
from jupyter_core.utils import ensure_async, run_sync
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbformat import NotebookNode
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NBClientEngine, NotebookExecutionManager, papermill_engines
from papermill.exceptions import PapermillExecutionError, strip_color
from papermill.execute import execute_notebook
from papermill.iorw import LocalHandler, load_notebook_node, papermill_io

from .notebook_kernel import who_waits_for_sigterm
from .notebooks import BY_JOB, numbered
from .training import EXIT_REQUEUE, parameters, report

ENGINE = "jupyter-gpu"
EXIT_FAILED = 1
#: The kernel could not be started, so no cell has run.
EXIT_NO_KERNEL = 69
#: What is saved meanwhile of a cell that takes long; papermill itself takes longer pauses where saving takes long.
AUTOSAVE_SECONDS = 10
#: A busy machine and a slow disk: what has died is noticed at once, whatever this says.
START_SECONDS = 300
#: After its reply a cell's last outputs may be long in coming where it printed much.
OUTPUT_SECONDS = 600
#: So much of what a cell prints is kept in the notebook; the log has all.
MOST_OUTPUT_CHARACTERS = 4 << 20
_LOOK_SECONDS = 0.1
_SIGNALS_FROM = 128
_LONGEST_LINE = 100


class _Notice:
    """Whether this process was told to leave."""

    given = False

    def on_sigterm(self, *_: Any) -> None:
        self.given = True


_notice = _Notice()


class KernelDiedError(Exception):
    """The kernel ended while cells were left."""

    def __init__(self, code: int | None) -> None:
        super().__init__()
        self.code = code

    def __str__(self) -> str:
        if self.code is None:
            return "The kernel died"
        return (
            f"The kernel died (signal {-self.code})" if self.code < 0 else f"The kernel ended (exit code {self.code})"
        )

    @property
    def exit_code(self) -> int:
        """Ours, as a shell would tell of it."""
        return _SIGNALS_FROM - self.code if self.code is not None and self.code < 0 else self.code or EXIT_FAILED


class NoKernelError(Exception):
    """There was no kernel to run the first cell."""


class YieldedError(Exception):
    """Cells are left, and no more is begun."""


class _WholeFiles(LocalHandler):
    """Writes a file beside its place and then puts it there: no moment has half of one."""

    def write(self, buf: str, path: str) -> None:
        place = Path(path)
        digest = hashlib.sha256(os.fsencode(place.name)).hexdigest()[:16]
        # One name for each result, so that what a killed attempt left is written over by the next one.
        part = place.with_name(f".{digest}.ipynb-part")
        try:
            part.write_text(buf, encoding="utf-8")
            part.replace(place)
        except OSError as error:  # by the name that its owner knows
            raise OSError(error.errno, error.strerror, path) from None


class _Client(PapermillNotebookClient):
    """Papermill's, which says where it is, what its kernel died of, and hands a notice on."""

    _watch: asyncio.Task[None] | None = None
    _room = MOST_OUTPUT_CHARACTERS
    #: Where it is, for the last words of the log.
    place = ""
    is_done = False

    @contextlib.contextmanager
    def setup_kernel(self, **words: Any) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(super().setup_kernel(**words))
            except Exception as error:
                raise NoKernelError(f"The kernel {self.kernel_name!r} did not start: {error}") from error
            self.on_cell_execute = self._begin_to_watch
            try:
                yield
            finally:
                run_sync(self._end_to_watch)()

    def papermill_execute_cells(self) -> None:
        cells = [(index, cell) for index, cell in enumerate(self.nb.cells) if _runs(cell)]
        report(0, of=len(cells))
        for number, (index, cell) in enumerate(cells, 1):
            if _notice.given:
                for _, left in cells[number - 1 :]:
                    left.metadata.papermill["status"] = "skipped"
                raise YieldedError
            self.place = f" in cell {number} of {len(cells)}"
            if not self._execute(cell, index, f"[cell {number} of {len(cells)}] {_first_line(cell)}"):
                return
            report(number, of=len(cells))
        self.is_done = True

    def _execute(self, cell: NotebookNode, index: int, title: str) -> bool:
        """Run one cell; whether the next one may come."""
        self._room = MOST_OUTPUT_CHARACTERS
        self.nb_man.cell_start(cell, index)
        _say(title)
        try:
            self.execute_cell(cell, index)
        except CellExecutionError as error:
            self.nb_man.cell_exception(cell, cell_index=index, exception=error)
            return False
        except DeadKernelError as error:
            self.nb_man.cell_exception(cell, cell_index=index, exception=error)
            raise KernelDiedError(run_sync(self.km.provisioner.poll)()) from None
        finally:
            self.nb_man.cell_complete(cell, cell_index=index)
        return True

    def output(self, outs: list[NotebookNode], msg: dict[str, Any], *more: Any) -> NotebookNode | None:
        """Keep what is printed as a page shows it: in one piece, what was drawn over left out, and not without end."""
        is_last = msg["msg_type"] == "stream" and outs and not self.clear_before_next_output
        last = outs[-1] if is_last and outs[-1].get("name") == msg["content"]["name"] else None
        out: NotebookNode | None = super().output(outs, msg, *more)
        if out is None or out.output_type != "stream":
            return out
        new = copy(out)
        if last is not None:
            outs.pop()
        kept = outs[-1]
        before = kept.text if last is not None else ""
        kept.text = _printed(before, out.text)
        self._room -= len(kept.text) - len(before)
        if self._room < 0:
            self._cut(kept, before)
        return new

    def _cut(self, kept: NotebookNode, before: str) -> None:
        if not before.endswith(_CUT):
            before = kept.text[: self._room or None] + _CUT
        kept.text, self._room = before, 0

    def log_output_message(self, output: NotebookNode) -> None:
        """Print what the cell prints, byte for byte, and the text of what it shows. Errors come at the end."""
        if output.output_type == "stream":
            _write(sys.stderr if output.name == "stderr" else sys.stdout, output.text)
        elif "text/plain" in output.get("data", {}):
            _say("".join(output.data["text/plain"]))

    async def _begin_to_watch(self, **_: Any) -> None:
        if self._watch is None:
            self._watch = asyncio.ensure_future(self._hand_notice_on())

    async def _end_to_watch(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])

    async def _hand_notice_on(self) -> None:
        while not _notice.given:  # noqa: ASYNC110 - a signal handler may set nothing of asyncio's
            await asyncio.sleep(_LOOK_SECONDS)
        pid = getattr(self.km.provisioner, "pid", None)
        told = [] if pid is None else who_waits_for_sigterm(pid)
        for process in told:
            with contextlib.suppress(psutil.Error):
                process.terminate()
        if not told:
            await ensure_async(self.km.interrupt_kernel())


_CUT = f"\n... more than {MOST_OUTPUT_CHARACTERS} characters; the log of the job has all.\n"


def _saves_if_it_can(nb_man: NotebookExecutionManager) -> Callable[[], None]:
    """Let no save in the middle of a cell end it: a disk that is full now may not be when the cell is done."""
    save = nb_man.autosave_cell

    def try_to_save() -> None:
        try:
            save()
        except OSError as error:
            _say(f"could not save the results meanwhile: {error}", sys.stderr)
            nb_man.last_save_time = nb_man.now()

    return try_to_save


class _Engine(NBClientEngine):
    """Papermill's own, with our client."""

    @classmethod
    def execute_managed_notebook(
        cls, nb_man: NotebookExecutionManager, kernel_name: str, *, client: list[_Client], **_: Any
    ) -> None:
        told = nb_man.nb.metadata.papermill
        for name in ("input_path", "output_path"):
            told[name] = os.fsencode(Path(told[name]).name).decode("utf-8", "replace")
        it = _Client(
            nb_man,
            kernel_name=kernel_name,
            timeout=None,
            startup_timeout=START_SECONDS,
            iopub_timeout=OUTPUT_SECONDS,
            log=logging.getLogger("papermill"),
            log_output=True,
        )
        client.append(it)
        nb_man.autosave_cell = _saves_if_it_can(nb_man)
        try:
            it.execute()
        except DeadKernelError:
            # All cells have run, and the last one ended the kernel.
            if not it.is_done:
                raise


def run(notebook: str, output: str, kernel: str | None) -> int:
    """Run it; the exit code."""
    client: list[_Client] = []
    said, code = "", 0
    try:
        named = load_notebook_node(notebook).metadata.get("kernelspec", {}).get("name")
        kernel = kernel or named or NATIVE_KERNEL_NAME
        execute_notebook(
            _unformatted(notebook),
            _unformatted(output),
            parameters(),
            engine_name=ENGINE,
            kernel_name=kernel,
            language=_language(kernel),
            progress_bar=False,
            autosave_cell_every=AUTOSAVE_SECONDS,
            client=client,
        )
    except (NoKernelError, NoSuchKernel) as error:
        return _end(f"{error}. No cell has run.", EXIT_NO_KERNEL)
    except KernelDiedError as error:
        said, code = str(error), error.exit_code
    except PapermillExecutionError as error:
        said, code = _of_cell(error)
    except YieldedError:
        said = "Yielded"
    where = f"{client[0].place if client else ''}; what it had done is in {output}."
    if said and _notice.given:
        lost = f"{said.rstrip()}\n" if "\n" in said else ""
        return _end(f"{lost}Told to yield{where} The next attempt begins the notebook anew.", EXIT_REQUEUE)
    if "\n" in said:  # a traceback: last, so that the log ends with what went wrong
        return _end(f"Failed{where}\n{said}", code)
    return _end(f"{said}{where}", code) if said else code


def _of_cell(error: PapermillExecutionError) -> tuple[str, int]:
    """What a cell failed with. Whoever leaves by sys.exit says the exit code."""
    text = strip_color("\n".join(error.traceback)) or f"{error.ename}: {error.evalue}"
    if error.ename != "SystemExit":
        return f"{text}\n", EXIT_FAILED
    with contextlib.suppress(ValueError):
        return f"Left by sys.exit({int(error.evalue)})", int(error.evalue) & 0xFF
    return f"{error.evalue}\n", EXIT_FAILED


class _Log:
    """Whether a line has been begun."""

    is_within_a_line = False


def _write(stream: TextIO, text: str) -> None:
    """To the log at once."""
    if text:
        stream.write(text)
        stream.flush()
        _Log.is_within_a_line = not text.endswith("\n")


def _say(text: str, stream: TextIO | None = None) -> None:
    """To the log, in lines of its own."""
    _write(stream or sys.stdout, "\n" * _Log.is_within_a_line + text.rstrip("\n") + "\n")


def _end(text: str, code: int) -> int:
    _say(text, sys.stderr)
    return code


def _runs(cell: NotebookNode) -> bool:
    return cell.cell_type == "code" and bool(cell.source.strip())


def _first_line(cell: NotebookNode) -> str:
    line: str = cell.source.strip().splitlines()[0]
    return line if len(line) <= _LONGEST_LINE else line[: _LONGEST_LINE - 1] + "…"


def _printed(before: str, new: str) -> str:
    """What stands there after something more was printed: carriage returns go back in the last line."""
    start = before.rfind("\n") + 1
    tail = before[start:] + new
    return before[:start] + ("\n".join(map(_drawn_over, tail.split("\n"))) if "\r" in tail else tail)


def _drawn_over(line: str) -> str:
    """What is left of a line: what stands after the last carriage return that something follows."""
    shown = line.rstrip("\r")
    return shown.rpartition("\r")[2] + line[len(shown) :]


def _unformatted(path: str) -> str:
    """A path as papermill takes it, which fills in what stands in braces."""
    return path.replace("{", "{{").replace("}", "}}")


def _language(kernel: str) -> str:
    """The language of the kernel that runs it: many notebooks name none, and papermill needs it for parameters."""
    language: str = KernelSpecManager().get_kernel_spec(kernel).language
    return language


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(prog="python -m jupyter_gpu.notebook_job", description=__doc__)
    parser.add_argument("notebook")
    parser.add_argument("output")
    parser.add_argument("--kernel")
    parser.add_argument(BY_JOB, action="store_true", help="put the number of the job into the name of OUT")
    given = parser.parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):  # the log is UTF-8 whatever the locale says
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    papermill_io.reset()  # files alone: no name of one is taken for an address
    papermill_io.register("local", _WholeFiles())
    papermill_engines.register(ENGINE, _Engine)
    signal.signal(signal.SIGTERM, _notice.on_sigterm)
    output = numbered(given.output, os.environ.get("JUPYTER_GPU_JOB", "")) if given.by_job else given.output
    sys.exit(run(given.notebook, output, given.kernel))


if __name__ == "__main__":
    main()
