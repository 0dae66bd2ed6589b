"""What git says of a folder: the commit, whether anything differs from it, and the difference itself.

git is asked, and runs nothing that a repository names: no hook, no monitor of files, no driver of diffs or filters of
its own, no network. It writes nothing either. What it cannot say within some seconds is left out, and that is told.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from .spawn import NOT_FOUND, Caught, catch
from .units import format_bytes

#: All that git is given for one submission.
MOST_SECONDS = 3.0
MOST_DIFF_BYTES = 1 << 20
MOST_UNTRACKED = 500
_MOST_BYTES = 4 << 20

_HARDENED = (
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "core.pager=cat"),
    *("-c", "diff.noprefix=false"),
    *("-c", "diff.mnemonicPrefix=false"),
    *("-c", "diff.submodule=short"),
    *("-c", "protocol.allow=never"),
)
_QUIET = {
    "LC_ALL": "C",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    # Not one protocol: what a partial clone lacks is not fetched for a record.
    "GIT_ALLOW_PROTOCOL": "",
}
#: Of a submodule only its commit is looked at: to look into it git would run once more, without our words.
_SUBMODULES = "--ignore-submodules=dirty"
_OURS = b".jupyter-gpu/"
_FILTER = re.compile(r"filter\.(.+)\.(?:clean|smudge|process|required)", re.DOTALL)
_URL = re.compile(r"remote\.(.+)\.url", re.DOTALL)


class Found(NamedTuple):
    """The short words of a repository, and the text of what differs from its commit; empty where nothing does."""

    words: dict[str, str]
    diff: bytes


def look(folder: str, environ: Mapping[str, str]) -> Found:
    """Ask git of a folder. No git or no repository is no finding, and nothing to be told."""
    root = _root_of(folder)
    if root is None:
        return Found({}, b"")
    git = _Git(root, environ, time.monotonic() + MOST_SECONDS)
    settings = git.ask("config", "--list", "-z", "--show-scope", "--includes")
    if settings.exit_code == NOT_FOUND:
        return Found({}, b"")
    head = git.ask("rev-parse", "--verify", "-q", "HEAD")
    if "dubious ownership" in settings.errors + head.errors:
        return Found({"git_note": _NOT_OURS}, b"")
    git.leave_out_filters(settings.output)
    words = {"git_root": root}
    if head.exit_code == 0:
        words["git_commit"] = head.output.decode("ascii", "replace").strip()
    branch = git.ask("symbolic-ref", "-q", "--short", "HEAD")
    if branch.exit_code == 0:
        words["git_branch"] = os.fsdecode(branch.output).strip()
    if remote := _remote(settings.output, words.get("git_branch")):
        words["git_remote"] = remote
    return _changes(git, words, is_born=head.exit_code == 0)


_NOT_OURS = (
    "the folder's repository belongs to another account, and git reads it only where `safe.directory` names it; so "
    "neither commit nor changes are recorded"
)


class _Git:
    """git in one repository, hardened and with one deadline for all that it is asked."""

    def __init__(self, root: str, environ: Mapping[str, str], deadline: float) -> None:
        self._root, self._deadline = root, deadline
        self._environ = {name: value for name, value in environ.items() if not name.startswith("GIT_")} | _QUIET

    def ask(self, *words: str, most_bytes: int = _MOST_BYTES) -> Caught:
        left = max(0.0, self._deadline - time.monotonic())
        argv = ["git", "--no-pager", *_HARDENED, *words]
        return catch(argv, left, most_bytes=most_bytes, cwd=self._root, environ=self._environ)

    def leave_out_filters(self, settings: bytes) -> None:
        """A program that the repository itself names for its files is not run; the user's own (git-lfs) are."""
        none = {"clean": "", "smudge": "", "process": "", "required": "false"}
        words = [(f"filter.{name}.{key}", it) for name in sorted(_filters(settings)) for key, it in none.items()]
        # Not as options, which cannot say a name that holds a sign of equality.
        self._environ["GIT_CONFIG_COUNT"] = str(len(words))
        for number, (key, value) in enumerate(words):
            self._environ |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}


def _root_of(folder: str) -> str | None:
    """The folder with the repository, without starting anything."""
    place = os.path.abspath(folder)  # noqa: PTH100 - the text may be no UTF-8, and stays as it was given
    while not os.path.lexists(os.path.join(place, ".git")):  # noqa: PTH118
        place, before = os.path.dirname(place), place  # noqa: PTH120
        if place == before:
            return None
    return place


def _settings(text: bytes) -> Iterable[tuple[str, str, str]]:
    """Scope, name and value of each setting."""
    parts = text.split(b"\0")
    for scope, entry in zip(parts[0::2], parts[1::2], strict=False):
        name, _, value = entry.partition(b"\n")
        yield scope.decode("ascii", "replace"), os.fsdecode(name), os.fsdecode(value)


def _filters(settings: bytes) -> set[str]:
    found = (_FILTER.fullmatch(name) for scope, name, _ in _settings(settings) if scope in ("local", "worktree"))
    return {match[1] for match in found if match is not None}


