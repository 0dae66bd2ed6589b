"""`%gpu` and `%%gpu`: every verb of `jupyter gpu` in a notebook, with the same options.

This module is loaded into every Python kernel at its start, so it imports next to nothing: the command line, the client
and rich come with the first `%gpu`.
"""

from __future__ import annotations

import contextlib
from collections import ChainMap
from collections.abc import Mapping
from typing import Any

from IPython.core.completer import context_matcher
from IPython.core.getipython import get_ipython
from IPython.core.magic import needs_local_scope, no_var_expand

_MATCHER = "jupyter_gpu.magics"


@no_var_expand
@needs_local_scope
def gpu(line: str, cell: str | None = None, *, local_ns: Mapping[str, Any] | None = None) -> Any:
    """Reserve GPUs for this kernel, send trainings to the queue, see who holds what.

    ::

        %gpu                               # what this kernel holds, the GPUs, my work, my quota
        %gpu reserve 1 --for 2h            # wait for a GPU, and pin this kernel to it
        %gpu reserve --no-wait             # take a place in line and go on; %gpu pin when it is granted
        %gpu extend 7 1h
        %gpu keep                          # although it is idle
        %gpu release                       # give it back

        %gpu submit --time 8h -- python train.py --lr {lr}
        _.wait()                           # the job: .wait() .log() .cancel()
        %gpu log 12 --follow
        %gpu cancel 12
        %gpu --help                        # all verbs; %gpu VERB --help explains one

    A cell as a job. Its text runs as a script with this kernel's Python, in this folder; what other cells defined or
    imported is not there, so the cell imports what it needs, and --with names what else it gets, as it is now::

        %%gpu submit --gpus 2 --time 8h --name digits --with lr,data
        import train
        train.main(data, lr)

    A notebook as a job, with its parameters; its results go into a new one beside it::

        %gpu submit --gpus 1 -p lr={lr} train.ipynb

    The options are those of `jupyter gpu` in a terminal, and words are split as a shell does: quote what has spaces.
    {name} and $name put variables in; what is no variable of yours, JSON for example, stays as it is.

    Interrupting the kernel ends a wait. A failure is an error, so "Run all" stops there. For pictures that update
    themselves: jupyter_gpu.GpuMonitor(), jupyter_gpu.QuotaBar() and jupyter_gpu.JobView(12).
    """
    from .running import run

    shell = get_ipython()
    user = getattr(shell, "user_ns", {})
    return run(shell, line, cell, ChainMap(dict(local_ns or {}), user))


def load(shell: Any) -> None:
    """Give a shell `%gpu` and `%%gpu` and what completes them. To load twice is to load once."""
    shell.register_magic_function(gpu, "line_cell", "gpu")
    unload_completion(shell)
    completer = getattr(shell, "Completer", None)
    if completer is not None:
        completer.custom_matchers.append(_match)


def unload_completion(shell: Any) -> None:
    """Take away what completes, whichever copy of this module put it there."""
    matchers = getattr(getattr(shell, "Completer", None), "custom_matchers", [])
    matchers[:] = [it for it in matchers if getattr(it, "matcher_identifier", None) != _MATCHER]


@context_matcher(identifier=_MATCHER)
def _match(context: Any) -> Any:
    """Complete the words of a `%gpu` line; nothing elsewhere."""
    before = context.text_until_cursor.lstrip()
    head = before.split(maxsplit=1)[0] if before else ""
    if head not in ("%gpu", "%%gpu") or before == head:
        return {"completions": []}
    with contextlib.suppress(Exception):  # a Tab must never end in a traceback
        from .completing import matches

        return matches(before.removeprefix(head), context.token)
    return {"completions": []}
