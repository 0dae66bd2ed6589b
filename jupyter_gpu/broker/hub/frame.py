"""Our pages as HTML: what stands around the script, and what is said where there is nothing to run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tornado.escape import xhtml_escape

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>GPUs</title>
<link rel="icon" href="data:,">
{head}</head>
<body>
{body}
</body>
</html>
"""
_NO_SCRIPT = """<noscript>
<h1>GPUs</h1>
<p>This page shows the GPUs as they are at each moment. For that it needs JavaScript, which your browser has switched
off.</p>
<p>Without it: <code>jupyter gpu status</code> in a terminal shows the same, <a href="{spawn}">the start of a server</a>
says what is free now, and <a href="{hub}">the hub's home</a> leads to the servers that you have.</p>
</noscript>
"""
#: What could end a script element, or a line of JavaScript, inside of one.
_UNSAFE = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def live_page(data: Mapping[str, Any], *, script: str, style: str) -> str:
    """The page that the script fills; `data` is what the script is told."""
    head = f'{_style(style)}<script defer src="{xhtml_escape(script)}"></script>\n'
    words = {name: xhtml_escape(str(data[name])) for name in ("hub", "spawn")}
    told = json.dumps(data, ensure_ascii=True).translate(_UNSAFE)
    body = (
        f'{_NO_SCRIPT.format(**words)}<main id="jp-gpu-page"></main>\n'
        f'<script type="application/json" id="jp-gpu-data">{told}</script>'
    )
    return _PAGE.format(head=head, body=body)


def words_page(text: str, hint: str, *, hub: str, style: str | None) -> str:
    """A page of two sentences and the way back to the hub."""
    body = (
        f'<main class="jp-gpu-words"><h1>GPUs</h1>\n<p>{xhtml_escape(text)}</p>\n<p>{xhtml_escape(hint)}</p>\n'
        f'<p><a href="{xhtml_escape(hub)}">Back to the hub</a></p></main>'
    )
    return _PAGE.format(head="" if style is None else _style(style), body=body)


def _style(address: str) -> str:
    return f'<link rel="stylesheet" href="{xhtml_escape(address)}">\n'
