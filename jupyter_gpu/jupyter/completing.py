"""The Tab key after `%gpu`: verbs, options, and from a broker that runs already numbers, GPUs and queues."""

from __future__ import annotations

import shlex
from typing import Any

from click.shell_completion import ShellComplete
from IPython.core.completer import SimpleCompletion

from ..cli import gpu
from ..cli.base import Face
from .verbs import OWN


def matches(before: str, token: str) -> Any:
    """Complete what stands before the cursor; `token` is the part that the notebook would replace."""
    words, incomplete = _words(before)
    face = Face()
    face.own = OWN
    found = ShellComplete(gpu, {"obj": face}, "%gpu", "_").get_completions(words, incomplete)
    # The word may begin before the token: IPython's own splitter breaks words at signs that options hold.
    cut = len(incomplete) - len(token) if incomplete.endswith(token) else 0
    return {
        "completions": [SimpleCompletion(text=it.value[cut:], type="magic") for it in found if it.type == "plain"],
        "matched_fragment": token,
        "suppress": True,
        "ordered": True,
    }


def _words(before: str) -> tuple[list[str], str]:
    """Split what is typed until now; the last word is unfinished unless a space follows it."""
    try:
        words = shlex.split(before)
    except ValueError:  # within quotes nothing of ours is completed
        return [], before
    if before[-1:].isspace() or not words:
        return words, ""
    return words[:-1], words[-1]
