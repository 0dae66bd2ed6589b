"""A start that is refused: one sentence after the other for programs and logs, a list of what to do now on pages.

A hub shows people only what an exception calls `jupyterhub_message`, and of all others the name of their class.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from jupyterhub.spawner import SpawnException

from ..errors import GpuError

#: What a program finds beside the text, whatever stands between it and the hub.
HEADER = "X-Jupyter-Gpu-Refused"
#: What a start is refused with, for programs and as the label of the hub's metric.
_REASONS = {400: "gpu_options", 403: "gpu_not_allowed", 409: "gpu_capacity", 422: "gpu_ask"}


class Refused(SpawnException):
    """What happened and why; and what can be done now, each like "choose another profile"."""

    def __init__(
        self,
        message: str,
        ways: Sequence[str] = (),
        *,
        reason: str,
        status_code: int,
        retry_after_seconds: float | None = None,
    ) -> None:
        told = f"{message} What you can do now: {'; or '.join(ways)}." if ways else message
        super().__init__(told, reason=reason, status_code=status_code)
        self.jupyterhub_message = told
        self.jupyterhub_html_message = _html(message, ways)
        self.headers = {HEADER: reason}
        if retry_after_seconds is not None:
            self.headers["Retry-After"] = str(max(1, round(retry_after_seconds)))


def _html(message: str, ways: Sequence[str]) -> str:
    if not ways:
        return escape(message)
    items = "".join(f"<li>{escape(f'{way[:1].upper()}{way[1:]}.')}</li>" for way in ways)
    return f"{escape(message)}<br>What you can do now:<ul>{items}</ul>"


def refused(error: GpuError, status: int | None = None, ways: Sequence[str] = ()) -> Refused:
    """A refusal of the broker, or of what was chosen. Its own advice is for a command line where there are `ways`."""
    status = error.http_status if status is None else status
    message = error.to_body()["message"] or ""
    if not ways and error.hint:
        message = f"{message} {error.hint}"
    return Refused(message, ways, reason=_REASONS.get(status, "gpu_broker"), status_code=status)


def said(error: BaseException) -> str:
    """What went wrong when the broker was asked, for a log: that time ran out has no words of its own."""
    return str(error) or "it did not answer in time"


def no_answer() -> Refused:
    """A broker that does not answer in time is no reason for anybody to wait longer."""
    return Refused(
        "The GPU service does not answer now, so your server was not started.",
        ("try again in a minute", "start without a GPU"),
        reason="gpu_broker",
        status_code=503,
        retry_after_seconds=60,
    )
