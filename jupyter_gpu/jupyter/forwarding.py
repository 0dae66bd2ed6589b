"""Which questions of a page are passed on to the broker, and what of the answer comes back. Pure.

A page asks the broker's own API below our prefix. Only plain paths pass: a path is never decoded here and read again
there, so no dots or encoded slashes lead it elsewhere. What would stay open for long has a way of its own: the stream
is fanned out by `upstream`, and a log is read part by part.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl

from ..client.calls import ANSWER_SECONDS, MANY_SECONDS, Call, passed_on
from ..errors import InvalidAsk, LimitExceeded, NotFound

PREFIX = "jupyter-gpu/api/v1"
#: A script of 16 MiB as JSON carries it, and the words around it.
MOST_BYTES = 26 << 20
#: The broker's longest wait.
LONGEST_WAIT_SECONDS = 300.0
#: As the broker's own bound.
MOST_KEY_CHARACTERS = 200

_PLAIN = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9._~-]{1,200}){1,5}")
#: To stop the broker is for the command line; the stream and the description are not passed on.
_CLOSED = ("/stream", "/openapi.json", "/broker/stop")
#: What a page may have deleted; all else that the broker deletes is for the command line.
_DELETED = re.compile(r"/recurring/[0-9]{1,19}")
_SENT_BACK = ("retry-after",)


class _TooLarge(LimitExceeded):
    answered = 413


def check_size(body: bytes, most: int) -> None:
    """Refuse a body that is larger than anybody means."""
    if len(body) > most:
        raise _TooLarge(f"The request has {len(body)} bytes; {most} are the most.", hint="Send less at once.")


def key_of(request: Any) -> str | None:
    """The Idempotency-Key of a request, if it has one."""
    key: str | None = request.headers.get("Idempotency-Key")
    if key is not None and not (0 < len(key) <= MOST_KEY_CHARACTERS and key.isascii() and key.isprintable()):
        raise InvalidAsk(
            f"The Idempotency-Key must have 1 to {MOST_KEY_CHARACTERS} printable ASCII characters.",
            hint="A UUID will do.",
        )
    return key


def read(request: Any) -> Call[None]:
    """The call that a page's request is, or why it is none."""
    path = "/" + request.path.partition(f"/{PREFIX}/")[2]
    is_open = path not in _CLOSED and (request.method != "DELETE" or _DELETED.fullmatch(path) is not None)
    if _PLAIN.fullmatch(path) is None or not is_open:
        raise NotFound(f"There is nothing at {request.path[:200]!a}.", hint="docs/api.md lists what there is.")
    check_size(request.body, MOST_BYTES)
    asked = parse_qsl(request.query, keep_blank_values=True)
    params = tuple((name, value) for name, value in asked if not _is_for_jupyter(name, value))
    if path.endswith("/log") and dict(params).get("follow", "false") != "false":
        raise InvalidAsk("A log is not followed here.", hint="Ask part by part: go on at the X-Next-Offset header.")
    return passed_on(
        request.method,
        path,
        params,
        content=request.body or None,
        key=key_of(request),
        timeout_seconds=_patience(path),
    )


def _is_for_jupyter(name: str, value: str) -> bool:
    """Words for jupyter_server, and the time that JupyterLab adds so that no cache answers."""
    return name in ("no_track_activity", "token") or (name.isdecimal() and not value)


def _patience(path: str) -> float:
    if path.endswith("/wait"):
        return LONGEST_WAIT_SECONDS + ANSWER_SECONDS
    return MANY_SECONDS if path == "/submissions" else ANSWER_SECONDS


def headers(said: Mapping[str, str], base_url: str) -> Iterator[tuple[str, str]]:
    """What of an answer's headers the page gets; a place is told where the page can go to."""
    for name, value in said.items():
        lower = name.lower()
        if lower in _SENT_BACK or (lower.startswith("x-") and lower != "x-content-type-options"):
            yield name, value
        elif lower == "location":
            yield name, f"{base_url.rstrip('/')}/{PREFIX}{value.partition('/api/v1')[2]}"
