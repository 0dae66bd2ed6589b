"""What the page runs and how it looks, as the package holds it: read once, so that it stays of one version.

The files hold nothing of anybody, so they are read without a login; a script that had to sign in could not. Each has
its digest in its address, so a browser keeps it for good and asks for another after an upgrade.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tornado.web import RequestHandler

import jupyter_gpu

from ...errors import NotFound
from ..api.application import Api
from ..api.base import UNFRAMED, tell

#: Where a build puts them.
FOLDER = Path(jupyter_gpu.__file__).parent / "page"
SCRIPT, STYLE = "page.js", "page.css"
_KINDS = {SCRIPT: "text/javascript; charset=utf-8", STYLE: "text/css; charset=utf-8"}
_A_YEAR_SECONDS = 31_536_000


class Built(NamedTuple):
    """One file, as it is and packed."""

    data: bytes
    packed: bytes
    digest: str


Bundle = Mapping[str, Built]


def read_bundle(folder: Path = FOLDER) -> Bundle:
    """Both files by their names; nothing where the package was installed without building them."""
    try:
        found = {name: (folder / name).read_bytes() for name in _KINDS}
    except OSError:
        return {}
    return {name: built(data) for name, data in found.items()}


def built(data: bytes) -> Built:
    """A file of a bundle. Packed without the time, so that the same file is the same bytes."""
    return Built(data, gzip.compress(data, mtime=0), hashlib.sha256(data).hexdigest()[:16])


class Static(RequestHandler):
    """/static/DIGEST/FILE. Another digest, of a page from before an upgrade, gets today's file, not to be kept."""

    SUPPORTED_METHODS = ("GET", "HEAD")
    application: Api
    _digest = ""

    def set_default_headers(self) -> None:
        """No guessing, and nothing for other sites."""
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Cross-Origin-Resource-Policy", "same-origin")
        self.set_header("Content-Security-Policy", UNFRAMED)
        self.set_header("Cache-Control", "no-store")
        self.clear_header("Server")

    def compute_etag(self) -> str | None:
        """The same whether packed or not, which is what the W says."""
        return f'W/"{self._digest}"' if self._digest else None

    def get(self, digest: str, name: str) -> None:
        """One file by its name: a name is looked up, and no path is ever made of it."""
        found = self.settings["bundle"].get(name)
        if found is None:
            raise NotFound("There is no such file.")
        self._digest = found.digest
        self.set_header("Content-Type", _KINDS[name])
        self.set_header("Vary", "Accept-Encoding")
        if digest == found.digest:
            self.set_header("Cache-Control", f"public, max-age={_A_YEAR_SECONDS}, immutable")
        takes_packed = "gzip" in self.request.headers.get("Accept-Encoding", "")
        if takes_packed:
            self.set_header("Content-Encoding", "gzip")
        self.finish(found.packed if takes_packed else found.data)

    head = get

    def write_error(self, status_code: int, **details: object) -> None:
        """Only that it is not there."""
        error = details.get("exc_info", (None, None, None))[1]  # type: ignore[index]
        self.set_status(404 if isinstance(error, NotFound) else status_code)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish("There is no such file.\n")

    log_exception = tell


STATIC_ROUTES: list[tuple[str, type[RequestHandler]]] = [(r"/static/([0-9a-f]{1,64})/([a-z.]{1,40})", Static)]
