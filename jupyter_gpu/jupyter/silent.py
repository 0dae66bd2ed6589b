"""What the server says to a running Python kernel behind the user's back: one expression, unseen and without a trace.

No output, no history, no execution count. A kernel that computes answers when the cell has ended, and an ask cannot be
called back: what must not happen late carries the instant until which it is meant (`live.change`).
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

import zmq
from jupyter_client.session import Session

from . import live

#: A kernel that does not answer within this is busy.
ANSWER_SECONDS = 3.0

#: No answer of ours is longer; a kernel is the user's, and may say anything.
MOST_ANSWER_BYTES = 256 << 10
#: What else comes on our own line before the answer; nothing does, of a kernel that means well.
MOST_OTHERS = 16

Changed = Literal["done", "loaded", "late", "busy", "failed"]

#: What `live.change` says, as a kernel shows it. Nothing of what a kernel says is evaluated here.
_SAID = {repr(word): word for word in ("done", "loaded", "late")}
_LONGEST_SAID = max(map(len, _SAID))


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
    """The word that an expression says; "" where it says another or failed, None where nothing was said in time."""
    client = client_of(manager)
    with _bounded(client.context):
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


@contextlib.contextmanager
def _bounded(context: Any) -> Iterator[None]:
    """The sockets that are made in here drop a peer that sends more than an answer of ours has."""
    before = dict(context.sockopts)
    context.setsockopt(zmq.MAXMSGSIZE, MOST_ANSWER_BYTES)
    try:
        yield
    finally:
        context.sockopts = before


async def _answer(client: Any, asked: str) -> str:
    others = 0
    while others < MOST_OTHERS:
        try:
            reply = await client.get_shell_msg(timeout=1.0)
        except queue.Empty:
            continue
        except Exception:  # noqa: BLE001 - what is no message at all is told in many ways, and is no answer
            return ""
        if _at(reply, "parent_header", "msg_id") == asked:
            return _word(_at(reply, "content", "user_expressions", "gpu"))
        others += 1
    return ""


def _word(said: object) -> str:
    """What was said, where it is one of the few words that are; "" for anything else."""
    text = _at(said, "data", "text/plain")
    if _at(said, "status") != "ok" or not isinstance(text, str) or len(text) > _LONGEST_SAID:
        return ""
    return _SAID.get(text, "")


def _at(found: object, *names: str) -> object:
    """What stands in objects within objects; None where one of them is no object."""
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found


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
