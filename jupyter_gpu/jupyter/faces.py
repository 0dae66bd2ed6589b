"""Where the commands speak when they run in a kernel: a notebook page, or the terminal that IPython runs in.

A page shows one output a command, which grows and whose waiting line changes in place. It is HTML without style sheets,
so that it looks the same in every frontend and in a saved notebook; colours are readable on light and on dark paper.
Errors are not printed: they are kept, for whoever ran the command to raise.
"""

from __future__ import annotations

import functools
import io
import os
import sys
import time
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from ..cli.base import Face, login
from ..cli.text import sentence, title, why
from ..client import calls
from ..errors import GpuError, InvalidAsk
from ..own_reach import find_out, question
from .here import kernel_holder, kernel_id, remark_in_an_attempt

if TYPE_CHECKING:
    from ..model import IsolationView, Status, WorkloadView

WIDTH = 100
#: How often the waiting line is looked at: soon at first, then as often as places in line move.
_LOOKS_SECONDS = (1.0, 2.0, 3.0, 5.0)

# Tones that can be read on white and on black; where JupyterLab has a colour for it, that one is taken.
_TONES = {
    "red": ("#d9534f", "--jp-error-color1"),
    "green": ("#3a9a4b", "--jp-success-color1"),
    "yellow": ("#b8860b", "--jp-warn-color1"),
    "blue": ("#4a90d9", "--jp-info-color1"),
    "magenta": ("#b061c9", ""),
    "cyan": ("#2a9db0", "--jp-info-color1"),
    "dim": ("#7a7a7a", "--jp-ui-font-color2"),
}
_ORDER = ("dim", "red", "green", "yellow", "blue", "magenta", "cyan", "dim")
_BOX = (
    "font-family:var(--jp-code-font-family,ui-monospace,monospace);font-size:var(--jp-code-font-size,13px);"
    "line-height:1.35"
)
_find_out_once = functools.lru_cache(maxsize=1)(find_out)
_PRE = "margin:0;padding:0;border:0;background:none;color:inherit;font:inherit;white-space:pre;overflow-x:auto"


def _rgb(name: str) -> tuple[int, int, int]:
    value = _TONES[name][0]
    return int(value[1:3], 16), int(value[3:5], 16), int(value[5:7], 16)


_THEME = TerminalTheme(_rgb("dim"), _rgb("dim"), [_rgb(name) for name in _ORDER])


class Told(NamedTuple):
    """An error that was told, and its lines."""

    error: GpuError
    lines: list[str]


def spoken_here(text: str) -> str:
    """Write commands as they are typed in a notebook."""
    return text.replace("`jupyter gpu ", "`%gpu ").replace("`jupyter gpu`", "`%gpu`")