def _remote(settings: bytes, branch: str | None) -> str:
    """Where the commits come from, without whoever's name and token: of the branch, else origin, else the first."""
    known = {name: value for _, name, value in _settings(settings)}
    urls = {match[1]: value for name, value in known.items() if (match := _URL.fullmatch(name)) is not None}
    wanted = (known.get(f"branch.{branch}.remote", ""), "origin", *urls)
    return next((without_secrets(urls[name]) for name in wanted if name in urls), "")


def without_secrets(url: str) -> str:
    """Leave out of an address whatever may be a secret: a name with a password, a token, a query."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        return url  # a path, or git@host:path, whose name is that of an account
    rest = re.split(r"[?#]", rest, maxsplit=1)[0]
    place, slash, path = rest.partition("/")
    user, at, host = place.rpartition("@")
    # Over SSH the name alone is an account, such as git; over HTTP a token may stand in its place.
    keep = f"{user}@" if at and scheme.endswith("ssh") and ":" not in user else ""
    return f"{scheme}://{keep}{host}{slash}{path}"


# -- what differs from the commit


def _changes(git: _Git, words: dict[str, str], *, is_born: bool) -> Found:
    status = git.ask("status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=normal", _SUBMODULES)
    if status.exit_code != 0 and not status.is_cut:
        return Found(words | {"git_note": _why_not(status)}, b"")
    changed, untracked = _read_status(status.output)
    if not changed and not untracked:
        return Found(words | {"git_dirty": "no"}, b"")
    base = "HEAD" if is_born else git.ask("hash-object", "-t", "tree", "/dev/null").output.decode().strip()
    diff = b""
    if changed:
        asked = ("--no-ext-diff", "--no-textconv", "--no-color", "--no-renames", "--full-index", _SUBMODULES)
        found = git.ask("diff", *asked, base, "--", most_bytes=MOST_DIFF_BYTES)
        diff = found.output
        if found.is_cut:
            diff = _cut(diff)
            words["git_note"] = f"the difference is longer than {format_bytes(MOST_DIFF_BYTES)} and was cut there"
        elif found.exit_code != 0:
            words["git_note"] = _why_not(found)
    words["git_dirty"] = _summary(changed, untracked, diff)
    return Found(words, _heading(words, untracked) + diff)


def _why_not(asked: Caught) -> str:
    if asked.exit_code is None:
        return f"git needed more than {MOST_SECONDS:g} seconds, so not all that differs from the commit is recorded"
    lines = asked.errors.strip().splitlines()
    said = lines[0].removeprefix("fatal: ") if lines else f"exit code {asked.exit_code}"
    return f"git could not say what differs from the commit: {said}"


def _read_status(text: bytes) -> tuple[list[bytes], list[bytes]]:
    """The files that differ, and those that git does not know; our own checkpoints are neither."""
    entries = [(entry[:2], entry[3:]) for entry in text.split(b"\0") if entry]
    mine = [(kind, name) for kind, name in entries if not f"/{os.fsdecode(name)}".endswith("/.jupyter-gpu/")]
    return [name for kind, name in mine if kind != b"??"], [name for kind, name in mine if kind == b"??"]


def _cut(diff: bytes) -> bytes:
    whole = diff[: diff.rfind(b"\n") + 1]
    return whole + b"# cut here: the difference is longer\n"


def _summary(changed: Sequence[bytes], untracked: Sequence[bytes], diff: bytes) -> str:
    """How much differs, in a few words: "2 files, +14 -3 lines, 1 untracked"."""
    parts = []
    if changed:
        added, removed = _count(diff)
        parts += [f"{len(changed)} file" + ("s" if len(changed) > 1 else ""), f"+{added} -{removed} lines"]
    if untracked:
        parts.append(f"{len(untracked)} untracked")
    return ", ".join(parts)


def _count(diff: bytes) -> tuple[int, int]:
    """Lines that were added and removed: those of the hunks, whose lengths their headings say."""
    added = removed = 0
    old = new = 0
    for line in diff.split(b"\n"):
        if old > 0 or new > 0:
            sign = line[:1]
            added, removed = added + (sign == b"+"), removed + (sign == b"-")
            old, new = old - (sign in (b" ", b"-", b"")), new - (sign in (b" ", b"+", b""))
        elif (match := _HUNK.match(line)) is not None:
            old, new = int(match[1] or 1), int(match[2] or 1)
    return added, removed


_HUNK = re.compile(rb"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


def _heading(words: Mapping[str, str], untracked: Sequence[bytes]) -> bytes:
    """What stands before a diff; `git apply` and `patch` pass over it."""
    lines = [f"# against {words.get('git_commit', 'nothing: there is no commit yet')}".encode()]
    lines += [b"# not known to git, and not in here: " + _on_one_line(name) for name in untracked[:MOST_UNTRACKED]]
    if (more := len(untracked) - MOST_UNTRACKED) > 0:
        lines.append(f"# and {more} more that git does not know".encode())
    return b"\n".join(lines) + b"\n"


def _on_one_line(name: bytes) -> bytes:
    return name if b"\n" not in name and b"\r" not in name else repr(os.fsdecode(name)).encode()
