"""What the server says to a running Python kernel behind the user's back: one expression, unseen and without a trace.

No output, no history, no execution count. A kernel that computes answers when the cell has ended, and an ask cannot be
called back: what must not happen late carries the instant until which it is meant (`live.change`).
"""

from __future__ import annotations

import ast
import asyncio
import queue
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

from jupyter_client.session import Session

from . import live

#: A kernel that does not answer within this is busy.
ANSWER_SECONDS = 3.0

Changed = Literal["done", "loaded", "late", "busy", "failed"]


async def change_pin(manager: Any, devices: Sequence[str] | None, seconds: float = ANSWER_SECONDS) -> Changed:
    """Pin a running Python kernel, or unpin it for None; says what came of it."""
    until = time.time() + seconds
    said = await _ask(manager, _expression(devices, until), seconds)
    if said is None:
        return "busy"
    found: Any = said if said in ("done", "loaded", "late") else "failed"
    return "busy" if found == "late" else found


def _expression(devices: Sequence[str] | None, until: float) -> str:
    named = None if devices is None else list(devices)
    return (
        f"(lambda names: (exec({_source()!r}, names), names['change']({named!r}, {until!r}))[1])"
        "({'__name__': '_jupyter_gpu_live'})"
    )


@cache
def _source() -> str:
    return Path(live.__file__).read_text(encoding="utf-8")


async def _ask(manager: Any, expression: str, seconds: float) -> str | None:
    """The value of an expression that is a string; "" where it failed, None where nothing was answered in time."""
    client = client_of(manager)
    client.start_channels(iopub=False, stdin=False, hb=False, control=False)
    try:
        asked = client.execute(
            "", silent=True, store_history=False, allow_stdin=False, user_expressions={"gpu": expression}
        )
        return await asyncio.wait_for(_answer(client, asked), seconds)
    except TimeoutError:
        return None
    finally:
        client.stop_channels()


async def _answer(client: Any, asked: str) -> str:
    while True:
        try:
            reply = await client.get_shell_msg(timeout=1.0)
        except queue.Empty:
            continue
        if reply["parent_header"].get("msg_id") != asked:
            continue
        said = reply["content"].get("user_expressions", {}).get("gpu", {})
        if said.get("status") != "ok":
            return ""
        value = ast.literal_eval(said["data"]["text/plain"])
        return value if isinstance(value, str) else ""


async def is_ready(manager: Any, seconds: float) -> bool:
    """Wait until a kernel that is starting answers: a restart meanwhile would interrupt its imports."""
    client = client_of(manager)
    client.start_channels(stdin=False, control=False)
    try:
        await client.wait_for_ready(timeout=seconds)
    except RuntimeError:
        return False
    else:
        return True
    finally:
        client.stop_channels()


def client_of(manager: Any) -> Any:
    """A client with a session of its own: of two with the same, a kernel answers only the first, for ever."""
    return manager.client(session=Session(config=manager.session.config, key=manager.session.key))
