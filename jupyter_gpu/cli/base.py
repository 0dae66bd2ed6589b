"""What every command shares: who is asked, where the answer goes, how an error is told.

A command gets a `Face`. The console program makes one of the terminal; magics and tests hand in their own client
and consoles. Light on purpose: `jupyter gpu --help` imports this, so rich and the client come when they are used.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import click

from ..errors import GpuError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from ..client import Client
    from ..model import Holder, IsolationView, Script, Status, WorkloadView

R = TypeVar("R")
T = TypeVar("T")

INTERRUPTED = 130
#: As a shell counts SIGPIPE: the reader of our output has gone.
PIPE_CLOSED = 141


class Face:
    """The surroundings of one command."""

    def __init__(
        self,
        *,
        client: Client | None = None,
        console: Console | None = None,
        errors: Console | None = None,
        holder: Holder | None = None,
        now: Callable[[], float] = time.time,
        environ: dict[str, str] | None = None,
    ) -> None:
        self._client = client
        self._is_given = client is not None
        self._opened: list[Client] = []
        self._out = console
        self._err = errors
        #: Who holds what `reserve` gets, where it is not the calling shell: a kernel, for its magics.
        self.holder = holder
        self.now = now
        self.environ = environ
        self.url: str | None = None
        self.as_json = False
        #: How the command line begins here, for usage texts.
        self.program = "jupyter gpu"
        #: Verbs of the surroundings, beside those of the terminal or in their place: a kernel pins itself.
        self.own: Mapping[str, click.Command] = {}
        #: The text that `submit` runs as a Python script, where there is one: a cell of a notebook.
        self.cell: Script | None = None
        #: What `submit` or `reserve` asked for, as it was accepted.
        self.sent: WorkloadView | None = None

    @property
    def client(self) -> Client:
        """The client; where no broker runs, asking for one starts it."""
        return self.connect(start=True)

    def connect(self, *, start: bool) -> Client:
        """Find the broker. Without `start` a missing one stays missing."""
        if self._client is None:
            from ..client import Client

            self._client = Client(self.url, start=start)
            self._opened.append(self._client)
        return self._client

    def looking_on(self) -> Client:
        """Give a client that never starts a broker, whatever was done before."""
        if self._is_given:
            return self.client
        from ..client import Client

        self._opened.append(Client(self.url, start=False))
        return self._opened[-1]

    def own_isolation(self, status: Status) -> IsolationView | None:  # noqa: ARG002 - a kernel looks into it
        """How the server that this runs in is kept from other GPUs, where that is tried and told with the status."""
        return None

    def close(self) -> None:
        """Let go what was opened here."""
        for client in self._opened:
            client.close()

    @property
    def out(self) -> Console:
        """Where the answer goes."""
        if self._out is None:
            self._out = make_console(stderr=False)
        return self._out

    @property
    def err(self) -> Console:
        """Where errors and asides go, so that the answer can be piped."""
        if self._err is None:
            self._err = make_console(stderr=True)
        return self._err

    def document(self, thing: object) -> None:
        """Write the one JSON document of a `--json` command."""
        import msgspec

        text = msgspec.json.format(msgspec.json.encode(thing), indent=2).decode()
        # A terminal can be steered by more than is printed, and JSON has another way to say the same.
        self.write((escaped(text) if self.out.is_terminal else text) + "\n")

    def write(self, text: str) -> None:
        """Write text as it is."""
        self.out.file.write(text)
        self.out.file.flush()

    def write_bytes(self, data: bytes) -> None:
        """Write bytes as they are; a console without bytes below (a notebook) gets what can be read of them."""
        buffer = getattr(self.out.file, "buffer", None)
        if buffer is None:
            self.write(data.decode("utf-8", "replace"))
            return
        self.out.file.flush()
        buffer.write(data)
        buffer.flush()

    def flush(self) -> None:
        """Write what is still held back, while a closed pipe can be told from a fault."""
        if self._out is not None:
            self._out.file.flush()

    def say(self, *things: RenderableType) -> None:
        """Show to a person. Text is plain: nothing in it is markup."""
        for thing in things:
            if self.out.is_terminal or self.out.is_jupyter:
                self.out.print(thing)
                continue
            # A pipe gets whole sentences, so that grep finds them, and no blanks at the ends of a table's lines.
            with self.out.capture() as captured:
                self.out.print(thing, soft_wrap=isinstance(thing, str))
            self.out.file.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))

    def line(self, text: str, style: str = "") -> None:
        """Show a line that is meant to be copied: it is never broken, however narrow the terminal."""
        self.out.print(text, soft_wrap=True, style=style or None)

    def aside(self, text: str) -> None:
        """Tell what is not the answer: progress, advice. Where JSON was asked for nobody reads along."""
        if self.as_json:
            return
        self.err.print(text, soft_wrap=not self.err.is_terminal, style="dim")

    def tell(self, error: GpuError) -> None:
        """Tell an error: what happened and why, then what to do now; as JSON where JSON was asked for."""
        if self.as_json:
            self.err.file.write(json.dumps(error.to_body()) + "\n")
            self.err.file.flush()
            return
        from rich.text import Text

        from .text import sentence

        # The broker's sentences about the caller begin with their name, which is spelt as it is.
        lines = [Text.assemble(("Error: ", "bold red"), sentence(error.message, name=login()))]
        lines += [Text(sentence(error.hint))] if error.hint else []
        for line in lines:
            self.err.print(line, soft_wrap=not self.err.is_terminal)

    def tell_usage(self, message: str, hint: str | None) -> None:
        """Tell that the words of the command could not be read."""
        if self.as_json:
            self.err.file.write(json.dumps({"code": "invalid-ask", "message": message, "hint": hint}) + "\n")
            return
        self.err.print(f"Error: {message}", soft_wrap=not self.err.is_terminal)
        if hint:
            self.err.print(hint, soft_wrap=not self.err.is_terminal)

    def held(self, it: WorkloadView, text: str) -> None:  # noqa: ARG002 - for those who pin
        """Say what the holder that was handed in has now. Who handed it in pins it as well."""
        self.say(f"{text} It ends with this {self.holder.kind if self.holder is not None else 'process'}.")

    @property
    def is_attended(self) -> bool:
        """Whether a person reads along, and not only a script."""
        return self.err.is_terminal

    @property
    def may_watch(self) -> bool:
        """Whether a picture may be shown until Ctrl-C."""
        return True

    @property
    def draws_over(self) -> str:
        """What takes the last line back, so that it can be drawn anew; empty where nothing does."""
        return "\r\x1b[K" if self.out.is_terminal else ""

    def wait_for(
        self, workload: int, until: str, seconds: float | None, *, raise_on_timeout: bool = True
    ) -> WorkloadView:
        """Wait for a workload, as the client does."""
        return self.client.wait(workload, until, seconds, raise_on_timeout=raise_on_timeout)

    def after_ctrl_c(self) -> None:
        """Begin a new line: the terminal has written ^C."""
        if not self.as_json:
            self.err.print()

    @contextlib.contextmanager
    def going_on(self, text: Callable[[], str] | str) -> Iterator[None]:
        """Where Ctrl-C ends the looking and not the work: say what goes on."""
        try:
            yield
        except KeyboardInterrupt:
            self.after_ctrl_c()
            self.aside(text if isinstance(text, str) else text())
            raise click.exceptions.Exit(INTERRUPTED) from None


def login() -> str:
    """Say who calls, as the broker of this machine names them; empty where that is not known."""
    import os
    import pwd

    with contextlib.suppress(KeyError):
        return pwd.getpwuid(os.geteuid()).pw_name
    return ""


def make_console(*, stderr: bool) -> Console:
    """Make a console on a standard stream that interprets nothing and lets a closed pipe be noticed."""
    from rich.console import Console

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            # rich would end the process here; `run` does, and in one place.
            raise BrokenPipeError

    return Plain(stderr=stderr, markup=False, highlight=False, emoji=False)


pass_face = click.make_pass_decorator(Face)


def _set_json(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(Face).as_json = True


#: Every command has it: exactly one JSON document on stdout, errors as JSON on stderr.
json_option = click.option(
    "--json",
    is_flag=True,
    expose_value=False,
    callback=_set_json,
    help="Write one JSON document; errors go to stderr as JSON.",
)


def for_each(face: Face, things: Iterable[T], act: Callable[[T], R]) -> tuple[list[R], int]:
    """Do it for each, tell each failure, go on; the exit code is that of the first failure."""
    done: list[R] = []
    code = 0
    for thing in things:
        try:
            done.append(act(thing))
        except GpuError as error:
            face.tell(error)
            code = code or error.exit_code
    return done, code


def usage_error(face: Face, error: click.ClickException) -> int:
    """Tell that the words of the command could not be read."""
    face.tell_usage(error.format_message(), _usage_hint(error))
    return error.exit_code


def _usage_hint(error: click.ClickException) -> str | None:
    ctx = getattr(error, "ctx", None)
    names: list[str] = []
    while ctx is not None:  # click's own path has the arguments in it of what is above
        names.insert(0, ctx.info_name or "")
        ctx = ctx.parent
    return f"`{' '.join(names)} --help` explains it." if names else None


class WithCommand(click.Command):
    """A command that takes another one after `--`: what follows the first `--` is not read at all."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Set the other command aside, as it was given."""
        if "--" in args:
            at = args.index("--")
            ctx.meta["jupyter_gpu.command"] = tuple(args[at + 1 :])
            args = args[:at]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Say in the usage that there may be one."""
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND...]"]


def wants_json(args: Sequence[str]) -> bool:
    """Whether JSON was asked for, before the arguments could be read."""
    mine = args[: args.index("--")] if "--" in args else args
    return "--json" in mine


def at_end_of_pipe() -> None:
    """Leave the broken pipe, so that Python's own flush at the end does not complain about it."""
    import os

    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def escaped(text: str) -> str:
    """The same JSON, in which nothing can steer a terminal."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else _escape(char) for char in text)


def _escape(char: str) -> str:
    return "\\u007f" if char == "\x7f" else json.dumps(char)[1:-1]
