"""What a hub's spawner alone says: where the servers of its users run. Pure."""

from __future__ import annotations

import msgspec

from ..model import ServerBody, ServerView
from .calls import Call

_view = msgspec.json.Decoder(ServerView)


def tell_server(body: ServerBody) -> Call[ServerView]:
    """POST /servers. Said again it is the same."""
    content = msgspec.json.encode(body)
    return Call("POST", "/servers", lambda answer, _: _view.decode(answer), content=content, may_repeat=True)
