"""The hub's proxy in Python, with the internal TLS that only the one for node has: same options, same behaviour.

It shows its certificate to whom it sends requests on, believes the hub's authorities only, and is told its routes by
who shows a certificate of theirs.
"""

from __future__ import annotations

import argparse
import ssl
import sys
from typing import Any

from configurable_http_proxy import cli
from tornado.httpclient import HTTPRequest
from tornado.httpserver import HTTPServer


def main() -> None:
    """Run it with the words of the hub."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for side in ("api", "client"):
        for name in ("key", "cert", "ca"):
            parser.add_argument(f"--{side}-ssl-{name}", required=True)
        for name in ("request-cert", "reject-unauthorized"):
            parser.add_argument(f"--{side}-ssl-{name}", action="store_true", required=True)
    known, rest = parser.parse_known_args()
    # How somebody came, who sends on has said; this one would say so anew, with a comma before it.
    sys.argv[1:] = [*rest, "--no-x-forward"]
    HTTPRequest._DEFAULTS |= {
        "client_key": known.client_ssl_key, "client_cert": known.client_ssl_cert, "ca_certs": known.client_ssl_ca,
    }  # fmt: skip
    told = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=known.api_ssl_ca)
    told.load_cert_chain(known.api_ssl_cert, known.api_ssl_key)
    told.verify_mode = ssl.CERT_REQUIRED
    ways = iter((None, told))  # it opens the way for everybody first, then the hub's
    servers: Any = cli
    servers.HTTPServer = lambda app: HTTPServer(app, ssl_options=next(ways))
    cli.main()


if __name__ == "__main__":
    main()
