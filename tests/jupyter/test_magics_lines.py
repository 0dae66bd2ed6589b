"""The words of a %gpu line: split as a POSIX shell does, with variables put in and all else intact."""

import shlex
from types import SimpleNamespace

import pytest

from jupyter_gpu.jupyter.lines import UnbalancedError, split

NAMES = {
    "lr": 0.125,
    "note": 'it\'s "ok" \\ there',
    "path": "my file.py",
    "flags": "--gpus 2 --name 'a b'",
    "d": {"key": "value"},
    "args": SimpleNamespace(epochs=5),
    "x": 3,
}


@pytest.mark.parametrize(
    "line",
    [
        # ipython/ipython#12729: the stock splitter makes two pieces of the first.
        """submit --name='a b' python "my file.py" --note "it's ok" """,
        r"""submit -- python -c 'print("a\n")' a\ b "\"q\"" '' "" """,
        """submit -- awk '{print $1}' f""",
        """submit -- python t.py --config '{"lr": 0.1, "deep": {"a": [1, 2]}}'""",
        'submit -- python t.py --config "{\\"lr\\": 0.1}" résultat 😀 “curly”',
        "submit -- echo ${HOME} $HOME {undefined} {} {0} {a:1} {{deep}} $$ $1",
        "submit -- python t.py '#12' #12 a;b|c>d",
        "  \t submit  ",
        "",
    ],
)
def test_a_line_without_variables_is_split_as_a_shell_does(line):
    """Quotes, escapes, JSON, awk and the shell's own signs arrive as a POSIX shell would pass them."""
    assert split(line, NAMES) == shlex.split(line)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--lr {lr} $lr", ["--lr", "0.125", "0.125"]),
        ("{lr * 2} {lr:.1f} {path!r:>14}", ["0.25", "0.1", "my file.py"]),
        ("{d['key']} {d[\"key\"]} {len(path)} $args.epochs.nothing", ["value", "value", "10", "5.nothing"]),
        # In quotes a value stays one word, whatever it holds; without, it is read as if it stood there.
        ('\'{note}\' "{note}" "$note"', [NAMES["note"]] * 3),
        ('python "{path}" {path}', ["python", "my file.py", "my", "file.py"]),
        ("{flags}", ["--gpus", "2", "--name", "a b"]),
        ("'$lr' '{lr}'", ["$lr", "0.125"]),
        ("{{lr}} $$lr", ["{lr}", "$lr"]),
        # A variable beside JSON: each for itself.
        ('\'{"lr": {lr}}\' {"x":x} {x}', ['{"lr": 0.125}', "{x:x}", "3"]),
        ("{print} {x if} {x/0} {import os}", ["{print}", "{x", "if}", "{x/0}", "{import", "os}"]),
    ],
)
def test_variables_are_put_in_and_nothing_else(line, words):
    """{name} and $name are the user's variables; what names none stays as it is (IPython drops or keeps all of it)."""
    assert split(line, NAMES) == words


def test_a_lonely_tilde_is_the_home_folder(monkeypatch):
    """~/ begins a path in a shell, and so here, unless it is quoted."""
    monkeypatch.setenv("HOME", "/home/a da")

    assert split("~/x.py ~ '~/y' a~/b ~root", {}) == ["/home/a da/x.py", "/home/a da", "~/y", "a~/b", "~root"]


@pytest.mark.parametrize("line", ["--name 'a", 'a "b', "it's", "a \\"])
def test_unbalanced_quotes_are_told(line):
    """What a shell would go on asking for is refused."""
    with pytest.raises(UnbalancedError):
        split(line, {})


def test_a_value_with_a_quote_is_told_where_it_is_not_quoted():
    """Without quotes around it, a value is read as part of the line."""
    with pytest.raises(UnbalancedError):
        split("--note {note}", {"note": "it's"})