def _own_python_first(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment in which `python` is this kernel's own, as people expect of what they queue from a notebook.

    Jupyter is often started from an environment that is not activated; then PATH leads to another interpreter.
    """
    own = str(Path(sys.executable).parent)
    return {**environ, "PATH": os.pathsep.join(filter(None, (own, environ.get("PATH"))))}


class KernelFace(Face):
    """What a notebook and a terminal's IPython share: the kernel holds, errors are kept, waits are told."""

    def __init__(self, own: Mapping[str, click.Command], **more: Any) -> None:
        super().__init__(holder=kernel_holder(), environ=_own_python_first(os.environ), **more)
        self.own = own
        self.program = "%gpu"
        self.told: list[Told] = []
        #: What the notebook knows by name, for a cell that is to have some of it.
        self.names: Mapping[str, Any] = {}

    @property
    def is_attended(self) -> bool:
        """Somebody reads along."""
        return True

    def tell(self, error: GpuError) -> None:
        """Keep an error for whoever ran the command."""
        lines = [sentence(error.message, name=login()), *([sentence(error.hint)] if error.hint else [])]
        self.told.append(Told(error, [spoken_here(line) for line in lines]))

    def tell_usage(self, message: str, hint: str | None) -> None:
        """Keep that the words could not be read."""
        self.tell(InvalidAsk(message, hint=hint))

    def after_ctrl_c(self) -> None:
        """Nothing: no ^C stands in a notebook."""

    def own_isolation(self, status: Status) -> IsolationView | None:
        """Tried by this kernel, which stands where its server stands, and only once as long as nothing changes."""
        asked = question(status, os.environ, {kernel_id()})
        return None if asked is None else _find_out_once(asked)

    def held(self, it: WorkloadView, text: str) -> None:
        """Pin this kernel to what it has now, and say so."""
        from .verbs import pin_to

        remark = remark_in_an_attempt("it is not pinned to others")
        self.say(text, *([remark] if remark else pin_to(it)))

    def waiting(self, text: str) -> None:
        """Say how a wait stands; empty when it is over."""
        raise NotImplementedError

    def wait_for(
        self, workload: int, until: str, seconds: float | None, *, raise_on_timeout: bool = True
    ) -> WorkloadView:
        """Wait, and say meanwhile how it stands. An interrupt ends the wait."""
        deadline = time.monotonic() + (float("inf") if seconds is None else seconds)
        looks = 0
        while True:
            left = max(0.0, deadline - time.monotonic())
            step = min(left, _LOOKS_SECONDS[min(looks, len(_LOOKS_SECONDS) - 1)])
            it = self.client.wait(workload, until, step, raise_on_timeout=False)
            if calls.is_reached(it, until) or left <= step:
                self.waiting("")
                if calls.is_reached(it, until) or not raise_on_timeout:
                    return it
                raise calls.timed_out(it, until)
            looks += 1
            if not self.as_json:
                self.waiting(f"{title(it)}: {why(it) or it.state}")


class Terminal(KernelFace):
    """IPython in a terminal: as the terminal's own commands."""

    _waited = ""

    def say(self, *things: RenderableType) -> None:
        """Show to a person."""
        super().say(*(spoken_here(it) if isinstance(it, str) else it for it in things))

    def aside(self, text: str) -> None:
        """Tell what is not the answer."""
        super().aside(spoken_here(text))

    def waiting(self, text: str) -> None:
        """Say it anew only where it has changed."""
        if text and text != self._waited:
            self.aside(text)
        self._waited = text


class Page(KernelFace):
    """A notebook. Prose is broken by the page, tables keep their shape, and raw text goes to the cell's stdout."""

    def __init__(self, own: Mapping[str, click.Command], **more: Any) -> None:
        super().__init__(own, console=page_console(sys.stdout), **more)
        self._html: list[str] = []
        self._text: list[str] = []
        self._waits: tuple[str, str] | None = None
        self._display: Any = None

    @property
    def may_watch(self) -> bool:
        """A cell that watches for ever would keep the kernel busy; a widget does not."""
        return False

    @property
    def draws_over(self) -> str:
        """A page forgets what stands before a carriage return."""
        return "\r"

    def say(self, *things: RenderableType) -> None:
        """Show to a person."""
        for thing in things:
            self._add(*self._drawn(thing))
        self._show()

    def line(self, text: str, style: str = "") -> None:
        """Show a line that is meant to be copied."""
        self.say(Text(text, style))

    def aside(self, text: str) -> None:
        """Tell what is not the answer, less loudly."""
        if not self.as_json:
            self.say(Text(spoken_here(text), "dim"))

    def waiting(self, text: str) -> None:
        """Show how a wait stands, in place of what stood there before."""
        self._waits = self._drawn(Text(spoken_here(text), "dim")) if text else None
        self._show()

    def write(self, text: str) -> None:
        """Write text as it is. What is shown afterwards comes below it."""
        if text:
            self._html, self._text, self._display = [], [], None
            super().write(text)

    def _drawn(self, thing: RenderableType) -> tuple[str, str]:
        thing = Text(spoken_here(thing)) if isinstance(thing, str) else thing
        return draw(thing, self.out)

    def _add(self, html: str, text: str) -> None:
        self._html.append(html)
        self._text.append(text)

    def _show(self) -> None:
        from IPython.display import display

        html, text = list(self._html), list(self._text)
        if self._waits:
            html.append(self._waits[0])
            text.append(self._waits[1])
        if not html and self._display is None:
            return
        bundle = {"text/html": f'<div style="{_BOX}">{"".join(html)}</div>', "text/plain": "\n".join(text)}
        if self._display is None:
            self._display = display(bundle, raw=True, display_id=True)
        else:
            self._display.update(bundle, raw=True)


def page_console(file: Any) -> Console:
    """Make a console that measures and draws for a page, and whose file takes raw text."""
    return Console(
        file=file, width=WIDTH, height=1000, force_terminal=False, force_jupyter=False, color_system="truecolor",
        markup=False, highlight=False, emoji=False,
    )  # fmt: skip


def draw(thing: RenderableType, console: Console | None = None) -> tuple[str, str]:
    """Draw a thing as HTML and as plain text."""
    console = console or page_console(io.StringIO())
    if isinstance(thing, Text):
        segments = list(thing.render(console))
        style = f"{_PRE};white-space:pre-wrap;word-break:normal;overflow-wrap:break-word"
    else:
        lines = console.render_lines(thing, console.options, pad=False)
        segments = [segment for line in lines for segment in (*line, Segment.line())]
        style = _PRE
    html = "".join(_span(it.text, it.style) for it in Segment.simplify(Segment.filter_control(segments)))
    text = "".join(it.text for it in segments)
    plain = "\n".join(line.rstrip() for line in text.rstrip("\n").split("\n"))
    # Always <pre>: elsewhere a page takes what stands between two dollars for mathematics. An empty line has no height.
    return f'<pre style="{style}">{spoken_here(html.rstrip()) or "&nbsp;"}</pre>', spoken_here(plain)


def _span(text: str, style: Any) -> str:
    css = style.get_html_style(_THEME) if style else ""
    if not css:
        return escape(text)
    for tone, variable in _TONES.values():
        if variable:
            css = css.replace(tone, f"var({variable},{tone})")
    return f'<span style="{css}">{escape(text)}</span>'


def make_face(shell: Any) -> KernelFace:
    """Make the face of a shell: only a kernel's can show HTML."""
    from .verbs import OWN

    return Page(OWN) if getattr(shell, "kernel", None) is not None else Terminal(OWN)
