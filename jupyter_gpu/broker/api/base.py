"""What every handler stands on: admit, read, answer, and say an error, each in one place.

A handler is a function from a query and a body to a document; `endpoint` does the rest. Handlers catch nothing: what
goes wrong is a GpuError, and `write_error` is the only place where it becomes an answer. Callers are admitted before
their body is read, so nobody makes the broker hold megabytes whom it does not know.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import msgspec
from tornado.iostream import StreamClosedError
from tornado.web import Finish, HTTPError, RequestHandler

from ... import __version__
from ...core.which import device_named, devices_named
from ...errors import BrokerUnavailable, Conflict, GpuError, InvalidAsk, NotAllowed, NotFound
from ...model import Caller, Command, DeviceView, Forget, Kind, MarkedView, Scope, Workload, WorkloadView
from ...versions import HEADER, misfit
from . import views
from .bounds import check_size, too_much

if TYPE_CHECKING:
    from ..loop import Loop
    from .application import Api

log = logging.getLogger(__name__)

T = TypeVar("T")
Method = Callable[..., Awaitable[Any]]

#: Enough for every body that holds no script.
BODY_BYTES = 64 << 10
THROWN_AWAY_BYTES = 64 << 20

_encode = msgspec.json.Encoder().encode


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """What a route does with one verb; the handler and docs/openapi.json are both made of it."""

    #: The type of the answer, or of each status where they differ, or the media type of raw bytes.
    answer: Any
    scope: Scope | None
    query: type[msgspec.Struct] | None
    body: type[msgspec.Struct] | None
    body_bytes: int
    statuses: tuple[int, ...]
    summary: str


PREFIX = "/api/v1"
#: An answer is no page: nothing in it runs, and no page holds it in a frame.
UNFRAMED = "default-src 'none'; frame-ancestors 'none'; sandbox"


def endpoint(
    answer: Any,
    *,
    scope: Scope | None = Scope.READ,
    query: type[msgspec.Struct] | None = None,
    body: type[msgspec.Struct] | None = None,
    body_bytes: int = BODY_BYTES,
    statuses: tuple[int, ...] = (200,),
    in_turn: bool = False,
) -> Callable[[Method], Method]:
    """Make a handler of a function that takes path parts, a query and a body, and returns a document.

    The first of `statuses` is answered unless the function sets another. Raw answers are written by the function. Of
    one caller those that are made `in_turn` are made one at a time, so that others come between.
    """

    def decorate(method: Method) -> Method:
        @functools.wraps(method)
        async def handle(self: Base, *parts: str) -> None:
            self.must_fit()
            self.must_have(scope)
            self.set_status(statuses[0])
            arguments: list[Any] = [*parts]
            arguments += [] if query is None else [self.read_query(query)]
            arguments += [] if body is None else [self.read_body(body)]
            async with self.application.turn_of(self.caller) if in_turn else nullcontext():
                document = await method(self, *arguments)
                if not isinstance(answer, str):
                    self.set_header("Content-Type", "application/json")
                    self.finish(_encode(document))

        summary = (method.__doc__ or "").strip().split("\n", maxsplit=1)[0]
        handle.operation = Operation(  # type: ignore[attr-defined]
            answer=answer,
            scope=scope,
            query=query,
            body=body,
            body_bytes=body_bytes,
            statuses=statuses,
            summary=summary,
        )
        return cast("Method", handle)

    return decorate


class Base(RequestHandler):
    """The one base of all handlers."""

    # Bodies arrive in `data_received`, after `prepare` has admitted the caller.
    _stream_request_body = True
    application: Api
    caller: Caller
    #: It starts and shows nothing, and only keeps for its owner what they hold: no question for a hub each time.
    only_keeps = False

    def initialize(self) -> None:
        """Begin without a body and with nobody to tell when the connection closes."""
        self._received: list[bytes] = []
        self._room = BODY_BYTES
        #: Of a body or an answer that are kept until they are read.
        self.held_bytes = 0
        self._is_one_too_many = False
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def set_default_headers(self) -> None:
        """Nothing here is for caches or for guessing browsers."""
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Content-Security-Policy", UNFRAMED)
        self.set_header("Content-Type", "application/json")
        self.set_header(HEADER, __version__)
        self.clear_header("Server")

    def compute_etag(self) -> None:
        """None: answers change from second to second, and a hash of each would be for nobody."""

    async def prepare(self) -> None:
        """Admit the caller, or refuse before anything else is looked at."""
        self.application.enter(self)
        self.caller = await self.application.gate.admit(self, self.loop.world.policy.operators)
        self.loop.touch()
        theirs = self.request.headers.get(HEADER)
        if misfit(theirs):
            raise Conflict(
                f"This broker is version {__version__}, and the client {str(theirs)[:40]!a} is too far from it.",
                hint="Let both be of the same minor version, or of neighbouring ones.",
            )
        self._bound_body()

    def _bound_body(self) -> None:
        operation = getattr(getattr(self, str(self.request.method).lower(), None), "operation", None)
        self._room = BODY_BYTES if operation is None else operation.body_bytes
        # What is too large is read on and thrown away, within reason: who is cut off never gets to read why.
        self.request.connection.set_max_body_size(max(self._room, THROWN_AWAY_BYTES))  # type: ignore[union-attr]

    def data_received(self, chunk: bytes) -> None:
        """Keep a part of the body, as long as there is room."""
        if self._finished:  # refused, and still sending
            return
        self._room -= len(chunk)
        more = self.held_bytes + len(chunk)
        self._is_one_too_many |= more > BODY_BYTES and not self.application.may_hold(self.caller.name, len(chunk))
        if self._room < 0 or self._is_one_too_many:
            self._let_go()
            return
        self.held_bytes = more
        self._received.append(chunk)

    def _let_go(self) -> None:
        """Keep nothing of the body."""
        self._received.clear()
        self.held_bytes = 0

    def on_connection_close(self) -> None:
        """The caller went away, or the broker stops: what waits on their behalf need wait no more."""
        self._let_go()
        if not self._closed.done():
            self._closed.set_result(None)

    def on_finish(self) -> None:
        """Answered, whatever the answer was."""
        self._let_go()
        self.application.leave(self)

    @property
    def loop(self) -> Loop:
        """The broker's one loop."""
        return self.application.loop

    # -- reading

    def must_fit(self) -> None:
        """Refuse a body that was too large to keep."""
        if self._is_one_too_many:
            raise too_much(self.caller.name)
        if self._room < 0:
            raise TooLarge(f"The request has {-self._room} bytes more than are taken here.", hint="Send less at once.")

    def must_have(self, scope: Scope | None) -> None:
        """Refuse who may not do this. To look needs any scope: what is seen without READ is one's own."""
        if scope is Scope.READ and self.caller.scopes:
            return
        if scope is not None and not self.caller.scopes & {scope, Scope.ADMIN}:
            raise NotAllowed(
                f"{self.caller.name!r} lacks the scope {scope}, which this needs.", hint="An admin grants scopes."
            )

    def read_query(self, kind: type[T]) -> T:
        """The query as its struct; what is not in it is a slip, and is said."""
        try:
            found: dict[str, Any] = {
                name: [value.decode("utf-8") for value in values]
                for name, values in self.request.query_arguments.items()
            }
            lists: frozenset[str] = getattr(kind, "REPEATED", frozenset())
            plain = {name: values if name in lists else values[-1] for name, values in found.items()}
            return msgspec.convert(plain, kind, strict=False)
        except (msgspec.ValidationError, UnicodeDecodeError) as error:
            raise InvalidAsk(f"The query cannot be meant: {error}.", hint="docs/api.md lists what is taken.") from None

    def read_body(self, kind: type[T]) -> T:
        """The body as its struct; an empty one is an empty object."""
        raw = b"".join(self._received) or b"{}"
        try:
            check_size(raw)
            return msgspec.json.decode(raw, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidAsk(f"The body cannot be meant: {error}.", hint="docs/api.md lists what is taken.") from None

    async def find(self, text: str) -> Workload:
        """The workload of a path, if the caller may see it."""
        return await views.find(self.loop, text, self.caller)

    # -- acting

    async def act(self, text: str, make: Callable[[int, str], Command]) -> WorkloadView:
        """Have a command about one workload decided, for its owner or an operator, and show what came of it."""
        it = await self.find(text)
        self.must_own(it)
        if it.id not in self.loop.world.workloads:
            raise Conflict(f"{it.title} has ended long ago ({it.end}).")
        await self.loop.handle(make(it.id, self.caller.name))
        return self.show(self.loop.world.workloads.get(it.id, it))

    def must_own(self, it: Workload) -> None:
        """Refuse who is neither the owner with the scope for this kind nor an operator."""
        if self.caller.is_operator:
            return
        if it.owner != self.caller.name:
            raise NotAllowed(f"{it.title} is not yours.", hint="Only its owner and operators may do that.")
        self.must_have(Scope.RESERVE if it.kind is Kind.RESERVATION else Scope.SUBMIT)

    async def mark(self, name: str, make: Callable[[str, str], Command]) -> MarkedView:
        """Have a command about a device decided, or about all of a GPU in MIG mode, and show what came of it."""
        devices = devices_named(self.loop.world, name, cards=self.loop.sights.cards())
        card = devices[0].card
        whole = card.uuid if card is not None and name not in (devices[0].uuid, devices[0].number) else devices[0].uuid
        await self.loop.handle(make(whole, self.caller.name))
        return views.show_devices(self.loop, devices, self.caller)

    async def forget(self, name: str) -> DeviceView:
        """Have a lost device forgotten, and show how it last stood."""
        device = device_named(self.loop.world, name, lost=True)
        before = views.show_device(self.loop, device.uuid, self.caller)
        await self.loop.handle(Forget(device=device.uuid, by=self.caller.name))
        return before

    def show(self, it: Workload) -> WorkloadView:
        """One workload by itself, as the caller may see it."""
        return views.show(self.loop, it, self.caller)

    async def unless_gone(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something long, but only while the caller is there to hear of it."""
        task = asyncio.ensure_future(work)
        try:
            both: set[asyncio.Future[Any]] = {task, self._closed}
            again = self.application.gate.again_seconds
            while not (await asyncio.wait(both, timeout=again, return_when=asyncio.FIRST_COMPLETED))[0]:
                before = self.caller.scopes
                await self._admit_again()
                if before - self.caller.scopes:  # what it began with is theirs no more, perhaps
                    self._send_away(NotAllowed("What you may do here has changed.", hint="Ask again."))
            if not task.done():
                self._break_off()
            return task.result()
        finally:
            task.cancel()

    def _break_off(self) -> NoReturn:
        """Nobody waits, or the broker stops."""
        if self.application.is_closing:
            self._send_away(stopped())
        raise Finish

    async def closed(self, seen: Callable[[], None]) -> None:
        """Wait until the caller goes away or is sent away; `seen` is called whenever they were looked at anew."""
        while not (await asyncio.wait({self._closed}, timeout=self.application.gate.again_seconds))[0]:
            await self._admit_again()
            seen()

    async def _admit_again(self) -> None:
        """Who stays for long may have lost their token, or a role. A hub that cannot be asked sends nobody away."""
        try:
            self.caller = await self.application.gate.admit(self, self.loop.world.policy.operators)
            self.must_have(Scope.READ)
        except BrokerUnavailable:
            return
        except NotAllowed as error:
            self._send_away(error)

    def _send_away(self, error: GpuError) -> NoReturn:
        """Say why; an answer that has begun is cut instead, so that it does not look whole."""
        if not self._headers_written:
            raise error
        self.request.connection.close()  # type: ignore[union-attr]
        raise Finish

    # -- errors

    def write_error(self, status_code: int, **details: Any) -> None:
        """Say what went wrong as {code, message, hint}. The only place where an error becomes an answer."""
        error = details.get("exc_info", (None, None, None))[1]
        if not isinstance(error, GpuError):
            error = _of_status(status_code)
        self.set_status(getattr(error, "answered", type(error).http_status))
        self.set_header("Content-Type", "application/json")
        self.finish(_encode(error.to_body()))

    def log_exception(
        self,
        typ: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """As every handler of ours."""
        tell(self, typ, value, tb)


class Unknown(Base):
    """Every route that is not one."""

    async def prepare(self) -> None:
        """Say so, to those who may ask at all."""
        await super().prepare()
        raise NotFound(
            f"There is nothing at {self.request.path[:200]!a}.", hint=f"{PREFIX}/openapi.json lists what there is."
        )


class TooLarge(InvalidAsk):
    """An ask of more bytes than are read."""

    answered = 413


class _WrongVerb(InvalidAsk):
    answered = 405


def tell(
    handler: RequestHandler,
    typ: type[BaseException] | None,
    value: BaseException | None,
    tb: TracebackType | None,
) -> None:
    """An expected error is one line of the log; anything else is a fault of ours and brings its traceback.

    What callers wrote is quoted, so that no line of the log is theirs.
    """
    if isinstance(value, StreamClosedError):
        return
    asked = f"{quoted(str(handler.request.method), 20)} {quoted(str(handler.request.uri))}"
    if isinstance(value, GpuError | HTTPError):
        log.info("%s: %s", asked, quoted(str(value), 300))
    else:
        log.error("%s failed", asked, exc_info=(typ, value, tb))  # type: ignore[arg-type]


def stopped() -> BrokerUnavailable:
    """What those hear who wait, or come, while the broker stops."""
    return BrokerUnavailable("The broker was stopped; what waits keeps its place for the next one.")


def _of_status(status: int) -> GpuError:
    """What tornado refuses by itself, and what is a fault of ours."""
    if status == _WrongVerb.answered:
        return _WrongVerb("This cannot be done here.", hint=f"{PREFIX}/openapi.json lists which verbs a route takes.")
    if status in range(400, 500):
        return InvalidAsk("The request is no proper HTTP.", hint="See docs/api.md.")
    return GpuError("The broker failed at this, which is its own fault.", hint="Its log says more: please report it.")


def quoted(text: str, most: int = 120) -> str:
    """What a caller wrote, for a line of the log: no sign that ends the line or that a terminal obeys, and no end."""
    return ascii(text[:most])
