"""One `%gpu` line: from its words through the command line to the notebook, and a failure as one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..cli import run as run_words
from ..cli.base import INTERRUPTED
from ..errors import GpuError, InvalidAsk, WaitTimeout
from .faces import Told, make_face
from .lines import UnbalancedError, split

#: `reserve --no-wait` says that it stays in line; who asked for that is not stopped by it.
_STAYS_IN_LINE = WaitTimeout.exit_code
_EXPECTS_A_CELL = ("submit",)


def run(shell: Any, line: str, cell: str | None, names: Mapping[str, Any]) -> Any:
    """Run a line, with the text below it where it is a cell. Gives the job of a `submit`; raises what went wrong."""
    try:
        words = split(line, names)
    except UnbalancedError as error:
        raise shown(InvalidAsk(f"The line of %gpu cannot be split into words: {error}.")) from None
    face = make_face(shell)
    face.names = names
    if cell is not None:
        face.cell = _script(words, cell, shell)
    code = run_words(words or ["here"], face=face)
    _raise(code, face.told)
    if face.sent is not None and face.sent.kind == "job" and not face.as_json:
        from .submitted import JobHandle

        return JobHandle(face.sent, url=face.url)
    return None


def _script(words: list[str], cell: str, shell: Any) -> Any:
    """Make a script of a cell, byte for byte; what Python could not even read is refused now, and not at night."""
    from ..model import Script

    if not any(word in _EXPECTS_A_CELL for word in words[:1]):
        raise shown(
            InvalidAsk("A cell can only be submitted: %%gpu submit.", hint="All other verbs take one line: %gpu VERB.")
        )
    name = f"cell-{getattr(shell, 'execution_count', 0)}.py"
    try:
        content = cell.encode()
        compile(content, name, "exec", dont_inherit=True)
    except UnicodeEncodeError:
        raise shown(InvalidAsk("The cell holds half a character, which no file can hold.")) from None
    except (SyntaxError, ValueError) as error:
        raise shown(_no_python(error)) from None
    return Script(name=name, content=content)


def _no_python(error: Exception) -> GpuError:
    where = f" in its line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
    what = error.msg if isinstance(error, SyntaxError) else str(error)
    return InvalidAsk(
        f"The cell is no Python script: {what}{where}.",
        hint="A job runs plain Python: no %magics, no !commands, and await only inside functions (asyncio.run).",
    )


def _raise(code: int, told: list[Told]) -> None:
    """Raise what was told, so that "Run all" stops; nothing where all is well."""
    if code == INTERRUPTED:
        raise shown(KeyboardInterrupt("%gpu was interrupted."))
    if told:
        raise shown(told[0].error, [line for it in told for line in it.lines])
    if code not in (0, _STAYS_IN_LINE):
        raise shown(GpuError(f"%gpu ended with {code}, as it would in a terminal."))


def shown(error: BaseException, lines: list[str] | None = None) -> BaseException:
    """Let an error be shown as its sentences, without a traceback: IPython asks it for them."""
    said = lines or [str(error), *([error.hint] if isinstance(error, GpuError) and error.hint else [])]
    kind = "Interrupted" if isinstance(error, KeyboardInterrupt) else "Error"
    said = [f"\x1b[31m{kind}:\x1b[0m {said[0]}", *said[1:]]
    error._render_traceback_ = lambda: said  # type: ignore[attr-defined]
    return error
