"""The routes of the server extension: each admits, asks and answers; what is asked is done elsewhere.

Jupyter's own rules hold: who may come in (login, token, Origin, XSRF) is decided by jupyter_server, and what they may
do by its authorizer, as "read" or "write" of the resource "jupyter-gpu". GET changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec
from jupyter_core.utils import ensure_async
from jupyter_server.auth.decorator import authorized, ws_authenticated
from jupyter_server.base.handlers import APIHandler, JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from tornado.web import Finish, HTTPError, authenticated
from tornado.websocket import WebSocketHandler

from ..client import AsyncClient
from ..errors import BrokerUnavailable, Conflict, GpuError, InvalidAsk, LimitExceeded, NotAllowed, NotFound, from_body
from ..model import State
from . import forwarding
from .documents import FileJob, KernelAsk, KernelList, PinBody
from .identity import OWN_PLACES, Identity, identity_of
from .jobs import look_at_notebook, submit_file

if TYPE_CHECKING:
    from .server import GpuExtension
    from .upstream import Upstream

RESOURCE = "jupyter-gpu"
#: All bodies but those that are passed on hold a few words.
BODY_BYTES = 64 << 10
#: Of RFC 6455's registry: the socket is closed for now.
TRY_AGAIN_LATER = 1013

T = TypeVar("T")
Method = TypeVar("Method", bound=Callable[..., Any])

_encode = msgspec.json.Encoder().encode


def admitted(method: Method) -> Method:
    """Only for who is logged in and may do this: GET reads, all else writes."""
    both: Any = authenticated(authorized(method))
    return cast("Method", both)


def admitted_to_files(method: Method) -> Method:
    """Likewise, and only for who may read files."""
    readers: Any = authorized("read", resource="contents")
    return admitted(cast("Method", readers(method)))


class Base(APIHandler):
    """What our handlers share."""

    auth_resource = RESOURCE
    _work: asyncio.Task[Any] | None = None

    def initialize(self) -> None:
        """To look is no activity: a page that was left open must not keep an idle server from being culled."""
        self._track_activity = self.request.method != "GET"

    @property
    def gpu(self) -> GpuExtension:
        """The extension."""
        extension: GpuExtension = self.settings["jupyter_gpu"]
        return extension

    @property
    def identity(self) -> Identity:
        """In whose name the broker is asked. Whoever visits somebody else's server only looks."""
        who = identity_of(self)
        if who.is_visitor and self.request.method != "GET":
            raise NotAllowed(
                "In somebody else's server you may look at the GPUs, and no more.",
                hint=OWN_PLACES,
            )
        return who

    @property
    def client(self) -> AsyncClient:
        """Who asks in this name."""
        return self.gpu.clients.of(self.identity)

    @property
    def kernels(self) -> Any:
        """What looks after the kernels."""
        if self.gpu.kernels is None:
            raise BrokerUnavailable("This server could not load what looks after kernels.", hint="Its log says why.")
        return self.gpu.kernels

    def set_default_headers(self) -> None:
        """As everywhere in Jupyter, and nothing here is for caches."""
        super().set_default_headers()
        self.set_header("Cache-Control", "no-store")

    def compute_etag(self) -> None:
        """None: answers change from second to second."""

    def read_body(self, kind: type[T], most: int = BODY_BYTES) -> T:
        """The body as its struct; an empty one is an empty object."""
        forwarding.check_size(self.request.body, most)
        try:
            document: T = msgspec.json.decode(self.request.body or b"{}", type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidAsk(f"The body cannot be meant: {error}.", hint="docs/api.md lists what is taken.") from None
        return document

    def say(self, document: object, status: int = HTTPStatus.OK) -> None:
        """Answer with a document."""
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.finish(_encode(document))

    async def unless_gone(self, work: Coroutine[Any, Any, T]) -> T:
        """Do what may take long, but only while the page is there to hear of it."""
        self._work = task = asyncio.ensure_future(work)
        try:
            return await task
        except asyncio.CancelledError:
            if task.cancelled():
                raise Finish from None
            raise

    def on_connection_close(self) -> None:
        """The page went away."""
        if self._work is not None:
            self._work.cancel()

    def write_error(self, status_code: int, **details: Any) -> None:
        """Say what went wrong as {code, message, hint}: the only place where an error becomes an answer."""
        error = details.get("exc_info", (None, None, None))[1]
        if isinstance(error, GpuError):
            self.set_status(getattr(error, "answered", error.http_status))
        else:
            error = of_jupyter(status_code, error, is_known=bool(self.current_user))
        self.set_header("Content-Type", "application/json")
        self.finish(_encode(error.to_body()))

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """An expected error is one line; the answer says the rest."""
        if isinstance(value, GpuError):
            self.log.info("jupyter_gpu: %s %s: %a", self.request.method, self.request.path, str(value)[:300])
        else:
            super().log_exception(typ, value, tb)


def of_jupyter(status: int, error: BaseException | None, *, is_known: bool) -> GpuError:
    """What jupyter_server or tornado refused, in our words: a page that was open for too long is told to reload."""
    message = (error.log_message or "") if isinstance(error, HTTPError) else ""
    if status == HTTPStatus.FORBIDDEN and "xsrf" in message.lower():
        return NotAllowed(message, hint="Reload the page: it was open for longer than its login.")
    if status == HTTPStatus.FORBIDDEN and not is_known:
        return NotAllowed("You are not logged in here.", hint="Log in, then reload the page.")
    if not isinstance(error, HTTPError):
        return GpuError("The Jupyter server failed at this.", hint="Its log says more: please report it.")
    return from_body(status, {"message": message or HTTPStatus(status).phrase})


class HelloHandler(Base):
    """/hello."""

    @admitted
    async def get(self) -> None:
        """Whom a page talks to; starts nothing."""
        self.say(await self.gpu.hello(self.identity))


class ForwardHandler(Base):
    """/api/v1/PATH: the broker's own API, in the name of who asks."""

    @admitted
    async def get(self, _path: str) -> None:
        """Ask the broker what the page asks."""
        await self._pass_on()

    @admitted
    async def post(self, _path: str) -> None:
        """As GET."""
        await self._pass_on()

    @admitted
    async def delete(self, _path: str) -> None:
        """As POST."""
        await self._pass_on()

    async def _pass_on(self) -> None:
        call = forwarding.read(self.request)
        answer = await self.unless_gone(self.client.forward(call))
        self.set_status(answer.status)
        for name, value in forwarding.headers(answer.headers, self.base_url):
            self.set_header(name, value)
        self.finish(answer.body, set_content_type=answer.headers["Content-Type"])


class KernelsHandler(Base):
    """/kernels."""

    @admitted
    async def get(self) -> None:
        """All kernels of this server, and what each has of the GPUs."""
        self.say(KernelList(items=tuple(self.kernels.views())))


class ReservationHandler(Base):
    """/kernels/ID/reservation."""

    @admitted
    async def post(self, kernel_id: str) -> None:
        """Ask for GPUs for a kernel: 201 where they are granted, 202 where it waits, with its reason."""
        view = await self.kernels.reserve(kernel_id, self.read_body(KernelAsk), self.client)
        self.say(view, HTTPStatus.CREATED if view.state is State.ACTIVE else HTTPStatus.ACCEPTED)

    @admitted
    async def delete(self, kernel_id: str) -> None:
        """Leave the line, or give the GPUs back; a kernel that sees them is restarted without, by the page or here."""
        by_page = self.get_query_argument("restart", "server") == "page"
        self.say(await self.kernels.give_back(kernel_id, self.client, by_page=by_page))


class PinHandler(Base):
    """/kernels/ID/pin."""

    @admitted
    async def post(self, kernel_id: str) -> None:
        """Let the kernel see what it was granted."""
        body = self.read_body(PinBody)
        self.say(await self.kernels.pin(kernel_id, self.client, restart=body.restart))


class ClaimHandler(Base):
    """/kernels/ID/claim."""

    @admitted
    async def post(self, kernel_id: str) -> None:
        """One page may restart the kernel: 204 to the first that asks, 409 to all others."""
        if self.kernels.claim(kernel_id):
            self.set_status(HTTPStatus.NO_CONTENT)
        elif kernel_id not in self.kernel_manager:
            raise NotFound("There is no such kernel.", hint="Reload the page.")
        else:
            raise Conflict("Another page restarts this kernel, or it need not be.", hint="Look on.")


class JobsHandler(Base):
    """/jobs."""

    @admitted
    async def post(self) -> None:
        """Send a script or notebook of the file browser to the queue."""
        job, key = self.read_body(FileJob), forwarding.key_of(self.request)
        self.say(await submit_file(job, self.contents_manager, self.client, key=key), HTTPStatus.ACCEPTED)


class NotebookHandler(Base):
    """/notebook?path=PATH."""

    @admitted_to_files
    async def get(self) -> None:
        """What a notebook of the file browser takes as parameters; queues nothing."""
        self.say(await look_at_notebook(self.get_query_argument("path"), self.contents_manager))


async def _say_unknown(self: Base) -> None:
    raise NotFound(f"There is nothing at {self.request.path[:200]!a}.", hint="docs/api.md lists what there is.")


class UnknownHandler(Base):
    """Every path of ours that is none."""

    # Each is admitted by itself: what decorates them keeps the verb that it met first.
    get, post, put = admitted(_say_unknown), admitted(_say_unknown), admitted(_say_unknown)
    patch, delete = admitted(_say_unknown), admitted(_say_unknown)


class StreamHandler(WebSocketMixin, WebSocketHandler, JupyterHandler):
    """/stream: a whole status and the kernels first, then what changes."""

    auth_resource = RESOURCE
    upstream: Upstream | None = None
    who: Identity

    def set_default_headers(self) -> None:
        """None: tornado takes no headers on what becomes a websocket."""

    @ws_authenticated
    async def get(self, *args: Any, **words: Any) -> None:
        """Let in who may read."""
        may_read = self.authorizer.is_authorized(self, self.current_user, "read", RESOURCE)
        if not await ensure_async(may_read):
            raise HTTPError(HTTPStatus.FORBIDDEN, f"User is not authorized to read on resource: {RESOURCE}.")
        try:
            self.who = identity_of(self)
        except GpuError as error:
            raise HTTPError(error.http_status, error.message) from None
        await super().get(*args, **words)

    def open(self) -> None:
        """Listen with all others of the same name."""
        super().open()
        try:
            self.upstream = self.settings["jupyter_gpu"].upstreams.join(self, self.who)
        except LimitExceeded as error:
            self.close(TRY_AGAIN_LATER, error.message)

    def on_message(self, message: str | bytes) -> None:
        """Pages say nothing here."""

    def on_close(self) -> None:
        """The page went away."""
        if self.upstream is not None:
            self.upstream.leave(self)
        super().on_close()


_ID = "([0-9A-Za-z_-]{1,100})"

#: Below the base URL of the server.
ROUTES: list[tuple[str, type[Any]]] = [
    ("jupyter-gpu/hello", HelloHandler),
    ("jupyter-gpu/stream", StreamHandler),
    ("jupyter-gpu/kernels", KernelsHandler),
    (f"jupyter-gpu/kernels/{_ID}/reservation", ReservationHandler),
    (f"jupyter-gpu/kernels/{_ID}/pin", PinHandler),
    (f"jupyter-gpu/kernels/{_ID}/claim", ClaimHandler),
    ("jupyter-gpu/jobs", JobsHandler),
    ("jupyter-gpu/notebook", NotebookHandler),
    ("jupyter-gpu/api/v1/(.+)", ForwardHandler),
    ("jupyter-gpu/?.*", UnknownHandler),
]
