"""From a command line to what a job runs: argument list, script, folder, environment.

The arguments stay exactly as they were given. Which of them is the submitted script is found here, since only the
client can send the file's content, so that a later edit does not change a queued job.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from ..environment import scrub, select
from ..errors import InvalidAsk
from ..model import JobSpec, Script, pack_bytes
from ..units import format_bytes

#: A larger file is no script; it stays where it is and is read when the job runs.
MOST_SCRIPT_BYTES = 16 << 20

_PYTHON = re.compile(r"(python|pypy)[\d.]*t?")
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "ash")
_OTHERS = ("perl", "ruby", "Rscript", "julia", "node")
# They find a file that is named without its ending.
_RESOLVERS = ("node",)
_OF_A_SHELL = ("|", "||", "|&", "&&", "&", ";", ">", ">>", "<", "<<", "2>", "&>", "2>&1")
# They start Python on the first script among their words; which of their options take a value only they know.
_LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "uv", "ipython", "horovodrun", "colossalai", "composer", "fabric")
# Options of Python and of shells that take the next word, and those after which no script comes.
_TAKES_NEXT = {
    "python": ("-W", "-X", "--check-hash-based-pycs"),
    "shell": ("-o", "-O", "+o", "+O", "--rcfile", "--init-file"),
}
_NO_SCRIPT = {"python": "cm", "shell": "cs"}


class Command(NamedTuple):
    """What a job runs, and what the person who submits should know of it."""

    spec: JobSpec
    script: Script | None
    notes: tuple[str, ...]
    #: Variables that look like secrets or marks, and pass because they were asked for by name.
    given: tuple[str, ...]


def pack(text: str) -> str:
    """Write what the operating system gave us as text of the model, byte for byte."""
    return pack_bytes(os.fsencode(text))


def make_command(
    argv: Sequence[str],
    *,
    text: Script | None = None,
    folder: str | None = None,
    environ: Mapping[str, str],
    wanted: Sequence[str] = (),
    checkpoint_dir: str | None = None,
    retries: int | None = None,
    grace_seconds: int | None = None,
    parameters: Mapping[str, Any] | None = None,
    in_image: bool = False,
) -> Command:
    """Read a command line as the caller's shell would run it, here and now; refuse what could not run at all.

    `text` is a script that is in no file: the word after the program only names it. What is `in_image` of a container
    cannot be looked up here, so what is not found may well be there.
    """
    where = _folder(folder)
    recorded = {} if in_image else {"program": pack(_find(argv[0], where, environ.get("PATH")))}
    if text is None:
        if not in_image:
            _refuse_a_missing_script(argv, where, environ.get("PATH"))
        index, script, notes = _script(argv, where)
    else:
        index, script, notes = 1, text, _notes_of_a_shell(argv)
    variables, given = _environment(environ, wanted)
    spec = JobSpec(
        argv=tuple(map(pack, argv)),
        folder=pack(where),
        environment=variables,
        script_index=index,
        checkpoint_dir=None if checkpoint_dir is None else pack(os.path.expanduser(checkpoint_dir)),  # noqa: PTH111
        retries=retries,
        grace_seconds=grace_seconds,
        parameters=dict(parameters or {}),
        recorded=recorded,
    )
    return Command(spec, script, tuple(notes), given)


def _script(argv: Sequence[str], folder: str) -> tuple[int | None, Script | None, list[str]]:
    """Find the submitted script and read it; with what the person who submits should know."""
    notes = _notes_of_a_shell(argv)
    index = script_index(argv, folder)
    if index is None:
        return None, None, notes
    script, note = _read(argv[index], folder)
    return (None if script is None else index), script, notes + ([note] if note else [])


def shell_argv(text: str) -> tuple[str, str, str]:
    """Make the argument list of the explicit shell mode."""
    return ("/bin/bash" if os.access("/bin/bash", os.X_OK) else "/bin/sh", "-c", text)


def _environment(environ: Mapping[str, str], wanted: Sequence[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    for text in wanted:
        name = text.partition("=")[0]
        if not name or "\0" in text:
            raise InvalidAsk(f"The entry {text!r} has no name.", hint="Write --env NAME or --env NAME=VALUE.")
        # The broker would leave these out without a word, since it says them itself.
        if name in scrub({name: ""}, given=[name])[1]:
            raise InvalidAsk(
                f"{name} cannot be given to a job: it is set anew for each attempt, by what was granted.",
                hint="Leave it out; how many GPUs a job sees is said with --gpus.",
            )
    return select(environ, wanted)


def _folder(folder: str | None) -> str:
    try:
        where = os.getcwd() if folder is None else os.path.abspath(os.path.expanduser(folder))  # noqa: PTH100, PTH109, PTH111
    except FileNotFoundError:
        raise InvalidAsk(
            "The current folder does not exist any more.", hint="Go to one that does, or name one with --folder."
        ) from None
    if not os.path.isdir(where):  # noqa: PTH112 - a Path would be no clearer, and argv is text
        raise InvalidAsk(f"There is no folder {folder!r}.", hint="Name the folder that the job should run in.")
    return where


def _find(program: str, folder: str, path: str | None) -> str:
    """Find what will run, as the start of the attempt will, so that a slip is told now and not at night."""
    if "\0" in program or not program:
        raise InvalidAsk(
            "The command is empty.", hint="Write what to run, as in `jupyter gpu submit -- python train.py`."
        )
    if "/" not in program:
        found = shutil.which(program, path=path)
        if found is None:
            raise InvalidAsk(f"There is no command {program!r} on your PATH.", hint=_hint_for(program, folder))
        return os.path.abspath(found)  # noqa: PTH100
    found = os.path.join(folder, program)  # noqa: PTH118
    if not os.path.isfile(found):  # noqa: PTH113
        raise InvalidAsk(
            f"There is no file {program!r} in {folder!r}.", hint="Name the command as you would to run it there."
        )
    if not os.access(found, os.X_OK):
        raise InvalidAsk(
            f"{program!r} may not be executed.",
            hint=f"Run `chmod +x`, or name its interpreter, as in `python {program}`.",
        )
    return os.path.normpath(found)


def _hint_for(program: str, folder: str) -> str:
    if os.path.isfile(os.path.join(folder, program)):  # noqa: PTH113, PTH118
        return f"There is a file of that name: write `python {program}` or `./{program}`."
    if any(char in program for char in " |&;<>$"):
        return 'It looks like a line for a shell: `--shell "..."` runs it with one.'
    return "Check the spelling, or activate the environment that has it."


def _notes_of_a_shell(argv: Sequence[str]) -> list[str]:
    """Warn of words that only a shell would act on, and that reach the command as they are."""
    from .text import command_line

    found = next((word for word in argv[1:] if word in _OF_A_SHELL), None)
    if found is None:
        return []
    # As it would have to be quoted: the words of the shell bare, the others as they are.
    line = " ".join(word if word in _OF_A_SHELL else command_line([word]) for word in argv)
    return [f"there is no shell, so {found!r} goes to the command as a word. Did you mean --shell {line!r}?"]


def _refuse_a_missing_script(argv: Sequence[str], folder: str, path: str | None) -> None:
    """Refuse what an interpreter could not find, where it is certain which of the words that is."""
    start = _after_wrappers(argv)
    program = PurePath(argv[start]).name if start < len(argv) else ""
    place = _script_place(argv, start, program)
    if place is None or place >= len(argv) or program in _RESOLVERS:
        return
    word = argv[place]
    # A shell looks along the PATH for what is not in the folder.
    places = [folder, *((path or "").split(":") if program in _SHELLS and "/" not in word else ())]
    if not any(os.path.exists(os.path.join(where, word)) for where in places):  # noqa: PTH110, PTH118
        raise InvalidAsk(f"There is no file {word!r} in {folder!r}.", hint="Check the spelling, or name the --folder.")


def _script_place(argv: Sequence[str], start: int, program: str) -> int | None:
    """Find the word that an interpreter takes for its script; None where that is not certain, or there is none."""
    if _PYTHON.fullmatch(program):
        return _first_word(argv, start + 1, "python")
    if program in _SHELLS:
        return _first_word(argv, start + 1, "shell")
    if program in _OTHERS and start + 1 < len(argv) and not argv[start + 1].startswith("-"):
        return start + 1
    return None


def script_index(argv: Sequence[str], folder: str) -> int | None:
    """Find the place of the script among the arguments, where one is run: `python train.py`, `./train.sh`."""
    start = _after_wrappers(argv)
    if start >= len(argv):
        return None
    program = PurePath(argv[start]).name
    if _PYTHON.fullmatch(program) or program in _SHELLS or program in _OTHERS:
        place = _script_place(argv, start, program)
    elif program in _LAUNCHERS:
        place = _first_python_file(argv, start + 1, folder)
    else:
        return start if "/" in argv[start] and _is_script(argv[start], folder) else None
    return place if place is not None and place < len(argv) and _is_file(argv[place], folder) else None


def _after_wrappers(argv: Sequence[str]) -> int:
    """Skip `env NAME=VALUE` and `nohup`, which run the words after them."""
    place = 0
    while place < len(argv):
        program = PurePath(argv[place]).name
        if program == "env":
            place += 1
            while place < len(argv) and ("=" in argv[place] and not argv[place].startswith("-")):
                place += 1
        elif program in ("nohup", "exec"):
            place += 1
        else:
            break
    return place


def _first_word(argv: Sequence[str], start: int, kind: str) -> int | None:
    """Find the first argument that is no option; None where an option says that no script follows."""
    place = start
    while place < len(argv):
        word = argv[place]
        if word == "--":
            return place + 1
        if word == "-" or not word.startswith(("-", "+") if kind == "shell" else "-"):
            return None if word == "-" else place
        if word in _TAKES_NEXT[kind]:
            place += 1
        elif not word.startswith("--"):
            # Short options are written together: -um is -u -m. What follows W or X is their value.
            letters = re.split("[WX]", word[1:])[0] if kind == "python" else word[1:]
            if any(letter in _NO_SCRIPT[kind] for letter in letters):
                return None
        place += 1
    return None


def _first_python_file(argv: Sequence[str], start: int, folder: str) -> int | None:
    for place in range(start, len(argv)):
        if argv[place] in ("-m", "--module", "-c"):
            return None
        if argv[place].endswith(".py") and _is_file(argv[place], folder):
            return place
    return None


def _is_file(word: str, folder: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(os.path.join(folder, word)).st_mode)  # noqa: PTH116, PTH118
    except (OSError, ValueError):
        return False


def _is_script(word: str, folder: str) -> bool:
    if not _is_file(word, folder):
        return False
    try:
        return read_file(os.path.join(folder, word), 1) == b"#!"  # noqa: PTH118
    except OSError:
        return False


def read_file(path: str, most: int) -> bytes:
    """Read a plain file up to a bound and one byte more; OSError for anything else, which could keep us for ever."""
    # Opened first and looked at then, so that nothing else can be put in its place; a fifo does not block.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no plain file")
        return file.read(most + 1)


def _read(word: str, folder: str) -> tuple[Script | None, str | None]:
    name = PurePath(word).name
    try:
        content = read_file(os.path.join(folder, word), MOST_SCRIPT_BYTES)  # noqa: PTH118
    except OSError as error:
        raise InvalidAsk(
            f"{word!r} cannot be read: {error.strerror}.", hint="The job could not read it either."
        ) from None
    if len(content) > MOST_SCRIPT_BYTES:
        return None, (
            f"{name} is larger than {format_bytes(MOST_SCRIPT_BYTES)}, so no copy is kept: "
            "an edit before the job starts changes what it runs."
        )
    return Script(name=pack(name), content=content), None
