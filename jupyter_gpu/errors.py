"""Everything that can go wrong, as one tree. Each class knows its number for HTTP and for the shell.

    GpuError
    ├── InvalidAsk (422)          the ask itself cannot be meant
    │   └── LimitExceeded (422)   it asks for more than one ask may contain
    ├── NotAllowed (403)          the caller may not do that
    ├── NotFound (404)            no such thing, or none that the caller may see
    ├── Conflict (409)            the thing is not in a state for this
    ├── LeaseLost (410)           the lease is over; says why and when
    ├── WaitTimeout               client only: still queued; says the place and the reason
    ├── BrokerUnavailable (503)   no broker answers; says how to start it
    └── StoreUnavailable (503)    the broker cannot write: the disk is full or read-only

An error is a sentence that helps: the message says what happened and why, the hint what to do now. Being
over quota is no error: such an ask is accepted and waits, with its reason.
"""

from collections.abc import Mapping
from typing import ClassVar


class GpuError(Exception):
    """The root: catch it to catch everything that jupyter_gpu raises on purpose."""

    code: ClassVar[str] = "error"
    """What went wrong, for programs: the name of the class in kebab case."""
    http_status: ClassVar[int] = 500
    """What the broker answers."""
    exit_code: ClassVar[int] = 1
    """What the command line ends with."""
    hint: str | None = None
    """What to do now. A class has one where the same advice helps every time."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if hint is not None:
            self.hint = hint
        if self.hint:
            # Python and IPython print notes below the error, so a notebook shows the advice as well.
            self.add_note(self.hint)

    def to_body(self) -> dict[str, str | None]:
        """Say it as the JSON that the broker answers with; the message ends as a sentence does, whoever shows it."""
        message = self.message if self.message.endswith((".", "!", "?", ":", "`")) else f"{self.message}."
        return {"code": self.code, "message": message, "hint": self.hint}


class InvalidAsk(GpuError):
    """The ask itself cannot be meant: something in it is missing, misspelt or impossible."""

    code = "invalid-ask"
    http_status = 422
    exit_code = 2


class LimitExceeded(InvalidAsk):
    """The ask is clear, but contains more than one ask may; waiting would not help."""

    code = "limit-exceeded"


class NotAllowed(GpuError):
    """The caller may not do that."""

    code = "not-allowed"
    http_status = 403
    exit_code = 3


class NotFound(GpuError):
    """There is no such thing, or none that the caller may see; the answer does not tell which."""

    code = "not-found"
    http_status = 404
    exit_code = 4


class Conflict(GpuError):
    """The thing exists, but is not in a state for this."""

    code = "conflict"
    http_status = 409
    exit_code = 5


class LeaseLost(GpuError):
    """The lease is over: it expired, or the broker ended it for a reason that the message states."""

    code = "lease-lost"
    http_status = 410
    exit_code = 6


class WaitTimeout(GpuError):
    """The client stopped waiting; the workload is still queued and keeps its place."""

    code = "wait-timeout"
    # The broker never answers with it. The number is for a face that waits on behalf of a browser.
    http_status = 504
    exit_code = 7


class BrokerUnavailable(GpuError):
    """No broker answers, or the one that does is not ready."""

    code = "broker-unavailable"
    http_status = 503
    exit_code = 8
    hint = "Start one with `jupyter gpu broker start`, or ask your admin about the shared one."


class StoreUnavailable(GpuError):
    """The broker runs but cannot write, so it accepts nothing new; running work is not touched.

    No kind of BrokerUnavailable: who catches that one tries to start a broker, which would not help.
    """

    code = "store-unavailable"
    http_status = 503
    exit_code = 8
    hint = "Free space on the disk that holds the broker's state, then try again."


TREE: tuple[type[GpuError], ...] = (
    InvalidAsk,
    LimitExceeded,
    NotAllowed,
    NotFound,
    Conflict,
    LeaseLost,
    WaitTimeout,
    BrokerUnavailable,
    StoreUnavailable,
)
"""The whole tree below its root, in the order of the drawing."""

_BY_CODE = {kind.code: kind for kind in TREE}

# For answers that are not ours, or that are newer than we are: a proxy's page, a code added later.
_BY_STATUS: Mapping[int, type[GpuError]] = {
    400: InvalidAsk,
    401: NotAllowed,
    403: NotAllowed,
    404: NotFound,
    409: Conflict,
    410: LeaseLost,
    422: InvalidAsk,
    502: BrokerUnavailable,
    503: BrokerUnavailable,
    504: BrokerUnavailable,
}


def from_body(status: int, body: object) -> GpuError:
    """Make the error that an answer means; the client raises it.

    The code decides, then the status. The body may be anything at all: between a client and a broker stand
    proxies that answer with pages of their own.
    """
    answer = body if isinstance(body, Mapping) else {}
    message, hint = answer.get("message"), answer.get("hint")
    code = answer.get("code")
    kind = _BY_CODE.get(code) if isinstance(code, str) else None
    kind = kind or _BY_STATUS.get(status, GpuError)
    if not isinstance(message, str) or not message:
        message = f"The broker answered {status} without saying why."
    return kind(message, hint=hint if isinstance(hint, str) else None)
