"""What is sent and how the answer is read: pure, so that both senders are thin and say the same.

A Call is data. `parse` makes the answer's body a document; what is no success becomes the error that it means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec

from .. import __version__
from ..errors import BrokerUnavailable, GpuError, InvalidAsk, WaitTimeout, from_body
from ..model import (
    MOST_SUBMISSIONS,
    BrokerView,
    CancelBody,
    Change,
    DevicePage,
    DeviceView,
    EventPage,
    ExtendBody,
    Holder,
    Kind,
    MarkBody,
    MarkedView,
    MoveBody,
    OfferPage,
    QuotaPage,
    ReleaseBody,
    Renewal,
    State,
    Status,
    SubmissionAnswer,
    SubmitBody,
    WorkloadPage,
    WorkloadView,
)
from ..versions import HEADER, misfit

T = TypeVar("T")
#: What became of one of many asks.
Submitted = WorkloadView | GpuError

#: No answer takes longer, save where a call waits on purpose.
ANSWER_SECONDS = 30.0
#: One wait asks for at most so long, well below what proxies cut off; longer waits ask again.
WAIT_STEP_SECONDS = 20.0
#: A script beyond this is refused by the broker; it need not travel first.
LARGEST_SCRIPT_BYTES = 16 << 20
#: Many asks travel together up to this size; the broker takes 3 MiB.
MOST_TOGETHER_BYTES = 2 << 20
#: Many asks take a while, each of them being looked at and committed.
MANY_SECONDS = 120.0
#: The stream says something at least every 15 s.
SILENCE_SECONDS = 60.0
#: What callers may follow up on.
ENDS = ("active", "ended")

_encode = msgspec.json.Encoder().encode


class LogPart(NamedTuple):
    """A part of an attempt's log: its bytes, where to go on, and whether anything will follow."""

    data: bytes
    next_offset: int
    attempt: int
    is_complete: bool


class Answer(NamedTuple):
    """An answer that nobody has read yet."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Call(NamedTuple, Generic[T]):
    """One request and how to read its answer."""

    method: str
    path: str
    parse: Callable[[bytes, Mapping[str, str]], T]
    params: tuple[tuple[str, str], ...] = ()
    content: bytes | None = None
    headers: tuple[tuple[str, str], ...] = ()
    timeout_seconds: float = ANSWER_SECONDS
    #: Doing it twice is as good as once, so it may be sent again when the connection broke.
    may_repeat: bool = False


def headers(token: str | None) -> dict[str, str]:
    """What every request says of the client."""
    said = {HEADER: __version__, "User-Agent": f"jupyter-gpu/{__version__}", "Accept-Encoding": "identity"}
    return said | ({"Authorization": f"Bearer {token}"} if token else {})


def read(call: Call[T], status: int, said: Mapping[str, str], body: bytes) -> T:
    """The document of an answer, or raise the error that it means."""
    refuse(status, said, body)
    try:
        return call.parse(body, said)
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, ValueError) as error:
        raise BrokerUnavailable(
            f"What answers is no broker, or one of another version: {error}.",
            hint="Look at JUPYTER_GPU_URL, and at the versions with `jupyter gpu doctor`.",
        ) from None


def refuse(status: int, said: Mapping[str, str], body: bytes) -> None:
    """Raise what a refusal means, and refuse to believe a broker that is too far from this client."""
    theirs = said.get(HEADER)
    if misfit(theirs):
        raise BrokerUnavailable(
            f"The broker is version {str(theirs)[:40]}, too far from this client's {__version__}.",
            hint="Let both be of the same minor version, or of neighbouring ones.",
        )
    if status in range(200, 300):
        return
    try:
        answer: object = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        answer = None
    raise from_body(status, answer)


def reading(kind: type[T]) -> Callable[[bytes, Mapping[str, str]], T]:
    """How an answer of this kind is read."""
    decoder = msgspec.json.Decoder(kind)
    return lambda body, _: decoder.decode(body)


_workload, _status = reading(WorkloadView), reading(Status)
_device, _marked = reading(DeviceView), reading(MarkedView)
_answer = msgspec.json.Decoder(SubmissionAnswer)
_change = msgspec.json.Decoder(Change)


def change(line: bytes) -> Change:
    """One line of the stream."""
    return _change.decode(line)


def _params(**wanted: Any) -> tuple[tuple[str, str], ...]:
    return tuple(
        (name, str(value).lower() if isinstance(value, bool) else str(value))
        for name, value in wanted.items()
        if value is not None and value is not False
    )


def _get(path: str, parse: Callable[[bytes, Mapping[str, str]], T], **params: Any) -> Call[T]:
    return Call("GET", path, parse, _params(**params), may_repeat=True)


def _act(workload_id: int, verb: str, body: msgspec.Struct | dict[str, Any] | None = None) -> Call[WorkloadView]:
    content = None if body is None else _encode(body)
    return Call("POST", f"/workloads/{int(workload_id)}/{verb}", _workload, content=content)


def passed_on(
    method: str,
    path: str,
    params: tuple[tuple[str, str], ...],
    *,
    content: bytes | None,
    key: str | None,
    timeout_seconds: float = ANSWER_SECONDS,
) -> Call[None]:
    """What somebody else asks, put together by them: for `AsyncClient.forward`."""
    said = () if key is None else (("Idempotency-Key", key),)
    may_repeat = method == "GET" or key is not None
    return Call(method, path, lambda *_: None, params, content, said, timeout_seconds, may_repeat)


def status() -> Call[Status]:
    """GET /status."""
    return _get("/status", _status)


def submit(body: SubmitBody, key: str | None = None, keep: Iterable[str] = ()) -> Call[WorkloadView]:
    """POST /workloads. With a key it may be sent again: it stays one workload."""
    size = 0 if body.script is None else len(body.script.content)
    if size > LARGEST_SCRIPT_BYTES:
        raise InvalidAsk(
            f"The script has {size} bytes; {LARGEST_SCRIPT_BYTES} are the most that is copied.",
            hint="Submit a small script that reads the rest from its folder.",
        )
    return Call(
        "POST",
        "/workloads",
        _workload,
        tuple(("keep", name) for name in keep),
        _encode(body),
        () if key is None else (("Idempotency-Key", key),),
        may_repeat=key is not None,
    )


def submit_many(bodies: Sequence[SubmitBody], key: str, keep: Iterable[str] = ()) -> Iterator[Call[list[Submitted]]]:
    """POST /submissions, as often as their number and size need. A script of its own goes by `submit`."""
    begin = size = 0
    texts: list[bytes] = []
    for number, body in enumerate(bodies):
        text = _encode(body)
        if texts and (len(texts) == MOST_SUBMISSIONS or size + len(text) > MOST_TOGETHER_BYTES):
            yield _submissions(texts, f"{key}/{begin}", keep)
            begin, size, texts = number, 0, []
        texts.append(text)
        size += len(text)
    if texts:
        yield _submissions(texts, f"{key}/{begin}", keep)


def _submissions(texts: list[bytes], key: str, keep: Iterable[str]) -> Call[list[Submitted]]:
    return Call(
        "POST",
        "/submissions",
        _submitted,
        tuple(("keep", name) for name in keep),
        b'{"items":[' + b",".join(texts) + b"]}",
        (("Idempotency-Key", key),),
        timeout_seconds=MANY_SECONDS,
        may_repeat=True,
    )


def _submitted(body: bytes, _: Mapping[str, str]) -> list[Submitted]:
    items = _answer.decode(body).items
    return [it.workload or from_body(0, None if it.error is None else msgspec.to_builtins(it.error)) for it in items]


def workloads(
    state: State | str | None = None,
    kind: Kind | str | None = None,
    *,
    mine: bool = False,
    owner: str | None = None,
    queue: str | None = None,
    ended: bool = True,
    after: int | None = None,
    limit: int | None = None,
) -> Call[WorkloadPage]:
    """GET /workloads."""
    wanted = {
        "state": state,
        "kind": kind,
        "mine": mine,
        "owner": owner,
        "queue": queue,
        "after": after,
        "limit": limit,
    }
    # A state that is asked for by name says by itself whether it is over.
    return _get("/workloads", reading(WorkloadPage), **wanted, ended=None if ended or state is not None else "false")


def workload(workload_id: int) -> Call[WorkloadView]:
    """GET /workloads/ID."""
    return _get(f"/workloads/{int(workload_id)}", _workload)


def events(workload_id: int, after: int = 0, limit: int = 500) -> Call[EventPage]:
    """GET /workloads/ID/events."""
    return _get(f"/workloads/{int(workload_id)}/events", reading(EventPage), after=after, limit=limit)


def log(workload_id: int, attempt: int | None = None, offset: int = 0, limit: int | None = None) -> Call[LogPart]:
    """GET /workloads/ID/log."""
    return _get(f"/workloads/{int(workload_id)}/log", _log_part, attempt=attempt, offset=offset, limit=limit)


def _log_part(body: bytes, said: Mapping[str, str]) -> LogPart:
    return LogPart(body, int(said["X-Next-Offset"]), int(said["X-Attempt"]), said["X-Log-Complete"] == "true")


def follow_log(workload_id: int, attempt: int | None = None, offset: int = 0) -> Call[None]:
    """GET /workloads/ID/log?follow=true; its bytes are read as they come."""
    path = f"/workloads/{int(workload_id)}/log"
    return Call("GET", path, lambda *_: None, _params(attempt=attempt, offset=offset, follow=True))


def stream(held: Status | None = None) -> Call[None]:
    """GET /stream, from the document that is held on; its lines are read as they come."""
    known = () if held is None else _params(since=held.revision, store=held.store_id)
    return Call("GET", "/stream", lambda *_: None, known, timeout_seconds=SILENCE_SECONDS)


def wait(workload_id: int, until: str, seconds: float) -> Call[WorkloadView]:
    """GET /workloads/ID/wait, for one step of a wait."""
    if until not in ENDS:
        raise InvalidAsk(f"One cannot wait until {until!r}.", hint=f"Use one of: {', '.join(ENDS)}.")
    step = max(0.0, min(seconds, WAIT_STEP_SECONDS))
    call = _get(f"/workloads/{int(workload_id)}/wait", _workload, until=until, timeout=f"{step:.3f}")
    return call._replace(timeout_seconds=step + ANSWER_SECONDS)


def is_reached(it: WorkloadView, until: str) -> bool:
    """Whether what was waited for has come, or never will."""
    return it.state is State.ENDED or (until == "active" and it.state is not State.QUEUED)


def timed_out(it: WorkloadView, until: str) -> GpuError:
    """What to say when the time of a wait is over: where it stands and what can be done."""
    what = "waiting" if it.state is State.QUEUED else "running"
    return WaitTimeout(
        f"{it.kind.value.capitalize()} {it.id} is still {what}. {it.reason}".strip(),
        hint=f"Wait on with `jupyter gpu wait {it.id} --until {until}`, or leave with `jupyter gpu cancel {it.id}`.",
    )


def cancel(workload_id: int, reason: str = "") -> Call[WorkloadView]:
    """POST /workloads/ID/cancel."""
    return _act(workload_id, "cancel", CancelBody(reason=reason) if reason else None)


def release(workload_id: int, holder_number: int | None = None) -> Call[WorkloadView]:
    """POST /workloads/ID/release."""
    return _act(workload_id, "release", ReleaseBody(holder_number=holder_number))._replace(may_repeat=True)


def extend(workload_id: int, seconds: int) -> Call[WorkloadView]:
    """POST /workloads/ID/extend."""
    return _act(workload_id, "extend", ExtendBody(seconds=seconds))


def pause(workload_id: int) -> Call[WorkloadView]:
    """POST /workloads/ID/pause."""
    return _act(workload_id, "pause")._replace(may_repeat=True)


def let_go(workload_id: int) -> Call[WorkloadView]:
    """POST /workloads/ID/let-go."""
    return _act(workload_id, "let-go")._replace(may_repeat=True)


def move(workload_id: int, holder: Holder) -> Call[WorkloadView]:
    """POST /workloads/ID/move."""
    return _act(workload_id, "move", MoveBody(holder=holder))


def keep(workload_id: int) -> Call[WorkloadView]:
    """POST /workloads/ID/keep."""
    return _act(workload_id, "keep")._replace(may_repeat=True)


def renew(
    workload_id: int, holder_number: int, *, busy: bool | None = None, idle_since: float | None = None
) -> Call[Renewal]:
    """POST /workloads/ID/renew. What is not known is not sent: a broker that is a version behind does not know it."""
    said = {"holder_number": holder_number, "busy": busy, "idle_since": idle_since}
    body = _encode({name: value for name, value in said.items() if value is not None})
    return Call("POST", f"/workloads/{int(workload_id)}/renew", reading(Renewal), content=body, may_repeat=True)


def reprioritise(workload_id: int, priority: int) -> Call[WorkloadView]:
    """POST /workloads/ID/reprioritise."""
    return _act(workload_id, "reprioritise", {"priority": priority})._replace(may_repeat=True)


def devices() -> Call[DevicePage]:
    """GET /devices."""
    return _get("/devices", reading(DevicePage))


def on_device(device: str, verb: str, reason: str = "") -> Call[MarkedView]:
    """POST /devices/UUID/VERB."""
    content = _encode(MarkBody(reason=reason)) if reason else None
    return Call("POST", f"/devices/{quote(device, safe='')}/{verb}", _marked, content=content, may_repeat=True)


def forget(device: str) -> Call[DeviceView]:
    """DELETE /devices/UUID. A second time it is not there, so it is not repeated by itself."""
    return Call("DELETE", f"/devices/{quote(device, safe='')}", _device)


def quota() -> Call[QuotaPage]:
    """GET /quota."""
    return _get("/quota", reading(QuotaPage))


def offers(team: str | None = None, *, profile: str | None = None, trial: bool = True) -> Call[OfferPage]:
    """GET /offers."""
    return _get("/offers", reading(OfferPage), team=team, profile=profile, trial=None if trial else "false")


def broker() -> Call[BrokerView]:
    """GET /broker."""
    return _get("/broker", reading(BrokerView))


def stop_broker() -> Call[BrokerView]:
    """POST /broker/stop."""
    return Call("POST", "/broker/stop", reading(BrokerView))
